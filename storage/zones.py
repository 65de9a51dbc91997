"""Zones: the named object stores that hold copies of the data."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from storage.errors import InvalidConfig, ObjectMissing, StoreUnavailable
from storage.objects import Body, ObjectStore

T = TypeVar("T")


class Zones:
    """Every zone of this deployment, by name."""

    def __init__(self, stores: Mapping[str, ObjectStore]) -> None:
        if not stores:
            raise InvalidConfig("there must be at least one zone")
        self._stores = dict(stores)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._stores)

    def store(self, name: str) -> ObjectStore:
        if name not in self._stores:
            raise StoreUnavailable(f"zone {name!r} is not configured here; see RIACHO_ZONES")
        return self._stores[name]

    async def put(self, key: str, body: Body, names: Sequence[str]) -> None:
        """Store the object in every named zone, or raise what the first failing zone raised."""
        if len(names) == 1:
            await self.store(names[0]).put(key, body)
            return
        try:
            async with asyncio.TaskGroup() as group:
                for name in names:
                    group.create_task(self.store(name).put(key, body))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def get(self, key: str, names: Sequence[str]) -> bytes:
        """Return the object from the first of the named zones that gives it."""
        return await self._first(key, names, lambda store: store.get(key))

    async def get_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], names: Sequence[str]
    ) -> list[bytes]:
        """Return the ranges from the first of the named zones that gives them."""
        return await self._first(key, names, lambda store: store.get_ranges(key, ranges))

    async def _first(
        self, key: str, names: Sequence[str], read: Callable[[ObjectStore], Awaitable[T]]
    ) -> T:
        missing: ObjectMissing | None = None
        unavailable: StoreUnavailable | None = None
        for name in names:
            try:
                return await read(self.store(name))
            except ObjectMissing as failure:
                missing = failure
            except StoreUnavailable as failure:
                unavailable = failure
        # Only if every zone was asked and has none is the object lost.
        raise unavailable or missing or StoreUnavailable(f"no zone holds {key}")

    async def close(self) -> None:
        await asyncio.gather(*(store.close() for store in self._stores.values()))
