"""Replica sets, leaders and the ISR: invariants that hold after any history of failures."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import NotEnoughReplicas
from storage.head import head as heads
from storage.head import replication
from storage.head.head import Head
from storage.head.replication import Lost, VerifiedObjects
from tests.storage.helpers.logs import run_of
from tests.storage.helpers.worlds import TOPIC_ID

NOTHING = VerifiedObjects(frozenset(), frozenset())


def head_of(zones: str = "abc", partitions: int = 6) -> Head:
    return heads.create(TOPIC_ID, 0, partitions, list(zones))


def with_run(head: Head, object_id: bytes, zones: int, counts: dict[int, int]) -> Head:
    return heads.append(head, [msgspec.structs.replace(run_of(object_id, counts), zones=zones)])


def names_of_leaders(head: Head) -> list[str]:
    return ["-" if n is None else head.zones[n] for n in replication.leaders(head)]


@pytest.mark.parametrize(("zones", "factor"), [(1, 1), (2, 2), (3, 1), (3, 2), (3, 3), (5, 3)])
def test_lanes_and_their_leaders_are_spread_evenly(zones: int, factor: int) -> None:
    names = [f"zone-{n}" for n in range(zones)]
    lanes = [replication.place(TOPIC_ID, lane, factor, names) for lane in range(zones * 6)]

    assert all(len(set(lane)) == factor for lane in lanes)
    assert set(Counter(name for lane in lanes for name in lane).values()) == {6 * factor}
    assert set(Counter(lane[0] for lane in lanes).values()) == {6}
    assert lanes == [replication.place(TOPIC_ID, lane, factor, names) for lane in range(zones * 6)]


def test_topics_begin_in_different_zones() -> None:
    first = Counter(
        replication.place(bytes(15) + bytes([n]), 0, 1, ["a", "b", "c"]) for n in range(90)
    )

    assert set(first.values()) == {30}


def test_partitions_of_a_lane_rotate_leaders_and_skip_zones_out_of_sync() -> None:
    head = head_of()
    assert names_of_leaders(head) == ["a", "b", "c", "a", "b", "c"]

    without_b = replication.without_zones(head, 0b010)

    assert names_of_leaders(without_b) == ["a", "c", "c", "a", "c", "c"]
    assert (without_b.isr, without_b.leader_epoch) == (0b101, head.leader_epoch + 1)
    assert without_b.commits == head.commits + 1


def test_removing_a_zone_that_is_out_of_sync_changes_nothing() -> None:
    head = replication.without_zones(head_of(), 0b010)

    assert replication.without_zones(head, 0b010) is head
    assert replication.without_zones(head, 0) is head


def test_the_last_zones_in_sync_never_leave() -> None:
    head = replication.without_zones(head_of(), 0b001)

    for mask in (0b110, 0b111):
        with pytest.raises(NotEnoughReplicas):
            replication.without_zones(head, mask)


def test_a_zone_returns_only_if_it_is_known_to_hold_everything() -> None:
    head = replication.without_zones(head_of(), 0b010)
    head = with_run(head, b"x" * 16, 0b101, {0: 1})
    head = with_run(head, b"y" * 16, 0b111, {0: 1})
    head = msgspec.structs.replace(head, root=b"r" * 16)

    known = [frozenset[bytes](), frozenset({b"r" * 16}), frozenset({b"x" * 16})]
    for indexes, objects in [(known[0], known[0]), (known[1], known[0]), (known[0], known[2])]:
        held = VerifiedObjects(indexes, objects)
        assert replication.lacks(head, 1, held)
        with pytest.raises(AssertionError):
            replication.with_zone(head, 1, held)
    back = replication.with_zone(head, 1, VerifiedObjects(known[1], known[2]))

    assert back.isr == 0b111
    assert names_of_leaders(back) == ["a", "b", "c", "a", "b", "c"]


def test_an_object_listed_by_two_runs_is_in_the_zones_of_either() -> None:
    head = with_run(head_of(), b"x" * 16, 0b011, {0: 1})
    head = with_run(head, b"x" * 16, 0b101, {1: 1})
    head = replication.without_zones(head, 0b110)

    assert not replication.lacks(head, 1, NOTHING)
    assert not replication.lacks(head, 2, NOTHING)
    both = replication.with_zone(replication.with_zone(head, 1, NOTHING), 2, NOTHING)

    assert not replication.incomplete(both)
    assert replication.complete_runs(both) == 2
    assert replication.lost(both, 0b100) == []


def test_masks_of_runs_before_a_wipe_are_not_trusted_for_later_runs() -> None:
    head = with_run(head_of(), b"x" * 16, 0b111, {0: 1})
    head = replication.without_zones(head, 0b110)
    wiped = VerifiedObjects(frozenset(), frozenset(), trusted_from=head.run_count)
    head = with_run(head, b"x" * 16, 0b001, {1: 1})

    assert replication.lacks(head, 2, wiped)
    assert replication.lacks(replication.with_zone(head, 1, NOTHING), 2, wiped)


def test_objects_before_the_log_start_do_not_keep_a_zone_out() -> None:
    head = replication.without_zones(head_of(), 0b010)
    head = with_run(head, b"x" * 16, 0b101, {0: 2, 1: 1})

    for starts, is_hidden in [((1, 1), False), ((2, 0), False), ((2, 1), True)]:
        trimmed = msgspec.structs.replace(head, log_starts=(*starts, 0, 0, 0, 0))
        assert replication.lacks(trimmed, 1, NOTHING) is not is_hidden
    back = replication.with_zone(trimmed, 1, NOTHING)

    assert back.isr == 0b111
    # Nor does the run stay in the head to wait for a copy that will never be made.
    assert not replication.incomplete(back)


def test_the_epoch_rises_only_when_leaders_change() -> None:
    for partitions, changes in ((1, False), (2, True)):
        head = replication.without_zones(head_of(partitions=partitions), 0b010)
        back = replication.with_zone(head, 1, NOTHING)
        assert (back.leader_epoch > head.leader_epoch) is changes
        assert back.commits == head.commits + 1


def test_a_commit_needs_enough_zones_in_sync() -> None:
    replication.check_in_sync(0b101, 2)
    with pytest.raises(NotEnoughReplicas, match=r"1 zones are in sync.*demands 2"):
        replication.check_in_sync(0b100, 2)


def test_writes_target_all_replicas_and_wait_only_for_the_isr() -> None:
    head = replication.without_zones(head_of(), 0b100)

    assert replication.targets(head) == replication.Targets(required=0b011, hopeful=0b100)


def test_reads_try_zones_of_the_mask_then_the_isr_then_all_others() -> None:
    head = replication.reassigned(head_of("abcd"), ["b", "c"])
    head = replication.without_zones(head, 0b0001)

    assert replication.read_names(head, 0b1001) == ["d", "a", "b", "c"]
    assert replication.read_names(head, 0b0110, 0) == ["b", "c", "d", "a"]
    assert replication.read_names(head, 0b0110, 1)[:2] == ["c", "b"]
    for mask in range(16):
        assert sorted(replication.read_names(head, mask)) == ["a", "b", "c", "d"]


def test_moving_replicas_never_reduces_the_number_of_copies() -> None:
    head = head_of("ab")

    moving = replication.reassigned(head, ["c", "b"])
    assert (moving.zones, moving.replicas, moving.isr) == (("a", "b", "c"), (2, 1, 0), 0b011)
    assert replication.is_reassigning(moving, 2)
    assert replication.is_under_replicated(moving, 2)
    assert replication.reassigned(moving, ["c", "b"]) is moving
    assert replication.settled(moving, 2) is moving

    moved = replication.settled(replication.with_zone(moving, 2, NOTHING), 2)
    assert (moved.replicas, moved.isr, moved.zones) == ((2, 1), 0b110, ("a", "b", "c"))
    assert not replication.is_reassigning(moved, 2)
    assert not replication.is_under_replicated(moved, 2)
    assert replication.settled(moved, 2) is moved
    assert moved.leader_epoch > moving.leader_epoch > head.leader_epoch


def test_a_replica_with_the_only_copy_of_an_object_does_not_leave() -> None:
    head = with_run(head_of("ab"), b"x" * 16, 0b01, {0: 1})
    moving = replication.reassigned(head, ["b"])
    assert replication.settled(moving, 1) is moving

    copied = replication.with_copies(moving, {b"x" * 16: 0b10})

    assert copied.runs[0].zones == 0b11
    assert replication.settled(copied, 1).replicas == (1,)
    assert replication.with_copies(copied, {b"x" * 16: 0b10}) is copied


def test_an_unclean_election_reports_unreachable_offsets_and_keeps_all_runs() -> None:
    head = replication.without_zones(head_of(partitions=2), 0b110)
    head = with_run(head, b"x" * 16, 0b011, {0: 2, 1: 1})
    for name in (b"y", b"z"):
        head = with_run(head, name * 16, 0b001, {0: 3})
    assert not replication.is_offline(head, 0b001)
    assert replication.is_offline(head, 0b110)

    elected = replication.elected(head, 0b110)

    assert (elected.isr, elected.leader_epoch) == (0b010, head.leader_epoch + 1)
    assert replication.lost(head, 0b110) == [Lost(0, 2, 8)]
    assert replication.lost(head, 0b100) == [Lost(0, 0, 8), Lost(1, 0, 1)]
    assert replication.lost(head, 0b001) == []
    assert elected.next_offsets == head.next_offsets
    assert elected.runs == head.runs
    with pytest.raises(NotEnoughReplicas):
        replication.elected(head, 0)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("fail"), st.integers(0, 15)),
        st.tuples(st.just("heal"), st.integers(0, 3)),
        st.tuples(st.just("move"), st.permutations("abcd").map(lambda names: names[:2])),
        st.tuples(st.just("settle"), st.none()),
        st.tuples(st.just("append"), st.none()),
    ),
    max_size=30,
)


@given(STEPS)
def test_after_any_history_leaders_are_in_sync_and_epochs_only_rise(
    steps: "list[tuple[str, object]]",
) -> None:
    head = head_of("ab", partitions=3)
    for number, (step, argument) in enumerate(steps):
        new = head
        match step, argument:
            case "fail", int(mask):
                if head.isr & ~mask:
                    new = replication.without_zones(head, mask)
            case "heal", int(zone):
                everything = frozenset(run.object_id for run in head.runs)
                if zone in head.replicas:
                    new = replication.with_zone(
                        head, zone, VerifiedObjects(frozenset(), everything)
                    )
            case "move", list(names):
                new = replication.reassigned(head, names)
            case "settle", _:
                new = replication.settled(head, 2)
            case "append", _:
                new = with_run(head, bytes([number]) * 16, head.isr, {0: 1})
        assert new.isr
        assert not new.isr & ~replication.replica_zones(new)
        assert all(n is not None and new.isr >> n & 1 for n in replication.leaders(new))
        assert new is head or new.commits > head.commits
        assert new.leader_epoch >= head.leader_epoch
        if replication.leaders(new) != replication.leaders(head):
            assert new.leader_epoch > head.leader_epoch
        assert new.zones[: len(head.zones)] == head.zones
        assert heads.decode(heads.encode(new)) == new
        head = new
