"""Infers the columns of a topic's JSON values from a sample. Does no I/O.

    {"id": 1, "tags": ["a"]}, {"id": 2.5}   ──▶   id DOUBLE, tags ARRAY<STRING>

Where values disagree, the type is the narrowest one that holds both, in the end a string: Spark
then returns its JSON. A field that is always null is a string. Column names are case-insensitive,
so of two names that differ only in case the first one is used.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

LONG_MAX: Final = 2**63
DEPTH_MAX: Final = 32
"""Deeper than this, a value is kept as text."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """BOOLEAN, BIGINT, DOUBLE or STRING; "" if all values are null."""

    name: str


@dataclass(frozen=True, slots=True)
class Array:
    element: "Kind"


@dataclass(frozen=True, slots=True)
class StructFields:
    kinds: Mapping[str, "Kind"]


Kind: TypeAlias = Scalar | Array | StructFields

NULL: Final = Scalar("")
STRING: Final = Scalar("STRING")
_NUMBERS: Final = (Scalar("BIGINT"), Scalar("DOUBLE"))


def objects(values: Iterable[bytes | None]) -> list[dict[str, Any]] | None:
    """Return the values as JSON objects, or None if less than half of them are objects."""
    found: list[dict[str, Any]] = []
    count = 0
    for value in values:
        if value is None:
            continue
        count += 1
        try:
            document = json.loads(value)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            found.append(document)
    return found if found and 2 * len(found) >= count else None


def infer(documents: Iterable[Mapping[str, Any]]) -> StructFields:
    """Return the columns of all `documents`, in the order of first occurrence."""
    kind: Kind = StructFields({})
    for document in documents:
        kind = merged(kind, kind_of(document))
    assert isinstance(kind, StructFields), kind
    return kind


def kind_of(value: object, depth: int = 0) -> Kind:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return Scalar("BOOLEAN")
    if isinstance(value, int):
        return Scalar("BIGINT" if -LONG_MAX <= value < LONG_MAX else "DOUBLE")
    if isinstance(value, float):
        return Scalar("DOUBLE")
    if isinstance(value, dict) and depth < DEPTH_MAX:
        return _fields(value, depth)
    if isinstance(value, list) and depth < DEPTH_MAX:
        element: Kind = NULL
        for each in value:
            element = merged(element, kind_of(each, depth + 1))
        return Array(element)
    return STRING


def _fields(value: Mapping[str, Any], depth: int) -> Kind:
    kinds: dict[str, Kind] = {}
    for name, each in value.items():
        if name.lower() not in {known.lower() for known in kinds}:
            kinds[name] = kind_of(each, depth + 1)
    return StructFields(kinds)


def merged(one: Kind, other: Kind) -> Kind:
    """Return the kind that holds values of both."""
    if one == other or other == NULL:
        return one
    if one == NULL:
        return other
    if isinstance(one, StructFields) and isinstance(other, StructFields):
        return _merged_fields(one, other)
    if isinstance(one, Array) and isinstance(other, Array):
        return Array(merged(one.element, other.element))
    return Scalar("DOUBLE") if one in _NUMBERS and other in _NUMBERS else STRING


def _merged_fields(one: StructFields, other: StructFields) -> StructFields:
    kinds = dict(one.kinds)
    names = {name.lower(): name for name in kinds}
    for name, kind in other.kinds.items():
        known = names.get(name.lower())
        if known is None:
            kinds[name] = kind
            names[name.lower()] = name
        elif known == name:
            kinds[name] = merged(kinds[name], kind)
    return StructFields(kinds)


def ddl(fields: StructFields) -> str:
    """Return the columns as Spark's DDL: `id` BIGINT, `tags` ARRAY<STRING>."""
    return ", ".join(f"{quoted(name)} {_type(kind)}" for name, kind in fields.kinds.items())


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _type(kind: Kind) -> str:
    if isinstance(kind, Array):
        return f"ARRAY<{_type(kind.element)}>"
    if isinstance(kind, StructFields) and kind.kinds:
        inner = ", ".join(f"{quoted(name)}: {_type(each)}" for name, each in kind.kinds.items())
        return f"STRUCT<{inner}>"
    # A field that is always null, or always an empty object, may have any type.
    return kind.name if isinstance(kind, Scalar) and kind.name else "STRING"
