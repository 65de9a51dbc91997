"""The write path over zones that fail, hang and come back: who is waited for, and what follows."""

import asyncio

import pytest

from storage.errors import NotEnoughReplicas, StoreUnavailable
from storage.head import replication
from tests.service.helpers.replicated import (
    Replicated,
    append,
    masks,
    names_of,
    numbered,
    started,
    until,
)
from tests.storage.helpers.failing_zones import Mode
from tests.storage.helpers.worlds import turns

pytestmark = pytest.mark.anyio

REFUSALS: list[Mode] = ["denied", "full"]


# Who is waited for


@pytest.mark.parametrize("slow", ["a", "b", "c"])
async def test_acks_all_waits_for_every_zone_in_sync(slow: str) -> None:
    deployment = Replicated()
    topic = await deployment.topic(replica_lag_time_max_ms=600_000)
    deployment.gated[slow].hold()
    waiting = await started(deployment.gateway(), topic, b"v")
    assert not waiting.done()
    assert (await deployment.head(topic)).next_offsets == (0,)

    deployment.gated[slow].release()

    assert await waiting == 0
    assert await masks(deployment, topic) == ["abc"]


@pytest.mark.parametrize("partition", [0, 1, 2])
async def test_acks_1_waits_for_the_zone_that_leads_and_for_no_other(partition: int) -> None:
    deployment = Replicated()
    topic = await deployment.topic(partitions=3, replica_lag_time_max_ms=600_000)
    leader = "abc"[partition]
    others = [name for name in "abc" if name != leader]
    for name in "abc":
        deployment.gated[name].hold()
    waiting = await started(deployment.gateway(), topic, b"v", partition=partition, acks="1")
    for name in others:
        deployment.gated[name].release()
    await turns()
    assert not waiting.done(), "those who follow do not count"

    deployment.gated[leader].release()

    assert await waiting == 0


async def test_acks_1_answers_before_the_followers_and_then_tells_of_them() -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    for name in "bc":
        deployment.gated[name].hold()
    gateway = deployment.gateway()

    assert await append(gateway, topic, b"v", acks="1") == 0
    assert await masks(deployment, topic) == ["a"]
    deployment.gated["b"].release()
    deployment.gated["c"].release()
    await until(deployment, topic, lambda head: names_of(head, head.runs[0].zones) == "abc")

    head = await deployment.head(topic)
    assert (names_of(head), head.leader_epoch) == ("abc", 0)
    await gateway.aclose()


async def test_a_request_for_one_zone_and_one_for_all_share_an_object_but_not_a_wait() -> None:
    deployment = Replicated()
    topic = await deployment.topic(replica_lag_time_max_ms=600_000)
    gateway = deployment.gateway()
    deployment.gated["c"].hold()
    one = asyncio.create_task(append(gateway, topic, b"one", acks="1"))
    every = await started(gateway, topic, b"all")

    assert await one == 0
    assert not every.done()
    deployment.gated["c"].release()

    assert await every == 1
    head = await deployment.head(topic)
    assert len({run.object_id for run in head.runs}) == 1


# A zone fails


@pytest.mark.parametrize("mode", REFUSALS)
@pytest.mark.parametrize("acks", ["1", "all"])
@pytest.mark.parametrize("name", ["a", "b", "c"])
async def test_a_zone_that_refuses_leaves_the_isr_with_that_commit(
    name: str, acks: str, mode: Mode
) -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = deployment.gateway()
    await append(gateway, topic, b"before")
    deployment.gated[name].mode = mode

    assert await append(gateway, topic, b"through it", acks=acks) == 1

    head = await until(deployment, topic, lambda head: name not in names_of(head))
    assert head.leader_epoch == 1
    assert names_of(head, head.runs[-1].zones) == "abc".replace(name, "")
    leader = replication.leader(head, 0)
    assert leader is not None
    assert head.zones[leader] == ("b" if name == "a" else "a")
    assert await deployment.read() == [b"before", b"through it"]
    await gateway.aclose()


@pytest.mark.parametrize("acks", ["1", "all"])
async def test_followers_that_fail_before_the_leader_is_done_leave_too(acks: str) -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    deployment.gated["c"].mode = "denied"
    deployment.gated["a"].hold()
    waiting = await started(deployment.gateway(), topic, b"v", acks=acks)

    deployment.gated["a"].release()
    await waiting

    assert await deployment.isr(topic) == "ab"
    assert await masks(deployment, topic) == ["ab"]


async def test_a_follower_that_fails_after_the_commit_leaves_the_isr() -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = deployment.gateway()
    deployment.gated["c"].hold()
    await append(gateway, topic, b"v", acks="1")

    deployment.gated["c"].mode = "denied"
    deployment.gated["c"].release()

    head = await until(deployment, topic, lambda head: names_of(head) == "ab")
    assert (head.leader_epoch, names_of(head, head.runs[0].zones)) == (1, "ab")
    await gateway.aclose()


@pytest.mark.parametrize("acks", ["1", "all"])
@pytest.mark.parametrize("name", ["a", "c"])
async def test_a_zone_that_hangs_is_given_up_once(name: str, acks: str) -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = deployment.modest()
    deployment.gated[name].hold()

    await append(gateway, topic, b"first", acks=acks)
    head = await until(deployment, topic, lambda head: name not in names_of(head))
    assert head.leader_epoch == 1
    # Those who come now have no limit to run into: they would wait for ever.
    await deployment.topics.alter("t", config={"replica.lag.time.max.ms": "600000"})
    topic = await deployment.topics.read("t")
    for number in range(3):
        await append(gateway, topic, b"%d" % number, acks=acks)

    assert await deployment.read() == [b"first", b"0", b"1", b"2"]
    await gateway.aclose()


async def test_those_who_gathered_behind_a_zone_that_hangs_do_not_wait_for_it_again() -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = deployment.gateway()
    deployment.gated["c"].hold()
    first = await started(gateway, topic, b"first")
    behind = [asyncio.create_task(append(gateway, topic, b"%d" % n)) for n in range(3)]

    await first
    tried = deployment.gated["c"].tried["seg"]
    await turns()

    assert [task.done() for task in behind] == [True] * 3
    assert deployment.gated["c"].tried["seg"] == tried + 1, "one is offered what is new"
    await gateway.aclose()


async def test_every_gateway_finds_out_for_itself_and_none_loses_anything() -> None:
    """The other one still believes that c is in sync, and writes where it was."""
    deployment = Replicated()
    topic = await deployment.topic()
    one, other = deployment.gateway(), deployment.gateway()
    await append(one, topic, b"0")
    await append(other, topic, b"1")
    deployment.gated["c"].mode = "denied"
    await append(one, topic, b"2")
    epoch = (await deployment.head(topic)).leader_epoch

    assert await append(other, topic, b"3") == 3

    head = await deployment.head(topic)
    assert (names_of(head), head.leader_epoch) == ("ab", epoch)
    assert await deployment.read() == [b"0", b"1", b"2", b"3"]


async def test_gateways_that_each_lose_another_zone_do_not_both_go_on() -> None:
    """One cannot reach c, the other not b: whoever commits second finds too few in sync."""
    deployment = Replicated()
    topic = await deployment.topic()
    one, other = deployment.gateway(), deployment.gateway()
    await append(one, topic, b"0")
    await append(other, topic, b"1")

    deployment.gated["c"].mode = "denied"
    await append(one, topic, b"2")
    deployment.gated["c"].mode = "ok"
    deployment.gated["b"].mode = "denied"

    with pytest.raises(NotEnoughReplicas):
        await append(other, topic, b"refused")
    assert await deployment.isr(topic) == "a"
    assert await deployment.read() == [b"0", b"1", b"2"]


# Too few are left


@pytest.mark.parametrize("mode", [*REFUSALS, "hanging"])
async def test_below_the_minimum_all_is_refused_one_is_not_and_reads_go_on(mode: Mode) -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = deployment.gateway()
    await append(gateway, topic, b"before")
    for name in "bc":
        deployment.gated[name].mode = mode

    with pytest.raises(NotEnoughReplicas):
        await append(gateway, topic, b"refused")

    assert await deployment.isr(topic) == "a", "so that the next one is refused at once"
    for other in (gateway, deployment.gateway()):
        tried = deployment.gated["a"].tried["seg"]
        with pytest.raises(NotEnoughReplicas):
            await append(other, topic, b"refused")
        assert deployment.gated["a"].tried["seg"] == tried
    assert await append(gateway, topic, b"one will do", acks="1") == 1
    assert await deployment.read() == [b"before", b"one will do"]
    await gateway.aclose()


async def test_a_request_for_one_zone_is_not_refused_for_what_came_along_with_it() -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = deployment.gateway()
    for name in "bc":
        deployment.gated[name].mode = "denied"

    deployment.gated["a"].hold()
    every = asyncio.create_task(append(gateway, topic, b"all"))
    one = await started(gateway, topic, b"one", acks="1")
    deployment.gated["a"].release()

    with pytest.raises(NotEnoughReplicas):
        await every
    assert await one == 0
    assert await deployment.read() == [b"one"]


async def test_if_every_zone_fails_nothing_is_written_and_nobody_leaves() -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = deployment.gateway()
    for name in "abc":
        deployment.gated[name].mode = "denied"

    for acks in ("1", "all"):
        with pytest.raises(StoreUnavailable):
            await append(gateway, topic, b"refused", acks=acks)
    for name in "abc":
        deployment.gated[name].mode = "ok"

    assert await deployment.isr(topic) == "abc"
    assert await append(gateway, topic, b"v") == 0


# Idempotent producers


@pytest.mark.parametrize("mode", [*REFUSALS, "hanging"])
async def test_a_batch_sent_again_after_a_failover_is_a_duplicate(mode: Mode) -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    one, other = deployment.gateway(), deployment.gateway()
    deployment.gated["a"].mode = mode

    sent = [numbered(7, sequence) for sequence in range(3)]
    for sequence, claims in enumerate(sent):
        assert await append(one, topic, b"%d" % sequence, claims=claims) == sequence
    for gateway in (one, other):
        for sequence, claims in enumerate(sent):
            assert await append(gateway, topic, b"%d" % sequence, claims=claims) == sequence

    assert await append(other, topic, b"3", claims=numbered(7, 3)) == 3
    assert await deployment.read() == [b"0", b"1", b"2", b"3"]
    await one.aclose()
    await other.aclose()


async def test_a_refused_batch_is_written_once_when_enough_are_back() -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = deployment.gateway()
    for name in "bc":
        deployment.gated[name].mode = "denied"
    for _ in range(2):
        with pytest.raises(NotEnoughReplicas):
            await append(gateway, topic, b"v", claims=numbered(7, 0))
    deployment.gated["b"].mode = "ok"
    await deployment.let_in(topic, "b")

    assert await append(gateway, topic, b"v", claims=numbered(7, 0)) == 0
    assert await append(gateway, topic, b"v", claims=numbered(7, 0)) == 0
    assert await deployment.read() == [b"v"]
