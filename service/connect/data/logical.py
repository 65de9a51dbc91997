"""Logical values as what is below them: what Avro, JSON and other formats store of them.

    Decimal    bytes of the unscaled number, big-endian two's complement
    Date       days since 1970-01-01
    Time       milliseconds of the day
    Timestamp  milliseconds since 1970-01-01 UTC

All raise `DataFault` for values of another type or out of range.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

from service.connect.data.errors import DataFault
from service.connect.data.schema import DATE, DECIMAL, SCALE, TIME, TIMESTAMP, ConnectSchema

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DAY_MS: Final = 86_400_000
_EPOCH_DAY: Final = EPOCH.toordinal()
_MS: Final = timedelta(milliseconds=1)
DIGITS_MAX: Final = 10_000
"""Of a decimal: more are refused, since converting them takes time that grows with their square."""

_EXACT: Final = Context(prec=DIGITS_MAX + 100)


def scale_of(schema: ConnectSchema) -> int:
    """Return the scale of a Decimal's schema."""
    text = schema.parameter(SCALE)
    if text is None:
        raise DataFault("Invalid Decimal schema: scale parameter not found.")
    try:
        return int(text)
    except ValueError:
        raise DataFault(f"Invalid scale parameter found in Decimal schema: {text}") from None


def unscaled(value: Any, scale: int) -> int:
    """Return the digits of a decimal of exactly this scale."""
    if type(value) is not Decimal or not value.is_finite():
        raise DataFault(f"Invalid type for Decimal, expected a decimal but was {_class(value)}")
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), value
    if -exponent != scale:
        raise DataFault(
            "Decimal value has mismatching scale for given Decimal schema. "
            f"Schema has scale {scale}, value has scale {-exponent}."
        )
    if len(digits) > DIGITS_MAX:
        raise DataFault(f"a decimal of {len(digits)} digits, of at most {DIGITS_MAX}")
    number = int(value.scaleb(scale, _EXACT))
    return -abs(number) if sign else number


def decimal_of(number: int, scale: int) -> Decimal:
    """Return the decimal `number` / 10 ** `scale`, with this scale."""
    try:
        return Decimal(number).scaleb(-scale, _EXACT)
    except (InvalidOperation, ValueError):
        raise DataFault(f"a decimal of more than {DIGITS_MAX} digits") from None


def decimal_to_bytes(value: Any, scale: int) -> bytes:
    number = unscaled(value, scale)
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def decimal_from_bytes(data: bytes, scale: int) -> Decimal:
    if not data:
        raise DataFault("a Decimal of no bytes")
    if len(data) > DIGITS_MAX // 3:
        raise DataFault(f"a decimal of {len(data)} bytes, of at most {DIGITS_MAX // 3}")
    return decimal_of(int.from_bytes(data, "big", signed=True), scale)


def date_to_days(value: Any) -> int:
    if type(value) is not date:
        raise DataFault(f"Invalid type for Date, expected Date but was {_class(value)}")
    return value.toordinal() - _EPOCH_DAY


def date_from_days(days: int) -> date:
    try:
        return date.fromordinal(_EPOCH_DAY + days)
    except (ValueError, OverflowError):
        raise DataFault(f"day {days} is not a date of the years 1 to 9999") from None


def time_to_ms(value: Any) -> int:
    if type(value) is not time:
        raise DataFault(f"Invalid type for Time, expected Date but was {_class(value)}")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1000 + value.microsecond // 1000


def time_from_ms(ms: int) -> time:
    if not 0 <= ms < DAY_MS:
        raise DataFault(
            "Time values must use number of milliseconds greater than 0 and less than 86400000"
        )
    seconds, ms = divmod(ms, 1000)
    minutes, second = divmod(seconds, 60)
    return time(minutes // 60, minutes % 60, second, ms * 1000)


def timestamp_to_ms(value: Any) -> int:
    if type(value) is not datetime:
        raise DataFault(f"Invalid type for Timestamp, expected Date but was {_class(value)}")
    if value.tzinfo is None:
        raise DataFault("a Timestamp without its time zone")
    return (value - EPOCH) // _MS


def timestamp_from_ms(ms: int) -> datetime:
    try:
        return EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        raise DataFault(f"{ms} ms is not a time of the years 1 to 9999") from None


_BELOW: Final[Mapping[str, Callable[[Any], Any]]] = {
    DATE: date_to_days,
    TIME: time_to_ms,
    TIMESTAMP: timestamp_to_ms,
}
_ABOVE: Final[Mapping[str, Callable[[Any], Any]]] = {
    DATE: date_from_days,
    TIME: time_from_ms,
    TIMESTAMP: timestamp_from_ms,
}


def to_stored(schema: ConnectSchema) -> Callable[[Any], Any] | None:
    """Return what makes stored values of logical ones; None: the schema is not logical."""
    if schema.name == DECIMAL:
        scale = scale_of(schema)
        return lambda value: decimal_to_bytes(value, scale)
    return _BELOW.get(schema.name or "")


def from_stored(schema: ConnectSchema) -> Callable[[Any], Any] | None:
    """Return what makes logical values of stored ones; None: the schema is not logical."""
    if schema.name == DECIMAL:
        scale = scale_of(schema)
        return lambda value: decimal_from_bytes(value, scale)
    return _ABOVE.get(schema.name or "")


def _class(value: Any) -> str:
    return type(value).__name__
