"""Which transaction a call means, when it came late, twice, or from somebody else."""

import pytest

from service.transactions import state
from service.transactions.state import Outcome, Ref, Transaction
from storage.errors import InvalidProducerEpoch, InvalidTransactionState, UnknownTransaction
from storage.head.producers import EPOCH_MAX, SEQUENCES
from tests.service.transactions.test_state import begun, opened, runs, stage


def test_a_number_has_eighteen_digits_at_most() -> None:
    assert state.parse_ref(f"a.{'9' * 18}.0") == Ref("a", int("9" * 18), 0)
    with pytest.raises(UnknownTransaction):
        state.parse_ref(f"a.{'9' * 19}.0")


def test_a_begin_is_a_change() -> None:
    assert begun().changed_ms == opened(begun()).started_ms == 5000


def test_only_the_current_transaction_is_open() -> None:
    txn = begun(epoch=3)

    assert state.is_open(txn, Ref("a", 1, 3))
    assert not state.is_open(txn, Ref("a", 1, 2))
    assert not state.is_open(txn, Ref("a", 3, 3))
    assert not state.is_open(None, Ref("a", 1, 3))
    assert not state.is_open(Transaction(producer_id=1, epoch=3, changed_ms=0), Ref("a", 1, 3))


def test_an_unknown_instance_is_not_reported_as_fenced() -> None:
    txn = state.end(begun(epoch=5), Outcome.ABORTED, 1, 0)

    with pytest.raises(InvalidProducerEpoch):
        state.find(txn, Ref("a", 1, 4))
    for stranger in (Ref("a", 9, 4), Ref("a", 9, 6), Ref("a", 1, 7)):
        with pytest.raises(UnknownTransaction) as unknown:
            state.find(txn, stranger)
        assert str(stranger) in str(unknown.value)


def test_of_a_former_producer_id_all_but_the_last_epochs_are_fenced() -> None:
    txn = state.end(begun(epoch=EPOCH_MAX), Outcome.ABORTED, 3, 0)

    with pytest.raises(InvalidProducerEpoch):
        state.find(txn, Ref("a", 1, EPOCH_MAX - 1))


def test_only_the_instance_that_timed_out_learns_so() -> None:
    txn = state.end(begun(epoch=5), Outcome.TIMED_OUT, 1, 0)

    assert isinstance(state.superseded(Ref("a", 1, 5), txn), InvalidTransactionState)
    assert isinstance(state.superseded(Ref("a", 1, 4), txn), InvalidProducerEpoch)
    newer = state.renew(txn, 1, 0)
    assert isinstance(state.superseded(Ref("a", 1, 5), newer), InvalidProducerEpoch)


def test_half_of_all_numbers_are_behind() -> None:
    half = SEQUENCES // 2
    txn = stage(begun(), runs(1, p0=2), {0: half - 2})

    assert state.is_staged(opened(txn), "t", {0: 0}, {0: 2})


def test_what_is_chosen_comes_in_the_order_of_the_names() -> None:
    txn = begun()
    for number in (1, 2, 3):
        txn = stage(txn, runs(number, p0=2), {})
    [lane] = opened(txn).staged
    first, second, third = (state.name_of(run) for run in lane.runs)

    [chosen] = state.chosen(opened(txn), [third, first])

    assert [state.name_of(run) for run in chosen.runs] == [third, first]
    assert second not in {state.name_of(run) for run in chosen.runs}
