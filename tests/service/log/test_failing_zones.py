"""Zones that fail and heal, one after the other, ten times, while records are written."""

import pytest

from service.controller.catch_up import SETTLE_S
from service.log.gateway import Gateway
from storage.errors import NotEnoughReplicas, RiachoError, StoreUnavailable
from tests.service.helpers.deployments import INTERVAL_S, Deployment
from tests.storage.helpers.logs import batch_of

pytestmark = pytest.mark.anyio

FAILURES = ["denied", "full", "hanging", "slow", "wiped"] * 2
ATTEMPTS_MAX = 3


async def deployed() -> Deployment:
    deployment = Deployment()
    await deployment.topics.create(
        "t",
        partitions=3,
        replication_factor=3,
        config={
            "lane.partitions": 1,
            "min.insync.replicas": 2,
            "replica.lag.time.max.ms": 100,
        },
    )
    for store in deployment.zones.failing.values():
        store.slow_s = 0.5
    return deployment


async def produce(deployment: Deployment, gateways: list[Gateway], text: str) -> None:
    """Write a record to every partition through every gateway, again if nothing was written."""
    for number, gateway in enumerate(gateways):
        for partition in range(3):
            for attempt in range(ATTEMPTS_MAX):
                try:
                    value = f"{text} {number}".encode()
                    await deployment.produce(gateway, value, partition=partition)
                    break
                except RiachoError as error:
                    if error.may_have_applied or attempt == ATTEMPTS_MAX - 1:
                        raise


async def fail(deployment: Deployment, name: str, failure: str) -> None:
    if failure == "wiped":
        await deployment.zones[name].wipe()
    else:
        deployment.zones[name].mode = failure  # type: ignore[assignment]


@pytest.mark.parametrize("seed", range(2))
async def test_no_record_is_lost_or_doubled_and_every_zone_is_whole_at_the_end(seed: int) -> None:
    deployment = await deployed()
    controllers = [deployment.controller(name) for name in ("one", "two")]
    gateways = [deployment.gateway() for _ in range(2)]
    await deployment.tick(*controllers)

    for number, failure in enumerate(FAILURES):
        name = "abc"[(number + seed) % 3]
        await produce(deployment, gateways, f"{number} before")
        await fail(deployment, name, failure)
        await produce(deployment, gateways, f"{number} at once")
        await deployment.tick(*controllers, times=2)
        await produce(deployment, gateways, f"{number} while {name} is {failure}")
        await deployment.check_all_is_read()
        deployment.zones[name].mode = "ok"
        await produce(deployment, gateways, f"{number} when it is healed")
        await deployment.tick(*controllers, times=int(SETTLE_S / INTERVAL_S) + 4)
        assert await deployment.in_sync() == ["abc"] * 3, (number, failure)

    await deployment.tick(*controllers, times=3)
    assert (await deployment.fsck()).findings == []
    for alone in "abc":
        for other in "abc":
            deployment.zones[other].mode = "ok" if other == alone else "denied"
        await deployment.check_all_is_read()


async def test_with_two_zones_down_nothing_is_taken_and_everything_is_read() -> None:
    deployment = await deployed()
    controller = deployment.controller()
    gateways = [deployment.gateway() for _ in range(2)]
    await deployment.tick(controller)
    await produce(deployment, gateways, "before")
    deployment.zones["a"].mode = "denied"
    deployment.zones["c"].mode = "hanging"
    await deployment.tick(controller, times=2)

    for gateway in gateways:
        for partition in range(3):
            with pytest.raises(NotEnoughReplicas):
                await deployment.produce(gateway, b"too few", partition=partition)
    await deployment.check_all_is_read()

    deployment.zones["a"].mode = deployment.zones["c"].mode = "ok"
    await deployment.tick(controller, times=4)
    await produce(deployment, gateways, "after")
    assert await deployment.in_sync() == ["abc"] * 3
    assert (await deployment.fsck()).findings == []
    await deployment.check_all_is_read()


async def test_what_only_a_failed_leader_has_is_unavailable_until_it_is_back() -> None:
    deployment = await deployed()
    controller = deployment.controller(controller_scan_s=1)
    gateway = deployment.gateway()
    await deployment.tick(controller)
    await produce(deployment, [gateway], "before")
    [head, *_] = await deployment.heads()
    leader = head.zones[head.replicas[0]]
    for name in set("abc") - {leader}:
        deployment.zones[name].mode = "hanging"

    batch = batch_of(b"for the leader alone")
    await gateway.produce("t", batch, batch.nbytes, 0, waits_for_all=False)
    deployment.written[0].append(b"for the leader alone")
    # The gateway dies before it can tell what became of the others, and so does the leader.
    await gateway.aclose()
    for name in set("abc") - {leader}:
        deployment.zones[name].mode = "ok"
    deployment.zones[leader].mode = "denied"
    await deployment.tick(controller, times=4)
    assert leader not in (await deployment.in_sync())[0]
    with pytest.raises(StoreUnavailable):
        await deployment.read()
    await produce(deployment, [deployment.gateway()], "after")

    deployment.zones[leader].mode = "ok"
    await deployment.tick(controller, times=6)
    assert await deployment.in_sync() == ["abc"] * 3
    assert (await deployment.fsck()).findings == []
    await deployment.check_all_is_read()
