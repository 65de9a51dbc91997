"""Zones that come back while records are on their way: they get what they must hold."""

import pytest

from tests.service.helpers.replicated import Replicated, append, masks, names_of, started, until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("acks", ["1", "all"])
async def test_a_zone_that_came_in_sync_before_the_commit_gets_the_object(acks: str) -> None:
    deployment = Replicated()
    topic = await deployment.topic(replica_lag_time_max_ms=600_000)
    gateway = deployment.gateway()
    deployment.gated["c"].mode = "denied"
    await append(gateway, topic, b"first")
    [first] = (await deployment.head(topic)).runs
    deployment.gated["a"].hold()
    waiting = await started(gateway, topic, b"second", acks=acks)

    # It refused this one too, and is brought up to date by another process before the commit.
    deployment.gated["c"].mode = "ok"
    await deployment.copy(first.object_id, "a", "c")
    await deployment.let_in(topic, "c")
    deployment.gated["a"].release()
    await waiting

    head = await deployment.head(topic)
    assert [await deployment.holders(run.object_id) for run in head.runs] == ["abc", "abc"]


async def test_a_zone_that_came_in_sync_and_fails_at_once_is_not_waited_for() -> None:
    deployment = Replicated()
    topic = await deployment.topic(replica_lag_time_max_ms=600_000)
    gateway = deployment.gateway()
    deployment.gated["c"].mode = "denied"
    await append(gateway, topic, b"first")
    [first] = (await deployment.head(topic)).runs
    deployment.gated["a"].hold()
    waiting = await started(gateway, topic, b"second")
    await deployment.copy(first.object_id, "a", "c")
    await deployment.let_in(topic, "c")
    deployment.gated["a"].release()

    assert await waiting == 1

    assert await deployment.isr(topic) == "ab"
    assert await masks(deployment, topic) == ["abc", "ab"]


async def test_a_zone_that_catches_up_gets_what_is_new_but_nobody_waits_for_it() -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = deployment.gateway()
    deployment.gated["c"].mode = "denied"
    await append(gateway, topic, b"0")
    deployment.gated["c"].mode = "ok"
    deployment.gated["c"].hold()

    assert await append(gateway, topic, b"1") == 1
    assert await masks(deployment, topic) == ["ab", "ab"]
    deployment.gated["c"].release()

    head = await until(deployment, topic, lambda h: names_of(h, h.runs[1].zones) == "abc")
    assert names_of(head) == "ab", "it still lacks the first"
    await gateway.aclose()


async def test_a_gateway_that_slept_before_its_commit_looks_what_is_left() -> None:
    """Meanwhile a zone that had the object was emptied, and is in sync again."""
    deployment = Replicated()
    topic = await deployment.topic(replica_lag_time_max_ms=600_000)
    controller = deployment.controller(controller_scan_s=1)
    await deployment.tick(controller, times=2)
    deployment.gated["a"].hold(["seg"])
    waiting = await started(deployment.gateway(), topic, b"v")

    await deployment.gated["c"].wipe()
    await deployment.tick(controller, times=10)
    assert await deployment.isr(topic) == "abc"
    deployment.gated["a"].release()

    assert await waiting == 0
    assert (await deployment.fsck()).findings == []
    assert await deployment.isr(topic) == "abc"
