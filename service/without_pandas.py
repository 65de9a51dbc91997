"""Keep pandas out of a process that has no use for it.

pyarrow imports pandas, where it is installed, with the first array that is made of Python objects.
In a gateway that is two seconds and 60 MiB for nothing.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Refused:
    """A finder that says of pandas, before all others are asked, that there is none."""

    @staticmethod
    def find_spec(
        name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("a gateway does without pandas", name=name)
        return None


def refuse_pandas() -> None:
    """Let every later import of pandas in this process fail, as if it were not installed."""
    if _Refused not in sys.meta_path:
        sys.meta_path.insert(0, _Refused)
