"""The transaction item as a value: every order of events, and what is said of each end."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.transactions import state
from service.transactions.state import ENDS_KEPT, End, Open, Outcome, Ref, Transaction
from storage.errors import (
    Corrupt,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    UnknownTransaction,
)
from storage.formats import frames
from storage.head.producers import EPOCH_MAX, SEQUENCES
from storage.lanes.atomic import LaneRuns
from storage.topics.config import TopicConfig
from storage.topics.topics import Topic
from tests.storage.helpers.logs import run_of

TOPIC = Topic(
    name="t",
    topic_id=bytes(16),
    partition_count=10,
    replication_factor=1,
    config=TopicConfig({"lane.partitions": "4"}),
    created_ms=0,
    version="v",
    lane_partitions=4,
)

EVENTS = ("init", "begin", "stage", *Outcome)


def object_id(number: int) -> bytes:
    return number.to_bytes(16)


def runs(number: int, lane: int = 0, **counts: int) -> LaneRuns:
    """Return a run of the lane with so many records of its partitions `p0`, `p1`, …"""
    by_partition = {int(name[1:]): count for name, count in counts.items()}
    return LaneRuns(TOPIC.topic_id, lane, (run_of(object_id(number), by_partition),))


def begun(epoch: int = 0) -> Transaction:
    txn = Transaction(producer_id=1, epoch=epoch, changed_ms=0)
    return state.begin(txn, 1000, now_ms=5000)


def opened(txn: Transaction) -> Open:
    assert txn.open is not None
    return txn.open


def stage(txn: Transaction, written: LaneRuns, sequence: dict[int, int]) -> Transaction:
    counts = dict.fromkeys(sequence, 2)
    return state.stage(txn, TOPIC, [written], sequence, counts)


@given(st.lists(st.sampled_from(EVENTS), max_size=40), st.integers(EPOCH_MAX - 20, EPOCH_MAX))
def test_whatever_happens_no_transaction_is_named_twice_and_ends_are_remembered(
    events: Sequence[str], epoch: int
) -> None:
    txn = Transaction(producer_id=1, epoch=epoch, changed_ms=0)
    ids = iter(range(3, 1000, 2))
    ended: dict[tuple[int, int], str] = {}
    seen = {(1, epoch)}
    for now_ms, event in enumerate(events):
        name = txn.producer_id, txn.epoch
        next_id = next(ids) if txn.is_last_epoch else txn.producer_id
        match event:
            case "init":
                if txn.open is not None:
                    ended[name] = Outcome.FENCED
                txn = state.renew(txn, next_id, now_ms)
            case "begin" if txn.open is None:
                txn = state.begin(txn, 1000, now_ms)
            case "stage" if txn.open is not None:
                txn = stage(txn, runs(now_ms, p0=2), {})
            case Outcome() if txn.open is not None:
                results = {"t": ((0, now_ms, 1),)} if event is Outcome.COMMITTED else None
                txn = state.end(txn, event, next_id, now_ms, results=results)
                ended[name] = event
        if (txn.producer_id, txn.epoch) != name:
            assert (txn.producer_id, txn.epoch) not in seen
            assert txn.open is None
            seen.add((txn.producer_id, txn.epoch))

        assert state.decode(state.encode(txn)) == txn
        assert 0 <= txn.epoch <= EPOCH_MAX
        for place, outcome in list(ended.items())[-ENDS_KEPT:]:
            found = state.find(txn, Ref("x", *place))
            assert isinstance(found, End)
            assert found.outcome == outcome
            assert (found.next_producer_id, found.next_epoch) in seen
        committed = [place for place, outcome in ended.items() if outcome == Outcome.COMMITTED]
        assert txn.results_of == (committed[-1] if committed else None)


@given(st.binary(max_size=60))
def test_other_bytes_are_damage(value: bytes) -> None:
    with pytest.raises(Corrupt):
        state.decode(value)


def test_a_payload_that_is_something_else_is_damage() -> None:
    with pytest.raises(Corrupt, match="a transaction cannot be decoded"):
        state.decode(frames.seal(b"RTX1", b"\xc0"))


@pytest.mark.parametrize("name", ["a", "a.b-c_D", "1.2.3", "..", "x" * 249])
def test_a_transaction_id_names_what_it_was_made_of(name: str) -> None:
    ref = Ref(name, 41, 7)
    assert state.parse_ref(str(ref)) == ref


@pytest.mark.parametrize(
    "text", ["", "a", "a.1", "a.1.x", "a.01.1", "a.1.-1", "a.1.²", "a.1." + "9" * 19, "a.1.1 "]
)
def test_other_texts_name_no_transaction(text: str) -> None:
    with pytest.raises(UnknownTransaction, match="POST /v1/transactions begins one"):
        state.parse_ref(text)


def test_what_is_asked_of_a_transaction_is_told_by_its_name() -> None:
    txn = begun(epoch=5)

    assert state.find(txn, Ref("x", 1, 5)) is txn.open
    with pytest.raises(UnknownTransaction, match="there is no transactional id 'x'"):
        state.find(None, Ref("x", 1, 5))
    with pytest.raises(UnknownTransaction, match=r"there is no transaction x\.1\.6"):
        state.find(txn, Ref("x", 1, 6))
    with pytest.raises(UnknownTransaction, match=r"there is no transaction x\.3\.5"):
        state.find(txn, Ref("x", 3, 5))
    with pytest.raises(InvalidProducerEpoch, match="a newer instance has taken over"):
        state.find(txn, Ref("x", 1, 4))
    with pytest.raises(InvalidTransactionState, match="has not begun"):
        state.find(state.renew(txn, 1, 0), Ref("x", 1, 6))


@pytest.mark.parametrize(
    ("outcome", "error", "words"),
    [
        (Outcome.COMMITTED, InvalidTransactionState, "was committed already"),
        (Outcome.ABORTED, InvalidTransactionState, "was aborted already"),
        (Outcome.TIMED_OUT, InvalidTransactionState, "timed out and was aborted: nothing of it"),
        (Outcome.FENCED, InvalidProducerEpoch, "a newer instance has taken over"),
    ],
)
def test_what_came_after_the_end_is_told_how_it_ended(
    outcome: Outcome, error: type[Exception], words: str
) -> None:
    results = {} if outcome is Outcome.COMMITTED else None
    txn = state.end(begun(), outcome, 1, 0, results=results)
    with pytest.raises(error, match=words):
        state.find_open(txn, Ref("x", 1, 0))


def test_runs_of_a_lane_are_kept_in_the_order_of_arrival() -> None:
    txn = begun()
    txn = stage(txn, runs(1, lane=0, p0=2, p3=1), {0: 0})
    txn = stage(txn, runs(2, lane=2, p1=5), {9: 0})
    txn = stage(txn, runs(3, lane=0, p0=4), {0: 2})

    assert [(each.lane, len(each.runs)) for each in opened(txn).staged] == [(0, 2), (2, 1)]
    assert [each.counts() for each in opened(txn).staged] == [{0: 6, 3: 1}, {9: 5}]
    assert opened(txn).sequences == {"t": {0: 4, 9: 2}}
    assert state.holds_object(opened(txn), [runs(3, lane=0, p0=4)])
    assert not state.holds_object(opened(txn), [runs(4, lane=0, p0=4)])
    assert not state.holds_object(opened(txn), [runs(2, lane=1, p0=4)])


def test_results_are_the_first_offset_and_the_number_of_all_runs() -> None:
    txn = stage(begun(), runs(1, lane=2, p1=5), {})
    txn = stage(txn, runs(2, lane=0, p0=2, p3=1), {})
    txn = stage(txn, runs(3, lane=0, p0=4, p1=1), {})
    bases = {
        (TOPIC.topic_id, 0): [{0: 100, 3: 7}, {0: 102, 1: 50}],
        (TOPIC.topic_id, 2): [{1: 9}],
    }

    results = state.results_of(opened(txn).staged, bases)
    assert results == {"t": ((0, 100, 6), (1, 50, 1), (3, 7, 1), (9, 9, 5))}


def test_a_copy_is_recognised_and_a_gap_refused() -> None:
    txn = stage(begun(), runs(1, p0=2), {0: 0})
    txn = stage(txn, runs(2, p0=2), {0: 2})
    known = opened(txn)

    assert state.is_staged(known, "t", {0: 0}, {0: 2})
    assert state.is_staged(known, "t", {0: 2}, {0: 2})
    assert not state.is_staged(known, "t", {0: 4}, {0: 2})
    assert not state.is_staged(known, "t", {1: 0}, {1: 2})
    assert not state.is_staged(known, "t", {}, {})
    with pytest.raises(OutOfOrderSequence, match="sequence 5 for t/0, and 4 comes next"):
        state.is_staged(known, "t", {0: 5}, {0: 2})
    with pytest.raises(OutOfOrderSequence, match="sequence 3 for t/0, and 4 comes next"):
        state.is_staged(known, "t", {0: 3}, {0: 2})
    with pytest.raises(OutOfOrderSequence, match="it begins with 0"):
        state.is_staged(known, "other", {0: 4}, {0: 2})
    with pytest.raises(OutOfOrderSequence, match="the records for t/0 are in this transaction"):
        state.is_staged(known, "t", {0: 0, 1: 0}, {0: 2, 1: 2})


def test_sequences_begin_again_after_the_last() -> None:
    full = state.Open(0, 1, (), {"t": {0: SEQUENCES - 1}})
    txn = Transaction(producer_id=1, epoch=0, changed_ms=0, open=full)

    assert not state.is_staged(full, "t", {0: SEQUENCES - 1}, {0: 2})
    after = opened(stage(txn, runs(1, p0=2), {0: SEQUENCES - 1}))
    assert after.sequences == {"t": {0: 1}}
    assert state.is_staged(after, "t", {0: SEQUENCES - 1}, {0: 2})


def test_a_transaction_is_overdue_after_its_timeout() -> None:
    known = opened(begun())
    assert not known.is_overdue(6000)
    assert known.is_overdue(6001)
