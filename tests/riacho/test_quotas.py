"""The client and quotas: it waits as long as the gateway says, and loses and repeats nothing.

Time is what the client and the gateway take: waits of a second are what quotas are made of.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator

import httpx
import pytest

from riacho.consumer.consumer import AsyncConsumer
from riacho.producer.producer import AsyncProducer
from service.app import App
from service.controller.live_gateways import LiveGateways
from service.http.metrics import Metrics
from service.log.gateway import Gateway
from service.security.api_keys.credentials import ApiKeys, NewKey
from service.security.assembly import secured
from service.security.quotas.items import QuotaItems
from service.security.quotas.limits import QuotaEntity, QuotaKind
from service.settings import Settings
from service.world.clock import real_world
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.zones.zones import Zones

pytestmark = pytest.mark.anyio

URL = "http://gateway"
VALUE_BYTES = 2000
RATE = 40_000.0
COUNT = 60


class Counted(httpx.AsyncBaseTransport):
    """Passes requests of one principal on, and notes when each was refused and for how long."""

    def __init__(self, app: App, key: str) -> None:
        self._inner = httpx.ASGITransport(app)
        self._key = key
        self.refusals: list[tuple[str, float]] = []
        self.too_soon = 0
        self._not_before_s: dict[str, float] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.headers["authorization"] = f"Bearer {self._key}"
        now_s = asyncio.get_running_loop().time()
        # The timer of the loop may be early by its resolution.
        call = f"{request.method} {request.url} {hash(request.content)}"
        self.too_soon += now_s < self._not_before_s.get(call, 0.0) - 0.01
        answer = await self._inner.handle_async_request(request)
        if answer.status_code == 429:
            # The header says the same in whole seconds.
            wait_s = json.loads(await answer.aread())["throttle_time_ms"] / 1000
            assert wait_s <= float(answer.headers["retry-after"])
            self.refusals.append((call, wait_s))
            self._not_before_s[call] = now_s + wait_s
        return answer


@pytest.fixture
async def net() -> AsyncIterator[Counted]:
    world = real_world()
    settings = Settings(gateway_heartbeat_s=0)
    table = MemoryMetadata(world.new_version)
    gateway = Gateway(settings, Zones({"a": MemoryObjects()}), table, world)
    registry = LiveGateways(settings, table, world)
    security = secured(settings, table, world)
    await QuotaItems(table, world).change(
        QuotaEntity("root", None), {QuotaKind.PRODUCE: RATE, QuotaKind.FETCH: RATE}
    )
    _, key = await ApiKeys(table, world).create(NewKey(principal="User:root", is_super=True))
    await gateway.topics.create("t")
    yield Counted(App(gateway, registry, Metrics(), security=security), key)
    await gateway.batcher.aclose()
    await gateway.aclose()


async def test_a_producer_and_a_consumer_wait_and_then_go_on(net: Counted) -> None:
    chance = random.Random(1)
    began_s = asyncio.get_running_loop().time()
    async with AsyncProducer(URL, transport=net, linger_ms=0, batch_size=4000) as producer:
        # Values that cannot be compressed.
        values = [chance.randbytes(VALUE_BYTES) for _ in range(COUNT)]
        sent = [await producer.send("t", value, key=b"%d" % n) for n, value in enumerate(values)]
        await asyncio.gather(*sent)
    took_s = asyncio.get_running_loop().time() - began_s
    produced = len(net.refusals)

    async with AsyncConsumer(
        URL, transport=net, auto_offset_reset="earliest", fetch_max_wait_ms=0
    ) as consumer:
        consumer.assign([("t", 0)])
        found: list[bytes | None] = []
        async with asyncio.timeout(300):
            while len(found) < COUNT:
                found += [record.key for record in await consumer.poll(1000)]

    assert found == [b"%d" % n for n in range(COUNT)]
    assert produced > 0
    assert len(net.refusals) > produced
    assert net.too_soon == 0
    # What was saved up for two seconds need not be waited for.
    assert took_s >= COUNT * VALUE_BYTES / RATE - 2.5
