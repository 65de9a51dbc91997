"""Commits of several flushes at once, of which some have nothing left, or zones that failed."""

import msgspec
import pytest

from storage.errors import OutcomeUnknown
from storage.formats.entries import Kind
from storage.head import head as heads
from storage.head.head import Run
from storage.head.producers import Claim
from storage.lanes import commits
from storage.lanes.rolls import TRUSTED_S
from tests.storage.helpers.claims import claim
from tests.storage.helpers.failing_zones import Mode
from tests.storage.helpers.logs import run_of
from tests.storage.helpers.worlds import TOPIC_ID
from tests.storage.helpers.zoned import Zoned
from tests.storage.lanes.test_idempotence import Scene, new_scene, nobody

pytestmark = pytest.mark.anyio


async def test_a_flush_of_which_nothing_is_left_keeps_nothing_from_those_behind_it() -> None:
    scene = await new_scene()
    await scene.send(scene.ours, claim(2, 0))
    flushes = [scene.flush(batch) for batch in (claim(2, 0), nobody(2), claim(4, 0))]
    tickets = [scene.ours.enqueue() for _ in flushes]
    for flush, ticket in zip(flushes, tickets, strict=True):
        flush.start(ticket)

    told = [await flush.landing for flush in flushes]

    assert told == [{claim(2, 0): 0}, {nobody(2): 1}, {claim(4, 0): 3}]
    assert await scene.log() == [claim(2, 0), nobody(2), claim(4, 0)]


async def reads_of(scene: Scene, batch: Claim) -> int:
    before = scene.faulty.calls["get"]
    await scene.send(scene.ours, batch)
    return scene.faulty.calls["get"] - before


async def test_a_copy_is_recognised_without_a_look_at_the_table() -> None:
    scene = await new_scene()
    await scene.send(scene.ours, claim(2, 0))

    assert await reads_of(scene, claim(2, 0)) == 0
    assert await reads_of(scene, claim(2, 7)) == 1


async def test_a_gap_beside_a_copy_is_refused_only_after_a_look_too() -> None:
    scene = await new_scene()
    await scene.send(scene.ours, claim(2, 0))
    await scene.send(scene.theirs, claim(4, 0))

    assert await scene.send(scene.ours, claim(2, 0), claim(4, 1)) == [0, 2]


# What zones hold at the moment of a commit


async def test_what_was_written_just_now_is_believed_to_be_there() -> None:
    zoned = await Zoned().written()

    head = await zoned.committed(zoned.run, after_s=TRUSTED_S)

    assert (zoned.looks(), head.isr, head.runs[0].zones) == ("", 0b111, 0b111)


async def test_what_zones_lost_since_it_was_written_is_put_there_again() -> None:
    zoned = await Zoned().written()
    for name in "ac":
        await zoned.stores[name].inner.delete([zoned.key])

    head = await zoned.committed(zoned.run, after_s=TRUSTED_S + 0.1)

    assert zoned.looks() == "abc"
    assert await zoned.holders() == "abc"
    assert (head.isr, head.runs[0].zones) == (0b111, 0b111)


async def test_a_zone_that_lost_it_and_does_not_take_it_again_leaves_the_isr() -> None:
    zoned = await Zoned().written()
    await zoned.stores["b"].inner.delete([zoned.key])
    zoned.stores["b"].mode = "full"

    head = await zoned.committed(zoned.run, after_s=TRUSTED_S + 0.1)

    assert (head.isr, head.runs[0].zones) == (0b101, 0b101)


@pytest.mark.parametrize("mode", ["denied", "hanging"])
async def test_a_zone_that_does_not_answer_is_not_known_to_have_lost_it(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "COPY_S_MAX", 0.01)
    zoned = await Zoned().written()
    zoned.stores["b"].mode = mode

    head = await zoned.committed(zoned.run, after_s=TRUSTED_S + 0.1)

    assert zoned.looks() == "abc"
    assert (head.isr, head.runs[0].zones) == (0b111, 0b111)


async def test_a_zone_that_never_got_it_and_does_not_answer_leaves_the_isr() -> None:
    zoned = await Zoned().written()
    zoned.stores["c"].mode = "denied"
    run = msgspec.structs.replace(zoned.run, zones=0b011)

    head = await zoned.committed(run, after_s=TRUSTED_S + 0.1)

    assert (head.isr, head.runs[0].zones) == (0b011, 0b011)


async def test_a_lane_of_one_zone_has_nobody_to_copy_from_and_does_not_ask() -> None:
    zoned = await Zoned("a").written()

    await zoned.committed(zoned.run, after_s=TRUSTED_S + 0.1)

    assert zoned.looks() == ""


async def test_what_is_in_the_table_is_not_looked_for_in_zones() -> None:
    zoned = await Zoned().written()
    run = msgspec.structs.replace(zoned.run, kind=int(Kind.TABLE))

    head = await zoned.committed(run, after_s=TRUSTED_S + 0.1)

    assert (zoned.looks(), head.isr) == ("", 0b111)


async def test_only_zones_that_are_in_sync_and_not_awaited_get_a_copy() -> None:
    zoned = await Zoned().written()
    for name in "bc":
        await zoned.stores[name].inner.delete([zoned.key])
    run = msgspec.structs.replace(zoned.run, zones=0b001)

    head = await zoned.committed(run, awaited=0b100)

    assert await zoned.holders() == "ab"
    assert (head.isr, head.runs[0].zones) == (0b111, 0b011)


async def test_a_zone_that_failed_leaves_unless_it_holds_it_after_all() -> None:
    zoned = await Zoned().written()
    run = msgspec.structs.replace(zoned.run, zones=0b011)

    head = await zoned.committed(run, failed=0b110)

    assert (head.isr, head.runs[0].zones) == (0b011, 0b011)


async def test_a_zone_that_hangs_when_it_gets_its_copy_leaves_the_isr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commits, "COPY_S_MAX", 0.01)
    zoned = await Zoned().written()
    zoned.stores["c"].mode = "hanging"
    run = msgspec.structs.replace(zoned.run, zones=0b011)

    head = await zoned.committed(run)

    assert (head.isr, head.runs[0].zones) == (0b011, 0b011)


# Whether an attempt that was not answered has landed


async def landed(run: Run, *committed: Run, dropped: int = 0, root: bytes = b"") -> bool:
    """Return whether `run` is taken to be part of a head to which `committed` were appended."""
    zoned = await Zoned().written()
    old = heads.create(TOPIC_ID, 0, 1, list("abc"))
    now = heads.drop_runs(heads.append(old, committed), dropped, root)
    return await zoned.lane.commits.landed(old, [run], now)


async def test_an_attempt_landed_if_its_object_is_where_it_would_be() -> None:
    ours, theirs = run_of(b"ours", {0: 1}), run_of(b"theirs", {0: 1})

    assert await landed(ours, ours)
    assert await landed(ours, ours, theirs)
    assert not await landed(ours)
    assert not await landed(ours, theirs)
    # Behind what others appended it came by another attempt, and this one is lost.
    assert not await landed(ours, theirs, ours)


async def test_where_the_log_was_rewritten_it_is_unknown_what_landed() -> None:
    ours, theirs = run_of(b"ours", {0: 1}), run_of(b"theirs", {0: 1})
    compacted = msgspec.structs.replace(theirs, kind=int(Kind.PARQUET))

    with pytest.raises(OutcomeUnknown):
        await landed(ours, compacted)
    with pytest.raises(OutcomeUnknown):
        await landed(ours, ours, theirs, dropped=1)
    with pytest.raises(OutcomeUnknown):
        await landed(ours, ours, dropped=1)
