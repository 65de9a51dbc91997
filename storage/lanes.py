"""Lanes at work: committing to heads in order, and rolling what no longer fits in them.

A commit is one compare-and-set on the head. What can go wrong, and what is done:

- *Someone else committed first.* The conflict carries the new head; append to that one.
- *No answer.* The write may have happened. If it did, our first slice sits exactly where the
  old head ended, because the write was conditional on that head; so one look at that offset
  tells. Until it has been told, nothing is reported: neither an error nor an offset.
- *A late duplicate.* Every attempt is conditional on one version of the head, so at most one
  of them lands. After an unanswered attempt every later conflict is checked for it.
- *The head is gone.* The topic was deleted, and nothing can be appended to it any more.

Commits of this process to one lane happen in the order in which they were enqueued, which is
the order of arrival; those that are ready together share one compare-and-set.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final
from weakref import WeakValueDictionary

from storage import head as heads
from storage import keys
from storage.catalog import Roll
from storage.entries import Kind
from storage.errors import (
    Contended,
    MetadataConflict,
    NotEnoughReplicas,
    OutcomeUnknown,
    RiachoError,
    ShuttingDown,
    StoreUnavailable,
    UnknownTopicOrPartition,
)
from storage.head import Head, Run
from storage.metadata import Put
from storage.watch import LaneRuntime, LaneView, WatchedHead

__all__ = ["Lane", "LaneRuntime", "LaneView", "Lanes", "Ticket"]

log = logging.getLogger("riacho")

COMMIT_S_MAX: Final = 15.0
"""How long a commit goes on losing races before it gives up. One of n writers wins each round,
so a time limit is what a caller feels; a number of attempts would only punish the unlucky."""

RUNS_PER_COMMIT_MAX: Final = 64
"""So many flushes share one compare-and-set at most."""

FLIGHT_MAX_S: Final = 600.0
"""An object older than this is not committed any more: the sweeper takes what is unreferenced
and a good deal older for an orphan, and a process may have been asleep in between."""

LANES_KEPT_MAX: Final = 16_384
"""So many lanes are remembered at most: those dealt with last, besides those in use."""

INLINE_BYTES_OVERDUE: Final = 2 * heads.INLINE_BYTES_MAX
"""Beyond this, whoever was to roll the head has failed, and any process does."""

INLINE_BYTES_HARD_MAX: Final = 8 * heads.INLINE_BYTES_MAX
"""Beyond this, commits wait for the roll: the head may not grow without bound."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A place in a lane's queue. Settle it with `ready` or `withdraw`."""

    settled: asyncio.Event = field(default_factory=asyncio.Event)
    run: Run | None = None
    born_s: float = 0.0
    committed: "asyncio.Future[dict[int, int]]" = field(init=False)
    """The first offset of every partition (within the lane) of the run."""

    def __post_init__(self) -> None:
        self.committed = asyncio.get_running_loop().create_future()

    def ready(self, run: Run) -> None:
        """Say that the run's object is durable: commit it in turn."""
        self.run = run
        self.settled.set()

    def withdraw(self) -> None:
        """There is nothing to commit; those behind may go on."""
        self.committed.cancel()
        self.settled.set()


class Lane(WatchedHead):
    """One lane, as this process knows it."""

    def __init__(self, topic_id: bytes, lane: int, runtime: LaneRuntime) -> None:
        super().__init__(keys.head(topic_id, lane), runtime)
        self._queue: deque[Ticket] = deque()
        self._committer: asyncio.Task[None] | None = None
        self._roller: asyncio.Task[None] | None = None
        self._rolled: tuple[Roll, float] | None = None

    def enqueue(self) -> Ticket:
        """Take the next place in the order of commits."""
        ticket = Ticket(born_s=self._runtime.monotonic_s())
        self._queue.append(ticket)
        if self._committer is None:
            self._committer = self._runtime.spawn(self._commit_queue())
        return ticket

    async def _commit_queue(self) -> None:
        try:
            while self._queue:
                await self._queue[0].settled.wait()
                await self._commit_tickets(self._take_settled())
        finally:
            self._committer = None
            # Empty, unless this task was cancelled: then nobody shall wait in vain.
            while self._queue:
                _fail(self._queue.popleft(), ShuttingDown("this gateway is shutting down"))

    def _take_settled(self) -> list[Ticket]:
        taken: list[Ticket] = []
        while self._queue and self._queue[0].settled.is_set() and len(taken) < RUNS_PER_COMMIT_MAX:
            ticket = self._queue.popleft()
            if ticket.run is None:
                continue
            if self._runtime.monotonic_s() - ticket.born_s > FLIGHT_MAX_S:
                _fail(ticket, _too_late())
                continue
            taken.append(ticket)
        return taken

    async def _commit_tickets(self, tickets: list[Ticket]) -> None:
        runs = [ticket.run for ticket in tickets if ticket.run is not None]
        if not runs:
            return
        try:
            bases = await self.commit(runs, min(ticket.born_s for ticket in tickets))
        except BaseException as error:
            for ticket in tickets:
                _fail(ticket, _told(error))
            if not isinstance(error, Exception):
                raise
            if not isinstance(error, RiachoError):
                # A mistake of ours. Those who wait behind must not be stuck because of it.
                log.exception("a commit to %s failed", self.key)
            return
        for ticket, base in zip(tickets, bases, strict=True):
            if not ticket.committed.done():
                ticket.committed.set_result(base)

    async def commit(self, runs: Sequence[Run], born_s: float) -> list[dict[int, int]]:
        """Append `runs` and return the first offset of every partition of each.

        `born_s` is when the oldest of their objects began. Raises `Contended` if others were
        always faster, `UnknownTopicOrPartition` if the topic is gone, what the stores raised,
        or `OutcomeUnknown` if an attempt was not answered and may still count.
        """
        doubt: LaneView | None = None
        try:
            view = self._view or await self._fresh()
            give_up_s = self._runtime.monotonic_s() + COMMIT_S_MAX
            for attempt in count():
                try:
                    return await self._try(view, runs, born_s)
                except MetadataConflict as conflict:
                    view = self._adopt(conflict.current[self.key], self._runtime.monotonic_s())
                except OutcomeUnknown:
                    doubt = view
                    view = await self._fresh()
                if doubt is not None and doubt.version != view.version:
                    if await self._landed(doubt.head, runs, view.head):
                        return heads.base_offsets(doubt.head, runs)
                    # Its version of the head is gone, so it cannot land any more either.
                    doubt = None
                if self._runtime.monotonic_s() > give_up_s:
                    break
                await self._runtime.back_off(attempt)
            raise Contended(f"others committed first for {COMMIT_S_MAX:.0f} s; send it again")
        except (UnknownTopicOrPartition, OutcomeUnknown):
            raise
        except RiachoError as error:
            if doubt is None:
                raise
            raise OutcomeUnknown(f"the commit was sent, its outcome is unknown: {error}") from error

    async def _try(
        self, view: LaneView, runs: Sequence[Run], born_s: float
    ) -> list[dict[int, int]]:
        head = await self._with_roll(view.head)
        began_s = self._runtime.monotonic_s()
        if began_s - born_s > FLIGHT_MAX_S:
            raise _too_late()
        if any(head.isr & ~run.zones for run in runs):
            # Where it was written is decided before it is committed, and a zone came in sync
            # in between: it must hold everything, and does not hold this.
            raise NotEnoughReplicas("a zone came in sync while it was written; send it again")
        new = heads.append(head, runs)
        put = Put(self.key, heads.encode(new), view.version)
        versions = await self._runtime.metadata.transact([put])
        self._know(LaneView(new, versions[self.key], began_s))
        self._roll_if_large(heads.inline_bytes(head), new)
        return heads.base_offsets(head, runs)

    async def _landed(self, old: Head, runs: Sequence[Run], now: Head) -> bool:
        """Whether an unanswered attempt to append `runs` to `old` is part of `now`."""
        piece = runs[0].slices[0]
        base = old.next_offsets[piece.partition]
        if now.next_offsets[piece.partition] <= base:
            return False
        found = await self._runtime.catalog.after(now, piece.partition, base)
        if not found or found[0].kind != Kind.ARROW or found[0].base_offset != base:
            raise OutcomeUnknown("the log was rewritten before the commit could be recognised")
        return found[0].object_id == runs[0].object_id

    def _roll_if_large(self, inline_bytes: int, new: Head) -> None:
        """Start a roll if the head has just become too large, from `inline_bytes`."""
        now_bytes = heads.inline_bytes(new)
        # Of all processes only the one that crosses the limit rolls, as only one roll can count;
        # if it fails, whoever comes next does.
        has_crossed = inline_bytes <= heads.INLINE_BYTES_MAX < now_bytes
        if not has_crossed and now_bytes <= INLINE_BYTES_OVERDUE:
            return
        # A roll that was finished meanwhile will do; another one would be thrown away.
        if self._roller is None and self._rolled_head(new) is new:
            self._roller = self._runtime.spawn(self._roll(new))

    async def _roll(self, head: Head) -> None:
        """Prepare index objects while appends go on; the next commit makes them count."""
        try:
            born_s = self._runtime.monotonic_s()
            self._rolled = (await self._runtime.catalog.roll(head), born_s)
        except RiachoError:
            # The head is still whole. The next commit tries again.
            return
        finally:
            self._roller = None
        if self._committer is None:
            await self._commit_roll()

    async def _commit_roll(self) -> None:
        """Make a finished roll count though nobody appends, before it looks like an orphan."""
        view = self._view
        if view is None:
            return
        head = self._rolled_head(view.head)
        if head is view.head:
            return
        new = heads.append(head, [])
        with suppress(RiachoError):
            versions = await self._runtime.metadata.transact(
                [Put(self.key, heads.encode(new), view.version)]
            )
            self._know(LaneView(new, versions[self.key], self._runtime.monotonic_s()))

    async def _with_roll(self, head: Head) -> Head:
        if heads.inline_bytes(head) > INLINE_BYTES_HARD_MAX:
            if self._roller is not None:
                await asyncio.wait([self._roller])
            if self._rolled_head(head) is head:
                self._rolled = (await self._runtime.catalog.roll(head), self._runtime.monotonic_s())
        return self._rolled_head(head)

    def _rolled_head(self, head: Head) -> Head:
        """Return `head` with the finished roll applied, or `head` itself if there is none."""
        if self._rolled is None:
            return head
        roll, born_s = self._rolled
        count = roll.run_count - (head.run_count - len(head.runs))
        too_old = self._runtime.monotonic_s() - born_s > FLIGHT_MAX_S
        if roll.old_root != head.root or not 0 < count <= len(head.runs) or too_old:
            # Someone else rolled or compacted meanwhile; ours stays an orphan.
            self._rolled = None
            return head
        return heads.drop_runs(head, count, roll.new_root)


def _fail(ticket: Ticket, error: RiachoError) -> None:
    if not ticket.committed.done():
        ticket.committed.set_exception(error)


def _told(error: BaseException) -> RiachoError:
    if isinstance(error, RiachoError):
        return error
    return OutcomeUnknown(f"the commit was interrupted: {error!r}")


def _too_late() -> RiachoError:
    return StoreUnavailable("the write took too long and was given up")


class Lanes:
    """The lanes this process has dealt with, by topic and number.

    As long as anyone holds on to a lane, everyone gets the same one: the order of commits is
    the order of one queue.
    """

    def __init__(self, runtime: LaneRuntime, kept_max: int = LANES_KEPT_MAX) -> None:
        self._runtime = runtime
        self._kept_max = kept_max
        self._kept: OrderedDict[tuple[bytes, int], Lane] = OrderedDict()
        self._alive: WeakValueDictionary[tuple[bytes, int], Lane] = WeakValueDictionary()

    def lane(self, topic_id: bytes, number: int) -> Lane:
        key = topic_id, number
        lane = self._kept.get(key) or self._alive.get(key)
        if lane is None:
            lane = self._alive[key] = Lane(topic_id, number, self._runtime)
        self._kept[key] = lane
        self._kept.move_to_end(key)
        if len(self._kept) > self._kept_max:
            self._kept.popitem(last=False)
        return lane

    def wake_all(self) -> None:
        for lane in list(self._alive.values()):
            lane.wake()

    def forget(self, topic_id: bytes) -> None:
        """Drop what is known of a deleted topic."""
        for key in [key for key in self._kept if key[0] == topic_id]:
            del self._kept[key]
