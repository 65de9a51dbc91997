"""Watches zones: probes each, and stores the result as an item that any gateway can read."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

import msgspec

from service.settings import Settings
from service.world.clock import World
from storage import keys
from storage.errors import ObjectMissing, RiachoError
from storage.leases import Lease
from storage.stores.metadata import MetadataStore, Put
from storage.zones import items as zone_items
from storage.zones.items import Probe, ZoneItem, probed
from storage.zones.zones import Zones

log = logging.getLogger("riacho.controller")

SUCCESSES_MIN: Final = 2
"""Consecutive successful probes after which an offline zone is back."""

REFRESHED_MS: Final = 60_000
"""Maximum age of a zone's item: then it is rewritten even if nothing has changed."""


@dataclass(slots=True)
class WatchedZone:
    """A zone's item, and its version for the next compare-and-set."""

    item: ZoneItem
    version: str | None
    has_changed: bool = False
    """Whether the last look changed its state."""


class ZoneWatch:
    def __init__(
        self, settings: Settings, zones: Zones, metadata: MetadataStore, lease: Lease, world: World
    ) -> None:
        self._settings = settings
        self._zones = zones
        self._metadata = metadata
        self._lease = lease
        self._world = world

    async def look(self) -> dict[str, WatchedZone]:
        """Probe all zones, store what changed, and return them by name."""
        found = dict(await self._metadata.list(keys.ZONES))
        known: dict[str, WatchedZone] = {}
        for name in self._zones.names:
            stored = found.get(keys.zone(name))
            if stored is None:
                item = ZoneItem(name=name, since_ms=self._world.now_ms())
                known[name] = WatchedZone(item, None)
            else:
                known[name] = WatchedZone(zone_items.decode(stored.value), stored.version)
        # With one zone there is nothing to fail over to, so a probe would only cost.
        if len(known) > 1:
            seen = await asyncio.gather(*(self._seen(zone.item) for zone in known.values()))
            # One by one: concurrent transactions that check the same lease would conflict.
            for zone, item in zip(known.values(), seen, strict=True):
                await self._note(zone, item)
        return known

    async def save(self, zone: WatchedZone, item: ZoneItem) -> None:
        key = keys.zone(item.name)
        versions = await self._lease.transact([Put(key, zone_items.encode(item), zone.version)])
        zone.item, zone.version = item, versions[key]

    async def _seen(self, item: ZoneItem) -> ZoneItem:
        """Return the item after a probe."""
        probe = await self._probe(item)
        new = probed(
            item,
            probe,
            self._world.now_ms(),
            failures_max=self._settings.controller_probe_failures_max,
            successes_min=SUCCESSES_MIN,
        )
        return new if new.marker or probe.error else await self._with_marker(new)

    async def _note(self, zone: WatchedZone, new: ZoneItem) -> None:
        before = zone.item
        if new.state != before.state:
            level = logging.INFO if new.state == "online" else logging.ERROR
            log.log(level, "zone %s is %s: %s", new.name, new.state, new.reason or "it answers")
            zone.has_changed = True
        if _differs(before, new) or zone.version is None:
            await self.save(zone, new)
        else:
            zone.item = new

    async def _probe(self, item: ZoneItem) -> Probe:
        store = self._zones.store(item.name)
        probe = self._world.new_id().hex()
        key, began_s = keys.zone_probe(probe), self._world.monotonic_s()
        has_marker = True
        try:
            async with asyncio.timeout(self._settings.controller_probe_timeout_s):
                await store.put(key, [probe.encode()])
                if await store.get(key) != probe.encode():
                    return Probe(error="it gave back other bytes than were written")
                await store.delete([key])
                if item.marker:
                    try:
                        marker = await store.get(keys.zone_marker(item.marker))
                    except ObjectMissing:
                        has_marker = False
                    else:
                        if marker != item.name.encode():
                            return Probe(error="its marker is that of another zone")
        except TimeoutError:
            limit_s = self._settings.controller_probe_timeout_s
            return Probe(error=f"a probe took more than {limit_s:g} s")
        except RiachoError as error:
            return Probe(error=str(error))
        took_ms = int((self._world.monotonic_s() - began_s) * 1000)
        return Probe(has_marker=has_marker, latency_ms=took_ms)

    async def _with_marker(self, item: ZoneItem) -> ZoneItem:
        """Write a new marker to the zone; if that fails, return the item without one."""
        marker = self._world.new_id().hex()
        try:
            async with asyncio.timeout(self._settings.controller_probe_timeout_s):
                store = self._zones.store(item.name)
                await store.put(keys.zone_marker(marker), [item.name.encode()])
        except (RiachoError, TimeoutError):
            return item
        return msgspec.structs.replace(item, marker=marker)


def _differs(before: ZoneItem, new: ZoneItem) -> bool:
    """Whether `new` is worth a write."""
    if new.checked_ms - before.checked_ms >= REFRESHED_MS:
        return True
    counted = {"checked_ms": 0, "latency_ms": 0, "successes": 0}
    if new.state == "offline":
        counted.pop("successes")
    same = msgspec.structs.replace(before, **counted) == msgspec.structs.replace(new, **counted)
    return not same
