"""Zones of an encrypted topic: a controller without any key brings one up to date."""

from pathlib import Path

import pytest

from service.log.gateway import Gateway, Position, Wait
from tests.service.helpers.deployments import ALL, Deployment
from tests.service.log.sealed import ENCRYPTED, settings_of

pytestmark = pytest.mark.anyio


async def values(gateway: Gateway) -> list[bytes]:
    result = await gateway.fetch("t", 0, Position(offset=0), ALL, Wait())
    return [v for _, each in result.fetched.batches(10**9) for v in each.column(2).to_pylist()]


async def test_a_zone_that_failed_gets_what_it_missed_and_is_read(tmp_path: Path) -> None:
    deployment = Deployment("ab")
    keks = settings_of(tmp_path).kek_files
    gateway = deployment.gateway(kek_files=keks, linger_max_ms=1)
    await gateway.topics.create("t", replication_factor=2, config=ENCRYPTED)
    controller = deployment.controller()
    await deployment.tick(controller)
    await deployment.produce(gateway, b"one")
    deployment.zones["b"].mode = "denied"
    await deployment.produce(gateway, b"two")
    assert await deployment.in_sync() == ["a"]

    deployment.zones["b"].mode = "ok"
    for _ in range(20):
        await deployment.tick(controller)
        if await deployment.in_sync() == ["ab"]:
            break
    assert await deployment.in_sync() == ["ab"]
    assert (await deployment.fsck()).is_ok

    deployment.zones["a"].mode = "denied"
    again = deployment.gateway(kek_files=keks)
    assert await values(again) == [b"one", b"two"]
