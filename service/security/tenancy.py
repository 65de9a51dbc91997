"""Names as a tenant sees them, and as they are stored.

A key may have a name prefix, which isolates a tenant: whatever names a topic, a group or a
transactional id in a request gets the prefix in front, and loses it in answers. The tenant can
neither see nor name anything that lacks it. Requests and answers are structs whose fields say by
their names what they hold, so one function translates all of them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

NAMES: Final = frozenset(
    {"topic", "group", "group_id", "transactional_id", "transaction_id", "subject"}
)
"""Fields that hold a name. That of a transaction begins with its transactional id."""

LISTS_OF_NAMES: Final = frozenset({"topics"})

IN_PATHS: Final = frozenset({"topic", "group", "transaction", "subject", "connector"})
"""Parameters of paths that hold a name."""


def inward(body: T, prefix: str) -> T:
    """Return `body` with `prefix` in front of every name."""
    return _translated(body, lambda name: prefix + name)


def outward(body: T, prefix: str) -> T:
    """Return `body` without `prefix` in front of names; those of others do not occur in it."""
    return _translated(body, lambda name: name.removeprefix(prefix))


def _translated(value: T, name: Callable[[str], str]) -> T:
    if isinstance(value, list | tuple):
        return type(value)(_translated(each, name) for each in value)
    changed: dict[str, Any] = {}
    for field in _fields(value):
        old = getattr(value, field)
        if field in NAMES and isinstance(old, str):
            changed[field] = name(old)
        elif field in LISTS_OF_NAMES and _is_names(old):
            changed[field] = [name(each) for each in old]
        else:
            new = _translated(old, name)
            if new is not old:
                changed[field] = new
    if not changed:
        return value
    replace: Any = dataclasses.replace
    if isinstance(value, msgspec.Struct):
        replace = msgspec.structs.replace
    replaced: T = replace(value, **changed)
    return replaced


def _is_names(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)


def _fields(value: object) -> tuple[str, ...]:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tuple(field.name for field in dataclasses.fields(value))
    return ()
