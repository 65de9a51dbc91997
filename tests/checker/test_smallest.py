"""Shrinking thousands of operations leaves those that show the fault, and few others."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.checker import idempotent_rules
from tests.checker.history import History, violations
from tests.checker.keyed_rules import Record
from tests.checker.operations import entries
from tests.checker.sample import COPIES, sample
from tests.checker.smallest import fewest, lines, smallest
from tests.checker.test_group_rules import BROKEN as BROKEN_GROUPS
from tests.checker.test_idempotent_rules import BROKEN as BROKEN_COPIES
from tests.checker.test_keyed_rules import BROKEN as BROKEN_KEYED
from tests.checker.test_log_rules import BROKEN as BROKEN_LOGS
from tests.checker.test_schema_rules import BROKEN as BROKEN_SCHEMAS
from tests.checker.test_transaction_rules import BROKEN as BROKEN_TRANSACTIONS
from tests.checker.transaction_rules import COMMITTED

OPERATIONS = 10_000


def lose_a_record(history: History) -> None:
    del history.final[1][len(history.final[1]) // 2]


def lose_the_end(history: History) -> None:
    del history.final[2][-40:]


def show_another_value(history: History) -> None:
    place, fetch = next((n, f) for n, f in enumerate(history.fetched) if n > 500 and f.values)
    other = (fetch.values[0][0], "other")
    history.fetched[place] = replace(fetch, values=(other, *fetch.values[1:]))


def write_what_was_refused(history: History) -> None:
    refused = [c for c in history.produced if c.base is None and not c.may_have_applied]
    call = refused[len(refused) // 2]
    end = len(history.final[call.partition])
    history.final[call.partition] += enumerate(call.values, end)


def tell_an_old_watermark(history: History) -> None:
    fetch = history.fetched[-1]
    history.fetched[-1] = replace(fetch, values=(), next_offset=fetch.offset, high_watermark=3)


def forget_a_poll(history: History) -> None:
    del history.group.delivered[len(history.group.delivered) // 2]


def take_a_commit_back(history: History) -> None:
    last = history.group.seen[-1]
    history.group.seen[-1] = replace(last, offsets={**last.offsets, 1: last.offsets[1] - 5})


def read_at_the_same_time(history: History) -> None:
    reads = history.group.reads
    reads[20] = replace(reads[20], ended_s=reads[20].ended_s + 5, beaten_s=reads[20].ended_s)


def write_a_batch_twice(history: History) -> None:
    sent = history.idempotent.sent[len(history.idempotent.sent) // 2]
    log = history.final[sent.line.partition]
    log += enumerate(sent.values, len(log))


def call_it_a_duplicate(history: History) -> None:
    sent = history.idempotent.sent[-1]
    answer = idempotent_rules.DUPLICATE
    later = replace(sent, answer=answer, base=None, began_s=1e6, ended_s=1e6 + 1)
    history.idempotent.sent.append(later)


def show_half_of_a_transaction(history: History) -> None:
    records = history.transactions.final[COPIES, 0]
    del records[len(records) // 2]


def commit_as_a_zombie(history: History) -> None:
    instance = replace(history.transactions.instances[0], epoch=10**6, at_s=5.0)
    history.transactions.instances.append(instance)


def answer_a_repeat_otherwise(history: History) -> None:
    ends = [e for e in history.transactions.endings if e.answer == COMMITTED]
    end = ends[len(ends) // 2]
    bases = {place: base + 1 for place, base in (end.bases or {}).items()}
    history.transactions.endings.append(replace(end, bases=bases))


def compact_too_much(history: History) -> None:
    del history.keyed.final[0][-1]


def bring_a_key_back(history: History) -> None:
    look = history.keyed.looks[-1]
    records = (Record(look.asked, "k1", "nobody wrote this"), *look.records[1:])
    history.keyed.looks[-1] = replace(look, records=records)


FAULTS: list[Callable[[History], None]] = [
    lose_a_record,
    lose_the_end,
    show_another_value,
    write_what_was_refused,
    tell_an_old_watermark,
    forget_a_poll,
    take_a_commit_back,
    read_at_the_same_time,
    write_a_batch_twice,
    call_it_a_duplicate,
    show_half_of_a_transaction,
    commit_as_a_zombie,
    answer_a_repeat_otherwise,
    compact_too_much,
    bring_a_key_back,
]
HANDFUL = 8


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_thousands_of_operations_shrink_to_a_handful(fault: Callable[[History], None]) -> None:
    history = sample(OPERATIONS)
    assert len(entries(history)) >= OPERATIONS
    fault(history)
    # One violation of each rule that the fault breaks.
    found = {line.partition(":")[0]: line for line in violations(history)}
    assert found

    for line in found.values():
        least = smallest(history, line)
        assert line in violations(least)
        assert len(entries(least)) <= HANDFUL, lines(least)
        assert sum(map(len, least.final.values())) <= HANDFUL
        assert sum(len(fetch.values) for fetch in least.fetched) <= HANDFUL


BROKEN = [
    *BROKEN_LOGS,
    *BROKEN_GROUPS,
    *BROKEN_COPIES,
    *BROKEN_TRANSACTIONS,
    *BROKEN_KEYED,
    *BROKEN_SCHEMAS,
]


@pytest.mark.parametrize(("rule", "history"), BROKEN)
def test_every_kind_of_violation_can_be_shrunk(rule: str, history: History) -> None:
    """No rule crashes on parts of a history, and a shrunk history is never longer."""
    for line in violations(history):
        least = smallest(history, line)
        assert line in violations(least)
        assert len(entries(least)) <= len(entries(history))


def test_a_lost_record_is_shown_with_its_neighbours() -> None:
    history = sample(1000)
    lose_a_record(history)
    line = next(v for v in violations(history) if v.startswith("acked_records_are"))

    least = smallest(history, line)

    assert len(least.produced) == 1
    [records] = least.final.values()
    assert len(records) == 2, "those around the one that is lost"


def test_shrinking_a_violation_that_does_not_occur_raises_value_error() -> None:
    with pytest.raises(ValueError, match="does not show it"):
        smallest(History(), "offsets_are_dense: partition 1 begins at 1 instead of 0")


def test_shrinking_takes_few_checks() -> None:
    """If three of 10,000 items matter, checks are few, and their total length is small."""
    looks: list[int] = []

    def is_enough(items: object) -> bool:
        assert isinstance(items, list)
        looks.append(len(items))
        return {5, 4321, 9999} <= set(items)

    assert fewest(range(10_000), is_enough) == [5, 4321, 9999]
    assert len(looks) < 200
    assert sum(looks) < 20 * 10_000
