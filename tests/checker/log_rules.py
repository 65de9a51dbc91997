"""The rules of the log, each a function over a history. They return what is wrong."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Partition = int
Value = str


@dataclass(frozen=True)
class Produced:
    """One call to produce. `base` is None if it failed or its outcome is not known."""

    client: int
    partition: Partition
    values: tuple[Value, ...]
    began_s: float
    ended_s: float
    base: int | None
    may_have_applied: bool


@dataclass(frozen=True)
class Fetched:
    client: int
    partition: Partition
    offset: int
    began_s: float
    values: tuple[tuple[int, Value], ...]
    next_offset: int
    high_watermark: int
    waited: bool
    ended_s: float = float("inf")
    log_start: int = 0


@dataclass
class LogHistory:
    produced: list[Produced] = field(default_factory=list)
    fetched: list[Fetched] = field(default_factory=list)
    final: dict[Partition, list[tuple[int, Value]]] = field(default_factory=dict)
    """The log at the end: offset and value of every record."""
    log_starts: dict[Partition, int] = field(default_factory=dict)
    """Where each partition begins at the end, if not at 0: what came before was expired."""


def acked_records_are_at_their_offset(history: LogHistory) -> Iterator[str]:
    logs = _logs(history)
    for call in _acked(history):
        for number, value in enumerate(call.values):
            found = logs[call.partition].get(_base(call) + number)
            if found != value:
                yield f"{value!r} was acked at {call.partition}/{_base(call) + number}: {found!r}"


def one_offset_one_value(history: LogHistory) -> Iterator[str]:
    logs = _logs(history)
    for fetch in history.fetched:
        for offset, value in fetch.values:
            final = logs[fetch.partition].get(offset)
            if final != value:
                yield f"{fetch.partition}/{offset} was read as {value!r} and is {final!r}"


def offsets_are_dense(history: LogHistory) -> Iterator[str]:
    for partition, records in history.final.items():
        offsets = [offset for offset, _ in records]
        if offsets != list(range(len(offsets))):
            yield f"partition {partition} has offsets {offsets[:20]}…"


def nothing_appears_twice(history: LogHistory) -> Iterator[str]:
    seen: dict[Value, tuple[Partition, int]] = {}
    for partition, records in history.final.items():
        for offset, value in records:
            if value in seen:
                yield f"{value!r} is at {seen[value]} and at {(partition, offset)}"
            seen[value] = (partition, offset)


def nothing_comes_from_nowhere(history: LogHistory) -> Iterator[str]:
    possible = {
        value
        for call in history.produced
        if call.base is not None or call.may_have_applied
        for value in call.values
    }
    for partition, records in history.final.items():
        for offset, value in records:
            if value not in possible:
                yield f"{value!r} at {partition}/{offset} was refused as not written"


def a_producers_order_holds(history: LogHistory) -> Iterator[str]:
    places: Mapping[Value, int] = {
        value: offset for records in history.final.values() for offset, value in records
    }
    last: dict[tuple[int, Partition], int] = {}
    for call in history.produced:
        for value in call.values:
            if value not in places:
                continue
            key = call.client, call.partition
            if places[value] <= last.get(key, -1):
                yield f"{value!r} at {places[value]} overtook {last[key]}"
            last[key] = places[value]


def reads_see_what_was_acked_before(history: LogHistory) -> Iterator[str]:
    acks: dict[Partition, list[tuple[float, int]]] = defaultdict(list)
    for call in _acked(history):
        acks[call.partition].append((call.ended_s, _base(call) + len(call.values)))
    for fetch in history.fetched:
        seen = max(fetch.high_watermark, fetch.next_offset)
        if fetch.values:
            # A fetch that finds records may stop early; only one at the end must look again.
            continue
        for ended_s, end in acks[fetch.partition]:
            if ended_s < fetch.began_s and end > seen:
                yield f"a fetch begun at {fetch.began_s} saw {seen}, acked before was {end}"


def readers_skip_nothing(history: LogHistory) -> Iterator[str]:
    for fetch in history.fetched:
        offsets = [offset for offset, _ in fetch.values]
        if offsets != list(range(fetch.offset, fetch.next_offset)):
            yield f"asked from {fetch.offset}, got {offsets[:20]}…, next {fetch.next_offset}"


def _acked(history: LogHistory) -> Iterable[Produced]:
    return (call for call in history.produced if call.base is not None)


def _base(call: Produced) -> int:
    assert call.base is not None
    return call.base


def _logs(history: LogHistory) -> Mapping[Partition, Mapping[int, Value]]:
    logs: dict[Partition, dict[int, Value]] = defaultdict(dict)
    for partition, records in history.final.items():
        logs[partition] = dict(records)
    return logs


LOG_RULES: Sequence = (
    acked_records_are_at_their_offset,
    one_offset_one_value,
    offsets_are_dense,
    nothing_appears_twice,
    nothing_comes_from_nowhere,
    a_producers_order_holds,
    reads_see_what_was_acked_before,
    readers_skip_nothing,
)
