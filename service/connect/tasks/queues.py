"""Queues of sinks: topics through which dead letters are sent straight to one sink.

__connect-redrive-<connector>    its records have these headers besides their own:
    __riacho.redrive.topic, .partition, .offset    where they were read before
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from service.connect.data.log_records import LogRecord
from service.connect.tasks.letters import OFFSET, PARTITION, TOPIC

QUEUES: Final = "__connect-redrive-"

FROM_TOPIC: Final = "__riacho.redrive.topic"
FROM_PARTITION: Final = "__riacho.redrive.partition"
FROM_OFFSET: Final = "__riacho.redrive.offset"

_FROM: Final = {TOPIC: FROM_TOPIC, PARTITION: FROM_PARTITION, OFFSET: FROM_OFFSET}


def queue_of(connector: str) -> str:
    """Return the topic of a sink's queue, as its connector names topics."""
    return QUEUES + connector


def is_queue(topic: str) -> bool:
    return topic.startswith(QUEUES)


def queued(record: LogRecord, context: Mapping[str, str]) -> LogRecord:
    """Return the record as it is put into a queue; `context` says where it comes from."""
    more = tuple((name, context[of].encode()) for of, name in _FROM.items() if of in context)
    return replace(record, headers=(*record.headers, *more), partition=None)


def as_read(record: LogRecord) -> LogRecord:
    """Return a record of a queue as it was where it comes from; others as they are."""
    if not record.topic.startswith(QUEUES):
        return record
    said = {name: value or b"" for name, value in record.headers if name in _FROM.values()}
    if FROM_TOPIC not in said:
        return record
    return replace(
        record,
        topic=said[FROM_TOPIC].decode("utf-8", "replace"),
        partition=_number(said.get(FROM_PARTITION, b""), 0),
        offset=_number(said.get(FROM_OFFSET, b""), -1),
        headers=tuple(each for each in record.headers if each[0] not in said),
    )


def _number(text: bytes, otherwise: int) -> int:
    return int(text) if text.isdigit() and len(text) < 19 else otherwise
