"""Verifies, at a bounded pace, that zones in sync hold all objects that they should.

The controller does a step with every tick. A pass over all lanes begins `controller_verify_every_s`
after the previous one began. Its progress and findings are stored in an item of the table, so that
the next controller continues the pass and a restart does not pay for a new one.
"""

import logging
from collections import deque
from collections.abc import Collection
from typing import Final

import msgspec

from service.controller.leading import while_leading
from service.settings import Settings
from service.world.clock import World
from storage import keys
from storage.errors import Corrupt, RiachoError
from storage.formats import frames
from storage.head import head as heads
from storage.head.head import Head
from storage.leases import Lease, LeaseLost
from storage.resync.resync import Resync
from storage.resync.verifying import Findings, LaneProgress, Verifier
from storage.stores.metadata import MetadataStore, Put
from storage.topics.topics import Topics
from storage.zones.zones import Zones

log = logging.getLogger("riacho.controller")

LANE_ATTEMPTS_MAX: Final = 100
"""Maximum ticks for which an unreadable lane holds up the pass; then it is skipped. A zone in sync
that fails leaves the ISR much sooner."""

SAVED_MS: Final = 60_000
"""Minimum time between writes of the item while nothing is found."""

LOST_NAMED_MAX: Final = 20

_MAGIC: Final = b"RVF1"


class VerificationItem(msgspec.Struct, frozen=True, kw_only=True):
    began_ms: int = 0
    finished_ms: int = 0
    """0: the pass is running, or none has begun."""
    passes: int = 0
    """Number of finished passes."""
    saved_ms: int = 0
    after: str = ""
    """Lanes up to this key are done."""
    objects: int = 0
    """Objects that this pass has checked."""
    skipped: int = 0
    """Lanes that this pass skipped, because a zone or the index could not be read."""
    repaired: int = 0
    """Copies that zones in sync lacked and got from another zone, over all passes."""
    lost: int = 0
    """Objects found in this pass that no zone holds any more."""
    lost_keys: list[str] = []


class Verification:
    def __init__(
        self,
        settings: Settings,
        zones: Zones,
        metadata: MetadataStore,
        topics: Topics,
        lease: Lease,
        world: World,
        resync: Resync,
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._topics = topics
        self._lease = lease
        self._world = world
        self._verifier = Verifier(zones, resync, self._head)
        self._item = VerificationItem()
        self._version: str | None = None
        self._is_loaded = False
        self._lanes: deque[str] | None = None
        """Keys of heads that are left in this pass; None: not listed yet."""
        self._lane: LaneProgress | None = None
        self._attempts = 0
        """Consecutive steps in which that lane could not be read."""

    def forget(self) -> None:
        """Drop cached state: another controller may change it meanwhile."""
        self._is_loaded = False
        self._lanes = self._lane = None

    async def step(self, avoided: Collection[str]) -> None:
        """Verify some objects; a lane that relies on an `avoided` zone holds the pass up.

        Raises `LeaseLost`, and what the table raises.
        """
        if not self._settings.controller_verify_every_s:
            return
        if not self._is_loaded:
            await self._load()
        if self._is_between_passes():
            return
        if self._item.finished_ms or not self._item.began_ms:
            began = VerificationItem(
                began_ms=self._world.now_ms(),
                passes=self._item.passes,
                repaired=self._item.repaired,
            )
            await self._save(began)
        if self._lanes is None:
            self._lanes = deque(await self._lanes_after(self._item.after))
        item = await self._advanced(self._item, avoided)
        is_news = (item.repaired, item.lost) != (self._item.repaired, self._item.lost)
        is_old = self._world.now_ms() - item.saved_ms >= SAVED_MS
        if item.finished_ms or is_news or is_old:
            await self._save(item)
        else:
            self._item = item
        if item.finished_ms:
            self._lanes = None
            log.info("verified %d objects, skipped %d lanes", item.objects, item.skipped)

    async def _advanced(self, item: VerificationItem, avoided: Collection[str]) -> VerificationItem:
        """Return the item after as many calls as one step may make."""
        assert self._lanes is not None
        found, left = Findings(), self._settings.controller_verify_calls
        after, skipped = item.after, item.skipped
        while left > 0 and (self._lane or self._lanes):
            lane = self._lane = self._lane or LaneProgress(self._lanes.popleft())
            step = self._verifier.step(lane, left, found, avoided)
            try:
                calls, is_done = await while_leading(self._lease, step)
            except LeaseLost:
                raise
            except RiachoError as error:
                # The next tick retries, unless that cannot help.
                self._attempts += 1
                is_done, calls = (
                    isinstance(error, Corrupt) or self._attempts >= LANE_ATTEMPTS_MAX,
                    left,
                )
                if is_done:
                    skipped += 1
                    log.error("%s cannot be verified, and is skipped: %s", lane.key, error)
            left -= calls
            if is_done:
                self._lane, self._attempts, after = None, 0, lane.key
        _report(found)
        is_finished = not (self._lane or self._lanes)
        return msgspec.structs.replace(
            item,
            after=after,
            skipped=skipped,
            objects=item.objects + found.objects,
            repaired=item.repaired + len(found.repaired),
            lost=item.lost + len(found.lost),
            lost_keys=[*item.lost_keys, *found.lost][:LOST_NAMED_MAX],
            passes=item.passes + is_finished,
            finished_ms=self._world.now_ms() if is_finished else 0,
        )

    def _is_between_passes(self) -> bool:
        if not self._item.finished_ms:
            return False
        # Clocks differ: a controller whose clock is far behind must not wait until it reaches the
        # time that another one recorded.
        passed_ms = abs(self._world.now_ms() - self._item.began_ms)
        return passed_ms < self._settings.controller_verify_every_s * 1000

    async def _lanes_after(self, key: str) -> list[str]:
        topics = await self._topics.all()
        found = sorted(keys.head(topic.topic_id, lane) for topic in topics for lane in topic.lanes)
        return [each for each in found if each > key]

    async def _head(self, key: str) -> Head | None:
        stored = await self._metadata.get(key)
        return None if stored is None else heads.decode(stored.value, key)

    async def _load(self) -> None:
        stored = await self._metadata.get(keys.verification())
        self._item = VerificationItem() if stored is None else decode(stored.value)
        self._version = None if stored is None else stored.version
        # Continue from the stored item: the last save may have failed, or its reply was lost.
        self._lanes = self._lane = None
        self._is_loaded = True

    async def _save(self, item: VerificationItem) -> None:
        item = msgspec.structs.replace(item, saved_ms=self._world.now_ms())
        # If this fails, or its reply is lost, the item is read again before it is written again.
        self._is_loaded = False
        key = keys.verification()
        versions = await self._lease.transact([Put(key, encode(item), self._version)])
        self._item, self._version, self._is_loaded = item, versions[key], True


async def current(metadata: MetadataStore) -> VerificationItem | None:
    """Return the progress of the verification; None if none has begun."""
    stored = await metadata.get(keys.verification())
    return None if stored is None else decode(stored.value)


def _report(found: Findings) -> None:
    for name in found.repaired:
        log.warning("a zone in sync lacked an object, which was copied from another: %s", name)
    for key in found.lost:
        log.error("no zone holds an object that the index names: %s", key)


_DECODER: Final = msgspec.msgpack.Decoder(VerificationItem)


def encode(item: VerificationItem) -> bytes:
    return frames.seal(_MAGIC, msgspec.msgpack.encode(item))


def decode(value: bytes) -> VerificationItem:
    return frames.unpack(_MAGIC, value, _DECODER, "the item of the verification")
