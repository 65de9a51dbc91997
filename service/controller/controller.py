"""The controller: whoever holds its lease sees to it that partitions survive their zones.

A tick, which a gateway does every few seconds and a scheduled function may do as well:

    lease     renew or take it; without it nothing below is done
    zones     probe each: write, read back, remove, and look for the marker
    lanes     zones that fail leave the ISR; replaced replicas go; unclean elections, if allowed
    catch-up  zones that are behind get what they lack, for a few seconds at a time
    verify    zones in sync are asked whether they hold what the index names, some objects at a time
    gateways  items of gateways that fell silent are removed

Every write checks the lease in the same transaction. So whatever a controller decided before it
was paused, throttled or partitioned away has no effect once another one has taken over.

Preferred leaders need no balancing: leaders are derived from the ISR (storage/head/replication.py).
"""

import logging
from collections.abc import Collection
from contextlib import suppress
from typing import Final

import msgspec

from service.clock import World
from service.controller import survey
from service.controller.catch_up import CatchUp
from service.controller.leading import keep_lease
from service.controller.live_gateways import Observed
from service.controller.survey import Counts
from service.controller.verification import Verification
from service.controller.zone_watch import WatchedZone, ZoneWatch
from service.settings import Settings
from storage.errors import (
    Contended,
    MetadataConflict,
    NotEnoughReplicas,
    RiachoError,
)
from storage.head import replication
from storage.head.changes import change_head
from storage.head.head import Head
from storage.leases import Lease, LeaseLost
from storage.stores.metadata import Delete, MetadataStore
from storage.topics.topics import Topic, Topics
from storage.zones import items as zone_items
from storage.zones.items import ZoneItem
from storage.zones.zones import Zones

log = logging.getLogger("riacho.controller")

LEASE: Final = "controller"


class Controller:
    def __init__(
        self,
        settings: Settings,
        zones: Zones,
        metadata: MetadataStore,
        topics: Topics,
        world: World,
        holder: str,
    ) -> None:
        self._settings = settings
        self._zones = zones
        self._metadata = metadata
        self._topics = topics
        self._world = world
        self.lease = Lease(
            metadata,
            LEASE,
            holder=holder,
            lease_s=settings.controller_lease_s,
            monotonic_s=world.monotonic_s,
            now_ms=world.now_ms,
            about=settings.advertised_url,
        )
        self._watch = ZoneWatch(settings, zones, metadata, self.lease, world)
        self._catch_up = CatchUp(settings, zones, metadata, self.lease, world)
        self._verification = Verification(
            settings, zones, metadata, topics, self.lease, world, self._catch_up.resync
        )
        self._behind: dict[tuple[str, str], None] = {}
        """Keys of heads and names of zones that are replicas, but not in sync; next one first."""
        self._filled: set[tuple[str, str]] = set()
        """Lanes whose only zone in sync had lost everything, and got back what there was."""
        self._incomplete: dict[str, frozenset[bytes]] = {}
        """By key of a head: objects that zones in sync did not hold yet in the last scan."""
        self._scan_due_s = 0.0
        self._gateways = Observed(settings, metadata, world)
        self._beats: dict[str, tuple[str, float]] = {}
        """Versions of gateways' items, and when each was seen first."""
        self.counts = Counts()

    async def run(self) -> None:
        """Tick until cancelled; what fails is tried again with the next one."""
        while self._settings.controller_interval_s:
            try:
                await self.tick()
            except RiachoError as error:
                log.warning("a tick of the controller failed: %s", error)
            except Exception:
                log.exception("a tick of the controller failed")
            # Not all gateways at the same moment.
            pause_s = self._settings.controller_interval_s * (0.9 + 0.2 * self._world.random())
            await self._world.sleep(pause_s)

    async def tick(self) -> bool:
        """Do what is due; return False if this process is not the controller."""
        if not await self.lease.keep():
            self._forget()
            return False
        try:
            zones = await self._watch.look()
            for name in [name for name, zone in zones.items() if zone.has_changed]:
                self._filled = {each for each in self._filled if each[1] != name}
                self._scan_due_s = 0.0
            # With one zone there is nothing to decide.
            if len(zones) > 1 and self._scan_due_s <= self._world.monotonic_s():
                await self._scan(zones)
            await self._catch_lanes_up(zones)
            if len(zones) > 1:
                await self._verification.step(_troubled(zones))
            await self._expire_gateways()
        except LeaseLost as error:
            log.warning("no longer the controller: %s", error)
            self._forget()
            return False
        return True

    @property
    def is_behind(self) -> bool:
        """Whether there is something to copy."""
        return bool(self._behind)

    async def leave(self) -> None:
        """Let another one take over at once."""
        await self.lease.release()

    def _forget(self) -> None:
        """Drop what another controller may change meanwhile."""
        self._behind.clear()
        self._filled.clear()
        self._incomplete.clear()
        self._beats.clear()
        self._scan_due_s = 0.0
        self._verification.forget()
        for name in self._zones.names:
            self._catch_up.forget(name)

    # Lanes

    async def _scan(self, zones: dict[str, WatchedZone]) -> None:
        """Go through all lanes: change what must change, and note who is behind."""
        self._scan_due_s = self._world.monotonic_s() + self._settings.controller_scan_s
        away = {name for name, zone in zones.items() if zone.item.state != "online"}
        topics = await self._topics.all()
        counts, relied_on = Counts(topics=len(topics)), set[str]()
        behind: dict[tuple[str, str], None] = {}
        incomplete: dict[str, frozenset[bytes]] = {}
        async for topic, key, seen in survey.lanes(self._metadata, topics):
            await keep_lease(self.lease)
            head = await self._decided(topic, key, seen, away)
            if head is None:
                continue
            counts.add(topic, head, away)
            in_sync = replication.zone_names(head, head.isr)
            relied_on.update(in_sync if len(in_sync) > 1 else ())
            for name in self._names_behind(key, head, zones):
                behind[key, name] = None
            if missing := replication.incomplete(head):
                incomplete[key] = missing
                # Those seen before too: whoever wrote them has given up, or died.
                await self._catch_up.complete(key, missing & self._incomplete.get(key, frozenset()))
        self.counts, self._incomplete = counts, incomplete
        # Whose turn it is does not begin anew with every scan.
        self._behind = {each: None for each in self._behind if each in behind} | behind
        for name, zone in zones.items():
            await self._after_scan(zone, {n for _, n in behind}, is_relied_on=name in relied_on)

    async def _decided(
        self, topic: Topic, key: str, seen: Head, away: Collection[str]
    ) -> Head | None:
        """Return the head after what has to be decided about it was; None if it is gone."""

        def change(head: Head) -> Head:
            return decide(head, topic, away, self._zones.names)

        if change(seen) is seen:
            return seen
        try:
            head = await change_head(self._metadata, key, change, self.lease.transact)
        except Contended:
            self._scan_due_s = 0.0
            return seen
        if head is not None:
            _tell(topic, seen, head, away)
        return head

    def _names_behind(self, key: str, head: Head, zones: dict[str, WatchedZone]) -> list[str]:
        mask = replication.replica_mask(head) & ~head.isr
        if head.isr.bit_count() == 1:
            # A zone that lost what it held but could not leave the ISR has to be filled, too.
            [only] = replication.zone_names(head, head.isr)
            if only in zones and not zones[only].item.is_whole and (key, only) not in self._filled:
                mask |= head.isr
        return [name for name in replication.zone_names(head, mask) if name in zones]

    async def _after_scan(
        self, zone: WatchedZone, behind: Collection[str], *, is_relied_on: bool
    ) -> None:
        item, now_ms = zone.item, self._world.now_ms()
        if item.state == "wiped" and not is_relied_on:
            await self._watch.save(zone, zone_items.left_every_isr(item, now_ms))
        elif item.state == "online" and item.name not in behind:
            self._catch_up.forget(item.name)
            if item != zone_items.restored(item):
                log.info("zone %s is in sync with all its lanes", item.name)
                await self._watch.save(zone, zone_items.restored(item))

    # Catching up

    async def _catch_lanes_up(self, zones: dict[str, WatchedZone]) -> None:
        if not self._behind:
            return
        distrusted = await self._gateways.failing_zones()
        until_s = self._world.monotonic_s() + self._settings.controller_step_s
        for key, name in list(self._behind):
            if self._world.monotonic_s() >= until_s:
                break
            zone = zones.get(name)
            if zone is None or zone.item.state != "online":
                continue
            if obstacle := _obstacle(zone.item, distrusted):
                self._catch_up.wait(zone.item, obstacle)
                continue
            await keep_lease(self.lease)
            is_done = await self._catch_up.lane(key, zone.item, until_s)
            del self._behind[key, name]
            if not is_done:
                # Behind the others, so that one that is never done keeps none of them waiting.
                self._behind[key, name] = None
            elif not zone.item.is_whole:
                self._filled.add((key, name))
        if not self._behind:
            self._scan_due_s = 0.0
        for zone in zones.values():
            await self._save_progress(zone)

    async def _save_progress(self, zone: WatchedZone) -> None:
        lanes = sum(name == zone.item.name for _, name in self._behind)
        status = self._catch_up.status(zone.item, lanes)
        if zone.item.state != "online" or not (lanes or status.lost):
            return
        if lanes:
            self._catch_up.tell(zone.item, lanes)
        if status != zone.item.resync:
            await self._watch.save(zone, msgspec.structs.replace(zone.item, resync=status))

    # Gateways

    async def _expire_gateways(self) -> None:
        """Remove items of gateways whose versions stood still for long, by this clock alone."""
        began_s, seen = self._world.monotonic_s(), self._beats
        self._beats = {}
        items = await self._metadata.list("gateway/")
        # A version seen first may have been written until now; one seen again stood still until
        # the call began. Nothing else is certain, however long the answer took.
        ended_s = self._world.monotonic_s()
        for key, item in items:
            version, since_s = seen.get(key, (item.version, ended_s))
            if version != item.version:
                since_s = ended_s
            self._beats[key] = item.version, since_s
            if began_s - since_s >= self._settings.controller_gateway_expiry_s:
                with suppress(MetadataConflict):
                    await self.lease.transact([Delete(key, item.version)])
                    log.info("removed a gateway that fell silent: %s", key)


def decide(head: Head, topic: Topic, away: Collection[str], names: Collection[str]) -> Head:
    """Return the head as it should be, as far as that needs no copying; `head` if it is so."""
    mask = replication.mask_of(head, away)
    new = head
    if len(head.replicas) < topic.replication_factor:
        new = replication.with_factor(new, topic.replication_factor, list(names))
    try:
        new = replication.without_zones(new, mask)
    except NotEnoughReplicas:
        if topic.config.may_elect_unclean and replication.replica_mask(new) & ~mask:
            return replication.elected(new, ~mask)
    return replication.settled(new, topic.replication_factor)


def _troubled(zones: dict[str, WatchedZone]) -> list[str]:
    """Return the zones that are away, fail, or have lost something that is not copied back yet."""
    return [
        name
        for name, zone in zones.items()
        if zone.item.state != "online" or zone.item.failures or not zone.item.is_whole
    ]


def _obstacle(item: ZoneItem, distrusted: Collection[str]) -> str:
    """Return why the zone should not be let in now, or nothing."""
    if item.failures:
        return f"its last probe failed: {item.reason}"
    if item.name in distrusted:
        return "a gateway cannot reach it, and would only throw it out again"
    return ""


def _tell(topic: Topic, before: Head, after: Head, away: Collection[str]) -> None:
    if not before.isr & after.isr:
        lost = replication.lost(before, ~replication.mask_of(before, away))
        log.error(
            "unclean election for %s, lane %d: out of reach are at least %s",
            topic.name,
            before.lane,
            [(topic.lane_partitions * before.lane + p.partition, p.start, p.end) for p in lost],
        )
