"""Rules of idempotent producers, each a function over the answers that they got from gateways.

Every copy of a request is one `Sent`, whether or not its answer arrived. Rules yield violations in
words. `log` holds the writes and reads of the topic that the producers write to.
"""

import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from tests.checker.log_rules import LogHistory, everything_read
from tests.checker.read_back import ReadBack

REMEMBERED = 5

OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"
STALE = "INVALID_PRODUCER_EPOCH"
DUPLICATE = "DUPLICATE_SEQUENCE_NUMBER"
UNAVAILABLE = "unavailable"
"""This copy wrote nothing, for a temporary reason."""
UNKNOWN = "unknown"
ACKED = "acked"


class Line(NamedTuple):
    """What sequence numbers count for: one producer, one partition, one epoch."""

    producer: int
    partition: int
    epoch: int


@dataclass(frozen=True)
class Sent:
    """A copy of a request, and the gateway's answer to it."""

    line: Line
    sequence: int
    values: tuple[str, ...]
    began_s: float
    ended_s: float
    answer: str
    base: int | None = None

    @property
    def batch(self) -> tuple[Line, int]:
        return self.line, self.sequence

    @property
    def producer(self) -> int:
        return self.line.producer

    @property
    def end(self) -> int:
        return self.sequence + len(self.values)


@dataclass
class IdempotentHistory:
    sent: list[Sent] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Errors that no producer should ever receive."""
    stuck: list[str] = field(default_factory=list)
    """Batches that could not be written although no fault was active."""


def idempotent_sequences_appear_once(history: IdempotentHistory, log: LogHistory) -> Iterator[str]:
    numbers = _numbers(history)
    seen: dict[tuple[Line, int], tuple[int, int]] = {}
    for partition, offset, value in everything_read(log):
        if value in numbers:
            first = seen.setdefault(numbers[value], (partition, offset))
            if first != (partition, offset):
                yield f"{numbers[value]} is at {first} and at {(partition, offset)}"


def a_producers_numbers_are_in_order_and_without_gaps(
    history: IdempotentHistory, log: LogHistory
) -> Iterator[str]:
    """The first record of a log whose start was deleted may have any number."""
    numbers = _numbers(history)
    last: dict[tuple[int, int], tuple[int, int]] = {}
    for partition, records in log.final.items():
        is_whole = not log.log_start(partition)
        for offset, value in records:
            if value not in numbers:
                continue
            line, number = numbers[value]
            if line.partition != partition:
                yield f"{value!r} was for {line.partition} and is in {partition}"
            key = line.producer, partition
            epoch, before = last.get(key, (-1, -1))
            follows = number == before + 1 if line.epoch == epoch else number == 0
            if (is_whole or key in last) and (line.epoch < epoch or not follows):
                yield f"{partition}/{offset}: {line} {number} comes behind {epoch}: {before}"
            last[key] = line.epoch, number


def acknowledged_batches_are_where_they_were_said_to_be(
    history: IdempotentHistory, log: LogHistory
) -> Iterator[str]:
    back = ReadBack(log.final)
    read = {(partition, offset): value for partition, offset, value in everything_read(log)}
    for sent in history.sent:
        if sent.base is None:
            continue
        partition, start = sent.line.partition, log.log_start(sent.line.partition)
        for offset, value in enumerate(sent.values, sent.base):
            found = read.get((partition, offset), value if offset < start else None)
            if found != value:
                there = back.at(partition, offset) if found is None else f"{found!r} was read"
                yield f"{value!r} was said to be at {partition}/{offset}, where {there}"


def refused_batches_are_not_written(history: IdempotentHistory, log: LogHistory) -> Iterator[str]:
    """A batch is in the log only if one of its copies wrote it, or may have."""
    written = {value for _, _, value in everything_read(log)}
    answers: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for sent in history.sent:
        answers[sent.values].add(sent.answer)
    for values, said in answers.items():
        if not said & {ACKED, UNKNOWN} and not written.isdisjoint(values):
            yield f"{values} is in the log, and all that was said of it is {sorted(said)}"


def what_is_called_a_duplicate_is_in_the_log(
    history: IdempotentHistory, log: LogHistory
) -> Iterator[str]:
    """It must be in the log, unless the start of the log was deleted."""
    back = ReadBack(log.final)
    written = {value for _, _, value in everything_read(log)}
    for sent in history.sent:
        if sent.answer != DUPLICATE or log.log_start(sent.line.partition):
            continue
        for value in sent.values:
            if value not in written:
                extent = back.extent(sent.line.partition)
                yield f"{value!r} is called a duplicate, but not in the log: {extent}"


def the_last_five_batches_are_remembered(
    history: IdempotentHistory, _: LogHistory
) -> Iterator[str]:
    first_s: dict[tuple[Line, int], float] = {}
    for sent in history.sent:
        first_s[sent.batch] = min(sent.began_s, first_s.get(sent.batch, sent.began_s))
    begun = sorted((began_s, line, sequence) for (line, sequence), began_s in first_s.items())
    called = [sent for sent in history.sent if sent.answer == DUPLICATE]
    called.sort(key=lambda sent: sent.ended_s)
    # The highest batches of each line that had begun: a batch before all of them may be forgotten.
    highest: dict[Line, list[int]] = defaultdict(list)
    place = 0
    for sent in called:
        while place < len(begun) and begun[place][0] < sent.ended_s:
            line, sequence = begun[place][1:]
            heapq.heappush(highest[line], sequence)
            if len(highest[line]) > REMEMBERED:
                heapq.heappop(highest[line])
            place += 1
        behind = [sequence for sequence in highest[sent.line] if sequence > sent.sequence]
        if len(behind) < REMEMBERED:
            yield f"{sent} was forgotten, and only {sorted(behind)} came after it"


def stale_epochs_are_refused(history: IdempotentHistory, _: LogHistory) -> Iterator[str]:
    """After a newer epoch was acknowledged, no batch of an older one is written."""
    acks: dict[tuple[int, int], list[Sent]] = defaultdict(list)
    for sent in history.sent:
        if sent.base is not None:
            acks[sent.producer, sent.line.partition].append(sent)
    for of_producer in acks.values():
        newer_s: dict[int, float] = {}
        newer_base: dict[int, int] = {}
        for sent in of_producer:
            epoch, base = sent.line.epoch, sent.base or 0
            newer_s[epoch] = min(sent.ended_s, newer_s.get(epoch, sent.ended_s))
            newer_base[epoch] = min(base, newer_base.get(epoch, base))
        yield from _late(of_producer, newer_s, newer_base)


def _late(
    of_producer: Sequence[Sent], newer_s: dict[int, float], newer_base: dict[int, int]
) -> Iterator[str]:
    """Yield copies that began after a newer epoch was acknowledged and were written after it."""
    epochs = sorted(newer_s, key=lambda epoch: newer_s[epoch])
    known = Stairs()
    place = 0
    for sent in sorted(of_producer, key=lambda sent: sent.began_s):
        while place < len(epochs) and newer_s[epochs[place]] < sent.began_s:
            known.add(epochs[place], newer_base[epochs[place]])
            place += 1
        # A copy of a batch that was written earlier is answered with its old offset.
        epoch, base = known.lowest_above(sent.line.epoch)
        if (sent.base or 0) > base:
            yield f"{sent} after epoch {epoch} at {newer_s[epoch]}"


class Stairs:
    """Pairs of numbers, without those for which another has a higher first and a lower second.

    So both numbers rise together, and the lowest second of all with a higher first is the next.
    """

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._seconds: list[float] = []

    def add(self, first: int, second: int) -> None:
        place = bisect_right(self._firsts, first)
        if place < len(self._firsts) and self._seconds[place] <= second:
            return
        start = place
        while start and self._seconds[start - 1] >= second:
            start -= 1
        self._firsts[start:place] = [first]
        self._seconds[start:place] = [second]

    def lowest_above(self, first: int) -> tuple[int, float]:
        """Return the pair with the lowest second among those with a higher first."""
        place = bisect_right(self._firsts, first)
        if place == len(self._firsts):
            return first, float("inf")
        return self._firsts[place], self._seconds[place]


def who_keeps_the_order_is_not_refused(history: IdempotentHistory, _: LogHistory) -> Iterator[str]:
    """A refused sequence needs a missing predecessor, and a refused epoch needs a newer one."""
    acked_s: dict[tuple[Line, int], float] = {}
    epochs: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    for sent in history.sent:
        of_producer, epoch = epochs[sent.producer, sent.line.partition], sent.line.epoch
        of_producer[epoch] = min(sent.began_s, of_producer.get(epoch, sent.began_s))
        if sent.answer in {ACKED, DUPLICATE}:
            key = sent.line, sent.end
            acked_s[key] = min(sent.ended_s, acked_s.get(key, sent.ended_s))
    newer_s = {key: _began_since(of) for key, of in epochs.items()}
    for sent in history.sent:
        if newer_s[sent.producer, sent.line.partition][sent.line.epoch] < sent.ended_s:
            continue
        before_s = -1.0 if not sent.sequence else acked_s.get((sent.line, sent.sequence))
        if sent.answer == OUT_OF_ORDER and before_s is not None and before_s < sent.began_s:
            why = f"what comes before it was written at {before_s}"
            yield f"{sent}: {why if sent.sequence else 'nothing comes before it'}"
        if sent.answer == STALE:
            yield f"{sent}: there is no newer epoch"


def _began_since(began_s: dict[int, float]) -> dict[int, float]:
    """Return for each epoch when the first of all newer ones began."""
    epochs = sorted(began_s, reverse=True)
    earliest = accumulate((began_s[epoch] for epoch in epochs), min, initial=float("inf"))
    return dict(zip(epochs, earliest, strict=False))


def after_the_faults_all_is_written(history: IdempotentHistory, _: LogHistory) -> Iterator[str]:
    yield from history.stuck


def producers_meet_no_other_errors(history: IdempotentHistory, _: LogHistory) -> Iterator[str]:
    yield from history.errors


def _numbers(history: IdempotentHistory) -> dict[str, tuple[Line, int]]:
    """Return the line and the sequence number of each value."""
    return {
        value: (sent.line, sent.sequence + row)
        for sent in history.sent
        for row, value in enumerate(sent.values)
    }


IDEMPOTENT_RULES: Sequence[Callable[[IdempotentHistory, LogHistory], Iterator[str]]] = (
    idempotent_sequences_appear_once,
    a_producers_numbers_are_in_order_and_without_gaps,
    acknowledged_batches_are_where_they_were_said_to_be,
    refused_batches_are_not_written,
    what_is_called_a_duplicate_is_in_the_log,
    the_last_five_batches_are_remembered,
    stale_epochs_are_refused,
    who_keeps_the_order_is_not_refused,
    after_the_faults_all_is_written,
    producers_meet_no_other_errors,
)
