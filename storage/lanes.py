"""Lanes at work: reading heads, committing to them in order, and waking those who wait.

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
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from storage import head as heads
from storage import keys
from storage.catalog import Catalog, Roll
from storage.entries import Kind
from storage.errors import (
    Contended,
    MetadataConflict,
    OutcomeUnknown,
    RiachoError,
    StoreUnavailable,
    UnknownTopicOrPartition,
)
from storage.head import Head, Run
from storage.metadata import MetadataStore, Put, Versioned

COMMIT_S_MAX: Final = 15.0
"""How long a commit goes on losing races before it gives up. One of n writers wins each round,
so a time limit is what a caller feels; a number of attempts would only punish the unlucky."""

BACK_OFF_S_MAX: Final = 0.05

RUNS_PER_COMMIT_MAX: Final = 64
"""So many flushes share one compare-and-set at most."""

FLIGHT_MAX_S: Final = 600.0
"""An object older than this is not committed any more: the sweeper takes what is unreferenced
and a good deal older for an orphan, and a process may have been asleep in between."""

INLINE_BYTES_HARD_MAX: Final = 8 * heads.INLINE_BYTES_MAX
"""Beyond this, commits wait for the roll: the head may not grow without bound."""


@dataclass(frozen=True, slots=True)
class LaneView:
    """A head as it was at some moment, and the version to compare when changing it."""

    head: Head
    version: str
    read_at_s: float


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


class Lane:
    """One lane, as this process knows it."""

    def __init__(self, topic_id: bytes, lane: int, runtime: "LaneRuntime") -> None:
        self.key = keys.head(topic_id, lane)
        self._runtime = runtime
        self._view: LaneView | None = None
        self._reading: asyncio.Task[LaneView] | None = None
        self._read_next: asyncio.Task[LaneView] | None = None
        self._queue: deque[Ticket] = deque()
        self._committer: asyncio.Task[None] | None = None
        self._roller: asyncio.Task[None] | None = None
        self._rolled: tuple[Roll, float] | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._poller: asyncio.Task[None] | None = None

    # Reading

    async def view(self, age_max_s: float) -> LaneView:
        """Return the head as it was at most `age_max_s` ago; 0: after this call began."""
        known = self._view
        if known and 0 < age_max_s >= self._runtime.monotonic_s() - known.read_at_s:
            return known
        return await self._fresh()

    async def _fresh(self) -> LaneView:
        # A read that is under way began before this call did, so it proves nothing about now;
        # the next one does, and everybody who asks meanwhile shares it.
        if self._read_next is None:
            self._read_next = asyncio.create_task(self._read_after(self._reading))
        return await asyncio.shield(self._read_next)

    async def _read_after(self, previous: asyncio.Task[LaneView] | None) -> LaneView:
        if previous is not None:
            await asyncio.wait([previous])
        self._reading, self._read_next = self._read_next, None
        began_s = self._runtime.monotonic_s()
        return self._adopt(await self._runtime.metadata.get(self.key), began_s)

    def _adopt(self, item: Versioned | None, began_s: float) -> LaneView:
        if item is None:
            self._view = None
            self.wake()
            raise UnknownTopicOrPartition("the topic was deleted")
        if self._view and self._view.version == item.version:
            return self._know(LaneView(self._view.head, item.version, began_s))
        return self._know(LaneView(heads.decode(item.value), item.version, began_s))

    def _know(self, view: LaneView) -> LaneView:
        # Answers may overtake each other; what is known never goes back.
        if self._view is None or view.head.commits >= self._view.head.commits:
            news = self._view is None or view.head.commits > self._view.head.commits
            self._view = view
            if news:
                self.wake()
        return self._view

    # Waiting

    async def changed(self, since: LaneView, timeout_s: float) -> None:
        """Return when the head is known to differ from `since`, or after `timeout_s`."""
        if self._view is None or self._view.head.commits != since.head.commits:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        if self._poller is None:
            self._poller = self._runtime.spawn(self._poll())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await waiter
        finally:
            self._waiters.discard(waiter)

    def wake(self) -> None:
        """Let those who wait look again, though nothing may have changed."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _poll(self) -> None:
        """Look for commits of other processes, once for all who wait."""
        try:
            while self._waiters:
                await self._runtime.sleep(self._runtime.poll_interval_s)
                # Whoever waits finds out by its own time limit if the store stays away.
                with suppress(RiachoError):
                    await self._fresh()
        finally:
            self._poller = None

    # Committing

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

    def _take_settled(self) -> list[Ticket]:
        taken: list[Ticket] = []
        while self._queue and self._queue[0].settled.is_set() and len(taken) < RUNS_PER_COMMIT_MAX:
            ticket = self._queue.popleft()
            if ticket.run is None:
                continue
            if self._runtime.monotonic_s() - ticket.born_s > FLIGHT_MAX_S:
                _fail(ticket, StoreUnavailable("the write took too long and was given up"))
                continue
            taken.append(ticket)
        return taken

    async def _commit_tickets(self, tickets: list[Ticket]) -> None:
        runs = [ticket.run for ticket in tickets if ticket.run is not None]
        if not runs:
            return
        try:
            bases = await self.commit(runs)
        except RiachoError as error:
            for ticket in tickets:
                _fail(ticket, error)
            return
        except BaseException:
            for ticket in tickets:
                _fail(ticket, OutcomeUnknown("the commit was interrupted"))
            raise
        for ticket, base in zip(tickets, bases, strict=True):
            if not ticket.committed.done():
                ticket.committed.set_result(base)

    async def commit(self, runs: Sequence[Run]) -> list[dict[int, int]]:
        """Append `runs` and return the first offset of every partition of each.

        Raises `Contended` if others were always faster, `UnknownTopicOrPartition` if the
        topic is gone, what the store raised, or `OutcomeUnknown` if that stays unknown.
        """
        unanswered: list[Head] = []
        view = self._view or await self._fresh()
        give_up_s = self._runtime.monotonic_s() + COMMIT_S_MAX
        for attempt in count():
            head = await self._with_roll(view.head)
            try:
                return await self._try(view, head, runs)
            except MetadataConflict as conflict:
                view = self._adopt(conflict.current[self.key], self._runtime.monotonic_s())
            except OutcomeUnknown:
                unanswered.append(view.head)
                view = await self._read_back()
            for old in unanswered:
                if await self._landed(old, runs, view.head):
                    return heads.base_offsets(old, runs)
            if self._runtime.monotonic_s() > give_up_s:
                break
            await self._runtime.back_off(attempt)
        if unanswered:
            raise OutcomeUnknown("the metadata store did not say whether the commit happened")
        raise Contended(f"others committed first for {COMMIT_S_MAX:.0f} s; send it again")

    async def _try(self, view: LaneView, head: Head, runs: Sequence[Run]) -> list[dict[int, int]]:
        new = heads.append(head, runs)
        put = Put(self.key, heads.encode(new), view.version)
        began_s = self._runtime.monotonic_s()
        versions = await self._runtime.metadata.transact([put])
        self._know(LaneView(new, versions[self.key], began_s))
        if heads.inline_bytes(new) > heads.INLINE_BYTES_MAX and self._roller is None:
            self._roller = self._runtime.spawn(self._roll(new))
        return heads.base_offsets(head, runs)

    async def _read_back(self) -> LaneView:
        try:
            return await self._fresh()
        except StoreUnavailable as error:
            raise OutcomeUnknown(f"the commit was sent, its outcome is unknown: {error}") from error

    async def _landed(self, old: Head, runs: Sequence[Run], now: Head) -> bool:
        """Whether an unanswered attempt to append `runs` to `old` is part of `now`."""
        piece = runs[0].slices[0]
        base = old.next_offsets[piece.partition]
        if now.next_offsets[piece.partition] <= base:
            return False
        [entry, *_] = await self._runtime.catalog.after(now, piece.partition, base)
        if entry.kind != Kind.ARROW:
            raise OutcomeUnknown("the log was compacted before the commit could be recognised")
        return entry.object_id == runs[0].object_id

    # Rolling

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


@dataclass(slots=True, kw_only=True)
class LaneRuntime:
    """What lanes need from the world around them."""

    metadata: MetadataStore
    catalog: Catalog
    monotonic_s: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    random: Callable[[], float]
    poll_interval_s: float
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def back_off(self, attempt: int) -> None:
        """Wait a little, at random, longer after each lost race, so that writers take turns."""
        if attempt > 0:
            await self.sleep(self.random() * min(BACK_OFF_S_MAX, 0.001 * 2 ** min(attempt, 10)))

    async def aclose(self) -> None:
        """Stop what runs in the background: polls at once, rolls when they are done."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Lanes:
    """The lanes this process has dealt with, by topic and number."""

    def __init__(self, runtime: LaneRuntime) -> None:
        self._runtime = runtime
        self._lanes: dict[tuple[bytes, int], Lane] = {}

    def lane(self, topic_id: bytes, number: int) -> Lane:
        lane = self._lanes.get((topic_id, number))
        if lane is None:
            lane = self._lanes[topic_id, number] = Lane(topic_id, number, self._runtime)
        return lane

    def wake_all(self) -> None:
        for lane in self._lanes.values():
            lane.wake()

    def forget(self, topic_id: bytes) -> None:
        """Drop what is known of a deleted topic."""
        for key in [key for key in self._lanes if key[0] == topic_id]:
            del self._lanes[key]
