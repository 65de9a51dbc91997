"""Transactions whose replies are lost: committed once or never, and the program learns which.

A real gateway in this process, behind a network that loses and refuses requests on purpose.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx
import pytest

from riacho.errors import (
    AlreadyCommitted,
    DeliveryTimeout,
    GatewayUnreachable,
)
from riacho.producer.producer import AsyncProducer
from storage.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutcomeUnknown,
)
from tests.riacho.inprocess import Network, refused
from tests.riacho.storm import Storm
from tests.riacho.transacting import (
    LARGE,
    break_off,
    commit,
    committed,
    paths,
    producer,
    read,
    two_topics,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def net() -> AsyncIterator[Network]:
    async with two_topics() as net:
        yield net


# Lost replies


async def run_three(sender: AsyncProducer, size: int) -> None:
    """Commit two transactions with an aborted one between them."""
    body = b"" if size < 5 else LARGE
    await commit(sender, *(b"a%d" % n + body for n in range(size)))
    with pytest.raises(ZeroDivisionError):
        await break_off(sender, *(b"b%d" % n + body for n in range(size)))
    async with sender.transaction():
        for n in range(size):
            await sender.send("t", b"c%d" % n + body, partition=n % 3)
        sender.send_offsets(group="g", offsets={("in", 0): 9})


@pytest.mark.parametrize("size", [3, 6])
async def test_a_lost_reply_to_any_call_changes_no_outcome(size: int) -> None:
    number = 0
    while True:
        async with two_topics() as net:
            net.lost_posts = {number}
            async with producer(net) as sender:
                await run_three(sender, size)
            count = len(net.posted)
            values = await read(net)
            for partition in range(3):
                names = [(value or b"")[:2] for value in values[partition]]
                own = range(partition, size, 3)
                assert names == [b"%c%d" % (c, n) for c in b"ac" for n in own], number
            assert await committed(net) == {0: 9}
        number += 1
        if number >= count:
            break
    assert number >= 3


@pytest.mark.parametrize("seed", range(3))
async def test_a_storm_of_faults_changes_no_outcome(net: Network, seed: int) -> None:
    # A late copy of the call that fences older instances would fence us.
    storm = Storm(net, seed, late_s=0.005, spared=["/v1/producers"])
    async with producer(storm) as sender:
        for n in range(60):
            with suppress(ZeroDivisionError):
                await (break_off if n % 3 == 2 else commit)(sender, *[b"%d" % n] * 3)
    await storm.calm()

    expected = [b"%d" % n for n in range(60) if n % 3 != 2]
    assert await read(net) == dict.fromkeys(range(3), expected)


# Unknown outcomes


async def commit_in_doubt(net: Network, sender: AsyncProducer) -> None:
    """Commit a record while the reply is lost."""
    await sender.begin_transaction()
    future = await sender.send("t", "doubtful", partition=0)
    net.lost_posts = set(range(len(net.posted), 100_000))
    with pytest.raises(OutcomeUnknown) as raised:
        await sender.commit_transaction()
    net.lost_posts = set()
    assert raised.value.may_have_applied
    assert isinstance(future.exception(), OutcomeUnknown)


async def test_a_commit_that_turns_out_to_have_succeeded_is_reported_by_the_next_begin(
    net: Network,
) -> None:
    async with producer(net, delivery_timeout_ms=30) as sender:
        await commit_in_doubt(net, sender)
        with pytest.raises(AlreadyCommitted):
            await sender.begin_transaction()
        await commit(sender, b"after")

    assert await read(net) == {0: [b"doubtful", b"after"]}


async def test_a_commit_that_turns_out_to_have_failed_can_no_longer_happen(net: Network) -> None:
    held: list[httpx.Request] = []

    def hold(request: httpx.Request) -> httpx.Response:
        held.append(request)
        raise httpx.ReadError("the connection broke")

    async with producer(net, delivery_timeout_ms=30) as sender:
        await sender.begin_transaction()
        await sender.send("t", "late", partition=0)
        net.before_call.extend([hold] * 1000)
        with pytest.raises(OutcomeUnknown):
            await sender.commit_transaction()
        net.before_call.clear()
        async with sender.transaction():
            late = await net.handle_async_request(held[0])
            assert late.status_code == 409
            await sender.send("t", "after", partition=0)

    assert await read(net) == {0: [b"after"]}
    assert paths(net.called).count("producers") == 1, "to find out shuts nobody out"


async def test_a_staged_transaction_with_an_unknown_outcome_is_resolved_by_the_next_begin(
    net: Network,
) -> None:
    async with producer(net, delivery_timeout_ms=2000) as sender:
        await sender.begin_transaction()
        for n in range(6):
            await sender.send("t", b"%d" % n + LARGE, partition=0)
        while len(net.produced) < 1:
            await asyncio.sleep(0)
        commit = asyncio.create_task(sender.commit_transaction())
        while "commit" not in paths(net.called):
            await asyncio.sleep(0)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        is_committed = False
        try:
            await sender.begin_transaction()
        except AlreadyCommitted:
            is_committed = True
            await sender.begin_transaction()
        await sender.send("t", "after", partition=0)
        await sender.commit_transaction()

    [values] = (await read(net)).values()
    assert len(values) == (7 if is_committed else 1)


async def test_resolving_an_unknown_outcome_does_not_fence_a_newer_instance(net: Network) -> None:
    async with producer(net, delivery_timeout_ms=30) as old, producer(net) as new:
        await commit_in_doubt(net, old)
        await commit(new, b"new")
        with pytest.raises(AlreadyCommitted):
            await old.begin_transaction()
        with pytest.raises(InvalidProducerEpoch):
            await commit(old, b"late")
        await commit(new, b"again")

    assert await read(net) == {0: [b"doubtful", b"new", b"again"]}


@pytest.mark.parametrize("is_taken_over", [False, True])
async def test_a_transaction_that_timed_out_before_its_begin_was_answered_is_not_committed(
    net: Network, is_taken_over: bool
) -> None:
    async with producer(net, transaction_timeout_ms=50) as sender, producer(net) as newer:
        await sender.begin_transaction()
        net.lost_posts = {len(net.posted)}
        net.before_call.extend([None, *[refused] * 100])
        for n in range(6):
            await sender.send("t", b"%d" % n + LARGE, partition=0)
        while len(net.before_call) > 10:
            await asyncio.sleep(0.001)
        if is_taken_over:
            net.before_call.clear()
            await commit(newer, b"newer")
        with pytest.raises(InvalidProducerEpoch if is_taken_over else InvalidTransactionState):
            await sender.commit_transaction()
        if is_taken_over:
            with pytest.raises(InvalidProducerEpoch):
                await commit(sender, b"late")
        else:
            await commit(sender, b"after")

    assert await read(net) == {0: [b"newer" if is_taken_over else b"after"]}


async def test_an_unreachable_gateway_leaves_no_unknown_outcome(net: Network) -> None:
    async with producer(net, delivery_timeout_ms=30, max_block_ms=30) as sender:
        await commit(sender)
        net.before_call.extend([refused] * 1000)
        with pytest.raises(DeliveryTimeout) as raised:
            await commit(sender, b"v")
        assert not raised.value.may_have_applied
        net.before_call.clear()
        await commit(sender, b"w")
    net.before_call.extend([refused] * 1000)
    async with producer(net, max_block_ms=30) as sender:
        with pytest.raises(GatewayUnreachable):
            await sender.begin_transaction()

    assert await read(net) == {0: [b"w"]}
