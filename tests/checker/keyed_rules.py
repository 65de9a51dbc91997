"""Rules of a compacted topic: which records may be removed, and which must stay at their offset."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

from tests.checker.read_back import ReadBack


class Record(NamedTuple):
    offset: int
    key: str
    value: str | None
    """None: a tombstone."""


@dataclass(frozen=True)
class Written:
    """One record that was sent. `offset` is None if it failed or its outcome is not known."""

    partition: int
    key: str
    value: str | None
    began_s: float
    ended_s: float
    offset: int | None
    may_have_applied: bool


@dataclass(frozen=True)
class Look:
    """One fetch."""

    partition: int
    asked: int
    began_s: float
    records: tuple[Record, ...]
    next_offset: int

    @property
    def words(self) -> str:
        return f"a fetch of {self.partition} from {self.asked} at {self.began_s}"

    @property
    def gaps(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges of offsets in which the fetch found no record."""
        start = self.asked
        for offset in sorted(record.offset for record in self.records):
            if start < offset:
                yield start, min(offset, self.next_offset)
            start = max(start, offset + 1)
        if start < self.next_offset:
            yield start, self.next_offset


SKEW_S = 120.0
"""Upper bound of the difference between janitors' clocks plus the time that a look takes."""


@dataclass
class KeyedHistory:
    written: list[Written] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    final: dict[int, list[Record]] = field(default_factory=dict)
    """The log after a last compaction, when no fault is active."""
    compacted: int = 0
    swept: int = 0
    swept_batches: int = 0
    lost_leases: int = 0
    killed: int = 0
    tombstone_s: float = 0
    """The minimum time for which tombstones are kept."""


def what_is_last_survives(history: KeyedHistory) -> Iterator[str]:
    finals = _by_key(history.final)
    back = ReadBack({p: ((r.offset, r) for r in records) for p, records in history.final.items()})
    # These may have replaced the record before them and been removed themselves.
    removed = {
        (sent.partition, sent.key)
        for sent in history.written
        if sent.value is None and sent.may_have_applied
    }
    for (partition, key), last in last_acked(history).items():
        found = finals.get((partition, key), [])
        assert last.offset is not None
        if not found:
            if last.value is not None and (partition, key) not in removed:
                there = back.at(partition, last.offset)
                yield f"{key} of {partition} was {last.value!r} at {last.offset}, where {there}"
        elif found[-1].offset < last.offset:
            yield f"{key} of {partition} is back at {found[-1]}, after {last.offset}"
        elif found[-1].offset == last.offset and found[-1].value != last.value:
            yield f"{key} of {partition} was {last.value!r} and is {found[-1]}"


def only_the_last_survives(history: KeyedHistory) -> Iterator[str]:
    for (partition, key), records in _by_key(history.final).items():
        for one, other in pairwise(records):
            yield f"{key} of {partition} is there twice after compaction: {one} and {other}"


def an_offset_keeps_its_record(history: KeyedHistory) -> Iterator[str]:
    known: dict[tuple[int, int], tuple[str, str | None]] = {
        (sent.partition, sent.offset): (sent.key, sent.value)
        for sent in history.written
        if sent.offset is not None
    }
    for partition, record in _everything_read(history):
        place = partition, record.offset
        if known.setdefault(place, (record.key, record.value)) != (record.key, record.value):
            yield f"{place} was {known[place]} and is {record}"


def no_key_comes_from_nowhere(history: KeyedHistory) -> Iterator[str]:
    sent: dict[tuple[int, str, str | None], bool] = {}
    for one in history.written:
        key = one.partition, one.key, one.value
        sent[key] = sent.get(key, False) or one.offset is not None or one.may_have_applied
    for partition, record in _everything_read(history):
        key = partition, record.key, record.value
        if not sent.get(key):
            why = "refused" if key in sent else "never sent"
            yield f"{record} of {partition} was {why}"


def a_fetch_goes_forward(history: KeyedHistory) -> Iterator[str]:
    for look in history.looks:
        offsets = [record.offset for record in look.records]
        for one, other in pairwise(offsets):
            if one >= other:
                yield f"{look.words}: {one} is followed by {other}"
        if offsets and offsets[0] < look.asked:
            yield f"{look.words}: the first is {offsets[0]}"
        behind = max(offsets, default=look.asked - 1)
        if look.next_offset <= behind:
            yield f"{look.words}, and next comes {look.next_offset}, behind {behind}"


def a_fetch_skips_only_what_was_replaced(history: KeyedHistory) -> Iterator[str]:
    doubtful = {(sent.partition, sent.key) for sent in history.written if sent.may_have_applied}
    values: dict[int, list[Written]] = defaultdict(list)
    tombstones: dict[int, list[Written]] = defaultdict(list)
    for place, sent in last_acked(history).items():
        if place not in doubtful:
            (tombstones if sent.value is None else values)[sent.partition].append(sent)
    stay = {partition: Lasting(of) for partition, of in values.items()}
    go = {partition: Lasting(of) for partition, of in tombstones.items()}
    nothing = Lasting(())
    for look in history.looks:
        kept_since_s = look.began_s - history.tombstone_s + SKEW_S
        for start, end in look.gaps:
            missing = chain(
                stay.get(look.partition, nothing).within(start, end, float("-inf")),
                go.get(look.partition, nothing).within(start, end, kept_since_s),
            )
            for sent in missing:
                if sent.ended_s < look.began_s:
                    yield f"{sent} was passed over by {look.words}, between {start} and {end}"


class Lasting:
    """Records that are the last of their keys, by offset."""

    def __init__(self, sent: Sequence[Written]) -> None:
        self._sent = sorted(sent, key=lambda one: one.offset or 0)
        self._offsets = [one.offset or 0 for one in self._sent]
        self._latest_s = list(accumulate((one.began_s for one in self._sent), max))

    def within(self, start: int, end: int, since_s: float) -> Iterator[Written]:
        """Yield records between two offsets that were begun after `since_s`.

        Offsets and times mostly grow together, so the search starts at the end and stops where
        all remaining records were begun earlier.
        """
        place = bisect_left(self._offsets, end) - 1
        while place >= 0 and self._offsets[place] >= start and self._latest_s[place] > since_s:
            if self._sent[place].began_s > since_s:
                yield self._sent[place]
            place -= 1


def _everything_read(history: KeyedHistory) -> Iterator[tuple[int, Record]]:
    for look in history.looks:
        yield from ((look.partition, record) for record in look.records)
    for partition, records in history.final.items():
        yield from ((partition, record) for record in records)


def last_acked(history: KeyedHistory) -> Mapping[tuple[int, str], Written]:
    last: dict[tuple[int, str], Written] = {}
    for sent in history.written:
        before = last.get((sent.partition, sent.key))
        if sent.offset is not None and (before is None or sent.offset > (before.offset or 0)):
            last[sent.partition, sent.key] = sent
    return last


def _by_key(logs: Mapping[int, Sequence[Record]]) -> Mapping[tuple[int, str], list[Record]]:
    found: dict[tuple[int, str], list[Record]] = defaultdict(list)
    for partition, records in logs.items():
        for record in records:
            found[partition, record.key].append(record)
    return found


KEYED_RULES: Sequence[Callable[[KeyedHistory], Iterator[str]]] = (
    what_is_last_survives,
    only_the_last_survives,
    an_offset_keeps_its_record,
    no_key_comes_from_nowhere,
    a_fetch_goes_forward,
    a_fetch_skips_only_what_was_replaced,
)
