"""Zones: a copy in each, and a read from whichever gives it."""

import pytest

from storage.errors import InvalidConfig, ObjectMissing, StoreUnavailable
from storage.zones import Zones
from tests.storage.faults import TestObjects

pytestmark = pytest.mark.anyio


def two_zones() -> tuple[TestObjects, TestObjects, Zones]:
    a, b = TestObjects(), TestObjects()
    return a, b, Zones({"a": a, "b": b})


async def test_puts_a_copy_in_every_named_zone() -> None:
    a, b, zones = two_zones()

    await zones.put("x", [b"12", b"3"], ["a", "b"])

    assert await a.get("x") == await b.get("x") == b"123"


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["b", "a"]])
async def test_a_zone_that_fails_a_put_fails_it_with_its_own_error(names: list[str]) -> None:
    a, _, zones = two_zones()
    a.failing_puts = 1

    with pytest.raises(StoreUnavailable, match="rocks"):
        await zones.put("x", [b"123"], names)


async def test_reads_from_the_next_zone_if_one_has_lost_it_or_is_away() -> None:
    a, b, zones = two_zones()
    await b.put("x", [b"123"])

    assert await zones.get("x", ["a", "b"]) == b"123"
    b.failing_reads, a.failing_reads = 0, 1
    assert await zones.get_ranges("x", [(1, 2)], ["a", "b"]) == [b"2"]


async def test_an_object_is_missing_only_if_every_zone_says_so() -> None:
    a, b, zones = two_zones()

    with pytest.raises(ObjectMissing):
        await zones.get("x", ["a", "b"])
    b.failing_reads = 1
    with pytest.raises(StoreUnavailable):
        await zones.get("x", ["a", "b"])
    a.failing_reads = 1
    with pytest.raises(StoreUnavailable):
        await zones.get_ranges("x", [(0, 1)], ["a", "b"])


async def test_a_zone_that_is_not_configured_counts_as_away() -> None:
    a, _, zones = two_zones()
    await a.put("x", [b"123"])

    assert await zones.get("x", ["c", "a"]) == b"123"
    with pytest.raises(StoreUnavailable, match="'c' is not configured"):
        await zones.get("x", ["c"])
    with pytest.raises(StoreUnavailable, match="no zone"):
        await zones.get("x", [])
    assert zones.names == ("a", "b")


def test_there_must_be_a_zone() -> None:
    with pytest.raises(InvalidConfig):
        Zones({})
