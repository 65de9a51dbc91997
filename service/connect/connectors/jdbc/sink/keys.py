"""The keys of the JDBC sink, with Confluent's and Aiven's names and Confluent's defaults."""

from collections.abc import Mapping
from typing import Any, Final

from service.connect.config.keys import Config, Importance, KeyType, between, one_of
from service.connect.connectors.jdbc.keys import (
    CONNECTION_KEYS,
    IGNORED,
    dialect_problem,
    jdbc_key,
)

NONE: Final = "none"
KAFKA: Final = "kafka"
RECORD_KEY: Final = "record_key"
RECORD_VALUE: Final = "record_value"

INSERT: Final = "insert"
UPSERT: Final = "upsert"
UPDATE: Final = "update"

OFFSETS_TABLE: Final = "riacho_connect_offsets"
KAFKA_FIELDS: Final = ("__connect_topic", "__connect_partition", "__connect_offset")

_WRITES: Final = "Writes"
_MAPPING: Final = "Data Mapping"
_DDL: Final = "DDL Support"
_RETRIES: Final = "Retries"
_POSITIONS: Final = "Exactly Once"


def _are_pairs(_: str, value: Any) -> str | None:
    wrong = [each for each in value or () if not all(each.partition(":"))]
    return f"{wrong[0]!r} is not written TOPIC:TABLE" if wrong else None


SINK_KEYS: Final = (
    *CONNECTION_KEYS,
    jdbc_key(
        "insert.mode",
        KeyType.STRING,
        INSERT,
        "insert adds rows, upsert adds or replaces them by their key, update changes rows that"
        " are there.",
        _WRITES,
        importance=Importance.HIGH,
        check=one_of(INSERT, UPSERT, UPDATE),
    ),
    jdbc_key(
        "batch.size",
        KeyType.INT,
        3000,
        "How many rows a statement has at most.",
        _WRITES,
        check=between(1, 100_000),
    ),
    jdbc_key(
        "delete.enabled",
        KeyType.BOOLEAN,
        False,
        "A record without a value deletes the row of its key; needs pk.mode=record_key.",
        _WRITES,
    ),
    jdbc_key(
        "replace.null.with.default",
        KeyType.BOOLEAN,
        True,
        "A field that is null gets the default of its schema, if it has one.",
        _WRITES,
    ),
    jdbc_key(
        "table.name.format",
        KeyType.STRING,
        "${topic}",
        "The table of a topic; ${topic} is its name.",
        _MAPPING,
    ),
    jdbc_key(
        "table.name.normalize",
        KeyType.BOOLEAN,
        False,
        "Other characters than letters, digits and _ become _ in names of tables.",
        _MAPPING,
    ),
    jdbc_key(
        "topics.to.tables.mapping",
        KeyType.LIST,
        [],
        "The tables of some topics, each TOPIC:TABLE.",
        _MAPPING,
        check=_are_pairs,
    ),
    jdbc_key(
        "pk.mode",
        KeyType.STRING,
        NONE,
        "What the primary key is: none; kafka: topic, partition and offset; record_key;"
        " record_value: fields of the value.",
        _MAPPING,
        importance=Importance.HIGH,
        check=one_of(NONE, KAFKA, RECORD_KEY, RECORD_VALUE),
    ),
    jdbc_key(
        "pk.fields",
        KeyType.LIST,
        [],
        "The columns of the primary key: fields of the key or the value (empty: all), the name of"
        " a key that is one value, or three names for pk.mode=kafka.",
        _MAPPING,
    ),
    jdbc_key(
        "fields.whitelist",
        KeyType.LIST,
        [],
        "The fields of the value that are written, besides the key; empty: all.",
        _MAPPING,
    ),
    jdbc_key(
        "auto.create",
        KeyType.BOOLEAN,
        False,
        "Create a table that is missing.",
        _DDL,
    ),
    jdbc_key(
        "auto.evolve",
        KeyType.BOOLEAN,
        False,
        "Add columns that are missing.",
        _DDL,
    ),
    jdbc_key(
        "max.retries",
        KeyType.INT,
        10,
        "How often in a row a transaction is tried again before the task fails.",
        _RETRIES,
    ),
    jdbc_key(
        "retry.backoff.ms",
        KeyType.INT,
        3000,
        "How long to wait before that.",
        _RETRIES,
    ),
    jdbc_key(
        "offsets.table.name",
        KeyType.STRING,
        OFFSETS_TABLE,
        "The table that holds the position in each partition, written in the transaction of the"
        " rows: each record has its effect once. Empty: none, and at least once.",
        _POSITIONS,
    ),
)

SINK_IGNORED: Final[Mapping[str, str]] = {
    **IGNORED,
    "table.types": "a table may be a view",
    "mssql.use.merge.holdlock": "SQL Server is not among the databases",
    "date.timezone": "a Date is a date, whatever the time zone",
    "timestamp.precision.mode": "timestamps are written with all digits that records have",
}


def sink_problems(config: Config) -> Mapping[str, str]:
    """Return what the keys contradict each other in."""
    problems: dict[str, str] = {}
    mode = config.get("insert.mode", INSERT).strip().lower()
    key = config.get("pk.mode", NONE).strip().lower()
    fields = [each for each in config.get("pk.fields", "").split(",") if each.strip()]
    if mode != INSERT and key == NONE:
        problems["pk.mode"] = f"must not be none with insert.mode={mode}"
    if config.get("delete.enabled", "").strip().lower() == "true" and key != RECORD_KEY:
        problems["delete.enabled"] = "needs pk.mode=record_key"
    if key == KAFKA and fields and len(fields) != len(KAFKA_FIELDS):
        problems["pk.fields"] = "must name three columns with pk.mode=kafka, or none"
    if (wrong := dialect_problem(config)) is not None:
        problems["dialect.name"] = wrong
    return problems
