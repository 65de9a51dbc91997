"""What makes values up: each from a source of random numbers and the number of the record."""

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeAlias

from service.connect.data.schema import (
    FLOAT64,
    INT32,
    INT64,
    STRING,
    ConnectSchema,
    struct,
)

Make: TypeAlias = Callable[[Random, int], Any]

LETTERS: Final = string.ascii_lowercase + string.digits


@dataclass(frozen=True, slots=True)
class Maker:
    schema: ConnectSchema
    make: Make
    parts_max: int = 1
    """Of a value: itself, its fields and elements, and theirs."""


def chosen(schema: ConnectSchema, options: Sequence[Any]) -> Maker:
    return Maker(schema, lambda random, _: options[int(random.random() * len(options))])


def numbered(prefix: str, count: int, start: int = 1) -> Maker:
    """Make `User_1` … `User_9`."""
    return chosen(STRING, [f"{prefix}{n}" for n in range(start, start + count)])


def whole(low: int, high: int, schema: ConnectSchema = INT32) -> Maker:
    """Make numbers from `low` to below `high`."""
    return Maker(schema, lambda random, _: low + int(random.random() * (high - low)))


def real(low: float, high: float, digits: int) -> Maker:
    return Maker(FLOAT64, lambda random, _: round(low + random.random() * (high - low), digits))


def counted(start: int, step: int = 1, schema: ConnectSchema = INT32) -> Maker:
    """Make a number that grows with each record."""
    return Maker(schema, lambda _, n: start + n * step)


def moment(start_ms: int, step_ms: int) -> Maker:
    """Make milliseconds since 1970 that grow with each record, unevenly."""
    return Maker(INT64, lambda random, n: start_ms + n * step_ms + int(random.random() * step_ms))


def struct_of(name: str, **fields: Maker) -> Maker:
    schema = struct([(field, maker.schema) for field, maker in fields.items()], name=name)
    makes = [(field, maker.make) for field, maker in fields.items()]
    parts_max = 1 + sum(maker.parts_max for maker in fields.values())
    return Maker(
        schema, lambda random, n: {field: make(random, n) for field, make in makes}, parts_max
    )
