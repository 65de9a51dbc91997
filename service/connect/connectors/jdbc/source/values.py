"""Values of columns as values of Connect, and the schema of a row.

    INT8 … FLOAT64, BOOLEAN, STRING, BYTES   the same
    NUMERIC     Decimal with the scale of the column, or as `numeric.mapping` says
    DATE, TIME  Date and Time
    LOCAL, INSTANT   Timestamp, or as `timestamp.granularity` says
    TEXT        STRING

A NUMERIC without a scale is a Decimal with `SCALE_UNKNOWN` decimals, as with Confluent's. A value
that its column's kind cannot have, which SQLite permits, is a `DataFault`: nothing is rounded.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import partial
from typing import Any, Final, TypeAlias

from service.connect.connectors.jdbc.columns import ColumnKind, TableColumn
from service.connect.connectors.jdbc.urls import MYSQL, SQLITE
from service.connect.data import schema as of
from service.connect.data.errors import DataFault
from service.connect.data.logical import DIGITS_MAX, EPOCH, decimal_of
from service.connect.data.schema import ConnectSchema

ValueOf: TypeAlias = Callable[[Any], Any]

SCALE_UNKNOWN: Final = 127
PRECISION: Final = "connect.decimal.precision"
INTEGER_DIGITS_MAX: Final = 18

_EXACT: Final = Context(prec=DIGITS_MAX, traps=[Inexact, InvalidOperation])
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY: Final = timedelta(days=1)

_PLAIN: Final[Mapping[ColumnKind, ConnectSchema]] = {
    ColumnKind.INT8: of.INT8,
    ColumnKind.INT16: of.INT16,
    ColumnKind.INT32: of.INT32,
    ColumnKind.INT64: of.INT64,
    ColumnKind.FLOAT32: of.FLOAT32,
    ColumnKind.FLOAT64: of.FLOAT64,
    ColumnKind.BOOLEAN: of.BOOLEAN,
    ColumnKind.STRING: of.STRING,
    ColumnKind.TEXT: of.STRING,
    ColumnKind.BYTES: of.BYTES,
    ColumnKind.DATE: of.DATE_SCHEMA,
    ColumnKind.TIME: of.TIME_SCHEMA,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReading:
    """How rows are read, as the configuration says."""

    dialect: str
    zone: tzinfo
    numeric_mapping: str
    granularity: str


@dataclass(frozen=True, slots=True)
class RowShape:
    """The schema of rows, and what changes which of their values. Values are in column order."""

    schema: ConnectSchema
    names: Sequence[str]
    changes: Sequence[tuple[str, ValueOf]]

    def value(self, row: Sequence[Any]) -> dict[str, Any]:
        """Return a row as a STRUCT; raise `DataFault` that names the column."""
        value = dict(zip(self.names, row))  # noqa: B905 (checked where the shape is made)
        name = ""
        try:
            for name, change in self.changes:
                if (stored := value[name]) is not None:
                    value[name] = change(stored)
        except (DataFault, ArithmeticError, ValueError, TypeError) as error:
            raise DataFault(f"column {name!r}: {error or 'its decimals do not fit'}") from None
        return value


def shape_of(name: str | None, columns: Sequence[TableColumn], reading: RowReading) -> RowShape:
    fields, changes = [], []
    for column in columns:
        schema, change = _reading_of(column, reading)
        fields.append((column.name, schema.optional() if column.is_nullable else schema))
        if change is not None:
            changes.append((column.name, change))
    return RowShape(of.struct(fields, name), [column.name for column in columns], changes)


def _reading_of(column: TableColumn, reading: RowReading) -> tuple[ConnectSchema, ValueOf | None]:
    match column.kind:
        case ColumnKind.NUMERIC:
            return _numeric(column, reading.numeric_mapping)
        case ColumnKind.LOCAL | ColumnKind.INSTANT:
            schema, granular = _GRANULARITIES[reading.granularity](reading.zone)
            point = partial(instant_of, zone=zone_of(column.kind, reading.zone))
            return schema, point if granular is None else lambda value: granular(point(value))
    changes = {SQLITE: _OF_SQLITE, MYSQL: _OF_MYSQL}.get(reading.dialect, {})
    return _PLAIN[column.kind], changes.get(column.kind)


def zone_of(kind: ColumnKind, zone: tzinfo) -> tzinfo:
    """Return the zone of a timestamp that the driver gives without one."""
    return UTC if kind is ColumnKind.INSTANT else zone


def instant_of(value: Any, zone: tzinfo) -> datetime:
    """Return the point in time that a driver gave: text or ms since 1970 are from SQLite."""
    # The usual ones first: this is called for each row.
    kind = type(value)
    point: datetime
    if kind is datetime:
        point = value
    elif kind is str:
        point = datetime.fromisoformat(value.strip())
    else:
        point = _unusual(value)
    if point.tzinfo is None:
        point = point.replace(tzinfo=zone)
    return point if point.tzinfo is UTC else point.astimezone(UTC)


def _unusual(value: Any) -> datetime:
    match value:
        case bool() | bytes():
            raise DataFault(f"{value!r} is no timestamp")
        case int() | float():
            return EPOCH + timedelta(milliseconds=value)
        case date():
            return datetime(value.year, value.month, value.day)  # noqa: DTZ001
    raise DataFault(f"{value!r} is no timestamp")


def _numeric(column: TableColumn, mapping: str) -> tuple[ConnectSchema, ValueOf]:
    precision, scale = column.precision, column.scale
    fits = precision is not None and precision <= INTEGER_DIGITS_MAX
    if mapping != "none" and scale is not None and scale <= 0 and fits:
        assert precision is not None, column
        return _integer(precision), _whole
    is_eager = mapping == "best_fit_eager_double"
    if mapping.startswith("best_fit") and (scale is None or (scale > 0 and (fits or is_eager))):
        return of.FLOAT64, _float
    known = SCALE_UNKNOWN if scale is None else scale
    parameters = () if precision is None else ((PRECISION, str(precision)),)
    unit = decimal_of(1, known)
    return of.decimal(known, parameters=parameters), lambda value: _decimal(value, unit)


def _integer(precision: int) -> ConnectSchema:
    for digits, schema in ((9, of.INT64), (4, of.INT32), (2, of.INT16)):
        if precision > digits:
            return schema
    return of.INT8


def _decimal(value: Any, unit: Decimal) -> Decimal:
    number = value if type(value) is Decimal else Decimal(str(value))
    if not number.is_finite():
        raise DataFault(f"{number} is no decimal of Connect")
    return number.quantize(unit, context=_EXACT)


def _whole(value: Any) -> int:
    number = int(value)
    if number != value:
        raise DataFault(f"{value!r} is no whole number")
    return number


def _float(value: Any) -> float:
    if isinstance(value, bytes | bool):
        raise DataFault(f"{value!r} is no number")
    return float(value)


def _integer_of_sqlite(value: Any) -> int:
    if type(value) is not int:
        raise DataFault(f"{value!r} is no whole number")
    return value


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        raise DataFault("bytes in a column of text")
    return str(value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, int | float):
        raise DataFault(f"{value!r} in a column of bytes")
    return value.encode() if isinstance(value, str) else bytes(value)


def _date(value: Any) -> date:
    if isinstance(value, str):
        return date.fromisoformat(value.strip()[:10])
    if isinstance(value, date):
        return value
    return instant_of(value, UTC).date()


def _time(value: Any) -> time:
    if isinstance(value, str):
        return time.fromisoformat(value.strip())
    return instant_of(value, UTC).time()


def _time_of_mysql(value: Any) -> time:
    if not isinstance(value, timedelta) or not timedelta(0) <= value < _DAY:
        raise DataFault(f"{value} is no time of the day")
    return (EPOCH + value).time()


def _bit(value: Any) -> int:
    return int.from_bytes(value, "big") if isinstance(value, bytes) else int(value)


_OF_SQLITE: Final[Mapping[ColumnKind, ValueOf]] = {
    ColumnKind.INT64: _integer_of_sqlite,
    ColumnKind.FLOAT32: _float,
    ColumnKind.FLOAT64: _float,
    ColumnKind.BOOLEAN: lambda value: bool(_integer_of_sqlite(value)),
    ColumnKind.STRING: _text,
    ColumnKind.TEXT: _text,
    ColumnKind.BYTES: _bytes,
    ColumnKind.DATE: _date,
    ColumnKind.TIME: _time,
}
_OF_MYSQL: Final[Mapping[ColumnKind, ValueOf]] = {
    ColumnKind.INT8: _bit,
    ColumnKind.DATE: _date,
    ColumnKind.TIME: _time_of_mysql,
    ColumnKind.TEXT: _text,
}


def _micros(point: datetime) -> int:
    return (point - EPOCH) // _MICROSECOND


def _iso(point: datetime, zone: tzinfo, more: str) -> str:
    return point.astimezone(zone).replace(tzinfo=None).isoformat(timespec="microseconds") + more


_Granular: TypeAlias = Callable[[tzinfo], tuple[ConnectSchema, ValueOf | None]]
_GRANULARITIES: Final[Mapping[str, _Granular]] = {
    "connect_logical": lambda _: (of.TIMESTAMP_SCHEMA, None),
    "micros_long": lambda _: (of.INT64, _micros),
    "micros_string": lambda _: (of.STRING, lambda point: str(_micros(point))),
    "micros_iso_datetime_string": lambda zone: (of.STRING, lambda point: _iso(point, zone, "")),
    "nanos_long": lambda _: (of.INT64, lambda point: _micros(point) * 1000),
    "nanos_string": lambda _: (of.STRING, lambda point: str(_micros(point) * 1000)),
    "nanos_iso_datetime_string": lambda zone: (of.STRING, lambda point: _iso(point, zone, "000")),
}
