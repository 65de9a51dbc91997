"""Brings lanes of a zone back in sync: copies what is missing, then adds the zone to the ISR.

Writes to a lane continue while it is copied. Gateways write new objects to the zone too, so less
is missing in every round. When nothing is missing, one compare-and-set, fenced by the lease, adds
the zone to the ISR. It fails if the head has changed meanwhile; the next round looks only at what
changed.
"""

import logging
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from service.controller.leading import keep_lease, while_leading
from service.settings import Settings
from service.world.clock import World
from storage.errors import Contended, RiachoError, StoreUnavailable
from storage.formats import zone_sets
from storage.head import head as heads
from storage.head import replication
from storage.head.changes import change_head
from storage.head.head import Head
from storage.lanes.rolls import TRUSTED_S
from storage.leases import Lease, LeaseLost
from storage.resync import inventory
from storage.resync.memory import ResyncMemory
from storage.resync.resync import Rate, Resync, ResyncProgress
from storage.stores.metadata import MetadataStore
from storage.zones.items import ResyncStatus, ZoneItem
from storage.zones.zones import Zones

log = logging.getLogger("riacho.controller")

ROUNDS_MAX: Final = 20
"""Maximum rounds per step for a lane that is written all the time."""

SETTLE_S: Final = 2 * TRUSTED_S
"""Minimum time between noticing that a zone was wiped and adding it to an ISR. Writes from before
the wipe are then committed, or are checked again before their commit (`TRUSTED_S`). So what later
commits list for the zone is true."""


PROGRESS_LOG_S: Final = 30.0
"""Minimum time between log lines about the progress of a zone."""


@dataclass(slots=True)
class _Zone:
    known: ResyncMemory
    marker: str
    since_s: float
    progress: ResyncProgress = field(default_factory=ResyncProgress)
    error: str = ""
    logged_s: float = 0.0
    logged_objects: int = 0
    """Objects that had been checked at the last log line."""


class CatchUp:
    def __init__(
        self, settings: Settings, zones: Zones, metadata: MetadataStore, lease: Lease, world: World
    ) -> None:
        self._metadata = metadata
        self._lease = lease
        self._world = world
        rate = Rate(settings.controller_resync_bytes_per_s, world.monotonic_s, world.sleep)
        self.resync = Resync(
            zones,
            rate=rate,
            copies_at_once=settings.controller_resync_copies,
            monotonic_s=world.monotonic_s,
        )
        self._zones: dict[str, _Zone] = {}

    async def lane(self, key: str, item: ZoneItem, until_s: float) -> bool:
        """Bring the zone in sync with a lane; return whether there is nothing left to do.

        Raises `LeaseLost`. Other errors are reported by `status`, and retried later.
        """
        zone = self._zone(item)
        lost = zone.progress.lost
        try:
            done = await self._lane(key, item.name, zone, until_s)
        except LeaseLost:
            raise
        except RiachoError as error:
            zone.error = str(error)
            return False
        zone.error = ""
        if zone.progress.lost > lost:
            log.error("%s refers to what no zone holds any more: %s", key, zone.progress.lost_keys)
        return done

    async def complete(self, key: str, wanted: Collection[bytes]) -> None:
        """Copy inline objects to the zones in sync that lack them, and record it in the head."""
        stored = await self._metadata.get(key) if wanted else None
        if stored is None:
            return
        head = heads.decode(stored.value, key)
        # Objects hidden meanwhile are not needed: record them as held by every zone in sync.
        hidden = set(wanted) - replication.visible_objects(head)
        copies = dict.fromkeys(sorted(hidden), head.isr)
        for ref in inventory.inline(head).references:
            if ref.object_id not in wanted:
                continue
            # Only zones in sync: a wiped zone may lack what an older run lists for it.
            copies[ref.object_id] = ref.zones & head.isr
            for name in replication.zone_names(head, zone_sets.without(head.isr, ref.zones)):
                progress = ResyncProgress()
                with suppress(StoreUnavailable):
                    await self.resync.copy(head, ref, name, progress)
                    if not progress.lost:
                        copies[ref.object_id] |= replication.zones_named(head, [name])
        await keep_lease(self._lease)
        with suppress(Contended):
            await change_head(
                self._metadata,
                key,
                lambda now: replication.with_copies(now, copies),
                self._lease.transact,
            )

    def wait(self, item: ZoneItem, why: str) -> None:
        """Record why the controller does not continue with the zone now."""
        self._zone(item).error = why

    def log_progress(self, item: ZoneItem, lanes_behind: int) -> None:
        """Log the progress of the zone, or why there is none.

        At most once in `PROGRESS_LOG_S`.
        """
        zone, now_s = self._zone(item), self._world.monotonic_s()
        if now_s - zone.logged_s < PROGRESS_LOG_S:
            return
        done = zone.progress
        has_stopped = done.objects_checked == zone.logged_objects
        zone.logged_s, zone.logged_objects = now_s, done.objects_checked
        log.log(
            logging.WARNING if has_stopped else logging.INFO,
            "zone %s %s: behind in %d lanes, %d objects checked, %d copied%s",
            item.name,
            "does not get on" if has_stopped else "catches up",
            lanes_behind,
            done.objects_checked,
            done.objects_copied,
            f"; {zone.error}" if zone.error else "",
        )

    def status(self, item: ZoneItem, lanes_behind: int) -> ResyncStatus:
        zone = self._zone(item)
        done = zone.progress
        return ResyncStatus(
            lanes_behind=lanes_behind,
            objects_checked=done.objects_checked,
            objects_copied=done.objects_copied,
            bytes_copied=done.bytes_copied,
            lost=done.lost,
            lost_keys=list(done.lost_keys),
            error=zone.error,
        )

    def forget(self, name: str) -> None:
        """Drop what is known of a zone: it may be outdated, or is not needed any more."""
        self._zones.pop(name, None)

    def _zone(self, item: ZoneItem) -> _Zone:
        zone = self._zones.get(item.name)
        # A new marker means that the objects seen before are gone.
        if zone is None or zone.marker != item.marker or zone.known.trusts_commits != item.is_whole:
            known, now_s = ResyncMemory(trusts_commits=item.is_whole), self._world.monotonic_s()
            zone = self._zones[item.name] = _Zone(known, item.marker, now_s, logged_s=now_s)
        return zone

    async def _lane(self, key: str, name: str, zone: _Zone, until_s: float) -> bool:
        for _ in range(ROUNDS_MAX):
            has_settled = self._world.monotonic_s() >= zone.since_s + SETTLE_S
            stored = await self._metadata.get(key)
            if stored is None:
                return True
            head = heads.decode(stored.value, key)
            if has_settled:
                zone.known.believe_after(head)
            is_only_one = replication.zone_names(head, head.isr) == [name]
            if not _wants(head, name) and not (is_only_one and not zone.known.trusts_commits):
                return True
            copying = self.resync.lane(head, name, zone.known, zone.progress, until_s)
            if not await while_leading(self._lease, copying):
                return False
            if is_only_one:
                return True
            if not zone.known.trusts_commits and not has_settled:
                return False
            await keep_lease(self._lease)
            if await self._let_in(key, name, zone.known, head):
                return True
        raise Contended(f"{key} got ahead {ROUNDS_MAX} times in a row")

    async def _let_in(self, key: str, name: str, known: ResyncMemory, walked: Head) -> bool:
        """Add the zone to the ISR if nothing is missing; return whether it is not behind any more.

        `walked` is the head whose objects were copied.
        """
        held = known.held(walked)

        def change(head: Head) -> Head:
            if not _wants(head, name) or known.is_outdated(head):
                return head
            if replication.lacks(head, head.zones.index(name), held):
                return head
            return replication.with_zone(head, head.zones.index(name), held)

        new = await change_head(self._metadata, key, change, self._lease.transact)
        return new is None or not _wants(new, name)


def _wants(head: Head, name: str) -> bool:
    """Whether the zone is a replica that is not in sync."""
    behind = zone_sets.without(replication.replica_zones(head), head.isr)
    return bool(behind & replication.zones_named(head, [name]))
