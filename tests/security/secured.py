"""Gateways with security over shared stores, whose time a test moves, and keys for them."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx

from service.app import App
from service.controller.live_gateways import LiveGateways
from service.http.metrics import Metrics
from service.log.gateway import Gateway
from service.security.api_keys.credentials import ApiKey, ApiKeys, NewKey
from service.security.assembly import secured
from service.settings import Settings
from service.world.clock import World, real_world
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.stores.metadata import MetadataStore
from storage.zones.zones import Zones
from tests.storage.helpers.worlds import Clock

SEEN_S = 4.0
"""After so long every gateway obeys a change."""


def world_on(clock: Clock, seed: int = 1) -> World:
    chance = random.Random(seed)
    return replace(
        real_world(),
        now_ms=clock.now_ms,
        monotonic_s=clock.monotonic_s,
        # Only the test lets time pass; what a gateway does takes none.
        sleep=lambda _: asyncio.sleep(0),
        random=chance.random,
        random_bytes=chance.randbytes,
    )


class Secured:
    """Gateways, and root, who may do everything."""

    def __init__(
        self,
        gateways: int = 1,
        table: MetadataStore | None = None,
        views: Sequence[MetadataStore] = (),
        **settings: Any,
    ) -> None:
        """`views` are the table as each gateway reaches it; by default all reach `table`."""
        self.clock = Clock()
        self.world = world_on(self.clock)
        self.table = table or MemoryMetadata(self.world.new_version)
        self.keys = ApiKeys(self.table, self.world)
        self.bucket = MemoryObjects()
        many = 1_000_000  # Other tests are about these limits.
        limits = {"logins_failed_max": many, "logins_failed_per_peer_max": many}
        self.settings = Settings(
            **{"linger_max_ms": 1, "wait_ms_max": 50, **limits, **settings}  # type: ignore[arg-type]
        )
        self.apps = [self._app(view) for view in views or [self.table] * gateways]
        self._clients: list[httpx.AsyncClient] = []

    def _app(self, table: MetadataStore) -> App:
        gateway = Gateway(self.settings, Zones({"a": self.bucket}), table, self.world)
        registry = LiveGateways(self.settings, table, self.world)
        return App(gateway, registry, Metrics(), security=secured(self.settings, table, self.world))

    async def key(self, principal: str, **fields: Any) -> tuple[ApiKey, str]:
        """Return a new key and its text."""
        return await self.keys.create(NewKey(principal=principal, **fields))

    def client(self, text: str | None, number: int = 0) -> httpx.AsyncClient:
        """Return a client of a gateway with the text of a key."""
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.apps[number]),
            base_url="http://gateway",
            headers={} if text is None else {"authorization": f"Bearer {text}"},
        )
        self._clients.append(client)
        return client

    async def root(self, number: int = 0) -> httpx.AsyncClient:
        _, text = await self.key("User:root", is_super=True)
        return self.client(text, number)

    async def allow(
        self,
        principal: str,
        kind: str,
        *operations: str,
        name: str = "*",
        pattern: str = "LITERAL",
    ) -> None:
        """Add ACLs; gateways obey them `SEEN_S` later."""
        root = await self.root()
        acls = [
            {
                "resource_type": kind,
                "resource_name": "kafka-cluster" if kind == "CLUSTER" else name,
                "pattern_type": pattern,
                "principal": principal,
                "operation": operation,
            }
            for operation in operations
        ]
        answer = await root.post("/v1/acls", json={"acls": acls})
        assert answer.status_code == 201, answer.text

    def pass_time(self, seconds: float = SEEN_S) -> None:
        self.clock.now_s += seconds

    async def aclose(self) -> None:
        for client in self._clients:
            await client.aclose()
        for app in self.apps:
            await app.gateway.batcher.aclose()
            await app.gateway.aclose()
