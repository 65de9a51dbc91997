"""Dead letters as they are stored, and which of them a filter means."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final

import msgspec

from service.connect.data.log_records import LogRecord
from service.connect.dead_letters.bodies import Continuation, LetterFilterBody
from service.connect.tasks.letters import (
    CONNECTOR_NAME,
    CONTEXT_PREFIX,
    EXCEPTION,
    PARTITION,
    STAGE,
    TOPIC,
)
from service.connect.tasks.reading import records_of
from service.log.gateway import Gateway, Position, Wait
from storage.errors import OffsetOutOfRange
from storage.formats.partitions import PartitionNumber
from storage.reading.fetched import Budget

BATCH_MAX: Final = 500
BATCH_BYTES_MAX: Final = 1024 * 1024


class Letter(msgspec.Struct, frozen=True):
    record: LogRecord
    context: Mapping[str, str]
    """Headers of the context, by their whole names."""

    @property
    def partition(self) -> int:
        return self.record.partition or 0

    @property
    def origin(self) -> str:
        """The topic it was read from, as its connector names it; empty: it does not say."""
        return self.context.get(TOPIC, "")

    @property
    def origin_partition(self) -> int | None:
        """The partition of that topic; None: of a source, or it does not say."""
        text = self.context.get(PARTITION, "")
        return int(text) if text.isdigit() and len(text) < 10 else None

    @property
    def exception(self) -> str:
        return self.context.get(EXCEPTION, "")


def letter_of(record: LogRecord) -> Letter:
    context = {
        name: (value or b"").decode("utf-8", "replace")
        for name, value in record.headers
        if name.startswith(CONTEXT_PREFIX)
    }
    return Letter(record, context)


def is_meant(letter: Letter, wanted: LetterFilterBody) -> bool:
    """Whether the letter matches all that the filter says."""
    said = letter.exception
    if wanted.exception not in (None, said, said.rpartition(".")[2]):
        return False
    if wanted.origin not in (None, letter.origin):
        return False
    if wanted.connector not in (None, letter.context.get(CONNECTOR_NAME, "")):
        return False
    if wanted.stage not in (None, letter.context.get(STAGE, "")):
        return False
    return _is_in_time(letter, wanted) and (
        wanted.contains is None or wanted.contains.encode() in (letter.record.value or b"")
    )


def _is_in_time(letter: Letter, wanted: LetterFilterBody) -> bool:
    at_ms = letter.record.timestamp_ms or 0
    is_late = wanted.from_ms is None or at_ms >= wanted.from_ms
    return is_late and (wanted.to_ms is None or at_ms < wanted.to_ms)


async def everything(gateway: Gateway, topic: str) -> list[Continuation]:
    """Return all partitions of a topic, from where they begin to where they end now."""
    return [
        Continuation(info.partition, info.log_start_offset, info.high_watermark)
        for info in await gateway.partitions(topic)
        if info.log_start_offset < info.high_watermark
    ]


async def batches(
    gateway: Gateway, topic: str, within: Continuation, count_max: int = BATCH_MAX
) -> AsyncGenerator[tuple[Sequence[Letter], int], None]:
    """Yield the letters of one partition, and the offset behind each batch."""
    offset = within.offset
    while offset < within.end:
        try:
            result = await gateway.fetch(
                topic,
                PartitionNumber(within.partition),
                Position(offset=offset),
                Budget(records_max=count_max, bytes_max=BATCH_BYTES_MAX),
                Wait(),
            )
        except OffsetOutOfRange:
            # Retention was faster.
            info = await gateway.partition(topic, PartitionNumber(within.partition))
            if info.log_start_offset <= offset:
                return
            offset = info.log_start_offset
            continue
        fetched = result.fetched.batches(4 * BATCH_BYTES_MAX)
        end = min(result.fetched.end_of(fetched), within.end)
        found = [
            letter_of(record)
            for offsets, batch in fetched
            for record in records_of(topic, within.partition, offsets, batch)
            if record.offset < within.end
        ]
        if end <= offset:
            return
        offset = end
        yield found, offset
