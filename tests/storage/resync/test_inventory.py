"""The inventory of a lane: every object it needs, once, and no other."""

from collections import Counter

import msgspec
import pytest

from storage import keys
from storage.errors import Corrupt, ObjectMissing, StoreUnavailable
from storage.formats import index
from storage.head.head import WindowPage
from storage.lanes import windows
from storage.reading import catalog as catalogs
from storage.resync import inventory
from storage.resync.inventory import INLINE, Reference, Shelf
from tests.storage.helpers.compacted_lane import CompactedLane
from tests.storage.helpers.replicated import ReplicatedLane
from tests.storage.helpers.worlds import TOPIC_ID

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def small_fanout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "FANOUT", 3)


async def shelves_of(lane: ReplicatedLane, known: set[bytes] | None = None) -> list[Shelf]:
    found = inventory.walk(lane.zones, lane.head, skip=(known or set()).__contains__)
    return [shelf async for shelf in found]


def references(shelves: list[Shelf]) -> list[Reference]:
    return [ref for shelf in shelves for ref in shelf.references]


async def check_bytes(lane: ReplicatedLane, ref: Reference) -> None:
    body = await lane.zones["a"].inner.get(ref.key)
    assert ref.size_bytes in (None, len(body))
    assert ref.end <= len(body)
    inventory.check(ref, [body[s.position : s.position + s.length] for s in ref.stretches])


async def test_the_inventory_lists_every_object_with_its_right_size() -> None:
    lane = ReplicatedLane()
    await lane.fill(60)
    shelves = await shelves_of(lane)

    for ref in references(shelves):
        await check_bytes(lane, ref)
        assert ref.zones == 0b111
    # Other objects in the bucket were replaced by a merge or a later root.
    hot = {key for key in await lane.zones["a"].keys() if "/hot/" in key}
    assert {ref.key for ref in references(shelves) if ref.is_segment} == hot
    ends = [0, 0]
    for shelf in shelves:
        for entry in shelf.entries:
            assert entry.base_offset == ends[entry.partition]
            ends[entry.partition] = entry.end_offset
    assert tuple(ends) == lane.head.next_offsets


async def test_index_objects_come_after_what_they_list_and_the_head_last() -> None:
    lane = ReplicatedLane()
    await lane.fill(60)
    shelves = await shelves_of(lane)

    assert shelves[-1].object_id == INLINE
    assert shelves[-2].object_id == lane.head.root
    assert not shelves[-2].is_leaf
    assert Counter(shelf.object_id for shelf in shelves).most_common(1)[0][1] == 1
    assert any(not shelf.is_leaf for shelf in shelves[:-2]), "no nodes; write more"


async def test_known_shelves_are_left_out_of_the_next_walk() -> None:
    lane = ReplicatedLane()
    await lane.fill(60)
    known = {shelf.object_id for shelf in await shelves_of(lane)} - {INLINE}
    assert [shelf.object_id for shelf in await shelves_of(lane, known)] == [INLINE]

    await lane.append(b"new")
    await lane.roll()
    again = await shelves_of(lane, known)

    assert again[-2].object_id == lane.head.root
    assert len(again) < len(known) / 2


async def test_pages_of_producers_are_listed() -> None:
    lane = ReplicatedLane()
    page_id = b"p" * 16
    key = keys.index_object(TOPIC_ID, 0, page_id, "producers")
    await lane.zones.put_widely(key, [windows.encode([])], ["a", "b", "c"])
    lane.head = msgspec.structs.replace(
        lane.head, producer_pages=(WindowPage(page_id, 0, 1, 1, 1),)
    )

    [shelf, inline] = await shelves_of(lane)

    assert [ref.key for ref in shelf.references] == [key]
    assert shelf.is_leaf
    assert inline.references == []
    assert [each.object_id for each in await shelves_of(lane, {page_id})] == [INLINE]
    # A damaged page is never accepted.
    await lane.zones["a"].damage(key)
    [damaged_in_one, _] = await shelves_of(lane)
    assert damaged_in_one == shelf
    for name in "bc":
        await lane.zones[name].damage(key)
    with pytest.raises(Corrupt):
        await shelves_of(lane)


async def test_objects_before_the_log_start_are_not_needed() -> None:
    lane = ReplicatedLane()
    old = await lane.append(b"a", b"b")
    cut = await lane.append(b"c", b"d")
    await lane.roll()
    lane.hide(0, 3)

    found = {ref.object_id for ref in references(await shelves_of(lane)) if ref.is_segment}

    assert (old in found, cut in found) == (False, True)


async def test_an_index_object_is_read_from_any_zone_with_an_undamaged_copy() -> None:
    lane = ReplicatedLane()
    await lane.fill(30)
    everything = await shelves_of(lane)

    await lane.zones["a"].wipe()
    lane.zones["b"].mode = "denied"
    assert await shelves_of(lane) == everything
    for key in await lane.zones["c"].keys():
        if key.endswith(".page"):
            await lane.zones["c"].damage(key)
    with pytest.raises(StoreUnavailable):
        await shelves_of(lane)
    lane.zones["b"].mode = "ok"
    assert await shelves_of(lane) == everything


async def test_a_lost_index_object_is_reported_and_the_rest_is_found() -> None:
    lane = ReplicatedLane()
    await lane.fill(30)
    everything = await shelves_of(lane)
    lost = next(shelf for shelf in everything if shelf.is_leaf and shelf.object_id != INLINE)
    key = lost.references[0].key
    for name in "abc":
        await lane.zones[name].inner.delete([key])

    told: list[tuple[str, Corrupt]] = []
    found = inventory.walk(
        lane.zones, lane.head, broken=lambda name, error: told.append((name, error))
    )
    rest = [shelf async for shelf in found]

    assert [(name, type(error)) for name, error in told] == [(key, ObjectMissing)]
    assert rest == [shelf for shelf in everything if shelf != lost]
    with pytest.raises(ObjectMissing):
        await shelves_of(lane)


async def compacted_lane() -> CompactedLane:
    lane = CompactedLane()
    await lane.fill(40, rolls=0.3)
    await lane.roll()
    await lane.compact(0)
    await lane.fill(10, seed=1, rolls=0.3)
    return lane


async def test_compacted_segments_are_listed_and_the_slices_they_replaced_are_not() -> None:
    lane = await compacted_lane()
    shelves = await shelves_of(lane)
    covers = (await lane.catalog.root(lane.head)).covered(0)

    for ref in references(shelves):
        await check_bytes(lane, ref)
    [listed] = [shelf for shelf in shelves if shelf.segments]
    assert listed.partition == 0
    assert [ref.compacted for ref in listed.references] == [None, *listed.segments]
    assert listed.references[0].key.endswith(".segments")
    assert all(ref.is_segment for ref in listed.references[1:])
    assert {shelf.covers for shelf in shelves} == {(covers, 0)}
    entries = [entry for shelf in shelves for entry in shelf.entries]
    assert min(entry.base_offset for entry in entries if entry.partition == 0) == covers
    assert min(entry.base_offset for entry in entries if entry.partition == 1) == 0
    # An object that also holds slices of another partition is still needed.
    hot = {key for key in await lane.zones["a"].keys() if "/hot/" in key}
    found = {ref.key for ref in references(shelves) if "/hot/" in ref.key}
    assert found < hot
    assert found == {keys.hot_segment(entry.object_id) for entry in entries}


async def test_a_segment_list_comes_before_the_root_and_is_left_out_once_known() -> None:
    lane = await compacted_lane()
    shelves = await shelves_of(lane)
    names = [shelf.object_id for shelf in shelves]
    members = await lane.catalog.root(lane.head)

    assert names.index(members.compacted[0]) < names.index(lane.head.root)
    assert (await shelves_of(lane, set(names) - {lane.head.root}))[0].object_id == lane.head.root
    await lane.roll()
    await lane.compact(1)
    again = [shelf for shelf in await shelves_of(lane, set(names)) if shelf.segments]
    assert [shelf.partition for shelf in again] == [1]


async def test_compacted_segments_before_the_log_start_are_not_needed() -> None:
    lane = await compacted_lane()
    segments = next(shelf.segments for shelf in await shelves_of(lane) if shelf.segments)
    lane.hide(0, segments[0].end_offset)

    [listed] = [shelf for shelf in await shelves_of(lane) if shelf.partition == 0]

    assert listed.segments == list(segments[1:])
    lane.hide(0, segments[-1].end_offset)
    [listed] = [shelf for shelf in await shelves_of(lane) if shelf.partition == 0]
    assert [ref.compacted for ref in listed.references] == [None]


async def test_a_page_without_live_entries_is_needed_while_the_root_lists_it() -> None:
    lane = CompactedLane()
    await lane.append(b"a", b"b")
    await lane.roll()
    members = await lane.catalog.root(lane.head)
    saved = await lane.catalog.save_root(lane.head, index.with_covered(members, 0, 2), {})
    lane.head = msgspec.structs.replace(lane.head, root=saved.new_root)

    [page, root, inline] = await shelves_of(lane)

    assert [ref.key.rpartition(".")[2] for ref in references([page, root])] == ["page", "root"]
    assert page.entries == inline.entries == []


async def test_a_lost_segment_list_is_reported_and_the_rest_is_found() -> None:
    lane = await compacted_lane()
    everything = await shelves_of(lane)
    lost = next(shelf for shelf in everything if shelf.segments)
    for name in "abc":
        await lane.zones[name].inner.delete([lost.references[0].key])

    told: list[str] = []
    found = inventory.walk(lane.zones, lane.head, broken=lambda name, _: told.append(name))
    rest = [shelf async for shelf in found]

    assert told == [lost.references[0].key]
    assert rest == [shelf for shelf in everything if shelf != lost]
