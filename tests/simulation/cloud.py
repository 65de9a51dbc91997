"""The stores that all processes share, their condition, and the objects they lose."""

import random
from collections.abc import Callable, Mapping, Sequence

from storage import keys
from storage.head import head as heads
from storage.head import replication
from storage.maintenance.fsck import check_lane
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.stores.metadata import Op, Versioned
from storage.zones import items as zone_items
from storage.zones.zones import Zones
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.world import FaultyLink, FaultyMetadata, FaultyObjects, Weather, world_of


class WatchedMetadata(MemoryMetadata):
    """A table that reports every change to an observer at the moment it is made."""

    def __init__(self, new_version: Callable[[], str]) -> None:
        super().__init__(new_version)
        self.watch: Callable[[Mapping[str, bytes]], None] | None = None
        self.watch_collection: dict[str, Callable[[str, bytes | None, bytes | None], None]] = {}
        """Who sees the changes of a collection: a key, the value before, and that after."""

    async def everything(self, prefix: str) -> list[tuple[str, Versioned]]:
        """Return all items whose keys begin with `prefix`, of any collection."""
        return sorted(item for item in self._items.items() if item[0].startswith(prefix))

    def now(self, key: str) -> bytes | None:
        item = self._items.get(key)
        return None if item is None else item.value

    def beginning(self, prefix: str) -> list[tuple[str, bytes]]:
        """Return items as `everything` does, at once."""
        found = (each for each in self._items.items() if each[0].startswith(prefix))
        return sorted((key, item.value) for key, item in found)

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        seen = [
            (op.key, watch, self.now(op.key))
            for prefix, watch in self.watch_collection.items()
            for op in ops
            if op.key.startswith(prefix)
        ]
        versions = await super().transact(ops)
        for key, watch, before in seen:
            watch(key, before, self.now(key))
        if self.watch is not None:
            self.watch({key: self._items[key].value for key in versions})
        return versions


class Cloud:
    """Object stores of several zones, a table, and the condition of each."""

    def __init__(self, loop: VirtualLoop, names: str, metadata: WatchedMetadata) -> None:
        now_ms = world_of(loop, random.Random(0)).now_ms
        self.objects: dict[str, MemoryObjects] = {name: MemoryObjects(now_ms) for name in names}
        self.weather = {name: Weather() for name in names}
        self.metadata = metadata
        self.table_weather = Weather()
        self.has_lost = False
        """Whether a zone may still lack objects that it lost unnoticed."""

    def zones(self, link: FaultyLink) -> Zones:
        return Zones(
            {
                name: FaultyObjects(store, link, self.weather[name])
                for name, store in self.objects.items()
            }
        )

    def table(self, link: FaultyLink) -> FaultyMetadata:
        return FaultyMetadata(self.metadata, link, self.table_weather)

    def wipe(self, name: str, chance: random.Random) -> None:
        """Let a zone lose all its objects, or its marker and half of them."""
        bodies = self.objects[name]._bodies
        everything = chance.random() < 0.5
        for key in sorted(bodies):
            if everything or key.endswith(".marker") or chance.random() < 0.5:
                del bodies[key]

    def lose(self, name: str, chance: random.Random) -> None:
        """Let a zone lose some objects but not its marker: only verification can notice."""
        bodies = self.objects[name]._bodies
        for key in sorted(bodies):
            if not key.endswith(".marker") and chance.random() < 0.3:
                del bodies[key]
        self.has_lost = True

    async def can_do_without(self, name: str) -> bool:
        """Whether another zone in sync, which has lost nothing, holds all that this zone holds."""
        for _, item in await self.metadata.everything("head/"):
            head = heads.decode(item.value)
            others = head.isr & ~replication.zones_named(head, [name])
            if not others or replication.incomplete(head):
                return False
        return not await self._losses()

    async def unsettled(self) -> list[str]:
        """Return the lanes that are not in all their zones, and the zones that lost objects."""
        found = []
        for key, item in await self.metadata.everything("head/"):
            head = heads.decode(item.value)
            if head.isr != replication.replica_zones(head):
                zones = replication.zone_names(head, head.isr)
                found.append(f"of {key} only {sorted(zones)} are in sync")
            elif replication.incomplete(head):
                found.append(f"of {key} not all zones hold all objects")
        return found + await self._losses()

    async def _losses(self) -> list[str]:
        """Return the zones that may lack objects which heads list for them."""
        # A single zone is not probed, and there is no zone to copy from.
        if len(self.objects) == 1:
            return []
        found = []
        if self.has_lost:
            self.has_lost = not await self._is_whole()
        if self.has_lost:
            found.append("verification has not repaired everything that was lost")
        for name, store in self.objects.items():
            item = await self.metadata.get(keys.zone(name))
            if item is None:
                found.append(f"zone {name} has no marker yet, by which a wipe is noticed")
                continue
            zone = zone_items.decode(item.value)
            has_marker = keys.zone_marker(zone.marker or "-") in store._bodies
            if not (has_marker and zone.is_whole):
                found.append(f"zone {name} has lost something, or has not got it back yet")
        return found

    async def _is_whole(self) -> bool:
        """Whether every replica of every lane is in sync and holds all its objects."""
        zones = Zones(self.objects)
        for _, item in await self.metadata.everything("head/"):
            head = heads.decode(item.value)
            if head.isr != replication.replica_zones(head):
                return False
            if not (await check_lane(zones, head, sizes_only=True)).is_ok:
                return False
        return True

    def clear_up(self) -> None:
        for weather in (*self.weather.values(), self.table_weather):
            weather.is_away = weather.hangs = weather.is_throttled = False
