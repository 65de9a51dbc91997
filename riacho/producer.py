"""Producers: records in, acknowledgements out, with batching and retries in between.

`AsyncProducer` is for programs with an event loop, `Producer` for all others; they share
everything but the way they wait.
"""

import asyncio
import atexit
import threading
import time
import weakref
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, Self, cast

from riacho.background import Synchronous
from riacho.batches import Callback, Draft
from riacho.errors import BufferExhausted, new_error
from riacho.futures import LightFuture
from riacho.gateway import gateway_url
from riacho.pipeline import Pipeline
from riacho.records import Headers, Payload, RecordMetadata
from riacho.retries import Backoff
from riacho.sender import Delivery
from riacho.wire import COMPRESSIONS, Compression
from storage.errors import InvalidAcks

if TYPE_CHECKING:
    import httpx

MIB: Final = 1024 * 1024


class _Producing:
    """The settings that both producers take."""

    def __init__(
        self,
        url: str | None = None,
        *,
        acks: str | int = "all",
        linger_ms: float = 5,
        batch_size: int = 1 * MIB,
        compression_type: Compression | None = None,
        retries: int = 2**31 - 1,
        retry_backoff_ms: float = 100,
        retry_backoff_max_ms: float = 1000,
        delivery_timeout_ms: float = 120_000,
        request_timeout_ms: float = 30_000,
        max_in_flight: int = 5,
        buffer_memory: int = 32 * MIB,
        max_block_ms: float = 60_000,
        metadata_max_age_ms: float = 300_000,
        transport: "httpx.AsyncBaseTransport | None" = None,
    ) -> None:
        """Prepare to send to the gateway at `url`; nothing is sent yet.

        `url`: where the gateway is; None means `RIACHO_URL`, else http://127.0.0.1:8080.
        `acks`: "all" (every in-sync zone has the record), 1 (the leader has it) or 0 (do
        not wait, the record may be lost and its offset stays unknown).
        `linger_ms`: how long the first record of a batch waits for company.
        `batch_size`: the most bytes of records in one request.
        `compression_type`: "lz4" (the default), "zstd", "gzip" or "none".
        `retries`, `retry_backoff_ms`, `retry_backoff_max_ms`: how often, and how far apart.
        `delivery_timeout_ms`: the time from `send` to the final answer, retries included.
        `request_timeout_ms`: how long to wait for one reply.
        `max_in_flight`: the requests in the air at once, each for another partition.
        `buffer_memory`: the most bytes held; then `send` waits up to `max_block_ms`.
        `metadata_max_age_ms`: how soon a growing number of partitions is noticed.
        `transport`: an httpx transport, for tests and unusual networks.
        """
        if compression_type not in (None, *COMPRESSIONS):
            raise ValueError(f"compression_type is one of {', '.join(COMPRESSIONS)}")
        if not 0 < batch_size <= buffer_memory:
            raise ValueError("batch_size must be positive, and fit into buffer_memory")
        if max_in_flight < 1:
            raise ValueError("max_in_flight is 1 or more, or nothing would ever be sent")
        if min(retries, linger_ms, retry_backoff_ms, max_block_ms) < 0:
            raise ValueError("retries, linger_ms, retry_backoff_ms and max_block_ms are 0 or more")
        if min(delivery_timeout_ms, request_timeout_ms) <= 0:
            raise ValueError("delivery_timeout_ms and request_timeout_ms are more than 0")
        delivery = Delivery(
            acks=_acks(acks),
            linger_s=linger_ms / 1000,
            compression=compression_type or "lz4",
            retries=retries,
            backoff=Backoff(first_ms=retry_backoff_ms, most_ms=retry_backoff_max_ms),
            delivery_timeout_s=delivery_timeout_ms / 1000,
            request_timeout_s=request_timeout_ms / 1000,
            max_in_flight=max_in_flight,
        )
        self._max_block_s = max_block_ms / 1000
        self._pipeline = Pipeline(
            gateway_url(url),
            delivery,
            batch_bytes_max=batch_size,
            buffer_bytes_max=buffer_memory,
            metadata_age_max_s=metadata_max_age_ms / 1000,
            transport=transport,
        )
        super().__init__()

    def _exhausted(self, draft: Draft) -> Exception:
        return new_error(
            BufferExhausted,
            f"no room for {draft.size_bytes} bytes within {self._max_block_s:g} s: the gateway"
            " takes records more slowly than they come; raise buffer_memory or send less",
        )


class AsyncProducer(_Producing):
    """Sends records; for programs with an event loop.

        async with AsyncProducer("http://127.0.0.1:8080") as producer:
            await producer.send("orders", {"id": 1}, key="customer-7")
            metadata = await producer.send_and_wait("orders", "paid", key="customer-7")
            print(metadata.partition, metadata.offset)

    `send` returns as soon as the record is in the buffer, with a future that resolves when
    the gateway acknowledged it. Records of one partition keep the order in which they were
    sent, through all retries.

    Delivery is at least once: when the reply to a request is lost, the batch is sent again,
    and if the first try had been written after all, its records are in the log twice. Set
    `retries=0` for at most once. An error that reaches a future says which it was:
    `error.may_have_applied`.
    """

    async def send(
        self,
        topic: str,
        value: Payload = None,
        key: Payload = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        callback: Callback | None = None,
    ) -> "asyncio.Future[RecordMetadata]":
        """Put a record into the buffer; the future has its offset, or its error.

        Without `partition`, records of equal keys go to the same partition, the one that
        Kafka's clients would choose; without a key, any. `callback(metadata, error)` is
        called when the outcome is known; one of the two is None.

        Raises `UnknownTopicOrPartition`, `BufferExhausted` after `max_block_ms`, and
        `GatewayUnreachable` if the topic is new to this producer and nobody answers.
        """
        pipeline = self._pipeline
        if pipeline.loop is None:
            pipeline.loop = asyncio.get_running_loop()
        give_up_s = time.monotonic() + self._max_block_s
        count = pipeline.partition_count(topic, partition)
        if count is None:
            count = await pipeline.fetch_partition_count(topic, partition, self._max_block_s)
        future: asyncio.Future[RecordMetadata] = pipeline.loop.create_future()
        draft = pipeline.draft(future, value, key, headers, timestamp_ms, callback)
        while not pipeline.offer(topic, partition, count, draft):
            room = asyncio.Event()
            if pipeline.offer(topic, partition, count, draft, room.set):
                break
            try:
                async with asyncio.timeout(give_up_s - time.monotonic()):
                    await room.wait()
            except TimeoutError:
                raise self._exhausted(draft) from None
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: Payload = None,
        key: Payload = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send a record and return where it was written, or raise why it was not."""
        future = await self.send(topic, value, key, headers, partition, timestamp_ms)
        return await future

    async def flush(self, timeout: float | None = None) -> None:
        """Return when every record sent so far has its answer, good or bad.

        Raises `TimeoutError` after `timeout` seconds; sending goes on.
        """
        await self._pipeline.flush(timeout)

    async def close(self, timeout: float | None = None) -> None:
        """Send what is buffered, then disconnect. After `timeout` seconds the rest fails."""
        await self._pipeline.close(timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


class Producer(_Producing, Synchronous):
    """Sends records; from any thread, without an event loop.

        with Producer("http://127.0.0.1:8080") as producer:
            producer.send("orders", {"id": 1}, key="customer-7")
            metadata = producer.send("orders", "paid", key="customer-7").result()
            print(metadata.partition, metadata.offset)

    `send` returns a `concurrent.futures.Future`. Order, retries and duplicates are as
    `AsyncProducer` describes them. Close the producer, or use `with`: what is still in the
    buffer when the program ends is sent only if the gateway answers quickly.
    """

    EXIT_TIMEOUT_S: Final = 5.0

    def send(
        self,
        topic: str,
        value: Payload = None,
        key: Payload = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        callback: Callback | None = None,
    ) -> "Future[RecordMetadata]":
        """Put a record into the buffer; see `AsyncProducer.send`.

        `callback` is called in the client's own thread, and must not wait for the producer.
        """
        pipeline = self._pipeline
        if pipeline.loop is None:
            self._bind()
        give_up_s = time.monotonic() + self._max_block_s
        count = pipeline.partition_count(topic, partition)
        if count is None:
            asked = pipeline.fetch_partition_count(topic, partition, self._max_block_s)
            count = self._run(asked)
        future: Future[RecordMetadata] = LightFuture()
        draft = pipeline.draft(future, value, key, headers, timestamp_ms, callback)
        while not pipeline.offer(topic, partition, count, draft):
            room = threading.Event()
            if pipeline.offer(topic, partition, count, draft, room.set):
                break
            # On the client's own thread nobody else could make room while we wait.
            if self._background.is_current or not room.wait(give_up_s - time.monotonic()):
                raise self._exhausted(draft)
        return future

    def flush(self, timeout: float | None = None) -> None:
        """Return when every record sent so far has its answer, good or bad.

        Raises `TimeoutError` after `timeout` seconds; sending goes on.
        """
        self._run(self._pipeline.flush(timeout))

    def close(self, timeout: float | None = None) -> None:
        """Send what is buffered, then disconnect. After `timeout` seconds the rest fails."""
        self._close_timeout_s = timeout
        super().close()

    async def _aclose(self) -> None:
        await self._pipeline.close(self._close_timeout_s)

    def _bind(self) -> None:
        self._pipeline.loop = self._background.loop
        atexit.register(_close_at_exit, weakref.ref(self), self.EXIT_TIMEOUT_S)


def _close_at_exit(reference: "weakref.ref[Producer]", timeout_s: float) -> None:
    producer = reference()
    if producer is not None:
        producer.close(timeout_s)


def _acks(acks: str | int) -> str:
    text = {"-1": "all"}.get(str(acks), str(acks))
    if text not in ("all", "1", "0"):
        raise cast(InvalidAcks, new_error(InvalidAcks, f'acks is "all", 1 or 0, not {acks!r}'))
    return text
