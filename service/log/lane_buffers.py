"""Records buffered for one lane until they are flushed, and the requests waiting for them.

    request ─╮                ╭─ chunk of partition 0 ─╮
    request ─┼─ LaneBuffer ───┼─ chunk of partition 0 ─┼─ one run ── one commit
    request ─╯                ╰─ chunk of partition 7 ─╯

A chunk is the records of one request for one partition. If they come from an idempotent
producer it carries a claim, and two requests with the same claim share a chunk: they are copies
of each other. A chunk whose claim is rejected at the commit is removed from the run, which is
rewritten without it; its requests get the offset it already has, or the reason it was refused.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cmp_to_key
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa

from storage.errors import Conflict, OutcomeUnknown, RiachoError
from storage.formats.slices import Sent
from storage.head import replication
from storage.head.head import Head, Run
from storage.head.producers import SEQUENCES, Claim, Verdict
from storage.lanes.building import LanePart
from storage.lanes.commits import Offer
from storage.lanes.lane import CLAIMS_PER_COMMIT_MAX, Lane, LaneView
from storage.stores.metadata import Check
from storage.topics.topics import Topic

BufferKey: TypeAlias = tuple[bytes, int, Check | None, bool]
"""Topic, lane, what must hold at the commit (the fence), and whether to wait for all zones in sync.
Separate buffers, because appends with a fence fail, and appends with acks=1 wait, on their own."""


VIEW_AGE_MAX_S: Final = 5.0
"""Replicas and ISR of a lane may be this old when choosing where to write. A commit on a head
that has changed since is refused by its version, so staleness costs a retry, never data."""


class Placed(NamedTuple):
    """A run whose `zones` hold it, and the state of the other zones in sync."""

    run: Run
    failed: int = 0
    """Zones that refused it, or took too long."""
    awaited: int = 0
    """Zones that are still writing it; the result is reported to the lane later."""


WriteAgain: TypeAlias = "Callable[[LaneBuffer], Awaitable[Placed]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """An idempotent producer's claims for a request; partitions are numbered as in the topic."""

    by_partition: Mapping[int, Claim] = field(default_factory=dict)
    fence: Check | None = None


NO_CLAIMS: Final = Claims()


@dataclass(slots=True, eq=False)
class Append:
    """One request. It waits for all its lanes."""

    lanes_left: int
    done: "asyncio.Future[dict[int, int]]"
    bases: dict[int, int] = field(default_factory=dict)
    error: Exception | None = None

    def landed(self, bases: Mapping[int, int]) -> None:
        self.bases.update(bases)
        self._settle()

    def fail(self, error: Exception) -> None:
        if self.error is None or isinstance(error, OutcomeUnknown):
            self.error = error
        self._settle()

    def _settle(self) -> None:
        """Answer once every lane has: only then is it known whether anything was written."""
        self.lanes_left -= 1
        if self.lanes_left or self.done.done():
            return
        if self.error is None:
            self.done.set_result(self.bases)
        elif self.bases and isinstance(self.error, RiachoError):
            self.done.set_exception(_mixed(self.error))
        else:
            self.done.set_exception(self.error)


def _mixed(error: RiachoError) -> RiachoError:
    if isinstance(error, Conflict):
        # A sequence error: on a retry, the partitions already written are detected as duplicates.
        return type(error)(f"{error} (other partitions of this request were written)")
    return OutcomeUnknown(f"some partitions were written, others not: {error}")


@dataclass(slots=True, eq=False)
class _Chunk:
    batch: pa.RecordBatch
    appends: list[Append]
    claim: Claim | None = None
    sent: Sequence[Sent] = ()
    """The same records in pieces that can be stored as received; empty if they cannot."""
    verdict: Verdict | None = None
    """Why it is not in the run; None: it is."""


@dataclass(slots=True, eq=False)
class LaneBuffer:
    topic: Topic
    number: int
    lane: Lane
    view: LaneView
    fence: Check | None = None
    waits_for_all: bool = True
    chunks: dict[int, list[_Chunk]] = field(default_factory=dict)
    """By partition within the lane, in order of arrival."""
    sizes: dict[int, int] = field(default_factory=dict)
    """About how many bytes each of these partitions has."""
    _claimed: dict[Claim, _Chunk] = field(default_factory=dict)

    def add(
        self,
        partition: int,
        batch: pa.RecordBatch,
        append: Append | None,
        size_bytes: int,
        claim: Claim | None,
        sent: Sequence[Sent] = (),
    ) -> None:
        """Take records of a partition (within the lane) of a request."""
        chunk = None if claim is None else self._claimed.get(claim)
        if chunk is None:
            chunk = _Chunk(batch, [], claim, sent)
            self.chunks.setdefault(partition, []).append(chunk)
            self.sizes[partition] = self.sizes.get(partition, 0) + size_bytes
            if claim is not None:
                self._claimed[claim] = chunk
        if append is not None:
            chunk.appends.append(append)

    @property
    def is_full(self) -> bool:
        """Whether it has the maximum number of idempotent batches for one commit."""
        return len(self._claimed) >= CLAIMS_PER_COMMIT_MAX

    @property
    def first_partition(self) -> int:
        return self.number * self.topic.lane_partitions

    @property
    def lag_s(self) -> float:
        """Maximum time a zone may take and stay in sync."""
        return int(self.topic.config["replica.lag.time.max.ms"]) / 1000

    @property
    def in_sync_min(self) -> int:
        return int(self.topic.config["min.insync.replicas"]) if self.waits_for_all else 0

    def look_again(self) -> Head:
        """Return the newest head that this process knows.

        While records gathered here, a zone may have failed, which must not be waited for again,
        or another zone may have become the leader.
        """
        self.view = self.lane.known(VIEW_AGE_MAX_S) or self.view
        return self.view.head

    def required_zones(self, head: Head) -> int:
        """Return the zones to wait for: all in sync, or the leaders of its partitions."""
        if self.waits_for_all:
            return head.isr
        leaders = {replication.leader(head, partition) for partition in self.chunks}
        return sum(1 << number for number in leaders if number is not None) or head.isr

    def part(self) -> LanePart:
        """Return what is to be written."""
        if self._claimed:
            self.chunks = {p: _in_sequence(chunks) for p, chunks in self.chunks.items()}
        batches = []
        for partition, chunks in self.chunks.items():
            kept: list[pa.RecordBatch | Sent] = []
            for chunk in chunks:
                if chunk.verdict is None:
                    kept += chunk.sent or [chunk.batch]
            if kept:
                batches.append((partition, kept, self.sizes[partition]))
        return LanePart(
            topic_id=self.topic.topic_id,
            first_partition=self.first_partition,
            codec=self.topic.config.codec,
            zones=self.view.head.isr,
            batches=batches,
        )

    def offer(self, placed: Placed, write_again: WriteAgain) -> Offer:
        """Return a run that holds what `part` returned, with the claims in it."""
        offer = Offer(
            placed.run,
            checks=() if self.fence is None else (self.fence,),
            failed=placed.failed,
            awaited=placed.awaited,
            in_sync_min=self.in_sync_min,
        )
        return self._with_claims(offer, write_again) if self._claimed else offer

    def _with_claims(self, offer: Offer, write_again: WriteAgain) -> Offer:
        claimed: list[_Chunk] = []
        claims: list[Claim] = []
        for chunks in self.chunks.values():
            row = 0
            for chunk in chunks:
                if chunk.verdict is not None:
                    continue
                if chunk.claim is not None:
                    claimed.append(chunk)
                    claims.append(chunk.claim._replace(row=row))
                row += chunk.batch.num_rows

        async def without(rejected: Mapping[int, Verdict]) -> Offer:
            for number, verdict in rejected.items():
                claimed[number].verdict = verdict
            if all(chunk.verdict is not None for of in self.chunks.values() for chunk in of):
                return Offer(None)
            return self.offer(await write_again(self), write_again)

        return replace(offer, claims=tuple(claims), without=without)

    def settled(self, committed: "asyncio.Future[dict[int, int]]") -> None:
        if committed.cancelled():
            # Only when the process stops during the commit: then the outcome is unknown.
            self.fail(OutcomeUnknown("the commit was interrupted; it may have happened"))
            return
        error = committed.exception()
        if error is None:
            self.landed(committed.result())
        else:
            assert isinstance(error, Exception), error
            self.fail(error)

    def fail(self, error: Exception) -> None:
        for append in self._appends():
            append.fail(error)

    def landed(self, bases: Mapping[int, int]) -> None:
        """Report to every request of this lane the offsets of its records."""
        offsets: dict[Append, dict[int, int]] = {append: {} for append in self._appends()}
        refused: dict[Append, RiachoError] = {}
        for partition, chunks in self.chunks.items():
            next_offset = bases.get(partition, 0)
            for chunk in chunks:
                given: Verdict = next_offset if chunk.verdict is None else chunk.verdict
                if chunk.verdict is None:
                    next_offset += chunk.batch.num_rows
                for append in chunk.appends:
                    if isinstance(given, int):
                        offsets[append][self.first_partition + partition] = given
                    else:
                        refused[append] = given
        for append, found in offsets.items():
            if append in refused:
                append.bases.update(found)
                append.fail(refused[append])
            else:
                append.landed(found)

    def _appends(self) -> Iterable[Append]:
        # A dictionary, because a set has no stable order.
        chunks = [chunk for of in self.chunks.values() for chunk in of]
        return dict.fromkeys(append for chunk in chunks for append in chunk.appends)


def _in_sequence(chunks: list[_Chunk]) -> list[_Chunk]:
    """Return the chunks with each producer's own in sequence order.

    Requests of one producer use several connections and may overtake each other.
    """
    places: dict[int, list[int]] = {}
    for place, chunk in enumerate(chunks):
        if chunk.claim is not None:
            places.setdefault(chunk.claim.producer_id, []).append(place)
    ordered = list(chunks)
    for own in places.values():
        if len(own) > 1:
            sequence = sorted((chunks[place] for place in own), key=cmp_to_key(_compare))
            for place, chunk in zip(own, sequence, strict=True):
                ordered[place] = chunk
    return ordered


def _compare(one: _Chunk, other: _Chunk) -> int:
    assert one.claim is not None
    assert other.claim is not None
    if one.claim.epoch != other.claim.epoch:
        return one.claim.epoch - other.claim.epoch
    half = SEQUENCES // 2  # Numbers wrap to 0: more than half-way ahead means behind.
    return (one.claim.sequence - other.claim.sequence + half) % SEQUENCES - half
