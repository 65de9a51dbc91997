"""Records of a table as Debezium makes them: their schemas, and their values from rows.

    topic   <prefix>.<schema>.<table>
    key     a struct of the key's columns; null if the table has no key
    value   before, after, source, transaction, op (c, u, d, r, t), ts_ms, ts_us, ts_ns

A delete is followed by a tombstone. A change of key is a delete of the old one, its tombstone, and
a create; headers name the other key. What the log has not of an old row is null, or the zero of a
required field; large values that were not touched have a placeholder.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from service.connect.connectors.postgres.columns import TypeMeaning, Types, meaning_of
from service.connect.connectors.postgres.defaults import default_of
from service.connect.connectors.postgres.pgoutput import UNCHANGED, RelationMessage, Row
from service.connect.connectors.postgres.settings import PostgresSettings
from service.connect.connectors.postgres.tables import PgColumn, PgTable
from service.connect.data.errors import DataFault
from service.connect.data.records import ConnectRecord, FromSource, Header
from service.connect.data.schema import (
    INT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    UNSET,
    ConnectSchema,
    struct,
)

CONNECTOR: Final = "postgresql"
VERSION: Final = "1"

_SNAPSHOT_FIELD: Final = ConnectSchema(
    STRING.type,
    is_optional=True,
    default="false",
    name="io.debezium.data.Enum",
    version=1,
    parameters=(
        (
            "allowed",
            "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental",
        ),
    ),
)
SOURCE: Final = struct(
    [
        ("version", STRING),
        ("connector", STRING),
        ("name", STRING),
        ("ts_ms", INT64),
        ("snapshot", _SNAPSHOT_FIELD),
        ("db", STRING),
        ("sequence", OPTIONAL_STRING),
        ("ts_us", OPTIONAL_INT64),
        ("ts_ns", OPTIONAL_INT64),
        ("schema", STRING),
        ("table", STRING),
        ("txId", OPTIONAL_INT64),
        ("lsn", OPTIONAL_INT64),
        ("xmin", OPTIONAL_INT64),
    ],
    "io.debezium.connector.postgresql.Source",
    version=1,
)
_TRANSACTION: Final = struct(
    [("id", STRING), ("total_order", INT64), ("data_collection_order", INT64)],
    "event.block",
    version=1,
).optional()
HEARTBEAT_KEY: Final = struct(
    [("serverName", STRING)], "io.debezium.connector.common.ServerNameKey", version=1
)
HEARTBEAT: Final = struct([("ts_ms", INT64)], "io.debezium.connector.common.Heartbeat", version=1)


class StaleShape(Exception):
    """A required column is null: the table is not as it was described."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


@dataclass(frozen=True, slots=True)
class _Field:
    position: int
    """In the rows of the log."""
    name: str
    meaning: TypeMeaning
    is_required: bool
    missing: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """How rows of a table become records."""

    schema: str
    table: str
    topic: str
    fields: tuple[_Field, ...]
    key_names: tuple[str, ...]
    key_positions: tuple[int, ...]
    key_schema: ConnectSchema | None
    value_schema: ConnectSchema
    order: tuple[Callable[[str], Any], ...] | None
    """How values of the key compare as they do in PostgreSQL; None: not known."""

    def row(self, row: Row, old: Row | None = None, *, is_key: bool = False) -> dict[str, Any]:
        """Return the struct of a row; what it does not have is taken from `old`.

        `is_key`: only the columns that identify it are there. Raises `DataFault`, `StaleShape`.
        """
        out = {}
        for field in self.fields:
            cell = row[field.position]
            if cell is UNCHANGED and old is not None:
                cell = old[field.position]
            if type(cell) is str:
                try:
                    value = field.meaning.parse(cell)
                except (ValueError, ArithmeticError) as error:
                    raise DataFault(
                        f"{self.schema}.{self.table}.{field.name}: {cell[:50]!r} is not understood:"
                        f" {error}"
                    ) from None
            elif cell is None:
                if field.is_required and not is_key:
                    raise StaleShape(field.name)
                value = None
            else:
                value = field.meaning.unavailable
            out[field.name] = field.missing if value is None and field.is_required else value
        return out

    def has_moved(self, old: Row, new: Row) -> bool:
        """Whether an update has changed the key; no: also if the old one is not known."""
        for position in self.key_positions:
            before, after = old[position], new[position]
            if before != after and before is not None and after is not UNCHANGED:
                return True
        return False

    def key_of(self, struct: Mapping[str, Any]) -> dict[str, Any] | None:
        if not self.key_names:
            return None
        return {name: struct[name] for name in self.key_names}

    def ordered_key(self, row: Row) -> tuple[Any, ...] | None:
        """Return the key of a row as snapshots order it; None: it has no known order."""
        if self.order is None:
            return None
        cells = [row[position] for position in self.key_positions]
        return tuple(
            compare(cell)
            for compare, cell in zip(self.order, cells, strict=True)
            if isinstance(cell, str)
        )


_ORDERED: Final[Mapping[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), int),
    **dict.fromkeys(("text", "varchar", "uuid"), str),
}


class TableShapes:
    """Makes shapes of tables, as a configuration says."""

    def __init__(self, settings: PostgresSettings, types: Types) -> None:
        self._settings = settings
        self._types = types

    def knows(self, type_oid: int) -> bool:
        return type_oid in self._types

    def of(
        self,
        table: PgTable,
        relation: RelationMessage | None = None,
        optional: Collection[str] = (),
    ) -> TableShape:
        """Return the shape of a table, its columns as `relation` describes them if it is given."""
        columns = table.columns if relation is None else _described(table, relation)
        columns = [
            replace(each, is_required=False) if each.name in optional else each for each in columns
        ]
        fields = self._fields(table, columns)
        values = struct(
            [(each.name, _schema_of(each, column)) for each, column in fields],
        )
        topic = self._settings.topic_of(table.schema, table.name)
        key = self._key(table, columns, relation)
        by_name = {each.name: (each, column) for each, column in fields}
        key = key if all(name in by_name for name in key) else ()
        value = replace(values, name=f"{topic}.Value", is_optional=True)
        return TableShape(
            schema=table.schema,
            table=table.name,
            topic=topic,
            fields=tuple(each for each, _ in fields),
            key_names=key,
            key_positions=tuple(by_name[name][0].position for name in key),
            key_schema=struct([(name, _schema_of(*by_name[name])) for name in key], f"{topic}.Key")
            if key
            else None,
            value_schema=_envelope(topic, value),
            order=self._order(key, table) if key else None,
        )

    def _fields(self, table: PgTable, columns: Sequence[PgColumn]) -> list[tuple[_Field, PgColumn]]:
        found = []
        for position, column in enumerate(columns):
            if not self._settings.filters.columns(f"{table.schema}.{table.name}.{column.name}"):
                continue
            meaning = meaning_of(
                column.type_oid, column.modifier, self._types, self._settings.modes
            )
            if meaning is None:
                continue
            default = default_of(column.default, meaning, is_required=column.is_required)
            missing = meaning.fallback if default is UNSET else default
            field = _Field(position, column.name, meaning, column.is_required, missing)
            found.append((field, column))
        return found

    def _key(
        self, table: PgTable, columns: Sequence[PgColumn], relation: RelationMessage | None
    ) -> tuple[str, ...]:
        names = {column.name for column in columns}
        chosen = self._settings.filters.key_of(table.schema, table.name) or table.key
        if chosen and names.issuperset(chosen):
            return chosen
        if relation is None or relation.identity not in ("d", "i"):
            return ()
        # The table is gone or its key was renamed: the log says what identifies a row.
        return tuple(column.name for column in relation.columns if column.is_identity)

    def _order(self, key: Sequence[str], table: PgTable) -> tuple[Callable[[str], Any], ...] | None:
        if tuple(key) != table.key:
            return None
        found = []
        for name in key:
            kind = self._types.get(table.by_name[name].type_oid)
            compare = None if kind is None else _ORDERED.get(kind.name)
            if compare is None:
                return None
            found.append(compare)
        return tuple(found)


def _described(table: PgTable, relation: RelationMessage) -> list[PgColumn]:
    """Return the columns of a change, with what the catalog says of those it still has."""
    out = []
    for column in relation.columns:
        known = table.by_name.get(column.name)
        is_same = known is not None and known.type_oid == column.type_oid
        out.append(
            PgColumn(
                name=column.name,
                type_oid=column.type_oid,
                modifier=column.type_modifier,
                is_required=known.is_required if known is not None and is_same else False,
                default=known.default if known is not None and is_same else None,
            )
        )
    return out


def _schema_of(field: _Field, column: PgColumn) -> ConnectSchema:
    schema = field.meaning.schema
    default = default_of(column.default, field.meaning, is_required=field.is_required)
    return replace(schema, is_optional=not field.is_required, default=default)


def _envelope(topic: str, value: ConnectSchema) -> ConnectSchema:
    return struct(
        [
            ("before", value),
            ("after", value),
            ("source", SOURCE),
            ("transaction", _TRANSACTION),
            ("op", STRING),
            ("ts_ms", OPTIONAL_INT64),
            ("ts_us", OPTIONAL_INT64),
            ("ts_ns", OPTIONAL_INT64),
        ],
        f"{topic}.Envelope",
        version=2,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What all changes of a transaction have in common."""

    name: str
    database: str
    commit_us: int
    xid: int | None
    previous: int | None
    """Where the transaction before it has ended."""

    def source(self, shape: TableShape, lsn: int, snapshot: str = "false") -> dict[str, Any]:
        first = "null" if not self.previous else f'"{self.previous}"'
        return {
            "version": VERSION,
            "connector": CONNECTOR,
            "name": self.name,
            "ts_ms": self.commit_us // 1000,
            "snapshot": snapshot,
            "db": self.database,
            "sequence": f'[{first},"{lsn}"]',
            "ts_us": self.commit_us,
            "ts_ns": self.commit_us * 1000,
            "schema": shape.schema,
            "table": shape.table,
            "txId": self.xid,
            "lsn": lsn,
            "xmin": None,
        }


def change(
    shape: TableShape,
    op: str,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    source: Mapping[str, Any],
    now_ms: int,
    origin: FromSource,
    headers: tuple[Header, ...] = (),
) -> ConnectRecord:
    """Return the record of a change."""
    struct = after if after is not None else before
    return ConnectRecord(
        topic=shape.topic,
        partition=None,
        key=None if struct is None else shape.key_of(struct),
        value={
            "before": before,
            "after": after,
            "source": source,
            "transaction": None,
            "op": op,
            "ts_ms": now_ms,
            "ts_us": now_ms * 1000,
            "ts_ns": now_ms * 1_000_000,
        },
        key_schema=None if struct is None else shape.key_schema,
        value_schema=shape.value_schema,
        headers=headers,
        origin=origin,
    )


def tombstone(shape: TableShape, key: Any, origin: FromSource) -> ConnectRecord:
    return ConnectRecord(
        topic=shape.topic,
        partition=None,
        key=key,
        value=None,
        key_schema=shape.key_schema,
        origin=origin,
    )


def other_key(shape: TableShape, which: str, key: Any) -> tuple[Header, ...]:
    """Return the header that names the old or the new key of a row."""
    return (Header(f"__debezium.{which}key", key, shape.key_schema),)


def heartbeat(topic: str, name: str, now_ms: int, origin: FromSource) -> ConnectRecord:
    return ConnectRecord(
        topic=topic,
        partition=None,
        key={"serverName": name},
        value={"ts_ms": now_ms},
        key_schema=HEARTBEAT_KEY,
        value_schema=HEARTBEAT,
        origin=origin,
    )
