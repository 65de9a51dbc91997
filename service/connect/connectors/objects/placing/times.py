"""The time of a record: the wall clock's, the record's, or that of a field."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any, Final, TypeAlias

from service.connect.connectors.objects.placing.fields import field_of
from service.connect.data.errors import DataFault
from service.connect.data.logical import DAY_MS, date_to_days, timestamp_to_ms
from service.connect.data.records import ConnectRecord

Extractor: TypeAlias = Callable[[ConnectRecord], int]

WALLCLOCK: Final = "Wallclock"
RECORD: Final = "Record"
RECORD_FIELD: Final = "RecordField"


def extractor_of(name: str, field: str, now_ms: Callable[[], int]) -> Extractor:
    """Return what gives records their time in milliseconds; it raises `DataFault`."""
    if name == WALLCLOCK:
        return lambda _: now_ms()
    if name == RECORD:
        return _of_record

    def of_field(record: ConnectRecord) -> int:
        _, value = field_of(record.value, record.value_schema, field)
        return _as_ms(value, field)

    return of_field


def _of_record(record: ConnectRecord) -> int:
    if record.timestamp_ms is None:
        raise DataFault("the record has no timestamp")
    return record.timestamp_ms


def _as_ms(value: Any, field: str) -> int:
    match value:
        case bool():
            pass
        case int():
            return value
        case datetime():
            return timestamp_to_ms(value)
        case date():
            return date_to_days(value) * DAY_MS
        case str():
            try:
                at = datetime.fromisoformat(value)
            except ValueError:
                raise DataFault(f"{field!r} is not a time of ISO 8601: {value[:40]!r}") from None
            return timestamp_to_ms(at if at.tzinfo else at.replace(tzinfo=UTC))
    raise DataFault(f"{field!r} is not a time, but {type(value).__name__}")
