"""Index pages and lists of pages as values; `test_catalog.py` tests how they are used."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt
from storage.formats import frames, index
from storage.formats.entries import Entry
from storage.formats.index import BLOCK_ROWS, IndexRef, Members, Page
from tests.examples import few, some
from tests.storage.helpers.damage import check_gives_a_value_or_corrupt, check_notices_damage
from tests.storage.helpers.logs import ENTRIES, IDS, INT64

SORTED_ENTRIES = st.lists(
    ENTRIES, max_size=12, unique_by=lambda e: (e.partition, e.end_offset)
).map(sorted)
PARTITIONS = st.integers(0, 63)
REFS = st.builds(
    IndexRef,
    object_id=IDS,
    is_page=st.booleans(),
    entry_count=st.integers(0, 2**40),
    ends=st.lists(st.integers(0, 2**62), max_size=4).map(tuple),
    newest_ms=st.lists(INT64, max_size=4).map(tuple),
)
MEMBERS = st.builds(Members, st.lists(st.lists(REFS, max_size=3).map(tuple), max_size=3).map(tuple))

SEALED_ENTRIES = SORTED_ENTRIES.filter(bool).map(
    lambda entries: [entry._replace(data_key=2**32 - n) for n, entry in enumerate(entries, 1)]
)
"""Those of an encrypted topic."""


@few
@given(SORTED_ENTRIES | SEALED_ENTRIES)
def test_a_page_is_encoded_and_decoded(entries: list[Entry]) -> None:
    page = Page.decode(Page.of(entries).encode())

    assert page.entries() == entries
    assert len(page) == len(entries)


def entries_of(partition: int, count: int) -> list[Entry]:
    """Return entries of one record each, stamped 0, 1, 2, …"""
    return [
        Entry(
            partition=partition, end_offset=n + 1, record_count=1, kind=0, object_id=bytes(16),
            position=n, length=1, min_ms=n, max_ms=n, crc=7, zones=1,
        )
        for n in range(count)
    ]  # fmt: skip


def test_a_page_returns_the_same_entries_whatever_was_looked_up_before() -> None:
    entries = [*entries_of(0, 30), *entries_of(1, 3 * BLOCK_ROWS + 5), *entries_of(2, 1)]
    page = Page.of(entries)
    borders = [0, 1, *(n * BLOCK_ROWS - 30 + d for n in (1, 2, 3) for d in (-1, 0, 1)), 190, 197]
    limits = [1, 8, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 500]

    for offset in [*borders, *reversed(borders), *borders[::3]]:
        for limit in limits:
            expected = [e for e in entries if e.partition == 1 and e.end_offset > offset]
            assert page.after(1, offset, limit) == expected[:limit]
    assert page.after(2, 0, 8) == entries[-1:]
    assert page.after(0, 0, 8) == entries[:8]


def test_an_encoded_page_is_smaller_than_a_decoded_one() -> None:
    page = Page.of(entries_of(0, 1000))

    assert len(page.encode()) < page.size_bytes / 2


def test_a_page_that_claims_more_entries_than_it_holds_is_corrupt() -> None:
    count, more = struct.pack("<q", 777), struct.pack("<q", 1554)
    written = bytes(frames.unseal(b"RPG1", Page.of(entries_of(0, 777)).encode()))
    # Once for the batch, once for each of its columns; what follows are the columns.
    claims = written.replace(count, more, 12)

    with pytest.raises(Corrupt, match="too small"):
        Page.decode(frames.seal(b"RPG1", claims))


def test_only_a_page_with_sealed_entries_has_the_layout_of_one() -> None:
    entries = entries_of(0, 3)
    assert Page.of(entries).encode().startswith(b"RPG1")
    assert Page.of([]).encode().startswith(b"RPG1")

    sealed = [entries[0]._replace(data_key=7), *entries[1:]]
    assert Page.of(sealed).encode().startswith(b"RPG2")
    merged = Page.merge([Page.of(sealed[:1]), Page.of(sealed[1:])])
    assert [entry.data_key for entry in merged.entries()] == [7, 0, 0]


@some
@given(SORTED_ENTRIES, PARTITIONS, st.integers(0, 2**62), st.integers(1, 5))
def test_a_page_finds_the_first_entry_that_ends_after_an_offset(
    entries: list[Entry], partition: int, offset: int, limit: int
) -> None:
    page = Page.of(entries)
    for wanted, behind in [(partition, offset), *((e.partition, e.end_offset) for e in entries)]:
        expected = [e for e in entries if e.partition == wanted and e.end_offset > behind]
        assert page.after(wanted, behind, limit) == expected[:limit]
        exactly = [e for e in entries if e.partition == wanted and e.end_offset > behind - 1]
        assert page.after(wanted, behind - 1, limit) == exactly[:limit]


@some
@given(SORTED_ENTRIES, PARTITIONS, INT64, st.integers(0, 2**62))
def test_a_page_finds_the_first_entry_since_a_timestamp(
    entries: list[Entry], partition: int, timestamp_ms: int, offset: int
) -> None:
    page = Page.of(entries)
    questions = [(partition, timestamp_ms, offset)]
    questions += [(e.partition, e.max_ms, 0) for e in entries]
    for wanted, moment, behind in questions:
        late = [e for e in entries if e.partition == wanted and e.max_ms >= moment]
        expected = next((e for e in late if e.end_offset > behind), None)
        assert page.since(wanted, moment, behind) == expected


@few
@given(SORTED_ENTRIES | SEALED_ENTRIES, st.integers(1, 4))
def test_merged_pages_are_one_page_of_all_entries(entries: list[Entry], parts: int) -> None:
    pages = [Page.of(entries[part::parts]) for part in range(parts)]

    merged = Page.merge(pages)

    assert merged.entries() == entries
    for entry in entries:
        assert merged.after(entry.partition, entry.end_offset - 1, 1) == [entry]


@few
@given(SORTED_ENTRIES | SEALED_ENTRIES, st.data())
def test_any_damage_to_a_page_is_detected(entries: list[Entry], data: st.DataObject) -> None:
    check_notices_damage(Page.decode, Page.of(entries).encode(), data)


@some
@given(st.binary(max_size=200))
def test_any_bytes_are_a_page_or_corrupt(anything: bytes) -> None:
    check_gives_a_value_or_corrupt(Page.decode, anything)
    check_gives_a_value_or_corrupt(Page.decode, frames.seal(b"RPG1", anything))


@few
@given(MEMBERS)
def test_members_are_encoded_and_decoded(members: Members) -> None:
    assert index.decode_members(index.encode_members(members)) == members


@few
@given(MEMBERS, st.data())
def test_any_damage_to_members_is_detected(members: Members, data: st.DataObject) -> None:
    check_notices_damage(index.decode_members, index.encode_members(members), data)


@some
@given(st.binary(max_size=60))
def test_any_bytes_are_members_or_corrupt(anything: bytes) -> None:
    check_gives_a_value_or_corrupt(index.decode_members, anything)
    check_gives_a_value_or_corrupt(index.decode_members, frames.seal(b"RLS1", anything))


def test_members_are_in_the_order_of_age() -> None:
    def ref(number: int) -> IndexRef:
        return IndexRef(
            object_id=bytes([number]), is_page=True, entry_count=1, ends=(number,), newest_ms=(0,)
        )

    members = Members(((ref(5), ref(6)), (), (ref(1), ref(2)), (ref(0),)))

    assert [each.ends[0] for each in members.in_order()] == [0, 1, 2, 5, 6]
    assert [index.first_behind(members.in_order(), 0, offset) for offset in range(7)] == [
        1, 2, 3, 3, 3, 4, 5,
    ]  # fmt: skip
    assert members.level(7) == ()


def test_a_partition_that_is_newer_than_a_member_ends_at_zero_there() -> None:
    old = IndexRef(object_id=b"old", is_page=True, entry_count=1, ends=(9,), newest_ms=(5,))
    new = IndexRef(object_id=b"new", is_page=True, entry_count=1, ends=(9, 4), newest_ms=(-1, 7))

    assert index.first_behind([old, new], 1, 0) == 1
    assert old.newest(1) == -1
    whole = index.ref_of_members(b"both", [old, new], is_page=True)
    assert (whole.ends, whole.newest_ms, whole.entry_count) == ((9, 4), (5, 7), 2)


def test_a_reference_has_the_newest_timestamp_of_each_partition() -> None:
    page = Page.of([*entries_of(0, 3), *entries_of(2, 1)])

    ref = index.ref_of_page(b"page", page, (3, 5, 1))

    assert (ref.ends, ref.newest_ms, ref.entry_count) == ((3, 5, 1), (2, -1, 0), 4)


def test_a_member_lives_by_the_first_record_of_a_partition_that_was_added() -> None:
    old = IndexRef(object_id=b"old", is_page=True, entry_count=1, ends=(9,), newest_ms=(5,))
    new = IndexRef(object_id=b"new", is_page=True, entry_count=1, ends=(9, 1), newest_ms=(-1, 7))
    members = Members(((old, new),))

    assert index.live_members(members, [9, 0]).levels == ((new,),)
    assert index.live_members(members, [8, 1]).levels == ((old,),)
