"""A topic of dead letters that a sink has filled, and a client of the gateway that has it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from service.app import App
from service.controller.live_gateways import LiveGateways
from service.http.metrics import Metrics
from tests.service.connect.tasks.sinks import Rig, Target

BAD = range(7, 1000, 143)
DEAD = {
    "errors__tolerance": "all",
    "errors__deadletterqueue__topic__name": "dead",
    "errors__deadletterqueue__context__headers__enable": "true",
}


class Dlq:
    def __init__(self, rig: Rig, client: httpx.AsyncClient) -> None:
        self.rig = rig
        self.client = client

    async def redrive(self, **body: Any) -> dict[str, Any]:
        answer = await self.client.post("/v1/dlq/dead/redrive", json={"to": "origin", **body})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def get(self, path: str, **params: Any) -> Any:
        answer = await self.client.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def end(self, topic: str, partition: int = 0) -> int:
        return (await self.rig.gateway.partitions(topic))[partition].high_watermark


def has(target: Target, count: int) -> Callable[[], bool]:
    return lambda: len(target.values) >= count


@asynccontextmanager
async def dlq_of(rig: Rig) -> AsyncIterator[Dlq]:
    gateway = rig.gateway
    metrics = Metrics()
    app = App(gateway, LiveGateways(gateway.settings, gateway.metadata, gateway.world), metrics)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        try:
            await rig.create()
            yield Dlq(rig, client)
        finally:
            await rig.aclose()


@asynccontextmanager
async def seven_bad(**config: str) -> AsyncIterator[tuple[Dlq, Target]]:
    """A sink has read a thousand records and given up seven, because of `{` instead of a number."""
    async with dlq_of(Rig(**DEAD, **config)) as dlq:
        await dlq.rig.produce(["{" if n in BAD else str(n) for n in range(1000)])
        target = Target()
        await dlq.rig.run(target, has(target, 993))
        yield dlq, target
