"""Everything a producer does except wait: shared by `Producer` and `AsyncProducer`.

    send ──▶ partition of the record ──▶ accumulator ──▶ sender ──▶ gateway
                                    └──▶ transaction, if the producer has them

Records may be offered from any thread. Everything else runs on one event loop, to which the
first record binds the pipeline.
"""

import asyncio
import random
import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final

from riacho.clock import now_ms
from riacho.delivery.batches import Accumulator, Answer, Callback, Draft, Queue
from riacho.delivery.sender import Delivery, Sender
from riacho.errors import new_error
from riacho.http.gateway import Gateway
from riacho.http.identity import Credentials
from riacho.http.partitions import PartitionCounts
from riacho.records import Headers, Payload, header_pairs, payload_bytes
from riacho.transactions.calls import TransactionClient
from riacho.transactions.transactions import Transactions
from storage.errors import RecordTooLarge, UnknownTopicOrPartition

if TYPE_CHECKING:
    import httpx

METADATA_CONNECTIONS: Final = 2
"""Connections in addition to those for records, so that slow writes do not block metadata."""


class Pipeline:
    def __init__(
        self,
        url: str,
        delivery: Delivery,
        *,
        batch_bytes_max: int,
        buffer_bytes_max: int,
        metadata_age_max_s: float,
        block_s: float,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        transport: "httpx.AsyncBaseTransport | None" = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._gateway = Gateway(
            url,
            timeout_s=delivery.request_timeout_s,
            connections_max=delivery.max_in_flight + METADATA_CONNECTIONS,
            transport=transport,
            credentials=credentials,
        )
        self._buffer_bytes_max = buffer_bytes_max
        self._counts = PartitionCounts(
            self._gateway,
            age_max_s=metadata_age_max_s,
            backoff=delivery.backoff,
            random=random.random,
        )
        self._accumulator = Accumulator(
            batch_bytes_max=batch_bytes_max,
            buffer_bytes_max=buffer_bytes_max,
            begin=self._begin,
            hurry=self._hurry,
        )
        self._sender = Sender(
            self._gateway, self._accumulator, self._counts, delivery, random.random
        )
        self.loop: asyncio.AbstractEventLoop | None = None
        self.transactions: Transactions | None = None
        if transactional_id is not None:
            client = TransactionClient(
                self._gateway,
                transactional_id,
                timeout_ms=transaction_timeout_ms,
                compression=delivery.compression,
            )
            self.transactions = Transactions(
                client,
                backoff=delivery.backoff,
                delivery_timeout_s=delivery.delivery_timeout_s,
                block_s=block_s,
            )

    def draft(
        self,
        answer: Answer,
        value: Payload,
        key: Payload,
        headers: Headers | None,
        timestamp_ms: int | None,
        callback: Callback | None,
    ) -> Draft:
        """Return the record to offer, or raise `RecordTooLarge` if it can never fit the buffer."""
        draft = Draft(
            now_ms() if timestamp_ms is None else timestamp_ms,
            payload_bytes(key),
            payload_bytes(value),
            header_pairs(headers),
            answer,
            callback,
        )
        if draft.size_bytes > self._buffer_bytes_max:
            limit = f"buffer_memory is {self._buffer_bytes_max}"
            raise new_error(RecordTooLarge, f"the record has {draft.size_bytes} bytes, {limit}")
        return draft

    def partition_count(self, topic: str, partition: int | None) -> int | None:
        """Return the known count; None if the gateway has to be asked first."""
        if self.transactions is not None:
            self.transactions.check_open()
        count = self._counts.known(topic)
        if count is None or (partition is not None and partition >= count):
            return None
        if self._counts.is_old(topic) and self.loop is not None:
            self.loop.call_soon_threadsafe(self._counts.refresh, topic)
        return count

    async def fetch_partition_count(
        self, topic: str, partition: int | None, timeout_s: float
    ) -> int:
        """Ask the gateway. Raises `UnknownTopicOrPartition` if it does not exist."""
        count = await self._counts.fetch(topic, timeout_s)
        if partition is not None and not 0 <= partition < count:
            detail = f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}"
            raise new_error(UnknownTopicOrPartition, detail)
        return count

    def offer(
        self,
        topic: str,
        partition: int | None,
        partition_count: int,
        draft: Draft,
        on_room: Callable[[], None] | None = None,
    ) -> bool:
        """Take the record if there is room; otherwise call `on_room` when a retry may succeed."""
        if partition is None and draft.key is not None:
            partition = _partitioner()(draft.key, partition_count)
        if self.transactions is not None:
            return self.transactions.offer(topic, partition, partition_count, draft, on_room)
        return self._accumulator.offer(
            topic, partition, partition_count, draft, now_s=time.monotonic(), on_room=on_room
        )

    @property
    def is_empty(self) -> bool:
        """Whether every record has been answered."""
        return not self._accumulator.held_records

    async def flush(self, timeout_s: float | None) -> None:
        """Return when all records offered so far are answered, or raise `TimeoutError`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._sender.flush()
        except TimeoutError:
            held = self._accumulator.held_records
            raise TimeoutError(f"{held} records are not acknowledged yet") from None

    async def close(self, timeout_s: float | None) -> None:
        """Send what is held, for at most `timeout_s`; the rest fails. Then disconnect."""
        self._accumulator.close()
        try:
            if self.transactions is not None:
                await self.transactions.close()
            await self.flush(timeout_s)
        except TimeoutError:
            pass  # Each unsent record reports this through its own future.
        finally:
            await self._sender.stop()
            await self._counts.close()
            await self._gateway.close()

    def _begin(self, queue: Queue) -> None:
        assert self.loop is not None, "a record came before the loop"
        self.loop.call_soon_threadsafe(self._sender.begin, queue)

    def _hurry(self, queue: Queue) -> None:
        assert self.loop is not None, "a record came before the loop"
        self.loop.call_soon_threadsafe(queue.hurry)


@cache
def _partitioner() -> Callable[[bytes, int], int]:
    # Imported with the first key, because this imports pyarrow, which is slow.
    from storage.formats.partitioner import partition_for

    return partition_for
