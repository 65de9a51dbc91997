"""Producers, consumers and topics for tests of transactions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from riacho.admin.admin import AsyncAdmin
from riacho.consumer.consumer import AsyncConsumer
from riacho.producer.producer import AsyncProducer
from riacho.records import Record, RecordMetadata, TopicPartition
from tests.riacho.inprocess import URL, Network, network

LARGE = b"x" * 1_000_000
"""Five of these do not fit into one call."""


def producer(transport: httpx.AsyncBaseTransport, **settings: object) -> AsyncProducer:
    quick: dict[str, object] = {
        "transactional_id": "copier",
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 2,
    }
    return AsyncProducer(URL, transport=transport, **quick | settings)  # type: ignore[arg-type]


def consumer(transport: httpx.AsyncBaseTransport, **settings: object) -> AsyncConsumer:
    quick: dict[str, object] = {
        "group_id": "g",
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 40,
        "session_timeout_ms": 1500,
        "fetch_max_wait_ms": 20,
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 2,
    }
    return AsyncConsumer(URL, transport=transport, **quick | settings)  # type: ignore[arg-type]


async def read(net: Network, topic: str = "t") -> dict[int, list[bytes | None]]:
    """Return all values of a topic, by partition."""
    async with AsyncConsumer(
        URL, transport=net, auto_offset_reset="earliest", fetch_max_wait_ms=0
    ) as reader:
        reader.assign([(topic, partition) for partition in range(3)])
        ends = await reader.end_offsets()
        records: list[Record] = []
        while len(records) < sum(ends.values()):
            records += await reader.poll(1000)
    return {
        partition: [record.value for record in records if record.partition == partition]
        for partition in range(3)
        if ends[TopicPartition(topic, partition)]
    }


async def write(net: Network, count: int, partition: int = 0) -> None:
    """Write 0, 1, … to a partition of the topic that is copied from."""
    async with AsyncProducer(URL, transport=net, linger_ms=0) as writer:
        for n in range(count):
            await writer.send("in", str(n), partition=partition)


async def committed(net: Network) -> dict[int, int]:
    async with AsyncAdmin(URL, transport=net) as admin:
        return {one.partition: one.offset for one in await admin.group_offsets("g")}


def paths(requests: list[httpx.Request]) -> list[str]:
    """Return the last words of the paths: producers, atomic, transactions, commit, …"""
    return [request.url.path.rsplit("/", 1)[-1] for request in requests]


async def poll(reader: AsyncConsumer, count: int) -> list[Record]:
    records: list[Record] = []
    async with asyncio.timeout(120):
        while len(records) < count:
            records += await reader.poll(1000, max_records=count - len(records))
    return records


Futures = list["asyncio.Future[RecordMetadata]"]


async def commit(sender: AsyncProducer, *values: bytes) -> Futures:
    """Send to the partitions in turn, in one transaction."""
    async with sender.transaction():
        return [await sender.send("t", value, partition=n % 3) for n, value in enumerate(values)]


async def break_off(sender: AsyncProducer, *values: bytes, futures: Futures | None = None) -> None:
    """Do as `commit` does, and raise in the end."""
    async with sender.transaction():
        for n, value in enumerate(values):
            future = await sender.send("t", value, partition=n % 3)
            if futures is not None:
                futures.append(future)
        raise ZeroDivisionError


@asynccontextmanager
async def two_topics() -> AsyncIterator[Network]:
    """Yield a gateway with the topics "t", which is written to, and "in"."""
    async with network() as net, AsyncAdmin(URL, transport=net) as admin:
        for topic in ("t", "in"):
            await admin.create_topic(topic, partitions=3)
        yield net
