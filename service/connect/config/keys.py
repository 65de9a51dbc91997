"""How a key of a configuration is defined, in the words of Kafka's `ConfigDef`.

The same definitions check a configuration, answer `/connector-plugins/…/config/validate`, and make
the tables of `docs/connect.md`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

Config: TypeAlias = Mapping[str, str]
"""A connector's configuration as its user wrote it."""


class KeyType(Enum):
    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"  # noqa: S105
    """A secret: a reference, masked in every answer."""


class Importance(Enum):
    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class _Required(Enum):
    REQUIRED = "required"


REQUIRED: Final = _Required.REQUIRED
"""The default of a key that must be set."""

Check: TypeAlias = Callable[[str, Any], str | None]
"""Takes the key and its parsed value; returns what is wrong with it, in words, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    name: str
    type: KeyType
    default: Any = REQUIRED
    """Parsed, not text; None: unset."""
    importance: Importance = Importance.MEDIUM
    about: str = ""
    group: str = ""
    width: str = "MEDIUM"
    display_name: str = ""
    dependents: Sequence[str] = ()
    choices: Sequence[str] = ()
    """The values it may have, case as written; empty: any."""
    check: Check | None = None


def one_of(*choices: str) -> Check:
    """Return the check of a key with these values, whatever their case."""

    def check(_: str, value: Any) -> str | None:
        if value is None or str(value).lower() in {each.lower() for each in choices}:
            return None
        return f"must be one of {', '.join(choices)}"

    return check


def between(low: float, high: float) -> Check:
    """Return the check of a number from `low` to `high`, both included."""

    def check(_: str, value: Any) -> str | None:
        if value is None or low <= value <= high:
            return None
        return f"must be from {low} to {high}"

    return check
