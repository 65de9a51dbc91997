"""Pages of windows: bytes that are what was written, or known not to be."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.formats import frames
from storage.head import head as heads
from storage.head.producers import Window
from storage.lanes import windows
from storage.lanes.windows import WindowPages
from storage.zones.zones import Zones
from tests.examples import few
from tests.storage.helpers.damage import check_gives_a_value_or_corrupt, check_notices_damage
from tests.storage.helpers.faults import TestObjects
from tests.storage.helpers.worlds import (
    TOPIC_ID,
    new_ids,
)

pytestmark = pytest.mark.anyio


async def test_a_damaged_page_is_read_from_another_zone() -> None:
    stores = {"a": TestObjects(), "b": TestObjects()}
    zones = Zones(stores)
    head = heads.create(TOPIC_ID, 0, 1, ["a", "b"])
    full = heads.with_windows(head, {(n, 0): Window(n, 0, 0, 5, 1, (1, n)) for n in range(2, 200)})
    spill = await WindowPages(zones, new_ids(), 1 << 20).spill(full, 5, 86_400_000, 1000)
    spilled = msgspec.structs.replace(head, producer_pages=spill.new_pages)
    [name] = stores["a"].names(".producers")
    stores["a"].damage(name, 40)

    found = await WindowPages(zones, new_ids(), 1 << 20).find(spilled, [(2, 0)])

    assert found == {(2, 0): Window(2, 0, 0, 5, 1, (1, 2))}


WINDOWS = st.builds(
    Window,
    producer_id=st.integers(1, 2**53 - 1),
    partition=st.integers(0, 63),
    epoch=st.integers(0, 32_767),
    used_minute=st.integers(0, 2**31),
    next_sequence=st.integers(0, 2**31 - 1),
    batches=st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 2**60)), max_size=5).map(
        lambda pairs: tuple(number for pair in pairs for number in pair)
    ),
)


PAGES = st.lists(WINDOWS, max_size=8, unique_by=lambda window: window.key)


@few
@given(PAGES)
def test_decodes_what_it_encoded(page: list[Window]) -> None:
    assert windows.decode(windows.encode(page)) == {window.key: window for window in page}


@few
@given(PAGES, st.data())
def test_notices_any_damage(page: list[Window], data: st.DataObject) -> None:
    check_notices_damage(windows.decode, windows.encode(page), data)


@few
@given(st.binary(max_size=60))
def test_any_bytes_are_a_page_or_corrupt(anything: bytes) -> None:
    check_gives_a_value_or_corrupt(windows.decode, anything)
    check_gives_a_value_or_corrupt(windows.decode, frames.seal(b"RPW1", anything))
