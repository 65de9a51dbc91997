"""A whole gateway in this process, over real stores that fail on demand."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import httpx

from service.app import App
from service.controller.live_gateways import LiveGateways
from service.http.hosting import hosting
from service.http.metrics import Metrics
from service.log.gateway import Gateway
from service.security.assembly import secured
from service.settings import Settings
from service.world.clock import World, real_world
from storage.errors import (
    MetadataConflict,
    MetadataDamaged,
    ObjectMissing,
    OutcomeUnknown,
    StoreLocked,
    StoreUnavailable,
)
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.stores.metadata import Op, Put, Versioned
from storage.stores.objects import Body
from storage.zones.zones import Zones

TableFault = Literal[
    "down",
    "refusing",
    "silent",
    "contended",
    "damaged",
    "buggy",
    "hanging",
    "malformed",
    "locked",
]
"""Unreachable; read-only; writes are never answered; another writer always comes first; bytes have
changed; the driver fails in an unexpected way; the connection hangs; the file is not a database;
another process holds its lock."""

BucketFault = Literal["down", "damaged", "empty", "buggy"]


class BugInDriver(Exception):
    """An unexpected error."""


def _changed(value: bytes) -> bytes:
    return bytes(byte ^ 255 for byte in value[:1]) + value[1:]


class Table:
    """A `MetadataStore` that keeps every promise until `fault` is set."""

    def __init__(self, inner: MemoryMetadata) -> None:
        self.inner = inner
        self.fault: TableFault | None = None

    async def get(self, key: str) -> Versioned | None:
        self._check()
        if self.fault == "hanging":
            await asyncio.Event().wait()
        item = await self.inner.get(key)
        return None if item is None else self._seen(item)

    async def get_many(self, keys: Sequence[str]) -> dict[str, Versioned]:
        self._check()
        return {key: self._seen(item) for key, item in (await self.inner.get_many(keys)).items()}

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int = 1000
    ) -> list[tuple[str, Versioned]]:
        self._check()
        found = await self.inner.list(prefix, after=after, limit=limit)
        return [(key, self._seen(item)) for key, item in found]

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        self._check()
        await asyncio.sleep(0)
        match self.fault:
            case "locked":
                raise StoreLocked("another process holds the lock of the table")
            case "refusing":
                raise StoreUnavailable("the table takes no writes")
            case "silent":
                raise OutcomeUnknown("the table did not answer")
            case "contended":
                raise MetadataConflict(await self.inner.get_many([op.key for op in ops]))
            case _:
                return await self.inner.transact(ops)

    async def close(self) -> None:
        await self.inner.close()

    def _check(self) -> None:
        if self.fault == "down":
            raise StoreUnavailable("the table does not answer")
        if self.fault == "buggy":
            raise BugInDriver("the driver has a bug")
        if self.fault == "malformed":
            raise MetadataDamaged("database disk image is malformed")

    def _seen(self, item: Versioned) -> Versioned:
        if self.fault != "damaged":
            return item
        return Versioned(_changed(item.value), item.version)


class Bucket(MemoryObjects):
    """An `ObjectStore` that keeps every promise until `fault` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: BucketFault | None = None
        self.has_addresses = True

    def address(self, key: str) -> str:
        if not self.has_addresses:
            return super().address(key)
        self._check()
        return f"https://bucket.example/{key}"

    async def put(self, key: str, body: Body) -> None:
        self._check()
        await super().put(key, body)

    async def get(self, key: str) -> bytes:
        self._check()
        return self._seen(key, await super().get(key))

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self._check()
        return [self._seen(key, piece) for piece in await super().get_ranges(key, ranges)]

    def _check(self) -> None:
        if self.fault == "down":
            raise StoreUnavailable("the bucket does not answer")
        if self.fault == "buggy":
            raise BugInDriver("the driver has a bug")

    def _seen(self, key: str, piece: bytes) -> bytes:
        if self.fault == "empty":
            raise ObjectMissing(f"there is no object {key}")
        return piece if self.fault != "damaged" else _changed(piece)


class Time:
    """A clock that advances when a task sleeps, so that no task really waits."""

    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0

    def world(self) -> World:
        dice = random.Random(1)
        return replace(
            real_world(),
            now_ms=lambda: int(self.now_s * 1000),
            monotonic_s=lambda: self.now_s,
            sleep=self.sleep,
            random=dice.random,
            random_bytes=dice.randbytes,
        )

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0)


UNCACHED = {"linger_max_ms": 1, "wait_ms_max": 50, "slice_cache_bytes": 1, "index_cache_bytes": 4}
"""Settings with which every read reaches the stores and their faults."""


class Deployment:
    """A gateway, its stores, and a client of it."""

    def __init__(self, **settings: Any) -> None:
        self.time = Time()
        world = self.world = self.time.world()
        self.settings = Settings(**{**UNCACHED, **settings})
        self.table = Table(MemoryMetadata(world.new_version))
        self.bucket = Bucket()
        self.other_bucket = Bucket()
        self._start(world)

    def _start(self, world: World, *, is_secured: bool = False) -> None:
        zones = Zones({"a": self.bucket, "b": self.other_bucket})
        self.gateway = Gateway(self.settings, zones, self.table, world)
        registry = LiveGateways(self.settings, self.table, world)
        host = hosting(self.settings, world)
        security = secured(self.settings, self.table, world) if is_secured else None
        self.app = App(self.gateway, registry, Metrics(), wrap=host.wrap, security=security)
        transport = httpx.ASGITransport(self.app)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://gateway")

    @property
    def kek(self) -> Path:
        """The file of the key that wraps data keys of encrypted topics."""
        assert self.settings.kek_files is not None
        return self.settings.kek_files / "kek"

    async def restart(self, *, is_secured: bool = False) -> None:
        """Continue with a new gateway, which has no caches."""
        await self.stop()
        self._start(self.world, is_secured=is_secured)

    async def stop(self) -> None:
        await self.http.aclose()
        await self.gateway.batcher.aclose()
        await self.gateway.aclose()

    def limit(self, **settings: Any) -> None:
        """Change settings that are looked up for each request."""
        self.settings = self.settings.model_copy(update=settings)
        self.gateway.settings = self.settings

    async def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        return await self.http.request(method, path, **request)

    async def put(self, key: str, value: bytes) -> None:
        await self.table.inner.transact([Put(key, value, None)])

    async def done(self, method: str, path: str, **request: Any) -> Any:
        """Return the body of the answer, which must be a success."""
        response = await self.ask(method, path, **request)
        assert response.is_success, response.text
        return response.json() if response.content else None


@asynccontextmanager
async def deployment(**settings: Any) -> AsyncIterator[Deployment]:
    with TemporaryDirectory() as keks:
        settings.setdefault("connect_files", Path(keks))
        deployed = Deployment(kek_files=Path(keks), **settings)
        deployed.kek.write_bytes(bytes(32))
        try:
            yield deployed
        finally:
            deployed.table.fault = deployed.bucket.fault = deployed.other_bucket.fault = None
            await deployed.stop()
