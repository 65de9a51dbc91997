"""Backends that live in memory: real implementations, not mocks.

They keep every promise of their interface except surviving the process. They serve tests, the
simulation and `memory://`.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from storage.errors import Corrupt, MetadataConflict, NotSupported, ObjectExists, ObjectMissing
from storage.stores.metadata import (
    Check,
    Delete,
    Op,
    Put,
    Scanned,
    Versioned,
    check_ops,
    collection_of,
)
from storage.stores.objects import Body, ObjectInfo


class MemoryObjects:
    """An `ObjectStore` that forgets on exit."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self._bodies: dict[str, tuple[bytes, int]] = {}
        self._now_ms = now_ms

    async def put(self, key: str, body: Body) -> None:
        joined = b"".join(body)
        if key in self._bodies and self._bodies[key][0] != joined:
            raise ObjectExists(f"{key} holds other bytes")
        self._bodies.setdefault(key, (joined, self._now_ms()))

    async def put_file(self, key: str, path: Path) -> None:
        await self.put(key, [path.read_bytes()])  # noqa: ASYNC240 - It is copied to memory anyway.

    async def get(self, key: str) -> bytes:
        if key not in self._bodies:
            raise ObjectMissing(f"there is no object {key}")
        return self._bodies[key][0]

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        body = await self.get(key)
        if any(end > len(body) for _, end in ranges):
            raise Corrupt(f"{key} ends at {len(body)}, before the range asked for")
        return [body[start:end] for start, end in ranges]

    async def size(self, key: str) -> int:
        if key not in self._bodies:
            raise ObjectMissing(f"there is no object {key}")
        return len(self._bodies[key][0])

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._bodies.pop(key, None)

    async def list(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        yield [
            ObjectInfo(key=key, size_bytes=len(body), modified_ms=modified_ms)
            for key, (body, modified_ms) in sorted(self._bodies.items())
            if key.startswith(prefix)
        ]

    async def presign(
        self, key: str, spans: Sequence[tuple[int, int] | None], expires_s: int
    ) -> Sequence[str]:
        raise NotSupported("whoever may read memory may read all of it")

    def address(self, key: str) -> str:
        raise NotSupported("objects in memory have no address; fetch through the gateway")

    async def close(self) -> None:
        pass


class MemoryMetadata:
    """A `MetadataStore` that forgets on exit."""

    def __init__(self, new_version: Callable[[], str]) -> None:
        self._items: dict[str, Versioned] = {}
        self._new_version = new_version

    async def get(self, key: str) -> Versioned | None:
        return self._items.get(key)

    async def get_many(self, keys: Sequence[str]) -> dict[str, Versioned]:
        return {key: self._items[key] for key in keys if key in self._items}

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int = 1000
    ) -> list[tuple[str, Versioned]]:
        collection, _ = collection_of(prefix)
        found = sorted(
            (key.encode(), key)
            for key in self._items
            if key.startswith(prefix)
            and collection_of(key)[0] == collection
            and (after is None or key.encode() > after.encode())
        )
        return [(key, self._items[key]) for _, key in found[:limit]]

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        check_ops(ops)
        current = {op.key: self._items.get(op.key) for op in ops}
        if any(_version(current[op.key]) != op.expected for op in ops):
            raise MetadataConflict(current)
        version = self._new_version()
        for op in ops:
            match op:
                case Put():
                    self._items[op.key] = Versioned(op.value, version)
                case Delete():
                    del self._items[op.key]
                case Check():
                    pass
        return {op.key: version for op in ops if isinstance(op, Put)}

    async def every_item(self) -> AsyncIterator[Sequence[Scanned]]:
        yield [Scanned(key, item) for key, item in sorted(self._items.items())]

    async def close(self) -> None:
        pass


def _version(item: Versioned | None) -> str | None:
    return None if item is None else item.version
