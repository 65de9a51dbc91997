"""Why a value does not fit its schema, in any form."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RefusedValue:
    index: int
    """Among the values that were checked together."""
    path: str
    """Where in the value, as a JSON pointer; empty is the value itself, or where is not known."""
    reason: str
