"""Rolling a head: moving runs that no longer fit in it into index objects.

A roll is prepared in parallel with appends. It writes objects that are not referenced yet, and
the next commit references them in the head. A roll overtaken by another process or by compaction
is dropped and leaves orphans. Commits wait for a roll only when the head has grown far beyond
its limit.

Only the process whose commit crosses the limit begins a roll, as only one roll can be used. If
it fails, the process that commits next begins another one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

from storage.errors import RiachoError
from storage.formats import zone_sets
from storage.formats.zone_sets import ZoneSet
from storage.head import head as heads
from storage.head import replication
from storage.head.head import Head
from storage.head.roots import Overtaken, Roll
from storage.lanes.watch import LaneRuntime

FLIGHT_MAX_S: Final = 600.0
"""Maximum age of an object that is committed: the sweeper removes unreferenced objects that are
a good deal older as orphans, and a process may have been suspended before its commit."""

OVERDUE: Final = 2
"""Beyond this multiple of the limit the responsible process has failed, and any process rolls."""

HARD: Final = 8
"""Beyond this multiple of the limit commits wait for the roll, to bound the size of the head."""


TRUSTED_S: Final = 15.0
"""Objects older than this are looked up, or written again, before they are committed: a zone that
stored one may have been wiped since and be in sync again. Coming in sync takes twice as long
(service/controller/catch_up.py)."""

Failed: TypeAlias = Callable[[ZoneSet, int], None]
"""Called with the zones in sync that did not store an object, and the head's `leader_epoch`. The
object cannot be committed before these zones have left the ISR."""


class Rolls:
    """The rolls of one lane by this process."""

    def __init__(
        self, runtime: LaneRuntime, finished: Callable[[], Awaitable[object]], failed: Failed
    ) -> None:
        self._runtime = runtime
        self._finished = finished
        """Called when a roll can be applied, in case this process has no commit that does so."""
        self._failed = failed
        self._running: asyncio.Task[None] | None = None
        self._done: tuple[Roll, float] | None = None

    def begin_if_large(self, before: Head, new: Head) -> None:
        """Begin a roll if the head has just crossed the limit, or is overdue (`OVERDUE`)."""
        new_bytes = heads.inline_bytes(new)
        bytes_max = self._runtime.inline_bytes_max
        has_crossed = heads.inline_bytes(before) <= bytes_max < new_bytes
        if not has_crossed and new_bytes <= OVERDUE * bytes_max:
            return
        # If a finished roll still applies, another one would be thrown away.
        if self._running is None and self.applied(new) is new:
            self._running = self._runtime.spawn(self._roll(new))

    async def _roll(self, head: Head) -> None:
        try:
            self._done = await self._rolled(head)
        except RiachoError:
            # The head is unchanged. The next commit retries.
            return
        finally:
            self._running = None
        await self._finished()

    async def _rolled(self, head: Head) -> tuple[Roll, float]:
        born_s = self._runtime.monotonic_s()
        roll = await self._runtime.catalog.roll(head)
        if failed := zone_sets.without(head.isr, roll.zones):
            self._failed(failed, head.leader_epoch)
        return roll, born_s

    async def ready(self, head: Head) -> Head:
        """Return `head` with the finished roll applied; wait for a roll if it is far too large."""
        if heads.inline_bytes(head) > HARD * self._runtime.inline_bytes_max:
            if self._running is not None:
                await asyncio.wait([self._running])
            if self.applied(head) is head:
                # Zones that still lack the oldest run are not in sync.
                head = replication.without_laggards(head)
                # If overtaken, this head is stale. The commit conflict will return the new one.
                with suppress(Overtaken):
                    self._done = await self._rolled(head)
        return self.applied(head)

    def applied(self, head: Head) -> Head:
        """Return `head` with the finished roll applied, or `head` itself if there is none."""
        if self._done is None:
            return head
        roll, born_s = self._done
        new = roll.applied_to(head)
        age_s = self._runtime.monotonic_s() - born_s
        if new is None or not is_trusted(head, roll.leader_epoch, age_s):
            # Our roll becomes an orphan, unless this head already references it.
            self.committed(head)
            self._done = None
            return head
        return new

    def committed(self, head: Head) -> None:
        """If the committed `head` includes the roll, remove the batches that the roll moved."""
        if self._done is None or self._done[0].new_root != head.root:
            return
        roll, _ = self._done
        self._done = None
        if roll.removals:
            assert self._runtime.catalog.batches is not None
            self._runtime.spawn(self._runtime.catalog.batches.remove(roll.removals))


def is_trusted(head: Head, leader_epoch: int, age_s: float) -> bool:
    """Whether objects written `age_s` ago, under `leader_epoch`, are still in their zones.

    The sweeper removes objects that no head references and that are much older than
    `FLIGHT_MAX_S`. A zone that left the ISR since may have been wiped and have re-entered
    without them.
    """
    if age_s > FLIGHT_MAX_S:
        return False
    return age_s <= TRUSTED_S or head.leader_epoch == leader_epoch
