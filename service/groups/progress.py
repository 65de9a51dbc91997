"""Progress of groups: lag, and resets of committed offsets."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from service.groups.assignors import TopicPartition
from service.groups.coordinator import Coordinator
from service.groups.offsets import Commit, Committed, Offsets
from service.log.gateway import Gateway, Position, Wait
from storage.errors import (
    EncryptionKeyUnavailable,
    GroupNotEmpty,
    InvalidRequest,
    OffsetOutOfRange,
    UnknownGroup,
    UnknownTopicOrPartition,
)
from storage.formats.partitions import PartitionNumber
from storage.reading.reader import Budget

LOOKUPS_AT_ONCE: Final = 16

ResetTo = Literal["earliest", "latest", "timestamp", "offset", "shift"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    topic: str
    partition: PartitionNumber
    committed_offset: int
    log_start_offset: int
    high_watermark: int
    lag: int
    lag_seconds: float
    """Age of the first record that is not yet read; 0 if there is none."""
    member_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """The target of a reset: `value` is the timestamp, offset or shift, if `to` takes one."""

    to: ResetTo
    value: int = 0
    topics: Sequence[str] = ()
    partitions: Sequence[TopicPartition] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    topic: str
    partition: PartitionNumber
    before: int | None
    after: int


class Progress:
    def __init__(self, gateway: Gateway, coordinator: Coordinator, offsets: Offsets) -> None:
        self._gateway = gateway
        self._coordinator = coordinator
        self._offsets = offsets

    async def lag(self, group_id: str) -> list[Lag]:
        """Return the lag of every partition that the group has committed or is assigned."""
        known = await self._coordinator.read(group_id)
        if known.version is None:
            raise UnknownGroup(f"there is no group {group_id!r}")
        owners = {
            place: member
            for member in known.group.members
            for place in known.group.assignment(member)
        }
        committed = {(c.topic, c.partition): c for c in await self._offsets.read(group_id)}
        places = sorted({*committed, *owners})
        lags: list[Lag | None] = []
        for start in range(0, len(places), LOOKUPS_AT_ONCE):
            lags += await asyncio.gather(
                *(
                    self._lag(place, committed.get(place), owners.get(place))
                    for place in places[start : start + LOOKUPS_AT_ONCE]
                )
            )
        return [lag for lag in lags if lag is not None]

    async def _lag(
        self, place: TopicPartition, committed: Committed | None, member_id: str | None
    ) -> Lag | None:
        """Return the lag of one partition; None if the partition does not exist any more."""
        topic, partition = place
        try:
            info = await self._gateway.partition(topic, partition)
        except UnknownTopicOrPartition:
            return None
        # A partition without a commit is counted from the start of the log.
        offset = info.log_start_offset if committed is None else committed.offset
        start = max(offset, info.log_start_offset)
        behind = max(0, info.high_watermark - start)
        waiting_s = await self._waiting_s(topic, partition, start) if behind else 0.0
        return Lag(
            topic=topic,
            partition=partition,
            committed_offset=-1 if committed is None else committed.offset,
            log_start_offset=info.log_start_offset,
            high_watermark=info.high_watermark,
            lag=behind,
            lag_seconds=waiting_s,
            member_id=member_id,
        )

    async def _waiting_s(self, topic: str, partition: PartitionNumber, offset: int) -> float:
        """Return the age of the record at `offset`; 0 if it was deleted, or its key is lost."""
        try:
            first = await self._gateway.fetch(
                topic,
                partition,
                Position(offset=offset),
                Budget(records_max=1, bytes_max=1),
                Wait(),
            )
        except (OffsetOutOfRange, UnknownTopicOrPartition, EncryptionKeyUnavailable):
            return 0.0
        for _, batch in first.fetched.batches(1):
            stamp_ms: int = batch.column(0)[0].as_py()
            return max(0.0, (self._gateway.world.now_ms() - stamp_ms) / 1000)
        return 0.0

    async def reset(
        self, group_id: str, reset: Reset, *, dry_run: bool, check: Callable[[str], None]
    ) -> list[Moved]:
        """Move the committed offsets of the group and return the moves; a dry run only returns.

        `check` gets every topic first, and raises an error for those that must not be moved.
        """
        known = await self._coordinator.read(group_id)
        if known.group.members and not dry_run:
            raise GroupNotEmpty(
                f"group {group_id!r} has {len(known.group.members)} members; stop them first, or"
                " give dry_run to see what would happen"
            )
        for topic in {*reset.topics, *(topic for topic, _ in reset.partitions)}:
            check(topic)
        before = {(c.topic, c.partition): c.offset for c in await self._offsets.read(group_id)}
        places = await self._places(reset, list(before))
        if not places:
            raise InvalidRequest(
                f"group {group_id!r} has committed nothing; name topics or partitions to set"
            )
        for topic in {topic for topic, _ in places}:
            check(topic)
        moved = [await self._moved(place, before.get(place), reset) for place in places]
        if not dry_run:
            commits = [Commit(topic=m.topic, partition=m.partition, offset=m.after) for m in moved]
            await self._offsets.commit(group_id, commits, None)
        return moved

    async def _places(
        self, reset: Reset, committed: Sequence[TopicPartition]
    ) -> list[TopicPartition]:
        if reset.partitions:
            return sorted(set(reset.partitions))
        if not reset.topics:
            return sorted(committed)
        places: list[TopicPartition] = []
        for name in sorted(set(reset.topics)):
            topic = await self._gateway.topics.get(name)
            places += [(name, partition) for partition in topic.partitions]
        return places

    async def _moved(self, place: TopicPartition, before: int | None, reset: Reset) -> Moved:
        topic, partition = place
        info = await self._gateway.partition(topic, partition)
        match reset.to:
            case "earliest":
                after = info.log_start_offset
            case "latest":
                after = info.high_watermark
            case "timestamp":
                after, _ = await self._gateway.offset_at(topic, partition, reset.value)
            case "offset":
                after = reset.value
            case "shift":
                after = (info.log_start_offset if before is None else before) + reset.value
        # Beyond either end of the log there is nothing to read: clamp to it.
        after = min(max(after, info.log_start_offset), info.high_watermark)
        return Moved(topic=topic, partition=partition, before=before, after=after)
