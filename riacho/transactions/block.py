"""A producer's transaction as a context manager."""

from concurrent.futures import Future
from typing import TYPE_CHECKING, Self

from riacho.consumer.group_calls import OffsetsGiven
from riacho.records import Headers, Payload, RecordMetadata

if TYPE_CHECKING:
    import asyncio

    from riacho.consumer.consumer import AsyncConsumer, Consumer
    from riacho.delivery.batches import Callback
    from riacho.producer.producer import AsyncProducer, Producer


class AsyncTransaction:
    """Begins a transaction; commits it at the end of the block, or aborts on an exception."""

    def __init__(self, producer: "AsyncProducer") -> None:
        self._producer = producer

    async def send(
        self,
        topic: str,
        value: Payload = None,
        key: Payload = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        callback: "Callback | None" = None,
    ) -> "asyncio.Future[RecordMetadata]":
        """Send a record, as `AsyncProducer.send` does."""
        return await self._producer.send(
            topic, value, key, headers, partition, timestamp_ms, callback
        )

    def send_offsets(
        self,
        consumer: "AsyncConsumer | None" = None,
        *,
        group: str | None = None,
        offsets: OffsetsGiven | None = None,
    ) -> None:
        """Commit the offsets of a group, as `AsyncProducer.send_offsets` does."""
        self._producer.send_offsets(consumer, group=group, offsets=offsets)

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if exc_info[0] is None:
            await self._producer.commit_transaction()
        elif self._producer.is_in_transaction:
            await self._producer.abort_transaction()


class Transaction:
    """As `AsyncTransaction`, without an event loop."""

    def __init__(self, producer: "Producer") -> None:
        self._producer = producer

    def send(
        self,
        topic: str,
        value: Payload = None,
        key: Payload = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        callback: "Callback | None" = None,
    ) -> "Future[RecordMetadata]":
        """Send a record, as `Producer.send` does."""
        return self._producer.send(topic, value, key, headers, partition, timestamp_ms, callback)

    def send_offsets(
        self,
        consumer: "Consumer | None" = None,
        *,
        group: str | None = None,
        offsets: OffsetsGiven | None = None,
    ) -> None:
        """Commit the offsets of a group, as `Producer.send_offsets` does."""
        self._producer.send_offsets(consumer, group=group, offsets=offsets)

    def __enter__(self) -> Self:
        self._producer.begin_transaction()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if exc_info[0] is None:
            self._producer.commit_transaction()
        elif self._producer.is_in_transaction:
            self._producer.abort_transaction()
