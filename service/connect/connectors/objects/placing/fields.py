"""Fields of a record's value by their path, `a.b` for a field of a struct in a field."""

from typing import Any

from service.connect.data.errors import DataFault
from service.connect.data.schema import ConnectSchema


def field_of(
    value: Any, schema: ConnectSchema | None, path: str
) -> tuple[ConnectSchema | None, Any]:
    """Return the field, with its schema where there is one. Raises `DataFault` without it."""
    if isinstance(value, dict) and path in value:
        return _schema_of(schema, path), value[path]
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            raise DataFault(f"the value has no field {path!r}")
        value, schema = value[name], _schema_of(schema, name)
    return schema, value


def _schema_of(schema: ConnectSchema | None, name: str) -> ConnectSchema | None:
    if schema is None:
        return None
    field = schema.by_name.get(name)
    return schema.value_schema if field is None else field.schema
