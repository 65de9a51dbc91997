"""A record on its way through Connect, between a connector and the log.

Records are frozen; a transform returns another one (`msgspec.structs.replace`) that keeps `origin`.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from service.connect.data.schema import ConnectSchema


class Header(msgspec.Struct, frozen=True, array_like=True):
    key: str
    value: Any
    schema: ConnectSchema | None = None


class FromSource(msgspec.Struct, frozen=True):
    """Where a source is once it has given this record: both are JSON objects."""

    partition: Mapping[str, Any]
    offset: Mapping[str, Any]


class FromLog(msgspec.Struct, frozen=True):
    """Where a sink's record is in the log, whatever transforms make of its topic."""

    topic: str
    partition: int
    offset: int


class ConnectRecord(msgspec.Struct, frozen=True):
    topic: str
    partition: int | None
    """Of the topic to write to; None: as the key decides. Sinks: of the topic that was read."""
    key: Any
    value: Any
    key_schema: ConnectSchema | None = None
    value_schema: ConnectSchema | None = None
    timestamp_ms: int | None = None
    headers: tuple[Header, ...] = ()
    origin: FromSource | FromLog | None = None
    """None: it came from elsewhere, as in tests of transforms."""
