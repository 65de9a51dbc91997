"""The rules of idempotent producers, each a function over what gateways answered them.

Every copy of a request is one `Sent`, whether or not its answer arrived. They return what is
wrong. `final` is the log at the end: offset and value of every record, by partition.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

REMEMBERED = 5

OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"
STALE = "INVALID_PRODUCER_EPOCH"
DUPLICATE = "DUPLICATE_SEQUENCE_NUMBER"
UNAVAILABLE = "unavailable"
"""Nothing was written by this copy, for reasons that pass."""
UNKNOWN = "unknown"
ACKED = "acked"

Final = Mapping[int, Sequence[tuple[int, str]]]


class Line(NamedTuple):
    """Who counts records: one producer, one partition, one epoch."""

    producer: int
    partition: int
    epoch: int


@dataclass(frozen=True)
class Sent:
    """A copy of a request, and what the gateway said of it."""

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
    """What no producer should ever be answered."""
    stuck: list[str] = field(default_factory=list)
    """What could not be written though all was calm."""


def idempotent_sequences_appear_once(history: IdempotentHistory, final: Final) -> Iterator[str]:
    numbers = _numbers(history)
    seen: dict[tuple[Line, int], int] = {}
    for records in final.values():
        for offset, value in records:
            if value in numbers:
                if numbers[value] in seen:
                    yield f"{numbers[value]} is at {seen[numbers[value]]} and at {offset}"
                seen[numbers[value]] = offset


def a_producers_numbers_are_in_order_and_without_gaps(
    history: IdempotentHistory, final: Final
) -> Iterator[str]:
    numbers = _numbers(history)
    last: dict[tuple[int, int], tuple[int, int]] = {}
    for partition, records in final.items():
        for offset, value in records:
            if value not in numbers:
                continue
            line, number = numbers[value]
            if line.partition != partition:
                yield f"{value!r} was for {line.partition} and is in {partition}"
            epoch, before = last.get((line.producer, partition), (-1, -1))
            follows = number == before + 1 if line.epoch == epoch else number == 0
            if line.epoch < epoch or not follows:
                yield f"{partition}/{offset}: {line} {number} comes behind {epoch}: {before}"
            last[line.producer, partition] = line.epoch, number


def acknowledged_batches_are_where_they_were_said_to_be(
    history: IdempotentHistory, final: Final
) -> Iterator[str]:
    logs = {partition: dict(records) for partition, records in final.items()}
    for sent in history.sent:
        if sent.base is None:
            continue
        log = logs.get(sent.line.partition, {})
        found = [log.get(sent.base + row) for row in range(len(sent.values))]
        if found != list(sent.values):
            yield f"{sent.values} was said to be at {sent.base}, where there is {found}"


def refused_batches_are_not_written(history: IdempotentHistory, final: Final) -> Iterator[str]:
    """A batch is in the log only if one of its copies wrote it, or may have."""
    written = {value for records in final.values() for _, value in records}
    answers: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for sent in history.sent:
        answers[sent.values].add(sent.answer)
    for values, said in answers.items():
        if not said & {ACKED, UNKNOWN} and not written.isdisjoint(values):
            yield f"{values} is in the log, and all that was said of it is {sorted(said)}"


def what_is_called_a_duplicate_is_in_the_log(
    history: IdempotentHistory, final: Final
) -> Iterator[str]:
    written = {value for records in final.values() for _, value in records}
    for sent in history.sent:
        if sent.answer == DUPLICATE and not written.issuperset(sent.values):
            yield f"{sent.values} is called a duplicate and is not in the log"


def the_last_five_batches_are_remembered(history: IdempotentHistory, _: Final) -> Iterator[str]:
    later: dict[Line, dict[int, float]] = defaultdict(dict)
    for sent in history.sent:
        of_line = later[sent.line]
        of_line[sent.sequence] = min(sent.began_s, of_line.get(sent.sequence, sent.began_s))
    for sent in history.sent:
        if sent.answer == DUPLICATE:
            behind = [
                sequence
                for sequence, began_s in later[sent.line].items()
                if sequence > sent.sequence and began_s < sent.ended_s
            ]
            if len(behind) < REMEMBERED:
                yield f"{sent} was forgotten, and only {sorted(behind)} came after it"


def stale_epochs_are_refused(history: IdempotentHistory, _: Final) -> Iterator[str]:
    """After a newer epoch was acknowledged, nothing of an older one is written any more."""
    acks: dict[tuple[int, int], list[Sent]] = defaultdict(list)
    for sent in history.sent:
        if sent.base is not None:
            acks[sent.line[:2]].append(sent)
    for of_producer in acks.values():
        newer_s: dict[int, float] = {}
        newer_base: dict[int, int] = {}
        for sent in of_producer:
            epoch = sent.line.epoch
            newer_s[epoch] = min(sent.ended_s, newer_s.get(epoch, sent.ended_s))
            newer_base[epoch] = min(sent.base or 0, newer_base.get(epoch, sent.base or 0))
        for sent in of_producer:
            for epoch, ended_s in newer_s.items():
                is_late = epoch > sent.line.epoch and ended_s < sent.began_s
                # A copy of what was there before is answered with where that is.
                if is_late and (sent.base or 0) > newer_base[epoch]:
                    yield f"{sent} after epoch {epoch} at {ended_s}"


def who_keeps_the_order_is_not_refused(history: IdempotentHistory, _: Final) -> Iterator[str]:
    """A gap needs something that is missing, and a stale epoch a newer one."""
    acked_s: dict[tuple[Line, int], float] = {}
    newest: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
    for sent in history.sent:
        newest[sent.line[:2]].append((sent.line.epoch, sent.began_s))
        if sent.answer in {ACKED, DUPLICATE}:
            key = sent.line, sent.end
            acked_s[key] = min(sent.ended_s, acked_s.get(key, sent.ended_s))
    for sent in history.sent:
        newer = any(
            epoch > sent.line.epoch and began_s < sent.ended_s
            for epoch, began_s in newest[sent.line[:2]]
        )
        before_s = -1.0 if not sent.sequence else acked_s.get((sent.line, sent.sequence))
        is_in_order = before_s is not None and before_s < sent.began_s
        if sent.answer == OUT_OF_ORDER and is_in_order and not newer:
            yield f"{sent}: what comes before it was written"
        if sent.answer == STALE and not newer:
            yield f"{sent}: there is no newer epoch"


def after_the_faults_all_is_written(history: IdempotentHistory, _: Final) -> Iterator[str]:
    yield from history.stuck


def producers_meet_no_other_errors(history: IdempotentHistory, _: Final) -> Iterator[str]:
    yield from history.errors


def _numbers(history: IdempotentHistory) -> dict[str, tuple[Line, int]]:
    """Return by value: who counted it, and its number."""
    return {
        value: (sent.line, sent.sequence + row)
        for sent in history.sent
        for row, value in enumerate(sent.values)
    }


IDEMPOTENT_RULES = (
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
