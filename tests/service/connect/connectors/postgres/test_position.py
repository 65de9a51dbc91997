import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.connect.connectors.postgres.position import (
    SNAPSHOTS_MAX,
    Covered,
    PgSnapshot,
    RowPlace,
    StreamPosition,
    start_of,
)
from service.connect.data.errors import TaskFault


def test_a_snapshot_sees_what_had_committed() -> None:
    snapshot = PgSnapshot.parsed("100:110:103,107")
    seen = [xid for xid in range(95, 115) if snapshot.sees(xid)]
    assert seen == [95, 96, 97, 98, 99, 100, 101, 102, 104, 105, 106, 108, 109]


@given(st.integers(3, 1 << 60), st.integers(-(1 << 31) + 1, (1 << 31) - 1))
def test_transaction_ids_of_32_bits_are_near_the_snapshot(xmax: int, distance: int) -> None:
    snapshot = PgSnapshot(xmax, xmax, frozenset())
    assert snapshot.sees((xmax + distance) % (1 << 32)) == (distance < 0)


def test_a_row_belongs_to_the_snapshot_that_read_its_place() -> None:
    first = Covered().begun("10:10:", 100, None)
    second = first.begun("20:20:", 200, RowPlace("s", "t", (5, "b")))
    third = Covered.read(second.stored()).begun("30:30:", 300, RowPlace("s", "t", (7, "a")))
    covered = Covered.read(third.stored())
    assert covered == third

    def sees(xid: int, table: str, key: tuple[object, ...] | None) -> bool:
        return covered.has_seen(250, xid, "s", table, key)

    assert [sees(xid, "a", (9,)) for xid in (9, 15, 25, 35)] == [True, False, False, False]
    assert [sees(xid, "t", (5, "b")) for xid in (9, 15, 25, 35)] == [True, False, False, False]
    assert [sees(xid, "t", (5, "c")) for xid in (9, 15, 25, 35)] == [True, True, False, False]
    assert [sees(xid, "t", (7, "b")) for xid in (9, 15, 25, 35)] == [True, True, True, False]
    assert [sees(xid, "u", None) for xid in (9, 15, 25, 35)] == [True, True, True, False]
    assert not covered.has_seen(300, 9, "s", "a", (9,))


def test_a_table_without_order_belongs_to_the_snapshot_that_began_it() -> None:
    first = Covered().begun("10:10:", 100, None)
    covered = first.begun("20:20:", 200, RowPlace("s", "t", None))
    assert not covered.has_seen(50, 15, "s", "t", None)
    assert covered.has_seen(50, 15, "s", "u", None)


def test_a_snapshot_that_gave_nothing_is_replaced() -> None:
    covered = Covered().begun("10:10:", 100, None).begun("20:20:", 200, None)
    assert covered.texts == ("20:20:",)


def test_a_snapshot_is_not_interrupted_without_end() -> None:
    covered = Covered().begun("10:10:", 100, None)
    for n in range(1, SNAPSHOTS_MAX):
        covered = covered.begun("10:10:", 100, RowPlace("s", "t", (n,)))
    with pytest.raises(TaskFault, match="interrupted 200 times"):
        covered.begun("10:10:", 100, RowPlace("s", "t", (SNAPSHOTS_MAX,)))


def test_positions_skip_what_came_before() -> None:
    position = StreamPosition(100, 3, 2)
    assert position.skips(99, 9, 9)
    assert position.skips(100, 3, 2)
    assert not position.skips(100, 3, 3)
    assert not position.skips(101, 1, 1)


@pytest.mark.parametrize(
    "offset", [{}, {"lsn": "x"}, {"at": [1]}, {"lsn": 1, "snapshots": [["x", None]]}, {"at": 5}]
)
def test_offsets_of_others_are_refused(offset: dict[str, object]) -> None:
    with pytest.raises(TaskFault, match="offset"):
        start_of(offset)
