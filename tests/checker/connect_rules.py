"""Rules of Connect: records once and in order, dead letters, positions, leases, states."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from tests.checker.connect_history import (
    BAD_FOR_SINK,
    BAD_FOR_SOURCE,
    LETTERS,
    STARTED,
    ConnectHistory,
    StateCall,
    StoredConnector,
    TaskChange,
)

Records = Mapping[int, list[tuple[int, str]]]
"""What a topic holds, by partition."""

RESTING = {"pause", "stop"}
WAKING = {"resume", "create"}

ENDS_S_MAX = 60.0
"""Within this time runs of a connector that is paused or stopped make their last commit."""


def sources_skip_and_repeat_nothing(history: ConnectHistory) -> Iterator[str]:
    """Each number is in the log once, in the order of its partition, or a dead letter."""
    for source in _sources(history):
        found = _numbers(_topic(history, source.topic), source.name)
        letters = _numbers(_topic(history, LETTERS + source.name), source.name)
        for partition in sorted(found.keys() | letters.keys()):
            there = found[partition]
            for before, after in pairwise(there):
                if after <= before:
                    yield f"{source.name}/{partition}: {after} comes after {before}"
            known = {*there, *letters[partition]}
            missing = sorted(set(range(max(known) + 1)) - known)
            if missing:
                yield f"{source.name}/{partition} has {max(known)}, and lacks {missing}"


def a_bad_record_has_one_dead_letter(history: ConnectHistory) -> Iterator[str]:
    """And no other record has any; sinks have passed what is before the committed offset."""
    for connector in history.connectors:
        mark = BAD_FOR_SOURCE if connector.kind == "source" else BAD_FOR_SINK
        letters = Counter(
            value
            for records in _topic(history, LETTERS + connector.name).values()
            for _, value in records
        )
        for value, count in letters.items():
            if count > 1:
                yield f"{connector.name}: {value} has {count} dead letters"
            if not value.endswith(mark):
                yield f"{connector.name}: {value} is good, and has a dead letter"
        for partition, records in _topic(history, connector.topic).items():
            passed = connector.committed.get(partition, 0)
            for offset, value in records:
                if not value.endswith(mark):
                    continue
                if connector.kind == "source" and value.startswith(f"{connector.name}/"):
                    yield f"{connector.name}: {value} is bad, and in the log"
                if connector.kind != "source" and offset < passed and not letters[value]:
                    yield f"{connector.name} has passed {value}, which has no dead letter"


def committed_positions_never_go_back(history: ConnectHistory) -> Iterator[str]:
    last: dict[tuple[str, int], int] = {}
    for each in history.positions:
        place = each.connector, each.partition
        if each.number < last.get(place, each.number):
            yield f"{each.connector}/{each.partition} went from {last[place]} to {each.number}"
        last[place] = each.number


def sinks_with_positions_have_each_record_once(history: ConnectHistory) -> Iterator[str]:
    """In order, and without gaps up to the last that the target holds."""
    for sink in _sinks(history):
        if sink.kind != "holding":
            continue
        got = _taken(history, sink.name)
        log = _topic(history, sink.topic)
        for partition, offsets in got.items():
            for before, after in pairwise(offsets):
                if after <= before:
                    yield f"{sink.name} has {partition}/{after} after {before}"
            missing = _good(log, partition, max(offsets) + 1) - set(offsets)
            if missing:
                yield f"{sink.name} has {partition}/{max(offsets)}, and lacks {sorted(missing)}"


def sinks_miss_nothing_before_what_is_committed(history: ConnectHistory) -> Iterator[str]:
    for sink in _sinks(history):
        got = _taken(history, sink.name)
        log = _topic(history, sink.topic)
        for partition, committed in sink.committed.items():
            missing = _good(log, partition, committed) - set(got[partition])
            if missing:
                yield f"{sink.name} committed {partition}/{committed}, and lacks {sorted(missing)}"


def sinks_take_only_what_is_in_the_log(history: ConnectHistory) -> Iterator[str]:
    final = {place: dict(records) for place, records in history.final.items()}
    for each in history.taken:
        there = final.get((each.topic, each.partition), {}).get(each.offset)
        if there != each.value or each.value.endswith((BAD_FOR_SINK, BAD_FOR_SOURCE)):
            yield f"{each} is in a target, and {there} in the log"


def one_run_commits_in_a_lease_epoch(history: ConnectHistory) -> Iterator[str]:
    """Runs follow each other, and each writes only while the lease is that of its beginning."""
    runs = {each.token: each for each in history.commits if each.token}
    owner: dict[tuple[str, int, int], int] = {}
    last: dict[tuple[str, int], tuple[int, int]] = {}
    over: set[int] = set()
    for change in history.changes:
        run = runs.get(change.token)
        if run is None:
            continue
        task = change.connector, change.task
        if run.epoch != change.epoch:
            yield f"run {run.run} of {task} began in epoch {run.epoch}, and {change}"
        if owner.setdefault((*task, change.epoch), run.run) != run.run:
            yield f"runs {owner[*task, change.epoch]} and {run.run} of {task}: {change}"
        before = last.get(task, (run.run, change.epoch))
        if before[0] != run.run:
            over.add(before[0])
        if run.run in over or change.epoch < before[1]:
            yield f"run {run.run} of {task} was over: {change}"
        last[task] = run.run, change.epoch


def what_was_answered_committed_is_in_the_table(history: ConnectHistory) -> Iterator[str]:
    there = {each.token for each in history.changes}
    for each in history.commits:
        if each.code == 0 and each.token not in there:
            yield f"{each} is not in the table"


def a_connector_that_rests_begins_nothing(history: ConnectHistory) -> Iterator[str]:
    """From the answer to a pause or a stop on, until it may have been started again.

    Runs that had begun commit what they have, and end.
    """
    calls: dict[str, list[StateCall]] = defaultdict(list)
    for call in history.calls:
        calls[call.connector].append(call)
    changes: dict[str, list[TaskChange]] = defaultdict(list)
    began_s: dict[tuple[str, int, int], float] = {}
    for change in history.changes:
        changes[change.connector].append(change)
        began_s.setdefault((change.connector, change.task, change.epoch), change.at_s)
    for name, of in calls.items():
        waking = [call for call in of if call.does in WAKING and call.code in (0, None)]
        for rest in of:
            if rest.does not in RESTING or rest.code != 0:
                continue
            later = [
                call.began_s for call in waking if call.code is None or call.ended_s > rest.began_s
            ]
            until_s = max(rest.ended_s, min(later, default=float("inf")))
            for change in changes[name]:
                if not rest.ended_s < change.at_s < until_s:
                    continue
                is_new = began_s[name, change.task, change.epoch] > rest.ended_s
                if is_new or change.at_s > rest.ended_s + ENDS_S_MAX:
                    yield f"{change}, although {rest}"


def started_connectors_get_everything_through(history: ConnectHistory) -> Iterator[str]:
    for source in _sources(history):
        if source.target != STARTED:
            continue
        found = _numbers(_topic(history, source.topic), source.name)
        letters = _numbers(_topic(history, LETTERS + source.name), source.name)
        for partition, count in enumerate(source.counts):
            known = {*found[partition], *letters[partition]}
            if missing := sorted(set(range(count)) - known):
                yield f"{source.name}/{partition} has not brought {missing}"
    for sink in _sinks(history):
        if sink.target != STARTED:
            continue
        got = _taken(history, sink.name)
        log = _topic(history, sink.topic)
        letters = _values(_topic(history, LETTERS + sink.name))
        for partition, records in log.items():
            missing = sorted(_good(log, partition) - set(got[partition]))
            lost = [v for _, v in records if v.endswith(BAD_FOR_SINK) and v not in letters]
            if missing or lost:
                yield f"{sink.name} has not taken {partition}/{missing}, nor given up {lost}"


def connectors_meet_no_other_errors(history: ConnectHistory) -> Iterator[str]:
    yield from history.errors


def _sources(history: ConnectHistory) -> list[StoredConnector]:
    return [each for each in history.connectors if each.kind == "source"]


def _sinks(history: ConnectHistory) -> list[StoredConnector]:
    return [each for each in history.connectors if each.kind != "source"]


def _topic(history: ConnectHistory, topic: str) -> Records:
    return {place[1]: records for place, records in history.final.items() if place[0] == topic}


def _values(records: Records) -> set[str]:
    return {value for of in records.values() for _, value in of}


def _numbers(records: Records, source: str) -> Mapping[int, list[int]]:
    """Return the numbers of a source, by its partitions, in the order of the log."""
    found: dict[int, list[int]] = defaultdict(list)
    for of in records.values():
        for _, value in of:
            name, _, place = value.rstrip(BAD_FOR_SINK + BAD_FOR_SOURCE).rpartition("/")
            if name == source:
                partition, _, number = place.partition(":")
                found[int(partition)].append(int(number))
    return found


def _taken(history: ConnectHistory, sink: str) -> Mapping[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for each in history.taken:
        if each.connector == sink:
            found[each.partition].append(each.offset)
    return found


def _good(log: Records, partition: int, end: float = float("inf")) -> set[int]:
    """Return the offsets of good records before `end`."""
    return {
        offset
        for offset, value in log.get(partition, [])
        if offset < end and not value.endswith(BAD_FOR_SINK)
    }


CONNECT_RULES: Sequence[Callable[[ConnectHistory], Iterator[str]]] = (
    sources_skip_and_repeat_nothing,
    a_bad_record_has_one_dead_letter,
    committed_positions_never_go_back,
    sinks_with_positions_have_each_record_once,
    sinks_miss_nothing_before_what_is_committed,
    sinks_take_only_what_is_in_the_log,
    one_run_commits_in_a_lease_epoch,
    what_was_answered_committed_is_in_the_table,
    a_connector_that_rests_begins_nothing,
    started_connectors_get_everything_through,
    connectors_meet_no_other_errors,
)
