"""What only the leader was given: it may be out of reach for a while, and is never skipped."""

import pytest

from service.log.gateway import Gateway, Position, Wait
from storage.errors import ObjectMissing, StoreUnavailable
from storage.reading.reader import Budget
from storage.topics.topics import Topic
from tests.service.helpers.replicated import Replicated, append
from tests.storage.helpers.worlds import turns

pytestmark = pytest.mark.anyio

ALL = Budget(records_max=10**6, bytes_max=10**9)


async def with_lost_record(deployment: Replicated) -> tuple[Topic, Gateway]:
    """Write three records, the second of which only a has, which has failed by now."""
    topic = await deployment.topic()
    gateway = deployment.gateway()
    await append(gateway, topic, b"0")
    for name in "bc":
        deployment.gated[name].hold()
    await append(gateway, topic, b"1", acks="1")
    # The gateway dies before the others have it.
    await gateway.batcher.aclose()
    await gateway.aclose()
    deployment.gated["a"].mode = "denied"
    for name in "bc":
        deployment.gated[name].release()
    await turns()
    other = deployment.gateway()
    assert await append(other, topic, b"2") == 2
    assert await deployment.isr(topic) == "bc"
    return topic, other


async def fetch(gateway: Gateway, offset: int) -> list[bytes]:
    found = await gateway.fetch("t", 0, Position(offset=offset), ALL, Wait())
    return [value for _, b in found.fetched.batches(10**9) for value in b.column(2).to_pylist()]


async def test_it_is_unavailable_while_its_zone_is_away_and_not_skipped() -> None:
    deployment = Replicated()
    _, gateway = await with_lost_record(deployment)

    for reader in (gateway, deployment.gateway()):
        # What comes before it is read, and so is what comes after it, if asked for.
        assert await fetch(reader, 0) == [b"0"]
        with pytest.raises(StoreUnavailable):
            await fetch(reader, 1)
        assert await fetch(reader, 2) == [b"2"]
    await gateway.aclose()


async def test_it_comes_back_with_its_zone_and_then_everybody_gets_it() -> None:
    deployment = Replicated()
    topic, gateway = await with_lost_record(deployment)
    controller = deployment.controller(controller_scan_s=1)
    await deployment.tick(controller, times=3)
    deployment.gated["a"].mode = "ok"

    assert await deployment.read() == [b"0", b"1", b"2"]
    await deployment.tick(controller, times=8)

    assert await deployment.isr(topic) == "abc"
    assert (await deployment.fsck()).findings == []
    deployment.gated["a"].mode = "denied"
    assert await deployment.read() == [b"0", b"1", b"2"]
    await gateway.aclose()


async def test_it_is_lost_if_its_zone_has_lost_it_and_that_is_reported() -> None:
    deployment = Replicated()
    topic, gateway = await with_lost_record(deployment)
    controller = deployment.controller(controller_scan_s=1)
    await deployment.tick(controller, times=3)
    await deployment.gated["a"].wipe()
    deployment.gated["a"].mode = "ok"

    with pytest.raises(ObjectMissing):
        await fetch(deployment.gateway(), 1)
    assert await append(gateway, topic, b"3") == 3
    assert await fetch(deployment.gateway(), 2) == [b"2", b"3"]
    assert not (await deployment.fsck()).is_ok
    await gateway.aclose()


@pytest.mark.parametrize("name", ["b", "c"])
async def test_while_a_follower_is_slow_the_other_one_may_take_over(name: str) -> None:
    deployment = Replicated()
    topic = await deployment.topic(replica_lag_time_max_ms=600_000)
    gateway = deployment.gateway()
    deployment.gated[name].hold()
    await append(gateway, topic, b"0", acks="1")
    await turns()

    deployment.gated["a"].mode = "denied"

    assert await deployment.read() == [b"0"]
    await gateway.aclose()
