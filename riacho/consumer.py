"""Consumers: records out, from positions that the caller rules.

`AsyncConsumer` is for programs with an event loop, `Consumer` for all others; they share
everything but the way they wait.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal, Self

from riacho.assignment import Start
from riacho.background import Synchronous
from riacho.errors import new_error
from riacho.fetching import Fetching, FetchSettings
from riacho.gateway import gateway_url
from riacho.log import FetchLimits
from riacho.records import Record, TopicPartition, topic_names, topic_partitions
from riacho.retries import Backoff
from storage.errors import NotSupported

if TYPE_CHECKING:
    import httpx

MIB: Final = 1024 * 1024
ITERATION_POLL_MS: Final = 3_600_000
RESETS: Final = ("earliest", "latest", "none")


class _Consuming:
    """The settings that both consumers take, and all they do without waiting."""

    def __init__(
        self,
        url: str | None = None,
        *,
        group_id: str | None = None,
        auto_offset_reset: Literal["earliest", "latest", "none"] = "latest",
        max_poll_records: int = 500,
        fetch_max_bytes: int = 1 * MIB,
        fetch_min_bytes: int = 1,
        fetch_max_wait_ms: int = 500,
        request_timeout_ms: float = 30_000,
        default_api_timeout_ms: float = 60_000,
        retry_backoff_ms: float = 100,
        retry_backoff_max_ms: float = 1000,
        metadata_max_age_ms: float = 300_000,
        transport: "httpx.AsyncBaseTransport | None" = None,
    ) -> None:
        """Prepare to read from the gateway at `url`; nothing is asked yet.

        `url`: where the gateway is; None means `RIACHO_URL`, else http://127.0.0.1:8080.
        `auto_offset_reset`: where to begin, and where to go on when the position is no
        longer in the log: "earliest", "latest", or "none" to be told by an error.
        `max_poll_records`: the most records that one `poll` returns.
        `fetch_max_bytes`: the most bytes per partition and request.
        `fetch_min_bytes`, `fetch_max_wait_ms`: the gateway answers when it has so much, or
        after so long.
        `default_api_timeout_ms`: `poll` rides out an unreachable gateway for so long, and
        then raises.
        `metadata_max_age_ms`: how soon added partitions of subscribed topics are noticed.
        `transport`: an httpx transport, for tests and unusual networks.
        """
        if group_id is not None:
            detail = "consumer groups are not available yet; leave group_id out, and assign"
            raise new_error(NotSupported, f"{detail} partitions or subscribe to topics")
        if auto_offset_reset not in RESETS:
            raise ValueError(f"auto_offset_reset is one of {', '.join(RESETS)}")
        settings = FetchSettings(
            reset=auto_offset_reset,
            limits=FetchLimits(
                max_bytes=fetch_max_bytes,
                min_bytes=fetch_min_bytes,
                max_wait_ms=fetch_max_wait_ms,
            ),
            records_waiting_min=max_poll_records,
            request_timeout_s=request_timeout_ms / 1000,
            trouble_max_s=default_api_timeout_ms / 1000,
            metadata_age_max_s=metadata_max_age_ms / 1000,
            backoff=Backoff(first_ms=retry_backoff_ms, most_ms=retry_backoff_max_ms),
        )
        self._max_poll_records = max_poll_records
        self._fetching = Fetching(gateway_url(url), settings, transport)
        super().__init__()

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions, given as (topic, partition).

        Those that were assigned before keep their position; the others begin where
        `auto_offset_reset` says.
        """
        self._fetching.subscribe([])
        assigned = topic_partitions(partitions)
        self._fetching.assignment.replace(assigned, self._fetching.initial_start)

    def subscribe(self, topics: str | Sequence[str]) -> None:
        """Read all partitions of `topics`, also those that are added later."""
        self._fetching.subscribe(topic_names(topics))

    def unsubscribe(self) -> None:
        """Read nothing more."""
        self.assign([])

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read. A new subscription shows after a poll."""
        return self._fetching.assignment.partitions()

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Make `offset` the next record to be returned for the partition."""
        self._fetching.assignment.seek(TopicPartition(topic, partition), offset)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Go to the oldest record of the partitions; of all assigned ones if none is named."""
        self._seek_to("earliest", partitions)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Go behind the newest record there is when the consumer next polls."""
        self._seek_to("latest", partitions)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: tuple[str, int]) -> None:
        """Go to the first record stamped `timestamp_ms` or later; to the end if none is."""
        self._seek_to(timestamp_ms, partitions)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Return no records of these partitions until `resume`; positions stay."""
        for partition in topic_partitions(partitions):
            self._fetching.assignment.pause(partition, is_paused=True)

    def resume(self, *partitions: tuple[str, int]) -> None:
        for partition in topic_partitions(partitions):
            self._fetching.assignment.pause(partition, is_paused=False)

    def paused(self) -> list[TopicPartition]:
        return self._fetching.assignment.paused()

    def _seek_to(self, start: Start, partitions: Sequence[tuple[str, int]]) -> None:
        for partition in topic_partitions(partitions) or self.assignment():
            self._fetching.assignment.seek_to(partition, start)

    async def _position(self, topic: str, partition: int) -> int:
        place = self._fetching.assignment.place(TopicPartition(topic, partition))
        position = self._fetching.assignment.position(place.partition)
        if position is None:
            position = (await self._fetching.resolve(place)).offset
        assert position is not None, place
        return position

    async def _offsets(
        self, at: Start, partitions: Sequence[tuple[str, int]]
    ) -> dict[TopicPartition, int]:
        asked = topic_partitions(partitions) or self.assignment()
        offsets = await asyncio.gather(*(self._fetching.log.offset_at(p, at) for p in asked))
        return dict(zip(asked, offsets, strict=True))


class AsyncConsumer(_Consuming):
    """Reads records; for programs with an event loop.

        async with AsyncConsumer(auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            async for record in consumer:
                print(record.partition, record.offset, record.text())

    The position in a partition moves when records are returned and at no other time. Keep
    `record.offset + 1` of what you finished, `seek` there after a restart, and no record is
    missed.
    """

    async def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[Record]:
        """Return records as soon as there are any; none if `timeout_ms` pass first.

        Records of one partition come in order. Raises what a retry cannot help, such as
        `UnknownTopicOrPartition`; an unreachable gateway only after `default_api_timeout_ms`.
        """
        records_max = max_records or self._max_poll_records
        assignment = self._fetching.assignment
        if not assignment.has_records():
            await self._fetching.wait_for_records(timeout_ms / 1000)
        records = assignment.take(records_max)
        if assignment.is_low():
            self._fetching.start()
        return records

    async def position(self, topic: str, partition: int) -> int:
        """Return the offset of the next record that `poll` returns for the partition."""
        return await self._position(topic, partition)

    async def beginning_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """Return the oldest offset of each partition; of all assigned ones if none is named."""
        return await self._offsets("earliest", partitions)

    async def end_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """Return the offset that the next record of each partition will get."""
        return await self._offsets("latest", partitions)

    async def close(self) -> None:
        """Stop fetching and disconnect."""
        await self._fetching.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        while True:
            if records := await self.poll(ITERATION_POLL_MS, max_records=1):
                return records[0]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


class Consumer(_Consuming, Synchronous):
    """Reads records; without an event loop. One thread at a time may use it.

        with Consumer("http://127.0.0.1:8080", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            for record in consumer:
                print(record.partition, record.offset, record.text())

    `for` never ends by itself; use `poll` to be able to stop. Positions are as
    `AsyncConsumer` describes them.
    """

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[Record]:
        """Return records as soon as there are any; see `AsyncConsumer.poll`."""
        records_max = max_records or self._max_poll_records
        assignment = self._fetching.assignment
        if not (self._open and assignment.has_records()):
            self._run(self._fetching.wait_for_records(timeout_ms / 1000))
        # Taken in this thread: an interrupt while waiting must not lose what had arrived.
        records = assignment.take(records_max)
        if assignment.is_low() and self._open:
            self._background.loop.call_soon_threadsafe(self._fetching.start)
        return records

    def position(self, topic: str, partition: int) -> int:
        """Return the offset of the next record that `poll` returns for the partition."""
        return self._run(self._position(topic, partition))

    def beginning_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """Return the oldest offset of each partition; of all assigned ones if none is named."""
        return self._run(self._offsets("earliest", partitions))

    def end_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """Return the offset that the next record of each partition will get."""
        return self._run(self._offsets("latest", partitions))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        while True:
            if records := self.poll(ITERATION_POLL_MS, max_records=1):
                return records[0]

    async def _aclose(self) -> None:
        await self._fetching.close()
