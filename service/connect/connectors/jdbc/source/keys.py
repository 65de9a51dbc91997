"""The keys of the JDBC source, with Confluent's and Aiven's names and Confluent's defaults."""

from collections.abc import Mapping
from typing import Any, Final

import re2

from service.connect.config.keys import (
    REQUIRED,
    Config,
    Importance,
    Key,
    KeyType,
    between,
    one_of,
)
from service.connect.connectors.jdbc.keys import (
    CONNECTION_KEYS,
    IGNORED,
    LONG_MAX,
    dialect_problem,
    jdbc_key,
)

BULK: Final = "bulk"
INCREMENTING: Final = "incrementing"
TIMESTAMP: Final = "timestamp"
BOTH: Final = "timestamp+incrementing"

NUMERIC_MAPPINGS: Final = ("none", "precision_only", "best_fit", "best_fit_eager_double")
GRANULARITIES: Final = (
    "connect_logical",
    *("micros_long", "micros_string", "micros_iso_datetime_string"),
    *("nanos_long", "nanos_string", "nanos_iso_datetime_string"),
)
TABLE_TYPES: Final = ("TABLE", "PARTITIONED TABLE", "VIEW", "MATERIALIZED VIEW")

_TABLES: Final = "Tables"
_MODE: Final = "Mode"
_CONNECTOR: Final = "Connector"


def _are_patterns(_: str, value: Any) -> str | None:
    for pattern in value or ():
        try:
            re2.compile(pattern)
        except re2.error:
            return f"{pattern!r} is no regular expression"
    return None


def _are_types(_: str, value: Any) -> str | None:
    unknown = [each for each in value if each.upper() not in TABLE_TYPES]
    return f"{unknown[0]!r} is none of {', '.join(TABLE_TYPES)}" if unknown else None


def _list(name: str, about: str, **more: Any) -> Key:
    return jdbc_key(name, KeyType.LIST, [], about, _TABLES, **more)


_TABLE_KEYS: Final = (
    _list("table.whitelist", "The tables to read, and no others."),
    _list("table.blacklist", "The tables not to read."),
    _list(
        "table.include.list",
        "Regular expressions of the whole names of the tables to read, like shop.public.order.*",
        check=_are_patterns,
    ),
    _list(
        "table.exclude.list",
        "Regular expressions of tables not to read, of those that table.include.list names.",
        check=_are_patterns,
    ),
    jdbc_key(
        "table.types",
        KeyType.LIST,
        ["TABLE"],
        "What counts as a table.",
        _TABLES,
        importance=Importance.LOW,
        check=_are_types,
    ),
    jdbc_key(
        "schema.pattern",
        KeyType.STRING,
        None,
        "A LIKE pattern of the schemas that are searched for tables; unset: all but the system's.",
        _TABLES,
    ),
    jdbc_key(
        "catalog.pattern",
        KeyType.STRING,
        None,
        "A LIKE pattern of catalogs; of MariaDB and MySQL, the databases that are searched.",
        _TABLES,
    ),
    jdbc_key(
        "table.poll.interval.ms",
        KeyType.LONG,
        60_000,
        "How often a task looks whether tables were added or removed.",
        _TABLES,
        importance=Importance.LOW,
    ),
)

_MODE_KEYS: Final = (
    jdbc_key(
        "mode",
        KeyType.STRING,
        REQUIRED,
        "How new rows are found: bulk, incrementing, timestamp, timestamp+incrementing.",
        _MODE,
        importance=Importance.HIGH,
        check=one_of(BULK, INCREMENTING, TIMESTAMP, BOTH),
    ),
    jdbc_key(
        "incrementing.column.name",
        KeyType.STRING,
        "",
        "The column of whole numbers that grows with each row; empty: the one that the database"
        " counts itself.",
        _MODE,
    ),
    jdbc_key(
        "incrementing.initial",
        KeyType.LONG,
        -1,
        "Rows whose incrementing column is above it are read.",
        _MODE,
        importance=Importance.LOW,
        check=between(-LONG_MAX, LONG_MAX),
    ),
    jdbc_key(
        "timestamp.column.name",
        KeyType.LIST,
        [],
        "The columns that say when a row was written; of several, the first that is not null.",
        _MODE,
    ),
    jdbc_key(
        "timestamp.initial",
        KeyType.LONG,
        None,
        "Begin with rows later than this, in ms since 1970; -1: now. Unset: with all rows.",
        _MODE,
        importance=Importance.LOW,
        check=between(-LONG_MAX, LONG_MAX),
    ),
    jdbc_key(
        "timestamp.initial.ms",
        KeyType.LONG,
        None,
        "Aiven's name of timestamp.initial, where -1 is a time like others.",
        _MODE,
        importance=Importance.LOW,
        check=between(-LONG_MAX, LONG_MAX),
    ),
    jdbc_key(
        "timestamp.delay.interval.ms",
        KeyType.LONG,
        0,
        "Leave out rows that are younger: transactions may yet commit rows with earlier times.",
        _MODE,
        importance=Importance.HIGH,
    ),
    jdbc_key(
        "timestamp.granularity",
        KeyType.STRING,
        "connect_logical",
        "What a timestamp is in records: Connect's Timestamp, which has milliseconds, or a number"
        " or text with more.",
        _MODE,
        importance=Importance.LOW,
        check=one_of(*GRANULARITIES),
    ),
    jdbc_key(
        "validate.non.null",
        KeyType.BOOLEAN,
        True,
        "Refuse tables whose incrementing or timestamp columns may be null: such rows are not"
        " found.",
        _MODE,
        importance=Importance.LOW,
    ),
    jdbc_key(
        "query",
        KeyType.STRING,
        "",
        "Read the rows of this query instead of tables. Modes other than bulk filter its rows.",
        _MODE,
    ),
    jdbc_key(
        "query.suffix",
        KeyType.STRING,
        "",
        "Text at the end of every statement.",
        _MODE,
        importance=Importance.LOW,
    ),
)

_CONNECTOR_KEYS: Final = (
    jdbc_key(
        "topic.prefix",
        KeyType.STRING,
        REQUIRED,
        "What topics are called before the name of the table; with a query, the whole name.",
        _CONNECTOR,
        importance=Importance.HIGH,
    ),
    jdbc_key(
        "poll.interval.ms",
        KeyType.INT,
        5000,
        "How long to wait after a table was read to its end.",
        _CONNECTOR,
        importance=Importance.HIGH,
    ),
    jdbc_key(
        "batch.max.rows",
        KeyType.INT,
        1000,
        "How many rows are fetched from the database at a time.",
        _CONNECTOR,
        importance=Importance.LOW,
        check=between(1, 100_000),
    ),
    jdbc_key(
        "numeric.mapping",
        KeyType.STRING,
        None,
        "What NUMERIC becomes: none: Decimal; precision_only: whole numbers, if they fit;"
        " best_fit: floating point, too; best_fit_eager_double: floating point at any precision.",
        _CONNECTOR,
        importance=Importance.LOW,
        check=one_of(*NUMERIC_MAPPINGS),
    ),
    jdbc_key(
        "numeric.precision.mapping",
        KeyType.BOOLEAN,
        False,
        "The older name of numeric.mapping=precision_only.",
        _CONNECTOR,
        importance=Importance.LOW,
    ),
)

SOURCE_KEYS: Final = (*CONNECTION_KEYS, *_TABLE_KEYS, *_MODE_KEYS, *_CONNECTOR_KEYS)

SOURCE_IGNORED: Final[Mapping[str, str]] = {
    **IGNORED,
    "query.retry.attempts": "errors.retry.timeout and the restarts of tasks say how long to retry",
    "max.buffer.size": "a task keeps no more than the rows of one poll",
    "poll.linger.ms": "the runner waits no longer for records than it has time",
    "table.monitoring.startup.polling.limit.ms": "tables are found before tasks are planned",
    "transaction.isolation.mode": "each statement sees one snapshot, as the database has it",
    "table.names.qualify": "statements always name the schema of a table",
}


def source_problems(config: Config) -> Mapping[str, str]:
    """Return what the keys contradict each other in."""
    problems: dict[str, str] = {}
    given = {name for name, text in config.items() if text.strip()}
    mode = config.get("mode", "").lower()
    lists = {"table.whitelist", "table.blacklist"} & given
    patterns = {"table.include.list", "table.exclude.list"} & given
    if len(lists) == 2:
        problems["table.blacklist"] = "cannot be set together with table.whitelist"
    if lists and patterns:
        problems[min(patterns)] = f"cannot be set together with {min(lists)}"
    if "table.exclude.list" in patterns and "table.include.list" not in patterns:
        problems["table.exclude.list"] = "needs table.include.list"
    if "query" in given and (lists or patterns):
        problems["query"] = f"cannot be set together with {min(lists | patterns)}"
    if mode in (TIMESTAMP, BOTH) and "timestamp.column.name" not in given:
        problems["timestamp.column.name"] = f"is required in mode {mode}"
    counts = "query" in given and mode in (INCREMENTING, BOTH)
    if counts and "incrementing.column.name" not in given:
        problems["incrementing.column.name"] = "is required with a query"
    if (wrong := dialect_problem(config)) is not None:
        problems["dialect.name"] = wrong
    return problems
