"""Rules of how transactions end: which answers repeated and outdated requests get.

Rules yield violations in words.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from math import inf

from tests.checker.read_back import ReadBack
from tests.checker.transaction_rules import (
    ABORTED,
    BY_KAFKA,
    COMMITTED,
    ENDS_REMEMBERED,
    FENCED,
    REFUSED,
    UNDER_KEY,
    WRITER,
    Ending,
    Instance,
    Place,
    Rule,
    TransactionHistory,
    asked_to_commit_s,
    everything_shown,
    name_of,
    ref_of,
)


def repeats_agree_with_the_first_answer(history: TransactionHistory) -> Iterator[str]:
    by_name: dict[str, list[Ending]] = defaultdict(list)
    for ending in history.endings:
        by_name[ending.name].append(ending)
    for name, endings in by_name.items():
        yield from _disagreements(name, endings)


def _disagreements(name: str, endings: Sequence[Ending]) -> Iterator[str]:
    otherwise = {COMMITTED: ABORTED, ABORTED: COMMITTED}
    fates: dict[str, float] = {}
    for ending in endings:
        fate = otherwise.get(ending.wants, "") if ending.answer == REFUSED else ending.answer
        if fate in otherwise:
            fates.setdefault(fate, ending.ended_s)
    if len(fates) > 1:
        yield f"{name} was said to be {fates}"
    following = sorted({e.next_epoch for e in endings if e.next_epoch is not None})
    if len(following) > 1:
        yield f"{name} was said to be followed by {following}"
    bases = [dict(e.bases) for e in endings if e.answer == COMMITTED and e.bases is not None]
    for other in bases[1:]:
        if other != bases[0]:
            yield f"{name} was said to be at {bases[0]} and at {other}"


def ends_are_remembered(history: TransactionHistory) -> Iterator[str]:
    """A repeated request gets the answer of the first one, while that is remembered.

    A transaction is remembered until ten others of its id have ended, or if some of these are
    Kafka's, until the next epoch; a numbered call until its caller raises the epoch; a call under
    a key for as long as any history lasts.
    """
    settled_s: dict[str, float] = {}
    for ending in history.endings:
        if ending.answer in {COMMITTED, ABORTED}:
            ended_s = min(ending.ended_s, settled_s.get(ending.name, ending.ended_s))
            settled_s[ending.name] = ended_s
    # Older clients of Kafka end many transactions in one epoch of theirs.
    kafkas = {ref_of(each.name)[0] for each in history.endings if BY_KAFKA in each.name}
    lowest, raised_s = _epochs_from(history), _raised_s(history)
    for ending in history.endings:
        if ending.answer != FENCED or settled_s.get(ending.name, ending.began_s) >= ending.began_s:
            continue
        whose, number, epoch = ref_of(ending.name)
        if ending.name.startswith(UNDER_KEY):
            yield f"{ending} though it had ended, and a key has no epoch"
        elif ending.name.startswith(WRITER):
            if raised_s.get((whose, number), inf) >= ending.ended_s:
                yield f"{ending} though it had ended, and epoch {number} was not raised yet"
        else:
            times, epochs = lowest.get(whose, ([], []))
            place = bisect_left(times, ending.ended_s)
            remembered = 0 if whose in kafkas else ENDS_REMEMBERED
            if place < len(times) and epochs[place] <= epoch + remembered:
                yield f"{ending} though it had ended, and {epochs[place]} was not reached yet"


def _epochs_from(history: TransactionHistory) -> Mapping[str, tuple[list[float], list[int]]]:
    """Return by transactional id: times, and the lowest epoch that was current then or later.

    Epochs only grow, so an epoch that was current later is an upper bound of earlier ones.
    """
    current: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for instance in history.instances:
        current[instance.transactional_id].append((instance.began_s, instance.epoch))
    committed = {ending.name for ending in history.endings if ending.answer == COMMITTED}
    for name, began_s in asked_to_commit_s(history).items():
        if name in committed and not name.startswith((WRITER, UNDER_KEY)):
            transactional_id, _, epoch = ref_of(name)
            current[transactional_id].append((began_s, epoch))
    lowest = {}
    for transactional_id, known in current.items():
        known.sort()
        epochs = list(accumulate((epoch for _, epoch in reversed(known)), min))[::-1]
        lowest[transactional_id] = [at_s for at_s, _ in known], epochs
    return lowest


def _raised_s(history: TransactionHistory) -> Mapping[tuple[str, int], float]:
    """Return by writer and epoch when the writer first made a call with a higher epoch."""
    began_s: dict[str, dict[int, float]] = defaultdict(dict)
    for ending in history.endings:
        if ending.name.startswith(WRITER):
            writer, epoch, _ = ref_of(ending.name)
            of = began_s[writer]
            of[epoch] = min(ending.began_s, of.get(epoch, inf))
    raised_s = {}
    for writer, of in began_s.items():
        earliest_s = inf
        for epoch in sorted(of, reverse=True):
            raised_s[writer, epoch] = earliest_s
            earliest_s = min(earliest_s, of[epoch])
    return raised_s


def committed_records_are_where_they_were_said_to_be(history: TransactionHistory) -> Iterator[str]:
    attempts = {attempt.name: attempt.values for attempt in history.attempts}
    back = ReadBack(history.final)
    for ending in history.endings:
        if ending.answer != COMMITTED or ending.bases is None or ending.name not in attempts:
            continue
        values = attempts[ending.name]
        if ending.bases.keys() != values.keys():
            yield f"{ending.name} wrote to {list(values)}, and was told of {dict(ending.bases)}"
        for place, base in ending.bases.items():
            for offset, value in enumerate(values.get(place, ()), base):
                if back.get(place, offset) != value:
                    there = back.at(place, offset)
                    yield f"{value!r} was said to be at {place}/{offset}, where {there}"


def all_partitions_have_one_order_of_transactions(history: TransactionHistory) -> Iterator[str]:
    places: dict[str, dict[Place, int]] = defaultdict(dict)
    for place, names in _orders(history):
        for number, name in enumerate(names):
            places[name][place] = number
    for place, names in _orders(history):
        last: dict[Place, tuple[int, str]] = {}
        for name in names:
            for other, number in places[name].items():
                before, earlier = last.get(other, (-1, ""))
                if number < before and place < other:
                    yield f"{name} is behind {earlier} in {place}, and before it in {other}"
                last[other] = number, name
    yield from _circle(list(_orders(history)))


def _circle(orders: Sequence[tuple[Place, Sequence[str]]]) -> Iterator[str]:
    """Describe a cycle of transactions that follow each other, if there is one."""
    following: dict[str, dict[str, Place]] = defaultdict(dict)
    for place, names in orders:
        for one, other in pairwise(names):
            following[one].setdefault(other, place)
    # Repeatedly remove those that follow no other: only cycles, and what follows them, remain.
    ahead = Counter(other for others in following.values() for other in others)
    free = [name for name in following if not ahead[name]]
    while free:
        for other in following.get(free.pop(), ()):
            ahead[other] -= 1
            if not ahead[other]:
                free.append(other)
    behind = {
        other: (name, place)
        for name, others in following.items()
        if ahead[name] > 0
        for other, place in others.items()
    }
    if behind:
        name, passed = min(behind), set[str]()
        while name not in passed:
            passed.add(name)
            name = behind[name][0]
        first, steps = name, list[str]()
        while not steps or name != first:
            name, place = behind[name]
            steps.append(f"behind {name} in {place}")
        yield f"{first} is {', that '.join(steps)}"


def transactions_keep_the_order_of_time(history: TransactionHistory) -> Iterator[str]:
    """A transaction requested after another one was committed comes after it."""
    asked_s, acked_s = asked_to_commit_s(history), _acked_s(history)
    for place, names in _orders(history):
        latest_s, before = -inf, ""
        for name in names:
            if acked_s.get(name, inf) < latest_s:
                late = f"{before}, which was asked for at {latest_s}"
                yield f"{name} was committed at {acked_s[name]}, and in {place} is behind {late}"
            if asked_s.get(name, -inf) > latest_s:
                latest_s, before = asked_s[name], name


def _orders(history: TransactionHistory) -> Iterator[tuple[Place, Sequence[str]]]:
    for place, records in history.final.items():
        yield place, list(dict.fromkeys(name_of(value) for _, value in records))


def _acked_s(history: TransactionHistory) -> Mapping[str, float]:
    acked_s: dict[str, float] = {}
    for ending in history.endings:
        if ending.answer == COMMITTED:
            acked_s[ending.name] = min(ending.ended_s, acked_s.get(ending.name, ending.ended_s))
    return acked_s


def every_instance_has_an_epoch_of_its_own(history: TransactionHistory) -> Iterator[str]:
    """Two instances with the same epoch could not be distinguished or fenced."""
    seen: dict[tuple[str, int, int], Instance] = {}
    for instance in history.instances:
        key = instance.transactional_id, instance.producer_id, instance.epoch
        if key in seen:
            yield f"{seen[key]} and {instance}"
        seen[key] = instance


def zombies_commit_nothing(history: TransactionHistory) -> Iterator[str]:
    """A commit first requested after a newer instance was announced never takes effect."""
    asked_s = asked_to_commit_s(history)
    instances: dict[tuple[str, int], list[Instance]] = defaultdict(list)
    for instance in sorted(history.instances, key=lambda instance: instance.epoch):
        instances[instance.transactional_id, instance.producer_id].append(instance)
    # For each epoch the earliest announcement of that epoch and all newer ones.
    first = {key: list(accumulate(reversed(of), _earlier))[::-1] for key, of in instances.items()}
    epochs = {key: [instance.epoch for instance in of] for key, of in instances.items()}
    happened = [(e.name, str(e)) for e in history.endings if e.answer == COMMITTED]
    read = dict.fromkeys(name_of(value) for _, _, value in everything_shown(history))
    happened += [(name, f"{name} was read") for name in read if name in asked_s]
    for name, what in happened:
        transactional_id, producer_id, epoch = ref_of(name)
        key = transactional_id, producer_id
        place = bisect_right(epochs.get(key, []), epoch)
        if place < len(epochs.get(key, [])) and first[key][place].at_s < asked_s.get(name, -inf):
            yield f"{what}, though asked for at {asked_s[name]}, after {first[key][place]}"


def _earlier(one: Instance, other: Instance) -> Instance:
    return other if other.at_s <= one.at_s else one


ENDING_RULES: Sequence[Rule] = (
    repeats_agree_with_the_first_answer,
    ends_are_remembered,
    committed_records_are_where_they_were_said_to_be,
    all_partitions_have_one_order_of_transactions,
    transactions_keep_the_order_of_time,
    every_instance_has_an_epoch_of_its_own,
    zombies_commit_nothing,
)
