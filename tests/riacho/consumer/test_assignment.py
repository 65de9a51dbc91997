"""Positions move only when records are returned to the program."""

import pytest

from riacho.consumer.assignment import Assignment
from riacho.records import Record, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def records(partition: TopicPartition, start: int, end: int) -> list[Record]:
    return [Record(*partition, offset, 0, None, b"") for offset in range(start, end)]


def at(assignment: Assignment, partition: TopicPartition, start: int) -> None:
    assignment.seek(partition, start)


@pytest.fixture
def assignment() -> Assignment:
    assigned = Assignment(records_waiting_min=2)
    assigned.replace([P0, P1], "latest")
    assigned.seek(P0, 0)
    assigned.seek(P1, 0)
    return assigned


def test_fetching_does_not_move_the_position(assignment: Assignment) -> None:
    assignment.accept(assignment.place(P0), records(P0, 0, 5), 5)

    assert assignment.position(P0) == 0
    assert assignment.place(P0).offset == 5


def test_taking_records_moves_the_position_after_them(assignment: Assignment) -> None:
    assignment.accept(assignment.place(P0), records(P0, 0, 5), 5)

    taken = assignment.take(3)

    assert [record.offset for record in taken] == [0, 1, 2]
    assert assignment.position(P0) == 3


def test_the_position_skips_offsets_that_compaction_removed_after_the_last_record(
    assignment: Assignment,
) -> None:
    assignment.accept(assignment.place(P0), records(P0, 0, 2), 9)

    assignment.take(10)

    assert assignment.position(P0) == 9


def test_records_are_taken_from_partitions_in_turn(assignment: Assignment) -> None:
    for partition in (P0, P1):
        assignment.accept(assignment.place(partition), records(partition, 0, 3), 3)

    turns = [assignment.take(1)[0].partition for _ in range(4)]

    assert turns == [0, 1, 0, 1]


def test_records_fetched_before_a_seek_are_dropped(assignment: Assignment) -> None:
    old = assignment.place(P0)
    assignment.seek(P0, 100)

    assignment.accept(old, records(P0, 0, 5), 5)

    assert assignment.take(10) == []
    assert assignment.position(P0) == 100


def test_the_same_answer_is_accepted_only_once(assignment: Assignment) -> None:
    place = assignment.place(P0)
    assignment.accept(place, records(P0, 0, 2), 2)
    assignment.accept(place, records(P0, 0, 2), 2)

    assert len(assignment.take(10)) == 2


def test_a_seek_drops_waiting_records(assignment: Assignment) -> None:
    assignment.accept(assignment.place(P0), records(P0, 0, 5), 5)
    assignment.seek_to(P0, "earliest")

    assert not assignment.has_records()
    assert assignment.position(P0) is None
    assert assignment.place(P0).start == "earliest"


def test_a_late_reset_does_not_undo_a_seek(assignment: Assignment) -> None:
    old = assignment.place(P0)
    assignment.seek(P0, 7)

    assignment.restart(old, "latest")

    assert assignment.position(P0) == 7


def test_a_paused_partition_keeps_its_records(assignment: Assignment) -> None:
    assignment.accept(assignment.place(P0), records(P0, 0, 5), 5)
    assignment.pause(P0, is_paused=True)

    assert assignment.take(10) == []
    assert [place.partition for place in assignment.wanted()] == [P1]
    assignment.pause(P0, is_paused=False)

    assert len(assignment.take(10)) == 5


def test_a_partition_with_enough_waiting_records_is_not_fetched(assignment: Assignment) -> None:
    assignment.accept(assignment.place(P0), records(P0, 0, 2), 2)

    assert [place.partition for place in assignment.wanted()] == [P1]


def test_the_assignment_is_low_when_few_records_are_left(assignment: Assignment) -> None:
    assignment.accept(assignment.place(P0), records(P0, 0, 4), 4)

    told = []
    for _ in range(4):
        assignment.take(1)
        told.append(assignment.is_low())

    assert told == [False, False, True, True]


def test_reassigning_keeps_the_position_of_remaining_partitions(assignment: Assignment) -> None:
    assignment.seek(P0, 5)

    assignment.replace([P0, TopicPartition("u", 0)], "earliest")

    assert assignment.position(P0) == 5
    assert assignment.position(TopicPartition("u", 0)) is None


def test_the_error_names_a_partition_that_is_not_assigned(assignment: Assignment) -> None:
    with pytest.raises(KeyError, match="u/3 is not assigned"):
        assignment.seek(TopicPartition("u", 3), 0)


def test_records_are_not_taken_while_the_assignment_is_on_hold(assignment: Assignment) -> None:
    assignment.accept(assignment.place(P0), records(P0, 0, 5), 5)
    assignment.hold(is_held=True)

    assert not assignment.has_records()
    assert assignment.take(10) == []
    assignment.hold(is_held=False)
    assert len(assignment.take(10)) == 5


def test_removing_a_partition_drops_its_records(assignment: Assignment) -> None:
    place = assignment.place(P0)
    assignment.accept(place, records(P0, 0, 5), 5)
    assignment.remove([P0])
    assignment.accept(place, records(P0, 5, 9), 9)
    assignment.add([P0], "earliest")
    assignment.accept(place, records(P0, 0, 5), 5)

    assert assignment.take(10) == []
    assert assignment.positions() == {P1: 0}


def test_a_partition_is_not_fetched_until_its_committed_offset_is_known(
    assignment: Assignment,
) -> None:
    new = TopicPartition("t", 2)
    assignment.add([new], "committed")
    [place] = assignment.unsettled()

    assert new not in [wanted.partition for wanted in assignment.wanted()]
    assignment.settle_start(place, 7)
    assert assignment.unsettled() == []
    assert assignment.place(new).offset == 7


def test_a_seek_wins_over_the_committed_offset(assignment: Assignment) -> None:
    new = TopicPartition("t", 2)
    assignment.add([new], "committed")
    [place] = assignment.unsettled()
    assignment.seek(new, 3)
    assignment.settle_start(place, 7)

    assert assignment.position(new) == 3
