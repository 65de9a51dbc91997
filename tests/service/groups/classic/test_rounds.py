"""Rounds of a classic group, case by case as Kafka has them."""

import pytest

from service.groups.classic import rounds
from service.groups.classic.rounds import GONE_KEPT_MAX, Claimant
from service.groups.classic.shape import Classic, Phase
from service.groups.state import Group, Member, decode, encode
from storage.errors import (
    GroupFull,
    IllegalGeneration,
    InconsistentGroup,
    InstanceFenced,
    RebalanceInProgress,
    UnknownMember,
)
from tests.service.groups.classic.makers import (
    again,
    assign,
    classic,
    joining,
    me,
    met,
    stable,
)

HANDED_OUT = rounds.new_id("app", bytes(16))


def test_who_comes_first_leads_and_assigns() -> None:
    group = rounds.join(Group(), joining("a"))

    reply = rounds.joined(group, "a")
    assert reply is not None
    assert (reply.generation, reply.leader, reply.protocol) == (1, "a", "range")
    assert reply.members == [("a", None, b"a range")]
    assert group.state == "CompletingRebalance"
    assert rounds.synced(group, me(group, "a")) is None

    group = assign(group)
    assert group.state == "Stable"
    assert rounds.synced(group, me(group, "a")) == b"a"


def test_an_empty_group_may_wait_for_more_members() -> None:
    group = rounds.join(Group(), joining("a"), waits=True)
    group = rounds.join(group, joining("b"), waits=True)
    assert rounds.joined(group, "a") is rounds.joined(group, "b") is None

    group = rounds.complete(group, 1)

    follower, leader = rounds.joined(group, "b"), rounds.joined(group, "a")
    assert follower is not None
    assert leader is not None
    assert (follower.leader, follower.members) == ("a", ())
    assert [member_id for member_id, _, _ in leader.members] == ["a", "b"]


def test_a_new_member_makes_the_others_join_again() -> None:
    group = stable("a", "b")

    group = rounds.join(group, joining("c"))

    assert group.state == "PreparingRebalance"
    with pytest.raises(RebalanceInProgress):
        rounds.check_current(group, me(group, "a"))
    group = rounds.join(group, again("b"))
    assert rounds.joined(group, "b") is None
    group = rounds.join(group, again("a"))
    reply = rounds.joined(group, "a")
    assert reply is not None
    assert (reply.generation, reply.leader) == (2, "a")


def test_a_round_ends_without_those_who_are_late() -> None:
    group = rounds.join(stable("a", "b"), joining("c"))

    group = rounds.complete(group, 2)

    assert list(group.members) == ["c"]
    assert (group.generation, classic(group).leader) == (2, "c")
    with pytest.raises(UnknownMember):
        rounds.join(group, again("a"))


def test_only_the_round_that_took_too_long_is_ended() -> None:
    group = rounds.join(stable("a", "b"), joining("c"))
    assert rounds.complete(group, 1) is group
    assert rounds.complete(group, 3) is group
    settled = stable("a")
    assert rounds.complete(settled, 2) is settled


def test_a_round_that_nobody_has_joined_goes_on() -> None:
    group = rounds.join(stable("a"), joining("s", instance_id="one"))
    group = rounds.join(group, again("a"))
    group = rounds.leave(assign(group), ["a"])
    assert (group.state, list(group.members)) == ("PreparingRebalance", ["s"])

    late = rounds.complete(group, 3)

    assert (late.state, list(late.members), late.generation) == ("PreparingRebalance", ["s"], 2)


def test_a_lost_reply_does_not_begin_another_round() -> None:
    waiting = rounds.join(stable("a", "b"), joining("c"))
    assert rounds.join(waiting, joining("c")) is waiting
    assert rounds.join(waiting, again("c")) is waiting
    ready = met("a", "b")
    assert rounds.join(ready, again("b")) is ready
    assert rounds.join(ready, again("a")) is ready
    settled = stable("a", "b")
    assert rounds.join(settled, again("b")) is settled


def test_the_leader_may_ask_for_another_round_and_others_if_they_have_news() -> None:
    settled = stable("a", "b")
    assert rounds.join(settled, again("a")).state == "PreparingRebalance"
    assert rounds.join(settled, again("b", metadata=b"news")).state == "PreparingRebalance"
    ready = met("a", "b")
    assert rounds.join(ready, again("b", metadata=b"news")).state == "PreparingRebalance"


def test_the_protocol_is_one_that_all_offer_and_most_like() -> None:
    group = rounds.join(Group(), joining("a", "x", "y", "z"), waits=True)
    group = rounds.join(group, joining("b", "z", "y"), waits=True)
    group = rounds.join(group, joining("c", "z", "y", "x"), waits=True)

    group = rounds.complete(group, 1)

    assert classic(group).protocol == "z"
    reply = rounds.joined(group, "a")
    assert reply is not None
    assert [data for _, _, data in reply.members] == [b"a z", b"b z", b"c z"]


def test_members_need_a_protocol_in_common() -> None:
    group = stable("a")
    for wrong in (
        joining("b", "other"),
        joining("b", protocol_type="connect"),
        joining("b", protocol_type=""),
        again("unknown", "other"),
    ):
        with pytest.raises(InconsistentGroup):
            rounds.join(group, wrong)
    # Who is alone agrees with itself.
    assert classic(rounds.join(group, again("a", "other"))).protocol == "other"


def test_a_group_with_native_members_has_no_place_for_classic_ones() -> None:
    group = Group(members={"h": Member(topics=("t",), session_timeout_ms=1)})
    with pytest.raises(InconsistentGroup):
        rounds.join(group, joining("a"))


def test_an_id_that_was_handed_out_is_good_until_its_member_is_gone() -> None:
    for unknown in ("made-up", "app-" + "0" * 31, "a/b-" + "0" * 32, "é" * 32):
        with pytest.raises(UnknownMember):
            rounds.join(stable("a"), again(unknown))
    group = rounds.join(stable("a"), again(HANDED_OUT))
    assert HANDED_OUT in group.members

    group = rounds.leave(group, [HANDED_OUT])

    with pytest.raises(UnknownMember):
        rounds.join(group, again(HANDED_OUT))


def test_ids_show_the_name_of_the_client() -> None:
    assert HANDED_OUT == "app-" + "0" * 32
    assert rounds.new_id("a b/ü", b"\1") == "a-b---01"
    assert rounds.new_id("", b"\1") == "member-01"


def test_former_members_are_forgotten_in_the_end() -> None:
    group = stable("a")
    for number in range(GONE_KEPT_MAX + 5):
        group = rounds.leave(rounds.join(group, joining(f"m{number}")), [f"m{number}"])
    assert len(classic(group).gone) == GONE_KEPT_MAX
    assert classic(group).gone[-1] == f"m{GONE_KEPT_MAX + 4}"


def test_only_the_leader_assigns_and_only_once() -> None:
    group = met("a", "b")
    shares = {"a": b"1", "b": b"2", "stranger": b"3"}
    assert rounds.sync(group, me(group, "b"), None, None, shares) is group

    group = rounds.sync(group, me(group, "a"), "consumer", "range", {"a": b"1"})

    assert rounds.synced(group, me(group, "a")) == b"1"
    assert rounds.synced(group, me(group, "b")) == b""
    assert rounds.sync(group, me(group, "a"), None, None, shares) is group


def test_what_sync_refuses() -> None:
    group = met("a", "b")
    old = Claimant(member_id="a", generation=0)
    with pytest.raises(IllegalGeneration):
        rounds.sync(group, old, None, None, {})
    with pytest.raises(UnknownMember):
        rounds.sync(group, me(group, "c"), None, None, {})
    with pytest.raises(InconsistentGroup):
        rounds.sync(group, me(group, "a"), "connect", None, {})
    with pytest.raises(InconsistentGroup):
        rounds.sync(group, me(group, "a"), None, "sticky", {})
    joined = rounds.join(stable("a"), joining("c"))
    with pytest.raises(RebalanceInProgress):
        rounds.sync(joined, me(joined, "a"), None, None, {})


def test_a_leader_that_assigns_nothing_is_dropped() -> None:
    group = met("a", "b")
    assert rounds.drop_leader(group, 2) is group
    settled = stable("a", "b")
    assert rounds.drop_leader(settled, 1) is settled

    group = rounds.drop_leader(group, 1)

    assert (list(group.members), group.state) == (["b"], "PreparingRebalance")
    with pytest.raises(RebalanceInProgress):
        rounds.synced(group, me(group, "b"))


def test_who_leaves_last_leaves_an_empty_group_of_the_next_generation() -> None:
    group = rounds.leave(stable("a", "b"), ["a", "b", "stranger"])

    assert (group.state, group.generation, group.members) == ("Empty", 2, {})
    assert (classic(group).members, classic(group).leader) == ({}, "")
    assert rounds.leave(group, ["a"]) is group

    group = rounds.join(group, joining("c", "other", protocol_type="connect"))
    assert (group.generation, classic(group).protocol_type) == (3, "connect")


def test_a_round_ends_when_the_one_that_it_waits_for_leaves() -> None:
    group = rounds.join(stable("a", "b"), joining("c"))
    group = rounds.join(group, again("b"))

    group = rounds.leave(group, ["a"])

    assert (group.state, list(group.members)) == ("CompletingRebalance", ["b", "c"])
    assert classic(group).leader == "b"


def with_static(*more: str) -> Group:
    """Return a stable group led by a static member."""
    group = rounds.join(Group(), joining("s1", "x", "y", instance_id="one"), waits=True)
    for member_id in more:
        group = rounds.join(group, joining(member_id, "x", "y"), waits=True)
    return assign(rounds.complete(group, 1))


def test_a_static_member_that_comes_back_disturbs_nobody() -> None:
    group = with_static("b")

    group = rounds.join(group, joining("s2", "x", "y", instance_id="one", metadata=b"new"))

    assert (group.state, group.generation, list(group.members)) == ("Stable", 1, ["b", "s2"])
    reply = rounds.joined(group, "s2")
    assert reply is not None
    assert (reply.leader, reply.is_assigned) == ("s2", True)
    assert rounds.synced(group, me(group, "s2", "one")) == b"s1"
    assert rounds.join(group, joining("s2", "x", "y", instance_id="one")) is group
    with pytest.raises(InstanceFenced):
        rounds.check_current(group, me(group, "s1", "one"))
    with pytest.raises(UnknownMember):
        rounds.check_current(group, me(group, "s1"))
    with pytest.raises(InstanceFenced):
        rounds.join(group, again("s1", "x", "y", instance_id="one"))


def test_a_static_member_that_comes_back_with_other_protocols_begins_a_round() -> None:
    group = rounds.join(with_static("b"), joining("s2", "y", instance_id="one"))
    assert (group.state, group.generation) == ("PreparingRebalance", 1)
    assert list(classic(group).members) == ["s2", "b"]


def test_a_static_member_that_comes_back_while_others_wait_begins_a_round() -> None:
    group = rounds.join(with_static("b"), again("b", "x", "y", metadata=b"news"))
    group = rounds.join(group, joining("s2", "x", "y", instance_id="one"))
    assert (group.state, group.generation) == ("CompletingRebalance", 2)

    group = rounds.join(group, joining("s3", "x", "y", instance_id="one"))

    assert group.state == "PreparingRebalance"


def test_a_static_member_that_is_late_stays_and_keeps_up_later() -> None:
    group = rounds.join(with_static("b"), joining("c", "x"))
    group = rounds.join(group, again("b", "x", "y"))

    group = assign(rounds.complete(group, 2))

    assert set(group.members) == {"s1", "b", "c"}
    assert classic(group).leader == "b"
    group = rounds.join(group, again("s1", "x", "y", instance_id="one"))
    reply = rounds.joined(group, "s1")
    assert reply is not None
    assert (group.state, reply.generation) == ("Stable", 2)


def test_a_static_member_with_an_id_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UnknownMember):
        rounds.join(stable("a"), again(HANDED_OUT, instance_id="one"))


def test_who_may_commit() -> None:
    settled, ready = stable("a"), met("a")
    meeting = rounds.join(settled, joining("b"))
    rounds.check_commit(settled, me(settled, "a"))
    rounds.check_commit(meeting, me(meeting, "a"))
    rounds.check_commit(ready, me(ready, "a"), is_transactional=True)
    with pytest.raises(RebalanceInProgress):
        rounds.check_commit(ready, me(ready, "a"))
    with pytest.raises(IllegalGeneration):
        rounds.check_commit(settled, Claimant(member_id="a", generation=9))
    with pytest.raises(UnknownMember):
        rounds.check_commit(settled, me(settled, "b"))


def test_a_group_has_a_limit_of_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MEMBERS_MAX", 2)
    with pytest.raises(GroupFull):
        rounds.join(stable("a", "b"), joining("c"))
    rounds.join(stable("a", "b"), again("a"))


def test_a_group_is_stored_and_read_back() -> None:
    group = stable("a", "b")
    assert decode(encode(group)) == group
    assert (group.kind, Group().kind) == ("classic", "native")


def test_a_group_that_grows_beyond_all_measure_is_refused() -> None:
    group = rounds.join(Group(), joining("a", metadata=bytes(9 * 1024 * 1024)))
    with pytest.raises(GroupFull):
        encode(group)
    assert Classic().phase is Phase.STABLE
