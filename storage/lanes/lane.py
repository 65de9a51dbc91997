"""Lanes: the order of commits.

HeadCommits of this process to one lane happen in the order in which they were enqueued, which is
the order of arrival. HeadCommits that are ready together share one compare-and-set. A commit to
several lanes at once takes a *turn* in each: from the moment it has reached all turns until it
gives them back, nothing else in this process commits to these lanes.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from storage import keys
from storage.errors import (
    Contended,
    NotEnoughReplicas,
    OutcomeUnknown,
    RiachoError,
    ShuttingDown,
)
from storage.head.head import Run
from storage.lanes.commits import (
    Bases,
    Fenced,
    HeadCommits,
    Offer,
    RejectedClaims,
    Won,
    WriteAgain,
    too_late,
)
from storage.lanes.rolls import FLIGHT_MAX_S
from storage.lanes.upkeep import LaneUpkeep
from storage.lanes.watch import LaneRuntime, LaneView, WatchedHead
from storage.tasks import drop_error

__all__ = ["Lane", "LaneRuntime", "LaneView", "Lanes", "Ticket", "Turn"]

log = logging.getLogger("riacho")

RUNS_PER_COMMIT_MAX: Final = 64
"""Maximum number of flushes in one compare-and-set."""

CLAIMS_PER_COMMIT_MAX: Final = 1000
"""Maximum number of idempotent batches in one commit, as each leaves a window in the head."""

LANES_KEPT_MAX: Final = 16_384
"""Maximum number of lanes kept, the most recently used ones, in addition to those in use."""


def _new_future() -> "asyncio.Future[Bases | RejectedClaims]":
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False)
class Ticket:
    """A place in a lane's queue. Settle it with `ready` or `withdraw`."""

    born_s: float
    offer: Offer | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    committed: "asyncio.Future[Bases | RejectedClaims]" = field(default_factory=_new_future)
    """The first offset of every partition (within the lane) of the run; or why some of its claims
    must not be appended. Then the ticket keeps its place, and must be settled again: with the
    rest, or by withdrawing it. Its answer is a new future."""

    def ready(self, run: "Run | Offer") -> "asyncio.Future[Bases | RejectedClaims]":
        """Report that the run's object is durable; it is committed in its turn.

        Returns `committed`, which is the answer for this run.
        """
        self.offer = run if isinstance(run, Offer) else Offer(run)
        self.settled.set()
        return self.committed

    def withdraw(self) -> None:
        """Leave the queue with nothing to commit; later tickets no longer wait for this one."""
        self.offer = None
        self.committed.cancel()
        self.settled.set()

    def reject(self, rejected: RejectedClaims) -> None:
        """Ask the writer for the rest of the run, without the rejected claims."""
        asked, self.committed = self.committed, _new_future()
        self.offer = None
        if asked.done():
            # The writer is gone, and will not write the rest.
            self.committed.cancel()
        else:
            self.settled.clear()
            asked.set_result(rejected)


@dataclass(slots=True, eq=False)
class Turn:
    """A place in a lane's queue for a caller that makes the commit itself."""

    reached: "asyncio.Future[None]"
    """Done when all earlier places are committed."""
    given_back: asyncio.Event = field(default_factory=asyncio.Event)

    def give_back(self) -> None:
        if not self.reached.cancel():
            drop_error(self.reached)
        self.given_back.set()


class Lane:
    """One lane in this process: its head, and the queue of commits to it."""

    def __init__(self, topic_id: bytes, lane: int, runtime: LaneRuntime) -> None:
        self._runtime = runtime
        self.watched = WatchedHead(keys.head(topic_id, lane), runtime)
        self.upkeep = LaneUpkeep(self.watched, runtime, lambda: self.is_committing)
        self.commits = HeadCommits(self.watched, self.upkeep, runtime)
        self._queue: deque[Ticket | Turn] = deque()
        self._committer: asyncio.Task[None] | None = None

    async def view(self, age_max_s: float) -> LaneView:
        """Return the head as it was at most `age_max_s` ago; 0: after this call began."""
        return await self.watched.view(age_max_s)

    def known(self, age_max_s: float) -> LaneView | None:
        """Return the known view if it is at most `age_max_s` old, without a read."""
        return self.watched.known(age_max_s)

    @property
    def is_committing(self) -> bool:
        return self._committer is not None

    def enqueue(self) -> Ticket:
        """Take the next place in the order of commits."""
        ticket = Ticket(born_s=self._runtime.monotonic_s())
        self._add(ticket)
        return ticket

    def take_turn(self) -> Turn:
        """Take the next place for a commit that the caller makes. Always give it back."""
        turn = Turn(asyncio.get_running_loop().create_future())
        self._add(turn)
        return turn

    def _add(self, place: Ticket | Turn) -> None:
        self._queue.append(place)
        if self._committer is None:
            self._committer = self._runtime.spawn(self._commit_queue())

    async def _commit_queue(self) -> None:
        try:
            while self._queue:
                first = self._queue[0]
                if isinstance(first, Turn):
                    self._queue.popleft()
                    if not first.reached.done():
                        first.reached.set_result(None)
                    await first.given_back.wait()
                else:
                    await first.settled.wait()
                    await self._commit_tickets(self._take_settled())
        finally:
            self._committer = None
            # Not empty only if this task was cancelled. Then fail all that still wait.
            while self._queue:
                _give_up(self._queue.popleft())

    def _take_settled(self) -> list[Ticket]:
        taken: list[Ticket] = []
        together = _Together()
        while self._queue and len(taken) < RUNS_PER_COMMIT_MAX:
            ticket = self._queue[0]
            if isinstance(ticket, Turn) or not ticket.settled.is_set():
                break
            if ticket.offer is not None and not together.takes(ticket.offer):
                break
            self._queue.popleft()
            if ticket.offer is None:
                continue
            if self._runtime.monotonic_s() - ticket.born_s > FLIGHT_MAX_S:
                _fail(ticket, too_late())
                continue
            taken.append(ticket)
        return taken

    async def _commit_tickets(self, tickets: list[Ticket]) -> None:
        while tickets:
            try:
                tickets = await self._commit_once(tickets)
            except NotEnoughReplicas as error:
                # Some tickets may need fewer zones than others, or be in other zones.
                await self._commit_each(tickets, error)
                return
            except BaseException as error:
                for ticket in tickets:
                    _fail(ticket, _reported(error))
                if not isinstance(error, Exception):
                    raise
                if not isinstance(error, RiachoError):
                    # A bug. HeadCommits queued behind this one must not be stuck because of it.
                    log.exception("a commit to %s failed", self.watched.key)
                return

    async def _commit_once(self, tickets: list[Ticket]) -> list[Ticket]:
        """Commit the offers of `tickets`; return those that must be committed again."""
        offers = [ticket.offer for ticket in tickets if ticket.offer is not None]
        outcome = await self.commits.commit(offers, min(t.born_s for t in tickets))
        match outcome:
            case Won():
                _land(tickets, outcome.bases)
                return []
            case Fenced():
                return _unfenced(tickets, outcome.keys)
            case WriteAgain():
                for ticket, rejected in zip(tickets, outcome.rejected, strict=True):
                    if rejected is not None:
                        ticket.reject(rejected)
                # HeadCommits behind these wait, too: they keep the order of arrival.
                for ticket in tickets:
                    await ticket.settled.wait()
                return [ticket for ticket in tickets if ticket.offer is not None]

    async def _commit_each(self, tickets: list[Ticket], error: NotEnoughReplicas) -> None:
        if len(tickets) == 1:
            _fail(tickets[0], error)
            return
        for ticket in tickets:
            await self._commit_tickets([ticket])


@dataclass(slots=True)
class _Together:
    """The claims and checks of the flushes that share a commit."""

    claimed: set[tuple[int, int, int]] = field(default_factory=set)
    expected: dict[str, str | None] = field(default_factory=dict)

    def takes(self, offer: Offer) -> bool:
        """Add `offer` and return True, unless it must wait for the commit of those before it."""
        claims = {(*claim.key, claim.sequence) for claim in offer.claims}
        if claims & self.claimed:
            # Copies of one batch: the offset of the first is known after its commit.
            return False
        if self.claimed and len(self.claimed) + len(claims) > CLAIMS_PER_COMMIT_MAX:
            return False
        for check in offer.checks:
            if self.expected.setdefault(check.key, check.expected) != check.expected:
                # A commit can check one version of an item, and one of these two is wrong.
                return False
        self.claimed |= claims
        return True


def _unfenced(tickets: list[Ticket], failed: frozenset[str]) -> list[Ticket]:
    """Fail the tickets whose checks did not hold; return the others."""
    left = []
    for ticket in tickets:
        checks = () if ticket.offer is None else ticket.offer.checks
        if any(check.key in failed for check in checks):
            _fail(ticket, Contended("the producer changed while this was written; send it again"))
        else:
            left.append(ticket)
    return left


def _give_up(place: Ticket | Turn) -> None:
    error = ShuttingDown("this gateway is shutting down")
    if isinstance(place, Ticket):
        _fail(place, error)
    elif not place.reached.done():
        place.reached.set_exception(error)


def _land(tickets: list[Ticket], bases: list[Bases]) -> None:
    for ticket, base in zip(tickets, bases, strict=True):
        if not ticket.committed.done():
            ticket.committed.set_result(base)


def _fail(ticket: Ticket, error: RiachoError) -> None:
    if not ticket.committed.done():
        ticket.committed.set_exception(error)


def _reported(error: BaseException) -> RiachoError:
    if isinstance(error, RiachoError):
        return error
    return OutcomeUnknown(f"the commit was interrupted: {error!r}")


class Lanes:
    """The lanes this process has used, by topic and number.

    While any caller holds a lane, all callers get the same object: the order of commits is the
    order of one queue.
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
            lane.watched.wake()

    def forget(self, topic_id: bytes) -> None:
        """Drop the lanes of a deleted topic."""
        for key in [key for key in self._kept if key[0] == topic_id]:
            del self._kept[key]
