"""The controller verifies zones in sync: at a limited rate, across restarts, with a report."""

import logging
from collections.abc import Mapping, Sequence

import pytest

from service.controller import verification
from service.controller.controller import Controller
from service.controller.verification import LANE_ATTEMPTS_MAX, SAVED_MS, VerificationItem
from storage import keys
from storage.stores.metadata import Op, Put
from tests.service.helpers.deployments import Deployment
from tests.storage.helpers.faults import Fault

pytestmark = pytest.mark.anyio

LANES = 4
DAY_S = 86_400


async def deployed() -> Deployment:
    deployment = Deployment()
    config = {"lane.partitions": 1, "min.insync.replicas": 1}
    await deployment.topics.create("t", partitions=LANES, replication_factor=3, config=config)
    gateway = deployment.gateway(table_batch_bytes_max=0)
    for partition in range(LANES):
        await deployment.produce(gateway, b"one", partition=partition)
    return deployment


async def item_of(deployment: Deployment) -> VerificationItem:
    found = await verification.current(deployment.metadata)
    assert found is not None
    return found


async def segments(deployment: Deployment, zone: str) -> set[str]:
    return {key for key in await deployment.zones[zone].keys() if key.endswith(".seg")}


async def lose_one(deployment: Deployment, zone: str = "b") -> str:
    lost = sorted(await segments(deployment, zone))[0]
    await deployment.zones[zone].inner.delete([lost])
    return lost


async def test_an_object_missing_in_a_zone_in_sync_is_reported_and_copied(
    caplog: pytest.LogCaptureFixture,
) -> None:
    deployment = await deployed()
    lost = await lose_one(deployment)

    with caplog.at_level(logging.WARNING):
        await deployment.tick(deployment.controller())

    assert lost in await segments(deployment, "b")
    assert [record for record in caplog.records if lost in record.getMessage()]
    item = await item_of(deployment)
    assert (item.repaired, item.lost, item.objects, item.skipped) == (1, 0, LANES, 0)
    assert item.finished_ms
    assert (await deployment.fsck()).findings == []


async def test_an_object_missing_in_every_zone_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    deployment = await deployed()
    lost = await lose_one(deployment, "a")
    for name in "bc":
        await deployment.zones[name].inner.delete([lost])

    with caplog.at_level(logging.ERROR):
        await deployment.tick(deployment.controller())

    assert (await item_of(deployment)).lost_keys == [lost]
    assert [record for record in caplog.records if lost in record.getMessage()]


async def test_a_pass_begins_once_a_day() -> None:
    deployment = await deployed()
    controller = deployment.controller()
    await deployment.tick(controller)
    first = await item_of(deployment)
    lost = await lose_one(deployment)

    await deployment.tick(controller, times=3)
    assert await item_of(deployment) == first
    assert lost not in await segments(deployment, "b")

    deployment.clock.now_s += DAY_S
    await deployment.tick(controller)
    assert lost in await segments(deployment, "b")
    assert (await item_of(deployment)).began_ms > first.began_ms
    assert (await item_of(deployment)).repaired == 1


async def test_verification_can_be_switched_off() -> None:
    deployment = await deployed()
    await lose_one(deployment)

    await deployment.tick(deployment.controller(controller_verify_every_s=0), times=3)

    assert await verification.current(deployment.metadata) is None


async def until_after(deployment: Deployment, controller: Controller) -> VerificationItem:
    """Let time pass until some lanes are verified, but not all."""
    for _ in range(10 * LANES):
        deployment.clock.now_s += SAVED_MS / 1000
        await deployment.tick(controller)
        item = await item_of(deployment)
        if item.after and not item.finished_ms:
            return item
    pytest.fail("no pass was ever half done")


async def test_the_next_controller_continues_the_pass() -> None:
    deployment = await deployed()
    slow = deployment.controller("one", controller_verify_calls=1)
    half = await until_after(deployment, slow)
    await slow.leave()

    next_one = deployment.controller("two", controller_verify_calls=1)
    for _ in range(10 * LANES):
        await deployment.tick(next_one)
        if (await item_of(deployment)).finished_ms:
            break

    item = await item_of(deployment)
    assert item.began_ms == half.began_ms
    assert item.finished_ms
    assert item.objects == LANES


async def test_a_pass_waits_for_a_failing_zone() -> None:
    deployment = await deployed()
    controller = deployment.controller(controller_probe_failures_max=100)
    lost = await lose_one(deployment)
    deployment.zones["c"].mode = "denied"

    await deployment.tick(controller, times=3)
    assert (await item_of(deployment)).objects == 0

    deployment.zones["c"].mode = "ok"
    await deployment.tick(controller)
    item = await item_of(deployment)
    assert (item.objects, item.passes, item.repaired) == (LANES, 1, 1)
    assert lost in await segments(deployment, "b")


async def test_a_pass_skips_lanes_after_too_many_attempts() -> None:
    deployment = await deployed()
    controller = deployment.controller(controller_probe_failures_max=10**6)
    deployment.zones["c"].mode = "denied"

    await deployment.tick(controller, times=LANES * LANE_ATTEMPTS_MAX + 1)

    item = await item_of(deployment)
    assert (item.skipped, item.objects, item.passes) == (LANES, 0, 1)


@pytest.mark.parametrize("fault", ["refused", "request lost", "reply lost"])
async def test_a_step_that_could_not_be_saved_is_repeated(fault: Fault) -> None:
    deployment = await deployed()
    controller = deployment.controller()
    lost = await lose_one(deployment)
    transact, fails = deployment.metadata.transact, 2

    async def failing(ops: Sequence[Op]) -> Mapping[str, str]:
        nonlocal fails
        if fails and any(op.key == keys.verification() for op in ops):
            fails -= 1
            deployment.metadata.faults = [fault]
        return await transact(ops)

    deployment.metadata.transact = failing  # type: ignore[method-assign]
    await deployment.tick(controller, times=4)

    assert fails == 0
    assert lost in await segments(deployment, "b")
    item = await item_of(deployment)
    assert item.finished_ms
    assert (await deployment.fsck()).findings == []


@pytest.mark.parametrize("fault", ["refused", "request lost", "reply lost"])
async def test_a_pass_after_one_whose_end_was_not_saved_verifies_every_lane(
    fault: Fault,
) -> None:
    deployment = await deployed()
    controller = deployment.controller()
    transact, fails = deployment.metadata.transact, 1

    async def failing(ops: Sequence[Op]) -> Mapping[str, str]:
        nonlocal fails
        puts = [op for op in ops if isinstance(op, Put) and op.key == keys.verification()]
        if fails and puts and verification.decode(puts[0].value).finished_ms:
            fails -= 1
            deployment.metadata.faults = [fault]
        return await transact(ops)

    deployment.metadata.transact = failing  # type: ignore[method-assign]
    await deployment.tick(controller, times=3)
    assert fails == 0
    lost = await lose_one(deployment)

    deployment.clock.now_s += DAY_S
    await deployment.tick(controller)

    assert lost in await segments(deployment, "b")
    assert (await item_of(deployment)).objects == LANES


async def test_a_pass_with_a_start_time_in_the_future_does_not_block_the_next() -> None:
    deployment = await deployed()
    now_ms = deployment.clock.now_ms()
    future = VerificationItem(began_ms=now_ms + 3 * DAY_S * 1000, finished_ms=now_ms + 1)
    put = Put(keys.verification(), verification.encode(future), None)
    await deployment.metadata.transact([put])
    lost = await lose_one(deployment)

    await deployment.tick(deployment.controller())

    assert lost in await segments(deployment, "b")
