"""Sweeps over more lanes, zones and objects than one pass handles."""

from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec
import pytest

from storage import keys
from storage.formats import segments
from storage.head import head as heads
from storage.head.head import Head
from storage.maintenance import sweep
from storage.maintenance.sweep import DIGITS_MAX, LANES_AT_ONCE, Found, TooMany
from storage.stores.memory import MemoryObjects
from storage.zones.zones import Zones
from tests.storage.helpers.logs import run_of
from tests.storage.helpers.worlds import TOPIC_ID, new_ids

pytestmark = pytest.mark.anyio

LATE_MS = 2**48
"""Later than the time in any random name."""

new_id = new_ids(3)


async def found_in(zones: Zones, known: Sequence[Head] = (), suffix: str = "") -> Found:
    async def nothing_staged() -> Iterable[str]:
        return ()

    async def all_heads() -> AsyncIterator[Head]:
        for head in known:
            yield head

    return await sweep.find(zones, zones.names, suffix, LATE_MS, nothing_staged, all_heads)


def orphans(found: Found, zone: str = "a") -> list[str]:
    return [each.key for each in found.orphans[zone]]


async def filled(zone: MemoryObjects, count: int, ending: str = "") -> list[str]:
    """Put `count` unreferenced objects whose identifiers end with `ending`; return their keys."""
    names = [new_id().hex() for _ in range(count)]
    written = [
        keys.hot_segment(bytes.fromhex(name[: len(name) - len(ending)] + ending)) for name in names
    ]
    for key in written:
        await zone.put(key, segments.encode([]))
    return written


@pytest.mark.parametrize("lanes", [LANES_AT_ONCE - 1, LANES_AT_ONCE, 2 * LANES_AT_ONCE + 1])
async def test_objects_that_any_of_many_lanes_refers_to_are_kept(lanes: int) -> None:
    zone = MemoryObjects()
    known = []
    for number in range(lanes):
        run = run_of(new_id(), {0: 1})
        await zone.put(keys.hot_segment(run.object_id), segments.encode([]))
        known.append(heads.append(heads.create(TOPIC_ID, number, 1, ["a"]), [run]))
    garbage = await filled(zone, 2)

    found = await found_in(Zones({"a": zone}), known)

    assert sorted(orphans(found)) == sorted(garbage)
    assert found.tallies["a"].seen.objects == lanes + 2


async def test_the_marker_of_a_zone_is_never_garbage() -> None:
    zone = MemoryObjects()
    await zone.put(keys.zone_marker("ab" * 16), [b""])
    [garbage] = await filled(zone, 1)

    assert orphans(await found_in(Zones({"a": zone}))) == [garbage]


async def test_a_zone_with_several_unreadable_lanes_is_not_swept() -> None:
    zones = {name: MemoryObjects() for name in "ab"}
    for zone in zones.values():
        await filled(zone, 1)
    broken = [
        msgspec.structs.replace(heads.create(TOPIC_ID, lane, 1, ["a"]), root=new_id())
        for lane in range(2)
    ]

    found = await found_in(Zones(zones), broken)

    assert set(found.orphans) == {"b"}
    assert "cannot be read" in (found.tallies["a"].problem or "")
    assert not found.tallies["b"].problem


async def test_zones_share_the_limit_of_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "CANDIDATES_MAX", 5)
    zones = {name: MemoryObjects() for name in "ab"}
    await filled(zones["a"], 3)
    await filled(zones["b"], 2)
    found = await found_in(Zones(zones))
    assert [len(orphans(found, name)) for name in "ab"] == [3, 2]

    await filled(zones["b"], 1)

    with pytest.raises(TooMany):
        await found_in(Zones(zones))


async def test_objects_whose_suffix_cannot_be_divided_further_are_handled_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweep, "CANDIDATES_MAX", 2)
    zone = MemoryObjects()
    ending = "abc"[:DIGITS_MAX]
    garbage = await filled(zone, 3, ending)

    found = await found_in(Zones({"a": zone}), suffix=ending)

    assert sorted(orphans(found)) == sorted(garbage)
    with pytest.raises(TooMany):
        await found_in(Zones({"a": zone}), suffix=ending[1:])
