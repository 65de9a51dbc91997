"""Logical types of Avro: what else is taken for the value below, as JSON or from Python.

Dates, times and timestamps are whole numbers; ISO 8601 is taken, too. A decimal is the bytes of an
unscaled number; a JSON number is taken, too, and a string is those bytes. Logical types that are
not known, or not valid, are ignored, as Avro says.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from storage.schemas.refused import DoesNotFit

DIGITS_MAX: Final = 10_000
"""Maximum precision of a decimal whose numbers are understood."""

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_PER_S: Final = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}


def whole_number(kind: str, props: Mapping[str, Any]) -> Callable[[Any], int | None]:
    """Return what makes an int or a long of a value that is none; None: it does not."""
    logical = props.get("logicalType")
    if logical == "date" and kind == "int":
        return _days
    if not isinstance(logical, str) or "-" not in logical:
        return _nothing
    base, _, unit = logical.rpartition("-")
    per_s = _PER_S.get(unit, 0)
    if base == "time" and (kind, unit) in {("int", "millis"), ("long", "micros")}:
        return lambda value: _time(value, per_s)
    if base in ("timestamp", "local-timestamp") and kind == "long" and per_s:
        return lambda value: _timestamp(value, per_s)
    return _nothing


def unscaled_bytes(
    props: Mapping[str, Any], size: int | None = None
) -> Callable[[Any], bytes | None]:
    """Return what makes bytes, or `size` of them, of a number; None: it does not."""
    precision, scale = props.get("precision"), props.get("scale", 0)
    if (
        props.get("logicalType") != "decimal"
        or type(precision) is not int
        or type(scale) is not int
        or not 0 <= scale <= precision <= DIGITS_MAX
        or precision == 0
    ):
        return _nothing
    return lambda value: _decimal(value, precision, scale, size)


def _nothing(_: Any) -> None:
    return None


def _days(value: Any) -> int | None:
    if isinstance(value, str):
        try:
            value = dt.date.fromisoformat(value)
        except ValueError:
            raise DoesNotFit(f"{value!r:.100} is not a date such as 2026-01-31") from None
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return (value - _EPOCH.date()).days
    return None


def _time(value: Any, per_s: int) -> int | None:
    if isinstance(value, str):
        try:
            value = dt.time.fromisoformat(value)
        except ValueError:
            raise DoesNotFit(f"{value!r:.100} is not a time such as 23:59:59.5") from None
    if not isinstance(value, dt.time) or value.tzinfo is not None:
        return None
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * per_s + value.microsecond * per_s // 1_000_000


def _timestamp(value: Any, per_s: int) -> int | None:
    """Return the number of a moment; one without a zone is in UTC."""
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            raise DoesNotFit(
                f"{value!r:.100} is not a timestamp such as 2026-01-31T23:59:59Z"
            ) from None
    if not isinstance(value, dt.datetime):
        return None
    if value.tzinfo is None:
        value = value.replace(tzinfo=dt.UTC)
    micros: int = (value - _EPOCH) // dt.timedelta(microseconds=1)
    return micros * per_s // 1_000_000


def _decimal(value: Any, precision: int, scale: int, size: int | None) -> bytes | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        sign, digits, exponent = Decimal(str(value)).as_tuple()
        if not isinstance(exponent, int):
            raise InvalidOperation
    except (InvalidOperation, ValueError):
        raise DoesNotFit("the number is no decimal") from None
    places = exponent + scale
    if places < 0 and not any(digits[places:]):
        digits, places = digits[:places] or (0,), 0
    if places < 0:
        raise DoesNotFit(f"the decimal has more than {scale} digits after the point")
    if any(digits) and len(digits) + places > precision:
        raise DoesNotFit(f"the decimal has more than {precision} digits, {scale} after the point")
    number = int("".join(map(str, digits))) * 10**places if any(digits) else 0
    number = -number if sign else number
    length = size if size is not None else (number + (number < 0)).bit_length() // 8 + 1
    try:
        return number.to_bytes(length, "big", signed=True)
    except OverflowError:
        raise DoesNotFit(f"the decimal does not fit {length} bytes") from None


class Natural:
    """Values of logical types as Python has them, as other libraries of Avro give them."""

    @staticmethod
    def of_number(kind: str, props: Mapping[str, Any]) -> Callable[[int], Any] | None:
        logical = props.get("logicalType")
        if not isinstance(logical, str):
            return None
        if logical == "date" and kind == "int":
            return lambda number: (_EPOCH + dt.timedelta(days=number)).date()
        base, _, unit = logical.rpartition("-")
        micros = {"millis": 1_000, "micros": 1}.get(unit)
        if micros is None:
            return None
        if base == "time" and (kind, unit) in {("int", "millis"), ("long", "micros")}:
            return lambda n: (_EPOCH + dt.timedelta(microseconds=n * micros)).time()
        if base == "timestamp" and kind == "long":
            return lambda n: _EPOCH + dt.timedelta(microseconds=n * micros)
        if base == "local-timestamp" and kind == "long":
            naive = _EPOCH.replace(tzinfo=None)
            return lambda n: naive + dt.timedelta(microseconds=n * micros)
        return None

    @staticmethod
    def of_bytes(props: Mapping[str, Any]) -> Callable[[bytes], Any] | None:
        if unscaled_bytes(props) is _nothing:
            return None
        scale = props.get("scale", 0)

        def decimal(data: bytes) -> Decimal:
            number = int.from_bytes(data, "big", signed=True)
            return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))

        return decimal

    @staticmethod
    def of_string(props: Mapping[str, Any]) -> Callable[[str], Any] | None:
        return UUID if props.get("logicalType") == "uuid" else None
