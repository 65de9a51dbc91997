"""The rules of a compacted topic: what may go, what must stay, and where."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple


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


SKEW_S = 120.0
"""Clocks of janitors are apart, and a look takes time: by less than this together."""


@dataclass
class KeyedHistory:
    written: list[Written] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    final: dict[int, list[Record]] = field(default_factory=dict)
    """After a last compaction, when nothing fails any more."""
    compacted: int = 0
    swept: int = 0
    swept_batches: int = 0
    lost_leases: int = 0
    killed: int = 0
    tombstone_s: float = 0
    """How long tombstones live at least."""


def what_is_last_survives(history: KeyedHistory) -> Iterator[str]:
    finals = _by_key(history.final)
    for (partition, key), last in _last_acked(history).items():
        found = finals.get((partition, key), [])
        assert last.offset is not None
        if not found:
            if last.value is not None:
                yield f"{key} of {partition} was {last.value!r} at {last.offset} and is gone"
        elif found[-1].offset < last.offset:
            yield f"{key} of {partition} is back at {found[-1]}, after {last.offset}"
        elif found[-1].offset == last.offset and found[-1].value != last.value:
            yield f"{key} of {partition} was {last.value!r} and is {found[-1]}"


def only_the_last_survives(history: KeyedHistory) -> Iterator[str]:
    for (partition, key), records in _by_key(history.final).items():
        if len(records) > 1:
            yield f"{key} of {partition} has {len(records)} records after compaction: {records[:3]}"


def an_offset_keeps_its_record(history: KeyedHistory) -> Iterator[str]:
    known: dict[tuple[int, int], tuple[str, str | None]] = {
        (sent.partition, sent.offset): (sent.key, sent.value)
        for sent in history.written
        if sent.offset is not None
    }
    reads = [(look.partition, record) for look in history.looks for record in look.records]
    reads += [(p, record) for p, records in history.final.items() for record in records]
    for partition, record in reads:
        place = partition, record.offset
        if known.setdefault(place, (record.key, record.value)) != (record.key, record.value):
            yield f"{place} was {known[place]} and is {record}"


def nothing_comes_from_nowhere(history: KeyedHistory) -> Iterator[str]:
    possible = {
        (sent.partition, sent.key, sent.value)
        for sent in history.written
        if sent.offset is not None or sent.may_have_applied
    }
    for look in history.looks:
        for record in look.records:
            if (look.partition, record.key, record.value) not in possible:
                yield f"{record} of {look.partition} was never sent, or was refused"


def a_fetch_goes_forward(history: KeyedHistory) -> Iterator[str]:
    for look in history.looks:
        offsets = [record.offset for record in look.records]
        steps = [look.asked, *offsets, look.next_offset]
        grows = all(a < b for a, b in pairwise(offsets))
        if steps != sorted(steps) or not grows or look.next_offset in offsets:
            yield f"asked from {look.asked}, got {offsets[:20]}, next {look.next_offset}"


def a_fetch_skips_only_what_was_replaced(history: KeyedHistory) -> Iterator[str]:
    acked: dict[int, list[Written]] = defaultdict(list)
    newest: dict[tuple[int, str], int] = {}
    doubtful = {(sent.partition, sent.key) for sent in history.written if sent.may_have_applied}
    for sent in history.written:
        if sent.offset is not None:
            acked[sent.partition].append(sent)
            place = sent.partition, sent.key
            newest[place] = max(newest.get(place, -1), sent.offset)
    for look in history.looks:
        seen = {record.offset for record in look.records}
        for sent in acked[look.partition]:
            assert sent.offset is not None
            place = sent.partition, sent.key
            is_last = newest[place] == sent.offset and place not in doubtful
            if not is_last or sent.ended_s >= look.began_s:
                continue
            if sent.value is None and look.began_s - sent.began_s >= history.tombstone_s - SKEW_S:
                continue
            if look.asked <= sent.offset < look.next_offset and sent.offset not in seen:
                yield f"{sent} was passed over by {look.asked} to {look.next_offset}"


def _last_acked(history: KeyedHistory) -> Mapping[tuple[int, str], Written]:
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


KEYED_RULES: Sequence = (
    what_is_last_survives,
    only_the_last_survives,
    an_offset_keeps_its_record,
    nothing_comes_from_nowhere,
    a_fetch_goes_forward,
    a_fetch_skips_only_what_was_replaced,
)
