"""Producers: records in, acknowledgements out, with batching and retries in between.

`AsyncProducer` is for programs with an event loop, `Producer` for all others; they differ
only in how they wait.
"""

import asyncio
import atexit
import threading
import time
import weakref
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, Self

from riacho.consumer.group_calls import OffsetsGiven
from riacho.delivery.batches import Callback
from riacho.delivery.futures import LightFuture
from riacho.http import wire
from riacho.http.background import Synchronous
from riacho.producer.shared import Producing
from riacho.records import Headers, Payload, RecordMetadata
from riacho.transactions.block import AsyncTransaction, Transaction

if TYPE_CHECKING:
    from riacho.consumer.consumer import AsyncConsumer, Consumer


class AsyncProducer(Producing):
    """Sends records; for programs with an event loop.

        async with AsyncProducer("http://127.0.0.1:8080") as producer:
            await producer.send("orders", {"id": 1}, key="customer-7")
            metadata = await producer.send_and_wait("orders", "paid", key="customer-7")
            print(metadata.partition, metadata.offset)

    `send` returns as soon as the record is in the buffer, with a future that resolves when
    the gateway acknowledged it. Records of one partition keep the order in which they were
    sent, through all retries.

    **Each record is written once.** When the reply to a request is lost, the batch is sent
    again with the same number, and the gateway does not write it a second time. An error that
    reaches a future is final; `error.may_have_applied` says whether the record may be in the
    log nevertheless. Calling `send` again with such a record may duplicate it.

    With `enable_idempotence=False` a batch whose reply was lost may be in the log twice (*at
    least once*): sent A B, lost the reply to B, in the log A B B. With `retries=0` as well, it
    is there once or not at all (*at most once*).

    **Transactions** write to many partitions, and commit what a consumer has read, all or
    nothing. They need a `transactional_id`:

        async with AsyncProducer(transactional_id="copier-1") as producer:
            async with producer.transaction():
                for record in await consumer.poll(1000):
                    await producer.send("copies", record.value, key=record.key)
                producer.send_offsets(consumer)

    Leaving the block commits; an exception aborts. Consumers never see uncommitted records. A small
    transaction (4 MiB) is one request, and costs the gateway one write.
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

        Without `partition`, records with equal keys go to the same partition, the one that
        Kafka's clients would choose; without a key, any. `callback(metadata, error)` is
        called when the outcome is known; one of the two is None.

        In a transaction the future resolves when the transaction ends, not before.

        Raises `UnknownTopicOrPartition`, `BufferExhausted` after `max_block_ms`, and
        `GatewayUnreachable` if the topic is new to this producer and no gateway answers.
        """
        pipeline = self._pipeline
        if pipeline.loop is None:
            pipeline.loop = asyncio.get_running_loop()
        if self._serializing is not None:
            key, value, headers = await self._serializing.soon(topic, key, value, headers)
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
        if self._pipeline.transactions is not None:
            raise RuntimeError(
                "inside a transaction nothing is written before the commit; use send"
            )
        future = await self.send(topic, value, key, headers, partition, timestamp_ms)
        return await future

    def transaction(self) -> AsyncTransaction:
        """Return a transaction, for `async with`. See `begin_transaction` for what it raises.

        Leaving the block commits, and then the futures of its records have their offsets. An
        exception aborts, and is raised to the caller.
        """
        return AsyncTransaction(self)

    async def begin_transaction(self) -> None:
        """Begin a transaction; `send` puts records into it until it is committed or aborted.

        The first one fences older producers with the same `transactional_id`. Raises
        `InvalidProducerEpoch` if a newer producer has fenced this one: close it. Raises
        `AlreadyCommitted` if the commit of the last transaction ended as an `OutcomeUnknown`
        and did take effect: check what is left to do.
        """
        self._pipeline.loop = asyncio.get_running_loop()
        await self._transactions.begin()

    def send_offsets(
        self,
        consumer: "AsyncConsumer | None" = None,
        *,
        group: str | None = None,
        offsets: OffsetsGiven | None = None,
    ) -> None:
        """Commit the offsets of a group with the transaction.

        For a `consumer`, with `enable_auto_commit=False`: the offsets after all records that
        its polls have returned. Call it after each poll whose records are in the transaction,
        since the next poll may revoke partitions. Without a consumer: the offset of the next
        record to read, by (topic, partition), of a `group` without members.
        """
        self._send_offsets(consumer, group, offsets)

    async def commit_transaction(self) -> None:
        """Commit: all of it is written, or an error says that nothing of it is.

        Raises `OutcomeUnknown` if no gateway answered within `delivery_timeout_ms`; the next
        `begin_transaction` finds out. Raises `CommitFailed` if partitions that were read now
        belong to other consumers, `InvalidProducerEpoch` if a newer producer has fenced this
        one, and `InvalidTransactionState` if the transaction took longer than
        `transaction_timeout_ms`. In all cases the transaction is over.
        """
        await self._transactions.commit()

    async def abort_transaction(self) -> None:
        """Abort: nothing of the transaction is written, and its futures raise."""
        await self._transactions.abort()

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


class Producer(Producing, Synchronous):
    """Sends records; from any thread, without an event loop.

        with Producer("http://127.0.0.1:8080") as producer:
            producer.send("orders", {"id": 1}, key="customer-7")
            metadata = producer.send("orders", "paid", key="customer-7").result()
            print(metadata.partition, metadata.offset)

    `send` returns a `concurrent.futures.Future`. Order, retries and write-once guarantees are
    those of `AsyncProducer`. Close the producer, or use `with`: what is still in the
    buffer when the program ends is sent only if the gateway answers quickly.

    Transactions work as in `AsyncProducer`, using `with`:

        with Producer(transactional_id="copier-1") as producer:
            with producer.transaction():
                for record in consumer.poll(1000):
                    producer.send("copies", record.value, key=record.key)
                producer.send_offsets(consumer)
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

        `callback` is called in the client's background thread, and must not wait for the producer.
        """
        pipeline = self._pipeline
        if pipeline.loop is None:
            self._bind()
        if self._serializing is not None:
            key, value, headers = self._serializing.now(topic, key, value, headers)
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
            # The client's own thread is the one that makes room, so it must not wait for it.
            if self._background.is_current or not room.wait(give_up_s - time.monotonic()):
                raise self._exhausted(draft)
        return future

    def transaction(self) -> Transaction:
        """Return a transaction, for `with`; see `AsyncProducer.transaction`."""
        return Transaction(self)

    def begin_transaction(self) -> None:
        """Begin a transaction; see `AsyncProducer.begin_transaction`."""
        if self._pipeline.loop is None:
            self._bind()
        self._run(self._transactions.begin())

    def send_offsets(
        self,
        consumer: "Consumer | None" = None,
        *,
        group: str | None = None,
        offsets: OffsetsGiven | None = None,
    ) -> None:
        """Commit the offsets of a group; see `AsyncProducer.send_offsets`."""
        self._send_offsets(consumer, group, offsets)

    def commit_transaction(self) -> None:
        """Commit the transaction; see `AsyncProducer.commit_transaction`."""
        self._run(self._transactions.commit())

    def abort_transaction(self) -> None:
        """Abort: nothing of the transaction is written, and its futures raise."""
        self._run(self._transactions.abort())

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
        # If pandas is installed, pyarrow imports this module. It cannot be imported during exit,
        # which may be when the first batch is sent.
        import concurrent.futures.thread  # noqa: F401

        self._pipeline.loop = self._background.loop
        atexit.register(_close_at_exit, weakref.ref(self), self.EXIT_TIMEOUT_S)


def _close_at_exit(reference: "weakref.ref[Producer]", timeout_s: float) -> None:
    producer = reference()
    if producer is None:
        return
    if not producer._pipeline.is_empty:
        wire.load()  # Before the timeout starts, which is meant for the gateway.
    producer.close(timeout_s)
