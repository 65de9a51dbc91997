"""Rolling a head: what no longer fits in it goes into index objects.

A roll is prepared beside the appends: it writes objects that nothing mentions, and the next
commit makes them count by naming them in the head. One that was overtaken, by another process
or by compaction, is dropped and leaves orphans. Only when the head has grown far beyond its
size do commits wait for it.

Of all processes only the one whose commit crosses the limit begins, as only one roll can count;
if it fails, whoever comes next does.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

from storage.errors import RiachoError
from storage.head import head as heads
from storage.head import replication
from storage.head.head import Head
from storage.head.roots import Overtaken, Roll
from storage.lanes.watch import LaneRuntime

FLIGHT_MAX_S: Final = 600.0
"""An object older than this is not committed any more: the sweeper takes what is unreferenced
and a good deal older for an orphan, and a process may have been asleep in between."""

OVERDUE: Final = 2
"""Beyond so many times its size, whoever was to roll the head has failed, and any process does."""

HARD: Final = 8
"""Beyond so many times its size, commits wait for the roll: it may not grow without bound."""


TRUSTED_S: Final = 15.0
"""What was written longer ago is looked for, or written again, before it is committed: a zone that
took it may have been emptied since, and be in sync again. That takes twice as long
(service/controller/catch_up.py)."""

Failed: TypeAlias = Callable[[int, int], None]
"""Told of zones in sync that did not take what was written, and the head's `leader_epoch`. What
they lack cannot count before they have left the ISR."""


class Rolls:
    """The rolls of one lane by this process."""

    def __init__(
        self, runtime: LaneRuntime, finished: Callable[[], Awaitable[object]], failed: Failed
    ) -> None:
        self._runtime = runtime
        self._finished = finished
        """Called when there is something to apply, for the case that nobody commits."""
        self._failed = failed
        self._running: asyncio.Task[None] | None = None
        self._done: tuple[Roll, float] | None = None

    def begin_if_large(self, before: Head, new: Head) -> None:
        """Begin a roll if the head has just become too large, or is so for long."""
        new_bytes = heads.inline_bytes(new)
        bytes_max = self._runtime.inline_bytes_max
        has_crossed = heads.inline_bytes(before) <= bytes_max < new_bytes
        if not has_crossed and new_bytes <= OVERDUE * bytes_max:
            return
        # A roll that was finished meanwhile will do; another one would be thrown away.
        if self._running is None and self.applied(new) is new:
            self._running = self._runtime.spawn(self._roll(new))

    async def _roll(self, head: Head) -> None:
        try:
            self._done = await self._rolled(head)
        except RiachoError:
            # The head is still whole. The next commit tries again.
            return
        finally:
            self._running = None
        await self._finished()

    async def _rolled(self, head: Head) -> tuple[Roll, float]:
        born_s = self._runtime.monotonic_s()
        roll = await self._runtime.catalog.roll(head)
        if head.isr & ~roll.zones:
            self._failed(head.isr & ~roll.zones, head.leader_epoch)
        return roll, born_s

    async def ready(self, head: Head) -> Head:
        """Return `head` with what is finished applied; wait for it if the head is far too large."""
        if heads.inline_bytes(head) > HARD * self._runtime.inline_bytes_max:
            if self._running is not None:
                await asyncio.wait([self._running])
            if self.applied(head) is head:
                # Zones that the oldest run has not reached by now are not in sync.
                head = replication.without_laggards(head)
                # Who was overtaken knows an old head. Its commit will be told the new one.
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
            # Ours stays an orphan, unless it counts already.
            self.committed(head)
            self._done = None
            return head
        return new

    def committed(self, head: Head) -> None:
        """Take note of a committed head: if the roll counts, what it moved can go."""
        if self._done is None or self._done[0].new_root != head.root:
            return
        roll, _ = self._done
        self._done = None
        if roll.removals:
            assert self._runtime.catalog.batches is not None
            self._runtime.spawn(self._runtime.catalog.batches.remove(roll.removals))


def is_trusted(head: Head, leader_epoch: int, age_s: float) -> bool:
    """Whether objects that were written so long ago, under that epoch, are still in their zones.

    A sweeper removes what no head names and is much older than `FLIGHT_MAX_S`. A zone that left
    the ISR since may have been wiped, and entered again without them.
    """
    if age_s > FLIGHT_MAX_S:
        return False
    return age_s <= TRUSTED_S or head.leader_epoch == leader_epoch
