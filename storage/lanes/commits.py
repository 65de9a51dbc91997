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
  share slices with others, so the commit returns `WriteAgain`, and the writer offers
  the rest, written again. This is rare.

An attempt has one of four outcomes:

    Won       appended: done
    LostRace  another process committed first: try again with its head
    Unknown   no answer: read the head, look whether it was applied, else as after `LostRace`
    Fenced    a check did not hold: done, unless an earlier attempt is found to be applied
"""

import asyncio
from collections.abc import Mapping, Sequence
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
from storage.formats import segments, zone_sets
from storage.formats.entries import Entry
from storage.formats.partitions import LanePartition
from storage.formats.zone_sets import NONE, ZoneSet
from storage.head import head as heads
from storage.head import producers, replication
from storage.head.head import Head, Run
from storage.head.producers import Claim, Key, Verdict, Window
from storage.lanes.rolls import FLIGHT_MAX_S, TRUSTED_S
from storage.lanes.turns import Turns
from storage.lanes.upkeep import LaneUpkeep
from storage.lanes.watch import LaneRuntime, LaneView, WatchedHead
from storage.stores.dated import DatedConflict
from storage.stores.metadata import Check, Put
from storage.tasks import begin

COPY_S_MAX: Final = 10.0
"""Maximum time a commit waits to copy an object to a zone that has just come in sync."""

Bases: TypeAlias = dict[LanePartition, int]
"""The first offset of every partition (within the lane) of a run."""


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """A run whose object is durable, and the claims of the idempotent batches in it."""

    run: Run
    claims: tuple[Claim, ...] = ()
    checks: tuple[Check, ...] = ()
    """Further conditions of the commit; it is `Fenced` if one does not hold."""
    failed: ZoneSet = NONE
    """Zones that did not store the object in time: they leave the ISR."""
    awaited: ZoneSet = NONE
    """Zones that store the object later; the writer then reports the result by `learn`."""
    in_sync_min: int = 1
    """Minimum number of zones in sync."""


@dataclass(frozen=True, slots=True)
class Won:
    """The runs are appended."""

    bases: list[Bases]
    """One for each offer."""


@dataclass(frozen=True, slots=True)
class LostRace:
    """Another process committed first. Nothing was appended."""

    view: LaneView
    """Its head."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The attempt was not answered: it may have been applied, or may still be."""

    view: LaneView
    """The head that it was conditional on."""
    runs: list[Run]


@dataclass(frozen=True, slots=True)
class Fenced:
    """Checks of an offer did not hold. Nothing was appended."""

    view: LaneView
    keys: frozenset[str]
    """The keys of these checks."""


@dataclass(frozen=True, slots=True)
class RejectedClaims:
    """Claims of an offer that must not be appended. The rest of its run has to be offered."""

    verdicts: Mapping[int, Verdict]
    """By the number of the claim in the offer: why, or the offset that its batch has already."""


@dataclass(frozen=True, slots=True)
class WriteAgain:
    """Some offers have claims that must not be appended. Nothing was appended."""

    rejected: list[RejectedClaims | None]
    """One for each offer; None: all of it is acceptable."""


class HeadCommits:
    """The commits of this process to the head of one lane, one at a time."""

    def __init__(self, watched: WatchedHead, upkeep: LaneUpkeep, runtime: LaneRuntime) -> None:
        self._watched = watched
        self._upkeep = upkeep
        self._runtime = runtime
        self._turns = Turns(runtime)

    async def commit(self, offers: Sequence[Offer], born_s: float) -> Won | Fenced | WriteAgain:
        """Append all runs of `offers`, or none.

        `born_s` is when the oldest of the objects was begun. Raises `Contended` if other
        processes always committed first, `UnknownTopicOrPartition` if the topic was deleted, any
        error of the stores, or `OutcomeUnknown` if an attempt was not answered and may still be
        applied.
        """
        doubt = _Doubt(self)
        try:
            return await self._commit(offers, born_s, doubt)
        except RiachoError as error:
            raise reported(error, is_in_doubt=doubt.unknown is not None) from error

    async def _commit(
        self, offers: Sequence[Offer], born_s: float, doubt: "_Doubt"
    ) -> Won | Fenced | WriteAgain:
        # The same time in all attempts, so that the same head admits the same claims again.
        minute = producers.minute_of(self._runtime.now_ms())
        view = self._watched.latest or await self._watched.fresh()
        began_s = self._runtime.monotonic_s()
        if await self._turns.queue():
            view = await self._watched.fresh()
        for attempt in count():
            admitted = await self._admitted(view, offers, minute)
            if isinstance(admitted, WriteAgain):
                # After an unanswered attempt, the same head would have admitted all claims.
                assert doubt.unknown is None, doubt
                return admitted
            outcome = await self._attempt(admitted, offers, born_s)
            match outcome:
                case Won():
                    return outcome
                case Unknown():
                    doubt.unknown = outcome
                    view = await self._watched.fresh()
                case _:
                    view = outcome.view
            won = await doubt.resolved(view)
            # A fence ends it: an unanswered attempt had the same check and can not be applied.
            if won is None and isinstance(outcome, Fenced):
                return outcome
            if won is None and await self._turns.lost(attempt, began_s):
                view = await self._watched.fresh()
                won = await doubt.resolved(view)
            if won is not None:
                return won
        raise AssertionError("attempts end by an error")

    async def _admitted(
        self, view: LaneView, offers: Sequence[Offer], minute: int
    ) -> "_Admitted | WriteAgain":
        """Return the windows that change if all claims are in sequence."""
        if not any(offer.claims for offer in offers):
            return _Admitted(view, {})
        verdicts, changed = await self._judged(view, offers, minute)
        if _has_gap(verdicts):
            # Another process may have filled the gap since the head was last read.
            view = await self._watched.fresh()
            verdicts, changed = await self._judged(view, offers, minute)
        if any(verdicts):
            return WriteAgain([RejectedClaims(each) if each else None for each in verdicts])
        return _Admitted(view, changed)

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
        bases = heads.base_offsets(head, _runs(offers))
        return producers.settle(kept, [offer.claims for offer in offers], bases, minute)

    async def _attempt(
        self, admitted: "_Admitted", offers: Sequence[Offer], born_s: float
    ) -> Won | LostRace | Unknown | Fenced:
        view = admitted.view
        try:
            return await self._append(admitted, offers, born_s)
        except DatedConflict as conflict:
            fenced = _failed_checks(offers, conflict)
            view = self._watched.adopted(view, conflict)
            return Fenced(view, fenced) if fenced else LostRace(view)
        except OutcomeUnknown:
            return Unknown(view, _runs(offers))

    async def _append(self, admitted: "_Admitted", offers: Sequence[Offer], born_s: float) -> Won:
        view = admitted.view
        head = await self._upkeep.ready(view.head)
        began_s = self._runtime.monotonic_s()
        if began_s - born_s > FLIGHT_MAX_S:
            raise too_late()
        is_old = began_s - born_s > TRUSTED_S
        head, runs = await self._replicated(head, view, offers, is_old=is_old)
        new = heads.append(head, runs)
        if admitted.windows:
            new = heads.with_windows(new, admitted.windows)
        checks = {check.key: check for offer in offers for check in offer.checks}
        put = Put(self._watched.key, heads.encode(new), view.version)
        versions, sent_s = await self._runtime.dated.transact([put, *checks.values()])
        self._turns.won()
        self._upkeep.committed(head, LaneView(new, versions[self._watched.key], sent_s))
        return Won(heads.base_offsets(head, runs))

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
            head = replication.without_zones(head, zone_sets.without(offer.failed, run.zones))
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
        if zone_sets.count(head.isr) < in_sync_min and head.isr != view.head.isr:
            with suppress(RiachoError):
                await self._upkeep.put(view, head)
        replication.check_in_sync(head.isr, in_sync_min)

    async def covered(
        self, head: Head, run: Run, awaited: ZoneSet = NONE, *, is_old: bool = False
    ) -> tuple[Run, ZoneSet]:
        """Return `run` with its object in all zones in sync, and the zones where copying failed.

        The zones are chosen when the object is written. A zone may have come in sync since, and
        a zone in sync must hold everything. `awaited` zones get the object from the writer. If
        the run `is_old`, the zones are asked whether they still have the object.
        """
        if is_old and zone_sets.count(head.isr) > 1 and not run.is_in_table:
            run = await self._found(head, run)
        missing = zone_sets.without(head.isr, run.zones | awaited)
        if not missing:
            return run, NONE
        zones = self._runtime.zones
        key = keys.hot_segment(run.object_id)
        body = await zones.get_as(key, replication.read_names(head, run.zones), segments.verified)
        puts = zones.start(key, [body], replication.zone_names(head, missing))
        await puts.wait(timeout_s=COPY_S_MAX)
        zones.leave_behind(puts)
        done = replication.zones_named(head, puts.done)
        whole = msgspec.structs.replace(run, zones=run.zones | done)
        return whole, zone_sets.without(missing, done)

    async def _found(self, head: Head, run: Run) -> Run:
        """Return `run` with only the zones in sync that have not lost its object."""
        key = keys.hot_segment(run.object_id)
        names = replication.zone_names(head, run.zones & head.isr)
        looks = [begin(self._runtime.zones.store(n).size(key)) for n in names]
        _, slow = await asyncio.wait(looks, timeout=COPY_S_MAX) if looks else ((), ())
        for look in slow:
            look.cancel()
        # A zone that does not answer is not known to have lost the object.
        there = [n for n, look in zip(names, looks, strict=True) if not _is_missing(look)]
        return msgspec.structs.replace(run, zones=replication.zones_named(head, there))

    async def landed(self, old: Head, runs: Sequence[Run], now: Head) -> bool:
        """Whether an unanswered attempt to append `runs` to `old` is part of `now`."""
        piece = runs[0].slices[0]
        base = old.next_offsets[piece.partition]
        if now.next_offsets[piece.partition] <= base:
            return False
        found = await self._runtime.catalog.after(now, piece.partition, base)
        if not found or found[0].is_row_group or found[0].base_offset != base:
            raise OutcomeUnknown("the log was rewritten before the commit could be recognised")
        # An object may have several runs of a lane: the place in it tells them apart.
        if (found[0].object_id, found[0].position) == (runs[0].object_id, runs[0].position):
            return True
        is_rolled = base < heads.inline_start(now, piece.partition)
        may_have_moved = runs[0].is_in_table and is_rolled
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


@dataclass(frozen=True, slots=True)
class _Admitted:
    """A head that all claims are in sequence with, and the windows that they change."""

    view: LaneView
    windows: Mapping[Key, Window]


@dataclass(slots=True)
class _Doubt:
    """The last attempt that was not answered, until its outcome is known."""

    commits: HeadCommits
    unknown: Unknown | None = None

    async def resolved(self, view: LaneView) -> Won | None:
        """Return what it appended if `view` shows that it was applied."""
        tried = self.unknown
        if tried is None or tried.view.version == view.version:
            return None
        if await self.commits.landed(tried.view.head, tried.runs, view.head):
            return Won(heads.base_offsets(tried.view.head, tried.runs))
        # The head has changed since that version, so the attempt can no longer be applied.
        self.unknown = None
        return None


def _is_missing(look: "asyncio.Task[int]") -> bool:
    if not look.done() or look.cancelled():
        return False
    return isinstance(look.exception(), ObjectMissing)


def _runs(offers: Sequence[Offer]) -> list[Run]:
    return [offer.run for offer in offers]


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


def reported(error: RiachoError, *, is_in_doubt: bool) -> RiachoError:
    """Return the error to report: `OutcomeUnknown` if an attempt may have been applied."""
    if not is_in_doubt or isinstance(error, (UnknownTopicOrPartition, OutcomeUnknown)):
        return error
    return OutcomeUnknown(f"the commit was sent, its outcome is unknown: {error}")


def too_late() -> RiachoError:
    return StoreUnavailable("the write took too long and was given up")
