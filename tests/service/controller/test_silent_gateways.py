"""Gateways are removed only when their beats certainly stopped, even if the table is slow."""

import pytest

from service.controller.live_gateways import LiveGateways
from service.settings import Settings
from storage import keys
from storage.stores.metadata import Versioned
from tests.service.helpers.deployments import INTERVAL_S, Deployment
from tests.storage.helpers.faults import FaultyMetadata
from tests.storage.helpers.worlds import Clock, new_metadata

pytestmark = pytest.mark.anyio

EXPIRY_S = 20


class SlowLists(FaultyMetadata):
    """A table in which a gateway beats at the end of a slow listing."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(new_metadata())
        self._clock = clock
        self.beating: LiveGateways | None = None

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int = 1000
    ) -> list[tuple[str, Versioned]]:
        if prefix == "gateway/" and self.beating is not None:
            beating, self.beating = self.beating, None
            self._clock.now_s += EXPIRY_S
            await beating.beat()
        return await super().list(prefix, after=after, limit=limit)


async def test_a_beat_that_was_read_late_is_not_treated_as_old() -> None:
    deployment = Deployment("a")
    metadata = deployment.metadata = SlowLists(deployment.clock)
    controller = deployment.controller(controller_gateway_expiry_s=EXPIRY_S)
    gateway = LiveGateways(Settings(), metadata, deployment.world())

    metadata.beating = gateway
    assert await deployment.tick(controller) == [True]
    assert metadata.beating is None
    await deployment.tick(controller, times=int(EXPIRY_S / INTERVAL_S) - 1)
    found = [key for key, _ in await metadata.list("gateway/")]
    assert found == [keys.gateway(gateway.gateway_id)]

    await deployment.tick(controller, times=2)
    assert await metadata.list("gateway/") == []
