"""Transitions of a classic group, with Kafka's meaning of every case. Pure.

A transition returns the group after it, the same object if nothing changes, or raises the error
that refuses it. It can be applied again to what it has made, so a write whose reply was lost is
simply repeated.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from service.groups.classic.shape import Classic, ClassicMember, Phase
from service.groups.state import Group, Member, static_member
from storage.errors import (
    GroupFull,
    IllegalGeneration,
    InconsistentGroup,
    InstanceFenced,
    RebalanceInProgress,
    UnknownMember,
)

MEMBERS_MAX: Final = 1_000

GONE_KEPT_MAX: Final = 64
"""Maximum number of former members that cannot join again under their old id. Older ones can, as
new members: they own nothing then, and what they commit as old ones is refused in any case."""

_HANDED_OUT: Final = re.compile(r"[a-zA-Z0-9._-]+-[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """What a member says when it joins."""

    member_id: str
    """Its own, one that was handed out to it, or for a new member one that nobody else has."""
    is_new: bool = False
    """Whether the caller had no id."""
    instance_id: str | None = None
    client: str = ""
    host: str = ""
    name_prefix: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]

    def member(self) -> Member:
        return Member(
            instance_id=self.instance_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            client=self.client,
            host=self.host,
            name_prefix=self.name_prefix,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """Who a member says that it is."""

    member_id: str
    instance_id: str | None = None
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The reply to a member that has joined a generation."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: Sequence[tuple[str, str | None, bytes]] = ()
    """For the leader: id, instance id and metadata of everyone."""
    is_assigned: bool = False
    """Whether the shares of this generation are known: a leader that hears of it now has none to
    make, and would bring them in vain."""


def new_id(name: str, chance: bytes) -> str:
    """Return an id for a new member: it shows the name, and that a gateway handed it out."""
    return f"{re.sub(r'[^a-zA-Z0-9._-]', '-', name)[:64] or 'member'}-{chance.hex()}"


# Joining


def join(group: Group, joining: Joining, *, waits: bool = False) -> Group:
    """Return the group with the member in its present round, or in the next one.

    A member that offers what it offered before does not begin a round, unless it leads. With
    `waits` the first round of an empty group does not end by itself when all have joined.
    """
    check_fits(group, joining)
    if joining.member_id in group.members:
        if joining.is_new:
            return group  # An earlier attempt did it; its reply was lost.
        check_member(group, joining.member_id, joining.instance_id)
        return _join_again(group, joining)
    former = static_member(group, joining.instance_id)
    if not joining.is_new:
        _check_handed_out(group, joining)
    elif former is not None:
        return _replace_instance(group, former, joining)
    if len(group.members) >= MEMBERS_MAX:
        raise GroupFull(f"the group has {MEMBERS_MAX} members, which is the limit")
    classic = _classic(group)
    if not group.members:
        classic = replace(
            classic, protocol_type=joining.protocol_type, leader=joining.member_id, is_first=waits
        )
    added = _placed(replace(group, classic=classic), joining, classic.members.keys())
    return _next_round(added, [joining.member_id])


def check_fits(group: Group, joining: Joining) -> None:
    """Raise `InconsistentGroup` unless the member and all others have a protocol in common."""
    if not joining.protocol_type or not joining.protocols:
        raise InconsistentGroup("a member gives a protocol type and at least one protocol")
    if group.classic is None:
        if group.members:
            raise InconsistentGroup(
                "the group has members that speak another protocol (consumers of the newer"
                " protocol, or of HTTP); stop them first, or use another group"
            )
        return
    former = static_member(group, joining.instance_id)
    others = [
        {name for name, _ in known.protocols}
        for member_id, known in group.classic.members.items()
        if member_id not in (joining.member_id, former)
    ]
    if not others:
        return
    if joining.protocol_type != group.classic.protocol_type:
        raise InconsistentGroup(
            f"the members of the group are of type {group.classic.protocol_type!r}, not of"
            f" {joining.protocol_type!r}"
        )
    if not any(all(name in each for each in others) for name, _ in joining.protocols):
        raise InconsistentGroup("the members of the group have no protocol in common with this one")


def _check_handed_out(group: Group, joining: Joining) -> None:
    """Raise unless a member that is not in the group may join it under the id that it gives."""
    if joining.instance_id is not None:
        # Static members are never told to join with an id.
        check_member(group, joining.member_id, joining.instance_id)
    gone = () if group.classic is None else group.classic.gone
    if joining.member_id in gone or _HANDED_OUT.fullmatch(joining.member_id) is None:
        raise unknown(joining.member_id)


def _join_again(group: Group, joining: Joining) -> Group:
    classic = _classic(group)
    mine = classic.members[joining.member_id]
    moved = _placed(group, joining, classic.members.keys())
    if classic.phase is Phase.JOINING:
        if mine.joined > group.generation and moved.classic == classic:
            return group
        return _next_round(moved, [joining.member_id])
    is_settled = classic.phase is Phase.SYNCING or classic.leader != joining.member_id
    if is_settled and mine.protocols == joining.protocols:
        # It did not get the reply, or has no news: the generation stands.
        if mine.joined == group.generation:
            return group
        return _marked(moved, [joining.member_id], group.generation)
    return _next_round(moved, [joining.member_id])


def _replace_instance(group: Group, former: str, joining: Joining) -> Group:
    """Return the group in which a restarted static member has the place of its former instance."""
    classic = _classic(group)
    order = [joining.member_id if m == former else m for m in classic.members]
    renamed = _renamed(group, former, joining.member_id)
    moved = _placed(renamed, joining, order)
    is_stable = classic.phase is Phase.STABLE
    if is_stable and _vote(_classic(moved).members) == classic.protocol:
        # Nobody else has to know. It fetches the assignment that it had.
        return _marked(moved, [joining.member_id], group.generation)
    return _next_round(moved, [joining.member_id])


def _next_round(group: Group, joined: Collection[str]) -> Group:
    """Return the group in which these members have joined the next generation.

    That begins a round if there is none, and ends it if they were the last.
    """
    classic = _classic(group)
    if classic.phase is not Phase.JOINING:
        group = replace(group, classic=replace(classic, phase=Phase.JOINING))
    return _ended(_marked(group, joined, group.generation + 1))


def _ended(group: Group) -> Group:
    """Return the group after its round, if all members have joined it."""
    classic = _classic(group)
    is_over = classic.phase is Phase.JOINING and not classic.is_first
    if is_over and all(m.joined > group.generation for m in classic.members.values()):
        return complete(group, group.generation + 1)
    return group


def complete(group: Group, generation: int) -> Group:
    """Return the group after the round that makes `generation`, without those who are late.

    Static members stay, also if they are late. If nobody at all has joined, the round goes on.
    """
    classic = group.classic
    if classic is None or classic.phase is not Phase.JOINING or generation != group.generation + 1:
        return group
    late = [m for m, known in classic.members.items() if known.joined != generation]
    group = _without(group, [m for m in late if group.members[m].instance_id is None])
    classic = _classic(group)
    joined = [m for m, known in classic.members.items() if known.joined == generation]
    if not joined:
        return replace(group, classic=replace(classic, is_first=False))
    return replace(
        group,
        generation=generation,
        classic=replace(
            classic,
            phase=Phase.SYNCING,
            is_first=False,
            leader=classic.leader if classic.leader in joined else joined[0],
            protocol=_vote(classic.members),
            members={m: replace(known, assignment=b"") for m, known in classic.members.items()},
        ),
    )


def has_joined(group: Group, member_id: str) -> bool:
    """Whether the member is part of the round that is going on."""
    return _classic(group).members[member_id].joined > group.generation


def joined(group: Group, member_id: str) -> Joined | None:
    """Return the reply to a member that has joined; None: the round goes on."""
    classic = _classic(group)
    if classic.phase is Phase.JOINING or classic.members[member_id].joined != group.generation:
        return None
    everyone = [
        (m, group.members[m].instance_id, known.metadata(classic.protocol))
        for m, known in classic.members.items()
    ]
    return Joined(
        member_id=member_id,
        generation=group.generation,
        protocol_type=classic.protocol_type,
        protocol=classic.protocol,
        leader=classic.leader,
        members=everyone if member_id == classic.leader else (),
        is_assigned=classic.phase is Phase.STABLE,
    )


# After joining


def sync(
    group: Group,
    claimant: Claimant,
    protocol_type: str | None,
    protocol: str | None,
    assignments: Mapping[str, bytes],
) -> Group:
    """Return the group with the assignments that its leader brings; others bring none."""
    check_current(group, claimant)
    classic = _classic(group)
    for given, ours in [(protocol_type, classic.protocol_type), (protocol, classic.protocol)]:
        if given is not None and given != ours:
            raise InconsistentGroup(f"the group has agreed on {ours!r}, not on {given!r}")
    if classic.phase is not Phase.SYNCING or classic.leader != claimant.member_id:
        return group
    members = {
        m: replace(known, assignment=assignments.get(m, b""))
        for m, known in classic.members.items()
    }
    return replace(group, classic=replace(classic, phase=Phase.STABLE, members=members))


def synced(group: Group, claimant: Claimant) -> bytes | None:
    """Return what the member is assigned; None: the leader has not brought it yet."""
    check_current(group, claimant)
    classic = _classic(group)
    return classic.members[claimant.member_id].assignment if classic.phase is Phase.STABLE else None


def drop_leader(group: Group, generation: int) -> Group:
    """Return the group without its leader, if that has brought no assignments."""
    classic = group.classic
    if classic is None or classic.phase is not Phase.SYNCING or generation != group.generation:
        return group
    return leave(group, [classic.leader])


def leave(group: Group, gone: Collection[str]) -> Group:
    """Return the group without these members; those who remain meet in a new round."""
    gone = [m for m in gone if m in group.members]
    if not gone:
        return group
    smaller = _without(group, gone)
    return _next_round(smaller, ()) if smaller.members else smaller


# Checks


def check_member(group: Group, member_id: str, instance_id: str | None) -> None:
    """Raise unless the member is in the group, and is the last one with its instance id."""
    if instance_id is not None:
        current = static_member(group, instance_id)
        if current is None:
            raise unknown(member_id)
        if current != member_id:
            raise InstanceFenced(
                f"another member has taken the instance id {instance_id[:300]!r}; stop one of them"
            )
    if group.classic is None or member_id not in group.members:
        raise unknown(member_id)


def found(group: Group, member_id: str, instance_id: str | None) -> str:
    """Return the id of a member that is named by it, by its instance id or by both, or raise."""
    if not member_id and instance_id is not None and group.classic is not None:
        member_id = static_member(group, instance_id) or ""
    check_member(group, member_id, instance_id)
    return member_id


def check_generation(group: Group, claimant: Claimant) -> None:
    check_member(group, claimant.member_id, claimant.instance_id)
    if claimant.generation != group.generation:
        raise IllegalGeneration(
            f"generation {claimant.generation} is not the current one, which is"
            f" {group.generation}; join again"
        )


def check_current(group: Group, claimant: Claimant) -> None:
    """Raise unless the member knows the current generation, and no round is going on."""
    check_generation(group, claimant)
    if _classic(group).phase is Phase.JOINING:
        raise RebalanceInProgress("the members of the group meet; join again")


def check_commit(group: Group, claimant: Claimant, *, is_transactional: bool = False) -> None:
    """Raise unless the member may commit offsets now.

    It may while a round is joined: what it has read until then counts. It may not before it knows
    its share of the new generation, except for what it has read and written in a transaction.
    """
    check_generation(group, claimant)
    if _classic(group).phase is Phase.SYNCING and not is_transactional:
        raise RebalanceInProgress("the group is about to assign; fetch the assignment first")


def unknown(member_id: str) -> UnknownMember:
    return UnknownMember(
        f"the group has no member {member_id[:300]!r}: its session ended or it left; join again"
    )


# Parts


def _classic(group: Group) -> Classic:
    return group.classic or Classic()


def _placed(group: Group, joining: Joining, order: Collection[str]) -> Group:
    """Return the group with the member as it describes itself, in this order of joining."""
    classic = _classic(group)
    known = classic.members.get(joining.member_id, ClassicMember())
    ours = {**classic.members, joining.member_id: replace(known, protocols=joining.protocols)}
    order = dict.fromkeys([*order, joining.member_id])
    return replace(
        group,
        members={**group.members, joining.member_id: joining.member()},
        classic=replace(classic, members={m: ours[m] for m in order}),
    )


def _marked(group: Group, joined: Collection[str], generation: int) -> Group:
    """Return the group in which these members have joined `generation`."""
    classic = _classic(group)
    marked = {m: replace(classic.members[m], joined=generation) for m in joined}
    return replace(group, classic=replace(classic, members={**classic.members, **marked}))


def _renamed(group: Group, former: str, member_id: str) -> Group:
    classic = _classic(group)
    ours = {member_id if m == former else m: known for m, known in classic.members.items()}
    members = {m: member for m, member in group.members.items() if m != former}
    leader = member_id if classic.leader == former else classic.leader
    return replace(
        group,
        members=members,
        classic=replace(classic, members=ours, leader=leader, gone=_gone(classic, [former])),
    )


def _without(group: Group, gone: Collection[str]) -> Group:
    """Return the group without these members; if nobody is left, in the next generation."""
    if not gone:
        return group
    classic = _classic(group)
    ours = {m: known for m, known in classic.members.items() if m not in gone}
    leader = classic.leader if classic.leader in ours else next(iter(ours), "")
    smaller = replace(classic, members=ours, leader=leader, gone=_gone(classic, gone))
    members = {m: member for m, member in group.members.items() if m not in gone}
    if members:
        return replace(group, members=members, classic=smaller)
    return replace(
        group,
        generation=group.generation + 1,
        members={},
        classic=replace(smaller, phase=Phase.STABLE, protocol="", is_first=False),
    )


def _gone(classic: Classic, more: Collection[str]) -> tuple[str, ...]:
    return (*classic.gone, *more)[-GONE_KEPT_MAX:]


def _vote(members: Mapping[str, ClassicMember]) -> str:
    """Return the protocol that most members like best, among those that all of them offer."""
    offers = [[name for name, _ in known.protocols] for known in members.values()]
    shared = set(offers[0]).intersection(*offers[1:])
    votes = Counter(next(name for name in offer if name in shared) for offer in offers)
    # Of equally many votes those of who came first count.
    return votes.most_common(1)[0][0]
