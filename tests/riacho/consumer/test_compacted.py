"""Consumers of compacted partitions: nothing twice, nothing missed, no endless waits."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from riacho import Admin, Producer
from riacho.admin.admin import AsyncAdmin
from riacho.consumer.consumer import AsyncConsumer
from riacho.records import Record, TopicPartition
from service.log.gateway import Gateway
from service.process.stores import open_table, open_zones
from service.settings import Settings
from service.world.clock import real_world
from tests.gateway import start_gateway
from tests.riacho.consumer.test_consumer import consumer, numbers, read, write
from tests.riacho.consumer.test_groups import member, offsets, until
from tests.riacho.inprocess import URL, Network, network
from tests.storage.helpers.compacted_logs import compact

pytestmark = pytest.mark.anyio

PARTITION = TopicPartition("t", 0)


@pytest.fixture
async def net() -> AsyncIterator[Network]:
    """Of 30 records compaction left every third, without the last ones; three more follow."""
    async with network() as net, AsyncAdmin(URL, transport=net) as admin:
        await admin.create_topic("t", partitions=20)
        await write(net, 30)
        await compact(net.gateway, "t", 0, is_kept, segments=3, row_group_bytes=40)
        yield net


def is_kept(offset: int) -> bool:
    return offset % 3 == 1 and offset < 24


KEPT = [offset for offset in range(30) if is_kept(offset)]


async def position_after(reader: AsyncConsumer, offset: int) -> list[Record]:
    """Poll until the position is `offset`; return the records polled."""
    records: list[Record] = []
    async with asyncio.timeout(120):
        while await reader.position(*PARTITION) < offset:
            records += await reader.poll(50)
    return records


async def test_every_surviving_record_is_returned_once_with_its_offset(net: Network) -> None:
    async with consumer(net, max_poll_records=2) as reader:
        reader.assign([PARTITION])
        records = await position_after(reader, 30)
        assert [record.offset for record in records] == KEPT == numbers(records)

        await write(net, 3, start=30)
        assert [record.offset for record in await read(reader, 3)] == [30, 31, 32]
        assert await reader.position(*PARTITION) == 33


async def test_one_request_fetches_many_partitions_with_gaps(net: Network) -> None:
    async with consumer(net) as reader:
        reader.subscribe("t")
        assert numbers(await read(reader, len(KEPT))) == KEPT
        await position_after(reader, 30)
    assert any(request.url.path == "/v1/fetch" for request in net.fetched)


async def test_a_seek_into_a_gap_continues_at_the_next_record(net: Network) -> None:
    async with consumer(net) as reader:
        reader.assign([PARTITION])
        for start in range(KEPT[-1] + 1):
            reader.seek(*PARTITION, start)
            [first] = await reader.poll(5000, max_records=1)
            assert first.offset == min(offset for offset in KEPT if offset >= start)
        reader.seek_to_timestamp(1011, PARTITION)
        assert (await reader.poll(5000, max_records=1))[0].offset == 13
        reader.seek_to_end()
        assert await reader.position(*PARTITION) == 30


async def test_a_group_commits_the_offset_after_records_that_compaction_removed(
    net: Network,
) -> None:
    async with (
        member(net, enable_auto_commit=False) as reader,
        AsyncAdmin(URL, transport=net) as admin,
    ):
        reader.subscribe("t")
        seen: list[Record] = []

        async def is_at_end() -> bool:
            seen.extend(await reader.poll(20))
            return PARTITION in reader.assignment() and await reader.position(*PARTITION) == 30

        await until(is_at_end)
        assert numbers(seen) == KEPT
        await reader.commit()
        assert (await offsets(net))[0] == 30
        [lag] = [each for each in await admin.group_lag("g") if each.partition == 0]
        assert (lag.committed_offset, lag.lag) == (30, 0)


async def compact_data(data: Path) -> None:
    """Compact the data of a gateway in another process; keep every third of the first records."""
    world, settings = real_world(), Settings(data=data)
    gateway = Gateway(settings, open_zones(settings), open_table(settings, world), world)
    await compact(gateway, "t", 0, lambda offset: offset % 3 == 0)
    await gateway.aclose()


def test_consume_exits_at_an_end_whose_records_were_compacted_away(tmp_path: Path) -> None:
    with start_gateway(tmp_path, "--log-level", "warning") as process:
        with Admin(process.url) as admin, Producer(process.url) as producer:
            admin.create_topic("t")
            for number in range(9):
                producer.send("t", str(number))
        asyncio.run(compact_data(tmp_path / "data"))
        done = subprocess.run(
            [sys.executable, "-m", "riacho", "consume", "t", "-e", "-f", "%o=%v\\n"],
            capture_output=True,
            timeout=60,
            env={**os.environ, "RIACHO_URL": process.url},
        )

    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().splitlines() == ["0=0", "3=3", "6=6"]
