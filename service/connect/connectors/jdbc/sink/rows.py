"""Records as rows: which table, which columns, which values; all of one shape at a time.

A `RowPlan` is made once for each pair of schemas of a topic, and then makes rows of records. What
the target columns really are is filled in by `binding.py`, once the table is known.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from service.connect.config.values import Values
from service.connect.connectors.jdbc.dialects import SqlDialect, TableName
from service.connect.connectors.jdbc.sink.keys import (
    KAFKA,
    KAFKA_FIELDS,
    NONE,
    RECORD_KEY,
    RECORD_VALUE,
)
from service.connect.data.errors import DataFault
from service.connect.data.records import ConnectRecord, FromLog
from service.connect.data.schema import INT32, INT64, STRING, UNSET, ConnectSchema, Type

COLUMNS_MAX: Final = 1600
"""Of a table, as PostgreSQL has it."""

_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9_]")
_NESTED: Final = (Type.STRUCT, Type.MAP)


@dataclass(frozen=True, slots=True)
class RowField:
    """A column as records have it. `part` is where its value is: key, value, kafka or whole."""

    name: str
    schema: ConnectSchema
    part: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan:
    table: TableName
    keys: Sequence[RowField]
    others: Sequence[RowField]
    is_delete: bool = False

    @property
    def fields(self) -> Sequence[RowField]:
        return (*self.keys, *self.others)


class RowChange(msgspec.Struct, frozen=True):
    record: ConnectRecord
    row: Sequence[Any]
    """Values of the columns of the plan, the keys first."""


class RowPlanner:
    def __init__(self, values: Values, dialect: SqlDialect) -> None:
        self._dialect = dialect
        self._format: str = values["table.name.format"]
        self._normalizes: bool = values["table.name.normalize"]
        pairs = (each.partition(":") for each in values["topics.to.tables.mapping"])
        self._tables: Mapping[str, str] = {topic: table for topic, _, table in pairs}
        self._mode: str = values["pk.mode"].lower()
        self._keys: Sequence[str] = values["pk.fields"]
        self._whitelist = set(values["fields.whitelist"])
        self._deletes: bool = values["delete.enabled"]

    def table_of(self, topic: str) -> TableName:
        name = self._tables.get(topic)
        if name is None:
            name = self._format.replace("${topic}", topic)
            if self._normalizes:
                name = _NOT_PLAIN.sub("_", name)
        return self._dialect.table_name(name)

    def plan(self, record: ConnectRecord) -> RowPlan:
        """Return how records like this one become rows; raise `DataFault` if they cannot."""
        table = self.table_of(record.topic)
        if record.value is None:
            return self._deletion(record, table)
        schema = record.value_schema
        if schema is None or schema.type is not Type.STRUCT:
            raise DataFault(
                "the sink needs values with the schema of a STRUCT, which say what the columns are:"
                " use Avro, Protobuf, or JSON with schemas.enable=true"
            )
        keys = self._key_fields(record)
        names = {each.name for each in keys}
        others = [
            RowField(field.name, field.schema, "value")
            for field in schema.fields
            if field.name not in names and (not self._whitelist or field.name in self._whitelist)
        ]
        fields = (*keys, *others)
        if not fields or len(fields) > COLUMNS_MAX:
            raise DataFault(f"a row of {len(fields)} columns, of 1 to {COLUMNS_MAX}")
        for field in fields:
            if field.schema.type in _NESTED:
                raise DataFault(
                    f"field {field.name!r} is a {field.schema.type.name}, which no column holds:"
                    " flatten it with the transform Flatten"
                )
        return RowPlan(table=table, keys=keys, others=others)

    def _deletion(self, record: ConnectRecord, table: TableName) -> RowPlan:
        if not self._deletes:
            raise DataFault("a record without a value: set delete.enabled=true to delete its row")
        return RowPlan(table=table, keys=self._key_fields(record), others=(), is_delete=True)

    def _key_fields(self, record: ConnectRecord) -> Sequence[RowField]:
        match self._mode:
            case mode if mode == NONE:
                return ()
            case mode if mode == KAFKA:
                schemas = (STRING, INT32, INT64)
                named = zip(self._keys or KAFKA_FIELDS, schemas, strict=True)
                return [RowField(name, schema, "kafka") for name, schema in named]
            case mode if mode == RECORD_VALUE:
                return self._chosen(record.value_schema, "value")
        assert self._mode == RECORD_KEY, self._mode
        schema = record.key_schema
        if record.key is None or schema is None:
            raise DataFault("pk.mode=record_key needs records with a key that has a schema")
        if schema.type is Type.STRUCT:
            return self._chosen(schema, "key")
        if len(self._keys) != 1:
            raise DataFault("a key that is one value needs one name in pk.fields")
        return [RowField(self._keys[0], schema, "whole")]

    def _chosen(self, schema: ConnectSchema | None, part: str) -> Sequence[RowField]:
        assert schema is not None, part
        names = self._keys or [field.name for field in schema.fields]
        missing = [name for name in names if name not in schema.by_name]
        if missing:
            raise DataFault(f"pk.fields names {missing[0]!r}, which the record's {part} has not")
        return [RowField(name, schema.by_name[name].schema, part) for name in names]


Bind = Callable[[Any], Any]


class RowMaker:
    """Makes the rows of one plan. `binds` change values into what the driver takes for a column."""

    def __init__(self, plan: RowPlan, binds: Sequence[Bind | None], replaces_null: bool) -> None:
        self._keys = len(plan.keys)
        self._fields = [
            (
                field.name,
                field.part,
                bind,
                field.schema.default
                if replaces_null and field.schema.default is not UNSET
                else None,
            )
            for field, bind in zip(plan.fields, binds, strict=True)
        ]

    def row(self, record: ConnectRecord) -> RowChange:
        """Return the row of a record; raise `DataFault` that names the column."""
        row: list[Any] = []
        for name, part, bind, default in self._fields:
            value = record.value.get(name) if part == "value" else _of_part(record, part, name, row)
            if value is None:
                value = default
            if value is None:
                if len(row) < self._keys:
                    raise DataFault(f"column {name!r} of the primary key is null")
            elif bind is not None:
                try:
                    value = bind(value)
                except (ValueError, TypeError, ArithmeticError) as error:
                    raise DataFault(f"column {name!r}: {error}") from None
            row.append(value)
        return RowChange(record, tuple(row))


def _of_part(record: ConnectRecord, part: str, name: str, before: Sequence[Any]) -> Any:
    if part == "whole":
        return record.key
    if part == "key":
        return None if record.key is None else record.key.get(name)
    origin = record.origin
    assert isinstance(origin, FromLog), origin
    return (origin.topic, origin.partition, origin.offset)[len(before)]
