"""The keys of the connector: Debezium's, and one of ours."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from service.connect.config.keys import Check, Importance, Key, KeyType, between, one_of
from service.connect.connectors.postgres.columns import UNAVAILABLE

LAG_BYTES_MAX: Final = 10 << 30
BATCH_MAX: Final = 100_000


def patterns(_: str, value: Any) -> str | None:
    import re2

    options = re2.Options()
    options.log_errors = False
    for text in value or ():
        try:
            re2.compile(text, options)
        except re2.error:
            return f"{text!r} is no regular expression of RE2"
    return None


def _name(key: str, value: Any) -> str | None:
    del key
    text = value or ""
    if (
        not text
        or len(text) > 63
        or not all(c.isascii() and (c.isalnum() or c == "_") for c in text)
    ):
        return "must be 1 to 63 letters, digits and underscores"
    return None


def _slot(key: str, value: Any) -> str | None:
    wrong = _name(key, value)
    return wrong or (None if value == value.lower() else "must be in lower case")


def _snapshot_mode(_: str, value: Any) -> str | None:
    if str(value).lower() == "always":
        return (
            "always would repeat the snapshot whenever the task moves to another process: "
            "delete the connector's offsets to read all again"
        )
    return one_of(*SNAPSHOT_MODES)("", value)


def _only(choice: str, why: str) -> Check:
    def check(_: str, value: Any) -> str | None:
        return None if str(value).lower() == choice else f"must be {choice}: {why}"

    return check


def _operations(_: str, value: Any) -> str | None:
    wrong = [each for each in value if each not in ("c", "u", "d", "t", "none")]
    return f"must be of c, u, d, t or none, not {wrong[0]!r}" if wrong else None


def _sentences(_: str, value: Any) -> str | None:
    for each in str(value or "").split(";"):
        if each.strip() and (":" not in each or not each.partition(":")[2].strip()):
            return f"{each.strip()!r} is not like schema.table:column,column"
    return None


SNAPSHOT_MODES: Final = ("initial", "initial_only", "no_data", "never", "when_needed")


def _text(name: str, about: str, default: Any = None, **more: Any) -> Key:
    return Key(name=name, type=KeyType.STRING, about=about, default=default, **more)


def _choice(name: str, about: str, default: str, *choices: str) -> Key:
    return _text(name, about, default, choices=choices, check=one_of(*choices))


def _list(name: str, about: str) -> Key:
    return Key(name=name, type=KeyType.LIST, about=about, default=None, check=patterns)


def _number(name: str, about: str, default: int, low: int, high: int) -> Key:
    return Key(name=name, type=KeyType.LONG, about=about, default=default, check=between(low, high))


def _flag(name: str, about: str, default: bool, check: Check | None = None) -> Key:
    return Key(name=name, type=KeyType.BOOLEAN, about=about, default=default, check=check)


def _adjustment(name: str, about: str) -> Key:
    why = "names are those of the database; a transform may change them"
    return _text(name, about, "none", check=_only("none", why))


_CONNECTION: Final = (
    Key(
        name="database.hostname",
        type=KeyType.STRING,
        importance=Importance.HIGH,
        about="The host of the primary server.",
    ),
    _number("database.port", "Its port.", 5432, 1, 65_535),
    Key(
        name="database.user",
        type=KeyType.STRING,
        importance=Importance.HIGH,
        about="A role that may log in, use replication slots (`REPLICATION`) and read the tables.",
    ),
    Key(
        name="database.password",
        type=KeyType.PASSWORD,
        default=None,
        importance=Importance.HIGH,
        about="Its password.",
    ),
    Key(
        name="database.dbname",
        type=KeyType.STRING,
        importance=Importance.HIGH,
        about="The database.",
    ),
    _choice(
        "database.sslmode",
        "Whether the connection is encrypted, and the certificate checked: by the authorities that "
        "the machine trusts.",
        "prefer",
        *("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    ),
    Key(
        name="topic.prefix",
        type=KeyType.STRING,
        importance=Importance.HIGH,
        about="What topics begin with: `<prefix>.<schema>.<table>`.",
    ),
)
_SLOT: Final = (
    _text(
        "plugin.name",
        "The plugin that decodes the log.",
        "pgoutput",
        check=_only("pgoutput", "it is in every PostgreSQL, and the only one understood here"),
    ),
    _text("slot.name", "The replication slot, which nothing else reads.", "debezium", check=_slot),
    _flag(
        "slot.drop.on.stop",
        "Refused: a task stops whenever it moves.",
        False,
        _only(
            "false",
            "a task stops whenever it moves, and changes would be lost; drop the slot by hand",
        ),
    ),
    _text("publication.name", "The publication.", "dbz_publication", check=_name),
    _choice(
        "publication.autocreate.mode",
        "How a missing publication is created: of all tables, of those that are included, or not.",
        "all_tables",
        *("all_tables", "filtered", "disabled"),
    ),
    _flag(
        "publish.via.partition.root",
        "Whether a publication that is created gives changes of partitions as their table's.",
        False,
    ),
    _number(
        "slot.lag.max.bytes",
        "Not Debezium's. Above it the log has a warning and `slot_lag_alarm` is 1.",
        LAG_BYTES_MAX,
        1,
        1 << 62,
    ),
)
_TABLES: Final = (
    _list("schema.include.list", "Expressions that match whole names of schemas."),
    _list("schema.exclude.list", "The same; those that match are left out."),
    _list("table.include.list", "Expressions that match `schema.table`."),
    _list("table.exclude.list", "The same; those that match are left out."),
    _list("column.include.list", "Expressions that match `schema.table.column`."),
    _list("column.exclude.list", "The same; those that match are left out."),
    _text(
        "message.key.columns",
        "Keys of tables: `schema.table:column,column;…`, the table an expression.",
        check=_sentences,
    ),
    Key(
        name="skipped.operations",
        type=KeyType.LIST,
        default=["t"],
        about="Changes that give no record: c, u, d, t (truncate), or none.",
        check=_operations,
    ),
    _flag("tombstones.on.delete", "Whether a delete is followed by a record without value.", True),
    _flag(
        "provide.transaction.metadata",
        "Refused: there are no transaction topics.",
        False,
        _only("false", "transaction topics are not written; source.txId names the transaction"),
    ),
)
_SNAPSHOT: Final = (
    _text(
        "snapshot.mode",
        "Whether tables are read before changes: initial, initial_only, no_data (or never), or "
        "when_needed (again, too, if the slot was lost).",
        "initial",
        check=_snapshot_mode,
    ),
    _number("max.batch.size", "Changes that are taken at a time.", 2_048, 1, BATCH_MAX),
    _number(
        "poll.interval.ms", "How often the log is asked when nothing changes.", 500, 1, 600_000
    ),
    _number(
        "heartbeat.interval.ms",
        "How often a record tells that the connector runs, if nothing changes; 0: never.",
        0,
        0,
        86_400_000,
    ),
    _text("topic.heartbeat.prefix", "Its topic: `<this>.<prefix>`.", "__debezium-heartbeat"),
)
_VALUES: Final = (
    _choice(
        "decimal.handling.mode",
        "Whether numerics are decimals, doubles or strings.",
        "precise",
        *("precise", "double", "string"),
    ),
    _choice(
        "time.precision.mode",
        "Whether times have the precision of their column, or Kafka's milliseconds.",
        "adaptive",
        *("adaptive", "adaptive_time_microseconds", "connect"),
    ),
    _choice(
        "interval.handling.mode",
        "Whether intervals are microseconds or ISO 8601.",
        "numeric",
        *("numeric", "string"),
    ),
    _choice(
        "binary.handling.mode",
        "What bytea becomes.",
        "bytes",
        *("bytes", "base64", "base64-url-safe", "hex"),
    ),
    _choice("hstore.handling.mode", "What hstore becomes.", "json", "json", "map"),
    _adjustment("schema.name.adjustment.mode", "Names of schemas: as they are."),
    _adjustment("field.name.adjustment.mode", "Names of fields: as they are."),
    _flag(
        "include.unknown.datatypes",
        "Whether columns of unknown types are included, their text as bytes.",
        False,
    ),
    _text(
        "unavailable.value.placeholder",
        "What stands for a large value that an update did not touch.",
        UNAVAILABLE,
    ),
)

KEYS: Final[Sequence[Key]] = (*_CONNECTION, *_SLOT, *_TABLES, *_SNAPSHOT, *_VALUES)

_ONE_THREAD: Final = "one connection reads all tables"
_RESTARTS: Final = "the task restarts itself"
_NO_SIGNALS: Final = "incremental snapshots and signals are not supported"
_NO_QUEUE: Final = "records are not queued: the next are read when these are in the log"

IGNORED: Final[Mapping[str, str]] = {
    "database.server.name": "older Debezium: topic.prefix says it",
    "database.tcpKeepAlive": "always on",
    "errors.max.retries": _RESTARTS,
    "event.processing.failure.handling.mode": "errors.tolerance says it",
    "heartbeat.action.query": "the slot moves on without writes to the database",
    "incremental.snapshot.chunk.size": _NO_SIGNALS,
    "max.queue.size": _NO_QUEUE,
    "max.queue.size.in.bytes": _NO_QUEUE,
    "schema.history.internal": "PostgreSQL's changes carry their schema",
    "schema.refresh.mode": "a table is looked up whenever the server describes it",
    "signal.data.collection": _NO_SIGNALS,
    "signal.enabled.channels": _NO_SIGNALS,
    "retriable.restart.connector.wait.ms": _RESTARTS,
    "slot.max.retries": _RESTARTS,
    "slot.retry.delay.ms": _RESTARTS,
    "snapshot.fetch.size": "rows are streamed, and held in memory by their size",
    "snapshot.max.threads": _ONE_THREAD,
    "snapshot.delay.ms": "a snapshot begins at once",
    "snapshot.locking.mode": "a snapshot takes no locks",
    "status.update.interval.ms": "the slot is advanced after each commit",
    "xmin.fetch.interval.ms": "source.xmin is always null",
}
