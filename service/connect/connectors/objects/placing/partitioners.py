"""The folder of a record below that of its topic, as Confluent's partitioners name it."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias
from zoneinfo import ZoneInfo

from service.connect.connectors.objects.placing.fields import field_of
from service.connect.connectors.objects.placing.patterns import pattern_of
from service.connect.connectors.objects.placing.times import Extractor
from service.connect.data.errors import DataFault
from service.connect.data.java_text import java_text
from service.connect.data.logical import timestamp_from_ms
from service.connect.data.records import ConnectRecord

Partitioner: TypeAlias = Callable[[ConnectRecord], str]

FOLDER_CHARS_MAX: Final = 700
"""S3 refuses keys of more than 1,024 bytes."""

DAILY: Final = "'year'=YYYY/'month'=MM/'day'=dd"
HOURLY: Final = f"{DAILY}/'hour'=HH"
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS

_UNSAFE: Final = re.compile(rb"[^A-Za-z0-9_.=+,:@ ()$!*~-]")
_MS: Final = timedelta(milliseconds=1)


def by_partition() -> Partitioner:
    return lambda record: f"partition={record.partition or 0}"


def by_fields(names: Sequence[str], delimiter: str, *, with_names: bool = True) -> Partitioner:
    """Return the partitioner by values of fields; it raises `DataFault` if one is missing."""

    def folder(record: ConnectRecord) -> str:
        parts = []
        for name in names:
            schema, value = field_of(record.value, record.value_schema, name)
            if value is None or isinstance(value, (dict, list, bytes)):
                raise DataFault(f"{name!r} cannot name a folder: it is {type(value).__name__}")
            text = safe(java_text(schema, value))
            parts.append(f"{name}={text}" if with_names else text)
        return _short(delimiter.join(parts))

    return folder


def by_time(
    pattern: str, duration_ms: int, zone: ZoneInfo, extract: Extractor, delimiter: str
) -> Partitioner:
    """Return the partitioner by time, in local time of a zone, cut to the duration."""
    say = pattern_of(pattern)

    def folder(record: ConnectRecord) -> str:
        at = timestamp_from_ms(extract(record))
        try:
            local = at.astimezone(zone).replace(tzinfo=UTC)
            start = local - timedelta(milliseconds=_since_epoch(local) % duration_ms)
        except OverflowError:
            raise DataFault("the time is not of the years 1 to 9999") from None
        parts = (safe(part) for part in say(start).split("/"))
        return _short(delimiter.join(part for part in parts if part))

    return folder


def _since_epoch(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // _MS


def safe(text: str) -> str:
    """Return a text that is one name in every store: other characters become %XX."""
    if text in (".", ".."):
        return text.replace(".", "%2E")
    return _UNSAFE.sub(_escaped, text.encode("utf-8", "surrogatepass")).decode("ascii")


def _escaped(found: "re.Match[bytes]") -> bytes:
    return b"%%%02X" % found[0][0]


def _short(folder: Any) -> str:
    if len(folder) > FOLDER_CHARS_MAX or not folder:
        raise DataFault(f"a folder's name of {len(folder)} characters, of 1 to {FOLDER_CHARS_MAX}")
    return str(folder)
