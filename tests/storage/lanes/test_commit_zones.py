"""Commits to zones of which some failed, left, or are few: what is written, and how often."""

import msgspec
import pytest

from storage import keys
from storage.errors import NotEnoughReplicas
from storage.head import head as heads
from storage.head import producers
from storage.head.changes import change_head
from storage.head.head import Head
from storage.lanes.commits import Offer
from storage.lanes.rolls import FLIGHT_MAX_S, TRUSTED_S
from storage.stores.metadata import MetadataStore
from tests.storage.helpers.claims import claim
from tests.storage.helpers.faults import FaultyMetadata
from tests.storage.helpers.logs import run_of
from tests.storage.helpers.worlds import TOPIC_ID, turns
from tests.storage.helpers.zoned import Zoned
from tests.storage.lanes.test_commit_attempts import commit, rivals
from tests.storage.lanes.test_idempotence import new_scene

pytestmark = pytest.mark.anyio


async def set_isr(metadata: MetadataStore, isr: int) -> None:
    """Change who is in sync, as another process would."""

    def changed(head: Head) -> Head:
        return msgspec.structs.replace(head, isr=isr)

    await change_head(metadata, keys.head(TOPIC_ID, 0), changed)


async def counting() -> tuple[Zoned, FaultyMetadata]:
    """Return zones whose lane goes through a table that counts."""
    zoned = await Zoned().written()
    table = FaultyMetadata(zoned.metadata)
    zoned.runtime.metadata = table
    return zoned, table


async def refused(zoned: Zoned, offer: Offer) -> None:
    ticket = zoned.lane.enqueue()
    ticket.ready(offer)
    with pytest.raises(NotEnoughReplicas):
        await ticket.committed


async def test_a_flight_as_long_as_it_may_be_still_lands() -> None:
    zoned = await Zoned().written()

    assert (await zoned.committed(zoned.run, after_s=FLIGHT_MAX_S)).next_offsets == (1,)


async def test_two_zones_are_enough_to_put_back_what_one_has_lost() -> None:
    zoned = await Zoned("ab").written()
    await zoned.stores["b"].inner.delete([zoned.key])

    await zoned.committed(zoned.run, after_s=TRUSTED_S + 0.1)

    assert await zoned.holders() == "ab"


async def test_what_only_a_zone_that_left_has_is_refused_though_others_are_awaited() -> None:
    zoned = await Zoned().written()
    await set_isr(zoned.metadata, 0b110)
    run = msgspec.structs.replace(zoned.run, zones=0b001)

    await refused(zoned, Offer(run, awaited=0b110))

    assert (await zoned.lane.view(0)).head.next_offsets == (0,)


async def test_a_zone_leaves_with_the_commit_and_not_before_it() -> None:
    zoned, table = await counting()
    run = msgspec.structs.replace(zoned.run, zones=0b011)

    head = await zoned.committed(run, failed=0b100, in_sync_min=2)

    assert (head.isr, table.calls["transact"]) == (0b011, 1)


async def test_those_who_come_next_are_told_of_a_zone_that_left_one_too_few() -> None:
    zoned, table = await counting()
    run = msgspec.structs.replace(zoned.run, zones=0b001)

    await refused(zoned, Offer(run, failed=0b110, in_sync_min=2))

    head = (await zoned.lane.view(0)).head
    assert (head.isr, head.next_offsets) == (0b001, (0,))
    assert table.calls["transact"] == 1


async def test_where_too_few_were_in_sync_before_nothing_is_written() -> None:
    zoned, table = await counting()
    await set_isr(zoned.metadata, 0b001)

    await refused(zoned, Offer(zoned.run, in_sync_min=2))

    assert table.calls["transact"] == 0


async def test_a_head_that_is_not_crowded_any_more_is_not_waited_for() -> None:
    lane, table, clock = await rivals()
    table.races = 4
    await commit(lane, 2)
    for number in range(3, 20):
        await commit(lane, number)
    table.calls.clear()
    clock.sleeps = 0

    await commit(lane, 20)

    assert (table.calls["get"], table.calls["transact"], clock.sleeps) == (0, 1, 0)


async def test_a_head_is_rolled_as_soon_as_it_is_too_large() -> None:
    lane, _, _ = await rivals()
    lane._runtime.inline_bytes_max = heads.inline_bytes((await lane.view(0)).head) + 1

    await commit(lane, 2)
    await turns()

    head = (await lane.view(0)).head
    assert (bool(head.root), len(head.runs), head.next_offsets) == (True, 0, (2,))


async def test_windows_leave_a_head_as_soon_as_they_are_too_many() -> None:
    scene = await new_scene()
    await scene.send(scene.ours, claim(2, 0))
    windows = (await scene.ours.view(0)).head.producers
    scene.ours._runtime.inline_bytes_max = producers.inline_bytes(windows) + 1

    await scene.send(scene.ours, claim(4, 0))
    await turns()

    assert (await scene.ours.view(0)).head.producer_pages
    assert await scene.send(scene.ours, claim(2, 0), claim(4, 0)) == [0, 1]


async def test_an_object_that_another_one_equals_is_not_taken_for_it() -> None:
    lane, _, _ = await rivals()
    before = (await lane.view(0)).head
    await commit(lane, 2)
    now = (await lane.view(0)).head
    roll = await lane._runtime.catalog.roll(now)
    assert roll is not None
    rolled = roll.applied_to(now)
    assert rolled is not None

    # Its slices are the same to the byte, and in the place where ours would be.
    assert not await lane.commits.landed(before, [run_of(b"ours", {0: 1})], rolled)
    assert await lane.commits.landed(before, [run_of((2).to_bytes(16), {0: 1})], rolled)
