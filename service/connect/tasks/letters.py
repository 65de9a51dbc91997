"""Dead letters: records that were given up, as Kafka Connect writes them.

A dead letter of a sink has the key, value, headers and timestamp of the record as it was read.
With context headers it says why it is one, in headers with Kafka's names; each is text:

    __connect.errors.topic, .partition, .offset                     where the record was read
    __connect.errors.connector.name, .task.id                       who gave it up
    __connect.errors.stage, .class.name                             while doing what
    __connect.errors.exception.class.name, .message, .stacktrace    because of what
    __riacho.errors.count                                           how often it was given up

Kafka has none of sources. Here they have them: key and value are those of the source as JSON (or as
text, where JSON knows no such value), the topic is the one it was meant for, and partition and
offset are the source's, as JSON.
"""

import traceback
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from service.connect.converters.headers import SimpleHeaderConverter
from service.connect.converters.json.converter import JsonConverter
from service.connect.data.errors import ConfigFault, ConnectFault, DataFault
from service.connect.data.log_records import LogRecord
from service.connect.data.records import ConnectRecord, FromLog, FromSource
from service.connect.data.schema import ConnectSchema

CONTEXT_PREFIX: Final = "__connect.errors."
TOPIC: Final = CONTEXT_PREFIX + "topic"
PARTITION: Final = CONTEXT_PREFIX + "partition"
OFFSET: Final = CONTEXT_PREFIX + "offset"
CONNECTOR_NAME: Final = CONTEXT_PREFIX + "connector.name"
TASK_ID: Final = CONTEXT_PREFIX + "task.id"
STAGE: Final = CONTEXT_PREFIX + "stage"
CLASS_NAME: Final = CONTEXT_PREFIX + "class.name"
EXCEPTION: Final = CONTEXT_PREFIX + "exception.class.name"
EXCEPTION_MESSAGE: Final = CONTEXT_PREFIX + "exception.message"
EXCEPTION_STACKTRACE: Final = CONTEXT_PREFIX + "exception.stacktrace"
ERROR_COUNT: Final = "__riacho.errors.count"

MESSAGE_CHARS_MAX: Final = 4096
STACKTRACE_CHARS_MAX: Final = 16 * 1024
"""What is longer is cut, so that a dead letter is little larger than its record."""

_JSON: Final = JsonConverter(with_schemas=False)
_HEADERS: Final = SimpleHeaderConverter()


class FromRawLog(FromLog, frozen=True):
    """Where a record is in the log, and what it was there."""

    raw: LogRecord


class FailedAt(msgspec.Struct, frozen=True, kw_only=True):
    """Why a record was given up."""

    connector: str
    task: int
    stage: str
    class_name: str
    error: Exception


def dead_letter(
    topic: str, record: ConnectRecord | LogRecord, failure: FailedAt, *, with_context: bool
) -> LogRecord:
    """Return what is written to the topic of dead letters."""
    raw = _raw(record)
    headers = (*raw.headers, *_context(record, raw, failure)) if with_context else raw.headers
    return LogRecord(
        topic=topic,
        partition=None,
        key=raw.key,
        value=raw.value,
        headers=headers,
        timestamp_ms=raw.timestamp_ms,
    )


def error_count(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """Return how often a record was given up already."""
    count = 0
    for name, value in headers:
        if name == ERROR_COUNT and value is not None and value.isdigit() and len(value) < 10:
            count = max(count, int(value))
    return count


def place_of(record: ConnectRecord | LogRecord) -> str:
    """Return where a record is or comes from, for people."""
    topic, partition, offset = _place(record)
    if partition is None:
        return f"a record for topic {topic}"
    if isinstance(record, ConnectRecord) and isinstance(record.origin, FromSource):
        return f"the record of {partition} at {offset}"
    return f"{topic}-{partition} at offset {offset}"


def java_class_of(error: BaseException) -> str:
    """Return the exception that Kafka Connect would have raised, or Python's if it has no such."""
    if isinstance(error, ConnectFault | ConfigFault):
        return error.java_name
    return f"{type(error).__module__}.{type(error).__qualname__}"


def stacktrace_of(error: BaseException) -> str:
    """Return the trace in Java's form: the innermost call first, then what caused the error."""
    pieces = [_trace(error)]
    seen = {id(error)}
    while (cause := error.__cause__) is not None and id(cause) not in seen:
        seen.add(id(cause))
        pieces.append("Caused by: " + _trace(cause))
        error = cause
    return "\n".join(pieces)[:STACKTRACE_CHARS_MAX]


def _trace(error: BaseException) -> str:
    frames = reversed(traceback.extract_tb(error.__traceback__))
    calls = [
        f"\tat {frame.name}({frame.filename.rpartition('/')[2]}:{frame.lineno})" for frame in frames
    ]
    return "\n".join([f"{java_class_of(error)}: {error}"[:MESSAGE_CHARS_MAX], *calls])


def _raw(record: ConnectRecord | LogRecord) -> LogRecord:
    if isinstance(record, LogRecord):
        return record
    if isinstance(record.origin, FromRawLog):
        return record.origin.raw
    return LogRecord(
        topic=record.topic,
        partition=None,
        key=_as_json(record.key_schema, record.key),
        value=_as_json(record.value_schema, record.value),
        headers=tuple((header.key, _as_header(record.topic, header)) for header in record.headers),
        timestamp_ms=record.timestamp_ms,
    )


def _as_json(schema: ConnectSchema | None, value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        return _JSON.to_bytes("", schema, value)
    except Exception:  # noqa: BLE001 - It is given up because it is not what it should be.
        return repr(value).encode("utf-8", "replace")


def _as_header(topic: str, header: Any) -> bytes | None:
    try:
        return _HEADERS.to_bytes(topic, header)
    except DataFault:
        return repr(header.value).encode("utf-8", "replace")


def _place(record: ConnectRecord | LogRecord) -> tuple[str, str | None, str | None]:
    if isinstance(record, LogRecord):
        return record.topic, str(record.partition), str(record.offset)
    match record.origin:
        case FromLog(topic, partition, offset):
            return topic, str(partition), str(offset)
        case FromSource(partition=partition, offset=offset):
            return record.topic, _position(partition), _position(offset)
    return record.topic, None, None


def _position(position: Any) -> str:
    return msgspec.json.encode(position, order="deterministic").decode()


def _context(
    record: ConnectRecord | LogRecord, raw: LogRecord, failure: FailedAt
) -> list[tuple[str, bytes | None]]:
    topic, partition, offset = _place(record)
    error = failure.error
    said = {
        TOPIC: topic,
        PARTITION: partition,
        OFFSET: offset,
        CONNECTOR_NAME: failure.connector,
        TASK_ID: str(failure.task),
        STAGE: failure.stage,
        CLASS_NAME: failure.class_name,
        EXCEPTION: java_class_of(error),
        EXCEPTION_MESSAGE: str(error)[:MESSAGE_CHARS_MAX],
        EXCEPTION_STACKTRACE: stacktrace_of(error),
        ERROR_COUNT: str(error_count(raw.headers) + 1),
    }
    return [
        (name, text.encode("utf-8", "replace")) for name, text in said.items() if text is not None
    ]
