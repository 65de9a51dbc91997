"""A record as the log stores it: what converters make for sources, and what sinks convert."""

import msgspec


class LogRecord(msgspec.Struct, frozen=True):
    topic: str
    partition: int | None
    """None: as the key decides."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    """None: when it is appended."""
    offset: int = -1
    """Of a record that was read; -1 of one that is to be written."""
