"""The controller: the process that holds its lease keeps partitions available when zones fail.

Gateways run a tick every few seconds; a scheduled function may run it as well:

    lease     renew or take it; without it nothing below is done
    zones     probe each: write, read back, remove, and look for the marker
    lanes     remove failed zones from the ISR and replaced replicas; unclean elections, if allowed
    catch-up  copy to zones that are behind what they lack, for a few seconds at a time
    verify    check that zones in sync hold what the index names, some objects at a time
    gateways  remove the items of gateways that stopped sending heartbeats

Every write checks the lease in the same transaction. So the decisions of a controller that was
paused, throttled or partitioned away have no effect once another process has taken over.

Preferred leaders need no balancing: leaders are derived from the ISR (storage/head/replication.py).
"""

import logging
from collections.abc import Collection
from contextlib import suppress
from typing import Final

import msgspec

from service.controller import survey
from service.controller.catch_up import CatchUp
from service.controller.leading import keep_lease
from service.controller.live_gateways import Observed
from service.controller.survey import Counts
from service.controller.verification import Verification
from service.controller.zone_watch import WatchedZone, ZoneWatch
from service.settings import Settings
from service.world.clock import World
from storage import keys
from storage.errors import (
    Contended,
    MetadataConflict,
    NotEnoughReplicas,
    RiachoError,
)
from storage.formats import zone_sets
from storage.formats.zone_sets import EVERYWHERE
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
        """Keys of heads and names of their replica zones that are not in sync; next to do first."""
        self._filled: set[tuple[str, str]] = set()
        """Keys of heads and the only zone in sync, which was wiped and has been refilled."""
        self._incomplete: dict[str, frozenset[bytes]] = {}
        """By key of a head: objects that some zone in sync lacked in the last scan."""
        self._scan_due_s = 0.0
        self._gateways = Observed(settings, metadata, world)
        self._beats: dict[str, tuple[str, float]] = {}
        """By key: the version of a gateway's item, and since when it is known to be unchanged."""
        self.counts = Counts()

    async def run(self) -> None:
        """Call `tick` periodically until cancelled; what fails is retried in the next tick."""
        while self._settings.controller_interval_s:
            try:
                await self.tick()
            except RiachoError as error:
                log.warning("a tick of the controller failed: %s", error)
            except Exception:
                log.exception("a tick of the controller failed")
            # Jitter, so that gateways do not all run at the same moment.
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
        """Release the lease, so that another process can take over at once."""
        await self.lease.release()

    def _forget(self) -> None:
        """Drop cached state: another controller may change it meanwhile."""
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
        """Scan all lanes: change heads that must change, and record the zones that are behind."""
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
                # Only objects that the last scan found, too: their writer has given up, or died.
                await self._catch_up.complete(key, missing & self._incomplete.get(key, frozenset()))
        self.counts, self._incomplete = counts, incomplete
        # Lanes that were waiting before keep their place in the queue.
        self._behind = {each: None for each in self._behind if each in behind} | behind
        for name, zone in zones.items():
            await self._after_scan(zone, {n for _, n in behind}, is_relied_on=name in relied_on)

    async def _decided(
        self, topic: Topic, key: str, seen: Head, away: Collection[str]
    ) -> Head | None:
        """Apply `decide` to the head and return the new one; None if the head does not exist."""

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
            _log_election(topic, seen, head, away)
        return head

    def _names_behind(self, key: str, head: Head, zones: dict[str, WatchedZone]) -> list[str]:
        behind = zone_sets.without(replication.replica_zones(head), head.isr)
        if zone_sets.count(head.isr) == 1:
            # A wiped zone that could not leave the ISR, being the only one in it, must be refilled.
            [only] = replication.zone_names(head, head.isr)
            if only in zones and not zones[only].item.is_whole and (key, only) not in self._filled:
                behind |= head.isr
        return [name for name in replication.zone_names(head, behind) if name in zones]

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
                # Move it to the end, so that a lane that is never done does not delay the others.
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
            self._catch_up.log_progress(zone.item, lanes)
        if status != zone.item.resync:
            await self._watch.save(zone, msgspec.structs.replace(zone.item, resync=status))

    # Gateways

    async def _expire_gateways(self) -> None:
        """Remove items of gateways whose version has not changed for long, by this clock alone."""
        began_s, seen = self._world.monotonic_s(), self._beats
        self._beats = {}
        items = await self._metadata.list(keys.GATEWAYS)
        # A new version may have been written as late as the end of the call. A version seen again
        # was unchanged until the call began. So the time of the call never counts as silence.
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
    """Return the head with all changes that need no copying; `head` itself if there are none."""
    gone = replication.zones_named(head, away)
    new = head
    if len(head.replicas) < topic.replication_factor:
        new = replication.with_factor(new, topic.replication_factor, list(names))
    try:
        new = replication.without_zones(new, gone)
    except NotEnoughReplicas:
        alive = zone_sets.without(EVERYWHERE, gone)
        if topic.config.may_elect_unclean and replication.replica_zones(new) & alive:
            return replication.elected(new, alive)
    return replication.settled(new, topic.replication_factor)


def _troubled(zones: dict[str, WatchedZone]) -> list[str]:
    """Return the zones that are not online, fail probes, or were wiped and are not refilled yet."""
    return [
        name
        for name, zone in zones.items()
        if zone.item.state != "online" or zone.item.failures or not zone.item.is_whole
    ]


def _obstacle(item: ZoneItem, distrusted: Collection[str]) -> str:
    """Return why the zone should not enter an ISR now; empty: no reason."""
    if item.failures:
        return f"its last probe failed: {item.reason}"
    if item.name in distrusted:
        return "a gateway cannot reach it, and would only throw it out again"
    return ""


def _log_election(topic: Topic, before: Head, after: Head, away: Collection[str]) -> None:
    if not before.isr & after.isr:
        gone = replication.zones_named(before, away)
        lost = replication.lost(before, zone_sets.without(EVERYWHERE, gone))
        log.error(
            "unclean election for %s, lane %d: out of reach are at least %s",
            topic.name,
            before.lane,
            [(topic.partition_of(before.lane, p.partition), p.start, p.end) for p in lost],
        )
