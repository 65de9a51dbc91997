"""Avro of schemas of Connect: the text that Confluent's `AvroConverter` would register.

What Avro does not know is in attributes such as `connect.name` and `connect.parameters`, so that
the schema of Connect comes back. Confluent's cannot write two different maps with keys that are no
strings in one schema; here the second one's entries are `MapEntry2`.
"""

import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from service.connect.converters.registry.avro import names
from service.connect.converters.registry.converter import WrittenSchema
from service.connect.data.errors import DataFault
from service.connect.data.java_text import shortest_float
from service.connect.data.logical import scale_of, to_stored
from service.connect.data.schema import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    ConnectSchema,
    Type,
    default_of,
)

_KINDS: Final[Mapping[Type, str]] = {
    Type.INT8: "int",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_LOGICAL: Final[Mapping[str, str]] = {
    DECIMAL: "decimal",
    TIME: "time-millis",
    TIMESTAMP: "timestamp-millis",
    DATE: "date",
}
_SHORT: Final[Mapping[Type, int]] = {Type.INT8: 7, Type.INT16: 15}

_PYTHON: Final[Mapping[Type, type]] = {
    Type.FLOAT32: float,
    Type.FLOAT64: float,
    Type.BOOLEAN: bool,
    Type.STRING: str,
    Type.BYTES: bytes,
}

_Write = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Built:
    said: Any
    """As JSON."""
    tag: str
    """By which a value of a union says that it is of this type; empty: it is a union."""
    write: _Write
    """Of values that are not null."""


class _NoDefault(Exception):
    """The default of a field cannot be said in Avro."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AvroOptions:
    with_metadata: bool = True
    """`connect.meta.data`: whether there are attributes for what Avro does not know."""
    optional_map_keys: bool = False
    """`allow.optional.map.keys`: whether a map with them is one of Avro."""


def avro_of(schema: ConnectSchema, options: AvroOptions, *, tagged: bool) -> WrittenSchema:
    """Return the schema in Avro. With `tagged`, values of unions say of which type they are."""
    built = _Builder(options, tagged=tagged).build(schema, "")
    is_record = schema.type is Type.STRUCT and schema.name != names.UNION
    # Like the name of its record, which may be one that is given here.
    name = built.tag or _record_name(built.said)
    return WrittenSchema(
        json.dumps(built.said, separators=(",", ":")), name if is_record else None, built.write
    )


def _record_name(said: Any) -> str | None:
    for each in said if isinstance(said, list) else [said]:
        if isinstance(each, dict) and each.get("type") == "record":
            return ".".join(filter(None, (each.get("namespace"), each["name"])))
    return None


class _Builder:
    def __init__(self, options: AvroOptions, *, tagged: bool) -> None:
        self._options = options
        self._tagged = tagged
        self._records: dict[ConnectSchema, _Built] = {}
        """By their schemas: their second mention is their name."""
        self._unnamed = 0
        self._entries = 0

    def build(self, schema: ConnectSchema, space: str) -> _Built:
        if schema.type is Type.STRUCT:
            if schema.name == names.UNION:
                return self._union(schema, space)
            if not schema.is_optional:
                return self._record(schema, space)
            return self._optional(self._record(replace(schema, is_optional=False), space), False)
        built = self._plain(schema, space)
        if not schema.is_optional:
            return built
        return self._optional(built, default_of(schema) is not None)

    def _optional(self, built: _Built, has_default: bool) -> _Built:
        said = [built.said, "null"] if has_default else ["null", built.said]
        return _Built(said, "", self._branch(built))

    def _branch(self, built: _Built) -> _Write:
        if not self._tagged or not built.tag:
            return built.write
        write, tag = built.write, built.tag
        return lambda value: {tag: write(value)}

    def _plain(self, schema: ConnectSchema, space: str) -> _Built:
        match schema.type:
            case Type.ARRAY:
                built = self._array(schema, space)
            case Type.MAP:
                built = self._map(schema, space)
            case _:
                built = self._scalar(schema, space)
        said = {**built.said, **self._attributes(schema)}
        return replace(built, said=said["type"] if len(said) == 1 else said)

    def _scalar(self, schema: ConnectSchema, space: str) -> _Built:
        said: dict[str, Any] = {"type": _KINDS[schema.type]}
        tag = said["type"]
        size = schema.parameter(names.FIXED_SIZE)
        if schema.type is Type.BYTES and size is not None:
            named, tag = self._named(schema.name, space)
            said = {"type": "fixed", **named, "size": _number(names.FIXED_SIZE, size)}
        if schema.name == DECIMAL:
            said["scale"] = scale_of(schema)
            said["precision"] = _precision(schema)
        return _Built(said, tag, _scalar_writer(schema))

    def _array(self, schema: ConnectSchema, space: str) -> _Built:
        of = schema.value_schema
        if of is None:
            raise DataFault("an array whose elements have no schema")
        items = self.build(of, space)
        write = _or_null(of, items.write)

        def write_array(value: Any) -> list[Any]:
            if not isinstance(value, list | tuple):
                raise _misfit(schema, value)
            return [write(each) for each in value]

        return _Built({"type": "array", "items": items.said}, "array", write_array)

    def _map(self, schema: ConnectSchema, space: str) -> _Built:
        keys, of = schema.key_schema, schema.value_schema
        if keys is None or of is None:
            raise DataFault("a map whose keys or values have no schema")
        if not self._is_avro_map(keys):
            return self._entries_of(schema, keys, of, space)
        values = self.build(of, space)
        write = _or_null(of, values.write)

        def write_map(value: Any) -> dict[str, Any]:
            if type(value) is not dict:
                raise _misfit(schema, value)
            return {key: write(each) for key, each in value.items()}

        return _Built({"type": "map", "values": values.said}, "map", write_map)

    def _is_avro_map(self, keys: ConnectSchema) -> bool:
        is_required = not keys.is_optional or self._options.optional_map_keys
        return keys.type is Type.STRING and is_required

    def _entries_of(
        self, schema: ConnectSchema, keys: ConnectSchema, of: ConnectSchema, space: str
    ) -> _Built:
        """Return a map as an array of its entries."""
        shape = ConnectSchema(Type.MAP, name=schema.name, key_schema=keys, value_schema=of)
        known = self._records.get(shape)
        if known is None:
            entry: dict[str, Any] = {"type": "record"}
            if schema.name is not None:
                named, tag = self._named(schema.name, space)
            else:
                self._entries += 1
                number = self._entries if self._entries > 1 else ""
                named, tag = _name(f"{names.NAMESPACE}.{names.MAP_ENTRY}{number}", space)
            inner = names.split_name(tag)[0]
            fields = [self._field(*each, None, inner) for each in (("key", keys), ("value", of))]
            entry.update(named, fields=[field for field, _ in fields])
            if tag != f"{names.NAMESPACE}.{names.MAP_ENTRY}":
                entry[names.INTERNAL_TYPE] = names.MAP_ENTRY
            write_key, write_value = (write for _, write in fields)

            def write_entries(value: Any) -> list[Any]:
                if type(value) is not dict:
                    raise _misfit(schema, value)
                return [
                    {"key": write_key(key), "value": write_value(each)}
                    for key, each in value.items()
                ]

            known = _Built(entry, tag, write_entries)
            self._records[shape] = replace(known, said=tag)
        items = known.said if isinstance(known.said, dict) else _reference(known.tag, space)
        return _Built({"type": "array", "items": items}, "array", known.write)

    def _record(self, schema: ConnectSchema, space: str) -> _Built:
        known = self._records.get(schema)
        if known is not None:
            return replace(known, said=_reference(known.tag, space))
        named, tag = self._named(schema.name, space)
        inner = names.split_name(tag)[0]
        doc = schema.parameter(names.RECORD_DOC)
        said: dict[str, Any] = {"type": "record", **named}
        if doc is not None:
            said["doc"] = doc
        writers: list[tuple[str, _Write]] = []
        said["fields"] = fields = []
        for field in schema.fields:
            field_doc = schema.parameter(names.FIELD_DOC + field.name)
            one, write = self._field(field.name, field.schema, field_doc, inner)
            fields.append(one)
            writers.append((field.name, write))
        said.update(self._attributes(schema))
        built = _Built(said, tag, _struct_writer(schema, writers))
        self._records[schema] = built
        return built

    def _field(
        self, name: str, schema: ConnectSchema, doc: str | None, space: str
    ) -> tuple[dict[str, Any], _Write]:
        built = self.build(schema, space)
        said = {"name": name, "type": built.said}
        if doc is not None:
            said["doc"] = doc
        default = default_of(schema)
        if default is not None:
            with suppress(_NoDefault):
                said["default"] = self._default(schema, default, is_field=True)
        elif schema.is_optional:
            said["default"] = None
        return said, _or_null(schema, built.write)

    def _union(self, schema: ConnectSchema, space: str) -> _Built:
        branches = {
            field.name: self.build(replace(field.schema, is_optional=False), space)
            for field in schema.fields
        }
        writers = {name: self._branch(built) for name, built in branches.items()}
        said = [*(["null"] if schema.is_optional else []), *(b.said for b in branches.values())]

        def write(value: Any) -> Any:
            if type(value) is not dict:
                raise _misfit(schema, value)
            for name, each in value.items():
                if each is not None and name in writers:
                    return writers[name](each)
            raise DataFault("a union without a value")

        return _Built(said, "", write)

    def _named(self, name: str | None, space: str) -> tuple[dict[str, Any], str]:
        """Return the attributes of a name, and the full name."""
        if name is None:
            self._unnamed += 1
            number = self._unnamed if self._unnamed > 1 else ""
            name = f"{names.NAMESPACE}.{names.DEFAULT}{number}"
        return _name(name, space)

    def _attributes(self, schema: ConnectSchema) -> dict[str, Any]:
        """Return what says in Avro what only Connect knows, in Confluent's order."""
        said: dict[str, Any] = {}
        if self._options.with_metadata:
            kept = {k: v for k, v in schema.parameters if k != names.FIELD_DEFAULT}
            default = default_of(schema)
            if schema.parameter(names.FIELD_DEFAULT) is not None:
                default = None
            if schema.doc is not None:
                said["connect.doc"] = schema.doc
            if schema.version is not None:
                said["connect.version"] = schema.version
            if kept:
                said["connect.parameters"] = kept
            if default is not None:
                said["connect.default"] = self._default(schema, default, is_field=False)
            if schema.name is not None:
                said["connect.name"] = schema.name
            if schema.type in _SHORT:
                said["connect.type"] = schema.type.value
        logical = _LOGICAL.get(schema.name or "")
        if logical is not None:
            said["logicalType"] = logical
        said.update((k, v) for k, v in schema.parameters if k.startswith("avro"))
        return said

    def _default(self, schema: ConnectSchema, value: Any, *, is_field: bool) -> Any:
        """Return a default as JSON; of a field, raise `_NoDefault` where Avro has no way."""
        if value is None:
            return None
        below = to_stored(schema)
        value = value if below is None else below(value)
        match schema.type:
            case Type.FLOAT32 | Type.FLOAT64:
                if not math.isfinite(value):
                    if is_field:
                        raise _NoDefault
                    return str(value)
                return shortest_float(value) if schema.type is Type.FLOAT32 else value
            case Type.BYTES:
                return value.decode("latin-1")
            case Type.ARRAY:
                assert schema.value_schema is not None
                return [self._inner(schema.value_schema, each, is_field) for each in value]
            case Type.MAP:
                return self._map_default(schema, value, is_field)
            case Type.STRUCT:
                return {
                    field.name: self._inner(field.schema, value.get(field.name), is_field)
                    for field in schema.fields
                }
        return value

    def _inner(self, schema: ConnectSchema, value: Any, is_field: bool) -> Any:
        own = default_of(schema)
        value = own if value is None else value
        if is_field and schema.is_optional and (value is None) is not (own is None):
            # In Avro a default is of the first type of a union only.
            raise _NoDefault
        return self._default(schema, value, is_field=is_field)

    def _map_default(self, schema: ConnectSchema, value: Any, is_field: bool) -> Any:
        keys, of = schema.key_schema, schema.value_schema
        assert keys is not None
        assert of is not None
        if self._is_avro_map(keys):
            return {key: self._inner(of, each, is_field) for key, each in value.items()}
        if is_field and value:
            raise _NoDefault
        return [
            [self._inner(keys, key, is_field), self._inner(of, each, is_field)]
            for key, each in value.items()
        ]


def _name(full_name: str, space: str) -> tuple[dict[str, Any], str]:
    namespace, name = names.split_name(full_name)
    return {"name": name, **({} if namespace == space else {"namespace": namespace})}, full_name


def _reference(full_name: str, space: str) -> str:
    namespace, name = names.split_name(full_name)
    return name if namespace == space else full_name


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise DataFault(f"the parameter {name} is {text!r}, which is no number") from None


def _precision(schema: ConnectSchema) -> int:
    said = schema.parameter(names.PRECISION)
    return names.PRECISION_DEFAULT if said is None else _number(names.PRECISION, said)


def _or_null(schema: ConnectSchema, write: _Write) -> _Write:
    """Return what writes null, too: as the default, if there is one."""
    default = default_of(schema)
    kind = schema.type.name

    def of_null() -> Any:
        if default is not None:
            return write(default)
        if schema.is_optional:
            return None
        raise DataFault(f"Found null value for non-optional schema of type {kind}")

    return lambda value: of_null() if value is None else write(value)


def _scalar_writer(schema: ConnectSchema) -> _Write:
    below = to_stored(schema)
    if below is not None:
        return below
    python = _PYTHON.get(schema.type)
    if python is None:
        return _whole_writer(schema)

    def write(value: Any) -> Any:
        if type(value) is not python:
            raise _misfit(schema, value)
        return value

    return write


def _whole_writer(schema: ConnectSchema) -> _Write:
    end = 1 << _SHORT.get(schema.type, 63)

    def write(value: Any) -> Any:
        if type(value) is not int:
            raise _misfit(schema, value)
        if not -end <= value < end:
            raise DataFault(f"{value} does not fit {schema.type.value}")
        return value

    return write


def _struct_writer(schema: ConnectSchema, writers: list[tuple[str, _Write]]) -> _Write:
    known = frozenset(schema.by_name)

    def write(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _misfit(schema, value)
        if not known.issuperset(value):
            raise DataFault(f"it has no field {sorted(value.keys() - known)[0]!r}")
        get = value.get
        return {name: write_field(get(name)) for name, write_field in writers}

    return write


def _misfit(schema: ConnectSchema, value: Any) -> DataFault:
    return DataFault(f"Invalid type for {schema.type.name}: {type(value).__name__}")
