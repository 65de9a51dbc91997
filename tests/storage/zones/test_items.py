"""The state of a zone, as results of probes change it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt
from storage.formats import frames
from storage.zones import items as zone_items
from storage.zones.items import Probe, ResyncStatus, ZoneItem, left_every_isr, probed, restored
from tests.storage.helpers.damage import check_gives_a_value_or_corrupt, check_notices_damage

GOOD, BAD = Probe(latency_ms=3), Probe(error="permission denied")
WIPED = Probe(has_marker=False)
START = ZoneItem(name="a", marker="m" * 32)


def after(*probes: Probe, item: ZoneItem = START) -> ZoneItem:
    for number, probe in enumerate(probes, 1):
        item = probed(item, probe, 1000 * number, failures_max=2, successes_min=2)
    return item


def test_two_failed_probes_take_a_zone_offline_and_two_good_ones_bring_it_back() -> None:
    assert after(BAD, GOOD, BAD, GOOD).state == "online"
    offline = after(GOOD, BAD, BAD)
    assert (offline.state, offline.since_ms, offline.reason) == (
        "offline",
        3000,
        "permission denied",
    )
    assert after(GOOD, item=offline).state == "offline"
    assert after(GOOD, BAD, GOOD, item=offline).state == "offline"
    back = after(GOOD, GOOD, item=offline)
    assert (back.state, back.reason, back.is_whole) == ("online", "", True)


def test_a_zone_without_its_marker_is_wiped_at_once() -> None:
    for before in ((), (BAD, BAD), (GOOD, BAD)):
        wiped = after(*before, WIPED)
        assert (wiped.state, wiped.is_whole, wiped.marker) == ("wiped", False, "")
        assert after(GOOD, GOOD, item=wiped).state == "wiped"
        online = left_every_isr(wiped, 9000)
        assert (online.state, online.is_whole, online.since_ms) == ("online", False, 9000)
        # Until its objects are restored, a zone that fails counts as wiped again.
        assert after(BAD, BAD, GOOD, GOOD, item=online).state == "wiped"
        assert after(BAD, BAD, GOOD, GOOD, item=restored(online)).state == "online"


def test_the_count_of_lost_objects_survives_a_restore() -> None:
    behind = ZoneItem(name="a", is_whole=False, resync=ResyncStatus(lanes_behind=3, error="slow"))
    assert restored(behind).resync is None
    lost = ZoneItem(name="a", resync=ResyncStatus(lanes_behind=3, lost=2, error="slow"))
    assert restored(lost).resync == ResyncStatus(lost=2)
    assert restored(restored(lost)) == restored(lost)


@given(st.lists(st.sampled_from([GOOD, BAD, WIPED]), max_size=12), st.data())
def test_any_item_is_stored_and_read_back_and_damage_is_detected(
    probes: list[Probe], data: st.DataObject
) -> None:
    item = after(*probes)
    whole = zone_items.encode(item)

    assert zone_items.decode(whole) == item
    check_notices_damage(zone_items.decode, whole, data)


@given(st.binary(max_size=100))
def test_any_bytes_are_an_item_or_corrupt(anything: bytes) -> None:
    check_gives_a_value_or_corrupt(zone_items.decode, anything)


def test_an_item_of_another_shape_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="zone"):
        zone_items.decode(frames.seal(b"RZN1", b"\x80"))
