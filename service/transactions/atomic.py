"""Atomic calls: records of many topics and group offsets in one request, all or nothing.

One object is written and one metadata transaction commits it. If the commit fails, the object is
left unreferenced. With a guard (guards.py), a repeated call gets the first reply; without one, a
call whose outcome is unknown cannot be resolved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from service.groups.offsets import Offsets, Planned
from service.log.gateway import Gateway
from service.process.limits.record_limits import record_bytes
from service.transactions import state
from service.transactions.commit import GroupCommit
from service.transactions.guards import Guard, GuardedAnswer, Unguarded
from service.transactions.state import Results, Staged
from storage import keys
from storage.cas import Undecided, retry
from storage.errors import (
    HeadGone,
    HeadMissing,
    InvalidRecord,
    MetadataConflict,
    OutcomeUnknown,
    RecordTooLarge,
    RiachoError,
    Unavailable,
    UnknownTopicOrPartition,
)
from storage.formats.partitions import FIRST, PartitionNumber
from storage.lanes.atomic import Bases, LaneRuns, check_width
from storage.lanes.commits import too_late
from storage.lanes.rolls import FLIGHT_MAX_S, TRUSTED_S
from storage.stores.metadata import Op
from storage.topics.topics import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecords:
    """The records of a request for one topic."""

    topic: str
    batch: pa.RecordBatch
    wanted: list[PartitionNumber | None] | None
    """The partition that each record asks for; None: no record asks for one."""
    rows: list[int]
    """The position of each record in the request."""


class Atomic:
    def __init__(self, gateway: Gateway, offsets: Offsets) -> None:
        self._gateway = gateway
        self._offsets = offsets

    async def write(
        self,
        records: Sequence[TopicRecords],
        size_bytes: int,
        offsets: GroupCommit | None,
        guard: Guard,
    ) -> GuardedAnswer:
        """Append the records and commit the offsets, or nothing. `guard` detects repeated calls.

        Raises `TransactionTooLarge` before anything is written, what producing and committing
        offsets raise, and what the guard raises.
        """
        if not records and offsets is not None and isinstance(guard, Unguarded):
            await self._offsets.commit(offsets.group_id, offsets.commits, offsets.committer)
            return guard.answer({})
        call = _Call(self._gateway, self._offsets, records, size_bytes, offsets, guard)
        if isinstance(guard, Unguarded):
            return await call.once()
        return await retry("the log", call.attempt, self._gateway.world.patience)


class _Call:
    def __init__(
        self,
        gateway: Gateway,
        offsets: Offsets,
        records: Sequence[TopicRecords],
        size_bytes: int,
        group_commit: GroupCommit | None,
        guard: Guard,
    ) -> None:
        self._gateway = gateway
        self._offsets = offsets
        self._records = records
        self._size_bytes = size_bytes
        self._group_commit = group_commit
        self._guard = guard
        self._written: tuple[Mapping[str, Topic], list[LaneRuns]] | None = None
        self._born_s = 0.0

    async def attempt(self, is_in_doubt: bool) -> GuardedAnswer | Undecided:
        try:
            return await self.once()
        except (MetadataConflict, OutcomeUnknown, Unavailable):
            raise
        except RiachoError as error:
            if is_in_doubt:
                return Undecided(error)
            if self._written is not None:
                # A copy of this call may have succeeded before the cause of this error arose.
                answer = await self._guard.look()
                if answer is not None:
                    return answer
            raise

    async def once(self) -> GuardedAnswer:
        answer = await self._guard.look()
        if answer is not None:
            return answer
        known = {of.topic: await self._gateway.topics.get(of.topic) for of in self._records}
        try:
            return await self._commit(known)
        except UnknownTopicOrPartition as error:
            # A topic may have been deleted, recreated or widened since it was cached. An earlier
            # attempt may have been applied before that, which only a guard can detect.
            if self._written is not None and isinstance(self._guard, Unguarded):
                raise
            answer = await self._guard.look()
            if answer is not None:
                return answer
            now = {name: await self._gateway.topics.read(name) for name in known}
            _check_head(error, now)
            if now == known:
                raise
        return await self._commit(now)

    async def _commit(self, topics: Mapping[str, Topic]) -> GuardedAnswer:
        planned = None
        if self._group_commit is not None:
            of = self._group_commit
            planned = await self._offsets.planned(of.group_id, of.commits, of.committer)
        written = await self._write(topics, planned)

        done: GuardedAnswer | None = None

        async def plan(bases: Bases) -> list[Op] | None:
            nonlocal done
            if self._gateway.world.monotonic_s() - self._born_s > FLIGHT_MAX_S:
                raise too_late()
            ops = await self._guard.ops(_results(topics, written, bases))
            if isinstance(ops, GuardedAnswer):
                done = ops
                return None
            return ops if planned is None else ops + await self._offsets.ops(planned)

        if self._gateway.world.monotonic_s() - self._born_s > TRUSTED_S:
            written = [replace(lane, is_old=True) for lane in written]
        bases = await self._gateway.atomic.commit(written, plan)
        if bases is None:
            assert done is not None, "only a write that has happened already is withdrawn"
            return done
        return self._guard.answer(_results(topics, written, bases))

    async def _write(self, topics: Mapping[str, Topic], planned: Planned | None) -> list[LaneRuns]:
        """Stage the records, unless they are staged for these topics already; return the runs."""
        if self._written is not None and self._written[0] == topics:
            return self._written[1]
        appends = [
            (topics[of.topic], await assigned(self._gateway, topics[of.topic], of))
            for of in self._records
        ]
        lanes = {
            (topic.topic_id, topic.lane_of(partition)[0])
            for topic, parts in appends
            for partition in parts
        }
        others = self._guard.op_count + (planned.op_count if planned else 0)
        check_width(len(lanes), others)
        self._born_s = self._gateway.world.monotonic_s()
        written = await self._gateway.batcher.stage(appends, self._size_bytes)
        self._written = topics, written
        return written


def _check_head(error: UnknownTopicOrPartition, topics: Mapping[str, Topic]) -> None:
    """Raise `HeadMissing` if the missing head is of one of these topics, which still exist."""
    if not isinstance(error, HeadGone):
        return
    for topic in topics.values():
        if error.key in [keys.head(topic.topic_id, lane) for lane in topic.lanes]:
            raise HeadMissing(topic.name, error.key) from error


async def assigned(
    gateway: Gateway, topic: Topic, records: TopicRecords
) -> Mapping[PartitionNumber, pa.RecordBatch]:
    """Return the records of each partition, or raise an error that names the invalid record."""
    batch, rows = records.batch, records.rows
    if topic.config.is_compacted and batch.column("key").null_count:
        row = rows[batch.column("key").is_null().to_pylist().index(True)]
        raise InvalidRecord(
            f"records[{row}]: topic {topic.name!r} is compacted, so every record needs a key"
        )
    for row, partition in zip(rows, records.wanted or (), strict=bool(records.wanted)):
        if partition is not None and partition >= topic.partition_count:
            raise UnknownTopicOrPartition(
                f"records[{row}].partition is {partition}, but topic {topic.name!r} has"
                f" {topic.partition_count} partitions, 0 to {topic.partition_count - 1}"
            )
    limit = topic.config.record_bytes_max
    if batch.nbytes > limit:
        for row, size_bytes in zip(rows, record_bytes(batch).to_pylist(), strict=True):
            if size_bytes > limit:
                raise RecordTooLarge(
                    f"records[{row}] has {size_bytes} bytes of key, value and headers; a record of"
                    f" topic {topic.name!r} may have {limit}"
                )
    return await gateway.assigned(topic, batch, records.wanted, rows=rows)


def _results(topics: Mapping[str, Topic], written: Sequence[LaneRuns], bases: Bases) -> Results:
    by_id = {topic.topic_id: topic for topic in topics.values()}
    staged = [
        Staged(
            by_id[each.topic_id].name,
            each.topic_id,
            each.lane,
            by_id[each.topic_id].partition_of(each.lane, FIRST),
            each.runs,
        )
        for each in written
    ]
    return state.results_of(staged, bases)
