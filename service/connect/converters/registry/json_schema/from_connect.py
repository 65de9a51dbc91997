"""JSON Schema of schemas of Connect, and JSON of their values.

What JSON Schema does not know is in attributes such as `connect.type`. A map whose keys are no
strings is an array of `{"key": …, "value": …}`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from service.connect.converters.json.writing import JsonWriting, Writer
from service.connect.converters.registry.converter import WrittenSchema
from service.connect.converters.registry.json_schema import names
from service.connect.data.errors import DataFault
from service.connect.data.schema import DECIMAL, ConnectSchema, Type, default_of

_WHOLE: Final = frozenset({Type.INT8, Type.INT16, Type.INT32, Type.INT64})
_FLOATS: Final = frozenset({Type.FLOAT32, Type.FLOAT64})


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonSchemaOptions:
    additional_properties: bool = True
    """`object.additional.properties`: whether objects may have more than their fields."""
    numeric_decimals: bool = False
    """`decimal.format`: whether decimals are numbers, and not text."""


def json_schema_of(schema: ConnectSchema, options: JsonSchemaOptions) -> WrittenSchema:
    writing = ObjectWriting(numeric_decimals=options.numeric_decimals, with_defaults=True)
    said = _Builder(options, writing).build(schema)
    text = json.dumps(said, separators=(",", ":"))
    return WrittenSchema(text, schema.name, writing.writer_of(schema))


class ObjectWriting(JsonWriting):
    """Values as JSON with maps of objects, and unions as the one value that they have."""

    def _map(self, schema: ConnectSchema) -> Writer:
        keys = schema.key_schema
        if is_object(keys):
            return super()._map(schema)
        key_of, element = self._part(keys), self._part(schema.value_schema)

        def write(value: Any) -> list[Any]:
            if type(value) is not dict:
                raise DataFault(f"Invalid type for MAP: {type(value).__name__}")
            return [{"key": key_of(key), "value": element(each)} for key, each in value.items()]

        return write

    def _struct(self, schema: ConnectSchema) -> Writer:
        if schema.name != names.ONE_OF:
            return super()._struct(schema)
        writers = {field.name: self.writer_of(field.schema) for field in schema.fields}

        def write(value: Any) -> Any:
            for name, each in value.items() if type(value) is dict else ():
                if each is not None and name in writers:
                    return writers[name](each)
            raise DataFault("a union without a value")

        return write


def is_object(keys: ConnectSchema | None) -> bool:
    """Whether a map with these keys is an object."""
    return keys is None or (keys.type is Type.STRING and not keys.is_optional)


class _Builder:
    def __init__(self, options: JsonSchemaOptions, writing: JsonWriting) -> None:
        self._options = options
        self._writing = writing

    def build(
        self, schema: ConnectSchema, index: int | None = None, *, in_union: bool = False
    ) -> dict[str, Any]:
        if schema.type is Type.STRUCT and schema.name == names.ONE_OF:
            required = (replace(field.schema, is_optional=False) for field in schema.fields)
            branches = [
                self.build(each, number, in_union=True) for number, each in enumerate(required)
            ]
            null = [{"type": "null"}] if schema.is_optional else []
            said: dict[str, Any] = {"oneOf": [*null, *branches]}
        else:
            said = {**self._typed(schema), **self._attributes(schema)}
            if schema.is_optional and not in_union:
                said = {"oneOf": [{"type": "null"}, said]}
        if index is not None:
            said[names.INDEX] = index
        return said

    def _typed(self, schema: ConnectSchema) -> dict[str, Any]:
        kind = schema.type
        if kind in _WHOLE:
            return {"type": "integer", names.TYPE: kind.value}
        if kind in _FLOATS:
            return {"type": "number", names.TYPE: kind.value}
        match kind:
            case Type.BOOLEAN:
                return {"type": "boolean"}
            case Type.STRING:
                symbols = _symbols(schema)
                return {"enum": symbols} if symbols else {"type": "string"}
            case Type.BYTES:
                is_number = schema.name == DECIMAL and self._options.numeric_decimals
                return {"type": "number" if is_number else "string", names.TYPE: "bytes"}
            case Type.ARRAY:
                return {"type": "array", "items": self._part(schema.value_schema)}
            case Type.MAP:
                return self._map(schema)
        return self._object(schema)

    def _part(self, schema: ConnectSchema | None, index: int | None = None) -> dict[str, Any]:
        if schema is None:
            raise DataFault("an array or a map whose parts have no schema")
        return self.build(schema, index)

    def _map(self, schema: ConnectSchema) -> dict[str, Any]:
        if schema.key_schema is not None and is_object(schema.key_schema):
            values = self._part(schema.value_schema)
            return {"type": "object", names.TYPE: "map", "additionalProperties": values}
        entry = {
            "key": self._part(schema.key_schema, 0),
            "value": self._part(schema.value_schema, 1),
        }
        items = {"type": "object", "properties": entry}
        return {"type": "array", names.TYPE: "map", "items": items}

    def _object(self, schema: ConnectSchema) -> dict[str, Any]:
        said: dict[str, Any] = {
            "type": "object",
            "properties": {
                field.name: self.build(field.schema, number)
                for number, field in enumerate(schema.fields)
            },
        }
        if not self._options.additional_properties:
            said["additionalProperties"] = False
        return said

    def _attributes(self, schema: ConnectSchema) -> dict[str, Any]:
        said: dict[str, Any] = {}
        if schema.name is not None:
            said["title"] = schema.name
        if schema.doc is not None:
            said["description"] = schema.doc
        if schema.version is not None:
            said[names.VERSION] = schema.version
        parameters = {k: v for k, v in schema.parameters if not k.startswith(names.NAMESPACE)}
        if parameters:
            said[names.PARAMETERS] = parameters
        default = default_of(schema)
        if default is not None:
            write: Callable[[Any], Any] = self._writing.writer_of(schema)
            said["default"] = write(default)
        return said


def _symbols(schema: ConnectSchema) -> list[str | None]:
    prefix = f"{names.ENUM}."
    found = [name[len(prefix) :] for name, _ in schema.parameters if name.startswith(prefix)]
    return [None if each == names.NULL_SYMBOL else each for each in found]
