"""Schemas of Connect as the JSON that stands before each value with `schemas.enable`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from service.connect.data.errors import DataFault
from service.connect.data.schema import UNSET, ConnectField, ConnectSchema, Type

ToJson: TypeAlias = Callable[[ConnectSchema, Any], Any]
FromJson: TypeAlias = Callable[[ConnectSchema, Any], Any]

_NAMES: Final[Mapping[Type, str]] = {
    **{kind: kind.value for kind in Type},
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
}
_TYPES: Final[Mapping[str, Type]] = {name: kind for kind, name in _NAMES.items()}

LEVELS_MAX: Final = 100
"""Schemas inside each other."""


def schema_to_json(schema: ConnectSchema, to_json: ToJson) -> dict[str, Any]:
    """Return a schema as Kafka writes it, its members in Kafka's order."""
    out: dict[str, Any] = {"type": _NAMES[schema.type]}
    if schema.type is Type.ARRAY:
        out["items"] = _part(schema.value_schema, to_json)
    elif schema.type is Type.MAP:
        out["keys"] = _part(schema.key_schema, to_json)
        out["values"] = _part(schema.value_schema, to_json)
    elif schema.type is Type.STRUCT:
        out["fields"] = [
            {**schema_to_json(field.schema, to_json), "field": field.name}
            for field in schema.fields
        ]
    out["optional"] = schema.is_optional
    if schema.name is not None:
        out["name"] = schema.name
    if schema.version is not None:
        out["version"] = schema.version
    if schema.doc is not None:
        out["doc"] = schema.doc
    if schema.parameters:
        out["parameters"] = dict(schema.parameters)
    if schema.default is not UNSET and schema.default is not None:
        out["default"] = to_json(schema, schema.default)
    return out


def _part(schema: ConnectSchema | None, to_json: ToJson) -> dict[str, Any] | None:
    return None if schema is None else schema_to_json(schema, to_json)


def schema_from_json(said: Any, from_json: FromJson, levels: int = 0) -> ConnectSchema | None:
    """Return the schema that JSON describes; None: it says `null`."""
    if said is None:
        return None
    if levels > LEVELS_MAX:
        raise DataFault(f"the schema has more than {LEVELS_MAX} levels")
    kind = _kind(said)
    keys, values = _parts(kind, said, from_json, levels)
    fields = _fields(said.get("fields"), from_json, levels) if kind is Type.STRUCT else ()
    schema = ConnectSchema(
        kind,
        is_optional=said.get("optional") is True,
        name=_if(said.get("name"), str),
        version=_if(said.get("version"), int),
        doc=_if(said.get("doc"), str),
        parameters=_parameters(said.get("parameters")),
        fields=fields,
        key_schema=keys,
        value_schema=values,
    )
    if "default" in said:
        default = from_json(schema, said["default"])
        if default is not None:
            # Kafka takes a default of null for none.
            schema = replace(schema, default=default)
    return schema


def _kind(said: Any) -> Type:
    name = said.get("type") if isinstance(said, dict) else None
    if not isinstance(name, str):
        raise DataFault("Schema must contain 'type' field")
    if name not in _TYPES:
        raise DataFault(f"Unknown schema type: {name}")
    return _TYPES[name]


def _parts(
    kind: Type, said: Mapping[str, Any], from_json: FromJson, levels: int
) -> tuple[ConnectSchema | None, ConnectSchema | None]:
    """Return the schemas of the keys and the values of a map, or of the elements of an array."""

    def part(member: str, missing: str) -> ConnectSchema:
        found = schema_from_json(said.get(member), from_json, levels + 1)
        if found is None:
            raise DataFault(missing)
        return found

    if kind is Type.ARRAY:
        return None, part("items", "Array schema did not specify the element type")
    if kind is Type.MAP:
        keys = part("keys", "Map schema did not specify the key type")
        return keys, part("values", "Map schema did not specify the value type")
    return None, None


def _fields(said: Any, from_json: FromJson, levels: int) -> tuple[ConnectField, ...]:
    if not isinstance(said, list):
        raise DataFault('Struct schema\'s "fields" argument is not an array.')
    fields = []
    for each in said:
        name = each.get("field") if isinstance(each, dict) else None
        if not isinstance(name, str):
            raise DataFault("Struct schema's field name not specified properly")
        schema = schema_from_json(each, from_json, levels + 1)
        assert schema is not None
        fields.append(ConnectField(name, schema))
    if len({field.name for field in fields}) != len(fields):
        names = [field.name for field in fields]
        twice = next(name for name in names if names.count(name) > 1)
        raise DataFault(f"Cannot create field because of field name duplication {twice}")
    return tuple(fields)


def _parameters(said: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(said, dict):
        return ()
    if not all(isinstance(value, str) for value in said.values()):
        raise DataFault("Schema parameters must have string values.")
    return tuple(said.items())


def _if(value: Any, kind: type) -> Any:
    """Return the value if it is of the type; `True` is not an integer here."""
    return value if isinstance(value, kind) and not isinstance(value, bool) else None
