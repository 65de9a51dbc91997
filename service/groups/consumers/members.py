"""Members of Kafka's consumer protocol, over the metadata table.

They join, beat and leave by one call that gives the epoch they know:

    above 0   a heartbeat
    0         join, or join again
    -1        leave
    -2        a static member leaves for a short while

The member epoch is the generation of the group, and otherwise these members are as those that
come by HTTP. What differs: a member chooses its own id, a field that is None means "as before", a
static member does not replace one that is there, and a member that gives partitions up too slowly
is removed (`sessions.laggards`).

Kafka keeps a member in its epoch until it has given up what it must. Here it learns every
generation at once, and the partitions it holds keep others from them. So a member that names an
old epoch is not behind: this call is how it learns of the new one.

What a member reads it says only when that has changed, so the last that it said is kept in its
item. The partition that it must give up may be one that it was never told of: it was free for a
moment, between two of its heartbeats. Then nothing changes for it, and it will not speak of it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from service.groups import state
from service.groups.assignors import TopicPartition
from service.groups.beats import Beats, decode_beat, encode_beat, unknown_member
from service.groups.classic.rounds import MEMBERS_MAX
from service.groups.items import GroupItems, Known, parse_group_id
from service.groups.session_expiry import SessionExpiry
from service.groups.state import Group, Member, flat, nested
from service.world.clock import World
from storage import keys
from storage.errors import (
    GroupFull,
    InstanceFenced,
    InstanceInUse,
    MemberEpochFenced,
    MetadataConflict,
    OutcomeUnknown,
    UnknownGroup,
    UnknownMember,
)
from storage.stores.metadata import MetadataStore, Op, Put

JOINS: Final = 0
LEAVES: Final = -1
STEPS_ASIDE: Final = -2

ASSIGNORS: Final = {"uniform": "sticky", "range": "range"}
"""Kafka's names of what assigns on the server, and ours."""

UpToDate = Callable[[str, Known, Group], Awaitable[Group]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a member says; None: as before."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int | None = None
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    """Empty: no pattern any more."""
    assignor: str | None = None
    """By our name."""
    owned: Sequence[TopicPartition] | None = None
    session_timeout_ms: int
    client: str = ""
    host: str = ""
    name_prefix: str = ""


class ConsumerMembers:
    def __init__(
        self,
        metadata: MetadataStore,
        items: GroupItems,
        session_expiry: SessionExpiry,
        beats: Beats,
        up_to_date: UpToDate,
        world: World,
    ) -> None:
        self._metadata = metadata
        self._items = items
        self._session_expiry = session_expiry
        self._beats = beats
        self._up_to_date = up_to_date
        self._world = world

    async def heed(self, group_id: str, said: Said) -> Group:
        """Do what the member says, and return the group in which it is, or was, a member.

        Raises `UnknownMember` or a child of it if it must join again, with nothing in its hands.
        """
        parse_group_id(group_id)
        if said.epoch == JOINS:
            return await self._join(group_id, said)
        if said.epoch < JOINS:
            return await self._leave(group_id, said)
        return await self._beat(group_id, said)

    async def _join(self, group_id: str, said: Said) -> Group:
        member_id = said.member_id
        key = keys.member(group_id, member_id)

        async def change(known: Known, _: bool) -> Group:
            group = _native(group_id, known.group)
            former = state.static_member(group, said.instance_id)
            _check_instance(group, former, said)
            existing = await self._items.existing(0)
            if member_id in group.members:
                new = state.update(
                    group, member_id, _updated(group.members[member_id], said), existing
                )
                new = await self._up_to_date(group_id, known, new)
            elif len(group.members) >= MEMBERS_MAX and former is None:
                raise GroupFull(f"group {group_id!r} has {MEMBERS_MAX} members: the limit")
            else:
                begun = _with_assignor(group, former, said)
                new = state.join(begun, member_id, _updated(_newcomer(said), said), existing)
            mine = await self._metadata.get(key)
            ops: list[Op] = await self._items.removals(
                group_id, set(group.members) - set(new.members)
            )
            beat = encode_beat(0, new.generation, {})
            ops.append(Put(key, beat, None if mine is None else mine.version))
            await self._items.write(group_id, known, new, ops)
            return new

        await self._session_expiry.look(group_id)
        return await self._items.changing(group_id, change)

    async def _beat(self, group_id: str, said: Said) -> Group:
        member_id = said.member_id
        key, watch_key = keys.member(group_id, member_id), keys.group_watch(group_id)
        items = await self._metadata.get_many([keys.group(group_id), key, watch_key])
        known = self._items.known(group_id, items.get(keys.group(group_id)))
        member = _checked(group_id, known.group, said)
        mine = items.get(key)
        if mine is None:
            raise unknown_member(group_id, member_id)
        session_ms = member.session_timeout_ms
        owned = None if said.owned is None else nested(said.owned)
        await self._beats.store(
            group_id, member_id, mine, said.epoch, session_ms=session_ms, owned=owned
        )
        if owned is None:
            owned = decode_beat(mine.value).owned
        is_due = self._session_expiry.is_due(group_id, known.group, items.get(watch_key))
        if is_due and await self._session_expiry.look(group_id):
            known = await self._items.read(group_id)

        async def change(known: Known, _: bool) -> Group:
            group = known.group
            member = _checked(group_id, group, said)
            new = group
            if owned is not None:
                new = state.release(new, member_id, flat(owned), said.epoch)
            updated = _updated(member, said)
            if updated != member:
                new = state.update(new, member_id, updated, await self._items.existing(0))
            new = await self._up_to_date(group_id, known, new)
            if new is not group:
                await self._items.write(group_id, known, new, [])
            return new

        try:
            return await change(known, False)
        except (MetadataConflict, OutcomeUnknown):
            return await self._items.changing(group_id, change)

    async def _leave(self, group_id: str, said: Said) -> Group:
        """End the session; a static member's goes on when it only steps aside."""
        asked = False

        async def change(known: Known, _: bool) -> Group:
            nonlocal asked
            group = known.group
            if known.version is None:
                raise UnknownGroup(f"there is no group {group_id!r}")
            if asked and said.member_id not in group.members:
                return group  # An earlier attempt did it; its reply was lost.
            member = _member(group_id, group, said)
            asked = True
            if said.epoch == STEPS_ASIDE:
                new = group if member.is_away else state.set_aside(group, said.member_id)
                if new is not group:
                    await self._items.write(group_id, known, new, [])
                return new
            new = state.leave(group, [said.member_id], await self._items.existing(0))
            ops = await self._items.removals(group_id, {said.member_id})
            await self._items.write(group_id, known, new, ops)
            return new

        return await self._items.changing(group_id, change)


def _native(group_id: str, group: Group) -> Group:
    """Return the group as a native one; an empty one becomes that."""
    if group.classic is None:
        return group
    if group.members:
        raise UnknownGroup(f"group {group_id!r} is not a consumer group, but a classic one")
    return replace(group, classic=None)


def _member(group_id: str, group: Group, said: Said) -> Member:
    """Return the member that speaks, or raise: it is not there, or another has its instance."""
    member = group.members.get(said.member_id)
    if member is None and state.static_member(group, said.instance_id) is not None:
        raise InstanceFenced(
            f"another member of group {group_id!r} has the instance id {said.instance_id!r}"
        )
    if member is None or member.protocol != "consumer":
        raise unknown_member(group_id, said.member_id)
    if said.instance_id is not None and said.instance_id != member.instance_id:
        raise unknown_member(group_id, said.member_id)
    return member


def _checked(group_id: str, group: Group, said: Said) -> Member:
    """Return the member that beats, or raise: it must join again."""
    member = _member(group_id, group, said)
    if member.is_away:
        raise MemberEpochFenced(f"member {said.member_id!r} has left for a while; join again")
    if said.epoch > group.generation:
        raise MemberEpochFenced(
            f"epoch {said.epoch} is not there yet, group {group_id!r} is at {group.generation};"
            " join again"
        )
    return member


def _check_instance(group: Group, former: str | None, said: Said) -> None:
    if said.member_id in group.members:
        member = group.members[said.member_id]
        if member.protocol != "consumer" or former not in {None, said.member_id}:
            raise UnknownMember(f"{said.member_id!r} is the id of another member; use a new one")
    elif former is not None and not group.members[former].is_away:
        raise InstanceInUse(
            f"the instance id {said.instance_id!r} is that of member {former!r}, which is there;"
            " it must leave first, or its session expire"
        )


def _with_assignor(group: Group, former: str | None, said: Said) -> Group:
    """Return the group with the member's assignor if nobody else is there to have chosen one."""
    if said.assignor is None or set(group.members) - {former}:
        return group
    return replace(group, assignor=said.assignor)


def _newcomer(said: Said) -> Member:
    return Member(
        instance_id=said.instance_id,
        session_timeout_ms=said.session_timeout_ms,
        client=said.client,
        host=said.host,
        protocol="consumer",
    )


def _updated(member: Member, said: Said) -> Member:
    """Return the member with what it says now."""
    pattern = member.pattern if said.pattern is None else said.pattern or None
    timeout_ms = said.rebalance_timeout_ms
    return replace(
        member,
        topics=member.topics if said.topics is None else said.topics,
        pattern=pattern,
        name_prefix=said.name_prefix if pattern is not None else "",
        rack=member.rack if said.rack is None else said.rack,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms is None else timeout_ms,
        is_away=False,
    )
