"""A sweep finds all garbage and nothing else, for lanes of any shape."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import keys
from storage.errors import StoreUnavailable
from storage.head.head import Head
from storage.maintenance import sweep
from storage.maintenance.fsck import check_lane
from storage.maintenance.sweep import Found, TooMany, ZoneTally
from storage.reading import catalog as catalogs
from storage.stores.objects import ObjectInfo
from tests.storage.helpers.compacted_lane import CompactedLane
from tests.storage.helpers.worlds import TOPIC_ID, new_ids

LATE_MS = 2**48
"""Later than the time in any random name."""

ID = bytes.fromhex("0191e2e97ad1e3805803f4cb5100f09a")


@pytest.fixture(autouse=True)
def small_fanout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "FANOUT", 3)


def test_the_later_of_two_clocks_counts() -> None:
    info = ObjectInfo(key="", size_bytes=0, modified_ms=5)
    assert sweep.age_of(info, keys.ObjectKey("hot", "00000000000a" + "0" * 20)) == 10
    assert sweep.age_of(info, keys.ObjectKey("hot", "000000000001" + "0" * 20)) == 5


async def found_in(
    lane: CompactedLane,
    staged: Iterable[str] = (),
    *,
    suffix: str = "",
    cutoff_ms: int = LATE_MS,
) -> Found:
    async def staged_keys() -> Iterable[str]:
        return staged

    async def heads() -> AsyncIterator[Head]:
        yield lane.head

    return await sweep.find(lane.zones, lane.zones.names, suffix, cutoff_ms, staged_keys, heads)


def orphans(found: Found, zone: str = "a") -> set[str]:
    return {each.key for each in found.orphans.get(zone, ())}


async def nothing() -> None:
    pass


class Garbage:
    """Objects that nothing refers to, and others that only look like garbage."""

    def __init__(self, lane: CompactedLane, seed: int) -> None:
        self.lane = lane
        self.chance = random.Random(seed)
        self.new_id = new_ids(seed + 100)
        self.lost: dict[str, set[str]] = {name: set() for name in lane.zones.names}
        self.staged: set[str] = set()
        self.strange = {"notes.txt", "a/hot/notes.txt", f"0/hot/{'1' * 32}.seg"}

    async def scatter(self) -> None:
        for _ in range(self.chance.randrange(8)):
            await self._write(self._orphan(), self.lost)
        for _ in range(self.chance.randrange(4)):
            key = keys.hot_segment(self.new_id())
            self.staged.add(key)
            await self._write(key)
        for key in (*self.strange, keys.zone_marker(self.new_id().hex())):
            await self._write(key)

    def _orphan(self) -> str:
        object_id = self.new_id()
        return self.chance.choice(
            [
                keys.hot_segment(object_id),
                keys.compacted_segment(TOPIC_ID, 0, 5, object_id),
                keys.compacted_segment(object_id, 0, 5, object_id),
                keys.zone_probe(object_id.hex()),
                keys.index_object(TOPIC_ID, 0, object_id, "root"),
                keys.index_object(TOPIC_ID, 0, object_id, "segments"),
                keys.index_object(object_id, 9, object_id, "producers"),
            ]
        )

    async def _write(self, key: str, noted: dict[str, set[str]] | None = None) -> None:
        for name in self.lane.zones.names:
            if self.chance.random() < 0.8:
                await self.lane.zones[name].inner.put(key, [b"x"])
                if noted is not None:
                    noted[name].add(key)


async def live(seed: int) -> CompactedLane:
    """Return a lane of any shape: rolled, compacted, trimmed, or not."""
    chance = random.Random(seed)
    lane = CompactedLane(seed=seed)
    for _ in range(chance.randrange(5)):
        await lane.fill(chance.randrange(25), seed=chance.randrange(1000))
        for partition in range(2):
            end = lane.head.next_offsets[partition]
            if chance.random() < 0.5 and lane.head.root:
                await lane.compact(partition, lambda offset: offset % 3 != 1)
            if chance.random() < 0.4:
                lane.hide(partition, chance.randint(lane.head.log_starts[partition], end))
    return lane


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_a_sweep_removes_all_garbage_and_nothing_that_is_needed(seed: int) -> None:
    async def play() -> None:
        lane = await live(seed)
        garbage = Garbage(lane, seed)
        await garbage.scatter()
        before = {name: await lane.zones[name].keys() for name in lane.zones.names}
        found = await found_in(lane, garbage.staged)
        for name, lost in garbage.lost.items():
            assert lost <= orphans(found, name)
            store = lane.zones[name]
            await sweep.remove(store, found.orphans[name], found.tallies[name], nothing)
            after = await store.keys()
            assert after == before[name] - orphans(found, name)
            assert before[name] & garbage.staged <= after
            assert before[name] & garbage.strange <= after
            assert {key for key in after if key.endswith(".marker")} == {
                key for key in before[name] if key.endswith(".marker")
            }
            assert found.tallies[name].seen.objects == len(before[name])
        report = await check_lane(lane.zones, lane.head)
        assert report.is_ok, report.findings
        again = await found_in(lane, garbage.staged)
        assert not any(again.orphans.values())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogs, "FANOUT", 3)
        asyncio.run(play())


@pytest.mark.anyio
async def test_sweeps_by_suffix_find_together_what_one_whole_sweep_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lane = await live(7)
    garbage = Garbage(lane, 7)
    await garbage.scatter()
    whole = await found_in(lane, garbage.staged)
    monkeypatch.setattr(sweep, "CANDIDATES_MAX", 5)
    with pytest.raises(TooMany):
        await found_in(lane, garbage.staged)
    monkeypatch.setattr(sweep, "CANDIDATES_MAX", 10**6)

    for digits in (1, 2):
        parts: list[str] = []
        seen = unknown = 0
        for number in range(16**digits):
            part = await found_in(lane, garbage.staged, suffix=f"{number:0{digits}x}")
            parts += orphans(part)
            seen += part.tallies["a"].seen.objects
            unknown += part.tallies["a"].unknown.objects
        assert sorted(parts) == sorted(orphans(whole))
        # Keys that begin with none of our digits are not listed then.
        assert (seen, unknown) == (whole.tallies["a"].seen.objects - 1, 2)


@pytest.mark.anyio
async def test_objects_younger_than_the_cutoff_are_kept() -> None:
    lane = CompactedLane("a")
    young, old = ((ms).to_bytes(6) + bytes(10) for ms in (1001, 1000))
    for object_id in (young, old):
        await lane.zones["a"].put(keys.hot_segment(object_id), [b"x"])

    found = await found_in(lane, cutoff_ms=1000)

    assert orphans(found) == {keys.hot_segment(old)}
    tally = found.tallies["a"]
    assert (tally.seen.objects, tally.orphan_count) == (2, 1)
    assert tally.orphans["hot"].size_bytes == 1


@pytest.mark.anyio
async def test_a_zone_that_cannot_be_listed_does_not_stop_the_sweep_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lane = await live(3)
    garbage = Garbage(lane, 5)
    await garbage.scatter()
    expected = orphans(await found_in(lane, garbage.staged), "a")

    async def refuse(_: str) -> AsyncIterator[list[ObjectInfo]]:
        raise StoreUnavailable("no way")
        yield []

    monkeypatch.setattr(lane.zones["b"], "list", refuse)
    found = await found_in(lane, garbage.staged)

    assert found.tallies["b"].problem == "no way"
    assert "b" not in found.orphans
    assert orphans(found, "a") == expected


@pytest.mark.anyio
@pytest.mark.parametrize("ending", [".page", ".segments", ".root"])
async def test_nothing_is_swept_while_an_index_object_cannot_be_read(ending: str) -> None:
    lane = CompactedLane("abc")
    await lane.fill(30)
    await lane.roll()
    await lane.compact(1)
    garbage = Garbage(lane, 5)
    await garbage.scatter()
    everything = await found_in(lane, garbage.staged)
    needed = await lane.zones["a"].keys() - orphans(everything)
    victim = next(key for key in sorted(needed) if key.endswith(ending))
    for name in "abc":
        await lane.zones[name].inner.delete([victim])

    found = await found_in(lane, garbage.staged)

    assert found.orphans == {}
    assert all(tally.problem for tally in found.tallies.values())


@pytest.mark.anyio
async def test_a_sweep_stops_between_batches_when_its_check_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweep, "REMOVED_AT_ONCE", 2)
    lane = CompactedLane("a")
    names = new_ids(9)
    for _ in range(5):
        await lane.zones["a"].put(keys.hot_segment(names()), [b"xyz"])
    found = await found_in(lane)
    checks = 0

    async def check() -> None:
        nonlocal checks
        checks += 1
        if checks == 3:
            raise StoreUnavailable("not ours any more")

    tally = ZoneTally()
    told: list[tuple[int, int]] = []
    with pytest.raises(StoreUnavailable):
        await sweep.remove(
            lane.zones["a"], found.orphans["a"], tally, check, lambda *n: told.append(n)
        )

    assert told == [(2, 6), (2, 6)]
    assert (tally.removed.objects, tally.removed.size_bytes) == (4, 12)
    assert len(await lane.zones["a"].keys()) == 1
    # The next run continues.
    found = await found_in(lane)
    await sweep.remove(lane.zones["a"], found.orphans["a"], ZoneTally(), nothing)
    assert await lane.zones["a"].keys() == set()


@pytest.mark.anyio
async def test_a_store_that_refuses_removals_is_reported() -> None:
    lane = CompactedLane("a")
    await lane.zones["a"].put(keys.hot_segment(ID), [b"x"])
    found = await found_in(lane)
    lane.zones["a"].mode = "denied"
    tally = ZoneTally()

    await sweep.remove(lane.zones["a"], found.orphans["a"], tally, nothing)

    assert tally.problem == "permission denied"
    assert tally.removed.objects == 0
