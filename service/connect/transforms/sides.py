"""The key or the value of a record, read and replaced; and what transforms ask of both.

Values without a schema are dicts, as those of a STRUCT are; so every transform asks here first.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from service.connect.data.errors import DataFault
from service.connect.data.records import ConnectRecord
from service.connect.data.schema import UNSET, ConnectField, ConnectSchema, Type, default_of
from service.connect.transforms.api import Transform

M = TypeVar("M")

SCHEMAS_MAX: Final = 64
"""For so many schemas a transform keeps what it does; beyond, it starts again."""


@dataclass(frozen=True, slots=True)
class Side:
    name: str
    """`Key` or `Value`."""
    read: Callable[[ConnectRecord], tuple[ConnectSchema | None, Any]]
    replaced: Callable[[ConnectRecord, ConnectSchema | None, Any], ConnectRecord]
    """Takes a record, the new schema and the new value; returns another record."""


def _with_key(record: ConnectRecord, schema: ConnectSchema | None, key: Any) -> ConnectRecord:
    # The constructor takes half of the time of `msgspec.structs.replace`.
    return ConnectRecord(
        record.topic,
        record.partition,
        key,
        record.value,
        schema,
        record.value_schema,
        record.timestamp_ms,
        record.headers,
        record.origin,
    )


def _with_value(record: ConnectRecord, schema: ConnectSchema | None, value: Any) -> ConnectRecord:
    return ConnectRecord(
        record.topic,
        record.partition,
        record.key,
        value,
        record.key_schema,
        schema,
        record.timestamp_ms,
        record.headers,
        record.origin,
    )


KEY: Final = Side("Key", attrgetter("key_schema", "key"), _with_key)
VALUE: Final = Side("Value", attrgetter("value_schema", "value"), _with_value)


class BySchema(dict[ConnectSchema, M], Generic[M]):
    """What a transform does with values of each schema, found out once."""

    def __init__(self, make: Callable[[ConnectSchema], M]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, schema: ConnectSchema) -> M:
        if len(self) >= SCHEMAS_MAX:
            self.clear()
        made = self[schema] = self._make(schema)
        return made


Change = Callable[[ConnectRecord, Any], Any]
"""Takes a record and its key or value, and returns the new one."""


def changing(
    side: Side,
    purpose: str,
    without_schema: Change,
    with_schema: Callable[[ConnectSchema], tuple[ConnectSchema, Change]],
    *,
    null_passes: bool,
) -> Transform:
    """Return a transform of dicts and STRUCTs that takes each schema to another.

    `null_passes`: records without a key or a value are left as they are, and not refused.
    """
    read, replaced = side.read, side.replaced
    by_schema = BySchema(with_schema)

    def transform(record: ConnectRecord) -> ConnectRecord:
        schema, value = read(record)
        if value is None and null_passes:
            return record
        if schema is None:
            if type(value) is not dict:
                raise not_a_map(value, purpose)
            return replaced(record, None, without_schema(record, value))
        if type(value) is not dict or schema.type is not Type.STRUCT:
            raise not_a_struct(value, purpose)
        updated, change = by_schema[schema]
        return replaced(record, updated, change(record, value))

    return transform


def not_a_map(value: Any, purpose: str) -> DataFault:
    return DataFault(
        f"Only Map objects supported in absence of schema for [{purpose}], found: {_kind(value)}"
    )


def not_a_struct(value: Any, purpose: str) -> DataFault:
    return DataFault(f"Only Struct objects supported for [{purpose}], found: {_kind(value)}")


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def filled(schema: ConnectSchema) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
    """Return what puts defaults in place of nulls of a STRUCT; None: there are none."""
    defaults = [
        (field.name, field.schema.default)
        for field in schema.fields
        if default_of(field.schema) is not None
    ]
    if not defaults:
        return None

    def fill(value: dict[str, Any]) -> dict[str, Any]:
        value = dict(value)
        for name, default in defaults:
            if value.get(name) is None:
                value[name] = default
        return value

    return fill


def struct_like(
    schema: ConnectSchema, fields: Iterable[tuple[str, ConnectSchema]]
) -> ConnectSchema:
    """Return a schema with other fields, but the same name, version, text and parameters."""
    return replace(basics(schema), fields=checked_fields(fields))


def basics(schema: ConnectSchema) -> ConnectSchema:
    """Return the schema without a default, and required: a transform says anew what may be null."""
    return replace(schema, is_optional=False, default=UNSET)


def checked_fields(fields: Iterable[tuple[str, ConnectSchema]]) -> tuple[ConnectField, ...]:
    found: dict[str, ConnectField] = {}
    for name, schema in fields:
        if not name:
            raise DataFault("fieldName cannot be null.")
        if name in found:
            raise DataFault(f"Cannot create field because of field name duplication {name}")
        found[name] = ConnectField(name, schema)
    return tuple(found.values())
