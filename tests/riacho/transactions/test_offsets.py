"""Offsets in a transaction: they are committed together with the records that were written.

A real gateway in this process, behind a network that loses and refuses requests on purpose.
"""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from riacho.admin.admin import AsyncAdmin
from riacho.consumer.consumer import AsyncConsumer, Consumer
from riacho.errors import (
    CommitFailed,
)
from tests.riacho.inprocess import URL, Network, refused
from tests.riacho.transacting import (
    commit,
    committed,
    consumer,
    poll,
    producer,
    read,
    two_topics,
    write,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def net() -> AsyncIterator[Network]:
    async with two_topics() as net:
        yield net


# Offsets


async def test_offsets_and_records_are_committed_together(net: Network) -> None:
    await write(net, 10)
    async with producer(net) as sender, consumer(net) as reader:
        reader.subscribe("in")
        for _ in range(2):
            async with sender.transaction():
                for record in await poll(reader, 5):
                    await sender.send("t", record.value, partition=0)
                sender.send_offsets(reader)
                before = await committed(net)
            assert await committed(net) != before

    assert await committed(net) == {0: 10, 1: 0, 2: 0}
    assert await read(net) == {0: [b"%d" % n for n in range(10)]}


async def test_after_an_abort_a_consumer_can_seek_to_the_committed_offset(net: Network) -> None:
    await write(net, 4)
    async with producer(net) as sender, consumer(net, max_poll_records=2) as reader:
        reader.assign([("in", 0)])
        is_broken = True
        copied = 0
        while copied < 4:
            try:
                async with sender.transaction():
                    records = await poll(reader, 2)
                    for record in records:
                        await sender.send("t", record.value, partition=0)
                    sender.send_offsets(reader)
                    if copied and is_broken:
                        is_broken = False
                        raise ZeroDivisionError
                copied += 2
            except ZeroDivisionError:
                reader.seek_to_committed()

    assert await committed(net) == {0: 4}
    assert await read(net) == {0: [b"0", b"1", b"2", b"3"]}


async def test_seeking_to_committed_without_a_commit_goes_to_the_beginning(net: Network) -> None:
    await write(net, 2)
    async with consumer(net) as reader:
        reader.assign([("in", 0)])
        assert [r.offset for r in await poll(reader, 2)] == [0, 1]
        reader.seek_to_committed(("in", 0))
        assert [r.offset for r in await poll(reader, 2)] == [0, 1]


async def test_a_commit_follows_a_new_generation_if_the_partitions_stay(net: Network) -> None:
    await write(net, 2)
    async with AsyncAdmin(URL, transport=net) as admin:
        await admin.create_topic("other")
    async with producer(net) as sender, consumer(net) as one, consumer(net) as two:
        one.subscribe("in")
        async with sender.transaction():
            await sender.send("t", str(len(await poll(one, 2))), partition=0)
            sender.send_offsets(one)
            two.subscribe("other")
            async with asyncio.timeout(120):
                while not two.assignment():
                    await two.poll(20)

    assert (await committed(net))[0] == 2
    assert await read(net) == {0: [b"2"]}


async def test_a_commit_follows_a_new_generation_despite_refused_group_calls(net: Network) -> None:
    await write(net, 2)
    async with producer(net) as sender, consumer(net, heartbeat_interval_ms=700) as reader:
        reader.subscribe("in")
        async with sender.transaction():
            await sender.send("t", str(len(await poll(reader, 2))), partition=0)
            sender.send_offsets(reader)
            joining = httpx.Request("POST", f"{URL}/v1/groups/g/members", json={"topics": ["t"]})
            assert (await net.handle_async_request(joining)).status_code == 200
            net.before_group.extend([refused] * 50)

    assert not net.before_group
    assert (await committed(net))[0] == 2
    assert await read(net) == {0: [b"2"]}


async def test_a_consumer_that_lost_its_partitions_cannot_commit(net: Network) -> None:
    await write(net, 2)
    async with producer(net) as sender, consumer(net, heartbeat_interval_ms=700) as reader:
        reader.subscribe("in")
        await sender.begin_transaction()
        await sender.send("t", str(len(await poll(reader, 2))), partition=0)
        sender.send_offsets(reader)
        async with AsyncAdmin(URL, transport=net) as admin:
            [member] = (await admin.describe_group("g")).members
        path = f"{URL}/v1/groups/g/members/{member.member_id}"
        await net.handle_async_request(httpx.Request("DELETE", path))
        with pytest.raises(CommitFailed):
            await sender.commit_transaction()
        await commit(sender, b"after")

    assert await committed(net) == {}
    assert await read(net) == {0: [b"after"]}


async def test_invalid_offsets_are_refused(net: Network) -> None:
    async with (
        producer(net) as sender,
        consumer(net, enable_auto_commit=True) as automatic,
        AsyncConsumer(URL, transport=net) as alone,
    ):
        threaded = Consumer(URL, group_id="g", enable_auto_commit=False)
        with pytest.raises(RuntimeError, match="inside a transaction only"):
            sender.send_offsets(group="g", offsets={("in", 0): 1})
        await sender.begin_transaction()
        with pytest.raises(ValueError, match="enable_auto_commit=False"):
            sender.send_offsets(automatic)
        with pytest.raises(RuntimeError, match="in no group"):
            sender.send_offsets(alone)
        with pytest.raises(TypeError, match="an AsyncProducer an AsyncConsumer"):
            sender.send_offsets(threaded)  # type: ignore[arg-type]
        threaded.close()
        with pytest.raises(ValueError, match="a consumer, or a group and its offsets"):
            sender.send_offsets()
        with pytest.raises(ValueError, match="not negative"):
            sender.send_offsets(group="g", offsets={("in", 0): -1})
        sender.send_offsets(group="g", offsets={("in", 0): 1, ("in", 1): 1})
        with pytest.raises(ValueError, match="one group"):
            sender.send_offsets(group="h", offsets={("in", 0): 1})
        sender.send_offsets(group="g", offsets={("in", 0): 2})
        await sender.commit_transaction()

    assert await committed(net) == {0: 2, 1: 1}
