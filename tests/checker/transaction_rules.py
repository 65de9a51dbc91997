"""Rules of transactions, each a function over attempts, answers and reads.

An `Attempt` is a set of values to be written atomically; its name is part of every value in it.
`Ending` is one copy of a request to end it, with the gateway's answer, received or not. Attempts
copy source records, each together with the offset after it; `exactly_once_rules` has the rules of
that. Rules yield violations in words.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.checker.log_rules import VIEW_AGE_S
from tests.checker.read_back import Highest, ReadBack

ENDS_REMEMBERED = 10

COMMITTED = "committed"
ABORTED = "aborted"
REFUSED = "INVALID_TXN_STATE"
"""The transaction has ended in another way than requested."""
FENCED = "INVALID_PRODUCER_EPOCH"
OUTDATED = "of a generation that has passed"
UNAVAILABLE = "unavailable"
"""This copy did nothing, for a temporary reason."""
UNKNOWN = "unknown"

WRITER = "writer-"
"""Prefix of the names of numbered calls, followed by their epoch and number."""
UNDER_KEY = "key-"
"""Prefix of the names of calls under an idempotency key."""
BY_KAFKA = "!kafka-"
"""Part of the names of attempts by Kafka's protocol, in front of their number."""

Place = tuple[str, int]
"""Topic and partition."""
Copied = Mapping[int, int]
"""By source partition, the offset after the last copied record."""


@dataclass(frozen=True)
class Attempt:
    name: str
    values: Mapping[Place, tuple[str, ...]]
    offsets: Copied = field(default_factory=dict)


@dataclass(frozen=True)
class Ending:
    name: str
    wants: str
    began_s: float
    ended_s: float
    answer: str
    next_epoch: tuple[int, int] | None = None
    bases: Mapping[Place, int] | None = None
    """None: the answer had no offsets."""


@dataclass(frozen=True)
class Instance:
    """A new instance of a transactional id was announced."""

    transactional_id: str
    producer_id: int
    epoch: int
    at_s: float
    began_s: float = 0.0
    """When it was requested."""


@dataclass(frozen=True)
class Shown:
    """The records of one partition that a read returned."""

    place: Place
    began_s: float
    ended_s: float
    values: tuple[tuple[int, str], ...]
    end: int
    """The end of the log in the answer."""
    is_end_of_now: bool

    @property
    def words(self) -> str:
        return f"{self.place} was read at {self.began_s}, and said to end at {self.end}"


@dataclass(frozen=True)
class Moment:
    """The metadata table after a change: everything committed at that time."""

    at_s: float
    copied: Copied
    written: int
    """Number of records in all partitions that copies are written to."""


@dataclass
class TransactionHistory:
    source: dict[int, list[str]] = field(default_factory=dict)
    final: dict[Place, list[tuple[int, str]]] = field(default_factory=dict)
    copies_to: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    is_drained: bool | None = None
    """Whether everything was copied in the end; None: there were no copiers."""


Rule = Callable[[TransactionHistory], Iterator[str]]


def name_of(value: str) -> str:
    """Return the attempt that wrote a value."""
    return value.partition("@")[2]


def ref_of(name: str) -> tuple[str, int, int]:
    """Return transactional id, producer id and epoch of an attempt.

    Of a numbered call: the writer, its epoch, and the number of the call.
    """
    match name.partition("!")[0].rsplit(".", 2):
        case [transactional_id, producer_id, epoch] if producer_id.isdigit() and epoch.isdigit():
            return transactional_id, int(producer_id), int(epoch)
    # The name of a value that no attempt wrote.
    return name, 0, 0


def a_transaction_is_all_or_nothing(history: TransactionHistory) -> Iterator[str]:
    """An attempt is in the log completely or not at all, and contiguous in every partition."""
    found = _found(history)
    back = ReadBack(history.final)
    for attempt in history.attempts:
        records = found.get(attempt.name, {})
        if not records:
            continue
        for place, values in attempt.values.items():
            got = records.get(place, [])
            if [value for _, value in got] != list(values):
                there = [value for _, value in got] or f"nothing ({back.extent(place)})"
                yield f"{attempt.name} in {place}: {there} instead of {values}"
            elif any(b != a + 1 for (a, _), (b, _) in pairwise(got)):
                yield f"{attempt.name} in {place}: others are in between, {got}"
        for place in records.keys() - attempt.values.keys():
            yield f"{attempt.name} is in {place}, and was for {list(attempt.values)}"


def no_read_shows_a_part(history: TransactionHistory) -> Iterator[str]:
    """Once a part of a transaction was read, later reads of other partitions return theirs."""
    spans = _spans(history)
    seen_s: dict[str, float] = {}
    for shown in history.shown:
        of_place = spans.get(shown.place, [])
        before = bisect_left(of_place, (shown.end, 0, "")) - 1
        if before >= 0 and shown.end < of_place[before][1]:
            yield f"{shown.words}, within {of_place[before]}"
        for name in {name_of(value) for _, value in shown.values}:
            seen_s[name] = min(shown.ended_s, seen_s.get(name, shown.ended_s))
    yield from _unseen(history, seen_s)


def what_was_answered_committed_is_visible(history: TransactionHistory) -> Iterator[str]:
    acked_s: dict[str, float] = {}
    found = _found(history)
    back = ReadBack(history.final)
    for ending in history.endings:
        if ending.answer == COMMITTED:
            acked_s[ending.name] = min(ending.ended_s, acked_s.get(ending.name, ending.ended_s))
    for attempt in history.attempts:
        if attempt.name in acked_s and attempt.values and attempt.name not in found:
            extents = ", ".join(back.extent(place) for place in attempt.values)
            yield f"{attempt.name} was committed at {acked_s[attempt.name]}, but: {extents}"
    yield from _unseen(history, acked_s)


def nothing_of_an_aborted_or_unfinished_transaction_is_read(
    history: TransactionHistory,
) -> Iterator[str]:
    may_be_read = set()
    aborted = set()
    answers: dict[str, set[str]] = defaultdict(set)
    for ending in history.endings:
        answers[ending.name].add(ending.answer)
        if ending.wants == COMMITTED and ending.answer in {COMMITTED, UNKNOWN}:
            may_be_read.add(ending.name)
        if ending.answer == ABORTED or (ending.answer, ending.wants) == (REFUSED, COMMITTED):
            aborted.add(ending.name)
    places: dict[str, tuple[Place, int]] = {}
    for place, offset, value in everything_shown(history):
        places.setdefault(name_of(value), (place, offset))
    for name, where in places.items():
        if name in aborted:
            yield f"{name} was aborted, and was read at {where}"
        elif name not in may_be_read:
            said = sorted(answers[name]) or "nothing"
            yield f"{name} was never committed ({said} was answered), and was read at {where}"


def nothing_is_read_before_its_commit(history: TransactionHistory) -> Iterator[str]:
    asked_s = asked_to_commit_s(history)
    for shown in history.shown:
        for name in dict.fromkeys(name_of(value) for _, value in shown.values):
            if shown.ended_s < asked_s.get(name, shown.ended_s):
                yield f"{shown.words}: {name} was there, and asked to commit at {asked_s[name]}"


def one_place_one_value(history: TransactionHistory) -> Iterator[str]:
    """All reads of an offset, during the run or at the end, return the same value."""
    back = ReadBack(history.final)
    known: dict[tuple[Place, int], str] = {}
    for place, offset, value in everything_shown(history):
        before = known.setdefault((place, offset), value)
        if before != value:
            yield f"{place}/{offset} is {before!r} and {value!r}"
        if back.get(place, offset) is None:
            yield f"{value!r} was read at {place}/{offset}, where {back.at(place, offset)}"


def places_are_dense(history: TransactionHistory) -> Iterator[str]:
    """Markers have no offset, and readers skip nothing."""
    for place, records in history.final.items():
        if records and records[0][0]:
            yield f"{place} begins at {records[0][0]}"
        for (one, _), (following, _) in pairwise(records):
            if following != one + 1:
                yield f"{place}: {one} is followed by {following}"
    for shown in history.shown:
        for (one, _), (following, _) in pairwise(shown.values):
            if following != one + 1:
                yield f"{shown.words}: {one} is followed by {following}"
        if shown.values and shown.values[-1][0] >= shown.end:
            yield f"{shown.words}, and had {shown.values[-1][0]}"


def ends_of_places_never_go_back(history: TransactionHistory) -> Iterator[str]:
    """Only reads before the end may get old ends, for a while."""
    back = ReadBack(history.final)
    told: dict[Place, list[tuple[float, int, Shown]]] = defaultdict(list)
    for shown in history.shown:
        told[shown.place].append((shown.ended_s, shown.end, shown))
    highest = {place: Highest(of) for place, of in told.items()}
    for shown in history.shown:
        age_s = 0.0 if shown.is_end_of_now else VIEW_AGE_S
        end, before = highest[shown.place].before(shown.began_s - age_s)
        if end > shown.end:
            yield f"{shown.words}, though before {before.words}"
    for place, records in history.final.items():
        end, before = highest.get(place, Highest(())).ever()
        if end > (records[-1][0] + 1 if records else 0):
            yield f"{back.extent(place)} in the end, though {before.words}"


def asked_to_commit_s(history: TransactionHistory) -> Mapping[str, float]:
    """Return when the commit of each attempt was first requested."""
    asked_s: dict[str, float] = {}
    for ending in history.endings:
        if ending.wants == COMMITTED:
            asked_s[ending.name] = min(ending.began_s, asked_s.get(ending.name, ending.began_s))
    return asked_s


def _found(
    history: TransactionHistory,
) -> Mapping[str, Mapping[Place, list[tuple[int, str]]]]:
    """Return the records of each attempt in the log, by place."""
    found: dict[str, dict[Place, list[tuple[int, str]]]] = defaultdict(dict)
    for place, records in history.final.items():
        for offset, value in records:
            found[name_of(value)].setdefault(place, []).append((offset, value))
    return found


def _spans(history: TransactionHistory) -> Mapping[Place, list[tuple[int, int, str]]]:
    spans: dict[Place, list[tuple[int, int, str]]] = defaultdict(list)
    for name, places in _found(history).items():
        for place, records in places.items():
            spans[place].append((records[0][0], records[-1][0] + 1, name))
    return {place: sorted(of_place) for place, of_place in spans.items()}


def _unseen(history: TransactionHistory, since_s: Mapping[str, float]) -> Iterator[str]:
    """Yield the reads that began after a transaction was visible and did not return it."""
    ends: dict[Place, list[tuple[float, int, str]]] = defaultdict(list)
    for place, spans in _spans(history).items():
        ends[place] = sorted(
            (since_s[name], end, name) for _, end, name in spans if name in since_s
        )
    highest: dict[Place, list[tuple[int, str]]] = {}
    for place, known in ends.items():
        top = (0, "")
        highest[place] = [top := max(top, (end, name)) for _, end, name in known]
    for shown in history.shown:
        if not shown.is_end_of_now:
            continue
        known = ends.get(shown.place, [])
        count = bisect_left(known, (shown.began_s, 0, ""))
        if count and highest[shown.place][count - 1][0] > shown.end:
            end, name = highest[shown.place][count - 1]
            yield f"{shown.words}, though {name} ends at {end}, as was known before"


def everything_shown(history: TransactionHistory) -> Iterator[tuple[Place, int, str]]:
    for place, records in history.final.items():
        for offset, value in records:
            yield place, offset, value
    for shown in history.shown:
        for offset, value in shown.values:
            yield shown.place, offset, value


TRANSACTION_RULES: Sequence[Rule] = (
    a_transaction_is_all_or_nothing,
    no_read_shows_a_part,
    what_was_answered_committed_is_visible,
    nothing_of_an_aborted_or_unfinished_transaction_is_read,
    nothing_is_read_before_its_commit,
    one_place_one_value,
    places_are_dense,
    ends_of_places_never_go_back,
)
