"""Rules of the log, each a function over a history. They yield violations in words.

Values are unique. Calls of one client are in the order in which it made them. If the start of a log
was deleted, `log_starts` has its first offset.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter

from tests.checker.read_back import Highest, ReadBack

Partition = int
Value = str

VIEW_AGE_S = 1.0
"""Maximum age of a gateway's view in the answer of a fetch that does not reach the end."""


@dataclass(frozen=True)
class Produced:
    """One call to produce. `base` is None if it failed or its outcome is not known.

    If it was sent several times, it begins with the first copy and ends with the first answer.
    """

    client: int
    partition: Partition
    values: tuple[Value, ...]
    began_s: float
    ended_s: float
    base: int | None
    may_have_applied: bool

    @property
    def places(self) -> Iterable[tuple[int, Value]]:
        """The offsets of its values, if it was acknowledged."""
        return () if self.base is None else enumerate(self.values, self.base)

    @property
    def words(self) -> str:
        return f"client {self.client} was acked {self.values[-1:]} at {self.ended_s}"


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
    view_age_s: float = 0.0
    """How old its view of the end may be: one by Kafka's protocol that waits may get an old one."""

    @property
    def is_at_the_end(self) -> bool:
        """Whether the answer claims that there are no more records, which must be current."""
        return self.next_offset >= self.high_watermark

    @property
    def words(self) -> str:
        return f"client {self.client} fetched {self.partition}/{self.offset} at {self.began_s}"


@dataclass
class LogHistory:
    produced: list[Produced] = field(default_factory=list)
    fetched: list[Fetched] = field(default_factory=list)
    final: dict[Partition, list[tuple[int, Value]]] = field(default_factory=dict)
    """The log at the end: offset and value of every record."""
    log_starts: dict[Partition, int] = field(default_factory=dict)
    """The first offset of each partition at the end, if not 0: earlier records were deleted."""

    def log_start(self, partition: Partition) -> int:
        return self.log_starts.get(partition, 0)


def acked_records_are_at_their_offset(history: LogHistory) -> Iterator[str]:
    back = ReadBack(history.final)
    for call in history.produced:
        start = history.log_start(call.partition)
        for offset, value in call.places:
            if offset >= start and back.get(call.partition, offset) != value:
                there = back.at(call.partition, offset)
                yield f"{value!r} was acked at {call.partition}/{offset}, where {there}"


def one_offset_one_value(history: LogHistory) -> Iterator[str]:
    """All reads and acknowledgements of an offset agree, also if it was deleted later."""
    known: dict[tuple[Partition, int], tuple[Value, str]] = {}
    for partition, offset, value, words in everything_reported(history):
        before, by = known.setdefault((partition, offset), (value, words))
        if before != value:
            yield f"{partition}/{offset} is {before!r} ({by}) and {value!r} ({words})"


def what_was_read_stays(history: LogHistory) -> Iterator[str]:
    back = ReadBack(history.final)
    gone: set[tuple[Partition, int]] = set()
    for fetch in history.fetched:
        for offset, value in fetch.values:
            place = fetch.partition, offset
            is_there = back.get(*place) is not None or offset < history.log_start(fetch.partition)
            if not is_there and place not in gone:
                gone.add(place)
                there = back.at(*place)
                yield f"{value!r} was read at {fetch.partition}/{offset}, where {there}"


def offsets_are_dense(history: LogHistory) -> Iterator[str]:
    for partition, records in history.final.items():
        offsets = [offset for offset, _ in records]
        start = history.log_start(partition)
        if offsets and offsets[0] > start:
            yield f"partition {partition} begins at {offsets[0]} instead of {start}"
        for one, following in pairwise(offsets):
            if following != one + 1:
                yield f"partition {partition}: {one} is followed by {following}"


def nothing_appears_twice(history: LogHistory) -> Iterator[str]:
    seen: dict[Value, tuple[Partition, int]] = {}
    for partition, offset, value, _ in everything_reported(history):
        first = seen.setdefault(value, (partition, offset))
        if first != (partition, offset):
            yield f"{value!r} is at {first} and at {(partition, offset)}"


def nothing_comes_from_nowhere(history: LogHistory) -> Iterator[str]:
    """Every record that was read was sent to that partition and was not refused."""
    sent: dict[tuple[Partition, Value], bool] = {}
    for call in history.produced:
        may_be = call.base is not None or call.may_have_applied
        for value in call.values:
            key = call.partition, value
            sent[key] = may_be or sent.get(key, False)
    blamed: set[tuple[Partition, Value]] = set()
    for partition, offset, value in everything_read(history):
        key = partition, value
        if not sent.get(key) and key not in blamed:
            blamed.add(key)
            why = "was refused as not written" if key in sent else "was never sent there"
            yield f"{value!r}, which is at {partition}/{offset}, {why}"


def nothing_is_read_before_it_was_sent(history: LogHistory) -> Iterator[str]:
    began_s: dict[Value, float] = {}
    for call in history.produced:
        for value in call.values:
            began_s[value] = min(call.began_s, began_s.get(value, call.began_s))
    for fetch in history.fetched:
        for offset, value in fetch.values:
            if value in began_s and fetch.ended_s < began_s[value]:
                sent = f"and was sent at {began_s[value]}"
                yield f"{value!r} at {fetch.partition}/{offset} was read by {fetch.ended_s}, {sent}"


def a_producers_order_holds(history: LogHistory) -> Iterator[str]:
    """Order holds within a call, and after all acked calls. Calls given up may be written later."""
    places: dict[tuple[Partition, Value], int] = {}
    for partition, offset, value, _ in everything_reported(history):
        places.setdefault((partition, value), offset)
    acked: dict[tuple[int, Partition], tuple[int, Value]] = {}
    for call in history.produced:
        key = call.client, call.partition
        before, earlier = acked.get(key, (-1, ""))
        for value in call.values:
            place = places.get((call.partition, value))
            if place is None:
                continue
            if place < before:
                sent = f"client {call.client} sent {earlier!r} and then {value!r}"
                yield f"{sent}: in {call.partition} they are at {before} and at {place}"
            before, earlier = place, value
        if call.base is not None:
            acked[key] = before, earlier


def appends_keep_the_order_of_time(history: LogHistory) -> Iterator[str]:
    """A call that began after another one was acked comes after it."""
    places: dict[tuple[Partition, Value], int] = {}
    for partition, offset, value, _ in everything_reported(history):
        places.setdefault((partition, value), offset)
    by_partition: dict[Partition, list[tuple[int, Value, Produced]]] = defaultdict(list)
    for call in history.produced:
        for value in call.values:
            if (call.partition, value) in places:
                placed = places[call.partition, value], value, call
                by_partition[call.partition].append(placed)
    for partition, calls in by_partition.items():
        latest_s, before = float("-inf"), ""
        for offset, value, call in sorted(calls, key=itemgetter(0)):
            if call.base is not None and call.ended_s < latest_s:
                acked = f"{value!r} at {partition}/{offset} was acked at {call.ended_s}"
                yield f"{acked}, and comes behind {before}"
            if call.began_s > latest_s:
                latest_s, before = call.began_s, f"{value!r}, begun at {call.began_s}"


def reads_see_what_was_acked_before(history: LogHistory) -> Iterator[str]:
    """A fetch that claims to be at the end has seen everything acked before it began."""
    acks = _highest(_acks(history))
    for fetch in history.fetched:
        # A fetch that found records may end early; only one at the end must be current.
        if fetch.values and not fetch.is_at_the_end:
            continue
        seen = max(fetch.high_watermark, fetch.next_offset)
        end, call = acks[fetch.partition].before(fetch.began_s - fetch.view_age_s)
        if end > seen:
            yield f"{fetch.words} and saw {seen}, though before {call.words}, up to {end}"


def high_watermarks_never_go_back(history: LogHistory) -> Iterator[str]:
    """Nor are they below acked offsets or the end. Only reads before the end may get old ones."""
    told = _highest(_watermarks(history))
    back = ReadBack(history.final)
    for fetch in history.fetched:
        age_s = fetch.view_age_s if fetch.is_at_the_end else VIEW_AGE_S
        highest, who = told[fetch.partition].before(fetch.began_s - age_s)
        if highest > fetch.high_watermark:
            before = f"though before {who.words}: {highest}"
            yield f"{fetch.words} and was told of {fetch.high_watermark}, {before}"
    for partition, records in history.final.items():
        end = max(history.log_start(partition), records[-1][0] + 1 if records else 0)
        highest, who = told[partition].ever()
        if highest > end:
            yield f"{back.extent(partition)} in the end, though {who.words}: {highest}"


def log_starts_never_go_back(history: LogHistory) -> Iterator[str]:
    told = _highest(_starts(history))
    for fetch in history.fetched:
        age_s = fetch.view_age_s if fetch.is_at_the_end else VIEW_AGE_S
        highest, who = told[fetch.partition].before(fetch.began_s - age_s)
        if highest > fetch.log_start:
            before = f"though before {who.words}: {highest}"
            yield f"{fetch.words} and was told of {fetch.log_start}, {before}"
    for partition in dict.fromkeys([*history.final, *history.log_starts]):
        start = history.log_start(partition)
        highest, who = told[partition].ever()
        if highest > start:
            yield f"{partition} begins at {start} in the end, though {who.words}: {highest}"


def a_fetch_stays_within_the_log(history: LogHistory) -> Iterator[str]:
    for fetch in history.fetched:
        end = fetch.high_watermark
        highest = max((offset for offset, _ in fetch.values), default=-1)
        if highest >= end or fetch.next_offset > max(end, fetch.offset):
            yield f"{fetch.words}: {highest}, next {fetch.next_offset}, of a log that ends at {end}"
        if fetch.log_start > end:
            yield f"{fetch.words}, which begins at {fetch.log_start} and ends at {end}"


def readers_skip_nothing(history: LogHistory) -> Iterator[str]:
    for fetch in history.fetched:
        offsets = [offset for offset, _ in fetch.values]
        steps = [*offsets, fetch.next_offset]
        # A fetch of deleted offsets may return the first records that are left.
        if steps[0] != fetch.offset and not fetch.offset < steps[0] <= fetch.log_start:
            yield f"{fetch.words} and got {steps[0]} of a log from {fetch.log_start}"
        for one, following in pairwise(steps):
            if following != one + 1:
                yield f"{fetch.words}: {one} is followed by {following}"


def a_reader_passes_over_nothing(history: LogHistory) -> Iterator[str]:
    """A reader continues where it was, or after deleted offsets; it may also go back."""
    reached: dict[tuple[int, Partition], int] = {}
    for fetch in history.fetched:
        key = fetch.client, fetch.partition
        start = max(fetch.log_start, history.log_start(fetch.partition))
        if reached.get(key, fetch.offset) < fetch.offset and fetch.offset > start:
            yield f"{fetch.words}, and had read to {reached[key]}"
        reached[key] = max(fetch.next_offset, reached.get(key, 0))


def everything_read(history: LogHistory) -> Iterator[tuple[Partition, int, Value]]:
    for partition, records in history.final.items():
        for offset, value in records:
            yield partition, offset, value
    for fetch in history.fetched:
        for offset, value in fetch.values:
            yield fetch.partition, offset, value


def everything_reported(history: LogHistory) -> Iterator[tuple[Partition, int, Value, str]]:
    """Yield every place of a value that a client saw, and how it saw it."""
    for partition, records in history.final.items():
        for offset, value in records:
            yield partition, offset, value, "in the end"
    for call in history.produced:
        for offset, value in call.places:
            yield call.partition, offset, value, "acked"
    for fetch in history.fetched:
        for offset, value in fetch.values:
            yield fetch.partition, offset, value, "fetched"


Observed = tuple[float, int, Produced | Fetched]


def _acks(history: LogHistory) -> Iterator[Observed]:
    for call in history.produced:
        if call.base is not None:
            yield call.ended_s, call.base + len(call.values), call


def _watermarks(history: LogHistory) -> Iterator[Observed]:
    yield from _acks(history)
    yield from ((fetch.ended_s, fetch.high_watermark, fetch) for fetch in history.fetched)


def _starts(history: LogHistory) -> Iterator[Observed]:
    yield from ((fetch.ended_s, fetch.log_start, fetch) for fetch in history.fetched)


def _highest(told: Iterable[Observed]) -> dict[Partition, Highest]:
    by_partition: dict[Partition, list[Observed]] = defaultdict(list)
    for each in told:
        by_partition[each[2].partition].append(each)
    return defaultdict(lambda: Highest(()), {p: Highest(of) for p, of in by_partition.items()})


LOG_RULES: Sequence[Callable[[LogHistory], Iterator[str]]] = (
    acked_records_are_at_their_offset,
    one_offset_one_value,
    what_was_read_stays,
    offsets_are_dense,
    nothing_appears_twice,
    nothing_comes_from_nowhere,
    nothing_is_read_before_it_was_sent,
    a_producers_order_holds,
    appends_keep_the_order_of_time,
    reads_see_what_was_acked_before,
    high_watermarks_never_go_back,
    log_starts_never_go_back,
    a_fetch_stays_within_the_log,
    readers_skip_nothing,
    a_reader_passes_over_nothing,
)
