"""The version of the running gateway."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("riacho")
except PackageNotFoundError:  # Run from a checkout that is not installed.
    VERSION = "0+unknown"
