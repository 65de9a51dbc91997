"""The list of live gateways: lost beats, and gateways that die without leaving."""

import pytest

from service.controller.live_gateways import MISSED_BEATS_MAX, LiveGateways
from service.settings import Settings
from service.world.clock import World, real_world
from storage.errors import OutcomeUnknown
from storage.stores.memory import MemoryMetadata
from tests.storage.helpers.faults import FaultyMetadata
from tests.storage.helpers.standing_still import StandingStill

pytestmark = pytest.mark.anyio

SETTINGS = Settings(gateway_heartbeat_s=10)


def new_metadata() -> FaultyMetadata:
    return FaultyMetadata(MemoryMetadata(real_world().new_version))


def at(now_ms: list[int], wrong_by_ms: int = 0) -> World:
    real = real_world()
    return World(
        now_ms=lambda: now_ms[0] + wrong_by_ms,
        monotonic_s=lambda: now_ms[0] / 1000,
        sleep=real.sleep,
        random=real.random,
        random_bytes=real.random_bytes,
    )


@pytest.mark.parametrize("fault", ["reply lost", "request lost"])
async def test_the_beat_after_an_unanswered_one_is_recorded(fault: str) -> None:
    metadata, now_ms = new_metadata(), [1_000]
    registry = LiveGateways(SETTINGS, metadata, at(now_ms))
    metadata.faults.append(fault)

    with pytest.raises(OutcomeUnknown):
        await registry.beat()
    now_ms[0] = 2_000
    await registry.beat()

    [item] = await registry.gateways()
    assert (item.id, item.beat_ms) == (registry.gateway_id, 2_000)


async def test_a_gateway_that_dies_without_leaving_is_soon_not_listed() -> None:
    metadata, now_ms = new_metadata(), [0]
    dead, alive = (LiveGateways(SETTINGS, metadata, at(now_ms)) for _ in range(2))
    await dead.beat()

    now_ms[0] = MISSED_BEATS_MAX * 10_000 + 1
    await alive.beat()

    assert [item.id for item in await alive.gateways()] == [alive.gateway_id]


async def test_a_gateway_paused_during_the_listing_does_not_consider_all_others_dead() -> None:
    now_ms = [0]
    metadata = StandingStill(MemoryMetadata(real_world().new_version))
    ours, theirs = (LiveGateways(SETTINGS, metadata, at(now_ms)) for _ in range(2))
    await theirs.beat()

    async def stand_still() -> None:
        now_ms[0] = MISSED_BEATS_MAX * 10_000 + 1

    metadata.meanwhile = stand_still

    assert [item.id for item in await ours.gateways()] == [theirs.gateway_id]


async def test_a_gateway_that_leaves_is_not_listed() -> None:
    metadata = new_metadata()
    registry = LiveGateways(SETTINGS, metadata, at([0]))
    await registry.beat()

    await registry.leave()

    assert await registry.gateways() == []


DAY_MS = 86_400_000


@pytest.mark.parametrize("wrong_by_ms", [-DAY_MS, DAY_MS])
async def test_a_gateway_with_a_wrong_clock_is_listed_until_it_dies(wrong_by_ms: int) -> None:
    metadata, now_ms = new_metadata(), [2 * DAY_MS]
    wrong = LiveGateways(SETTINGS, metadata, at(now_ms, wrong_by_ms))
    right = LiveGateways(SETTINGS, metadata, at(now_ms))

    async def shown(registry: LiveGateways) -> set[str]:
        return {item.id for item in await registry.gateways()}

    for _ in range(2):
        for registry in (wrong, right):
            await registry.beat()
            await registry.gateways()
        now_ms[0] += 10_000
    assert await shown(wrong) == await shown(right) == {wrong.gateway_id, right.gateway_id}

    for _ in range(MISSED_BEATS_MAX):
        await right.beat()
        now_ms[0] += 10_001
    assert await shown(right) == {right.gateway_id}
    await wrong.beat()
    assert await shown(right) == {wrong.gateway_id, right.gateway_id}
