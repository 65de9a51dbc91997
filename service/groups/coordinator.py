"""Group coordinator: join, heartbeat and leave, over the metadata table.

The process keeps only caches, so any gateway can answer any call. A heartbeat that changes
nothing is one read (group, member and watch items together) and one write (the member's own
item). The group item is written only when members, subscriptions, topics or holders change, by
compare-and-set; a gateway that loses the race reads again and sees the other gateway's change.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from service.groups import state
from service.groups.assignors import ASSIGNORS, TopicPartition
from service.groups.beats import Beats, encode_beat, unknown_member
from service.groups.classic import rounds
from service.groups.classic.coordinator import ClassicGroups, ClassicLimits
from service.groups.classic.rounds import MEMBERS_MAX
from service.groups.consumers.members import ConsumerMembers
from service.groups.consumers.mixed import ClassicCalls, MixedGroups
from service.groups.items import GroupItems, Known, Listed, parse_group_id
from service.groups.patterns import check_pattern
from service.groups.session_expiry import SessionExpiry
from service.groups.state import Group, Member
from service.world.clock import World
from storage import keys
from storage.errors import (
    GroupFull,
    GroupNotEmpty,
    IllegalGeneration,
    InconsistentGroup,
    InvalidRequest,
    MetadataConflict,
    OutcomeUnknown,
    RiachoError,
    UnknownGroup,
)
from storage.stores.metadata import (
    TRANSACT_OPS_MAX,
    Check,
    Delete,
    MetadataStore,
    Op,
    Put,
    Versioned,
)
from storage.topics.items import is_name
from storage.topics.topics import Topics

SESSION_TIMEOUT_MS_DEFAULT: Final = 45_000
SESSION_TIMEOUT_MS_MIN: Final = 1_000
SESSION_TIMEOUT_MS_MAX: Final = 1_800_000

TOPICS_AGE_MAX_S: Final = 5.0
"""Maximum delay until new topics and partitions are noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """The reply to a join or a heartbeat."""

    member_id: str
    generation: int
    assignment: list[TopicPartition]
    revoke: list[TopicPartition]
    session_timeout_ms: int


class Coordinator:
    def __init__(
        self,
        metadata: MetadataStore,
        topics: Topics,
        world: World,
        classic_limits: ClassicLimits | None = None,
    ) -> None:
        self._metadata = metadata
        self._world = world
        self._items = GroupItems(metadata, topics, world)
        self._session_expiry = SessionExpiry(metadata, self._items, world)
        self._beats = Beats(metadata, world)
        self.classic = ClassicGroups(
            metadata, self._items, self._session_expiry, world, classic_limits or ClassicLimits()
        )
        """The classic groups, in the same items."""
        self._current: dict[str, tuple[str | None, Mapping[str, int]]] = {}
        """By group: a version, and the topics for which it is known to be up to date."""
        self.consumers = ConsumerMembers(
            metadata, self._items, self._session_expiry, self._beats, self.up_to_date, world
        )
        mixed = MixedGroups(
            metadata, self._items, self._session_expiry, self._beats, self.up_to_date, world
        )
        self.classic_calls = ClassicCalls(self.classic, mixed, self._items)
        """What clients of the classic protocol call, for groups of both kinds."""

    # Membership

    async def join(self, group_id: str, member: Member, assignor: str | None) -> Beat:
        """Make the caller a member; a static member replaces its previous instance."""
        parse_group_id(group_id)
        _check_member(member, assignor)
        member_id = self._member_id(member)

        async def change(known: Known, _: bool) -> Beat:
            group = known.group
            if member_id in group.members:
                return _beat(group, member_id)  # An earlier attempt did it; its reply was lost.
            group = _with_assignor(group_id, _native(group_id, group), member, assignor)
            new = state.join(group, member_id, member, await self._items.existing(0))
            if len(new.members) > MEMBERS_MAX:
                raise GroupFull(
                    f"group {group_id!r} has {MEMBERS_MAX} members, which is the limit; use"
                    " another group"
                )
            ops: list[Op] = [Put(keys.member(group_id, member_id), encode_beat(0, 0), None)]
            ops += await self._items.removals(group_id, set(group.members) - set(new.members))
            await self._items.write(group_id, known, new, ops)
            return _beat(new, member_id)

        await self._session_expiry.look(group_id)
        return await self._items.changing(group_id, change)

    async def heartbeat(
        self,
        group_id: str,
        member_id: str,
        generation: int,
        owned: Sequence[TopicPartition] | None,
    ) -> Beat:
        """Keep the session alive, and return what the member must read and what it must revoke.

        `owned` is what the member reads now; None: not reported. An old generation is no error
        here, since this call is how a member learns of the new one.
        """
        parse_group_id(group_id)
        if not is_name(member_id):
            raise unknown_member(group_id, member_id)
        key, watch_key = keys.member(group_id, member_id), keys.group_watch(group_id)
        items = await self._metadata.get_many([keys.group(group_id), key, watch_key])
        known = self._items.known(group_id, items.get(keys.group(group_id)))
        mine = items.get(key)
        is_known = known.group.classic is None and member_id in known.group.members
        if mine is None or not is_known:
            raise unknown_member(group_id, member_id)
        if generation > known.group.generation:
            raise IllegalGeneration(
                f"generation {generation} is not there yet, the group is at"
                f" {known.group.generation}; join again"
            )
        await self._beats.store(group_id, member_id, mine, generation)
        is_due = self._session_expiry.is_due(group_id, known.group, items.get(watch_key))
        if is_due and await self._session_expiry.look(group_id):
            known = await self._items.read(group_id)

        async def change(known: Known, _: bool) -> Beat:
            if member_id not in known.group.members:
                raise unknown_member(group_id, member_id)
            new = known.group
            if owned is not None:
                new = state.release(new, member_id, owned, generation)
            new = await self.up_to_date(group_id, known, new)
            if new is not known.group:
                await self._items.write(group_id, known, new, [])
            return _beat(new, member_id)

        try:
            return await change(known, False)
        except (MetadataConflict, OutcomeUnknown):
            return await self._items.changing(group_id, change)

    async def leave(self, group_id: str, member_id: str) -> None:
        """End the member's session now; its partitions are reassigned."""
        asked = False

        async def change(known: Known, _: bool) -> None:
            nonlocal asked
            if member_id not in known.group.members:
                if asked:
                    return  # An earlier attempt did it; its reply was lost.
                raise unknown_member(group_id, member_id)
            asked = True
            if known.group.classic is not None:
                new = rounds.leave(known.group, [member_id])
            else:
                new = state.leave(known.group, [member_id], await self._items.existing(0))
            removals = await self._items.removals(group_id, {member_id})
            await self._items.write(group_id, known, new, removals)

        await self._items.changing(group_id, change)

    @staticmethod
    def check(known: Known, group_id: str, member_id: str, generation: int) -> None:
        """Raise unless the member is in the group and knows its generation."""
        if member_id not in known.group.members:
            raise unknown_member(group_id, member_id)
        check_generation(group_id, generation, known.group.generation)

    # Looking

    async def read(self, group_id: str) -> Known:
        """Return the group as it is now; an empty one without version if there is none."""
        return await self._items.read(group_id)

    async def topics(self, age_max_s: float = TOPICS_AGE_MAX_S) -> Listed:
        """Return all topics as this process knows them, at most that old."""
        return await self._items.listed(age_max_s)

    async def all(self) -> dict[str, Group]:
        return await self._items.all()

    async def delete(
        self,
        group_id: str,
        is_over: Callable[[Sequence[Versioned]], bool] = lambda _: True,
    ) -> bool:
        """Delete a group without members, and its committed offsets; return whether it was.

        The group is kept if `is_over` returns False for the items that hold these offsets.
        """
        prefix, watch_key = keys.all_group_offsets(group_id), keys.group_watch(group_id)

        async def change(known: Known, is_in_doubt: bool) -> bool:
            if known.version is None:
                if is_in_doubt:
                    return True  # An earlier attempt did it; its reply was lost.
                raise UnknownGroup(f"there is no group {group_id!r}; GET /v1/groups lists them")
            if known.group.members:
                raise GroupNotEmpty(
                    f"group {group_id!r} has {len(known.group.members)} members; stop them first"
                )
            # Offsets are deleted with the group or before it: after a crash, a retry finishes it.
            page = await self._metadata.list(prefix, limit=TRANSACT_OPS_MAX - 2)
            if not is_over([item for _, item in page]):
                return False
            ops: list[Op] = [Delete(key, item.version) for key, item in page]
            if len(page) == TRANSACT_OPS_MAX - 2:
                await self._metadata.transact([Check(keys.group(group_id), known.version), *ops])
                return await change(known, is_in_doubt)
            if (watch := await self._metadata.get(watch_key)) is not None:
                ops.append(Delete(watch_key, watch.version))
            await self._metadata.transact([Delete(keys.group(group_id), known.version), *ops])
            return True

        await self._session_expiry.look(group_id)
        return await self._items.changing(group_id, change)

    async def tick(self) -> None:
        """End the expired sessions of all groups. Called on a schedule."""
        groups = await self._items.all()
        self._session_expiry.forget_others(groups)
        self._current = {g: right for g, right in self._current.items() if g in groups}
        for group_id, group in groups.items():
            # An error in one group must not stop the others from being checked.
            with suppress(RiachoError):
                if group.members:
                    watch = await self._metadata.get(keys.group_watch(group_id))
                    if self._session_expiry.is_due(group_id, group, watch):
                        await self._session_expiry.look(group_id)

    # Items

    async def up_to_date(self, group_id: str, known: Known, group: Group) -> Group:
        """Return `group`, or its next generation if topics or partitions were added or removed."""
        existing = await self._items.existing(TOPICS_AGE_MAX_S)
        right = self._current.get(group_id)
        if right is not None and right[0] == known.version and right[1] is existing:
            return group
        if state.is_outdated(group, existing):
            # The cached topics may be older than those of another gateway: read them again, so
            # that its change is not undone.
            existing = await self._items.existing(0)
            if state.is_outdated(group, existing):
                return state.rebalance(group, existing)
        self._current[group_id] = (known.version, existing)
        return group

    def _member_id(self, member: Member) -> str:
        name = member.instance_id or member.client or "member"
        safe = re.sub(r"[^a-zA-Z0-9._-]", "-", name)[:64]
        return f"{safe}-{self._world.random_bytes(8).hex()}"


def check_generation(group_id: str, generation: int, current: int) -> None:
    """Raise `IllegalGeneration` unless the generation is the current one."""
    if generation != current:
        raise IllegalGeneration(
            f"generation {generation} of group {group_id!r} is not the current one, which is"
            f" {current}; send a heartbeat to learn what is yours now"
        )


def _native(group_id: str, group: Group) -> Group:
    """Return the group as a native one; an empty one becomes that."""
    if group.classic is None:
        return group
    if group.members:
        raise InconsistentGroup(
            f"group {group_id!r} is used by Kafka clients whose members assign among themselves"
            " (the classic protocol); stop them first, or use another group"
        )
    return msgspec.structs.replace(group, classic=None)


def _with_assignor(group_id: str, group: Group, member: Member, assignor: str | None) -> Group:
    if assignor is None or assignor == group.assignor:
        return group
    former = state.static_member(group, member.instance_id)
    if set(group.members) - {former}:
        raise InconsistentGroup(
            f"group {group_id!r} assigns by {group.assignor}, not by {assignor}; all members"
            " must agree"
        )
    return msgspec.structs.replace(group, assignor=assignor)


def _beat(group: Group, member_id: str) -> Beat:
    return Beat(
        member_id=member_id,
        generation=group.generation,
        assignment=group.assignment(member_id),
        revoke=group.revocations(member_id),
        session_timeout_ms=group.members[member_id].session_timeout_ms,
    )


def _check_member(member: Member, assignor: str | None) -> None:
    if assignor is not None and assignor not in ASSIGNORS:
        raise InvalidRequest(f"assignor: must be one of {', '.join(ASSIGNORS)}, not {assignor!r}")
    if bool(member.topics) == (member.pattern is not None):
        raise InvalidRequest("give topics or topics_pattern: one of them, and not both")
    if member.pattern is not None:
        check_pattern(member.pattern)
    if not SESSION_TIMEOUT_MS_MIN <= member.session_timeout_ms <= SESSION_TIMEOUT_MS_MAX:
        raise InvalidRequest(
            f"session_timeout_ms: must be from {SESSION_TIMEOUT_MS_MIN} to"
            f" {SESSION_TIMEOUT_MS_MAX}, not {member.session_timeout_ms}"
        )
