"""Schemas and values of Connect from Avro, as Confluent's `AvroData` reads them.

A union of null and one type is that type, optional; any other union is a STRUCT with a field for
each type. What Confluent's converter takes from the registry, the version of the subject, is left
out: only `connect.version` is the version of a schema.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from service.connect.converters.registry.avro import names
from service.connect.converters.registry.converter import PartsLeft
from service.connect.data.errors import DataFault
from service.connect.data.logical import from_stored
from service.connect.data.schema import (
    DATE,
    DECIMAL,
    SCALE,
    TIME,
    TIMESTAMP,
    UNSET,
    ConnectField,
    ConnectSchema,
    Type,
)
from storage.schemas.avro.types import (
    NO_DEFAULT,
    AvroArray,
    AvroField,
    AvroMap,
    AvroNamed,
    AvroPrimitive,
    AvroType,
    AvroUnion,
)

Read = Callable[[Any], Any]
"""Makes a value of Connect of one as `AvroCodec` decodes it."""

_TYPES: Final[Mapping[str, Type]] = {
    "boolean": Type.BOOLEAN,
    "int": Type.INT32,
    "long": Type.INT64,
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "string": Type.STRING,
    "bytes": Type.BYTES,
}
_LOGICAL: Final[Mapping[tuple[str, str], str]] = {
    ("int", "date"): DATE,
    ("int", "time-millis"): TIME,
    ("long", "timestamp-millis"): TIMESTAMP,
    ("bytes", "decimal"): DECIMAL,
    ("fixed", "decimal"): DECIMAL,
}
_SHORT: Final[Mapping[str, Type]] = {"int8": Type.INT8, "int16": Type.INT16}
_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Readable(NamedTuple):
    schema: ConnectSchema
    read: Read


def connect_of(tree: AvroType) -> Readable:
    """Return the schema of Connect, and what reads values. Raises `DataFault`."""
    return _Reading().of(tree)


class _Reading:
    def __init__(self) -> None:
        self._around: list[AvroNamed] = []
        self._left = PartsLeft()

    def of(
        self, tree: AvroType, *, optional: bool = False, field: AvroField | None = None
    ) -> Readable:
        self._left.take()
        if isinstance(tree, AvroUnion):
            return self._union(tree)
        match tree:
            case AvroPrimitive():
                schema, read = _scalar(tree)
            case AvroArray():
                schema, read = self._array(tree)
            case AvroMap():
                schema, read = self._map(tree)
            case _:
                schema, read = self._named(tree)
        schema = _with_attributes(schema, tree, optional, field)
        above = from_stored(schema)
        if above is not None:
            read = _both(read, above)
        return Readable(schema, _or_null(read))

    def _array(self, tree: AvroArray) -> Readable:
        entry = tree.items
        if isinstance(entry, AvroNamed) and _is_entry(entry):
            return self._entries(entry)
        schema, element = self.of(entry)
        return Readable(
            ConnectSchema(Type.ARRAY, value_schema=schema),
            lambda value: [element(each) for each in value],
        )

    def _map(self, tree: AvroMap) -> Readable:
        schema, element = self.of(tree.values)
        return Readable(
            ConnectSchema(Type.MAP, key_schema=ConnectSchema(Type.STRING), value_schema=schema),
            lambda value: {key: element(each) for key, each in value.items()},
        )

    def _entries(self, entry: AvroNamed) -> Readable:
        parts = {field.name: self.of(field.type) for field in entry.fields}
        if parts.keys() != {"key", "value"}:
            raise DataFault(
                "Found map encoded as array of key-value pairs, but array elements do not match "
                "the expected format."
            )
        key, element = parts["key"], parts["value"]

        def read(value: Any) -> dict[Any, Any]:
            found = {}
            for each in value:
                one = key.read(each["key"])
                if isinstance(one, list | dict):
                    raise DataFault("a map whose keys are lists or structures")
                found[one] = element.read(each["value"])
            return found

        schema = ConnectSchema(Type.MAP, key_schema=key.schema, value_schema=element.schema)
        return Readable(schema, read)

    def _named(self, tree: AvroNamed) -> Readable:
        if tree.kind == "enum":
            return Readable(_enum(tree), _same)
        if tree.kind == "fixed":
            size = ((names.FIXED_SIZE, str(tree.size)),)
            return Readable(ConnectSchema(Type.BYTES, parameters=size), _latin)
        if any(tree is each for each in self._around):
            raise DataFault(
                f"{tree.full_name} contains itself, which a schema of Connect cannot do here"
            )
        self._around.append(tree)
        fields, readers, parameters = [], [], []
        if tree.doc is not None:
            parameters.append((names.RECORD_DOC, str(tree.doc)))
        for field in tree.fields:
            if field.doc is not None:
                parameters.append((names.FIELD_DOC + field.name, str(field.doc)))
            schema, read = self.of(field.type, field=field)
            fields.append(ConnectField(field.name, schema))
            readers.append((field.name, read))
        self._around.pop()
        struct = ConnectSchema(Type.STRUCT, fields=tuple(fields), parameters=tuple(parameters))
        return Readable(struct, lambda value: {name: read(value[name]) for name, read in readers})

    def _union(self, tree: AvroUnion) -> Readable:
        others = [branch for branch in tree.branches if branch.kind != "null"]
        has_null = len(others) < len(tree.branches)
        if len(others) == 1:
            schema, read = self.of(others[0], optional=has_null)
            return Readable(schema, lambda value: None if value is None else read(_only(value)))
        if not others:
            raise DataFault("Standalone null schemas are not supported by this converter")
        fields: list[ConnectField] = []
        readers: dict[str, tuple[str, Read]] = {}
        for branch in others:
            name = branch.name if isinstance(branch, AvroNamed) else branch.kind
            if any(name == field.name for field in fields):
                raise DataFault("Multiple union schemas map to the Connect union field name")
            schema, read = self.of(branch, optional=True)
            fields.append(ConnectField(name, schema))
            tag = branch.full_name if isinstance(branch, AvroNamed) else branch.kind
            readers[tag] = name, read

        def read_branch(value: Any) -> Any:
            if value is None:
                return None
            [(tag, inner)] = value.items()
            name, read = readers[tag]
            return {name: read(inner)}

        union = ConnectSchema(
            Type.STRUCT, is_optional=has_null, name=names.UNION, fields=tuple(fields)
        )
        return Readable(union, read_branch)


def _scalar(tree: AvroPrimitive) -> Readable:
    if tree.kind == "null":
        raise DataFault("Standalone null schemas are not supported by this converter")
    kind = _TYPES[tree.kind]
    if tree.kind == "int" and tree.props.get("logicalType") is None:
        kind = _SHORT.get(str(tree.props.get("connect.type")), kind)
    read = {Type.BYTES: _latin, Type.FLOAT32: _float, Type.FLOAT64: _float}.get(kind, _same)
    return Readable(ConnectSchema(kind), read)


def _enum(tree: AvroNamed) -> ConnectSchema:
    parameters = []
    if tree.doc is not None:
        parameters.append((names.ENUM_DOC + tree.name, str(tree.doc)))
    if tree.enum_default is not None:
        parameters.append((names.ENUM_DEFAULT + tree.name, tree.enum_default))
    parameters.append((names.ENUM, tree.full_name))
    parameters += [(f"{names.ENUM}.{symbol}", symbol) for symbol in tree.symbols]
    return ConnectSchema(Type.STRING, parameters=tuple(parameters))


def _with_attributes(
    schema: ConnectSchema,
    tree: AvroPrimitive | AvroArray | AvroMap | AvroNamed,
    optional: bool,
    field: AvroField | None,
) -> ConnectSchema:
    """Return the schema with what the attributes of Avro's say of it."""
    parameters = dict(schema.parameters)
    logical = _LOGICAL.get((tree.kind, str(tree.props.get("logicalType", "")).lower()))
    if logical == DECIMAL:
        scale, precision = tree.props.get("scale", 0), tree.props.get("precision")
        parameters[SCALE] = str(scale)
        if precision not in (None, names.PRECISION_DEFAULT):
            parameters[names.PRECISION] = str(precision)
    said = tree.props.get("connect.parameters")
    for name, text in (said if isinstance(said, dict) else {}).items():
        if not isinstance(text, str):
            raise DataFault(f"Expected schema parameter values to be strings but found: {text}")
        parameters[name] = text
    for name, value in tree.props.items():
        if name.startswith("avro"):
            parameters[name] = str(value)
    default: Any = UNSET
    if field is not None and field.default is not NO_DEFAULT and field.default is not None:
        default = _default(tree, field.default)
        if "connect.default" not in tree.props:
            parameters[names.FIELD_DEFAULT] = "true"
    elif tree.props.get("connect.default") is not None:
        default = _default(tree, tree.props["connect.default"])
    version = tree.props.get("connect.version", 1 if logical else None)
    doc = tree.props.get("connect.doc")
    made = ConnectSchema(
        schema.type,
        is_optional=optional,
        name=_name(tree, logical),
        version=version if isinstance(version, int) else None,
        doc=doc if isinstance(doc, str) else None,
        parameters=tuple(parameters.items()),
        fields=schema.fields,
        key_schema=schema.key_schema,
        value_schema=schema.value_schema,
        default=default,
    )
    return _with_logical_default(made)


def _with_logical_default(schema: ConnectSchema) -> ConnectSchema:
    above = from_stored(schema)
    if above is None or schema.default is UNSET:
        return schema
    try:
        return replace(schema, default=above(schema.default))
    except (DataFault, TypeError):
        return replace(schema, default=UNSET)


def _name(tree: AvroPrimitive | AvroArray | AvroMap | AvroNamed, logical: str | None) -> str | None:
    said = tree.props.get("connect.name")
    name = said if isinstance(said, str) else None
    if logical is not None:
        if name not in (None, logical):
            raise DataFault(f"Mismatched names: {name} differs from {logical}")
        return logical
    if name is None and isinstance(tree, AvroNamed):
        name = tree.full_name
    if name is None or name.startswith(f"{names.NAMESPACE}.{names.DEFAULT}"):
        return None
    return name


def _default(tree: AvroType, said: Any) -> Any:
    """Return a default, before logical types; UNSET for one that is not valid, as in Java."""
    try:
        return _default_of(tree, said)
    except (DataFault, TypeError, ValueError, KeyError, AttributeError):
        return UNSET


def _default_of(tree: AvroType, said: Any) -> Any:
    if said is None:
        return None
    if isinstance(tree, AvroUnion):
        [branch] = [each for each in tree.branches if each.kind != "null"]
        return _default_of(branch, said)
    match tree:
        case AvroArray() if isinstance(tree.items, AvroNamed) and _is_entry(tree.items):
            key, value = (field.type for field in tree.items.fields)
            return {_logical(key, one): _logical(value, other) for one, other in said}
        case AvroArray():
            return [_logical(tree.items, each) for each in said]
        case AvroMap():
            return {name: _logical(tree.values, each) for name, each in said.items()}
        case AvroNamed(kind="record"):
            return {each.name: _logical(each.type, said.get(each.name)) for each in tree.fields}
    if tree.kind in ("bytes", "fixed"):
        return _latin(said)
    return _float(said) if tree.kind in ("float", "double") else said


def _logical(tree: AvroType, said: Any) -> Any:
    """Return a default inside another one as a value of Connect."""
    return None if said is None else connect_of(tree).read(_tagged(tree, said))


def _tagged(tree: AvroType, said: Any) -> Any:
    """Return a default as values are decoded: in unions with their type, in records complete."""
    if isinstance(tree, AvroUnion) and said is not None:
        [branch] = [each for each in tree.branches if each.kind != "null"]
        tag = branch.full_name if isinstance(branch, AvroNamed) else branch.kind
        return {tag: _tagged(branch, said)}
    match tree:
        case AvroArray():
            return [_tagged(tree.items, each) for each in said]
        case AvroMap():
            return {name: _tagged(tree.values, each) for name, each in said.items()}
        case AvroNamed(kind="record"):
            return {each.name: _tagged(each.type, said.get(each.name)) for each in tree.fields}
    return said


def _is_entry(tree: AvroNamed) -> bool:
    is_kafkas = tree.full_name == f"{names.NAMESPACE}.{names.MAP_ENTRY}"
    is_said = tree.props.get(names.INTERNAL_TYPE) == names.MAP_ENTRY
    return tree.kind == "record" and (is_kafkas or is_said)


def _same(value: Any) -> Any:
    return value


def _latin(value: Any) -> bytes:
    data: bytes = value.encode("latin-1")
    return data


def _float(value: Any) -> float:
    return _NOT_FINITE[value] if isinstance(value, str) else float(value)


def _only(value: dict[str, Any]) -> Any:
    [inner] = value.values()
    return inner


def _both(first: Read, then: Read) -> Read:
    return lambda value: then(first(value))


def _or_null(read: Read) -> Read:
    return lambda value: None if value is None else read(value)
