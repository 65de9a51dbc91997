"""Sets of zones behave as sets of numbers, and are the integers that are stored."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.formats import zone_sets
from storage.formats.zone_sets import EVERYWHERE, NONE
from storage.head import head as heads
from tests.examples import some
from tests.storage.helpers.logs import run_of

numbers = st.frozensets(st.integers(0, 31), max_size=5)


@some
@given(numbers, numbers)
def test_operations_are_those_of_sets(one: frozenset[int], two: frozenset[int]) -> None:
    a, b = zone_sets.of(one), zone_sets.of(two)

    assert zone_sets.numbers(a) == sorted(one)
    assert zone_sets.count(a) == len(one)
    assert [n for n in range(32) if zone_sets.has(a, n)] == sorted(one)
    assert bool(a) == bool(one)
    assert (a == b) == (one == two)
    assert a & b == zone_sets.in_all([a, b]) == zone_sets.of(one & two)
    assert a | b == zone_sets.in_any([a, b]) == zone_sets.of(one | two)
    assert zone_sets.without(a, b) == zone_sets.of(one - two)
    assert zone_sets.is_within(a, b) == (one <= two)


def test_the_first_zones_and_no_zones() -> None:
    assert zone_sets.numbers(zone_sets.first(3)) == [0, 1, 2]
    assert zone_sets.first(0) == zone_sets.of([]) == zone_sets.in_any([]) == NONE
    assert zone_sets.numbers(NONE) == []


def test_a_zone_that_is_given_twice_counts_once() -> None:
    assert zone_sets.numbers(zone_sets.of([2, 0, 2])) == [0, 2]


@some
@given(numbers)
def test_everywhere_includes_every_zone(some_zones: frozenset[int]) -> None:
    zones = zone_sets.of(some_zones)
    others = zone_sets.without(EVERYWHERE, zones)

    assert zone_sets.is_within(zones, EVERYWHERE)
    assert not zone_sets.is_within(EVERYWHERE, zones)
    assert EVERYWHERE & zones == zones
    assert zone_sets.in_all([]) == others | zones == EVERYWHERE
    assert not others & zones
    assert [n for n in range(40) if not zone_sets.has(others, n)] == sorted(some_zones)


@pytest.mark.parametrize("zones", [EVERYWHERE, zone_sets.without(EVERYWHERE, zone_sets.of([1]))])
def test_zones_without_end_cannot_be_counted(zones: zone_sets.ZoneSet) -> None:
    with pytest.raises(AssertionError):
        zone_sets.count(zones)
    with pytest.raises(AssertionError):
        zone_sets.numbers(zones)


def test_a_set_is_stored_as_bits() -> None:
    run = msgspec.structs.replace(run_of(bytes(16), {0: 1}), zones=zone_sets.of([0, 2]))
    table = msgspec.structs.replace(run, zones=EVERYWHERE)
    head = heads.append(heads.create(bytes(16), 0, 1, ["a", "b", "c"]), [run, table])

    stored = msgspec.to_builtins(heads.decode(heads.encode(head)))

    isr = heads.Head.__struct_fields__.index("isr")
    runs = heads.Head.__struct_fields__.index("runs")
    zones = heads.Run.__struct_fields__.index("zones")
    assert stored[isr] == 0b111
    assert [each[zones] for each in stored[runs]] == [0b101, -1]
