"""Cuts plans into units, and collects their results for the swap of a lane."""

from dataclasses import dataclass
from typing import Final

from storage.formats.partitions import LanePartition
from storage.formats.segment_list import Segment
from storage.maintenance.compaction import plan, units
from storage.maintenance.compaction.plan import CompactionOptions, Range, Rewrite
from storage.maintenance.compaction.summary import Compacted
from storage.maintenance.compaction.survey import LanePlan
from storage.maintenance.compaction.swap import Change
from storage.maintenance.compaction.units import Rewritten, Unit

BUCKETS_MAX: Final = 256

STAY_SHARE: Final = 4
"""Segments of at least 1/`STAY_SHARE` of a task's output need not be merged with neighbours."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A unit, and the gathering that waits for its result."""

    into: "Gathering"
    partition: LanePartition
    """Within the lane."""
    number: int
    size_bytes: int
    record_count: int
    unit: Unit


class Gathering:
    """Collects the results of a lane until they are complete."""

    def __init__(self, lane: LanePlan) -> None:
        self.lane = lane
        self.failures: dict[LanePartition, str] = {}
        """By partition of the lane."""
        self.is_settled = False
        self._rewrites = {each.state.partition: each for each in lane.rewrites}
        self._results: dict[LanePartition, list[Rewritten | None]] = {}

    def cut(
        self, rewrite: Rewrite, size_bytes: int, options: CompactionOptions, data_key: int = 0
    ) -> list[Piece]:
        """Return the units of a rewrite, of about `size_bytes`, and expect their results.

        They are sealed with the topic's data key of that number; 0: not at all.
        """
        ranges = plan.ranges(rewrite, size_bytes) if rewrite.size_bytes else []
        partition = rewrite.state.partition
        self._results[partition] = [None] * len(ranges)
        lane = units.slim(self.lane.head)
        buckets = min(len(ranges), BUCKETS_MAX)
        topic = self.lane.topic
        typed = topic.name if topic.config.has_columns and not data_key else ""
        return [
            Piece(
                into=self,
                partition=partition,
                number=number,
                size_bytes=each.size_bytes,
                record_count=each.record_count,
                unit=_unit(lane, rewrite, each, number, buckets, options, data_key, typed),
            )
            for number, each in enumerate(ranges)
        ]

    def take(self, piece: Piece, result: Rewritten) -> None:
        self._results[piece.partition][piece.number] = result
        if result.error:
            self.failures[piece.partition] = result.error

    def give_up(self, reason: str, partition: LanePartition | None = None) -> None:
        """Record missing results as failures, for one partition or for all."""
        for each in self._rewrites if partition is None else [partition]:
            if not self._is_whole(each):
                self.failures.setdefault(each, reason)

    def _is_whole(self, partition: LanePartition) -> bool:
        return all(each is not None for each in self._results.get(partition, [None]))

    @property
    def is_complete(self) -> bool:
        return all(p in self.failures or self._is_whole(p) for p in self._rewrites)

    def changes(self) -> dict[LanePartition, Change]:
        """Return the changes to swap, by partition of the lane."""
        return {
            partition: Change(rewrite, self._written(partition))
            for partition, rewrite in self._rewrites.items()
            if partition not in self.failures
        }

    def _found(self, partition: LanePartition) -> list[Rewritten]:
        return [each for each in self._results[partition] if each is not None]

    def _written(self, partition: LanePartition) -> tuple[Segment, ...]:
        return tuple(segment for each in self._found(partition) for segment in each.segments)

    def compacted(self, partition: LanePartition) -> Compacted:
        results = self._found(partition)
        rewrite = self._rewrites[partition]
        return Compacted(
            topic=self.lane.topic.name,
            partition=rewrite.state.number,
            kind=rewrite.kind,
            records_in=sum(each.records_in for each in results),
            records_out=sum(each.records_out for each in results),
            bytes_in=sum(each.bytes_in for each in results),
            bytes_out=sum(each.bytes_out for each in results),
        )


def _unit(
    lane: bytes,
    rewrite: Rewrite,
    part: Range,
    number: int,
    buckets: int,
    options: CompactionOptions,
    data_key: int,
    typed: str,
) -> Unit:
    return Unit(
        lane=lane,
        partition=rewrite.state.partition,
        number=rewrite.state.number,
        is_keyed=rewrite.kind == "keyed",
        log_start=rewrite.state.log_start,
        start_offset=part.start_offset,
        end_offset=part.end_offset,
        horizon=rewrite.horizon,
        segment_bytes=rewrite.segment_bytes,
        stay_bytes_min=min(rewrite.segment_bytes, options.range_bytes_max) // STAY_SHARE,
        segments=part.segments,
        hot=part.hot.encode(),
        range_number=number,
        bucket_count=buckets,
        data_key=data_key,
        typed=typed,
    )
