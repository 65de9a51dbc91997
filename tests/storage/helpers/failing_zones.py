"""Zones that fail in every way a zone can: denied, full, hanging, slow, wiped."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from storage.errors import StoreUnavailable
from storage.stores.directory import DirectoryObjects
from storage.stores.memory import MemoryObjects
from storage.stores.objects import Body, ObjectInfo, ObjectStore
from storage.zones.zones import Zones

T = TypeVar("T")

Mode = Literal["ok", "denied", "full", "hanging", "slow"]


class FailingObjects:
    """An `ObjectStore` in front of another one, which behaves as `mode` says."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.mode: Mode = "ok"
        self.slow_s = 0.02
        self.puts: list[str] = []
        self.reads: list[str] = []
        self.sizes: list[str] = []

    async def _call(self, work: Callable[[], Awaitable[T]], *, writes: bool = False) -> T:
        if self.mode == "denied":
            raise StoreUnavailable("permission denied")
        if self.mode == "full" and writes:
            raise StoreUnavailable("no space left on device")
        if self.mode == "hanging":
            await asyncio.get_running_loop().create_future()
        if self.mode == "slow":
            await asyncio.sleep(self.slow_s)
        return await work()

    async def put(self, key: str, body: Body) -> None:
        self.puts.append(key)
        await self._call(lambda: self.inner.put(key, body), writes=True)

    async def put_file(self, key: str, path: Path) -> None:
        self.puts.append(key)
        await self._call(lambda: self.inner.put_file(key, path), writes=True)

    async def get(self, key: str) -> bytes:
        self.reads.append(key)
        return await self._call(lambda: self.inner.get(key))

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.reads.append(key)
        return await self._call(lambda: self.inner.get_ranges(key, ranges))

    async def size(self, key: str) -> int:
        self.sizes.append(key)
        return await self._call(lambda: self.inner.size(key))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._call(lambda: self.inner.delete(keys))

    def list(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        return self.inner.list(prefix)

    async def presign(
        self, key: str, spans: Sequence[tuple[int, int] | None], expires_s: int
    ) -> Sequence[str]:
        return await self.inner.presign(key, spans, expires_s)

    def address(self, key: str) -> str:
        return self.inner.address(key)

    async def close(self) -> None:
        await self.inner.close()

    # Called by tests

    async def keys(self, prefix: str = "") -> set[str]:
        return {info.key async for batch in self.inner.list(prefix) for info in batch}

    async def wipe(self) -> None:
        await self.inner.delete(sorted(await self.keys()))

    async def damage(self, key: str, position: int = -1) -> None:
        body = bytearray(await self.inner.get(key))
        body[position] ^= 1
        await self.replace(key, bytes(body))

    async def replace(self, key: str, body: bytes) -> None:
        await self.inner.delete([key])
        await self.inner.put(key, [body])


class FailingZones(Zones):
    """Zones by name, each of which a test can make fail."""

    def __init__(self, names: str = "abc", root: Path | None = None) -> None:
        """Keep everything in memory, or in directories below `root`."""
        self.failing = {
            name: FailingObjects(MemoryObjects() if root is None else DirectoryObjects(root / name))
            for name in names
        }
        super().__init__(self.failing)

    def __getitem__(self, name: str) -> FailingObjects:
        return self.failing[name]
