"""The controller: zones that fail and heal, and controllers that fail themselves."""

from pathlib import Path

import msgspec
import pytest

from service.controller.catch_up import SETTLE_S
from service.controller.controller import Controller
from service.controller.live_gateways import LiveGateways
from service.controller.survey import Survey
from service.settings import Settings
from service.world.clock import real_world
from storage import keys, leases
from storage.errors import ObjectMissing, RiachoError, StoreUnavailable
from storage.head.changes import change_head
from storage.head.head import Head
from tests.service.helpers.deployments import INTERVAL_S, Deployment
from tests.storage.helpers.failing_zones import Mode
from tests.storage.helpers.faults import random_faults

pytestmark = pytest.mark.anyio

FAILURES: list[Mode] = ["denied", "full", "hanging"]


@pytest.fixture(params=["memory", "directory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "directory" else None


async def with_topic(
    root: Path | None = None, *, names: str = "abc", factor: int = 3, **config: object
) -> Deployment:
    """Return a deployment with a topic of three lanes that has some records."""
    deployment = Deployment(names, root)
    await deployment.topics.create(
        "t",
        partitions=3,
        replication_factor=factor,
        config={"lane.partitions": 1, "min.insync.replicas": 1, **config},
    )
    gateway = deployment.gateway()
    for partition in range(3):
        await deployment.produce(gateway, b"first", partition=partition)
    return deployment


@pytest.mark.parametrize("mode", FAILURES)
async def test_a_zone_leaves_the_isr_when_it_fails_and_returns_when_it_recovers(
    mode: Mode, root: Path | None
) -> None:
    if mode == "hanging" and root is not None:
        pytest.skip("how long to wait for a disk is not for a test to say")
    deployment = await with_topic(root)
    controller = deployment.controller()
    await deployment.tick(controller)
    before = await deployment.heads()

    deployment.zones["b"].mode = mode
    await deployment.tick(controller)
    assert await deployment.in_sync() == ["abc"] * 3, "one failed probe is not enough"
    await deployment.tick(controller)
    assert await deployment.in_sync() == ["ac"] * 3
    assert (await deployment.zone("b")).state == "offline"
    for old, new in zip(before, await deployment.heads(), strict=True):
        assert new.leader_epoch == old.leader_epoch + 1

    gateway = deployment.gateway()
    for number in range(5):
        for partition in range(3):
            await deployment.produce(gateway, b"while b is away %d" % number, partition=partition)
    await deployment.check_all_is_read()

    deployment.zones["b"].mode = "ok"
    await deployment.tick(controller, times=3)
    assert await deployment.in_sync() == ["abc"] * 3
    item = await deployment.zone("b")
    assert (item.state, item.is_whole, item.resync) == ("online", True, None)
    assert (await deployment.fsck()).findings == []
    deployment.zones["a"].mode = deployment.zones["c"].mode = "denied"
    await deployment.check_all_is_read()


async def test_a_wiped_zone_leaves_the_isr_at_once_and_gets_every_object_again(
    root: Path | None,
) -> None:
    deployment = await with_topic(root)
    controller = deployment.controller()
    await deployment.tick(controller)
    marker = (await deployment.zone("c")).marker

    await deployment.zones["c"].wipe()
    await deployment.tick(controller)
    assert await deployment.in_sync() == ["ab"] * 3
    item = await deployment.zone("c")
    assert (item.state, item.is_whole) == ("online", False)
    assert item.marker not in ("", marker)

    await deployment.tick(controller, times=int(SETTLE_S / INTERVAL_S) + 2)
    assert await deployment.in_sync() == ["abc"] * 3
    assert (await deployment.fsck()).findings == []
    item = await deployment.zone("c")
    assert (item.state, item.is_whole, item.resync) == ("online", True, None)
    deployment.zones["a"].mode = deployment.zones["b"].mode = "denied"
    await deployment.check_all_is_read()


async def test_a_zone_that_is_wiped_during_its_resync_starts_again() -> None:
    deployment = await with_topic()
    controller = deployment.controller()
    await deployment.tick(controller)
    for _ in range(3):
        await deployment.zones["c"].wipe()
        await deployment.tick(controller, times=2)
        assert await deployment.in_sync() == ["ab"] * 3

    await deployment.tick(controller, times=int(SETTLE_S / INTERVAL_S) + 2)

    assert await deployment.in_sync() == ["abc"] * 3
    assert (await deployment.fsck()).findings == []


async def test_a_zone_that_returns_empty_is_treated_as_wiped() -> None:
    deployment = await with_topic()
    controller = deployment.controller()
    await deployment.tick(controller)
    deployment.zones["c"].mode = "denied"
    await deployment.tick(controller, times=3)
    await deployment.zones["c"].wipe()
    deployment.zones["c"].mode = "ok"

    await deployment.tick(controller, times=3)
    assert await deployment.in_sync() == ["ab"] * 3
    await deployment.tick(controller, times=int(SETTLE_S / INTERVAL_S) + 2)

    assert await deployment.in_sync() == ["abc"] * 3
    assert (await deployment.fsck()).findings == []


async def test_a_zone_whose_store_belongs_to_another_zone_is_offline() -> None:
    deployment = await with_topic()
    controller = deployment.controller()
    await deployment.tick(controller)
    marker = keys.zone_marker((await deployment.zone("b")).marker)

    await deployment.zones["b"].replace(marker, b"a")
    await deployment.tick(controller, times=2)

    assert (await deployment.zone("b")).state == "offline"
    assert "another zone" in (await deployment.zone("b")).reason


async def test_the_last_zones_in_sync_stay_in_the_isr() -> None:
    deployment = await with_topic()
    controller = deployment.controller()
    await deployment.tick(controller)
    deployment.zones["a"].mode = "denied"
    await deployment.tick(controller, times=2)
    gateway = deployment.gateway()
    for partition in range(3):
        await deployment.produce(gateway, b"while a is away", partition=partition)
    deployment.zones["b"].mode = deployment.zones["c"].mode = "denied"
    await deployment.tick(controller, times=3)

    assert await deployment.in_sync() == ["bc"] * 3
    counts = await Survey(deployment.metadata, deployment.topics).counts()
    assert (counts.offline, counts.under_replicated, counts.partitions) == (3, 3, 3)
    # One of them is enough, but not the zone that left the ISR earlier.
    deployment.zones["a"].mode = "ok"
    await deployment.tick(controller, times=3)
    assert await deployment.in_sync() == ["bc"] * 3
    deployment.zones["c"].mode = "ok"
    await deployment.tick(controller, times=3)
    assert await deployment.in_sync() == ["ac"] * 3
    await deployment.check_all_is_read()


async def test_an_unclean_election_happens_only_if_allowed() -> None:
    for allowed, in_sync in (("false", "a"), ("true", "b")):
        deployment = await with_topic(
            names="ab", factor=2, **{"unclean.leader.election.enable": allowed}
        )
        controller = deployment.controller()
        await deployment.tick(controller)
        deployment.zones["b"].mode = "denied"
        await deployment.tick(controller, times=2)
        gateway = deployment.gateway()
        for partition in range(3):
            await deployment.produce(gateway, b"only in a", partition=partition)
        deployment.zones["b"].mode = "ok"
        deployment.zones["a"].mode = "denied"
        await deployment.tick(controller, times=4)

        assert await deployment.in_sync() == [in_sync] * 3
        with pytest.raises(StoreUnavailable):
            await deployment.read()
        # Records that were out of reach return with their zone.
        deployment.zones["a"].mode = "ok"
        await deployment.tick(controller, times=5)
        assert await deployment.in_sync() == ["ab"] * 3
        await deployment.check_all_is_read()


async def test_the_only_zone_in_sync_is_restored_from_the_others_after_a_wipe() -> None:
    deployment = await with_topic(names="ab", factor=2)
    controller = deployment.controller()
    await deployment.tick(controller)
    deployment.zones["b"].mode = "denied"
    await deployment.tick(controller, times=2)
    assert await deployment.in_sync() == ["a"] * 3

    await deployment.zones["a"].wipe()
    deployment.zones["b"].mode = "ok"
    await deployment.tick(controller, times=10)

    assert await deployment.in_sync() == ["ab"] * 3
    assert (await deployment.fsck()).findings == []
    await deployment.check_all_is_read()


async def test_replicas_are_moved_while_records_are_written() -> None:
    deployment = await with_topic(names="abcd", factor=2)
    controller = deployment.controller()
    await deployment.tick(controller)
    gateway = deployment.gateway()

    await deployment.topics.alter("t", replicas=["d", "b"])
    assert all(
        len(head.replicas) > 2 or set(head.zones) == {"b", "d"} for head in await deployment.heads()
    )
    for _ in range(6):
        await deployment.tick(controller)
        for partition in range(3):
            await deployment.produce(gateway, b"meanwhile", partition=partition)

    assert await deployment.in_sync() == ["bd"] * 3
    assert all(len(head.replicas) == 2 for head in await deployment.heads())
    assert (await deployment.fsck()).findings == []
    deployment.zones["a"].mode = deployment.zones["c"].mode = "denied"
    await deployment.check_all_is_read()


async def test_an_interrupted_raise_of_the_replication_factor_is_completed() -> None:
    deployment = await with_topic(factor=1)
    controller = deployment.controller()
    # The item has factor three, but the process that altered it died before it changed the heads.
    deployment.metadata.faults = ["none", "refused", "refused"]
    with pytest.raises(RiachoError):
        await deployment.topics.alter("t", replication_factor=3)

    await deployment.tick(controller, times=4)

    assert await deployment.in_sync() == ["abc"] * 3
    assert (await deployment.fsck()).findings == []


async def test_a_zone_that_a_gateway_cannot_reach_stays_out_of_the_isr() -> None:
    deployment = await with_topic()
    controller = deployment.controller()
    deployment.zones["b"].mode = "denied"
    await deployment.tick(controller, times=3)
    gateway = deployment.gateway()
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await gateway.zones.put("0/x", [b""], "b")
    registry = LiveGateways(Settings(), deployment.metadata, deployment.world(), gateway.zones)
    deployment.zones["b"].mode = "ok"
    for _ in range(4):
        await registry.beat()
        await deployment.tick(controller)
    assert await deployment.in_sync() == ["ac"] * 3

    await gateway.zones.put("0/x", [b""], "b")
    await registry.beat()
    await deployment.tick(controller, times=2)
    assert await deployment.in_sync() == ["abc"] * 3


# Controllers


async def lease_holder(deployment: Deployment) -> str | None:
    item = await leases.current(deployment.metadata, "controller")
    return None if item is None else item.holder


async def test_only_one_of_two_controllers_works() -> None:
    deployment = await with_topic()
    one, two = deployment.controller("one"), deployment.controller("two")

    assert await deployment.tick(one, two, times=5) == [True, False]
    assert await deployment.tick(two, times=5) == [True]
    assert await deployment.tick(one, two) == [False, True]
    assert await lease_holder(deployment) == "two"
    await two.leave()
    assert await lease_holder(deployment) is None
    assert await deployment.tick(one, two) == [True, False]


async def test_a_controller_paused_during_a_tick_changes_nothing_afterwards() -> None:
    deployment = await with_topic()
    paused, other = deployment.controller("paused"), deployment.controller("other")
    await deployment.tick(paused, other)
    deployment.zones["b"].mode = "denied"
    await deployment.tick(paused, other)

    # It probes once more, decides that b has failed, and is paused before it can write.
    probe = paused._watch._probe
    taken_over: list[list[bool]] = []

    async def sleepy(item: object) -> object:
        result = await probe(item)  # type: ignore[arg-type]
        if not taken_over:
            taken_over.append([])
            deployment.zones["b"].mode = "ok"
            taken_over[0] += await deployment.tick(other, times=5)
        return result

    paused._watch._probe = sleepy  # type: ignore[assignment, method-assign]
    before = await deployment.heads()

    assert await deployment.tick(paused) == [False]

    assert taken_over == [[True]]
    assert await deployment.heads() == before
    assert (await deployment.zone("b")).state == "online"
    assert await lease_holder(deployment) == "other"


@pytest.mark.parametrize("seed", range(12))
async def test_racing_controllers_over_a_lossy_table_end_with_all_zones_in_sync(
    seed: int,
) -> None:
    deployment = await with_topic()
    controllers = [deployment.controller(name) for name in ("one", "two", "three")]
    deployment.metadata.next_fault = random_faults(seed, 0.15)
    modes: list[Mode] = ["denied", "ok", "full", "ok"]
    epochs = [head.leader_epoch for head in await deployment.heads()]
    for number, mode in enumerate(modes):
        name = "abc"[(seed + number // 2) % 3]
        deployment.zones[name].mode = mode
        for _ in range(6):
            await deployment.tick(*controllers[seed % 2 :])
            for in_sync in await deployment.in_sync():
                assert len(in_sync) >= 2
            now = [head.leader_epoch for head in await deployment.heads()]
            assert all(new >= old for old, new in zip(epochs, now, strict=True))
            epochs = now
    deployment.metadata.next_fault = lambda: "none"
    await deployment.tick(*controllers, times=15)

    assert await deployment.in_sync() == ["abc"] * 3
    assert (await deployment.fsck()).findings == []
    await deployment.check_all_is_read()


async def test_a_controller_that_runs_one_tick_per_process_is_enough() -> None:
    """Each call is a new process without any state, as of a scheduled function."""
    deployment = await with_topic()
    deployment.zones["b"].mode = "denied"

    async def call() -> bool:
        controller: Controller = deployment.controller(real_world().random_bytes(6).hex())
        [held] = await deployment.tick(controller)
        await controller.leave()
        return held

    assert [await call() for _ in range(3)] == [True] * 3
    assert await deployment.in_sync() == ["ac"] * 3
    deployment.zones["b"].mode = "ok"
    assert [await call() for _ in range(5)] == [True] * 5
    assert await deployment.in_sync() == ["abc"] * 3


async def test_a_single_zone_is_not_probed_and_nothing_is_written() -> None:
    deployment = await with_topic(names="a", factor=1)
    controller = deployment.controller()
    puts = len(deployment.zones["a"].puts)

    assert await deployment.tick(controller, times=3) == [True]

    assert len(deployment.zones["a"].puts) == puts
    assert await deployment.metadata.list("zone/") == []


async def test_probes_leave_only_the_marker_behind() -> None:
    deployment = await with_topic()
    await deployment.tick(deployment.controller(), times=5)

    for name in "abc":
        marker = keys.zone_marker((await deployment.zone(name)).marker)
        assert {k for k in await deployment.zones[name].keys() if "/zone/" in k} == {marker}


async def test_only_gateways_without_beats_are_removed() -> None:
    deployment = await with_topic()
    controller = deployment.controller(controller_gateway_expiry_s=20)
    dead, alive = (
        LiveGateways(Settings(), deployment.metadata, deployment.world()) for _ in range(2)
    )
    await dead.beat()
    for _ in range(8):
        await alive.beat()
        await deployment.tick(controller)

    found = [key for key, _ in await deployment.metadata.list("gateway/")]
    assert found == [keys.gateway(alive.gateway_id)]


async def test_the_zone_item_shows_the_progress_of_a_resync() -> None:
    deployment = await with_topic()
    controller = deployment.controller(controller_resync_bytes_per_s=50, controller_step_s=1)
    await deployment.tick(controller)
    deployment.zones["b"].mode = "denied"
    await deployment.tick(controller, times=2)
    gateway = deployment.gateway()
    for number in range(9):
        await deployment.produce(gateway, b"while b is away", partition=number % 3)
    deployment.zones["b"].mode = "ok"

    seen: list[tuple[int, int]] = []
    for _ in range(12):
        await deployment.tick(controller)
        status = (await deployment.zone("b")).resync
        if status is not None:
            seen.append((status.lanes_behind, status.objects_copied))

    assert len(set(seen)) > 1
    assert seen == sorted(seen, key=lambda each: (-each[0], each[1]))
    assert await deployment.in_sync() == ["abc"] * 3


async def test_an_object_lost_in_every_zone_is_reported_and_does_not_keep_a_zone_out() -> None:
    deployment = await with_topic()
    controller = deployment.controller(controller_step_s=1, controller_resync_bytes_per_s=100)
    await deployment.tick(controller)
    deployment.zones["b"].mode = "denied"
    await deployment.tick(controller, times=2)
    gateway = deployment.gateway()
    await deployment.produce(gateway, b"lost")
    for name in "ac":
        store = deployment.zones[name]
        head = (await deployment.heads())[0]
        await store.inner.delete([keys.hot_segment(head.runs[-1].object_id)])
    deployment.zones["b"].mode = "ok"

    await deployment.tick(controller, times=8)

    item = await deployment.zone("b")
    assert item.resync is not None
    assert (item.state, item.resync.lost, item.resync.lanes_behind) == ("online", 1, 0)
    assert await deployment.in_sync() == ["abc"] * 3
    with pytest.raises(ObjectMissing):
        await deployment.read()


async def test_counts_show_under_replicated_partitions_and_leaders_by_zone() -> None:
    deployment = await with_topic(**{"min.insync.replicas": 3})
    controller = deployment.controller()
    deployment.zones["b"].mode = "denied"
    await deployment.tick(controller, times=2)

    counts = await Survey(deployment.metadata, deployment.topics).counts()

    assert (counts.topics, counts.partitions) == (1, 3)
    assert (counts.under_replicated, counts.under_min_isr, counts.offline) == (3, 3, 0)
    assert counts.zones["b"].leaders == 0
    assert counts.zones["a"].leaders + counts.zones["c"].leaders == 3
    assert (counts.zones["b"].replicas, counts.zones["b"].in_sync) == (3, 0)
    assert controller.counts == counts


async def test_objects_that_only_the_leader_holds_are_copied_to_the_others() -> None:
    """As after a write with acks=1 by a gateway that died before the other copies were made."""
    deployment = await with_topic()
    controller = deployment.controller(controller_scan_s=1)
    await deployment.tick(controller)
    head = (await deployment.heads())[0]
    key = keys.head(head.topic_id, head.lane)
    object_id = head.runs[0].object_id

    def only_in_first(head: Head) -> Head:
        run = msgspec.structs.replace(head.runs[0], zones=0b001)
        return msgspec.structs.replace(head, runs=(run, *head.runs[1:]), commits=head.commits + 1)

    await change_head(deployment.metadata, key, only_in_first)
    for name in head.zones[1:]:
        await deployment.zones[name].inner.delete([keys.hot_segment(object_id)])

    await deployment.tick(controller)
    assert (await deployment.heads())[0].runs[0].zones == 0b001, "its writer may still be at it"
    await deployment.tick(controller)

    assert (await deployment.heads())[0].runs[0].zones == 0b111
    assert (await deployment.fsck()).findings == []
