"""Transforms of headers: DropHeaders, InsertHeader, HeaderFrom."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec

from service.connect.config.keys import Importance, Key, KeyType
from service.connect.config.values import Values
from service.connect.data.errors import ConfigFault, DataFault
from service.connect.data.parsed_text import parsed_text
from service.connect.data.records import ConnectRecord, Header
from service.connect.data.schema import ConnectSchema, Type, default_of
from service.connect.transforms.api import Transform
from service.connect.transforms.kinds import (
    PACKAGE,
    WITH_DEFAULTS,
    TransformKind,
    exactly,
    fields_key,
    key_and_value,
    not_empty,
)
from service.connect.transforms.sides import (
    BySchema,
    Side,
    not_a_map,
    not_a_struct,
    struct_like,
)


def _drop_headers(values: Values) -> Transform:
    dropped = frozenset(values["headers"])

    def transform(record: ConnectRecord) -> ConnectRecord:
        kept = tuple(header for header in record.headers if header.key not in dropped)
        if len(kept) == len(record.headers):
            return record
        return msgspec.structs.replace(record, headers=kept)

    return transform


def _insert_header(values: Values) -> Transform:
    schema, value = parsed_text(values["value.literal"])
    header = Header(values["header"], value, schema)

    def transform(record: ConnectRecord) -> ConnectRecord:
        return msgspec.structs.replace(record, headers=(*record.headers, header))

    return transform


class _HeaderFrom:
    def __init__(self, side: Side, values: Values) -> None:
        names, headers = values["fields"], values["headers"]
        if len(names) != len(headers):
            wrong = "'fields' config must have the same number of elements as 'headers' config."
            raise ConfigFault({"headers": wrong})
        self._side = side
        self._pairs = list(zip(names, headers, strict=True))
        self._moving = values["operation"] == "move"
        self._with_defaults = values["replace.null.with.default"]
        self._purpose = f"header {values['operation']}"
        self._taken = frozenset(names) if self._moving else frozenset()
        self._plans = BySchema(self._plan)

    def __call__(self, record: ConnectRecord) -> ConnectRecord:
        schema, value = self._side.read(record)
        if schema is None:
            if type(value) is not dict:
                raise not_a_map(value, self._purpose)
            added = tuple(Header(header, value.get(name)) for name, header in self._pairs)
            value = {name: each for name, each in value.items() if name not in self._taken}
            changed = self._side.replaced(record, None, value)
        else:
            if type(value) is not dict or schema.type is not Type.STRUCT:
                raise not_a_struct(value, self._purpose)
            updated, fields, wanted = self._plans[schema]
            added = tuple(_header(value, *each) for each in wanted)
            changed = self._side.replaced(record, updated, _picked(value, fields))
        return msgspec.structs.replace(changed, headers=(*record.headers, *added))

    def _plan(self, schema: ConnectSchema) -> "_Plan":
        wanted = []
        for name, header in self._pairs:
            if name not in schema.by_name:
                raise DataFault(f"Field does not exist: {name}")
            of = schema.by_name[name].schema
            wanted.append((name, header, of, self._default(of)))
        if not self._moving:
            return schema, None, wanted
        kept = [field for field in schema.fields if field.name not in self._taken]
        updated = struct_like(schema, [(field.name, field.schema) for field in kept])
        return updated, [(field.name, self._default(field.schema)) for field in kept], wanted

    def _default(self, schema: ConnectSchema) -> Any:
        return default_of(schema) if self._with_defaults else None


_Plan: TypeAlias = tuple[
    ConnectSchema, Sequence[tuple[str, Any]] | None, Sequence[tuple[str, str, ConnectSchema, Any]]
]
"""The new schema, its fields with their defaults if they are not all, and the headers."""


def _picked(value: dict[str, Any], fields: Sequence[tuple[str, Any]] | None) -> dict[str, Any]:
    if fields is None:
        return value
    return {
        name: default if (each := value.get(name)) is None else each for name, default in fields
    }


def _header(
    value: dict[str, Any], name: str, header: str, schema: ConnectSchema, default: Any
) -> Header:
    each = value.get(name)
    if each is None:
        each = default
    if each is None and not schema.is_optional:
        raise DataFault(f"A null value requires an optional schema but was {schema.type.name}")
    return Header(header, each, schema)


HEADER_TRANSFORMS: Final[Sequence[TransformKind]] = (
    TransformKind(
        class_name=PACKAGE + "DropHeaders",
        about="Removes headers.",
        keys=(
            Key(
                name="headers",
                type=KeyType.LIST,
                importance=Importance.HIGH,
                about="The names of the headers to remove.",
                check=not_empty,
            ),
        ),
        make=_drop_headers,
    ),
    TransformKind(
        class_name=PACKAGE + "InsertHeader",
        about="Adds a header with a constant value.",
        keys=(
            Key(
                name="header",
                type=KeyType.STRING,
                importance=Importance.HIGH,
                about="The name of the header.",
            ),
            Key(
                name="value.literal",
                type=KeyType.STRING,
                importance=Importance.HIGH,
                about="The value, of the type that it looks like: `1`, `true`, `[1, 2]`, text.",
            ),
        ),
        make=_insert_header,
    ),
    *key_and_value(
        "HeaderFrom",
        "Copies or moves fields into headers.",
        (
            fields_key("The fields to copy or move."),
            Key(
                name="headers",
                type=KeyType.LIST,
                importance=Importance.HIGH,
                about="The names of the headers, in the order of `fields`.",
                check=not_empty,
            ),
            Key(
                name="operation",
                type=KeyType.STRING,
                importance=Importance.HIGH,
                about="Whether the fields remain: `copy`, or not: `move`.",
                choices=("move", "copy"),
                check=exactly("move", "copy"),
            ),
            WITH_DEFAULTS,
        ),
        _HeaderFrom,
    ),
)
