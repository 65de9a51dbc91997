"""What leaves the head for index objects, while zones fail and come back."""

import asyncio

import pytest

from service.log.gateway import Gateway
from storage.errors import NotEnoughReplicas
from storage.topics.topics import Topic
from storage.zones import zones
from tests.service.helpers.replicated import INDEX, RUNS_INLINE, Replicated, append, numbered
from tests.storage.helpers.failing_zones import Mode
from tests.storage.helpers.worlds import turns

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zones, "STRAGGLER_S_MAX", 0.1)


async def write(gateway: Gateway, topic: Topic, count: int, start: int = 0) -> list[bytes]:
    values = [b"%d" % (start + number) for number in range(count)]
    for value in values:
        await append(gateway, topic, value)
        await turns()
    return values


@pytest.mark.parametrize("mode", ["denied", "full", "hanging"])
async def test_heads_are_rolled_into_the_zones_that_are_left(mode: Mode) -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = deployment.small_headed()
    values = await write(gateway, topic, 10)

    deployment.gated["c"].mode = mode
    values += await write(gateway, topic, 30, start=10)

    head = await deployment.head(topic)
    assert await deployment.isr(topic) == "ab"
    assert head.root
    assert len(head.runs) <= 3 * RUNS_INLINE
    assert await deployment.read() == values
    deployment.gated["c"].mode = "ok"
    report = await deployment.fsck()
    assert report.is_ok, report.findings
    await gateway.aclose()


@pytest.mark.parametrize("how", ["refuses", "holds"])
async def test_a_zone_that_takes_records_but_not_the_index_leaves_and_holds_nobody_up(
    how: str,
) -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = deployment.small_headed()
    if how == "refuses":
        deployment.gated["c"].refused = INDEX
    else:
        deployment.gated["c"].hold(INDEX)

    async with asyncio.timeout(120):
        values = await write(gateway, topic, 60)

    assert await deployment.isr(topic) == "ab"
    assert (await deployment.head(topic)).root
    assert await deployment.read() == values
    assert (await deployment.fsck()).is_ok
    await gateway.aclose()


async def test_a_roll_that_a_zone_in_sync_does_not_hold_does_not_count() -> None:
    """The zone came in sync between the roll and the commit that would have named it."""
    deployment = Replicated()
    topic = await deployment.topic()
    gateway, other = deployment.small_headed(), deployment.gateway()
    deployment.gated["c"].mode = "denied"
    values = await write(gateway, topic, 2)
    deployment.gated["a"].hold(INDEX)
    values += await write(gateway, topic, RUNS_INLINE, start=2)
    assert not (await deployment.head(topic)).root, "it is on its way"

    deployment.gated["c"].mode = "ok"
    for run in (await deployment.head(topic)).runs:
        await deployment.copy(run.object_id, "a", "c")
    await deployment.let_in(topic, "c")
    deployment.gated["a"].release()
    values.append(b"by the other one")
    await append(other, topic, values[-1])
    values += await write(gateway, topic, 3 * RUNS_INLINE, start=100)

    assert await deployment.isr(topic) == "abc"
    assert (await deployment.head(topic)).root
    assert await deployment.read() == values
    report = await deployment.fsck()
    assert report.findings == []
    await gateway.aclose()


@pytest.mark.parametrize("how", ["refuses", "holds"])
async def test_windows_of_producers_leave_the_head_though_a_zone_does_not_take_them(
    how: str,
) -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = deployment.small_headed()
    if how == "refuses":
        deployment.gated["c"].refused = INDEX
    else:
        deployment.gated["c"].hold(INDEX)

    async with asyncio.timeout(120):
        for producer in range(1, 61):
            await append(gateway, topic, b"%d" % producer, claims=numbered(producer, 0))
            await turns()

    head = await deployment.head(topic)
    assert await deployment.isr(topic) == "ab"
    assert head.producer_pages
    assert (await deployment.fsck()).is_ok
    # What has left is found again, by whoever is asked.
    for asked in (gateway, deployment.gateway()):
        for producer in (1, 2, 30, 60):
            offset = await append(asked, topic, b"again", claims=numbered(producer, 0))
            assert offset == producer - 1
    await gateway.aclose()


async def test_below_the_minimum_nothing_is_rolled_away() -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = deployment.small_headed()
    values = await write(gateway, topic, 10)
    for name in "bc":
        deployment.gated[name].mode = "denied"
    with pytest.raises(NotEnoughReplicas):
        await append(gateway, topic, b"refused")
    for number in range(20):
        values.append(b"one %d" % number)
        await append(gateway, topic, values[-1], acks="1")
        await turns()

    assert await deployment.isr(topic) == "a"
    assert await deployment.read() == values
    await gateway.aclose()
