"""The promises of a consumer: every record once, in order, from the requested start.

A real gateway in this process, behind a network that loses and refuses requests on purpose.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from riacho.admin.admin import AsyncAdmin
from riacho.consumer.consumer import AsyncConsumer
from riacho.errors import GatewayUnreachable
from riacho.producer.producer import AsyncProducer
from riacho.records import Record, TopicPartition
from storage.errors import OffsetOutOfRange, UnknownTopicOrPartition
from tests.riacho.inprocess import URL, Network, client_tasks, network, problem, refused

pytestmark = pytest.mark.anyio


@pytest.fixture
async def net() -> AsyncIterator[Network]:
    async with network() as net, AsyncAdmin(URL, transport=net) as admin:
        await admin.create_topic("t", partitions=3)
        yield net


def consumer(net: Network, **settings: object) -> AsyncConsumer:
    quick = {
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": 20,
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 2,
    }
    return AsyncConsumer(URL, transport=net, **quick | settings)  # type: ignore[arg-type]


async def write(net: Network, count: int, partition: int = 0, start: int = 0) -> None:
    async with AsyncProducer(URL, transport=net, linger_ms=0) as producer:
        for n in range(start, start + count):
            await producer.send("t", str(n), partition=partition, timestamp_ms=1000 + n)


async def read(reader: AsyncConsumer, count: int) -> list[Record]:
    records: list[Record] = []
    async with asyncio.timeout(120):
        while len(records) < count:
            records += await reader.poll(1000)
    assert len(records) == count
    return records


def numbers(records: list[Record]) -> list[int]:
    return [int(record.text()) for record in records]


async def test_a_subscription_reads_all_partitions_in_order(net: Network) -> None:
    for partition in range(3):
        await write(net, 50, partition)

    async with consumer(net) as reader:
        reader.subscribe("t")
        records = await read(reader, 150)

    for partition in range(3):
        own = [record for record in records if record.partition == partition]
        assert numbers(own) == list(range(50))
        assert [record.offset for record in own] == list(range(50))


async def test_no_record_is_lost_or_repeated_when_replies_are_lost(net: Network) -> None:
    await write(net, 100)
    net.lost_fetches = 3
    net.before_fetch.extend([refused, problem(503, "STORAGE_UNAVAILABLE", retryable=True)])

    async with consumer(net, max_poll_records=7, fetch_max_bytes=200) as reader:
        reader.assign([("t", 0)])
        records = await read(reader, 100)

    assert numbers(records) == list(range(100))


async def test_a_poll_waits_for_records_that_arrive_later(net: Network) -> None:
    async with consumer(net, fetch_max_wait_ms=5000) as reader:
        reader.assign([("t", 0)])
        assert await reader.poll(10) == []

        await write(net, 1)

        assert numbers(await read(reader, 1)) == [0]


async def test_latest_begins_with_the_next_record(net: Network) -> None:
    await write(net, 5)

    async with consumer(net, auto_offset_reset="latest") as reader:
        reader.assign([("t", 0)])
        assert await reader.position("t", 0) == 5
        await write(net, 2, start=5)

        assert numbers(await read(reader, 2)) == [5, 6]


async def test_the_position_moves_only_when_records_are_returned(net: Network) -> None:
    await write(net, 10)

    async with consumer(net) as reader:
        reader.assign([("t", 0)])
        await reader.poll(1000, max_records=1)
        assert await reader.position("t", 0) == 1
        async for record in reader:
            if record.offset == 4:
                break

        assert await reader.position("t", 0) == 5
        assert numbers(await read(reader, 5)) == [5, 6, 7, 8, 9]


async def test_a_cancelled_poll_loses_no_records(net: Network) -> None:
    await write(net, 20)

    async with consumer(net, max_poll_records=3) as reader:
        reader.assign([("t", 0)])
        seen: list[Record] = []
        async with asyncio.timeout(120):
            while len(seen) < 20:
                poll = asyncio.create_task(reader.poll(1000))
                await asyncio.sleep(0)
                if len(seen) % 2:
                    poll.cancel()
                for outcome in await asyncio.gather(poll, return_exceptions=True):
                    seen += outcome if isinstance(outcome, list) else []
                seen += await reader.poll(100, max_records=1)

    assert numbers(seen) == list(range(20))


async def test_seeks_to_offsets_timestamps_beginning_and_end(net: Network) -> None:
    await write(net, 10)

    async with consumer(net) as reader:
        reader.assign([("t", 0)])
        await read(reader, 10)

        reader.seek("t", 0, 7)
        assert numbers(await read(reader, 3)) == [7, 8, 9]
        reader.seek_to_beginning()
        assert (await reader.poll(1000))[0].offset == 0
        reader.seek_to_timestamp(1004, ("t", 0))
        assert (await reader.poll(1000))[0].offset == 4
        reader.seek_to_timestamp(9999)
        assert await reader.position("t", 0) == 10
        reader.seek_to_end()
        assert await reader.poll(10) == []
        with pytest.raises(KeyError):
            reader.seek("t", 1, 0)


async def test_a_seek_does_not_wait_for_an_outdated_fetch(net: Network) -> None:
    await write(net, 3)

    async with consumer(net, auto_offset_reset="latest", fetch_max_wait_ms=60_000) as reader:
        reader.assign([("t", 0)])
        assert await reader.poll(20) == []
        reader.seek_to_beginning()

        assert numbers(await read(reader, 3)) == [0, 1, 2]


async def test_paused_partitions_return_no_records(net: Network) -> None:
    await write(net, 2, 0)
    await write(net, 2, 1)

    async with consumer(net) as reader:
        reader.assign([("t", 0), ("t", 1)])
        reader.pause(("t", 0))
        assert reader.paused() == [TopicPartition("t", 0)]
        assert {record.partition for record in await read(reader, 2)} == {1}
        reader.resume(("t", 0))

        assert {record.partition for record in await read(reader, 2)} == {0}


async def test_an_offset_outside_the_log_is_reset_or_raised(net: Network) -> None:
    await write(net, 3)

    async with consumer(net) as reader:
        reader.assign([("t", 0)])
        reader.seek("t", 0, 999)
        assert numbers(await read(reader, 3)) == [0, 1, 2]
    async with consumer(net, auto_offset_reset="none") as reader:
        reader.assign([("t", 0)])
        reader.seek("t", 0, 999)
        with pytest.raises(OffsetOutOfRange, match="999"):
            await reader.poll(1000)
        reader.seek("t", 0, 1)
        assert numbers(await read(reader, 2)) == [1, 2]


async def test_one_request_fetches_many_partitions(net: Network) -> None:
    async with AsyncAdmin(URL, transport=net) as admin:
        await admin.alter_topic("t", partitions=40)
    async with AsyncProducer(URL, transport=net) as producer:
        for n in range(40):
            await producer.send("t", str(n), partition=n, headers={"h": b"\xff"})

    async with consumer(net) as reader:
        reader.subscribe(["t"])
        records = await read(reader, 40)
        reader.seek("t", 7, 999)
        again = await read(reader, 1)

    assert {(record.partition, record.text()) for record in records} == {
        (n, str(n)) for n in range(40)
    }
    assert records[0].headers == (("h", b"\xff"),)
    assert again[0].partition == 7
    assert {request.url.path for request in net.fetched} == {"/v1/fetch"}


async def test_partitions_added_later_are_read_from_their_beginning(net: Network) -> None:
    async with consumer(net, metadata_max_age_ms=0, auto_offset_reset="latest") as reader:
        reader.subscribe("t")
        assert await reader.poll(50) == []
        async with AsyncAdmin(URL, transport=net) as admin:
            await admin.alter_topic("t", partitions=4)
        await write(net, 1, partition=3)

        [record] = await read(reader, 1)

    assert record.partition == 3


async def test_an_unknown_topic_is_raised(net: Network) -> None:
    async with consumer(net) as reader:
        reader.subscribe("nope")
        with pytest.raises(UnknownTopicOrPartition, match="nope"):
            await reader.poll(1000)


async def test_an_outage_is_retried_until_the_timeout(net: Network) -> None:
    await write(net, 1)
    net.before_fetch.extend([refused] * 10_000)

    async with consumer(net, default_api_timeout_ms=50) as reader:
        reader.assign([("t", 0)])
        with pytest.raises(GatewayUnreachable):
            await reader.poll(10_000)
        net.before_fetch.clear()

        assert len(await read(reader, 1)) == 1


async def test_an_idle_consumer_sends_no_requests(net: Network) -> None:
    async with consumer(net, fetch_max_wait_ms=1) as reader:
        reader.assign([("t", 0)])
        await reader.poll(10)
        await asyncio.sleep(0.02)
        count = len(net.fetched)
        await asyncio.sleep(0.05)

        assert len(net.fetched) == count


async def test_closing_leaves_no_tasks_behind(net: Network) -> None:
    reader = consumer(net, fetch_max_wait_ms=60_000)
    reader.subscribe("t")
    await reader.poll(50)
    assert client_tasks()

    await reader.close()

    assert client_tasks() == []


async def test_nothing_is_fetched_after_close(net: Network) -> None:
    for partition in range(3):
        await write(net, 1, partition=partition)
    for steps in range(60):
        # One fetch may return records while the close waits for the others.
        reader = consumer(net, fetch_max_wait_ms=60_000)
        reader.assign([("t", partition) for partition in range(3)])
        await reader.poll(0)
        for _ in range(steps):
            await asyncio.sleep(0)

        await reader.close()

        assert client_tasks() == []
        count = len(net.fetched)
        await asyncio.sleep(0.002)
        assert len(net.fetched) == count


async def test_beginning_and_end_offsets_are_returned(net: Network) -> None:
    await write(net, 4, partition=1)

    async with consumer(net) as reader:
        reader.assign([("t", 0), ("t", 1)])
        assert await reader.end_offsets() == {("t", 0): 0, ("t", 1): 4}
        assert await reader.beginning_offsets(("t", 1)) == {("t", 1): 0}
