"""The task of the mirror: copies its share of the partitions, and offsets of groups.

What was copied is known by positions alone, as MirrorMaker has them, and "syncs" besides:

    {"cluster", "topic", "partition"} -> {"offset": the last one copied, "syncs": an offset map}
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from service.connect.config.values import Values
from service.connect.connectors.api import LogAccess, Position, TaskContext, TopicPartition
from service.connect.connectors.mirror.cluster import SourceCluster
from service.connect.connectors.mirror.keys import KEYS, SHARE, naming_of
from service.connect.connectors.mirror.offset_map import OffsetMap, map_of
from service.connect.connectors.mirror.selection import chosen, share_of
from service.connect.data.errors import TaskFault
from service.connect.data.records import ConnectRecord, FromSource, Header
from service.connect.data.schema import BYTES, ConnectSchema
from storage import tasks

if TYPE_CHECKING:
    from confluent_kafka import Message

FIRST_GROUPS_S: Final = 5.0
"""Groups are copied first so long after the start: a run in a function lasts a minute."""

SYNC_S: Final = 2.0
"""How often it is noted where offsets are here, at most; only for groups."""

SYNCS_AT_ONCE: Final = 200
"""Partitions of one such round."""

_BYTES: Final[ConnectSchema] = BYTES.optional()


@dataclass
class _Copied:
    """A partition of the source that this task copies."""

    position: Position
    here: TopicPartition
    last: int | None
    """The last offset that was given to the runner; None: nothing yet."""
    map: OffsetMap = field(default_factory=OffsetMap)
    syncs: list[list[int]] = field(default_factory=list)

    @property
    def following(self) -> int | None:
        return None if self.last is None else self.last + 1


class MirrorSource:
    def __init__(self, context: TaskContext) -> None:
        if context.log is None:
            raise TaskFault("the mirror needs a log: it creates topics")
        self._log: LogAccess = context.log
        self._context = context
        values = self._values = Values(KEYS, context.config)
        self._naming = naming_of(values)
        self._share = share_of(values[SHARE])
        self._topics = chosen(values["topics"], values["topics.exclude"])
        self._configs = chosen((".*",), values["config.properties.exclude"])
        self._groups = chosen(values["groups"], values["groups.exclude"])
        self._cluster: SourceCluster | None = None
        self._polling: asyncio.Task[list[Message]] | None = None
        self._copied: dict[TopicPartition, _Copied] = {}
        self._moved: dict[TopicPartition, None] = {}
        """Partitions whose syncs are older than what was copied, the oldest first."""
        self._monotonic_s = context.environment.world.monotonic_s
        self._refresh_due_s = self._groups_due_s = self._sync_due_s = 0.0

    async def start(self) -> None:
        files = self._context.environment.files
        name = self._context.connector
        config = self._context.config
        self._cluster = await asyncio.to_thread(SourceCluster, config, files, name)
        await self._refresh()
        now_s = self._monotonic_s()
        every_s = self._values["sync.group.offsets.interval.seconds"]
        self._groups_due_s = now_s + min(every_s, FIRST_GROUPS_S)
        self._moved = dict.fromkeys(self._copied)

    async def poll(self, wait_s: float, records_max: int) -> Sequence[ConnectRecord]:
        if self._values["refresh.topics.enabled"] and self._monotonic_s() >= self._refresh_due_s:
            await self._refresh()
        await self._sync_offsets()
        await self._sync_groups()
        if self._source.lost:
            await asyncio.to_thread(self._find_again)
        if self._polling is None:
            longest_s = min(wait_s, self._values["consumer.poll.timeout.ms"] / 1000)
            poll = asyncio.to_thread(self._source.poll, longest_s, records_max)
            self._polling = tasks.shared(poll)
        polled = self._polling
        # Not cancelled with us: a caller that stops waiting gets these records from its next call.
        await asyncio.wait([polled])
        self._polling = None
        messages = polled.result()
        self._context.metric("source_reachable", float(self._source.is_reachable))
        return [self._record(message) for message in messages]

    def _find_again(self) -> None:
        """Go on in partitions that do not have the offset that follows."""
        while self._source.lost:
            at = self._source.lost[-1]
            start, end = self._source.span(at)
            following = self._copied[at].following or start
            if following > end:
                raise TaskFault(
                    f"{at.topic}, partition {at.partition}, ends at {end} in the source, and was"
                    f" copied up to {following}: it was made anew, or has lost records. Delete its"
                    " position with the offsets API to copy it from its beginning"
                )
            # What is before the start is gone: the source has deleted it.
            self._source.seek(at, max(following, start))
            self._source.lost.pop()

    async def committed(self) -> None:
        """Nothing is held for what is copied: the consumer has let go of it."""

    async def stop(self) -> None:
        if self._polling is not None:
            await asyncio.wait([self._polling])  # Nothing may use the consumer while it closes.
        if self._cluster is not None:
            await asyncio.to_thread(self._cluster.close)

    @property
    def _source(self) -> SourceCluster:
        assert self._cluster is not None, "not started"
        return self._cluster

    def _record(self, message: "Message") -> ConnectRecord:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None, message
        assert partition is not None, message
        assert offset is not None, message
        at = TopicPartition(topic, partition)
        copied = self._copied[at]
        copied.last = offset
        self._moved.setdefault(at)
        kind, timestamp_ms = message.timestamp()
        headers = cast("Sequence[tuple[str, bytes | None]]", message.headers() or ())
        return ConnectRecord(
            topic=copied.here.topic,
            partition=partition,
            key=message.key(),
            value=message.value(),
            key_schema=_BYTES,
            value_schema=_BYTES,
            timestamp_ms=timestamp_ms if kind else None,
            headers=tuple(Header(name, value, _BYTES) for name, value in headers),
            origin=FromSource(copied.position, {"offset": offset, "syncs": copied.syncs}),
        )

    async def _refresh(self) -> None:
        """Find topics and partitions that are new, create them here, and begin to copy them."""
        found = await asyncio.to_thread(self._source.partitions, self._is_wanted)
        mine = [
            TopicPartition(topic, partition)
            for topic, count in sorted(found.items())
            for partition in range(count)
            if self._share.has(topic, partition)
        ]
        new = [at for at in mine if at not in self._copied]
        await self._create({at.topic: found[at.topic] for at in new})
        await self._begin(new)
        self._context.metric("partitions", len(self._copied))
        every_s = self._values["refresh.topics.interval.seconds"]
        self._refresh_due_s = self._monotonic_s() + every_s

    def _is_wanted(self, topic: str) -> bool:
        return self._topics(topic) and not self._naming.is_ours(topic)

    async def _create(self, topics: Mapping[str, int]) -> None:
        configs: Mapping[str, Mapping[str, str]] = {}
        if self._values["sync.topic.configs.enabled"]:
            configs = await asyncio.to_thread(self._source.configs, list(topics), self._configs)
        for topic, count in topics.items():
            await self._log.create_topic(self._naming.here(topic), count, configs.get(topic, {}))

    async def _begin(self, new: Sequence[TopicPartition]) -> None:
        positions = [self._position(at) for at in new]
        stored = await self._context.offsets.read(positions)
        begun = {}
        for at, position, offset in zip(new, positions, stored, strict=True):
            last, said = _read(offset)
            here = TopicPartition(self._naming.here(at.topic), at.partition)
            begun[at] = _Copied(position, here, last, map_of(said), said)
        starts = {at: copied.following for at, copied in begun.items()}
        await asyncio.to_thread(self._source.assign, starts)
        self._copied |= begun
        if self._values["sync.group.offsets.enabled"]:
            await self._note([at for at in new if begun[at].last is None])

    def _position(self, at: TopicPartition) -> Position:
        cluster = self._naming.source
        return {"cluster": cluster, "topic": at.topic, "partition": at.partition}

    async def _sync_offsets(self) -> None:
        now_s = self._monotonic_s()
        is_due = self._values["sync.group.offsets.enabled"] and now_s >= self._sync_due_s
        if is_due and self._moved:
            await self._note([*self._moved][:SYNCS_AT_ONCE])
            self._sync_due_s = now_s + SYNC_S

    async def _note(self, places: Sequence[TopicPartition]) -> None:
        """Note where offsets of partitions are here.

        What `poll` gave before is in the log when it is called again. The position is read after
        the end: if it is still ours, no other task had copied more when the end was read.
        """
        ends = [await self._log.end_offset(self._copied[at].here) for at in places]
        stored = await self._context.offsets.read([self._copied[at].position for at in places])
        for at, end, offset in zip(places, ends, stored, strict=True):
            copied = self._copied[at]
            self._moved.pop(at, None)
            last, _ = _read(offset)
            if last == copied.last:
                copied.map.add(copied.following or 0, end)
                copied.syncs = copied.map.pairs
            else:
                self._moved.setdefault(at)  # Not in the log yet, or another task has it now.

    async def _sync_groups(self) -> None:
        if not self._values["sync.group.offsets.enabled"]:
            return
        if self._monotonic_s() < self._groups_due_s:
            return
        there = await asyncio.to_thread(self._source.group_offsets, self._groups)
        for group, offsets in there.items():
            await self._commit(group, self._translated(offsets.items()))
        every_s = self._values["sync.group.offsets.interval.seconds"]
        self._groups_due_s = self._monotonic_s() + every_s

    def _translated(
        self, offsets: Iterable[tuple[TopicPartition, int]]
    ) -> dict[TopicPartition, int]:
        found = {}
        for at, offset in offsets:
            copied = self._copied.get(at)
            here = None if copied is None else copied.map.translate(offset)
            if copied is not None and here is not None:
                found[copied.here] = here
        return found

    async def _commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit for a group, forwards only: it may have read on here already."""
        if not offsets:
            return
        known = await self._log.group_offsets(group)
        newer = {at: offset for at, offset in offsets.items() if offset > known.get(at, -1)}
        if newer:
            await self._log.commit_group_offsets(group, newer)


def _read(offset: Position | None) -> tuple[int | None, Any]:
    """Return the last offset that was copied, and the syncs, of a stored position."""
    if offset is None:
        return None, []
    last = offset.get("offset")
    if type(last) is not int or last < -1:
        raise TaskFault(f"a stored position has no offset: {dict(offset)}")
    return last, offset.get("syncs") or []
