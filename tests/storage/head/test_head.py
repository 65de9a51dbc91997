"""Heads: offsets are dense after any sequence of appends, rolls and added partitions."""

import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt
from storage.formats import frames
from storage.formats.entries import Entry
from storage.head import head as heads
from storage.head.head import Head, Run, RunSlice
from tests.examples import few
from tests.storage.helpers.damage import check_gives_a_value_or_corrupt, check_notices_damage
from tests.storage.helpers.logs import IDS, INT64, numbered_ids, run_of

PARTITIONS = 5
SLICES = st.builds(
    RunSlice,
    partition=st.integers(0, PARTITIONS - 1),
    count=st.integers(1, 1000),
    length=st.integers(1, 2**20),
    after_ms=st.integers(0, 2**40),
    span_ms=st.integers(0, 2**40),
    crc=st.integers(0, 2**32 - 1),
)
RUNS = st.builds(
    Run,
    object_id=IDS,
    position=st.integers(8, 2**30),
    base_ms=st.integers(-(2**40), 2**42),
    slices=st.lists(SLICES, min_size=1, max_size=6).map(tuple),
    zones=st.integers(1, 7),
)
COMMITS = st.lists(st.lists(RUNS, min_size=1, max_size=3), max_size=6)


def empty(partitions: int = PARTITIONS) -> Head:
    return heads.create(bytes(16), 0, partitions, ["a", "b"])


def appended(commits: Sequence[Sequence[Run]]) -> Head:
    head = empty()
    for runs in commits:
        head = heads.append(head, runs)
    return head


def listed(commits: Sequence[Sequence[Run]]) -> list[Entry]:
    """Return the entries of `commits`, counted forwards, in the order of their bytes."""
    next_offsets = [0] * PARTITIONS
    entries = []
    for run in (run for runs in commits for run in runs):
        position = run.position
        for piece in run.slices:
            next_offsets[piece.partition] += piece.count
            low = run.base_ms + piece.after_ms
            entries.append(
                Entry(
                    partition=piece.partition,
                    end_offset=next_offsets[piece.partition],
                    record_count=piece.count,
                    kind=0,
                    object_id=run.object_id,
                    position=position,
                    length=piece.length,
                    min_ms=low,
                    max_ms=low + piece.span_ms,
                    crc=piece.crc,
                    zones=run.zones,
                )
            )
            position += piece.length
    return entries


@few
@given(COMMITS)
def test_entries_equal_those_counted_forwards_from_the_commits(commits: list[list[Run]]) -> None:
    head = appended(commits)
    expected = listed(commits)

    for partition in range(PARTITIONS):
        own = [entry for entry in expected if entry.partition == partition]
        assert heads.inline_entries(head, partition) == own
        assert heads.inline_start(head, partition) == 0
        assert head.next_offsets[partition] == sum(entry.record_count for entry in own)
        assert head.sizes[partition] == sum(entry.length for entry in own)
    assert heads.all_entries(head) == sorted(
        expected, key=lambda entry: (entry.partition, entry.end_offset)
    )
    assert head.commits == len(commits)
    assert head.run_count == len(head.runs) == sum(map(len, commits))


@few
@given(COMMITS, st.lists(RUNS, min_size=1, max_size=4))
def test_base_offsets_are_those_that_the_next_append_gives(
    commits: list[list[Run]], runs: list[Run]
) -> None:
    head = appended(commits)

    bases = heads.base_offsets(head, runs)

    behind = heads.append(head, runs)
    assert [set(base) for base in bases] == [{s.partition for s in run.slices} for run in runs]
    ends = list(head.next_offsets)
    for run, base in zip(runs, bases, strict=True):
        for partition, offset in base.items():
            assert offset == ends[partition]
        for piece in run.slices:
            ends[piece.partition] += piece.count
    assert tuple(ends) == behind.next_offsets


@few
@given(COMMITS, COMMITS, st.data())
def test_a_roll_keeps_every_entry_whatever_was_committed_in_between(
    before: list[list[Run]], after: list[list[Run]], data: st.DataObject
) -> None:
    head = appended(before)
    rolled_entries = heads.all_entries(head)
    rolled_runs = head.run_count
    # Commits go on while the roll is under way; it applies whenever it is done.
    for runs in after:
        head = heads.append(head, runs)
    everything = heads.all_entries(head)

    rolled = heads.drop_runs(head, rolled_runs, b"new root".ljust(16))

    assert sorted(rolled_entries + heads.all_entries(rolled)) == sorted(everything)
    for partition in range(PARTITIONS):
        ends = [e.end_offset for e in rolled_entries if e.partition == partition]
        assert heads.inline_start(rolled, partition) == max(ends, default=0)
    assert rolled.next_offsets == head.next_offsets
    assert rolled.run_count == head.run_count
    assert rolled.root == b"new root".ljust(16)


@few
@given(COMMITS, st.integers(0, 10))
def test_widening_adds_empty_partitions_and_changes_no_others(
    commits: list[list[Run]], more: int
) -> None:
    head = appended(commits)

    wide = heads.widen(head, PARTITIONS + more)

    assert wide.partition_count == PARTITIONS + more
    assert wide.commits == head.commits + 1
    assert heads.all_entries(wide) == heads.all_entries(head)
    for partition in range(PARTITIONS, PARTITIONS + more):
        assert wide.next_offsets[partition] == heads.inline_start(wide, partition) == 0
        assert heads.inline_entries(wide, partition) == []


@few
@given(COMMITS)
def test_a_head_is_encoded_and_decoded(commits: list[list[Run]]) -> None:
    head = appended(commits)

    assert heads.decode(heads.encode(head)) == head


@few
@given(st.tuples(INT64, INT64).map(sorted))
def test_any_timestamps_are_encoded_and_decoded(span: list[int]) -> None:
    low, high = span
    head = heads.append(empty(), [run_of(bytes(16), {0: 1}, {0: (low, high)})])

    [entry] = heads.inline_entries(heads.decode(heads.encode(head)), 0)

    assert (entry.min_ms, entry.max_ms) == (low, high)


@few
@given(COMMITS, st.data())
def test_any_damage_to_a_head_is_detected(commits: list[list[Run]], data: st.DataObject) -> None:
    check_notices_damage(heads.decode, heads.encode(appended(commits)), data)


@few
@given(st.binary(max_size=60))
def test_any_bytes_are_a_head_or_corrupt(anything: bytes) -> None:
    check_gives_a_value_or_corrupt(heads.decode, anything)
    check_gives_a_value_or_corrupt(heads.decode, frames.seal(b"RHD1", anything))


def test_an_older_head_without_the_last_fields_still_decodes() -> None:
    head = empty()
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(head))

    older = frames.seal(b"RHD1", msgspec.msgpack.encode(fields[:-3]))

    assert heads.decode(older) == head


def test_an_item_of_another_kind_is_a_corrupt_head() -> None:
    with pytest.raises(Corrupt, match="RHD1"):
        heads.decode(frames.seal(b"RTP1", b"\x90"))


def test_under_load_the_encoded_head_stays_within_a_few_kilobytes() -> None:
    chance, ids = random.Random(1), numbered_ids()
    head = heads.create(bytes(16), 0, 64, ["a"])
    largest = 0

    for _ in range(500):
        partitions = chance.sample(range(64), chance.randint(1, 64))
        now_ms = 1_700_000_000_000 + chance.randint(0, 10**9)
        counts = {p: chance.randint(1, 5000) for p in partitions}
        spans = {p: (now_ms, now_ms + chance.randint(0, 5000)) for p in partitions}
        head = heads.append(head, [run_of(next(ids), counts, spans)])
        largest = max(largest, len(heads.encode(head)))
        if heads.inline_bytes(head) > heads.INLINE_BYTES_MAX:
            head = heads.drop_runs(head, len(head.runs), next(ids))

    assert largest < 3 * heads.INLINE_BYTES_MAX
    assert len(heads.encode(head)) < 2 * heads.INLINE_BYTES_MAX


@few
@given(COMMITS)
def test_inline_bytes_estimate_the_encoded_size_of_the_runs(commits: list[list[Run]]) -> None:
    head = appended(commits)

    taken = len(heads.encode(head)) - len(heads.encode(heads.drop_runs(head, len(head.runs), b"")))

    assert heads.inline_bytes(head) / 3 <= taken <= heads.inline_bytes(head) * 2.5 + 3
