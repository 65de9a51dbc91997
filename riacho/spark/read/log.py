"""The gateway calls of the data source: where partitions end, and where records are stored.

Requests are retried while that may help: a Spark job should survive the restart of a gateway.
They run concurrently, since a topic may have thousands of partitions.
"""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec
import pyarrow as pa

from riacho.admin.admin import PartitionInfo, Topic
from riacho.errors import new_error
from riacho.http.background import Synchronous
from riacho.http.gateway import ARROW, Gateway, Reply, topic_path
from riacho.http.identity import NOTHING_GIVEN, Credentials
from riacho.http.replies import parsed
from riacho.http.retries import Backoff, patiently
from riacho.http.wire import UNREADABLE
from riacho.records import TopicPartition
from riacho.spark.read.options import TopicSelection
from riacho.spark.read.planning import Extent, Span
from riacho.spark.read.ranges import Bounds, Located, StoredRange, wanted
from storage.crypto.envelope import DataKey
from storage.errors import Corrupt, NotSupported, OffsetOutOfRange, UnknownTopicOrPartition

K = TypeVar("K")
V = TypeVar("V")

AT_ONCE_MAX: Final = 16
PATIENCE_S: Final = 60.0
REQUEST_TIMEOUT_S: Final = 30.0
FETCH_BYTES: Final = 8 * 1024 * 1024

RANGES_MAX: Final = 20_000
"""Maximum number of ranges that the driver locates, a few gigabytes of slices. Tasks locate the
rest themselves, so that a plan stays small."""

DATA_BYTES_MAX: Final = 8 * 1024 * 1024
"""Approximate maximum of bytes in a plan that are in no bucket yet."""

_APPEND_TIME: Final = "LogAppendTime"
_BACKOFF: Final = Backoff(first_ms=100, most_ms=5000)


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Records read through the gateway; each batch with its first offset, or one per record."""

    batches: Sequence[tuple["int | pa.Array", pa.RecordBatch]]
    next_offset: int


class _UnwrappedKey(msgspec.Struct, frozen=True):
    topic_id: str
    key_base64: str


class Log(Synchronous):
    """The topics behind one gateway."""

    def __init__(self, url: str, credentials: Credentials = NOTHING_GIVEN) -> None:
        self._gateway = Gateway(
            url,
            timeout_s=REQUEST_TIMEOUT_S,
            connections_max=AT_ONCE_MAX,
            credentials=credentials,
        )
        super().__init__()

    def extents(
        self, subscription: TopicSelection, *, missing_ok: bool = False
    ) -> dict[TopicPartition, Extent]:
        """Return what each subscribed partition holds.

        A named partition that does not exist is left out if `missing_ok`, else raises
        `UnknownTopicOrPartition`.
        """
        return self._run(self._extents(subscription, missing_ok))

    def timestamp_types(self, topics: Iterable[str]) -> dict[str, int]:
        """Return for each topic 0 if producers set timestamps, 1 if the log does."""
        return self._run(_each(topics, self._timestamp_type))

    def offsets_at(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """Return each partition's first offset at its time or later; None if there is none."""

        async def find(partition: TopicPartition) -> int | None:
            path = topic_path(partition.topic, "partitions", partition.partition, "offsets")
            reply = await self._get(path, at=times_ms[partition])
            found = reply.json()
            return None if found["timestamp"] < 0 else int(found["offset"])

        return self._run(_each(times_ms, find))

    def located(self, spans: Sequence[Span], bounds: Bounds) -> list[Span]:
        """Return the spans with their stored ranges, for as many ranges as a plan may hold.

        Spans are returned unchanged if the store has no URLs, such as one in memory.
        """
        try:
            return self._run(self._located(spans, bounds))
        except NotSupported:
            return [*spans]

    def locate(self, partition: TopicPartition, start: int, end: int) -> Located:
        """Return where records from `start` on are stored; possibly only the first of them."""
        return self._run(self._locate(partition, start, end))

    def fetch(self, partition: TopicPartition, start: int, end: int) -> FetchedBatches:
        """Return records from `start` on, through the gateway."""
        return self._run(self._fetch(partition, start, end))

    def data_key(self, topic: str, number: int) -> DataKey:
        """Return a data key of an encrypted topic, unwrapped."""
        return self._run(self._data_key(topic, number))

    def read(self, path: str, start: int, end: int) -> bytes:
        """Return bytes that a gateway stores, by a path that it named."""
        return self._run(self._read(path, start, end))

    async def _read(self, path: str, start: int, end: int) -> bytes:
        # Not patiently: the caller locates them again, or fetches the records.
        headers = {"range": f"bytes={start}-{end - 1}"}
        return (await self._gateway.request("GET", path, headers=headers)).body

    async def _data_key(self, topic: str, number: int) -> DataKey:
        path = topic_path(topic, "data-keys", number)
        reply = await patiently(lambda: self._gateway.request("POST", path), _BACKOFF, PATIENCE_S)
        found = parsed(reply, _UnwrappedKey)
        return DataKey(bytes.fromhex(found.topic_id), number, base64.b64decode(found.key_base64))

    async def _aclose(self) -> None:
        await self._gateway.close()

    async def _get(self, path: str, *, accept: str = "", **params: str | int) -> Reply:
        headers = {"accept": accept} if accept else None
        return await patiently(
            lambda: self._gateway.request("GET", path, params=params, headers=headers),
            _BACKOFF,
            PATIENCE_S,
        )

    async def _extents(
        self, subscription: TopicSelection, missing_ok: bool
    ) -> dict[TopicPartition, Extent]:
        names: Sequence[str] = subscription.names
        if subscription.pattern is not None:
            topics = parsed(await self._get("/v1/topics"), list[Topic], "topics")
            names = subscription.matching([topic.name for topic in topics])
        # A topic that just matched a pattern may have been deleted since.
        missing_ok = missing_ok or subscription.pattern is not None
        found = await _each(names, lambda name: self._partitions(name, missing_ok))
        extents = {
            TopicPartition(name, each.partition): Extent(
                log_start=each.log_start_offset,
                end=each.high_watermark,
                size_bytes=each.size_bytes,
            )
            for name, partitions in found.items()
            for each in partitions
        }
        missing = (subscription.assigned or frozenset()) - extents.keys()
        if missing and not missing_ok:
            raise new_error(UnknownTopicOrPartition, f"there is no partition {min(missing)}")
        return {p: extent for p, extent in sorted(extents.items()) if subscription.takes(p)}

    async def _partitions(self, topic: str, missing_ok: bool) -> list[PartitionInfo]:
        try:
            reply = await self._get(topic_path(topic, "partitions"))
        except UnknownTopicOrPartition:
            if missing_ok:
                return []
            raise
        return parsed(reply, list[PartitionInfo], "partitions")

    async def _timestamp_type(self, topic: str) -> int:
        config = parsed(await self._get(topic_path(topic)), Topic).config
        return int(config.get("message.timestamp.type") == _APPEND_TIME)

    async def _located(self, spans: Sequence[Span], bounds: Bounds) -> list[Span]:
        left, left_bytes = RANGES_MAX, DATA_BYTES_MAX

        async def locate(number: int) -> list[Span]:
            nonlocal left, left_bytes
            span = spans[number]
            ranges: list[StoredRange] = []
            position = span.start
            while position < span.end and left > 0 and left_bytes > 0:
                try:
                    located = await self._locate(span.partition, position, span.end)
                except OffsetOutOfRange:
                    # Deleted just now. The task gets the same error, and handles it.
                    break
                if located.next_offset <= position:
                    break
                ranges += located.segments
                left -= len(located.segments)
                left_bytes -= sum(each.size_bytes for each in located.segments if each.is_in_url)
                position = located.next_offset
            known = Span(
                partition=span.partition,
                start=span.start,
                end=min(position, span.end),
                ranges=tuple(wanted(ranges, bounds.within(start=span.start, end=span.end))),
            )
            return [known, span.between(known.end, span.end)]

        found = await _each(range(len(spans)), locate)
        return [part for parts in found.values() for part in parts if part.offset_count]

    async def _locate(self, partition: TopicPartition, start: int, end: int) -> Located:
        path = topic_path(partition.topic, "partitions", partition.partition, "segments")
        return parsed(await self._get(path, offset=start, end=end), Located)

    async def _fetch(self, partition: TopicPartition, start: int, end: int) -> FetchedBatches:
        path = topic_path(partition.topic, "partitions", partition.partition, "records")
        reply = await self._get(
            path,
            accept=ARROW,
            offset=start,
            max_records=end - start,
            max_bytes=FETCH_BYTES,
            max_wait_ms=0,
            offsets="either",
        )
        try:
            return FetchedBatches(_decoded(reply.body), int(reply.headers["riacho-next-offset"]))
        except UNREADABLE as error:
            detail = f"the reply for {partition} cannot be read: {error!r}"
            raise new_error(Corrupt, detail) from error


def _decoded(body: bytes) -> list[tuple["int | pa.Array", pa.RecordBatch]]:
    if not body:
        return []
    with pa.ipc.open_stream(body) as stream:
        if "offset" in stream.schema.names:
            return [(batch.column("offset"), batch) for batch in stream]
        named = json.loads((stream.schema.metadata or {}).get(b"riacho.base_offsets", b"[]"))
        return [*zip(named, stream, strict=True)]


async def _each(keys: Iterable[K], ask: Callable[[K], Awaitable[V]]) -> dict[K, V]:
    """Return the answer for each of `keys`; at most `AT_ONCE_MAX` are requested at once."""
    gate = asyncio.Semaphore(AT_ONCE_MAX)

    async def gated(key: K) -> V:
        async with gate:
            return await ask(key)

    answers = {key: asyncio.create_task(gated(key)) for key in keys}
    try:
        await asyncio.gather(*answers.values())
    finally:
        for answer in answers.values():
            answer.cancel()
    return {key: answer.result() for key, answer in answers.items()}
