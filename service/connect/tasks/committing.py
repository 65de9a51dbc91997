"""RunCommits of a task: records, positions, offsets and its item in one metadata transaction.

Records are staged as one object, and the transaction that makes them visible is the one that says
how far the task has come (`service/transactions/atomic.py`). The item of the task is its guard: it
holds the token of its last commit, by which one is recognised that happened and was not answered.

An attempt whose outcome stays unknown ends the run: the next one begins with what is stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from service.connect.access.parts import ConnectParts
from service.connect.access.rights import caller_of
from service.connect.access.topics import topic_of
from service.connect.connectors.api import TopicPartition
from service.connect.data.errors import RetriableFault, TaskFault
from service.connect.data.log_records import LogRecord
from service.connect.tasks.api import NO_OFFSETS, NO_POSITIONS, RecordsRefused, RunOver, TooWide
from service.connect.tasks.holding import Holding
from service.connect.tasks.items import (
    RUNNING,
    OffsetItem,
    RunHealth,
    TaskItem,
    digest_of,
    encode_offset,
    group_of,
)
from service.groups.offsets import Commit
from service.security.acls import Operation, ResourceType
from service.security.caller import Caller
from service.transactions.atomic import Atomic, TopicRecords
from service.transactions.commit import GroupCommit
from service.transactions.guards import GuardedAnswer
from service.transactions.state import Results
from storage import keys
from storage.errors import (
    InvalidRecord,
    OutcomeUnknown,
    RecordTooLarge,
    RiachoError,
    TransactionTooLarge,
    Unavailable,
)
from storage.formats.partitions import PartitionNumber
from storage.formats.records import Header, record_batch
from storage.leases import LeaseLost
from storage.stores.metadata import Op, Put, Versioned

TOPICS_SHOWN_MAX: Final = 1000
"""Of the topics of a task its item names at most so many."""

_TOKEN_BYTES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """What a commit adds to the item of the task."""

    token: bytes
    topics: Sequence[str]
    read: int
    errors: int
    gauges: Mapping[str, float]
    now_ms: int

    def item(self, task: TaskItem, worker: str) -> TaskItem:
        health = task.health
        if health.failures or health.state != RUNNING:
            # What was committed shows that it runs.
            health = RunHealth(
                state=RUNNING,
                worker=worker,
                trace=health.trace,
                restarts=health.restarts,
                changed_ms=self.now_ms,
            )
        topics = tuple(sorted({*task.topics, *self.topics}))[:TOPICS_SHOWN_MAX]
        return msgspec.structs.replace(
            task,
            health=health,
            commit=self.token,
            records=task.records + self.read,
            errors=task.errors + self.errors,
            committed_ms=self.now_ms,
            topics=topics,
            gauges=dict(self.gauges),
            waiting="",
        )


class TaskGuard:
    """Makes an atomic write hold only for the run that does it, and happen once."""

    def __init__(
        self, holding: Holding, done: _Done, positions: Mapping[bytes, bytes | None]
    ) -> None:
        self._holding = holding
        self._done = done
        name = holding.connector.name
        self._positions = {
            keys.connect_offset(name, digest_of(partition)): OffsetItem(
                name, partition, b"null" if offset is None else offset, done.now_ms
            )
            for partition, offset in positions.items()
        }
        self.op_count = 3 + len(self._positions)
        self._seen: Mapping[str, Versioned] | None = None

    async def look(self) -> GuardedAnswer | None:
        wanted = [*self._holding.keys, *self._positions]
        found = await self._holding.metadata.get_many(wanted)
        task = self._holding.task_in(found)
        if task is not None and task.commit == self._done.token:
            return GuardedAnswer(results=None)
        reason = self._holding.over(found)
        if reason:
            raise RunOver(reason)
        self._seen = found
        return None

    async def ops(self, _: Results) -> list[Op] | GuardedAnswer:
        if self._seen is None:
            answer = await self.look()
            if answer is not None:
                return answer
        found, self._seen = self._seen, None
        assert found is not None, self._holding.keys
        task = self._holding.task_in(found)
        assert task is not None, self._holding.keys
        ops = self._holding.fence(found, self._done.item(task, self._holding.worker))
        for key, item in self._positions.items():
            stored = found.get(key)
            expected = None if stored is None else stored.version
            ops.append(Put(key, encode_offset(item), expected))
        return ops

    def answer(self, results: Results) -> GuardedAnswer:
        return GuardedAnswer(results=results)


class RunCommits:
    """Implements `TaskCommits` for one run."""

    def __init__(self, parts: ConnectParts, holding: Holding, config: Mapping[str, str]) -> None:
        self._parts = parts
        self._holding = holding
        self._config = config
        self._atomic = Atomic(parts.gateway, parts.offsets)
        self._prefix = holding.connector.name_prefix
        self.gauges: dict[str, float] = {}
        self.waiting = ""
        self.count = 0
        """RunCommits so far."""

    async def commit(
        self,
        *,
        records: Sequence[LogRecord] = (),
        positions: Mapping[bytes, bytes | None] = NO_POSITIONS,
        group: Mapping[TopicPartition, int] = NO_OFFSETS,
        read: int = 0,
        errors: int = 0,
    ) -> None:
        try:
            await self._commit(records, positions, group, read, errors)
        except LeaseLost:
            raise
        except TransactionTooLarge as error:
            raise TooWide(str(error)) from error
        except OutcomeUnknown as error:
            raise RunOver(f"the outcome of a commit is unknown: {error}") from error
        except Unavailable as error:
            raise RetriableFault(f"the log: {error}") from error
        except (InvalidRecord, RecordTooLarge) as error:
            raise RecordsRefused(f"the log: {error} ({error.code})") from error
        except RiachoError as error:
            raise TaskFault(f"the log: {error} ({error.code})") from error
        self.count += 1

    async def _commit(
        self,
        records: Sequence[LogRecord],
        positions: Mapping[bytes, bytes | None],
        group: Mapping[TopicPartition, int],
        read: int,
        errors: int,
    ) -> None:
        caller = await caller_of(self._parts, self._holding.connector)
        world = self._holding.world
        by_topic: dict[str, list[LogRecord]] = {}
        for record in records:
            by_topic.setdefault(record.topic, []).append(record)
        for outer in by_topic:
            await self._writable(caller, outer)
        now_ms = world.now_ms()
        size_bytes = sum(_size(record) for record in records)
        written = await self._parts.gateway.heavy_work.convert(
            size_bytes,
            lambda: [
                topic_records(self._prefix + outer, of, now_ms) for outer, of in by_topic.items()
            ],
        )
        if size_bytes:
            await caller.quotas.admit_produce(caller, size_bytes)
        done = _Done(
            token=world.random_bytes(_TOKEN_BYTES),
            topics=[*by_topic, *{place.topic for place in group}],
            read=read,
            errors=errors,
            gauges=self.gauges,
            now_ms=now_ms,
        )
        guard = TaskGuard(self._holding, done, positions)
        await self._atomic.write(written, size_bytes, self._group(group, caller), guard)
        self._holding.token = done.token

    async def _writable(self, caller: Caller, outer: str) -> None:
        name = self._prefix + outer
        caller.require(Operation.WRITE, ResourceType.TOPIC, name)
        await topic_of(self._parts.gateway, caller, name, outer, self._config)

    def _group(self, offsets: Mapping[TopicPartition, int], caller: Caller) -> GroupCommit | None:
        if not offsets:
            return None
        group_id = group_of(self._holding.connector)
        caller.require_group(Operation.READ, group_id)
        commits = [
            Commit(
                topic=self._prefix + place.topic,
                partition=PartitionNumber(place.partition),
                offset=offset,
            )
            for place, offset in offsets.items()
        ]
        return GroupCommit(group_id=group_id, commits=commits, committer=None)


def topic_records(topic: str, records: Sequence[LogRecord], now_ms: int) -> TopicRecords:
    """Return the records of one topic as they are appended."""
    batch = record_batch(
        [now_ms if r.timestamp_ms is None else r.timestamp_ms for r in records],
        [r.key for r in records],
        [r.value for r in records],
        _headers(records),
    )
    wanted: list[PartitionNumber | None] | None = None
    if any(r.partition is not None for r in records):
        wanted = [None if r.partition is None else PartitionNumber(r.partition) for r in records]
    return TopicRecords(topic=topic, batch=batch, wanted=wanted, rows=list(range(len(records))))


def _headers(records: Sequence[LogRecord]) -> list[list[Header] | None] | None:
    if not any(r.headers for r in records):
        return None
    return [[{"key": k, "value": v} for k, v in r.headers] or None for r in records]


def _size(record: LogRecord) -> int:
    key, value = record.key, record.value
    size = 8 + (0 if key is None else len(key)) + (0 if value is None else len(value))
    if record.headers:
        size += sum(len(name) + len(data or b"") for name, data in record.headers)
    return size


__all__ = ["RunCommits", "TaskGuard", "topic_records"]
