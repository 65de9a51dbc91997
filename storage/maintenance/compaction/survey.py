"""Finds what is due by reading every lane's head and index. Rolls the lanes to be compacted."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from storage import keys
from storage.errors import RiachoError
from storage.formats.partitions import LanePartition, PartitionNumber
from storage.head import head as heads
from storage.head.head import Head
from storage.leases import LeaseLost
from storage.maintenance.compaction import plan
from storage.maintenance.compaction.hot import Hot
from storage.maintenance.compaction.plan import CompactionOptions, Rewrite, Skip, State
from storage.maintenance.compaction.swap import Swapper
from storage.reading.catalog import Catalog
from storage.topics.items import Topic

LANES_AT_ONCE_MAX: Final = 8

_STEP_ENTRIES: Final = 16_384
"""Maximum number of entries that are Python objects at once."""


@dataclass(frozen=True, slots=True)
class LanePlan:
    topic: Topic
    head: Head
    rewrites: tuple[Rewrite, ...]

    @property
    def key(self) -> str:
        return keys.head(self.topic.topic_id, self.head.lane)

    def number_of(self, partition: LanePartition) -> PartitionNumber:
        """Return the topic's number of a partition of the lane."""
        return self.topic.partition_of(self.head.lane, partition)

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.rewrites)

    @property
    def slice_count(self) -> int:
        return sum(len(each.hot) for each in self.rewrites)


ReportPartition = Callable[[Topic, PartitionNumber, str], None]
"""Called with a partition of a topic, and why it is not compacted."""


@dataclass(frozen=True, slots=True)
class Surveyor:
    swapper: Swapper
    options: CompactionOptions
    skipped: ReportPartition
    failed: ReportPartition
    rolls: bool = True
    """Whether to roll inline runs of lanes that are due; False: nothing is written."""

    async def survey(self, topics: Sequence[Topic]) -> AsyncIterator[LanePlan]:
        """Yield the lanes in which something is due."""
        lanes = [(topic, lane) for topic in topics for lane in topic.lanes]
        for at in range(0, len(lanes), LANES_AT_ONCE_MAX):
            batch = lanes[at : at + LANES_AT_ONCE_MAX]
            looks = [self._look(topic, lane) for topic, lane in batch]
            for found in await asyncio.gather(*looks):
                if found is not None and found.rewrites:
                    yield found

    async def _look(self, topic: Topic, lane: int) -> LanePlan | None:
        try:
            found = await self._decided(topic, lane)
        except LeaseLost:
            raise
        except RiachoError as error:
            for number in topic.partitions_of(lane):
                self.failed(topic, number, f"{error.code}: {error}")
            return None
        if found is None:
            return None
        head, decided = found
        for partition, each in decided.items():
            if isinstance(each, Skip):
                self.skipped(topic, topic.partition_of(lane, partition), each.reason)
        rewrites = tuple(each for each in decided.values() if isinstance(each, Rewrite))
        return LanePlan(topic, head, rewrites)

    async def _decided(
        self, topic: Topic, lane: int
    ) -> tuple[Head, dict[LanePartition, Skip | Rewrite]] | None:
        """Return what to do with each partition; None: the lane was deleted."""
        key = keys.head(topic.topic_id, lane)
        item = await self.swapper.metadata.get(key)
        if item is None:
            return None
        head = heads.decode(item.value, key)
        decided = await self._decide(topic, head, head.partitions, with_inline=True)
        due = [p for p, each in decided.items() if isinstance(each, Rewrite)]
        if due and self.rolls:
            head = await self.swapper.roll_all(key)
            decided |= await self._decide(topic, head, due, with_inline=False)
        return head, decided

    async def _decide(
        self, topic: Topic, head: Head, partitions: Sequence[LanePartition], *, with_inline: bool
    ) -> dict[LanePartition, Skip | Rewrite]:
        found: dict[LanePartition, Skip | Rewrite] = {}
        for partition in partitions:
            number = topic.partition_of(head.lane, partition)
            catalog = self.swapper.catalog
            state = await read_state(catalog, head, partition, number, with_inline=with_inline)
            found[partition] = plan.decide(topic.config, state, self.options)
        return found


async def read_state(
    catalog: Catalog,
    head: Head,
    partition: LanePartition,
    number: PartitionNumber,
    *,
    with_inline: bool,
) -> State:
    """Return the state of a partition. `with_inline`: for a decision only, not to compact."""
    root = await catalog.root(head)
    covers, log_start = root.covered(partition), head.log_starts[partition]
    end = head.next_offsets[partition]
    if not with_inline:
        end = heads.inline_start(head, partition)
    parts: list[Hot] = []
    offset = max(covers, log_start)
    while offset < end:
        entries = await catalog.after(head, partition, offset, _STEP_ENTRIES)
        if not entries:
            break
        offset = entries[-1].end_offset
        parts.append(Hot.of(entries).before(end))
    return State(
        partition=partition,
        number=number,
        log_start=log_start,
        covers=covers,
        list_id=root.segment_list(partition),
        listed=await catalog.segment_list(head, partition),
        hot=Hot.joined(parts),
    )
