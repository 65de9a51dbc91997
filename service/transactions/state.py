"""The transaction item of a transactional id, and its transitions. Pure.

    init                    the next epoch; an open transaction ends: fenced
    begin                   a transaction of the current epoch is open
    stage                   more slices belong to it, in the order of their arrival
    commit, abort, timeout  it has ended, and the next epoch is the current one

A transaction is named by producer id and epoch. As every end makes a new epoch, a late call can
only name a transaction that has ended, and finds its outcome here. The last ten ends are kept, and
the offsets assigned by the last commit: enough to give a repeated call the first reply. After the
last epoch (Kafka's int16) a new producer id follows.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, StrEnum
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from service.transactions import told as tellings
from service.transactions.told import Pair, Told
from storage.errors import (
    InvalidProducerEpoch,
    InvalidRequest,
    InvalidTransactionState,
    OutOfOrderSequence,
    UnknownTransaction,
)
from storage.formats import frames
from storage.formats.partitions import FIRST, LanePartition, PartitionNumber
from storage.head.head import Run
from storage.head.producers import EPOCH_MAX, SEQUENCES
from storage.lanes.atomic import Bases, LaneRuns
from storage.topics.topics import Topic

ENDS_KEPT: Final = 10

_MAGIC: Final = b"RTX1"


class Outcome(StrEnum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    TIMED_OUT = "timed out"
    FENCED = "fenced"


class AfterEnd(Enum):
    """What a client of Kafka's protocol that ends its transaction hears of the next one."""

    FOR_THE_NEXT_EPOCH = "its epoch"
    SILENTLY = "nothing: it goes on with the epoch that it has"


Results: TypeAlias = dict[str, tuple[tuple[PartitionNumber, int, int], ...]]
"""By topic: partition, first offset and count, in the order of partitions."""

Sequences: TypeAlias = Mapping[PartitionNumber, int]
"""By partition, the sequence number of the first record."""


class Staged(msgspec.Struct, array_like=True, frozen=True):
    """What a transaction has written to one lane."""

    topic: str
    topic_id: bytes
    lane: int
    first_partition: PartitionNumber
    runs: tuple[Run, ...]

    def counts(self) -> dict[PartitionNumber, int]:
        """Return the number of records by partition of the topic."""
        counts: dict[PartitionNumber, int] = {}
        for run in self.runs:
            for piece in run.slices:
                partition = PartitionNumber(self.first_partition + piece.partition)
                counts[partition] = counts.get(partition, 0) + piece.count
        return counts


class PendingOffset(msgspec.Struct, array_like=True, frozen=True):
    topic: str
    partition: PartitionNumber
    offset: int
    leader_epoch: int
    metadata: str


class PendingOffsets(msgspec.Struct, array_like=True, frozen=True):
    """What a group has read, to be recorded by the commit."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None
    offsets: tuple[PendingOffset, ...]


class Open(msgspec.Struct, array_like=True, frozen=True):
    started_ms: int
    timeout_ms: int
    staged: tuple[Staged, ...] = ()
    """One for each lane."""
    sequences: dict[str, dict[PartitionNumber, int]] = {}
    """By topic and partition, the sequence that comes next."""
    pending: tuple[PendingOffsets, ...] = ()
    """One for each group."""

    def is_overdue(self, now_ms: int) -> bool:
        return now_ms > self.started_ms + self.timeout_ms


class End(msgspec.Struct, array_like=True, frozen=True):
    producer_id: int
    epoch: int
    outcome: Outcome
    next_producer_id: int
    digest: bytes = b""
    """Digest of the request, if the whole transaction was one request."""

    @property
    def next_epoch(self) -> int:
        return self.epoch + 1 if self.next_producer_id == self.producer_id else 0


class Transaction(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    producer_id: int
    epoch: int
    changed_ms: int
    open: Open | None = None
    ends: tuple[End, ...] = ()
    """The last `ENDS_KEPT` ends, oldest first."""
    results: Results = {}
    """Results of the last commit."""
    results_of: tuple[int, int] | None = None
    """Producer id and epoch of the last commit."""
    told: Told | None = None
    """What the instance knows, if it speaks Kafka's protocol."""

    @property
    def pair(self) -> Pair:
        return self.producer_id, self.epoch

    @property
    def is_last_epoch(self) -> bool:
        return self.epoch == EPOCH_MAX


class Ref(msgspec.Struct, frozen=True):
    """Names a transaction."""

    transactional_id: str
    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.transactional_id}.{self.producer_id}.{self.epoch}"


def parse_ref(text: str) -> Ref:
    """Parse a transaction id, or raise `UnknownTransaction`."""
    parts = text.rsplit(".", 2)
    if len(parts) == 3 and all(_is_number(part) for part in parts[1:]):
        return Ref(parts[0], int(parts[1]), int(parts[2]))
    raise UnknownTransaction(
        f"{text[:300]!r} is no transaction id; POST /v1/transactions begins one and names it"
    )


def _is_number(text: str) -> bool:
    # Only as `Ref` writes it, so that a transaction has one name only.
    is_decimal = text.isascii() and text.isdigit() and len(text) <= 18
    return is_decimal and (text == "0" or not text.startswith("0"))


# Transitions


def create(producer_id: int, now_ms: int) -> Transaction:
    return Transaction(producer_id=producer_id, epoch=0, changed_ms=now_ms)


def renew(txn: Transaction, next_id: int, now_ms: int) -> Transaction:
    """Return the item for a new instance; all earlier instances are fenced.

    `next_id` is the producer id of the next epoch: a new one if the current epoch is the last.
    """
    if txn.open is not None:
        new = end(txn, Outcome.FENCED, next_id, now_ms)
    else:
        new = _advanced(txn, next_id, now_ms)
    return replace(new, told=None)


def tell(txn: Transaction, told: Told) -> Transaction:
    """Return the item of an instance that speaks Kafka's protocol, and was told this."""
    return replace(txn, told=told)


def begin(txn: Transaction, timeout_ms: int, now_ms: int) -> Transaction:
    assert txn.open is None, txn
    return replace(txn, open=Open(now_ms, timeout_ms), changed_ms=now_ms)


def stage(
    txn: Transaction,
    topic: Topic,
    written: Sequence[LaneRuns],
    sequences: Sequences,
    counts: Mapping[PartitionNumber, int],
) -> Transaction:
    """Return the item with more runs of one topic in its open transaction."""
    assert txn.open is not None, txn
    staged = {(each.topic_id, each.lane): each for each in txn.open.staged}
    for lane in written:
        before = staged.get(lane.key)
        staged[lane.key] = Staged(
            topic.name,
            lane.topic_id,
            lane.lane,
            topic.partition_of(lane.lane, FIRST),
            lane.runs if before is None else before.runs + lane.runs,
        )
    following = dict(txn.open.sequences)
    if sequences:
        after = {p: (first + counts[p]) % SEQUENCES for p, first in sequences.items()}
        following[topic.name] = {**following.get(topic.name, {}), **after}
    opened = replace(txn.open, staged=tuple(staged.values()), sequences=following)
    return replace(txn, open=opened)


def add_offsets(txn: Transaction, more: PendingOffsets) -> Transaction:
    """Return the item whose commit records these offsets, too; the last one of a partition."""
    assert txn.open is not None, txn
    pending = {each.group_id: each for each in txn.open.pending}
    before = pending.get(more.group_id)
    offsets = {} if before is None else {(o.topic, o.partition): o for o in before.offsets}
    offsets |= {(o.topic, o.partition): o for o in more.offsets}
    pending[more.group_id] = replace(more, offsets=tuple(offsets.values()))
    return replace(txn, open=replace(txn.open, pending=tuple(pending.values())))


def end(
    txn: Transaction,
    outcome: Outcome,
    next_id: int,
    now_ms: int,
    *,
    results: Results | None = None,
    digest: bytes = b"",
    asked: AfterEnd | None = None,
) -> Transaction:
    """Return the item after its current epoch has ended; `results` only for a commit."""
    assert (results is not None) == (outcome is Outcome.COMMITTED), outcome
    ended = End(txn.producer_id, txn.epoch, outcome, next_id, digest)
    new = replace(_advanced(txn, next_id, now_ms), ends=(*txn.ends, ended)[-ENDS_KEPT:])
    new = replace(new, told=_told(txn, new.pair, outcome, asked))
    if results is not None:
        new = replace(new, results=results, results_of=(txn.producer_id, txn.epoch))
    return new


def _told(txn: Transaction, pair: Pair, outcome: Outcome, asked: AfterEnd | None) -> Told | None:
    if txn.told is None:
        return None
    is_commit = outcome is Outcome.COMMITTED
    if asked is AfterEnd.FOR_THE_NEXT_EPOCH:
        return tellings.ended(txn.told, pair, is_commit=is_commit)
    if asked is AfterEnd.SILENTLY:
        sequences = {} if txn.open is None else txn.open.sequences
        return tellings.ended_silently(txn.told, sequences, is_commit=is_commit)
    return tellings.overtaken(txn.told, pair)


def _advanced(txn: Transaction, next_id: int, now_ms: int) -> Transaction:
    assert (next_id != txn.producer_id) == txn.is_last_epoch, (txn, next_id)
    epoch = 0 if txn.is_last_epoch else txn.epoch + 1
    return replace(txn, producer_id=next_id, epoch=epoch, changed_ms=now_ms, open=None)


# Queries


def find(txn: Transaction | None, ref: Ref) -> Open | End:
    """Return the transaction that `ref` names: open, or how it ended.

    Raises `UnknownTransaction` if there never was one, `InvalidTransactionState` if it has not
    begun, and `InvalidProducerEpoch` if it ended so long ago that its outcome is not kept.
    """
    if txn is None:
        raise UnknownTransaction(
            f"there is no transactional id {ref.transactional_id!r}; POST /v1/transactions begins"
            " a transaction"
        )
    for ended in reversed(txn.ends):
        if (ended.producer_id, ended.epoch) == (ref.producer_id, ref.epoch):
            return ended
    if (ref.producer_id, ref.epoch) == (txn.producer_id, txn.epoch):
        if txn.open is None:
            raise InvalidTransactionState(
                f"transaction {ref} has not begun; begin it with POST /v1/transactions"
            )
        return txn.open
    if ref.producer_id == txn.producer_id:
        is_former = ref.epoch < txn.epoch
    else:
        is_former = any(ended.producer_id == ref.producer_id for ended in txn.ends)
    if is_former:
        raise fenced(ref, txn)
    raise UnknownTransaction(f"there is no transaction {ref}")


def is_open(txn: Transaction | None, ref: Ref) -> bool:
    if txn is None or txn.open is None:
        return False
    return (ref.producer_id, ref.epoch) == (txn.producer_id, txn.epoch)


def find_open(txn: Transaction | None, ref: Ref) -> Open:
    """Return the open transaction, or raise why it is not open."""
    found = find(txn, ref)
    if isinstance(found, Open):
        return found
    assert txn is not None, ref
    raise refusal(txn, ref, found)


def refusal(
    txn: Transaction, ref: Ref, ended: End
) -> InvalidProducerEpoch | InvalidTransactionState:
    """Return the error for a call that came after the transaction ended."""
    if ended.outcome is Outcome.FENCED:
        return fenced(ref, txn)
    if ended.outcome is Outcome.TIMED_OUT:
        return InvalidTransactionState(
            f"transaction {ref} timed out and was aborted: nothing of it was written; begin"
            " another one, with a longer timeout_ms if it needs more time"
        )
    return InvalidTransactionState(f"transaction {ref} was {ended.outcome} already")


def fenced(ref: Ref, txn: Transaction) -> InvalidProducerEpoch:
    return InvalidProducerEpoch(
        f"{ref.transactional_id!r} is at producer id {txn.producer_id} and epoch {txn.epoch}, and"
        f" this is of producer id {ref.producer_id} and epoch {ref.epoch}: a newer instance has"
        " taken over, or the transaction ended; POST /v1/producers takes over from it in turn"
    )


def superseded(ref: Ref, txn: Transaction) -> InvalidProducerEpoch | InvalidTransactionState:
    """Return the error for a call whose epoch is not the current one.

    A timeout, perhaps before the producer got the reply to its begin, does not count as fencing:
    only a newer instance fences.
    """
    for ended in txn.ends:
        is_meant = (ended.producer_id, ended.epoch) == (ref.producer_id, ref.epoch)
        is_last = (ended.next_producer_id, ended.next_epoch) == (txn.producer_id, txn.epoch)
        if is_meant and is_last and ended.outcome is Outcome.TIMED_OUT:
            return refusal(txn, ref, ended)
    return fenced(ref, txn)


def is_staged(
    opened: Open, topic: str, sequences: Sequences, counts: Mapping[PartitionNumber, int]
) -> bool:
    """Whether records with these numbers are staged already.

    Raises `OutOfOrderSequence` if records that come before them are missing.
    """
    known = opened.sequences.get(topic, {})
    repeated = []
    for partition, first in sequences.items():
        expected = known.get(partition, 0)
        behind = (expected - first) % SEQUENCES
        if counts[partition] <= behind <= SEQUENCES // 2:
            repeated.append(partition)
        elif behind:
            raise OutOfOrderSequence(
                f"sequence {first} for {topic}/{partition}, and {expected} comes next in this"
                " transaction; it begins with 0"
            )
    if repeated and len(repeated) < len(sequences):
        raise OutOfOrderSequence(
            f"the records for {topic}/{repeated[0]} are in this transaction already, those for"
            " other partitions of the same request are not"
        )
    return bool(repeated)


def holds_object(opened: Open, written: Sequence[LaneRuns]) -> bool:
    """Whether these runs are staged. An object is of one request, so one run is enough."""
    mine = written[0].runs[0].object_id
    return any(
        run.object_id == mine
        for each in opened.staged
        if (each.topic_id, each.lane) == written[0].key
        for run in each.runs
    )


def name_of(run: Run) -> str:
    """Return the name of a staged request: the id of its object."""
    return run.object_id.hex()


def chosen(opened: Open, names: Sequence[str] | None) -> tuple[Staged, ...]:
    """Return the staged requests with these names, in the order of `names`; None: all of them.

    Raises `InvalidRequest` if a name is not staged or is given twice.
    """
    if names is None:
        return opened.staged
    places = {name: place for place, name in enumerate(names)}
    if len(places) < len(names):
        raise InvalidRequest("staged: the same name is there twice")
    kept = []
    for lane in opened.staged:
        runs = [run for run in lane.runs if name_of(run) in places]
        runs.sort(key=lambda run: places[name_of(run)])
        if runs:
            kept.append(replace(lane, runs=tuple(runs)))
    missing = places.keys() - {name_of(run) for lane in kept for run in lane.runs}
    if missing:
        raise InvalidRequest(
            f"staged: {min(missing)[:100]!r} is no request of this transaction; give the names"
            " that requests without a sequence were answered with"
        )
    return tuple(kept)


def results_of(staged: Iterable[Staged], bases: Bases) -> Results:
    """Return the offsets of every partition written to, given those of each run."""
    found: dict[str, dict[PartitionNumber, tuple[PartitionNumber, int, int]]] = {}
    for lane in staged:
        firsts: dict[LanePartition, int] = {}
        for base in bases[lane.topic_id, lane.lane]:
            # All runs of a lane are appended together, so the later ones follow the first.
            firsts = {**base, **firsts}
        of_topic = found.setdefault(lane.topic, {})
        for partition, count in lane.counts().items():
            local = LanePartition(partition - lane.first_partition)
            of_topic[partition] = (partition, firsts[local], count)
    return {t: tuple(rows[p] for p in sorted(rows)) for t, rows in sorted(found.items())}


_DECODER: Final = msgspec.msgpack.Decoder(Transaction)


def encode(txn: Transaction) -> bytes:
    return frames.seal(_MAGIC, msgspec.msgpack.encode(txn))


def decode(value: bytes) -> Transaction:
    """Return the item, or raise `Corrupt` if `value` is not what `encode` gave."""
    return frames.unpack(_MAGIC, value, _DECODER, "a transaction")
