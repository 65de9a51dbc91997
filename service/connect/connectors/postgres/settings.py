"""A configuration as what the task needs of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from service.connect.config.keys import Config
from service.connect.config.values import Values
from service.connect.connectors.postgres.columns import Modes
from service.connect.connectors.postgres.keys import KEYS

Matcher = Callable[[str], bool]

_SYSTEM: Final = frozenset({"pg_catalog", "information_schema", "pg_toast"})
_EXCLUSIVE: Final = ("schema", "table", "column")


@dataclass(frozen=True, kw_only=True)
class TableFilters:
    """Which tables and columns are read, and what their keys are."""

    schemas: Matcher
    tables: Matcher
    columns: Matcher
    keys: Sequence[tuple[Matcher, tuple[str, ...]]]

    def has_table(self, schema: str, table: str) -> bool:
        if schema in _SYSTEM:
            return False
        return self.schemas(schema) and self.tables(f"{schema}.{table}")

    def key_of(self, schema: str, table: str) -> tuple[str, ...] | None:
        """Return the key that the configuration gives a table."""
        name = f"{schema}.{table}"
        return next((columns for matches, columns in self.keys if matches(name)), None)


@dataclass(frozen=True, kw_only=True)
class PostgresSettings:
    host: str
    port: int
    user: str
    password: str | None = field(repr=False)
    database: str
    sslmode: str
    prefix: str
    slot: str
    publication: str
    autocreate: str
    via_root: bool
    filters: TableFilters
    modes: Modes
    skipped: frozenset[str]
    has_tombstones: bool
    snapshot_mode: str
    batch_max: int
    poll_interval_s: float
    heartbeat_s: float
    heartbeat_topic: str
    lag_bytes_max: int

    @classmethod
    def of(cls, config: Config) -> "PostgresSettings":
        values = Values(KEYS, config)
        return cls(
            host=values["database.hostname"],
            port=values["database.port"],
            user=values["database.user"],
            password=values["database.password"],
            database=values["database.dbname"],
            sslmode=values["database.sslmode"].lower(),
            prefix=values["topic.prefix"],
            slot=values["slot.name"],
            publication=values["publication.name"],
            autocreate=values["publication.autocreate.mode"].lower(),
            via_root=values["publish.via.partition.root"],
            filters=_filters(values),
            modes=_modes(values),
            skipped=frozenset(values["skipped.operations"]) - {"none"},
            has_tombstones=values["tombstones.on.delete"],
            snapshot_mode=_snapshot_mode(values["snapshot.mode"].lower()),
            batch_max=values["max.batch.size"],
            poll_interval_s=values["poll.interval.ms"] / 1000,
            heartbeat_s=values["heartbeat.interval.ms"] / 1000,
            heartbeat_topic=f"{values['topic.heartbeat.prefix']}.{values['topic.prefix']}",
            lag_bytes_max=values["slot.lag.max.bytes"],
        )

    def topic_of(self, schema: str, table: str) -> str:
        """Return the topic of a table; what no topic may be called has underscores instead."""
        name = f"{self.prefix}.{schema}.{table}"
        return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)


def check(config: Config) -> Mapping[str, str]:
    """Return what single keys cannot say: of lists, only one of each pair may be set."""
    return {
        f"{what}.exclude.list": f"cannot be set together with {what}.include.list"
        for what in _EXCLUSIVE
        if config.get(f"{what}.include.list") and config.get(f"{what}.exclude.list")
    }


def _snapshot_mode(mode: str) -> str:
    return "no_data" if mode == "never" else mode


def _modes(values: Values) -> Modes:
    return Modes(
        decimals=values["decimal.handling.mode"].lower(),
        times=values["time.precision.mode"].lower(),
        intervals=values["interval.handling.mode"].lower(),
        binary=values["binary.handling.mode"].lower(),
        hstore=values["hstore.handling.mode"].lower(),
        unavailable=values["unavailable.value.placeholder"],
        includes_unknown=values["include.unknown.datatypes"],
    )


def _filters(values: Values) -> TableFilters:
    return TableFilters(
        schemas=_choice(values, "schema"),
        tables=_choice(values, "table"),
        columns=_choice(values, "column"),
        keys=[
            (_any_of([table.strip()]), tuple(each.strip() for each in columns.split(",")))
            for table, _, columns in (
                part.rpartition(":") for part in (values["message.key.columns"] or "").split(";")
            )
            if table
        ],
    )


def _choice(values: Values, what: str) -> Matcher:
    include, exclude = values[f"{what}.include.list"], values[f"{what}.exclude.list"]
    if include:
        return _any_of(include)
    if exclude:
        matches = _any_of(exclude)
        return lambda name: not matches(name)
    return lambda _: True


def _any_of(patterns: Sequence[str]) -> Matcher:
    """Return what matches whole names, in any case, as Debezium's lists do."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = False
    compiled: list[Any] = [re2.compile(text, options) for text in patterns]
    return lambda name: any(each.fullmatch(name) is not None for each in compiled)
