"""Statements about a whole run: facts, and complaints in words."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Fact:
    """A property of the whole run; it is not written if it has its default."""

    name: str
    value: float | int | str | bool | None


@dataclass(frozen=True)
class Complaint:
    """A problem that a client or a check reported, in words."""

    about: str
    text: str


def _sum(values: list[Any]) -> Any:
    return sum(values)


def _all(values: list[Any]) -> Any:
    """Return whether all known values are true; None if no value is known."""
    known = [value for value in values if value is not None]
    return all(known) if known else None


def _the_one(values: list[Any]) -> Any:
    """Return the only value that was given. Raises `ValueError` if values differ."""
    said = {value for value in values if value}
    if len(said) > 1:
        raise ValueError(f"there are {sorted(said)}")
    return said.pop() if said else values[0]


FACTS: Final[Mapping[str, Callable[[list[Any]], Any]]] = {
    "batches": _sum,
    "group.session_s": _the_one,
    "group.is_drained": _all,
    "transactions.copies_to": _the_one,
    "transactions.is_drained": _all,
    "keyed.compacted": _sum,
    "keyed.swept": _sum,
    "keyed.swept_batches": _sum,
    "keyed.lost_leases": _sum,
    "keyed.killed": _sum,
    "keyed.tombstone_s": _the_one,
}
"""Facts about a whole run, and how those of several histories are combined."""

COMPLAINTS: Final = (
    "damage",
    "stuck",
    "group.errors",
    "idempotent.errors",
    "idempotent.stuck",
    "transactions.errors",
    "doors.errors",
    "schemas.errors",
    "connect.errors",
)


def paths_of(history: Any, before: str = "") -> Iterator[str]:
    """Yield the dotted path of every field of a history."""
    for each in fields(history):
        value = getattr(history, each.name)
        if is_dataclass(value):
            yield from paths_of(value, f"{before}{each.name}.")
        else:
            yield f"{before}{each.name}"
