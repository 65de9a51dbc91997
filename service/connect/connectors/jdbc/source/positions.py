"""How far a table was read, as Confluent's connector stores it, and a little more.

    {"incrementing": 17, "timestamp": 1700000000123, "timestamp_nanos": 123456000}

`timestamp` is in ms since 1970, `timestamp_nanos` the nanoseconds of its second. `stored` is the
timestamp as the database has it, where that cannot be computed back exactly: texts of SQLite, and
local times of a zone with summer time. `bulk` says that a table was read to its end, and when.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from service.connect.connectors.api import Position
from service.connect.data.errors import TaskFault
from service.connect.data.logical import EPOCH, timestamp_to_ms


class ReadPosition(msgspec.Struct, frozen=True, kw_only=True):
    """All fields None: nothing was read."""

    timestamp: datetime | None = None
    stored: Any = None
    incrementing: int | None = None
    bulk_ms: int | None = None

    def to_offset(self) -> Position:
        offset: dict[str, Any] = {}
        if self.incrementing is not None:
            offset["incrementing"] = self.incrementing
        if self.timestamp is not None:
            offset["timestamp"] = timestamp_to_ms(self.timestamp)
            offset["timestamp_nanos"] = self.timestamp.microsecond * 1000
        if self.stored is not None:
            offset["stored"] = self.stored
        if self.bulk_ms is not None:
            offset["bulk"] = self.bulk_ms
        return offset


def position_of(offset: Position | None) -> ReadPosition:
    """Return what a stored offset says; raise `TaskFault` if somebody wrote something else."""
    if offset is None:
        return ReadPosition()
    try:
        timestamp = None
        if offset.get("timestamp") is not None:
            seconds, ms = divmod(int(offset["timestamp"]), 1000)
            nanos = int(offset.get("timestamp_nanos") or ms * 1_000_000)
            timestamp = EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
        counted, bulk = offset.get("incrementing"), offset.get("bulk")
        return ReadPosition(
            timestamp=timestamp,
            stored=offset.get("stored"),
            incrementing=None if counted is None else int(counted),
            bulk_ms=None if bulk is None else int(bulk),
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise TaskFault(f"the position {dict(offset)} is not one of this connector") from error


def local_iso(value: datetime) -> str:
    """Return a time that the database stores without a zone, as text that sorts and parses."""
    return value.isoformat(timespec="microseconds")


def at_ms(ms: int) -> datetime:
    return (EPOCH + timedelta(milliseconds=ms)).astimezone(UTC)
