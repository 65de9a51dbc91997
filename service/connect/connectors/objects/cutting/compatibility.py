"""`schema.compatibility`: which change of schema begins a new file, and which is projected."""

from collections.abc import Callable
from typing import Any, Final

from service.connect.data.errors import DataFault
from service.connect.data.schema import UNSET, ConnectSchema, Type

NONE: Final = "NONE"
BACKWARD: Final = "BACKWARD"
FORWARD: Final = "FORWARD"
FULL: Final = "FULL"

_WIDER: Final = (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64)
"""A number fits every type to the right of its own."""


def begins_file(mode: str, schema: ConnectSchema | None, current: ConnectSchema | None) -> bool:
    """Return whether a record of `schema` cannot join a file of `current`. Raises `DataFault`."""
    if schema is current or schema == current:
        return False
    if mode == NONE or schema is None or current is None:
        return True
    if schema.version is None or current.version is None:
        raise DataFault(f"schema.compatibility={mode} needs schemas with a version")
    if mode == FORWARD:
        return schema.version < current.version
    return schema.version > current.version


def project(schema: ConnectSchema | None, target: ConnectSchema | None, value: Any) -> Any:
    """Return a value of `schema` as one of `target`. Raises `DataFault` where that cannot be."""
    if schema is None or target is None or schema == target:
        return value
    if value is None:
        if target.is_optional:
            return None
        if target.default is UNSET:
            raise DataFault("null for a required value of the file's schema")
        return target.default
    return _FILLED.get(target.type, _plain)(schema, target, value)


def _plain(schema: ConnectSchema, target: ConnectSchema, value: Any) -> Any:
    wider = _WIDER[_WIDER.index(schema.type) :] if schema.type in _WIDER else (schema.type,)
    if target.type not in wider or schema.name != target.name:
        raise DataFault(
            f"{schema.type.value} cannot become {target.type.value} of the file's schema"
        )
    is_float = target.type in (Type.FLOAT32, Type.FLOAT64)
    return float(value) if is_float and type(value) is int else value


def _struct(schema: ConnectSchema, target: ConnectSchema, value: Any) -> Any:
    _same(schema, target)
    projected = {}
    for field in target.fields:
        own = schema.by_name.get(field.name)
        if own is not None:
            projected[field.name] = project(own.schema, field.schema, value.get(field.name))
        elif field.schema.default is not UNSET:
            projected[field.name] = field.schema.default
        elif field.schema.is_optional:
            projected[field.name] = None
        else:
            raise DataFault(f"the file's schema requires {field.name!r}, which has no default")
    return projected


def _array(schema: ConnectSchema, target: ConnectSchema, value: Any) -> Any:
    _same(schema, target)
    return [project(schema.value_schema, target.value_schema, each) for each in value]


def _map(schema: ConnectSchema, target: ConnectSchema, value: Any) -> Any:
    _same(schema, target)
    return {
        project(schema.key_schema, target.key_schema, key): project(
            schema.value_schema, target.value_schema, each
        )
        for key, each in value.items()
    }


def _same(schema: ConnectSchema, target: ConnectSchema) -> None:
    if schema.type is not target.type:
        raise DataFault(f"{schema.type.value} is not {target.type.value} of the file's schema")


_FILLED: Final[dict[Type, Callable[[ConnectSchema, ConnectSchema, Any], Any]]] = {
    Type.STRUCT: _struct,
    Type.ARRAY: _array,
    Type.MAP: _map,
}
