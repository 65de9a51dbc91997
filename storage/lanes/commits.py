"""Committing to a head: one compare-and-set, and how its outcome is determined.

Failures and how they are handled:

- *Another process committed first.* The conflict carries the new head; append to that one.
- *No answer.* The write may have been applied. If it was, our first slice is exactly where the
  old head ended, because the write was conditional on that head. Reading that offset decides
  it. Until then neither an error nor an offset is reported.
- *A late duplicate.* Every attempt is conditional on one version of the head, so at most one
  of them is applied. After an unanswered attempt every later conflict is checked for it.
- *The head does not exist.* The topic was deleted; nothing can be appended to it any more.
- *Some batches must not be appended.* Batches of idempotent producers are checked against the
  head they would be appended to. The records of a duplicate, or of a batch that is too early,
  share slices with others, so the rest is written again without them. This is rare.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Final, TypeAlias

import msgspec

from storage import keys
from storage.errors import (
    MetadataConflict,
    NotEnoughReplicas,
    ObjectMissing,
    OutcomeUnknown,
    OutOfOrderSequence,
    RiachoError,
    StoreUnavailable,
    UnknownTopicOrPartition,
)
from storage.formats import segments
from storage.formats.entries import Entry, Kind
from storage.head import head as heads
from storage.head import producers, replication
from storage.head.head import Head, Run
from storage.head.producers import Claim, Key, Verdict, Window
from storage.lanes.replica_news import ReplicaNews
from storage.lanes.rolls import FLIGHT_MAX_S, TRUSTED_S, Rolls
from storage.lanes.turns import Turns
from storage.lanes.watch import LaneRuntime, LaneView, WatchedHead
from storage.lanes.windows import Spills
from storage.stores.dated import DatedConflict
from storage.stores.metadata import Check, Put

COPY_S_MAX: Final = 10.0
"""Maximum time a commit waits to copy an object to a zone that has just come in sync."""

Bases: TypeAlias = dict[int, int]
"""The first offset of every partition (within the lane) of a run."""

_Doubt: TypeAlias = tuple[LaneView, list[Run]]
"""The view and the runs of an attempt that was not answered."""


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """A run whose object is durable, and the claims of the idempotent batches in it."""

    run: Run | None
    """None: nothing is left to append."""
    claims: tuple[Claim, ...] = ()
    without: "Callable[[Mapping[int, Verdict]], Awaitable[Offer]] | None" = None
    """Reports why these claims are not appended; returns the rest, written again without them."""
    checks: tuple[Check, ...] = ()
    """Further conditions of the commit; `Fenced` is raised if one does not hold."""
    failed: int = 0
    """Zones that did not store the object in time: they leave the ISR."""
    awaited: int = 0
    """Zones that store the object later; the writer then reports the result by `learn`."""
    in_sync_min: int = 1
    """Minimum number of zones in sync."""


class Fenced(Exception):
    """A check of an offer did not hold. Nothing was committed."""

    def __init__(self, failed: frozenset[str]) -> None:
        super().__init__(f"changed: {', '.join(sorted(failed))}")
        self.keys = failed


class CommittingHead(WatchedHead):
    """The head of one lane, and the commits of this process to it."""

    def __init__(self, key: str, runtime: LaneRuntime) -> None:
        super().__init__(key, runtime)
        self._rolls = Rolls(runtime, self._commit_idle, self.distrust)
        self._spills = Spills(runtime, runtime.window_pages, self._commit_idle, self.distrust)
        self._replica_news = ReplicaNews(runtime, self._commit_idle)
        self._turns = Turns(runtime)

    @property
    def is_committing(self) -> bool:
        raise NotImplementedError

    async def commit(self, runs: Sequence[Run], born_s: float) -> list[Bases]:
        """Append `runs`, as `commit_offers` does."""
        return await self.commit_offers([Offer(run) for run in runs], born_s)

    async def commit_offers(self, offers: list[Offer], born_s: float) -> list[Bases]:
        """Append the acceptable parts of `offers`; return the first offsets of each.

        An offer with rejected claims is replaced in the list by the rest of it. `born_s` is when
        the oldest of the objects was begun. Raises `Contended` if other processes always
        committed first, `UnknownTopicOrPartition` if the topic was deleted, `Fenced` if a check
        of an offer did not hold, any error of the stores, or `OutcomeUnknown` if an attempt was
        not answered and may still be applied.
        """
        # The same time in all attempts, so that the same head admits the same claims again.
        minute = producers.minute_of(self._runtime.now_ms())
        doubt: _Doubt | None = None
        try:
            view = self._view or await self._fresh()
            began_s = self._runtime.monotonic_s()
            if await self._turns.queue():
                view = await self._fresh()
            for attempt in count():
                view, changed = await self._admitted(view, offers, minute)
                fenced: frozenset[str] = frozenset()
                try:
                    return _by_offer(offers, await self._try(view, offers, changed, born_s))
                except DatedConflict as conflict:
                    fenced = _failed_checks(offers, conflict)
                    view = self.adopted(view, conflict)
                except OutcomeUnknown:
                    doubt = view, _runs(offers)
                    view = await self._fresh()
                doubt, bases = await self._cleared(doubt, view)
                if bases is None and not fenced and await self._turns.lost(attempt, began_s):
                    view = await self._fresh()
                    doubt, bases = await self._cleared(doubt, view)
                if bases is not None:
                    return _by_offer(offers, bases)
                if fenced:
                    # An unanswered attempt had the same check, so it can no longer be applied.
                    raise Fenced(fenced)
            raise AssertionError("attempts end by an error")
        except RiachoError as error:
            raise told(error, is_in_doubt=doubt is not None) from error

    async def _cleared(
        self, doubt: "_Doubt | None", view: LaneView
    ) -> "tuple[_Doubt | None, list[Bases] | None]":
        """Return `doubt` unless resolved, and the first offsets if its attempt was applied."""
        if doubt is None or doubt[0].version == view.version:
            return doubt, None
        if await self.landed(doubt[0].head, doubt[1], view.head):
            return doubt, heads.base_offsets(doubt[0].head, doubt[1])
        # The head has changed since that version, so the attempt can no longer be applied.
        return None, None

    async def _admitted(
        self, view: LaneView, offers: list[Offer], minute: int
    ) -> tuple[LaneView, dict[Key, Window]]:
        """Rewrite offers in place until all claims are in sequence; return the changed windows."""
        is_fresh = False
        while any(offer.claims for offer in offers):
            verdicts, changed = await self._judged(view, offers, minute)
            if not any(verdicts):
                return view, changed
            if not is_fresh and _has_gap(verdicts):
                # Another process may have filled the gap since the head was last read.
                view, is_fresh = await self._fresh(), True
                continue
            for number, rejected in enumerate(verdicts):
                if rejected:
                    without = offers[number].without
                    assert without is not None, "claims need someone who can do without them"
                    offers[number] = await without(rejected)
        return view, {}

    async def _judged(
        self, view: LaneView, offers: Sequence[Offer], minute: int
    ) -> tuple[list[dict[int, Verdict]], dict[Key, Window]]:
        head = view.head
        wanted = {claim.key for offer in offers for claim in offer.claims}
        known = {key: view.windows[key] for key in wanted if key in view.windows}
        if head.producer_pages and len(known) < len(wanted):
            elsewhere = wanted - known.keys()
            known |= await self._runtime.window_pages.find(head, elsewhere)
        kept = producers.unexpired(known.values(), minute, self._runtime.producer_expiration_ms)
        bases = _by_offer(offers, heads.base_offsets(head, _runs(offers)))
        return producers.settle(kept, [offer.claims for offer in offers], bases, minute)

    async def _try(
        self, view: LaneView, offers: Sequence[Offer], changed: Mapping[Key, Window], born_s: float
    ) -> list[Bases]:
        runs = _runs(offers)
        if not runs:
            return []
        head = await self.ready(view.head)
        began_s = self._runtime.monotonic_s()
        if began_s - born_s > FLIGHT_MAX_S:
            raise too_late()
        is_old = began_s - born_s > TRUSTED_S
        head, runs = await self._replicated(head, view, offers, is_old=is_old)
        new = heads.append(head, runs)
        if changed:
            new = heads.with_windows(new, changed)
        checks = {check.key: check for offer in offers for check in offer.checks}
        put = Put(self.key, heads.encode(new), view.version)
        versions, sent_s = await self._runtime.dated.transact([put, *checks.values()])
        self._turns.won()
        self.committed(head, LaneView(new, versions[self.key], sent_s))
        return heads.base_offsets(head, runs)

    async def _replicated(
        self, head: Head, view: LaneView, offers: Sequence[Offer], *, is_old: bool
    ) -> tuple[Head, list[Run]]:
        """Return the head without zones that failed, and the runs with the zones that hold them.

        Raises `NotEnoughReplicas` if too few zones remain.
        """
        runs: list[Run] = []
        in_sync_min = 1
        for offer in offers:
            run = offer.run
            if run is None:
                continue
            if head.isr & ~run.zones & offer.failed:
                head = replication.without_zones(head, ~run.zones & offer.failed)
            run, missing = await self.covered(head, run, offer.awaited, is_old=is_old)
            if missing:
                head = replication.without_zones(head, missing)
            if not run.zones & head.isr:
                raise NotEnoughReplicas("the zones it was written to left the ISR; send it again")
            in_sync_min = max(in_sync_min, offer.in_sync_min)
            runs.append(run)
        await self.check_in_sync(view, head, in_sync_min)
        return head, runs

    async def check_in_sync(self, view: LaneView, head: Head, in_sync_min: int) -> None:
        """Raise `NotEnoughReplicas` if `head`, which follows `view`, has too few zones in sync.

        A smaller ISR is written first, else the controller cannot admit the zones that left it.
        """
        if head.isr.bit_count() < in_sync_min and head.isr != view.head.isr:
            with suppress(RiachoError):
                await self._put(view, head)
        replication.check_in_sync(head.isr, in_sync_min)

    async def covered(
        self, head: Head, run: Run, awaited: int = 0, *, is_old: bool = False
    ) -> tuple[Run, int]:
        """Return `run` with its object in all zones in sync, and the zones where copying failed.

        The zones are chosen when the object is written. A zone may have come in sync since, and
        a zone in sync must hold everything. `awaited` zones get the object from the writer. If
        the run `is_old`, the zones are asked whether they still have the object.
        """
        if is_old and head.isr.bit_count() > 1 and run.kind != Kind.TABLE:
            run = await self._found(head, run)
        missing = head.isr & ~run.zones & ~awaited
        if not missing:
            return run, 0
        zones = self._runtime.zones
        key = keys.hot_segment(run.object_id)
        body = await zones.get_as(key, replication.read_names(head, run.zones), segments.verified)
        puts = zones.start(key, [body], replication.zone_names(head, missing))
        await puts.wait(timeout_s=COPY_S_MAX)
        zones.leave_behind(puts)
        done = replication.mask_of(head, puts.done)
        return msgspec.structs.replace(run, zones=run.zones | done), missing & ~done

    async def _found(self, head: Head, run: Run) -> Run:
        """Return `run` with only the zones in sync that have not lost its object."""
        key = keys.hot_segment(run.object_id)
        names = replication.zone_names(head, run.zones & head.isr)
        looks = [asyncio.create_task(self._runtime.zones.store(n).size(key)) for n in names]
        _, slow = await asyncio.wait(looks, timeout=COPY_S_MAX) if looks else ((), ())
        for look in slow:
            look.cancel()
        # A zone that does not answer is not known to have lost the object.
        there = [n for n, look in zip(names, looks, strict=True) if not _is_missing(look)]
        return msgspec.structs.replace(run, zones=replication.mask_of(head, there))

    async def landed(self, old: Head, runs: Sequence[Run], now: Head) -> bool:
        """Whether an unanswered attempt to append `runs` to `old` is part of `now`."""
        piece = runs[0].slices[0]
        base = old.next_offsets[piece.partition]
        if now.next_offsets[piece.partition] <= base:
            return False
        found = await self._runtime.catalog.after(now, piece.partition, base)
        if not found or found[0].kind == Kind.PARQUET or found[0].base_offset != base:
            raise OutcomeUnknown("the log was rewritten before the commit could be recognised")
        # An object may have several runs of a lane: the place in it tells them apart.
        if (found[0].object_id, found[0].position) == (runs[0].object_id, runs[0].position):
            return True
        is_rolled = base < heads.inline_start(now, piece.partition)
        may_have_moved = runs[0].kind == Kind.TABLE and is_rolled
        return may_have_moved and await self._has_moved(found[0], runs[0])

    async def _has_moved(self, found: Entry, run: Run) -> bool:
        """Whether `found`, which a roll listed in the place of `run`, is that run, moved."""
        piece = run.slices[0]
        if (found.record_count, found.length, found.crc) != (piece.count, piece.length, piece.crc):
            return False
        batches = self._runtime.catalog.batches
        assert batches is not None, run
        if await batches.is_there(run.object_id):
            # Another process may have written the same bytes, or ours is not removed yet.
            raise OutcomeUnknown("the log was rolled before the commit could be recognised")
        # A batch is removed only by the process that moved it.
        return True

    async def ready(self, head: Head) -> Head:
        """Return `head` ready for an append, with space freed if it was far too large."""
        # First remove zones from the ISR: these need not hold what is rolled.
        head = await self._rolls.ready(self._replica_news.applied(head))
        return self._replica_news.applied(await self._spills.ready(head))

    def committed(self, before: Head, view: LaneView) -> None:
        """Record a commit by this process."""
        self._know(view)
        self._replica_news.committed(view.head)
        self._rolls.committed(view.head)
        self._rolls.begin_if_large(before, view.head)
        self._spills.begin_if_large(before, view.head)

    async def _commit_idle(self) -> bool:
        """Commit finished background work without an append; False: the caller must retry."""
        view = self._view
        if view is None or self.is_committing:
            return True  # The commit under way includes it, or is refused because of it.
        head = self._rolls.applied(self._replica_news.applied(view.head))
        head = self._spills.applied(head)
        if head is not view.head:
            try:
                await self._put(view, head)
            except RiachoError:
                return False
        return True

    async def _put(self, view: LaneView, head: Head) -> None:
        """Replace `view` by `head`, with nothing appended."""
        new = heads.append(head, [])
        put = Put(self.key, heads.encode(new), view.version)
        versions, began_s = await self._runtime.dated.transact([put])
        self._know(LaneView(new, versions[self.key], began_s))
        self._replica_news.committed(new)
        self._rolls.committed(new)

    def learn(self, object_id: bytes, held: int, failed: int) -> None:
        """Record which zones hold a run's object, of those its commit did not wait for."""
        self._replica_news.learn(object_id, held, failed)

    def distrust(self, failed: int, leader_epoch: int) -> None:
        """Record zones in sync that failed to store uncommitted objects; see `ReplicaNews`."""
        self._replica_news.distrust(failed, leader_epoch)


def _is_missing(look: "asyncio.Task[int]") -> bool:
    if not look.done() or look.cancelled():
        return False
    return isinstance(look.exception(), ObjectMissing)


def _runs(offers: Sequence[Offer]) -> list[Run]:
    return [offer.run for offer in offers if offer.run is not None]


def _failed_checks(offers: Sequence[Offer], conflict: MetadataConflict) -> frozenset[str]:
    """Return the keys of those checks of `offers` that did not hold."""
    failed = set()
    for check in [check for offer in offers for check in offer.checks]:
        if check.key in conflict.current:
            current = conflict.current[check.key]
            if (None if current is None else current.version) != check.expected:
                failed.add(check.key)
    return frozenset(failed)


def _has_gap(verdicts: Sequence[Mapping[int, Verdict]]) -> bool:
    return any(
        isinstance(verdict, OutOfOrderSequence)
        for rejected in verdicts
        for verdict in rejected.values()
    )


def _by_offer(offers: Sequence[Offer], bases: Sequence[Bases]) -> list[Bases]:
    """Return the bases of every offer; none for offers with nothing left."""
    given = iter(bases)
    return [{} if offer.run is None else next(given) for offer in offers]


def told(error: RiachoError, *, is_in_doubt: bool) -> RiachoError:
    """Return the error to report: `OutcomeUnknown` if an attempt may have been applied."""
    if not is_in_doubt or isinstance(error, (UnknownTopicOrPartition, OutcomeUnknown)):
        return error
    return OutcomeUnknown(f"the commit was sent, its outcome is unknown: {error}")


def too_late() -> RiachoError:
    return StoreUnavailable("the write took too long and was given up")
