"""What groups have read: committed offsets, lag, resets and expiry.

One item for each lane of a topic that a group has committed to, so that a commit of many
partitions is few writes. A commit is one transaction with a check of the group item: whatever
generation the member was checked against is still the current one when the offsets are written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from service.clock import World
from service.groups import state
from service.groups.assignors import TopicPartition
from service.groups.coordinator import ATTEMPTS_MAX, Coordinator, Known, parse_group_id
from service.groups.state import Group
from storage import frames, keys
from storage.errors import (
    Contended,
    Corrupt,
    GroupNotEmpty,
    IllegalGeneration,
    InvalidRequest,
    MetadataConflict,
    OutcomeUnknown,
    UnknownMember,
    UnknownTopicOrPartition,
)
from storage.metadata import TRANSACT_OPS_MAX, Check, Delete, MetadataStore, Op, Put, Versioned
from storage.topics import Topic, Topics

METADATA_CHARS_MAX: Final = 4096

_MAGIC: Final = b"RGO1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """An offset to record: the next one to be read."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    topic: str
    partition: int
    offset: int
    metadata: str
    committed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Committer:
    """The member who commits; None in its place: someone from outside the group."""

    member_id: str
    generation: int


class _Stored(msgspec.Struct, array_like=True, frozen=True):
    topic_id: bytes
    partitions: dict[int, tuple[int, str, int]]
    """By partition: offset, metadata, when."""


_DECODER: Final = msgspec.msgpack.Decoder(_Stored)


class Offsets:
    def __init__(
        self, metadata: MetadataStore, topics: Topics, coordinator: Coordinator, world: World
    ) -> None:
        self._metadata = metadata
        self._topics = topics
        self._coordinator = coordinator
        self._world = world

    async def commit(
        self, group_id: str, commits: Sequence[Commit], committer: Committer | None
    ) -> None:
        """Record the offsets, all or none of them.

        Raises `IllegalGeneration` or `UnknownMember` if the committer is not who may commit
        these partitions now, or if there is none though the group has members.
        """
        parse_group_id(group_id)
        topics = await self._checked_topics(commits)
        items = _by_item(group_id, commits, topics)
        if len(items) > TRANSACT_OPS_MAX - 2:
            raise InvalidRequest(
                f"offsets: these are of {len(items)} lanes, and one commit can cover"
                f" {TRANSACT_OPS_MAX - 2}; send several"
            )
        for attempt in range(ATTEMPTS_MAX):
            known = await self._coordinator.read(group_id)
            _check_committer(group_id, known, commits, committer)
            stored = await self._metadata.get_many(list(items))
            ops: list[Op] = [_group_op(group_id, known)]
            ops += [
                self._put(key, topics[of[0].topic], of, stored.get(key))
                for key, of in items.items()
            ]
            try:
                await self._metadata.transact(ops)
            except (MetadataConflict, OutcomeUnknown):
                # Writing the same offsets once more is harmless, if we still may.
                await self._world.sleep(self._world.random() * 0.005 * min(attempt + 1, 10))
                continue
            return
        raise Contended(f"group {group_id!r} is changed by others all the time; send it again")

    async def read(self, group_id: str) -> list[Committed]:
        """Return all offsets of the group, by topic and partition."""
        parse_group_id(group_id)
        prefix = f"offset/{group_id}/"
        found: list[Committed] = []
        after = None
        while True:
            page = await self._metadata.list(prefix, after=after)
            for key, item in page:
                name = key.removeprefix(prefix).rsplit("/", 1)[0]
                found += await self._unpacked(name, item)
            if len(page) < 1000:
                return sorted(found, key=lambda one: (one.topic, one.partition))
            after = page[-1][0]

    async def read_some(
        self, group_id: str, places: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the offsets of these partitions; those never committed are left out."""
        wanted: dict[str, list[TopicPartition]] = {}
        topics: dict[str, Topic] = {}
        for topic_name, partition in places:
            if topic_name not in topics:
                topics[topic_name] = await self._topics.get(topic_name)
            lane, _ = topics[topic_name].lane_of(partition)
            key = keys.group_offsets(group_id, topic_name, lane)
            wanted.setdefault(key, []).append((topic_name, partition))
        items = await self._metadata.get_many(list(wanted))
        found: dict[TopicPartition, int] = {}
        for key, item in items.items():
            stored = _decode(item)
            for topic_name, partition in wanted[key]:
                kept = stored.partitions.get(partition)
                if kept is not None and stored.topic_id == topics[topic_name].topic_id:
                    found[topic_name, partition] = kept[0]
        return found

    async def expire(self, retention_ms: int) -> int:
        """Forget offsets of groups without members that are older; return how many groups."""
        oldest_ms = self._world.now_ms() - retention_ms
        ended = 0
        for group_id, group in (await self._coordinator.all()).items():
            if group.members:
                continue
            committed = await self.read(group_id)
            if committed and max(one.committed_ms for one in committed) < oldest_ms:
                await self._coordinator.delete(group_id)
                ended += 1
        return ended

    async def delete(self, group_id: str, topic: str) -> None:
        """Forget what the group has read of one topic."""
        known = await self._coordinator.read(group_id)
        if topic in known.group.named_topics():
            raise GroupNotEmpty(f"members of group {group_id!r} read {topic!r}; stop them first")
        prefix = f"offset/{group_id}/{topic}/"
        while page := await self._metadata.list(prefix, limit=TRANSACT_OPS_MAX):
            try:
                await self._metadata.transact([Delete(key, item.version) for key, item in page])
            except (MetadataConflict, OutcomeUnknown):
                continue

    async def _checked_topics(self, commits: Sequence[Commit]) -> dict[str, Topic]:
        if not commits:
            raise InvalidRequest("offsets: there are none; give at least one")
        topics: dict[str, Topic] = {}
        seen: set[TopicPartition] = set()
        for number, commit in enumerate(commits):
            if commit.topic not in topics:
                topics[commit.topic] = await self._topics.get(commit.topic)
            topics[commit.topic].check_partition(commit.partition)
            if (commit.topic, commit.partition) in seen:
                raise InvalidRequest(f"offsets[{number}]: this partition is given twice")
            seen.add((commit.topic, commit.partition))
            if commit.offset < 0:
                raise InvalidRequest(f"offsets[{number}].offset: must be 0 or more")
            if len(commit.metadata) > METADATA_CHARS_MAX:
                raise InvalidRequest(
                    f"offsets[{number}].metadata: {len(commit.metadata)} characters, the limit is"
                    f" {METADATA_CHARS_MAX}"
                )
        return topics

    def _put(
        self, key: str, topic: Topic, commits: Sequence[Commit], stored: Versioned | None
    ) -> Put:
        before = None if stored is None else _decode(stored)
        # What was committed to a topic of the same name that is gone means nothing here.
        kept = before.partitions if before and before.topic_id == topic.topic_id else {}
        now_ms = self._world.now_ms()
        new = {commit.partition: (commit.offset, commit.metadata, now_ms) for commit in commits}
        value = _encode(_Stored(topic.topic_id, {**kept, **new}))
        return Put(key, value, None if stored is None else stored.version)

    async def _unpacked(self, topic_name: str, item: Versioned) -> list[Committed]:
        try:
            topic = await self._topics.get(topic_name)
        except UnknownTopicOrPartition:
            return []
        stored = _decode(item)
        if stored.topic_id != topic.topic_id:
            return []
        return [
            Committed(
                topic=topic_name,
                partition=partition,
                offset=offset,
                metadata=metadata,
                committed_ms=committed_ms,
            )
            for partition, (offset, metadata, committed_ms) in stored.partitions.items()
        ]


def _check_committer(
    group_id: str, known: Known, commits: Sequence[Commit], committer: Committer | None
) -> None:
    if committer is None:
        if known.group.members:
            raise UnknownMember(
                f"group {group_id!r} has members, so only they may commit: give generation and"
                " member_id, or stop them first"
            )
        return
    Coordinator.checked(known, group_id, committer.member_id, committer.generation)
    allowed = known.group.may_commit(committer.member_id)
    for number, commit in enumerate(commits):
        if (commit.topic, commit.partition) not in allowed:
            raise IllegalGeneration(
                f"offsets[{number}]: {commit.topic}/{commit.partition} is not assigned to"
                f" {committer.member_id!r} in generation {committer.generation}; send a heartbeat"
                " to learn what is"
            )


def _group_op(group_id: str, known: Known) -> Op:
    key = keys.group(group_id)
    if known.version is None:
        # From now on there is such a group, though nobody ever joined it.
        return Put(key, state.encode(Group()), None)
    return Check(key, known.version)


def _by_item(
    group_id: str, commits: Sequence[Commit], topics: Mapping[str, Topic]
) -> dict[str, list[Commit]]:
    items: dict[str, list[Commit]] = {}
    for commit in commits:
        lane, _ = topics[commit.topic].lane_of(commit.partition)
        key = keys.group_offsets(group_id, commit.topic, lane)
        items.setdefault(key, []).append(commit)
    return items


def _encode(stored: _Stored) -> bytes:
    return frames.seal(_MAGIC, msgspec.msgpack.encode(stored))


def _decode(item: Versioned) -> _Stored:
    try:
        return _DECODER.decode(frames.unseal(_MAGIC, item.value))
    except msgspec.MsgspecError as error:
        raise Corrupt(f"committed offsets do not decode: {error}") from error
