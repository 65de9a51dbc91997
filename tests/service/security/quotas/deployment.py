"""Gateways with security over one table in memory, and clients, on a clock that only they move."""

import asyncio
import random
from dataclasses import replace
from typing import Any

import httpx

from service.app import App
from service.controller.live_gateways import LiveGateways
from service.http.metrics import Metrics
from service.log.gateway import Gateway
from service.security.api_keys.credentials import ApiKeys, NewKey
from service.security.assembly import secured
from service.settings import Settings
from service.world.clock import real_world
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.zones.zones import Zones
from tests.storage.helpers.worlds import Clock


class Deployment:
    def __init__(self, gateways: int = 1, **settings: Any) -> None:
        self.clock = Clock()
        chance = random.Random(1)
        self.world = replace(
            real_world(),
            now_ms=self.clock.now_ms,
            monotonic_s=self.clock.monotonic_s,
            # Only clients let time pass; what a gateway does takes none.
            sleep=lambda _: asyncio.sleep(0),
            random=chance.random,
            random_bytes=chance.randbytes,
        )
        self.table = MemoryMetadata(self.world.new_version)
        self.bucket = MemoryObjects()
        given = Settings(gateway_heartbeat_s=0, linger_max_ms=1, **settings)
        self.gateways = [
            Gateway(given, Zones({"a": self.bucket}), self.table, self.world)
            for _ in range(gateways)
        ]
        self.apps = [
            App(
                gateway,
                LiveGateways(given, self.table, self.world),
                Metrics(),
                security=secured(given, self.table, self.world),
            )
            for gateway in self.gateways
        ]
        self._clients: list[httpx.AsyncClient] = []

    async def clients(self, principal: str, *, is_super: bool = False) -> list[httpx.AsyncClient]:
        """Return a client of each gateway, with a new key."""
        new = NewKey(principal=principal, is_super=is_super)
        _, text = await ApiKeys(self.table, self.world).create(new)
        made = [
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app),
                base_url=f"http://gateway-{number}",
                headers={"authorization": f"Bearer {text}"},
            )
            for number, app in enumerate(self.apps)
        ]
        self._clients += made
        return made

    async def root(self) -> httpx.AsyncClient:
        return (await self.clients("User:root", is_super=True))[0]

    async def ana(self, **limits: float) -> list[httpx.AsyncClient]:
        """Return a client of each gateway that may do everything within `limits`."""
        root = await self.root()
        for kind in ("TOPIC", "GROUP", "CLUSTER"):
            acl = {
                "resource_type": kind,
                "resource_name": "kafka-cluster" if kind == "CLUSTER" else "*",
                "operation": "ALL",
                "principal": "User:ana",
            }
            assert (await root.post("/v1/acls", json=acl)).status_code == 201
        if limits:
            answer = await root.put("/v1/quotas", json={"user": "ana", **limits})
            assert answer.status_code == 200, answer.text
        clients = await self.clients("User:ana")
        self.clock.now_s += 4  # By then every gateway knows of it.
        return clients

    async def aclose(self) -> None:
        for client in self._clients:
            await client.aclose()
        for gateway in self.gateways:
            await gateway.batcher.aclose()
            await gateway.aclose()
