"""Values that fit an Avro schema, made up as the schema's `arg.properties` say.

    options     one of these values
    iteration   {"start": 0, "step": 1, "restart": 100}: a number that grows with each record
    range       {"min": 0, "max": 10}: numbers from min to below max
    length      5 or {"min": 1, "max": 10}: of strings, bytes, arrays, maps
    regex       strings that match: see `patterns.py`
    odds        0.5: how often a boolean is true

A schema whose values could be very large is refused, and so is one that contains itself, and a
union of anything but null and one type.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from service.connect.connectors.datagen.makers import LETTERS, Make, Maker, chosen
from service.connect.connectors.datagen.patterns import text_like
from service.connect.data import logical
from service.connect.data.schema import (
    BOOLEAN,
    BYTES,
    DATE_SCHEMA,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    STRING,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    ConnectSchema,
    array,
    map_of,
    struct,
)
from storage.schemas.avro.parsing import parse_avro
from storage.schemas.avro.types import (
    AvroArray,
    AvroMap,
    AvroNamed,
    AvroPrimitive,
    AvroType,
    AvroUnion,
)
from storage.schemas.source import InvalidSchema

SCHEMA_CHARS_MAX: Final = 100_000
LEVELS_MAX: Final = 20
PARTS_MAX: Final = 10_000
"""Fields and elements of one value, and theirs."""

LENGTH_MAX: Final = 10_000
_LENGTH: Final = (1, 16)
_ELEMENTS: Final = (0, 5)
_NULL_ODDS: Final = 0.25
_PROPERTIES: Final = "arg.properties"
_BITS: Final = {"int": 31, "long": 63}
_SCALARS: Final[Mapping[str, ConnectSchema]] = {
    "boolean": BOOLEAN,
    "int": INT32,
    "long": INT64,
    "float": FLOAT32,
    "double": FLOAT64,
    "bytes": BYTES,
    "string": STRING,
}
_LOGICAL: Final[Mapping[tuple[str, str], tuple[ConnectSchema, Callable[[int], Any], int]]] = {
    ("int", "date"): (DATE_SCHEMA, logical.date_from_days, 40_000),
    ("int", "time-millis"): (TIME_SCHEMA, logical.time_from_ms, logical.DAY_MS),
    ("long", "timestamp-millis"): (TIMESTAMP_SCHEMA, logical.timestamp_from_ms, 4 * 10**12),
}
"""With what makes values of numbers, and what these are below unless a range says more."""


def maker_of(text: str) -> Maker:
    """Return the maker of values of a schema. Raise `ValueError` in words."""
    if len(text) > SCHEMA_CHARS_MAX:
        raise ValueError(f"the schema has more than {SCHEMA_CHARS_MAX} characters")
    try:
        tree, _ = parse_avro(text, {})
    except InvalidSchema as error:
        raise ValueError(f"the schema is not Avro: {error}") from error
    if not (isinstance(tree, AvroNamed) and tree.kind == "record"):
        raise ValueError("the schema must be a record")
    return _maker(tree, 0)


def _maker(tree: AvroType, level: int) -> Maker:
    if level > LEVELS_MAX:
        raise ValueError(f"the schema contains itself, or nests more than {LEVELS_MAX} levels")
    match tree:
        case AvroUnion():
            made = _optional(tree, level)
        case AvroArray():
            made = _array(tree, level)
        case AvroMap():
            made = _map(tree, level)
        case AvroNamed():
            made = _named(tree, level)
        case _:
            made = _primitive(tree)
    if made.parts_max > PARTS_MAX:
        raise ValueError(f"values of the schema could have more than {PARTS_MAX} parts")
    return made


def _optional(tree: AvroUnion, level: int) -> Maker:
    rest = [each for each in tree.branches if each.kind != "null"]
    if len(rest) != 1 or len(tree.branches) > 2:
        raise ValueError("a union must be of null and one other type")
    inner = _maker(rest[0], level + 1)
    if len(tree.branches) == 1:
        return inner
    make = inner.make
    return Maker(
        inner.schema.optional(),
        lambda random, n: None if random.random() < _NULL_ODDS else make(random, n),
        inner.parts_max,
    )


def _array(tree: AvroArray, level: int) -> Maker:
    of = _maker(tree.items, level + 1)
    low, high = _length(_said(tree.props), _ELEMENTS)
    make = of.make
    return Maker(
        array(of.schema),
        lambda random, n: [make(random, n) for _ in range(_between(random, low, high))],
        1 + high * of.parts_max,
    )


def _map(tree: AvroMap, level: int) -> Maker:
    of = _maker(tree.values, level + 1)
    low, high = _length(_said(tree.props), _ELEMENTS)
    make = of.make
    return Maker(
        map_of(STRING, of.schema),
        lambda random, n: {f"key_{k}": make(random, n) for k in range(_between(random, low, high))},
        1 + high * of.parts_max,
    )


def _named(tree: AvroNamed, level: int) -> Maker:
    if tree.kind == "enum":
        return chosen(STRING, _options(_said(tree.props), tree.symbols))
    if tree.kind == "fixed":
        if tree.size > LENGTH_MAX:
            raise ValueError(f"{tree.full_name} has more than {LENGTH_MAX} bytes")
        return Maker(BYTES, lambda random, _: random.randbytes(tree.size))
    fields = [(field.name, _maker(field.type, level + 1)) for field in tree.fields]
    makes = [(name, maker.make) for name, maker in fields]
    return Maker(
        struct([(name, maker.schema) for name, maker in fields], name=tree.full_name),
        lambda random, n: {name: make(random, n) for name, make in makes},
        1 + sum(maker.parts_max for _, maker in fields),
    )


def _primitive(tree: AvroPrimitive) -> Maker:
    kind, said = tree.kind, _said(tree.props)
    if kind == "null":
        raise ValueError("a field cannot be null alone")
    schema = _SCALARS[kind]
    if "options" in said:
        return chosen(schema, _options(said, None, kind))
    if kind in _BITS:
        return _whole(tree, said)
    make = _of_kind(kind, said)
    return Maker(schema, make)


def _of_kind(kind: str, said: Mapping[str, Any]) -> Make:
    low, high = _length(said, _LENGTH)
    if kind == "boolean":
        odds = _number(said.get("odds", 0.5))
        return lambda random, _: random.random() < odds
    if kind == "bytes":
        return lambda random, _: random.randbytes(_between(random, low, high))
    if kind == "string":
        if "regex" in said:
            like = text_like(str(said["regex"]))
            return lambda random, _: like(random)
        return lambda random, _: "".join(random.choices(LETTERS, k=_between(random, low, high)))
    least, most = _range(said, 0.0, 1.0)
    return lambda random, _: least + random.random() * (most - least)


def _whole(tree: AvroPrimitive, said: Mapping[str, Any]) -> Maker:
    bits = _BITS[tree.kind]
    schema, above, below = _SCALARS[tree.kind], None, 1 << bits
    found = _LOGICAL.get((tree.kind, str(tree.props.get("logicalType"))))
    if found is not None:
        schema, above, below = found
    least, most = (int(end) for end in _range(said, 0, below))
    if not -(1 << bits) <= least < most <= 1 << bits:
        raise ValueError(f"the range {least} to {most} is empty, or not of {tree.kind}")

    def number(random: Random, _: int) -> int:
        return random.randrange(least, most)

    make: Make = number if "iteration" not in said else _iteration(said["iteration"], bits)
    if above is None:
        return Maker(schema, make)
    of = above
    return Maker(schema, lambda random, n: of(make(random, n)))


def _iteration(said: Any, bits: int) -> Make:
    said = _object(said)
    start, step = int(_number(said.get("start", 0))), int(_number(said.get("step", 1)))
    span = abs(int(_number(said["restart"])) - start) if "restart" in said else 1 << bits
    if step == 0 or span == 0:
        raise ValueError("an iteration needs a step and a restart that differ from 0 and its start")
    count = max(1, -(-span // abs(step)))
    return lambda _, n: start + n % count * step


def _options(said: Mapping[str, Any], otherwise: Any, kind: str = "string") -> list[Any]:
    options = said.get("options", otherwise)
    fits = {
        "string": str,
        "bytes": str,
        "boolean": bool,
        "int": int,
        "long": int,
        "float": int | float,
        "double": int | float,
    }
    if not isinstance(options, list) or not options:
        raise ValueError("options must be a list of values")
    for each in options:
        if not isinstance(each, fits[kind]) or (isinstance(each, bool) and kind != "boolean"):
            raise ValueError(f"the option {each!r} is not a {kind}")
    if kind == "bytes":
        return [str(each).encode() for each in options]
    return [float(each) for each in options] if kind in ("float", "double") else options


def _said(props: Mapping[str, Any]) -> Mapping[str, Any]:
    return _object(props.get(_PROPERTIES, {}))


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} in {_PROPERTIES} is not an object")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} in {_PROPERTIES} is not a number")
    return value


def _range(said: Mapping[str, Any], low: float, high: float) -> tuple[float, float]:
    found = _object(said.get("range", {}))
    return _number(found.get("min", low)), _number(found.get("max", high))


def _length(said: Mapping[str, Any], otherwise: tuple[int, int]) -> tuple[int, int]:
    length = said.get("length")
    if length is None:
        return otherwise
    if isinstance(length, dict):
        low, high = int(_number(length.get("min", 0))), int(_number(length.get("max", 0)))
        high = max(low, high - 1) if "max" in length else low + otherwise[1]
    else:
        low = high = int(_number(length))
    if not 0 <= low <= high <= LENGTH_MAX:
        raise ValueError(f"a length must be from 0 to {LENGTH_MAX}")
    return low, high


def _between(random: Random, low: int, high: int) -> int:
    """Return a number from `low` to `high`, both included."""
    return low + int(random.random() * (high - low + 1))
