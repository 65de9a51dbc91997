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
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import Final, TypeAlias

from service.log.segment_writer import LaneWrite, Placed
from storage.crypto.envelope import Sealer
from storage.errors import Conflict, OutcomeUnknown, RiachoError
from storage.formats import zone_sets
from storage.formats.entries import Kind
from storage.formats.kafka.batches import Batches
from storage.formats.partitions import FIRST, LanePartition, PartitionNumber
from storage.formats.slices import Sent
from storage.formats.zone_sets import ZoneSet
from storage.head import replication
from storage.head.head import Head
from storage.head.producers import SEQUENCES, Claim, Verdict
from storage.lanes.building import LanePart, Records, Stored, count_of
from storage.lanes.commits import Offer
from storage.lanes.lane import CLAIMS_PER_COMMIT_MAX, Lane, LaneView
from storage.stores.metadata import Check
from storage.tasks import drop_error
from storage.topics.topics import Topic

BufferKey: TypeAlias = tuple[bytes, int, Check | None, bool, Kind]
"""Topic, lane, what must hold at the commit (the fence), whether to wait for all zones in sync, and
the kind of slices. Separate buffers, because appends with a fence fail, and appends with acks=1
wait, on their own; and a run has one kind of slices."""


WRITE_VIEW_AGE_MAX_S: Final = 5.0
"""Replicas and ISR of a lane may be this old when choosing where to write. A commit on a head
that has changed since is refused by its version, so staleness costs a retry, never data."""


LateCheck: TypeAlias = Callable[[], Awaitable[Batches]]
"""Checks records while they are written: returns what they are, or raises why they are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """An idempotent producer's claims for a request; partitions are numbered as in the topic."""

    by_partition: Mapping[PartitionNumber, Claim] = field(default_factory=dict)
    fence: Check | None = None


NO_CLAIMS: Final = Claims()


@dataclass(slots=True, eq=False)
class Append:
    """One request. It waits for all its lanes."""

    bases: dict[PartitionNumber, int]
    """The first offset of each partition, as far as it is known."""
    lanes_left: int = 0
    error: Exception | None = None
    done: "asyncio.Future[dict[PartitionNumber, int]]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    async def answer(self) -> dict[PartitionNumber, int]:
        """Return the first offset in each partition, or raise why there is none."""
        try:
            # Shielded: when one caller disconnects, the flush continues for the others.
            return await asyncio.shield(self.done)
        except asyncio.CancelledError:
            self.done.add_done_callback(drop_error)
            raise

    def landed(self, bases: Mapping[PartitionNumber, int]) -> None:
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
    batch: Records
    appends: list[Append]
    claim: Claim | None = None
    sent: Sequence[Sent] = ()
    """The same records in pieces that can be stored as received; empty if they cannot."""
    check: LateCheck | None = None
    """The check that `batch` has not passed yet, though it may be written already."""
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
    kind: Kind = Kind.ARROW
    """What its records are stored as."""
    sealer: Sealer | None = None
    """What seals the records of an encrypted topic."""
    chunks: dict[LanePartition, list[_Chunk]] = field(default_factory=dict)
    """By partition within the lane, in order of arrival."""
    sizes: dict[LanePartition, int] = field(default_factory=dict)
    """About how many bytes each of these partitions has."""
    _claimed: dict[Claim, _Chunk] = field(default_factory=dict)

    def add(
        self,
        partition: LanePartition,
        batch: Records,
        append: Append | None,
        size_bytes: int,
        claim: Claim | None,
        sent: Sequence[Sent] = (),
        check: LateCheck | None = None,
    ) -> None:
        """Take records of a partition (within the lane) of a request."""
        chunk = None if claim is None else self._claimed.get(claim)
        if chunk is None:
            chunk = _Chunk(batch, [], claim, sent, check)
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
    def in_sync_min(self) -> int:
        return self.topic.in_sync_min if self.waits_for_all else 0

    @property
    def is_empty(self) -> bool:
        """Whether all that it had was rejected."""
        return all(chunk.verdict is not None for of in self.chunks.values() for chunk in of)

    def to_write(self) -> LaneWrite:
        """Return what is to be written, and where, by the newest head that this process knows.

        While records gathered here, a zone may have failed, which must not be waited for again,
        or another zone may have become the leader.
        """
        self.view = self.lane.known(WRITE_VIEW_AGE_MAX_S) or self.view
        head = self.view.head
        return LaneWrite(self._part(head), head, self._required(head), self.topic.config.lag_s_max)

    def _required(self, head: Head) -> ZoneSet:
        """Return the zones to wait for: all in sync, or the leaders of its partitions."""
        if self.waits_for_all:
            return head.isr
        leaders = {replication.leader(head, partition) for partition in self.chunks}
        return zone_sets.of(number for number in leaders if number is not None) or head.isr

    def _part(self, head: Head) -> LanePart:
        if self._claimed:
            self.chunks = {p: _in_sequence(chunks) for p, chunks in self.chunks.items()}
        batches = []
        for partition, chunks in self.chunks.items():
            kept: list[Stored] = []
            for chunk in chunks:
                if chunk.verdict is None:
                    kept += chunk.sent or [chunk.batch]
            if kept:
                batches.append((partition, kept, self.sizes[partition]))
        return LanePart(
            topic_id=self.topic.topic_id,
            first_partition=self.topic.partition_of(self.number, FIRST),
            codec=self.topic.config.codec,
            zones=head.isr,
            batches=batches,
            kind=self.kind,
            sealer=self.sealer,
        )

    def offer(self, placed: Placed) -> Offer:
        """Return a run that holds what `to_write` returned, with the claims in it."""
        return Offer(
            placed.run,
            claims=self._claims() if self._claimed else (),
            checks=() if self.fence is None else (self.fence,),
            failed=placed.failed,
            awaited=placed.awaited,
            in_sync_min=self.in_sync_min,
        )

    def _claims(self) -> tuple[Claim, ...]:
        """Return the claims that are left, each with the number of its first row in the run."""
        claims: list[Claim] = []
        for chunks in self.chunks.values():
            row = 0
            for chunk in chunks:
                if chunk.verdict is not None:
                    continue
                if chunk.claim is not None:
                    claims.append(chunk.claim._replace(row=row))
                row += count_of(chunk.batch)
        return tuple(claims)

    @property
    def is_checked(self) -> bool:
        return all(chunk.check is None for of in self.chunks.values() for chunk in of)

    async def check(self) -> bool:
        """Check what is not checked; return whether all is what it was taken for.

        If not, chunks that were refused are dropped, and what the others are is known: write
        them again.
        """
        is_right = True
        for chunk in [chunk for of in self.chunks.values() for chunk in of]:
            check, chunk.check = chunk.check, None
            if check is None:
                continue
            taken_for = chunk.batch
            assert isinstance(taken_for, Batches)
            try:
                chunk.batch = found = await check()
            except RiachoError as error:
                chunk.verdict = error
                is_right = False
            else:
                times = taken_for.min_ms, taken_for.max_ms
                is_right = is_right and times == (found.min_ms, found.max_ms)
        return is_right

    def reject(self, verdicts: Mapping[int, Verdict]) -> None:
        """Drop chunks by the number of their claim in the latest offer, for these reasons."""
        chunks = [chunk for of in self.chunks.values() for chunk in of]
        claimed = [each for each in chunks if each.verdict is None and each.claim is not None]
        for number, verdict in verdicts.items():
            claimed[number].verdict = verdict

    def fail(self, error: Exception) -> None:
        for append in self._appends():
            append.fail(error)

    def landed(self, bases: Mapping[LanePartition, int]) -> None:
        """Report to every request of this lane the offsets of its records."""
        offsets: dict[Append, dict[PartitionNumber, int]] = {
            append: {} for append in self._appends()
        }
        refused: dict[Append, RiachoError] = {}
        for partition, chunks in self.chunks.items():
            number = self.topic.partition_of(self.number, partition)
            next_offset = bases.get(partition, 0)
            for chunk in chunks:
                given: Verdict = next_offset if chunk.verdict is None else chunk.verdict
                if chunk.verdict is None:
                    next_offset += count_of(chunk.batch)
                for append in chunk.appends:
                    if isinstance(given, int):
                        offsets[append][number] = given
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
