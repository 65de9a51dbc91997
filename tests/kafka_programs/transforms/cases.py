"""Records and configurations of transforms, as a seed makes them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final

from service.connect.data.records import ConnectRecord, FromLog, Header
from service.connect.data.schema import (
    BOOLEAN,
    BYTES,
    DATE_SCHEMA,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    ConnectSchema,
    array,
    decimal,
    map_of,
    struct,
)

TOPICS: Final = ("orders", "orders-eu", "eu.orders.v2", "x")
TEXTS: Final = (
    *("", "abc", "12", "-7", "+3", "300", "99999999999999999999", "1.5", "1e3", ".5f", "0x1p3"),
    *("true", "TRUE", "no", "NaN", "Infinity", " 5", "2024-02-29", "2024-02-29 13:05:09"),
    *("29.2.2024", "20240229", "Thu, 29 Feb 2024", "01:02 PM", "2024-13-41", "é∂"),
)
NUMBERS: Final = (0, 1, -1, 127, 128, -129, 32768, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1)
FLOATS: Final = (0.0, 1.0, -2.5, 0.1, 1e10, 1e300, -1e20, 123456.789, 3.9999)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Case:
    kind: str
    """The short name of the class."""
    config: Mapping[str, str]
    record: ConnectRecord


def _whole(bits: int) -> Callable[[Random], int]:
    def made(random: Random) -> int:
        number = random.choice(NUMBERS)
        return number if -(1 << bits) <= number < 1 << bits else random.randrange(100)

    return made


def _moment(random: Random) -> datetime:
    ms = random.choice((0, 86_400_000, 1_709_211_909_123, random.randrange(1 << 42)))
    return EPOCH + timedelta(milliseconds=ms)


LEAVES: Final[Mapping[str, tuple[ConnectSchema, Callable[[Random], Any]]]] = {
    "i8": (INT8, _whole(7)),
    "i16": (INT16, _whole(15)),
    "i32": (INT32, _whole(31)),
    "id": (INT64, _whole(63)),
    "f32": (FLOAT32, lambda random: random.choice((0.0, 1.5, -0.25, 1e10))),
    "price": (FLOAT64, lambda random: random.choice(FLOATS)),
    "flag": (BOOLEAN, lambda random: random.random() < 0.5),
    "name": (STRING, lambda random: random.choice(TEXTS)),
    "raw": (BYTES, lambda random: random.randbytes(random.randrange(4))),
    "dec": (decimal(2), lambda random: Decimal(random.randrange(-99999, 99999)).scaleb(-2)),
    "day": (
        DATE_SCHEMA,
        lambda random: date(1970, 1, 2) + timedelta(days=random.randrange(30_000)),
    ),
    "at": (
        TIME_SCHEMA,
        lambda random: (EPOCH + timedelta(milliseconds=random.randrange(86_400_000))).time(),
    ),
    "when": (TIMESTAMP_SCHEMA, _moment),
    "tags": (array(STRING), lambda random: ["a"] * random.randrange(3)),
}
NAMES: Final = (*LEAVES, "n", "m", "absent")


def typed_struct(random: Random, level: int = 0) -> tuple[ConnectSchema, dict[str, Any]]:
    """Return a schema of a STRUCT, and a value of it."""
    fields: list[tuple[str, ConnectSchema]] = []
    value: dict[str, Any] = {}
    for name in random.sample(list(LEAVES), random.randrange(2, 7)):
        schema, make = LEAVES[name]
        if random.random() < 0.3:
            schema = replace(schema, is_optional=True)
        if random.random() < 0.2:
            schema = replace(schema, default=make(random), is_optional=True)
        fields.append((name, schema))
        value[name] = None if schema.is_optional and random.random() < 0.4 else make(random)
    if level < 2 and random.random() < 0.5:
        schema, inner = typed_struct(random, level + 1)
        schema = replace(schema, is_optional=random.random() < 0.5)
        fields.append(("n", schema))
        value["n"] = None if schema.is_optional and random.random() < 0.4 else inner
    if random.random() < 0.1:
        fields.append(("m", map_of(STRING, INT32)))
        value["m"] = {"k": 1}
    more: dict[str, Any] = {}
    if random.random() < 0.3:
        more = {"name": f"shop.Order{level}", "version": 3, "doc": "d", "parameters": (("p", "q"),)}
    return replace(struct(fields, **more), is_optional=random.random() < 0.2), value


def plain(random: Random, level: int = 0) -> dict[str, Any]:
    """Return a value without a schema."""
    plains = ("id", "price", "flag", "name", "tags")
    value = {
        name: None if random.random() < 0.1 else LEAVES[name][1](random)
        for name in random.sample(plains, random.randrange(1, 6))
    }
    if level < 2 and random.random() < 0.5:
        value["n"] = plain(random, level + 1)
    return value


def data(random: Random) -> tuple[ConnectSchema | None, Any]:
    """Return a key or a value of any kind."""
    chance = random.random()
    if chance < 0.45:
        return typed_struct(random)
    if chance < 0.8:
        return None, plain(random)
    if chance < 0.86:
        return None, None
    name = random.choice(list(LEAVES))
    schema, make = LEAVES[name]
    if chance < 0.9:
        plains = ("id", "price", "flag", "name", "tags")
        return None, LEAVES[random.choice(plains)][1](random)
    if chance < 0.93:
        return replace(schema, is_optional=True), None
    return schema, make(random)


def record_of(random: Random) -> ConnectRecord:
    key_schema, key = data(random)
    value_schema, value = data(random)
    topic, offset = random.choice(TOPICS), random.randrange(1 << 40)
    headers = tuple(
        Header(random.choice("abc"), value, schema)
        for schema, value in [(STRING, "x"), (INT32, 5), (STRING, "y")][: random.randrange(4)]
    )
    return ConnectRecord(
        topic,
        random.randrange(8),
        key,
        value,
        key_schema,
        value_schema,
        None if random.random() < 0.1 else random.randrange(1 << 41),
        headers,
        FromLog(topic, 0, offset),
    )


def _names(random: Random, most: int = 3) -> str:
    return ",".join(random.sample(NAMES, random.randrange(1, most + 1)))


def _cast(random: Random) -> dict[str, str]:
    kinds = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
    if random.random() < 0.25:
        return {"spec": random.choice(kinds)}
    names = _names(random, 4).split(",")
    return {"spec": ",".join(f"{name}:{random.choice(kinds)}" for name in names)}


def _insert(random: Random) -> dict[str, str]:
    options = {
        "topic.field": "t",
        "partition.field": "p!",
        "offset.field": "o?",
        "timestamp.field": "ts",
        "static.field": random.choice(("s", "id", "s!")),
    }
    chosen = dict(random.sample(list(options.items()), random.randrange(1, 5)))
    return {**chosen, "static.value": "v v"}


def _replace(random: Random) -> dict[str, str]:
    config = {}
    renamed = random.sample(list(LEAVES), 2)
    if random.random() < 0.7:
        config["renames"] = ",".join(f"{name}:new_{name}" for name in renamed)
    if random.random() < 0.5:
        config["exclude"] = _names(random)
    if random.random() < 0.3:
        config["include"] = _names(random, 8)
    return config


def _header_from(random: Random) -> dict[str, str]:
    names = _names(random, 2)
    headers = ",".join(f"h{number}" for number in range(names.count(",") + 1))
    return {"fields": names, "headers": headers, "operation": random.choice(("move", "copy"))}


def _extract(random: Random) -> dict[str, str]:
    if random.random() < 0.5:
        return {"field": random.choice(NAMES)}
    return {
        "field": random.choice(("n.id", "n.n.name", "`n`.price", "id", "n.absent", "tags.x")),
        "field.syntax.version": "V2",
    }


def _timestamps(random: Random) -> dict[str, str]:
    config = {
        "target.type": random.choice(("string", "unix", "Date", "Time", "Timestamp")),
        "unix.precision": random.choice(("seconds", "milliseconds", "microseconds", "nanoseconds")),
        "format": random.choice(PATTERNS),
    }
    if random.random() < 0.8:
        config["field"] = random.choice(("when", "day", "at", "name", "id", "price", "absent"))
    return config


PATTERNS: Final = (
    *("yyyy-MM-dd", "yyyy-MM-dd HH:mm:ss", "yyyyMMdd", "d.M.y", "EEE, d MMM yyyy", "hh:mm a"),
    *("yyyy-MM-dd'T'HH:mm:ss.SSSX", "D u k K EEEE MMMM ''yyy Z z", "SSSSS h L LLL"),
)

CONFIGS: Final[Mapping[str, Callable[[Random], dict[str, str]]]] = {
    "Cast": _cast,
    "DropHeaders": lambda random: {"headers": random.choice(("a", "a,b", "z"))},
    "ExtractField": _extract,
    "Filter": lambda _: {},
    "Flatten": lambda random: {"delimiter": random.choice((".", "_", " "))},
    "HeaderFrom": _header_from,
    "HoistField": lambda _: {"field": "f"},
    "InsertField": _insert,
    "InsertHeader": lambda random: {
        "header": "h",
        "value.literal": random.choice((*TEXTS, '{"a":[1,2]}', "[1.5,2]", "null")),
    },
    "MaskField": lambda random: {
        "fields": _names(random),
        **({"replacement": random.choice(TEXTS[1:])} if random.random() < 0.5 else {}),
    },
    "RegexRouter": lambda random: {
        "regex": random.choice(("(.*)-(eu)", "o|orders", "(?:eu\\.)?(\\w+)(-eu)?", "[a-z]*")),
        "replacement": random.choice(("new", "$0-\\$", "a\\b$0x")),
    },
    "ReplaceField": _replace,
    "SetSchemaMetadata": lambda random: {
        "schema.name": "new.Name",
        **({"schema.version": "7"} if random.random() < 0.5 else {}),
    },
    "TimestampConverter": _timestamps,
    "TimestampRouter": lambda random: {
        "topic.format": random.choice(("${topic}-${timestamp}", "a$1${timestamp}${timestamp}")),
        "timestamp.format": random.choice(("yyyyMMdd", *PATTERNS)),
    },
    "ValueToKey": lambda random: {"fields": _names(random)},
    "predicates.HasHeaderKey": lambda random: {"name": random.choice("abz")},
    "predicates.RecordIsTombstone": lambda _: {},
    "predicates.TopicNameMatches": lambda random: {"pattern": random.choice(("orders", ".*eu.*"))},
}
ONE_SIDED: Final = frozenset(
    {
        *("DropHeaders", "Filter", "InsertHeader", "RegexRouter", "TimestampRouter", "ValueToKey"),
        *(name for name in CONFIGS if name.startswith("predicates.")),
    }
)
WITH_DEFAULTS: Final = frozenset(
    {
        *("Cast", "ExtractField", "HeaderFrom", "InsertField", "MaskField", "ReplaceField"),
        *("SetSchemaMetadata", "TimestampConverter", "ValueToKey"),
    }
)


def cases_of(name: str, count: int) -> list[Case]:
    """Return cases of a transform or predicate, the same ones every time."""
    random = Random(name)
    cases = []
    for _ in range(count):
        config = CONFIGS[name](random)
        if name in WITH_DEFAULTS and random.random() < 0.4:
            config["replace.null.with.default"] = random.choice(("true", "false"))
        side = "" if name in ONE_SIDED else random.choice(("$Key", "$Value"))
        cases.append(Case(name + side, config, record_of(random)))
    return cases
