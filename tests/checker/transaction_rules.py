"""The rules of transactions, each a function over what was tried, answered and seen.

An `Attempt` is what somebody meant to write all at once; its name is part of every value in it.
`Ending` is one copy of a request to end it, and what a gateway answered, heard or not. Source
records are copied by attempts, each together with the offset behind it. Rules return what is
wrong.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

ENDS_REMEMBERED = 10

COMMITTED = "committed"
ABORTED = "aborted"
REFUSED = "INVALID_TXN_STATE"
"""It has ended otherwise than was asked for."""
FENCED = "INVALID_PRODUCER_EPOCH"
OUTDATED = "of a generation that has passed"
UNAVAILABLE = "unavailable"
"""This copy did nothing, for reasons that pass."""
UNKNOWN = "unknown"

WRITER = "writer-"
"""So begin the names of those who number their calls."""

Place = tuple[str, int]
"""Topic and partition."""
Copied = Mapping[int, int]
"""By source partition, the offset behind what was copied."""


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
    """None: none were told."""


@dataclass(frozen=True)
class Instance:
    """A new instance of a transactional id was announced."""

    transactional_id: str
    producer_id: int
    epoch: int
    at_s: float
    began_s: float = 0.0
    """When it was asked for."""


@dataclass(frozen=True)
class Shown:
    """What somebody who reads was shown of one partition."""

    place: Place
    began_s: float
    ended_s: float
    values: tuple[tuple[int, str], ...]
    end: int
    """Where the log was said to end."""
    is_end_of_now: bool


@dataclass(frozen=True)
class Moment:
    """The metadata table after a change: what is committed, in one look."""

    at_s: float
    copied: Copied
    written: int
    """Records in all partitions that copies go to."""


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
    """Whether all was copied in the end; None: nobody copied."""


def name_of(value: str) -> str:
    """Return the attempt that a value was written by."""
    return value.partition("@")[2]


def a_transaction_is_all_or_nothing(history: TransactionHistory) -> Iterator[str]:
    """What is in the log of an attempt is all of it, in one piece in every partition."""
    found = _found(history)
    for attempt in history.attempts:
        records = found.get(attempt.name, {})
        if not records:
            continue
        for place, values in attempt.values.items():
            got = records.get(place, [])
            if [value for _, value in got] != list(values):
                yield f"{attempt.name} in {place}: {[v for _, v in got]} instead of {values}"
            elif [offset for offset, _ in got] != list(range(got[0][0], got[0][0] + len(got))):
                yield f"{attempt.name} in {place}: others are in between, {got}"
        if records.keys() - attempt.values.keys():
            yield f"{attempt.name} is in {records.keys()} instead of {attempt.values.keys()}"


def no_read_shows_a_part(history: TransactionHistory) -> Iterator[str]:
    """Once anything of a transaction was seen, a look anywhere else sees it too."""
    spans = _spans(history)
    seen_s: dict[str, float] = {}
    for shown in history.shown:
        of_place = spans.get(shown.place, [])
        before = bisect_left(of_place, (shown.end, 0, "")) - 1
        if before >= 0 and shown.end < of_place[before][1]:
            yield f"{shown.place} was said to end at {shown.end}, within {of_place[before]}"
        for name in {name_of(value) for _, value in shown.values}:
            seen_s[name] = min(shown.ended_s, seen_s.get(name, shown.ended_s))
    yield from _unseen(history, seen_s)


def what_was_answered_committed_is_visible(history: TransactionHistory) -> Iterator[str]:
    acked_s: dict[str, float] = {}
    found = _found(history)
    for ending in history.endings:
        if ending.answer == COMMITTED:
            acked_s[ending.name] = min(ending.ended_s, acked_s.get(ending.name, ending.ended_s))
    for attempt in history.attempts:
        if attempt.name in acked_s and attempt.values and attempt.name not in found:
            yield f"{attempt.name} was committed, and is not in the log"
    yield from _unseen(history, acked_s)


def nothing_of_an_aborted_or_unfinished_transaction_is_read(
    history: TransactionHistory,
) -> Iterator[str]:
    may_be_read = set()
    aborted = set()
    for ending in history.endings:
        if ending.wants == COMMITTED and ending.answer in {COMMITTED, UNKNOWN}:
            may_be_read.add(ending.name)
        if ending.answer == ABORTED or (ending.answer, ending.wants) == (REFUSED, COMMITTED):
            aborted.add(ending.name)
    values = [value for _, records in _everything_seen(history) for _, value in records]
    for name in sorted({name_of(value) for value in values}):
        if name in aborted:
            yield f"{name} was aborted, and was read"
        elif name not in may_be_read:
            yield f"{name} was never committed, and was read"


def repeats_agree_with_the_first_answer(history: TransactionHistory) -> Iterator[str]:
    by_name: dict[str, list[Ending]] = defaultdict(list)
    for ending in history.endings:
        by_name[ending.name].append(ending)
    for name, endings in by_name.items():
        yield from _disagreements(name, endings)


def _disagreements(name: str, endings: Sequence[Ending]) -> Iterator[str]:
    fates = {ending.answer for ending in endings} & {COMMITTED, ABORTED}
    fates |= {ABORTED for e in endings if e.answer == REFUSED and e.wants == COMMITTED}
    fates |= {COMMITTED for e in endings if e.answer == REFUSED and e.wants == ABORTED}
    if len(fates) > 1:
        yield f"{name} was said to be committed and aborted: {endings}"
    following = {e.next_epoch for e in endings if e.next_epoch is not None}
    if len(following) > 1:
        yield f"{name} was said to be followed by {following}"
    bases = [dict(e.bases) for e in endings if e.answer == COMMITTED and e.bases is not None]
    if any(other != bases[0] for other in bases):
        yield f"{name} was said to be at {bases}"


def ends_are_remembered(history: TransactionHistory) -> Iterator[str]:
    """A repeat is told what the first one was, as long as ten others have not ended since."""
    settled_s: dict[str, float] = {}
    for ending in history.endings:
        if ending.answer in {COMMITTED, ABORTED}:
            ended_s = min(ending.ended_s, settled_s.get(ending.name, ending.ended_s))
            settled_s[ending.name] = ended_s
    # Epochs only ever grow, so one that was current later says how far they were at most.
    current: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for instance in history.instances:
        current[instance.transactional_id].append((instance.began_s, instance.epoch))
    committed = {ending.name for ending in history.endings if ending.answer == COMMITTED}
    for name, began_s in _asked_s(history).items():
        if name in committed:
            transactional_id, _, epoch = _ref(name)
            current[transactional_id].append((began_s, epoch))
    for ending in history.endings:
        if ending.answer != FENCED or settled_s.get(ending.name, ending.began_s) >= ending.began_s:
            continue
        transactional_id, _, epoch = _ref(ending.name)
        later = [e for at_s, e in current[transactional_id] if at_s >= ending.ended_s]
        if later and min(later) <= epoch + ENDS_REMEMBERED:
            yield f"{ending} though it had ended, and {min(later)} was not reached yet"


def _asked_s(history: TransactionHistory) -> Mapping[str, float]:
    """Return when each was first asked to commit."""
    asked_s: dict[str, float] = {}
    for ending in history.endings:
        if ending.wants == COMMITTED:
            asked_s[ending.name] = min(ending.began_s, asked_s.get(ending.name, ending.began_s))
    return asked_s


def committed_records_are_where_they_were_said_to_be(history: TransactionHistory) -> Iterator[str]:
    attempts = {attempt.name: attempt for attempt in history.attempts}
    logs = {place: dict(records) for place, records in history.final.items()}
    for ending in history.endings:
        if ending.answer != COMMITTED or ending.bases is None:
            continue
        values = attempts[ending.name].values
        if ending.bases.keys() != values.keys():
            yield f"{ending.name} wrote to {values.keys()}, and was told of {ending.bases}"
        for place, base in ending.bases.items():
            wanted = values.get(place, ())
            found = [logs.get(place, {}).get(base + row) for row in range(len(wanted))]
            if found != list(wanted):
                yield f"{ending.name} was said to be at {place}/{base}, where there is {found}"


def every_instance_has_an_epoch_of_its_own(history: TransactionHistory) -> Iterator[str]:
    """Else neither of two that have the same could be told from the other, or fenced."""
    seen: dict[tuple[str, int, int], Instance] = {}
    for instance in history.instances:
        key = instance.transactional_id, instance.producer_id, instance.epoch
        if key in seen:
            yield f"{seen[key]} and {instance}"
        seen[key] = instance


def zombies_commit_nothing(history: TransactionHistory) -> Iterator[str]:
    """A commit that nobody asked for before a newer instance was announced does not happen."""
    asked_s = _asked_s(history)
    instances: dict[str, list[Instance]] = defaultdict(list)
    for instance in history.instances:
        instances[instance.transactional_id].append(instance)
    for ending in history.endings:
        if ending.answer != COMMITTED:
            continue
        transactional_id, producer_id, epoch = _ref(ending.name)
        for newer in instances[transactional_id]:
            is_newer = newer.producer_id == producer_id and newer.epoch > epoch
            if is_newer and newer.at_s < asked_s[ending.name]:
                yield f"{ending} after {newer}"


def there_is_one_copy_of_each_record_in_order(history: TransactionHistory) -> Iterator[str]:
    copies: Counter[str] = Counter()
    for (topic, partition), records in history.final.items():
        if topic != history.copies_to:
            continue
        last: dict[str, int] = {}
        for offset, value in records:
            original = value.partition("@")[0]
            copies[original] += 1
            source, _, number = original.partition(":")
            if int(number) <= last.get(source, -1):
                yield f"{partition}/{offset}: {value!r} comes behind {last[source]}"
            last[source] = int(number)
    for original, count in copies.items():
        if count > 1:
            yield f"{original} was copied {count} times"
    originals = {value for values in history.source.values() for value in values}
    if copies.keys() - originals:
        yield f"{sorted(copies.keys() - originals)[:5]} were copied and are not in the source"
    if history.is_drained and originals - copies.keys():
        yield f"{sorted(originals - copies.keys())[:5]} were not copied"


def numbered_calls_are_in_order(history: TransactionHistory) -> Iterator[str]:
    for place, records in history.final.items():
        last: dict[str, tuple[int, int]] = {}
        for offset, value in records:
            name = name_of(value)
            if name.startswith(WRITER):
                writer, epoch, call = _ref(name)
                if (epoch, call) < last.get(writer, (0, 0)):
                    yield f"{place}/{offset}: {name} comes behind {last[writer]}"
                last[writer] = epoch, call


def offsets_and_output_agree_at_every_moment(history: TransactionHistory) -> Iterator[str]:
    for moment in history.moments:
        if sum(moment.copied.values()) != moment.written:
            yield f"at {moment.at_s}: {moment.copied} are committed, {moment.written} are written"


def committed_offsets_never_go_back(history: TransactionHistory) -> Iterator[str]:
    last: dict[int, int] = {}
    for moment in history.moments:
        for partition, offset in moment.copied.items():
            if offset < last.get(partition, 0):
                yield f"at {moment.at_s}: {partition} went from {last[partition]} to {offset}"
            last[partition] = offset


def after_the_faults_all_is_copied(history: TransactionHistory) -> Iterator[str]:
    if history.is_drained is False:
        yield "not everything was copied"


def nobody_meets_other_errors(history: TransactionHistory) -> Iterator[str]:
    yield from history.errors


def _ref(name: str) -> tuple[str, int, int]:
    """Return transactional id, producer id and epoch of an attempt that has them."""
    transactional_id, producer_id, epoch = name.partition("!")[0].rsplit(".", 2)
    return transactional_id, int(producer_id), int(epoch)


def _found(
    history: TransactionHistory,
) -> Mapping[str, Mapping[Place, list[tuple[int, str]]]]:
    """Return what is in the log of each attempt, by place."""
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
    """Say who began to look after a transaction was seen, and did not see it."""
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
            yield f"{shown} though {name} ends at {end}, which was known before"


def _everything_seen(
    history: TransactionHistory,
) -> Iterable[tuple[Place, Sequence[tuple[int, str]]]]:
    yield from history.final.items()
    for shown in history.shown:
        yield shown.place, shown.values


TRANSACTION_RULES = (
    a_transaction_is_all_or_nothing,
    no_read_shows_a_part,
    what_was_answered_committed_is_visible,
    nothing_of_an_aborted_or_unfinished_transaction_is_read,
    repeats_agree_with_the_first_answer,
    ends_are_remembered,
    committed_records_are_where_they_were_said_to_be,
    every_instance_has_an_epoch_of_its_own,
    zombies_commit_nothing,
    there_is_one_copy_of_each_record_in_order,
    numbered_calls_are_in_order,
    offsets_and_output_agree_at_every_moment,
    committed_offsets_never_go_back,
    after_the_faults_all_is_copied,
    nobody_meets_other_errors,
)
