"""Keep packages out of a process that has no use for them.

pyarrow imports pandas, where it is installed, with the first array that is made of Python objects.
In a gateway that is two seconds and 60 MiB for nothing.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import ClassVar


class _Refused:
    """A finder that says of some packages, before all others are asked, that there are none."""

    names: ClassVar[set[str]] = set()

    @classmethod
    def find_spec(
        cls, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in cls.names:
            raise ModuleNotFoundError(f"a gateway does without {name}", name=name)
        return None


def refuse(*names: str) -> None:
    """Let every later import of these in this process fail, as if they were not installed."""
    _Refused.names.update(names)
    if _Refused not in sys.meta_path:
        sys.meta_path.insert(0, _Refused)


def refuse_pandas() -> None:
    refuse("pandas")
