"""A gateway on real stores whose topics may be encrypted, and what its stores hold as bytes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from service.app import App, create_app
from service.settings import Settings
from service.world.clock import World

KEK = "file:one.key"
ENCRYPTED = {"encryption": "topic", "encryption.kek": KEK}


def settings_of(root: Path, **given: Any) -> Settings:
    keks = root / "keys"
    keks.mkdir(parents=True, exist_ok=True)
    if not (keks / "one.key").exists():
        (keks / "one.key").write_bytes(bytes(range(32)))
    return Settings(
        data=root / "data",
        kek_files=keks,
        gateway_heartbeat_s=0,
        controller_interval_s=0,
        log_level="warning",
        **given,
    )


class Sealed:
    """A gateway, and a client of it."""

    def __init__(self, app: App, http: httpx.AsyncClient, root: Path) -> None:
        self.app = app
        self.gateway = app.gateway
        self.http = http
        self.root = root

    async def create(self, name: str = "t", **body: Any) -> httpx.Response:
        config = {**ENCRYPTED, **body.pop("config", {})}
        reply = await self.http.post("/v1/topics", json={"name": name, "config": config, **body})
        assert reply.status_code == 201, reply.text
        return reply

    async def produce(self, *values: str, topic: str = "t", partition: int = 0) -> int:
        records = [{"key": f"key of {value}", "value": value} for value in values]
        path = f"/v1/topics/{topic}/partitions/{partition}/records"
        reply = await self.http.post(path, json={"records": records})
        assert reply.status_code == 200, reply.text
        offset: int = reply.json()["results"][0]["base_offset"]
        return offset

    async def fetch(self, offset: int = 0, topic: str = "t", partition: int = 0) -> httpx.Response:
        path = f"/v1/topics/{topic}/partitions/{partition}/records"
        return await self.http.get(path, params={"offset": offset})

    async def values(self, topic: str = "t", partition: int = 0) -> list[str]:
        found: list[str] = []
        offset = 0
        while True:
            reply = await self.fetch(offset, topic, partition)
            assert reply.status_code == 200, reply.text
            answer = reply.json()
            found += [record["value"] for record in answer["records"]]
            offset = answer["next_offset"]
            if offset >= answer["high_watermark"]:
                return found


@asynccontextmanager
async def running(root: Path, world: World | None = None, **given: Any) -> AsyncIterator[Sealed]:
    app = create_app(settings_of(root, **given), world)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        try:
            yield Sealed(app, http, root)
        finally:
            await app.gateway.aclose()


def stored_bytes(root: Path) -> bytes:
    """Return all bytes of all files below the data directory."""
    files = sorted(path for path in (root / "data").rglob("*") if path.is_file())
    assert files, "nothing is stored"
    return b"\0".join(path.read_bytes() for path in files)
