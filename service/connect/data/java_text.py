"""Values as Java prints them with `toString`, which is what `StringConverter` stores."""

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

import numpy as np

from service.connect.data.errors import DataFault
from service.connect.data.schema import ConnectSchema, Type

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)


def double_text(value: float) -> str:
    """Return a double as `Double.toString` does: 1.0, 1.0E10, NaN, -Infinity."""
    return _float_text(repr(float(value)))


def float_text(value: float) -> str:
    """Return a float of 32 bits as `Float.toString` does."""
    return _float_text(str(np.float32(value)))


def shortest_float(value: float) -> float:
    """Return the double with the digits of a float of 32 bits: 0.1, not 0.10000000149."""
    return float(str(np.float32(value)))


def _float_text(text: str) -> str:
    number = Decimal(text) if text.lower().lstrip("-") not in ("nan", "inf") else None
    if number is None:
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[text.lower()]
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), text
    minus = "-" if sign else ""
    figures = "".join(map(str, digits)).rstrip("0")
    point = len(digits) + exponent
    if not figures:
        return f"{minus}0.0"
    figures = figures.lstrip("0")
    if -3 < point <= 7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{figures}"
        whole = figures[:point].ljust(point, "0")
        return f"{minus}{whole}.{figures[point:] or '0'}"
    return f"{minus}{figures[0]}.{figures[1:] or '0'}E{point - 1}"


def java_text(schema: ConnectSchema | None, value: Any) -> str:
    """Return what Java's `toString` says of a value; raise `DataFault` where it says nothing."""
    kind = None if schema is None else schema.type
    match value:
        case str():
            return value
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return float_text(value) if kind is Type.FLOAT32 else double_text(value)
        case int():
            return str(value)
        case Decimal():
            return decimal_text(value)
        case date() | time():
            return _date_text(value)
        case list() | dict():
            return _nested_text(schema, value)
    raise DataFault(f"a value of type {type(value).__name__} has no text")


def _nested_text(schema: ConnectSchema | None, value: list[Any] | dict[Any, Any]) -> str:
    of = None if schema is None else schema.value_schema
    if isinstance(value, list):
        return f"[{', '.join(java_text(of, each) for each in value)}]"
    if schema is not None and schema.type is Type.STRUCT:
        parts = [
            f"{field.name}={java_text(field.schema, value[field.name])}"
            for field in schema.fields
            if value.get(field.name) is not None
        ]
        return f"Struct{{{','.join(parts)}}}"
    keys = None if schema is None else schema.key_schema
    parts = [f"{java_text(keys, key)}={java_text(of, each)}" for key, each in value.items()]
    return f"{{{', '.join(parts)}}}"


def decimal_text(value: Decimal) -> str:
    """Return a decimal as `BigDecimal.toString` does: the same rule as Python's, but for `E+`."""
    return str(value)


def _date_text(value: date | time) -> str:
    if isinstance(value, time):
        value = datetime.combine(date(1970, 1, 1), value)
    elif not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)  # noqa: DTZ001
    name, month = _DAYS[value.weekday()], _MONTHS[value.month - 1]
    return f"{name} {month} {value.day:02} {value:%H:%M:%S} UTC {value.year}"
