"""Idempotent producers: their remembered state, and how it judges a batch. Pure.

A producer numbers the records that it sends to each partition. The head remembers, for each
producer and partition, the number that comes next and where the last five batches went, so a
batch is one of:

    next        its sequence is the expected one: append it
    duplicate   it is one of the last five: its records are at the offset it got then
    refused     a gap, an old epoch, or a duplicate that is not remembered any more

A verdict holds only for the head it was judged against. The commit is conditional on that head,
so a *next* batch is appended once, by the first gateway that commits. A *duplicate* or old epoch
stays one for ever; a *gap* may be filled later.

Numbers count records and return to 0 after 2^31 - 1, as Kafka's do.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from storage.errors import (
    DuplicateSequence,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    ProducerForgotten,
    RiachoError,
)
from storage.formats.partitions import LanePartition

REMEMBERED_MAX: Final = 5
"""Maximum number of batches in flight for each producer and partition, as in Kafka."""

SEQUENCES: Final = 2**31
EPOCH_MAX: Final = 32_767
PRODUCER_ID_MAX: Final = 2**53 - 1
"""The largest integer that every JSON parser represents exactly."""

_MINUTE_MS: Final = 60_000

Key: TypeAlias = tuple[int, int]
"""Producer id, and the partition within the lane."""

Verdict: TypeAlias = int | RiachoError
"""Why a batch is not appended: it is already at this offset, or this error refuses it."""


class Claim(NamedTuple):
    """What a batch says of itself: these records of this producer, with these numbers."""

    partition: LanePartition
    producer_id: int
    epoch: int
    sequence: int
    record_count: int
    row: int = 0
    """Its first record, counted over the records of the partition in the same run."""

    @property
    def key(self) -> Key:
        return self.producer_id, self.partition


class Window(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The remembered state of a producer in one partition."""

    producer_id: int
    partition: LanePartition
    epoch: int
    used_minute: int
    """When it last wrote, in minutes since 1970."""
    next_sequence: int
    batches: tuple[int, ...]
    """Record count and base offset of the last batches, alternating, oldest first. The sequence
    of each is computed from the later ones."""

    @property
    def key(self) -> Key:
        return self.producer_id, self.partition


def judge(window: Window | None, claim: Claim) -> Verdict | None:
    """Return why the batch is not appended, or None if it comes next."""
    if window is None:
        return None if claim.sequence == 0 else _forgotten(claim)
    if claim.epoch < window.epoch:
        return InvalidProducerEpoch(
            f"producer {claim.producer_id} writes with epoch {claim.epoch}, but epoch"
            f" {window.epoch} has been seen: a newer instance has taken its place"
        )
    if claim.epoch > window.epoch:
        return None if claim.sequence == 0 else _out_of_order(claim, 0, "the epoch is new")
    if claim.sequence == window.next_sequence:
        return None
    return _judge_other(window, claim)


def _judge_other(window: Window, claim: Claim) -> Verdict:
    """Judge a batch that is not the next one: after a gap, or sent before."""
    behind = (window.next_sequence - claim.sequence) % SEQUENCES
    if behind > SEQUENCES // 2:
        return _out_of_order(claim, window.next_sequence, "records before it are missing")
    sequence = window.next_sequence
    for position in range(len(window.batches) - 2, -1, -2):
        count, base_offset = window.batches[position], window.batches[position + 1]
        sequence = (sequence - count) % SEQUENCES
        if (sequence, count) == (claim.sequence, claim.record_count):
            return base_offset
    remembered = (window.next_sequence - sequence) % SEQUENCES
    if behind - claim.record_count < remembered:
        return _out_of_order(
            claim,
            window.next_sequence,
            "it overlaps records that were sent in other batches (a sequence counts records)",
        )
    if len(window.batches) < 2 * REMEMBERED_MAX:
        # All batches of this epoch are remembered, so this one is not a duplicate.
        return _out_of_order(claim, window.next_sequence, "it was never sent")
    return DuplicateSequence(
        f"producer {claim.producer_id}: sequence {claim.sequence} was written before its last"
        f" {REMEMBERED_MAX} batches, so its offset is not remembered; it is in the log once"
    )


def _forgotten(claim: Claim) -> RiachoError:
    return ProducerForgotten(str(_out_of_order(claim, 0, "nothing of it is known")))


def _out_of_order(claim: Claim, expected: int, why: str) -> RiachoError:
    return OutOfOrderSequence(
        f"producer {claim.producer_id}, epoch {claim.epoch}: sequence {claim.sequence} came where"
        f" {expected} is expected: {why}"
    )


def advance(window: Window | None, claim: Claim, base_offset: int, minute: int) -> Window:
    """Return the window after a batch that came next was given `base_offset`."""
    batches: tuple[int, ...] = ()
    if window is not None and window.epoch == claim.epoch:
        batches = window.batches[-2 * (REMEMBERED_MAX - 1) :]
    return Window(
        claim.producer_id,
        claim.partition,
        claim.epoch,
        minute,
        (claim.sequence + claim.record_count) % SEQUENCES,
        (*batches, claim.record_count, base_offset),
    )


def settle(
    windows: Mapping[Key, Window],
    claims: Sequence[Sequence[Claim]],
    bases: Sequence[Mapping[LanePartition, int]],
    minute: int,
) -> tuple[list[dict[int, Verdict]], dict[Key, Window]]:
    """Judge the claims of several runs that are appended one after the other.

    `bases` is the first offset of each run in every partition. Returns for each run the claims
    (by their position) that must not be appended, and the windows that change if there are
    none, most recently used last.
    """
    verdicts: list[dict[int, Verdict]] = []
    changed: dict[Key, Window] = {}
    for of_run, base in zip(claims, bases, strict=True):
        rejected: dict[int, Verdict] = {}
        for number, claim in enumerate(of_run):
            key = claim.key
            window = changed.get(key) or windows.get(key)
            verdict = judge(window, claim)
            if verdict is None:
                offset = base[claim.partition] + claim.row
                changed.pop(key, None)
                changed[key] = advance(window, claim, offset, minute)
            else:
                rejected[number] = verdict
        verdicts.append(rejected)
    return verdicts, changed


def minute_of(now_ms: int) -> int:
    return now_ms // _MINUTE_MS


def unexpired(windows: Iterable[Window], minute: int, expiration_ms: int) -> dict[Key, Window]:
    """Return the windows that were used within `expiration_ms`, by key, in the same order."""
    oldest = minute - -(-expiration_ms // _MINUTE_MS)
    return {window.key: window for window in windows if window.used_minute >= oldest}


def inline_bytes(windows: Sequence[Window]) -> int:
    """Return the approximate size of the windows in the encoded head."""
    return sum([20 + 4 * len(window.batches) for window in windows])
