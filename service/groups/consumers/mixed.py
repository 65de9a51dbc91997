"""Consumers of Kafka's classic protocol as members of native groups.

A classic consumer asks to meet the others, and one of them assigns. In a native group nobody meets
and the group assigns, so its calls are answered at once, and none of them leads:

    JoinGroup   says what the member has stopped reading; the reply is a generation, and no leader
    SyncGroup   the partitions that the member was given when it joined
    Heartbeat   REBALANCE_IN_PROGRESS as soon as it should be given others: it joins again

A consumer that assigns *eagerly* stops reading before it joins. One that does so cooperatively
goes on, tells what it reads, and joins once more when it has stopped reading what it was not given
again. The group can do so only for consumers with Kafka's own assignors, whose meaning it knows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as changed
from typing import Final

from msgspec.structs import replace

from service.groups import state
from service.groups.assignors import TopicPartition
from service.groups.beats import Beats, encode_beat, unknown_member
from service.groups.classic import consumers
from service.groups.classic.coordinator import ClassicGroups, IdRequired, Leaving, Synced
from service.groups.classic.rounds import MEMBERS_MAX, Claimant, Joined, Joining, new_id
from service.groups.consumers.members import UpToDate
from service.groups.items import GroupItems, Known
from service.groups.session_expiry import SessionExpiry
from service.groups.state import Group, Member, nested
from service.world.clock import World
from storage import keys
from storage.errors import (
    GroupFull,
    IllegalGeneration,
    InconsistentGroup,
    InstanceFenced,
    MetadataConflict,
    OutcomeUnknown,
    RebalanceInProgress,
    Rejected,
    RiachoError,
)
from storage.stores.metadata import MetadataStore, Op, Put

COOPERATIVE: Final = "cooperative-sticky"

ASSIGNORS: Final = frozenset({"range", "roundrobin", "sticky", COOPERATIVE})
"""What Kafka's consumers bring along. The group assigns by its own assignor instead."""


def is_mixed(group: Group) -> bool:
    """Whether classic consumers join this group as members of a native one."""
    return group.classic is None and bool(group.members)


class ClassicCalls:
    """The calls of the classic protocol, whatever kind of group they are for."""

    def __init__(self, classic: ClassicGroups, mixed: "MixedGroups", items: GroupItems) -> None:
        self._classic = classic
        self._mixed = mixed
        self._items = items

    async def join(
        self,
        group_id: str,
        joining: Joining,
        *,
        needs_id: bool = True,
        stop: Callable[[], None] = lambda: None,
    ) -> Joined | IdRequired:
        """Join the group; wait for the others only if they wait for each other."""
        try:
            return await self._classic.join(group_id, joining, needs_id=needs_id, stop=stop)
        except InconsistentGroup:
            if not await self._is_mixed(group_id):
                raise
            reply = await self._mixed.join(group_id, joining, needs_id=needs_id)
            if reply is None:
                raise
            return reply

    async def sync(
        self,
        group_id: str,
        claimant: Claimant,
        assignments: Mapping[str, bytes],
        *,
        protocol_type: str | None = None,
        protocol: str | None = None,
        stop: Callable[[], None] = lambda: None,
    ) -> Synced:
        """Return what the member is assigned."""
        try:
            return await self._classic.sync(
                group_id,
                claimant,
                assignments,
                protocol_type=protocol_type,
                protocol=protocol,
                stop=stop,
            )
        except RiachoError:
            if not await self._is_mixed(group_id):
                raise
        return Synced(
            protocol_type=consumers.PROTOCOL_TYPE,
            protocol=protocol or "",
            assignment=await self._mixed.sync(group_id, claimant),
        )

    async def heartbeat(self, group_id: str, claimant: Claimant) -> None:
        """Keep the session alive; raise if the member should know of something."""
        try:
            await self._classic.heartbeat(group_id, claimant)
        except RiachoError:
            if not await self._is_mixed(group_id):
                raise
            await self._mixed.heartbeat(group_id, claimant)

    async def leave(
        self, group_id: str, leaving: Sequence[Leaving]
    ) -> list[tuple[Leaving, RiachoError | None]]:
        """End the sessions of these members now; return the error of each that is not one."""
        left = await self._classic.leave(group_id, leaving)
        if not any(error for _, error in left) or not await self._is_mixed(group_id):
            return left
        return [(one, await self._mixed.leave(group_id, one)) for one in leaving]

    async def _is_mixed(self, group_id: str) -> bool:
        return is_mixed((await self._items.read(group_id)).group)


class MixedGroups:
    def __init__(
        self,
        metadata: MetadataStore,
        items: GroupItems,
        session_expiry: SessionExpiry,
        beats: Beats,
        up_to_date: UpToDate,
        world: World,
    ) -> None:
        self._world = world
        self._metadata = metadata
        self._items = items
        self._session_expiry = session_expiry
        self._beats = beats
        self._up_to_date = up_to_date

    async def join(
        self, group_id: str, joining: Joining, *, needs_id: bool
    ) -> Joined | IdRequired | None:
        """Let the member into the group, with all that is free for it; None: it is not native.

        Raises `InconsistentGroup` unless it is a consumer whose assignors the group understands.
        """
        check_fits(joining)
        if joining.is_new:
            name = joining.instance_id or joining.client
            member_id = new_id(name, self._world.random_bytes(16))
            if needs_id and joining.instance_id is None:
                return IdRequired(member_id)
            joining = changed(joining, member_id=member_id)
        return await self._join(group_id, joining)

    async def _join(self, group_id: str, joining: Joining) -> Joined | None:
        member_id = joining.member_id
        key = keys.member(group_id, member_id)

        async def change(known: Known, _: bool) -> Joined | None:
            group = known.group
            if not is_mixed(group):
                return None
            existing = await self._items.existing(0)
            if member_id in group.members:
                member = _member(group_id, group, joining.member_id, joining.instance_id)
                owned = _owned(joining)
                new = state.release(group, member_id, owned, _knows(group, member, owned))
                new = state.update(new, member_id, _updated(member, joining), existing)
                new = await self._up_to_date(group_id, known, new)
            else:
                if _owned(joining):
                    raise unknown_member(group_id, member_id)  # Its session is over: it must stop.
                if len(group.members) >= MEMBERS_MAX:
                    raise GroupFull(f"group {group_id!r} has {MEMBERS_MAX} members: the limit")
                new = state.join(group, member_id, _updated(_newcomer(joining), joining), existing)
            new = _given(new, member_id)
            mine = await self._metadata.get(key)
            ops: list[Op] = await self._items.removals(
                group_id, set(group.members) - set(new.members)
            )
            version = None if mine is None else mine.version
            ops.append(Put(key, encode_beat(0, new.generation), version))
            await self._items.write(group_id, known, new, ops)
            return Joined(
                member_id=member_id,
                generation=new.generation,
                protocol_type=consumers.PROTOCOL_TYPE,
                protocol=joining.protocols[0][0],
                leader="",
            )

        await self._session_expiry.look(group_id)
        return await self._items.changing(group_id, change)

    async def sync(self, group_id: str, claimant: Claimant) -> bytes:
        """Return what the member was given when it joined."""
        group = (await self._items.read(group_id)).group
        member = _current(group_id, group, claimant)
        return consumers.encode_assignment(
            [(topic.removeprefix(member.name_prefix), p) for topic, p in state.flat(member.given)]
        )

    async def heartbeat(self, group_id: str, claimant: Claimant) -> None:
        """Keep the session alive; raise `RebalanceInProgress` if the member should join again."""
        member_id = claimant.member_id
        key, watch_key = keys.member(group_id, member_id), keys.group_watch(group_id)
        items = await self._metadata.get_many([keys.group(group_id), key, watch_key])
        known = self._items.known(group_id, items.get(keys.group(group_id)))
        member, mine = _current(group_id, known.group, claimant), items.get(key)
        if mine is None:
            raise unknown_member(group_id, member_id)
        generation, session_ms = claimant.generation, member.session_timeout_ms
        await self._beats.store(group_id, member_id, mine, generation, session_ms=session_ms)
        is_due = self._session_expiry.is_due(group_id, known.group, items.get(watch_key))
        if is_due and await self._session_expiry.look(group_id):
            known = await self._items.read(group_id)

        async def change(known: Known, _: bool) -> Group:
            _current(group_id, known.group, claimant)
            new = await self._up_to_date(group_id, known, known.group)
            if new is not known.group:
                await self._items.write(group_id, known, new, [])
            return new

        try:
            group = await change(known, False)
        except (MetadataConflict, OutcomeUnknown):
            group = await self._items.changing(group_id, change)
        if nested(group.assignment(member_id)) != group.members[member_id].given:
            raise RebalanceInProgress(f"group {group_id!r} assigns other partitions; join again")

    async def leave(self, group_id: str, leaving: Leaving) -> RiachoError | None:
        """End the session of a member now; return the error if it is not one."""
        gone: str | None = None

        async def change(known: Known, _: bool) -> None:
            nonlocal gone
            group = known.group
            if gone is not None and gone not in group.members:
                return  # An earlier attempt did it; its reply was lost.
            member_id = leaving.member_id
            if not member_id:
                member_id = state.static_member(group, leaving.instance_id) or ""
            _member(group_id, group, member_id, leaving.instance_id)
            gone = member_id
            new = state.leave(group, [member_id], await self._items.existing(0))
            ops = await self._items.removals(group_id, [member_id])
            await self._items.write(group_id, known, new, ops)

        try:
            await self._items.changing(group_id, change)
        except Rejected as error:
            return error
        return None


def check_fits(joining: Joining) -> None:
    """Raise `InconsistentGroup` unless the group can assign for this consumer."""
    names = {name for name, _ in joining.protocols}
    if joining.protocol_type != consumers.PROTOCOL_TYPE or not names:
        raise InconsistentGroup("the group has members that are consumers, and assigns itself")
    if not names <= ASSIGNORS:
        raise InconsistentGroup(
            f"the group assigns itself; consumers that bring {', '.join(sorted(names - ASSIGNORS))}"
            " cannot join it"
        )


def _is_cooperative(joining: Joining) -> bool:
    """Whether the consumer reads on while it joins: only if that is all that it can do."""
    return {name for name, _ in joining.protocols} == {COOPERATIVE}


def _owned(joining: Joining) -> list[TopicPartition]:
    """Return what the consumer reads while it joins."""
    if not _is_cooperative(joining):
        return []
    prefix = joining.name_prefix
    return [(prefix + topic, p) for topic, p in consumers.owned(joining.protocols[0][1])]


def _knows(group: Group, member: Member, owned: list[TopicPartition]) -> int:
    """Return the generation as of which `owned` is meant."""
    # Who has stopped reading altogether holds nothing, whatever it knows.
    return member.joined if owned else group.generation


def _newcomer(joining: Joining) -> Member:
    return replace(joining.member(), protocol="classic")


def _updated(member: Member, joining: Joining) -> Member:
    prefix = joining.name_prefix
    named = {t for _, data in joining.protocols for t in consumers.subscribed(data)}
    return replace(
        member,
        topics=tuple(prefix + topic for topic in sorted(named)),
        session_timeout_ms=joining.session_timeout_ms,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
    )


def _given(group: Group, member_id: str) -> Group:
    """Return the group with what the member is given now written down."""
    member = replace(
        group.members[member_id],
        given=nested(group.assignment(member_id)),
        joined=group.generation,
    )
    return replace(group, members={**group.members, member_id: member})


def _member(group_id: str, group: Group, member_id: str, instance_id: str | None) -> Member:
    member = group.members.get(member_id)
    if instance_id is not None and state.static_member(group, instance_id) not in {None, member_id}:
        raise InstanceFenced(f"another member of group {group_id!r} has this instance id")
    if member is None or member.protocol != "classic":
        raise unknown_member(group_id, member_id)
    return member


def _current(group_id: str, group: Group, claimant: Claimant) -> Member:
    """Return the member that calls, or raise unless it names the generation that it has joined."""
    member = _member(group_id, group, claimant.member_id, claimant.instance_id)
    if claimant.generation != member.joined:
        raise IllegalGeneration(
            f"{claimant.member_id!r} has joined generation {member.joined} of group {group_id!r},"
            f" not {claimant.generation}"
        )
    return member
