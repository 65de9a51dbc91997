"""Why a value does not fit its schema, in any form."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

REASON_LENGTH_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class RefusedValue:
    index: int
    """Among the values that were checked together."""
    path: str
    """Where in the value, as a JSON pointer; empty is the value itself, or where is not known."""
    reason: str


class DoesNotFit(Exception):
    """Refuses one value; what passes it on adds where it is."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.parts: list[str] = []
        """Where, the innermost part first."""

    def at(self, index: int) -> RefusedValue:
        return RefusedValue(index, pointer(reversed(self.parts)), str(self)[:REASON_LENGTH_MAX])


def pointer(parts: Iterable[str]) -> str:
    """Return the JSON pointer of a place."""
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in parts)
