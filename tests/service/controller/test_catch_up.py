"""Bringing zones back in sync: the controller keeps its lease, and reports what blocks it."""

import asyncio
import logging
import time

import msgspec
import pytest

from service.controller.catch_up import PROGRESS_LOG_S
from service.controller.leading import while_leading
from service.controller.live_gateways import LiveGateways
from service.log.delete_records import delete_records
from service.settings import Settings
from service.world.clock import real_world
from storage import keys, leases
from storage.head import head as heads
from storage.head import replication
from storage.head.changes import change_head
from storage.head.head import Head
from storage.head.replication import VerifiedObjects
from storage.leases import Lease, LeaseLost
from storage.stores.metadata import Put
from storage.topics.topics import Topic
from storage.zones.health import FAILURES_MAX
from storage.zones.items import ZoneItem
from storage.zones.zones import Zones
from tests.service.helpers.deployments import INTERVAL_S, Deployment
from tests.service.helpers.replicated import Replicated, append
from tests.storage.helpers.replicated import ReplicatedLane
from tests.storage.helpers.worlds import new_metadata

pytestmark = pytest.mark.anyio


class Copying:
    """A controller that copies until it is released."""

    def __init__(self) -> None:
        self.metadata = new_metadata()
        world = real_world()
        # So short that the lease is renewed many times during the test.
        self.lease = Lease(
            self.metadata,
            "controller",
            holder="us",
            lease_s=0.03,
            monotonic_s=time.monotonic,
            now_ms=world.now_ms,
        )
        self.copied = asyncio.Event()
        self.was_stopped = False

    async def copy(self) -> bool:
        try:
            await self.copied.wait()
        except asyncio.CancelledError:
            self.was_stopped = True
            raise
        return True

    async def beats(self) -> int:
        item = await leases.current(self.metadata, "controller")
        return 0 if item is None else item.beats


async def test_the_controller_keeps_its_lease_while_it_copies_a_lane() -> None:
    copying = Copying()
    assert await copying.lease.keep()
    work = asyncio.create_task(while_leading(copying.lease, copying.copy()))

    before = await copying.beats()
    while await copying.beats() < before + 3:
        await asyncio.sleep(0)

    copying.copied.set()
    assert await work


async def test_a_controller_that_lost_the_lease_stops_copying() -> None:
    copying = Copying()
    assert await copying.lease.keep()
    work = asyncio.create_task(while_leading(copying.lease, copying.copy()))
    await asyncio.sleep(0)

    stored = await copying.metadata.get(copying.lease.key)
    assert stored is not None
    theirs = leases.encode(leases.LeaseItem("them", 2))
    await copying.metadata.transact([Put(copying.lease.key, theirs, stored.version)])

    with pytest.raises(LeaseLost):
        await work
    assert copying.was_stopped


CALL_S = 0.1
LANES = 3


async def without_b(objects: int) -> Deployment:
    """Return a deployment whose zone b is out of sync, and lacks objects of the first lane."""
    deployment = Deployment()
    config = {"lane.partitions": 1, "min.insync.replicas": 1}
    await deployment.topics.create("t", partitions=LANES, replication_factor=3, config=config)
    gateway, b = deployment.gateway(), deployment.zones["b"]
    b.mode = "denied"
    for number in range(objects):
        await deployment.produce(gateway, b"%d" % number)
    for partition in range(1, LANES):
        await deployment.produce(gateway, b"one", partition=partition)
    assert await deployment.in_sync() == ["ac"] * LANES
    b.mode = "ok"
    return deployment


async def test_a_zone_returns_although_it_lacks_deleted_records() -> None:
    deployment = await without_b(objects=3)
    await delete_records(deployment.gateway(), "t", {0: None})
    controller = deployment.controller(controller_scan_s=1)

    await deployment.tick(controller, times=5)

    assert await deployment.in_sync() == ["abc"] * LANES
    assert (await deployment.fsck()).is_ok


async def test_zones_in_sync_do_not_wait_for_deleted_records() -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = deployment.gateway()
    for name in "bc":
        deployment.gated[name].hold()
    await append(gateway, topic, b"0", acks="1")
    await gateway.batcher.aclose()
    await gateway.aclose()
    await delete_records(deployment.gateway(), "t", {0: None})
    [head] = await deployment.heads()
    assert replication.incomplete(head)

    await deployment.tick(deployment.controller(controller_scan_s=1), times=4)

    [head] = await deployment.heads()
    assert not replication.incomplete(head)


def in_parts(head: Head, first: int, second: int) -> Head:
    """Return the head as if its one object were in two runs with these zones."""
    [run] = head.runs
    [piece] = run.slices
    other = msgspec.structs.replace(piece, partition=1)
    runs = (
        msgspec.structs.replace(run, slices=(other,), zones=first),
        msgspec.structs.replace(run, zones=second),
    )
    return msgspec.structs.replace(
        head, runs=runs, run_count=2, next_offsets=(1, 1), commits=head.commits + 1
    )


async def with_one_object() -> tuple[Replicated, Topic]:
    deployment = Replicated()
    topic = await deployment.topic(partitions=2)
    gateway = deployment.gateway()
    await append(gateway, topic, b"0")
    await gateway.aclose()
    return deployment, topic


async def test_an_object_committed_in_two_runs_is_in_the_zones_of_either() -> None:
    deployment, topic = await with_one_object()

    head = await deployment.change(topic, lambda head: in_parts(head, 0b010, 0b111))

    assert not replication.incomplete(head)
    assert replication.complete_runs(head) == 2


async def test_a_zone_returns_although_only_one_run_of_an_object_names_it() -> None:
    deployment, topic = await with_one_object()
    head = await deployment.change(
        topic, lambda head: replication.without_zones(in_parts(head, 0b101, 0b111), 0b010)
    )
    assert head.isr == 0b101

    await deployment.tick(deployment.controller(controller_scan_s=1), times=4)

    assert (await deployment.head(topic)).isr == 0b111


@pytest.mark.parametrize("rolled", [False, True])
async def test_a_zone_that_enters_the_isr_gets_objects_that_only_the_returning_zone_has(
    rolled: bool,
) -> None:
    lane = ReplicatedLane()
    await lane.append(b"only in b", zones="b")
    lane.head = replication.without_zones(lane.head, 0b110)
    if rolled:
        await lane.roll()
    deployment = Deployment()
    deployment.zones = lane.zones
    key = keys.head(lane.head.topic_id, lane.head.lane)
    await deployment.metadata.transact([Put(key, heads.encode(lane.head), None)])
    get = lane.zones["b"].inner.get

    class Everything:
        def __contains__(self, _: object) -> bool:
            return True

    async def let_c_in(asked: str) -> bytes:
        """Let a change by an older attempt arrive while b is being compared."""
        if asked.endswith(".seg"):
            lane.zones["b"].inner.get = get  # type: ignore[method-assign]
            held = VerifiedObjects(Everything(), frozenset(), out_of_reach=Everything())
            await change_head(deployment.metadata, key, lambda h: replication.with_zone(h, 2, held))
        return await get(asked)

    lane.zones["b"].inner.get = let_c_in  # type: ignore[method-assign]
    catch_up = deployment.controller()._catch_up
    assert await catch_up._lease.keep()

    assert await catch_up.lane(key, ZoneItem(name="b"), until_s=1e9)

    stored = await deployment.metadata.get(key)
    assert stored is not None
    assert heads.decode(stored.value).isr == 0b111
    [segment] = [key for key in await lane.zones["b"].keys() if key.endswith(".seg")]
    assert segment in await lane.zones["c"].keys()


async def test_a_slow_lane_does_not_delay_the_others() -> None:
    deployment = await without_b(objects=200)
    size = deployment.zones["b"].inner.size

    async def slow_size(key: str) -> int:
        await deployment.clock.sleep(CALL_S)
        return await size(key)

    deployment.zones["b"].inner.size = slow_size  # type: ignore[method-assign]
    # Scanned before every step: that must not restart the order of lanes.
    controller = deployment.controller(controller_step_s=1, controller_scan_s=1)

    await deployment.tick(controller, times=2)
    assert await deployment.in_sync() == ["ac", "abc", "abc"]
    await deployment.tick(controller, times=20)
    assert await deployment.in_sync() == ["abc"] * LANES
    assert (await deployment.fsck()).findings == []


async def test_the_reason_why_a_zone_cannot_catch_up_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    deployment = await without_b(objects=1)
    controller = deployment.controller()
    zones = Zones(deployment.zones.failing)
    registry = LiveGateways(Settings(), deployment.metadata, deployment.world(), zones)
    for _ in range(FAILURES_MAX):
        zones.health["b"].failed("no route to host", asyncio.get_running_loop().time())

    with caplog.at_level(logging.INFO, "riacho.controller"):
        for _ in range(int(PROGRESS_LOG_S / INTERVAL_S) + 1):
            await registry.beat()
            await deployment.tick(controller)

    resync = (await deployment.zone("b")).resync
    assert resync is not None
    assert (resync.lanes_behind, resync.objects_checked) == (LANES, 0)
    assert "a gateway cannot reach it" in resync.error
    [told] = [each for each in caplog.records if "does not get on" in each.getMessage()]
    assert told.levelno == logging.WARNING
    assert resync.error in told.getMessage()
