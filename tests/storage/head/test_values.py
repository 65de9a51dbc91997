"""Heads and index lists as values, field by field."""

from storage.formats import index
from storage.formats.entries import Entry
from storage.formats.index import Members, Page
from storage.head import head as heads
from storage.head.producers import Window
from tests.storage.helpers.logs import run_of


def test_added_partitions_are_empty_and_the_others_unchanged() -> None:
    head = heads.append(heads.create(bytes(16), 0, 2, ["a"]), [run_of(b"x", {0: 3, 1: 1})])

    wide = heads.widen(head, 4)

    assert wide.next_offsets == (3, 1, 0, 0)
    assert wide.log_starts == (0, 0, 0, 0)
    assert wide.sizes == (30, 10, 0, 0)
    assert (wide.partition_count, wide.commits) == (4, head.commits + 1)


def test_runs_appended_together_get_consecutive_offsets() -> None:
    head = heads.append(heads.create(bytes(16), 0, 3, ["a"]), [run_of(b"x", {0: 5})])
    runs = [run_of(b"y", {0: 2, 1: 1}), run_of(b"z", {1: 4, 0: 1})]

    assert heads.base_offsets(head, runs) == [{0: 5, 1: 0}, {1: 1, 0: 7}]
    assert heads.append(head, runs).next_offsets == (8, 5, 0)


def test_changed_windows_move_to_the_end() -> None:
    one, two, three = (
        Window(producer_id=n, epoch=0, partition=0, next_sequence=1, used_minute=0, batches=())
        for n in (1, 2, 3)
    )
    head = heads.with_windows(heads.create(bytes(16), 0, 1, ["a"]), {one.key: one, two.key: two})
    newer = Window(producer_id=1, epoch=0, partition=0, next_sequence=9, used_minute=0, batches=())

    changed = heads.with_windows(head, {newer.key: newer, three.key: three})

    assert changed.producers == (two, newer, three)


def test_setting_a_partition_fills_those_before_it_with_defaults() -> None:
    covered = index.with_covered(Members(()), 2, 7)
    assert covered.covers == (0, 0, 7)
    assert index.with_covered(covered, 1, 5).covers == (0, 5, 7)

    listed = index.with_segment_list(Members(()), 1, b"list")
    assert listed.compacted == (b"", b"list")
    assert index.with_segment_list(listed, 0, b"other").compacted == (b"other", b"list")

    members = index.replace_level(Members(()), 1, ())
    assert len(members.levels) == 2
    assert len(index.replace_level(members, 0, ()).levels) == 2


def entry(partition: int, end_offset: int, max_ms: int) -> Entry:
    return Entry(
        partition=partition, end_offset=end_offset, record_count=1, kind=0, object_id=bytes(16),
        position=8, length=1, min_ms=0, max_ms=max_ms, crc=0, zones=1,
    )  # fmt: skip


def test_a_page_returns_no_entries_of_other_partitions() -> None:
    page = Page.of([entry(3, 1, 1), entry(3, 2, 2), entry(5, 1, 9)])

    assert page.since(3, 9, 1) is None
    assert page.after(3, 2, 5) == []
    assert page.after(2, 0, 5) == page.after(4, 0, 5) == page.after(6, 0, 5) == []
    assert Page.of([entry(5, 1, 9)]).after(3, 0, 5) == []
