"""Prevent imports of packages that the process does not need.

If pandas is installed, pyarrow imports it when it builds the first array from Python objects. In a
gateway that wastes two seconds and 60 MiB.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import ClassVar


class _Refused:
    """A finder, ahead of all others, that reports some packages as not installed."""

    names: ClassVar[set[str]] = set()

    @classmethod
    def find_spec(
        cls, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in cls.names:
            raise ModuleNotFoundError(f"a gateway does without {name}", name=name)
        return None


def refuse(*names: str) -> None:
    """Make every later import of `names` in this process fail, as if not installed."""
    _Refused.names.update(names)
    if _Refused not in sys.meta_path:
        sys.meta_path.insert(0, _Refused)


def permit(*names: str) -> None:
    """Undo `refuse` for `names`, for the rare call that does need them."""
    _Refused.names.difference_update(names)


def refuse_pandas() -> None:
    refuse("pandas")
