"""Groups at work: joining, beating, leaving, over the metadata table.

Nothing is kept in the process but what saves reads: any gateway answers any call. A quiet
heartbeat is one read (group, member and watch items together) and one write (the member's own
item). The group item is written only when members, subscriptions, topics or holders change, by
compare-and-set; whoever loses a race reads again and finds the other's change in place.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from service.clock import World
from service.groups import sessions, state
from service.groups.assignors import ASSIGNORS, TopicPartition
from service.groups.sessions import Watch
from service.groups.state import Group, Member
from storage import keys
from storage.errors import (
    Contended,
    GroupNotEmpty,
    IllegalGeneration,
    InconsistentGroup,
    InvalidRequest,
    MetadataConflict,
    OutcomeUnknown,
    UnknownGroup,
    UnknownMember,
)
from storage.metadata import TRANSACT_OPS_MAX, Delete, MetadataStore, Op, Put, Versioned
from storage.topics import Topics

ATTEMPTS_MAX: Final = 30
"""Lost races on a group item before a call gives up."""

SESSION_TIMEOUT_MS_DEFAULT: Final = 45_000
SESSION_TIMEOUT_MS_MIN: Final = 1_000
SESSION_TIMEOUT_MS_MAX: Final = 1_800_000

MEMBERS_MAX: Final = 1_000
GROUP_ID_CHARS_MAX: Final = 249

TOPICS_AGE_MAX_S: Final = 5.0
"""New topics and partitions are noticed after this long at the latest."""

T = TypeVar("T")

_ID: Final = re.compile(r"[a-zA-Z0-9._-]+")


def parse_group_id(text: str) -> str:
    """Return `text` if it can name a group, or raise `InvalidRequest`."""
    if len(text) > GROUP_ID_CHARS_MAX or _ID.fullmatch(text) is None:
        raise InvalidRequest(
            f"group: {text[:300]!r} is not a name: use 1 to {GROUP_ID_CHARS_MAX} letters, digits,"
            " dots, underscores and hyphens"
        )
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What a member is told."""

    member_id: str
    generation: int
    assignment: list[TopicPartition]
    revoke: list[TopicPartition]
    session_timeout_ms: int


@dataclass(frozen=True, slots=True)
class Known:
    """A group as it was read."""

    group: Group
    version: str | None


class _BeatItem(msgspec.Struct, array_like=True, frozen=True):
    beats: int
    generation: int


class Coordinator:
    def __init__(self, metadata: MetadataStore, topics: Topics, world: World) -> None:
        self._metadata = metadata
        self._topics = topics
        self._world = world
        self._counts: tuple[dict[str, int], float] | None = None
        self._watches: dict[str, tuple[str | None, float]] = {}

    # Membership

    async def join(self, group_id: str, member: Member, assignor: str | None) -> Beat:
        """Make the caller a member; a static one takes the place of its former self."""
        parse_group_id(group_id)
        _check_member(member, assignor)
        member_id = self._member_id(member)
        existing = await self._existing(0)

        async def change(known: Known) -> Beat:
            group = known.group
            if member_id in group.members:
                return _beat(group, member_id)  # An unanswered attempt of ours did it.
            if assignor is not None and assignor != group.assignor:
                if group.members:
                    raise InconsistentGroup(
                        f"group {group_id!r} assigns by {group.assignor}, not by {assignor};"
                        " all members must agree"
                    )
                group = msgspec.structs.replace(group, assignor=assignor)
            if len(group.members) >= MEMBERS_MAX:
                raise InconsistentGroup(f"group {group_id!r} has {MEMBERS_MAX} members already")
            new = state.join(group, member_id, member, existing)
            ops: list[Op] = [Put(keys.member(group_id, member_id), _encode_beat(0, 0), None)]
            ops += await self._removals(group_id, set(group.members) - set(new.members))
            await self._write(group_id, known, new, ops)
            return _beat(new, member_id)

        await self._look(group_id)
        return await self._changing(group_id, change)

    async def heartbeat(
        self,
        group_id: str,
        member_id: str,
        generation: int,
        owned: Sequence[TopicPartition] | None,
    ) -> Beat:
        """Keep the session, and return what the member shall read and what it shall give up.

        `owned` is what the member reads now; None: it does not say. A generation that is over
        is no error here, since this call is how a member learns of the next one.
        """
        parse_group_id(group_id)
        key = keys.member(group_id, member_id)
        items = await self._metadata.get_many(
            [keys.group(group_id), key, keys.group_watch(group_id)]
        )
        known = self._known(group_id, items)
        mine = items.get(key)
        if mine is None or member_id not in known.group.members:
            raise _unknown_member(group_id, member_id)
        if generation > known.group.generation:
            raise IllegalGeneration(
                f"generation {generation} is not there yet, the group is at"
                f" {known.group.generation}; join again"
            )
        await self._beat(key, mine, generation)
        if self._look_is_due(group_id, known.group, items.get(keys.group_watch(group_id))):
            await self._look(group_id)
        existing = await self._existing(TOPICS_AGE_MAX_S)
        new = _heartbeat_change(known.group, member_id, generation, owned, existing)
        if new is known.group:
            return _beat(known.group, member_id)

        async def change(known: Known) -> Beat:
            if member_id not in known.group.members:
                raise _unknown_member(group_id, member_id)
            new = _heartbeat_change(known.group, member_id, generation, owned, existing)
            if new is not known.group:
                await self._write(group_id, known, new, [])
            return _beat(new, member_id)

        return await self._changing(group_id, change)

    async def leave(self, group_id: str, member_id: str) -> None:
        """End the member's session now; what it read goes to others."""
        existing = await self._existing(TOPICS_AGE_MAX_S)
        asked = False

        async def change(known: Known) -> None:
            nonlocal asked
            if member_id not in known.group.members:
                if asked:
                    return  # An unanswered attempt of ours did it.
                raise _unknown_member(group_id, member_id)
            asked = True
            new = state.leave(known.group, [member_id], existing)
            await self._write(group_id, known, new, await self._removals(group_id, {member_id}))

        await self._changing(group_id, change)

    @staticmethod
    def checked(known: Known, group_id: str, member_id: str, generation: int) -> Group:
        """Return the group, or raise unless the member is in it and knows its generation."""
        if member_id not in known.group.members:
            raise _unknown_member(group_id, member_id)
        if generation != known.group.generation:
            raise IllegalGeneration(
                f"generation {generation} of group {group_id!r} is not the current one, which is"
                f" {known.group.generation}; send a heartbeat to learn what is yours now"
            )
        return known.group

    # Looking

    async def read(self, group_id: str) -> Known:
        """Return the group as it is now; an empty one without version if there is none."""
        parse_group_id(group_id)
        items = await self._metadata.get_many([keys.group(group_id)])
        return self._known(group_id, items)

    async def all(self) -> dict[str, Group]:
        groups: dict[str, Group] = {}
        after = None
        while True:
            page = await self._metadata.list("group/", after=after)
            groups |= {k.removeprefix("group/"): state.decode(item.value) for k, item in page}
            if len(page) < 1000:
                return groups
            after = page[-1][0]

    async def delete(self, group_id: str) -> None:
        """Remove a group that has no members, and what it has committed."""

        async def change(known: Known) -> None:
            if known.version is None:
                raise UnknownGroup(f"there is no group {group_id!r}")
            if known.group.members:
                raise GroupNotEmpty(
                    f"group {group_id!r} has {len(known.group.members)} members; stop them first"
                )
            await self._metadata.transact([Delete(keys.group(group_id), known.version)])

        await self._look(group_id)
        await self._changing(group_id, change)
        for prefix in (f"offset/{group_id}/", f"member/{group_id}/"):
            await self._delete_all(prefix)

    async def tick(self) -> None:
        """End the sessions that are over, in all groups: for a schedule to call."""
        for group_id, group in (await self.all()).items():
            if group.members:
                watch = await self._metadata.get(keys.group_watch(group_id))
                if self._look_is_due(group_id, group, watch):
                    await self._look(group_id)

    def _look_is_due(self, group_id: str, group: Group, item: Versioned | None) -> bool:
        """Whether an interval has passed since anyone looked.

        By the clock of whoever looked, if that is believable; and by our own, if the watch
        item has not changed for so long while we could see it.
        """
        version = None if item is None else item.version
        interval_ms = sessions.interval_ms(group)
        now_s = self._world.monotonic_s()
        seen = self._watches.get(group_id)
        if seen is None or seen[0] != version:
            self._watches[group_id] = (version, now_s)
        elif (now_s - seen[1]) * 1000 >= interval_ms:
            return True
        looked_ms = 0 if item is None else sessions.decode(item.value).looked_ms
        return self._world.now_ms() - looked_ms >= interval_ms

    async def _look(self, group_id: str) -> None:
        """Note which members are silent, and remove those whose sessions are over."""
        key = keys.group_watch(group_id)
        items = await self._metadata.get_many([keys.group(group_id), key])
        known = self._known(group_id, items)
        if not known.group.members or not self._look_is_due(group_id, known.group, items.get(key)):
            return
        members = await self._member_items(group_id)
        stored = items.get(key)
        before = Watch() if stored is None else sessions.decode(stored.value)
        versions = {m: item.version for m, item in members.items()}
        watch, over = sessions.look(before, known.group, versions, self._world.now_ms())
        expected = None if stored is None else stored.version
        try:
            await self._metadata.transact([Put(key, sessions.encode(watch), expected)])
        except (MetadataConflict, OutcomeUnknown):
            return  # Somebody else is looking.
        if over:
            await self._expire(group_id, over, members)

    async def _expire(
        self, group_id: str, over: Sequence[str], items: Mapping[str, Versioned]
    ) -> None:
        existing = await self._existing(TOPICS_AGE_MAX_S)
        known = await self.read(group_id)
        gone = [m for m in over if m in known.group.members][: TRANSACT_OPS_MAX - 2]
        if not gone:
            return
        # On condition that none of them has beaten since: then nothing happens, and the next
        # look sees a version that moved.
        ops: list[Op] = [
            Delete(keys.member(group_id, m), items[m].version) for m in gone if m in items
        ]
        new = state.leave(known.group, gone, existing)
        try:
            await self._write(group_id, known, new, ops)
        except (MetadataConflict, OutcomeUnknown):
            return

    # Items

    async def _beat(self, key: str, mine: Versioned, generation: int) -> None:
        beats = msgspec.msgpack.decode(mine.value, type=_BeatItem).beats
        try:
            await self._metadata.transact(
                [Put(key, _encode_beat(beats + 1, generation), mine.version)]
            )
        except (MetadataConflict, OutcomeUnknown):
            return  # Another call of the same member beat meanwhile, or its removal is seen next.

    async def _member_items(self, group_id: str) -> dict[str, Versioned]:
        prefix = f"member/{group_id}/"
        page = await self._metadata.list(prefix, limit=MEMBERS_MAX + 1)
        return {key.removeprefix(prefix): item for key, item in page}

    async def _removals(self, group_id: str, gone: set[str]) -> list[Op]:
        items = await self._metadata.get_many([keys.member(group_id, m) for m in sorted(gone)])
        return [Delete(key, item.version) for key, item in items.items()]

    async def _delete_all(self, prefix: str) -> None:
        while page := await self._metadata.list(prefix, limit=TRANSACT_OPS_MAX):
            try:
                await self._metadata.transact([Delete(key, item.version) for key, item in page])
            except (MetadataConflict, OutcomeUnknown):
                continue

    async def _write(self, group_id: str, known: Known, new: Group, ops: Sequence[Op]) -> None:
        put = Put(keys.group(group_id), state.encode(new), known.version)
        await self._metadata.transact([put, *ops])

    async def _changing(self, group_id: str, change: Callable[[Known], Awaitable[T]]) -> T:
        """Call `change` with the group as it is, again and again while others change it."""
        for attempt in range(ATTEMPTS_MAX):
            known = await self.read(group_id)
            try:
                return await change(known)
            except (MetadataConflict, OutcomeUnknown):
                await self._world.sleep(self._world.random() * 0.005 * min(attempt + 1, 10))
        raise Contended(f"group {group_id!r} is changed by others all the time; send it again")

    async def _existing(self, age_max_s: float) -> dict[str, int]:
        """Return the partition count of every topic."""
        now_s = self._world.monotonic_s()
        if self._counts is None or now_s - self._counts[1] > age_max_s:
            topics = await self._topics.all()
            self._counts = ({topic.name: topic.partition_count for topic in topics}, now_s)
        return self._counts[0]

    def _known(self, group_id: str, items: Mapping[str, Versioned]) -> Known:
        item = items.get(keys.group(group_id))
        return (
            Known(Group(), None) if item is None else Known(state.decode(item.value), item.version)
        )

    def _member_id(self, member: Member) -> str:
        name = member.instance_id or member.client or "member"
        safe = re.sub(r"[^a-zA-Z0-9._-]", "-", name)[:64]
        return f"{safe}-{self._world.random_bytes(8).hex()}"


def _heartbeat_change(
    group: Group,
    member_id: str,
    generation: int,
    owned: Sequence[TopicPartition] | None,
    existing: Mapping[str, int],
) -> Group:
    """Return the group after a heartbeat; the same object if it changes nothing."""
    if owned is not None and generation == group.generation:
        group = state.release(group, member_id, owned)
    if state.is_outdated(group, existing):
        group = state.rebalance(group, existing)
    return group


def _beat(group: Group, member_id: str) -> Beat:
    return Beat(
        member_id=member_id,
        generation=group.generation,
        assignment=group.assignment(member_id),
        revoke=group.revocations(member_id),
        session_timeout_ms=group.members[member_id].session_timeout_ms,
    )


def _unknown_member(group_id: str, member_id: str) -> UnknownMember:
    return UnknownMember(
        f"group {group_id!r} has no member {member_id!r}: its session ended or it left; join again"
    )


def _check_member(member: Member, assignor: str | None) -> None:
    if assignor is not None and assignor not in ASSIGNORS:
        raise InvalidRequest(f"assignor: must be one of {', '.join(ASSIGNORS)}, not {assignor!r}")
    if bool(member.topics) == (member.pattern is not None):
        raise InvalidRequest("give topics or topics_pattern: one of them, and not both")
    if member.pattern is not None:
        try:
            re.compile(member.pattern)
        except re.error as error:
            raise InvalidRequest(f"topics_pattern: not a regular expression: {error}") from None
    if not SESSION_TIMEOUT_MS_MIN <= member.session_timeout_ms <= SESSION_TIMEOUT_MS_MAX:
        raise InvalidRequest(
            f"session_timeout_ms: must be from {SESSION_TIMEOUT_MS_MIN} to"
            f" {SESSION_TIMEOUT_MS_MAX}, not {member.session_timeout_ms}"
        )


def _encode_beat(beats: int, generation: int) -> bytes:
    return msgspec.msgpack.encode(_BeatItem(beats, generation))
