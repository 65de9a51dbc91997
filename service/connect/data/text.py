"""Values as text that `parsed_text.py` reads back: what Kafka's `Values.convertToString` writes.

Kafka writes dates before 1970 as a time of the day; here they are dates, too.
"""

import base64
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from service.connect.data.errors import DataFault
from service.connect.data.java_text import decimal_text, double_text, float_text
from service.connect.data.logical import DAY_MS, timestamp_to_ms
from service.connect.data.schema import ConnectSchema, Type


def text_of(schema: ConnectSchema | None, value: Any) -> str:
    """Return a value as text: strings as they are, what is inside others like JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return _embedded(schema, value)


def _embedded(schema: ConnectSchema | None, value: Any) -> str:
    match value:
        case str():
            return _quoted(value)
        case bytes():
            return _quoted(base64.b64encode(value).decode("ascii"))
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            is_short = schema is not None and schema.type is Type.FLOAT32
            return float_text(value) if is_short else double_text(value)
        case Decimal():
            return decimal_text(value)
        case datetime() | date() | time():
            return temporal_text(value)
        case list() | dict():
            return _nested(schema, value)
    raise DataFault(
        f"Failed to serialize unexpected value type {type(value).__name__}: it has no text"
    )


def _nested(schema: ConnectSchema | None, value: list[Any] | dict[Any, Any]) -> str:
    if isinstance(value, dict):
        return f"{{{','.join(_members(schema, value))}}}"
    of = None if schema is None else schema.value_schema
    return f"[{','.join(_embedded(of, each) for each in value)}]"


def _members(schema: ConnectSchema | None, value: dict[Any, Any]) -> list[str]:
    if schema is not None and schema.type is Type.STRUCT:
        return [
            f"{_quoted(field.name)}:{_embedded(field.schema, value.get(field.name))}"
            for field in schema.fields
        ]
    keys = None if schema is None else schema.key_schema
    of = None if schema is None else schema.value_schema
    return [f"{_embedded(keys, key)}:{_embedded(of, each)}" for key, each in value.items()]


def temporal_text(value: date | time) -> str:
    """Return a date, time or timestamp in the shortest of the three ISO 8601 forms."""
    if isinstance(value, time):
        return value.isoformat("milliseconds") + "Z"
    if not isinstance(value, datetime):
        return value.isoformat()
    ms = timestamp_to_ms(value)
    if 0 <= ms < DAY_MS:
        return value.time().isoformat("milliseconds") + "Z"
    if ms % DAY_MS == 0:
        return value.date().isoformat()
    return f"{value.date().isoformat()}T{value.time().isoformat('milliseconds')}Z"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
