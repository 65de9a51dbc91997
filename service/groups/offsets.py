"""Committed offsets of groups: commit, read and expiry.

There is one item for each lane of a topic that a group has committed to, so that a commit of many
partitions is few writes. A commit is one transaction with a check of the group item: the
generation that the member was checked against is still current when the offsets are written.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from service.groups import sessions, state
from service.groups.assignors import TopicPartition
from service.groups.classic import rounds
from service.groups.classic.rounds import Claimant
from service.groups.consumers.commits import check_commit
from service.groups.coordinator import Coordinator
from service.groups.items import Known, parse_group_id
from service.groups.state import Group
from service.world.clock import World
from storage import keys
from storage.cas import Undecided, retry
from storage.errors import (
    GroupNotEmpty,
    IllegalGeneration,
    InvalidRequest,
    InvalidTopic,
    RiachoError,
    StaleMemberEpoch,
    UnknownGroup,
    UnknownMember,
    UnknownTopicOrPartition,
)
from storage.formats import frames
from storage.formats.partitions import PartitionNumber
from storage.stores.metadata import (
    TRANSACT_OPS_MAX,
    VALUE_BYTES_MAX,
    Check,
    MetadataStore,
    Op,
    Put,
    Versioned,
    pages,
)
from storage.topics.topics import Topic, Topics

METADATA_CHARS_MAX: Final = 4096

_MAGIC: Final = b"RGO1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """An offset to record: the next one to be read."""

    topic: str
    partition: PartitionNumber
    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    """What a Kafka client says of the record before; kept for it, and used for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    topic: str
    partition: PartitionNumber
    offset: int
    metadata: str
    committed_ms: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Committer:
    """The member that commits. None instead of it: the caller is not a member of the group."""

    member_id: str
    generation: int
    instance_id: str | None = None
    """Of a static member of a classic group, if it gives it."""
    is_transactional: bool = False
    """Whether the offsets are part of a transaction; only classic groups care."""
    is_kafka: bool = False
    """Whether it speaks Kafka's protocol, and may name an older generation."""

    @property
    def is_nobody(self) -> bool:
        """Whether it is a transaction of a client that does not say which member it is.

        Older ones cannot, so as in Kafka it may commit although the group has members.
        """
        is_named = self.generation >= 0 or bool(self.member_id) or self.instance_id is not None
        return self.is_kafka and self.is_transactional and not is_named


class _Entry(msgspec.Struct, array_like=True, frozen=True):
    offset: int
    metadata: str
    committed_ms: int
    leader_epoch: int = -1
    """Stored only if a client gave one: gateways before 0.3 cannot read such an entry."""
    epoch: int = -1
    """Of a member that may commit by an older one: what it sent before this commit is late."""


class _Stored(msgspec.Struct, array_like=True, frozen=True):
    topic_id: bytes
    partitions: dict[PartitionNumber, _Entry]


_DECODER: Final = msgspec.msgpack.Decoder(_Stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Offsets to record, checked as far as they can be before the group is read."""

    group_id: str
    commits: Sequence[Commit]
    committer: Committer | None
    topics: Mapping[str, Topic]
    items: Mapping[str, list[Commit]]
    """By the key of the item that holds them."""

    @property
    def op_count(self) -> int:
        """Number of items written or checked: those of the offsets, and the group's."""
        return len(self.items) + 1


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

        Raises `IllegalGeneration` or `UnknownMember` if the committer may not commit these
        partitions now, or if there is no committer but the group has members. A commit that
        another one overtakes counts as made before it, and changes nothing.
        """
        planned = await self.planned(group_id, commits, committer)
        topics, items = planned.topics, planned.items
        if len(items) > TRANSACT_OPS_MAX - 2:
            raise InvalidRequest(
                f"offsets: these are of {len(items)} lanes, and one commit can cover"
                f" {TRANSACT_OPS_MAX - 2}; send several"
            )
        now_ms = self._world.now_ms()
        first: dict[str, Versioned] | None = None

        async def attempt(is_in_doubt: bool) -> Undecided | None:
            nonlocal first
            known = await self._coordinator.read(group_id)
            stored = await self._metadata.get_many(list(items))
            first = stored if first is None else first
            puts: list[Op] = []
            epoch = _epoch_of(known, committer)
            for key, of in items.items():
                topic = topics[of[0].topic]
                current = _kept(stored.get(key), topic)
                if not is_in_doubt and _is_late(of, current, epoch):
                    _check_committer(group_id, known, commits, committer)
                    raise StaleMemberEpoch(
                        f"group {group_id!r} has a commit of a newer epoch than {epoch}"
                    )
                left = _not_overtaken(of, _kept(first.get(key), topic), current, epoch)
                if left:
                    new = {one.partition: _entry(one, now_ms, epoch) for one in left}
                    puts.append(_put(key, topic, {**current, **new}, stored.get(key)))
            if not puts:
                return None  # Each was written by an earlier attempt or overtaken.
            try:
                _check_committer(group_id, known, commits, committer)
            except RiachoError as error:
                if is_in_doubt and stored != first:
                    return Undecided(error)
                raise
            await self._metadata.transact([_group_op(group_id, known), *puts])
            return None

        await retry(f"the offsets of group {group_id!r}", attempt, self._world.patience)

    async def planned(
        self, group_id: str, commits: Sequence[Commit], committer: Committer | None
    ) -> Planned:
        """Return the input of `ops`, which records the offsets within another transaction."""
        parse_group_id(group_id)
        topics = await self._checked_topics(commits)
        return Planned(
            group_id=group_id,
            commits=commits,
            committer=committer,
            topics=topics,
            items=_by_item(group_id, commits, topics),
        )

    async def check(self, planned: Planned) -> None:
        """Raise as `ops` does if the committer may not commit these now."""
        known = await self._coordinator.read(planned.group_id)
        _check_committer(planned.group_id, known, planned.commits, planned.committer)

    async def ops(self, planned: Planned) -> list[Op]:
        """Return the operations that record the offsets, for a transaction of the caller.

        The group and the offsets are read now. If they change before the transaction, it fails:
        call this again. Raises as `commit` does if the committer may not commit these.
        """
        known = await self._coordinator.read(planned.group_id)
        _check_committer(planned.group_id, known, planned.commits, planned.committer)
        stored = await self._metadata.get_many(list(planned.items))
        now_ms = self._world.now_ms()
        ops: list[Op] = [_group_op(planned.group_id, known)]
        epoch = _epoch_of(known, planned.committer)
        for key, of in planned.items.items():
            topic = planned.topics[of[0].topic]
            new = {one.partition: _entry(one, now_ms, epoch) for one in of}
            current = _kept(stored.get(key), topic)
            ops.append(_put(key, topic, {**current, **new}, stored.get(key)))
        return ops

    async def read(self, group_id: str) -> list[Committed]:
        """Return all offsets of the group, by topic and partition."""
        parse_group_id(group_id)
        found = [
            one
            async for name, item in self._stored(group_id)
            for one in await self._unpacked(name, item)
        ]
        return sorted(found, key=lambda one: (one.topic, one.partition))

    async def read_some(
        self, group_id: str, places: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the offsets of these partitions; those never committed are left out."""
        found = await self.read_these(group_id, places)
        return {place: one.offset for place, one in found.items()}

    async def read_these(
        self, group_id: str, places: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """Return what was committed for these partitions; the others are left out."""
        wanted: dict[str, str] = {}
        for topic_name, partition in places:
            # A topic or partition deleted meanwhile has no offset, and must not fail the others.
            with suppress(UnknownTopicOrPartition):
                topic = await self._topic(topic_name, partition)
                lane, _ = topic.lane_of(partition)
                wanted[keys.group_offsets(group_id, topic_name, lane)] = topic_name
        items = await self._metadata.get_many(list(wanted))
        asked = set(places)
        return {
            (one.topic, one.partition): one
            for key, item in items.items()
            for one in await self._unpacked(wanted[key], item)
            if (one.topic, one.partition) in asked
        }

    async def forget(self, group_id: str, places: Sequence[TopicPartition]) -> None:
        """Delete what was committed for these partitions, unless a member reads their topics.

        Raises `UnknownGroup`, and `GroupNotEmpty` for all of them if it is so for one.
        """
        wanted: dict[str, Topic] = {}
        for topic_name, partition in places:
            topic = await self._topic(topic_name, partition)
            lane, _ = topic.lane_of(partition)
            wanted[keys.group_offsets(group_id, topic_name, lane)] = topic
        gone = set(places)

        async def attempt(_: bool) -> None:
            known = await self._coordinator.read(group_id)
            if known.version is None:
                raise UnknownGroup(f"there is no group {group_id!r}")
            _check_unread(group_id, known.group, {topic.name for topic in wanted.values()})
            stored = await self._metadata.get_many(list(wanted))
            puts: list[Op] = []
            for key, item in stored.items():
                kept = _kept(item, wanted[key])
                left = {p: e for p, e in kept.items() if (wanted[key].name, p) not in gone}
                if len(left) < len(kept):
                    puts.append(_put(key, wanted[key], left, item))
            for start in range(0, len(puts), TRANSACT_OPS_MAX - 1):
                some = puts[start : start + TRANSACT_OPS_MAX - 1]
                await self._metadata.transact([Check(keys.group(group_id), known.version), *some])

        await retry(f"the offsets of group {group_id!r}", attempt, self._world.patience)

    async def expire(self, retention_ms: int) -> int:
        """Delete groups without members or commits for `retention_ms`; return how many."""
        oldest_ms = self._world.now_ms() - retention_ms

        def is_over(items: Sequence[Versioned]) -> bool:
            stamps = [e.committed_ms for item in items for e in _decode(item).partitions.values()]
            return all(stamp_ms < oldest_ms for stamp_ms in stamps)

        ended = 0
        for group_id, group in (await self._coordinator.all()).items():
            if group.members or await self._looked_ms(group_id) >= oldest_ms:
                continue
            # Check all items before the first is deleted. `delete` checks each again.
            items = [item async for _, item in self._stored(group_id)]
            with suppress(UnknownGroup, GroupNotEmpty):
                if is_over(items) and await self._coordinator.delete(group_id, is_over):
                    ended += 1
        return ended

    async def _looked_ms(self, group_id: str) -> int:
        """Return when the sessions of the group were last checked; 0: never."""
        watch = await self._metadata.get(keys.group_watch(group_id))
        return 0 if watch is None else sessions.decode(watch.value).looked_ms

    async def _stored(self, group_id: str) -> AsyncIterator[tuple[str, Versioned]]:
        """Yield all items of the group, each with the name of its topic."""
        prefix = keys.all_group_offsets(group_id)
        async for page in pages(self._metadata, prefix):
            for key, item in page:
                yield key.removeprefix(prefix).rsplit("/", 1)[0], item

    async def _checked_topics(self, commits: Sequence[Commit]) -> dict[str, Topic]:
        if not commits:
            raise InvalidRequest("offsets: there are none; give at least one")
        topics: dict[str, Topic] = {}
        seen: set[TopicPartition] = set()
        for number, commit in enumerate(commits):
            topics[commit.topic] = await self._topic(commit.topic, commit.partition)
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

    async def check_place(self, name: str, partition: PartitionNumber) -> None:
        """Raise `UnknownTopicOrPartition` if there is no such partition now."""
        try:
            if partition < 0:
                raise UnknownTopicOrPartition(f"partition {partition} cannot be")
            await self._topic(name, partition)
        except InvalidTopic as error:
            raise UnknownTopicOrPartition(str(error)) from None

    async def _topic(self, name: str, partition: PartitionNumber) -> Topic:
        """Return the topic, or raise `UnknownTopicOrPartition` if it has no such partition now."""
        topic = await self._topics.get(name)
        if partition >= topic.partition_count:
            topic = await self._topics.read(name)  # It may have grown since it was cached.
        topic.check_partition(partition)
        return topic

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
                offset=entry.offset,
                metadata=entry.metadata,
                committed_ms=entry.committed_ms,
                leader_epoch=entry.leader_epoch,
            )
            for partition, entry in stored.partitions.items()
        ]


def _check_unread(group_id: str, group: Group, topics: Collection[str]) -> None:
    for member_id in group.members:
        for topic in topics:
            if group.is_subscribed(member_id, topic):
                raise GroupNotEmpty(f"members of group {group_id!r} read {topic!r}")


def _kept(stored: Versioned | None, topic: Topic) -> Mapping[PartitionNumber, _Entry]:
    """Return what is stored for this topic; nothing if it is of a deleted one of that name."""
    if stored is None:
        return {}
    decoded = _decode(stored)
    return decoded.partitions if decoded.topic_id == topic.topic_id else {}


def _not_overtaken(
    commits: Sequence[Commit],
    first: Mapping[PartitionNumber, _Entry],
    current: Mapping[PartitionNumber, _Entry],
    epoch: int,
) -> list[Commit]:
    """Return the commits whose partition has the same entry as at the first attempt.

    Of two epochs of a member, the newer one overtakes the older, whichever arrives first.
    """

    def is_next(partition: PartitionNumber) -> bool:
        stored = current.get(partition)
        if stored is not None and min(epoch, stored.epoch) >= 0 and epoch != stored.epoch:
            return epoch > stored.epoch
        return first.get(partition) == stored

    return [one for one in commits if is_next(one.partition)]


def _is_late(
    commits: Sequence[Commit], current: Mapping[PartitionNumber, _Entry], epoch: int
) -> bool:
    """Whether a newer epoch has committed one of the partitions."""
    stored = [current.get(one.partition) for one in commits]
    return epoch >= 0 and any(entry is not None and entry.epoch > epoch for entry in stored)


def _epoch_of(known: Known, committer: Committer | None) -> int:
    """Return the epoch of a commit if an older one would be accepted, too; else -1."""
    if committer is None or not committer.is_kafka or known.group.classic is not None:
        return -1
    return committer.generation


def _put(
    key: str, topic: Topic, partitions: Mapping[PartitionNumber, _Entry], stored: Versioned | None
) -> Put:
    value = _encode(_Stored(topic.topic_id, dict(partitions)))
    if len(value) > VALUE_BYTES_MAX:
        raise InvalidRequest(
            f"offsets: those of {topic.name!r} would take {len(value)} bytes, the limit is"
            f" {VALUE_BYTES_MAX}; use shorter metadata"
        )
    return Put(key, value, None if stored is None else stored.version)


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
    if committer.is_nobody:
        return
    if committer.is_kafka and known.version is None:
        raise UnknownGroup(f"there is no group {group_id!r}")
    claimant = Claimant(
        member_id=committer.member_id,
        instance_id=committer.instance_id,
        generation=committer.generation,
    )
    if known.group.classic is not None:
        # What its members read is their affair.
        rounds.check_commit(known.group, claimant, is_transactional=committer.is_transactional)
        return
    if committer.is_kafka:
        places = [(commit.topic, commit.partition) for commit in commits]
        check_commit(group_id, known.group, claimant, places)
        return
    Coordinator.check(known, group_id, committer.member_id, committer.generation)
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
        # The commit creates the group, even though no member ever joined it.
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


def _entry(commit: Commit, now_ms: int, epoch: int) -> _Entry:
    return _Entry(commit.offset, commit.metadata, now_ms, commit.leader_epoch, epoch)


def _encode(stored: _Stored) -> bytes:
    entries = {partition: _fields(one) for partition, one in stored.partitions.items()}
    return frames.seal(_MAGIC, msgspec.msgpack.encode((stored.topic_id, entries)))


def _fields(entry: _Entry) -> tuple[int | str, ...]:
    """Return the fields of an entry without those at its end that were not given."""
    fields = (entry.offset, entry.metadata, entry.committed_ms, entry.leader_epoch, entry.epoch)
    count = 5 if entry.epoch >= 0 else 4 if entry.leader_epoch >= 0 else 3
    return fields[:count]


def _decode(item: Versioned) -> _Stored:
    return frames.unpack(_MAGIC, item.value, _DECODER, "committed offsets")
