"""The loop of a sink: read, convert, put, flush, commit.

Offsets are committed after a flush that followed the puts, into the group `connect-<name>`, with
the dead letters of the records before them in the same transaction. So whatever dies, what was put
and not committed is put again: at least once. A target that holds the offsets itself says where to
go on, and the group's offsets only show how far it is: exactly once. Where they differ, a run died
between flush and commit, or the last records before a commit were given up. Dead letters go by the
group's offsets: what is before them has its letters, and what is behind them is converted again,
though not put, so that it gets them.

Partitions belong to tasks by their names (`partitions.py`): there are no members in the group, and
nothing is rebalanced.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from service.connect.access.parts import ConnectParts
from service.connect.access.rights import caller_of
from service.connect.config.keys import Config
from service.connect.connectors.api import FillingSinkTask, SinkTask, TopicPartition
from service.connect.data.errors import RetriableFault
from service.connect.data.log_records import LogRecord
from service.connect.data.records import ConnectRecord, FromLog
from service.connect.tasks.api import TaskCommits, TooWide
from service.connect.tasks.errors import ErrorPolicy, StoppedAt
from service.connect.tasks.items import ConnectorItem, group_of
from service.connect.tasks.partitions import owned_partitions
from service.connect.tasks.pipeline import SinkPipeline
from service.connect.tasks.reading import SinkReader, fault_of
from service.security.acls import Operation
from storage.errors import RiachoError
from storage.formats.partitions import PartitionNumber

T = TypeVar("T")

FLUSH_S: Final = 5.0
"""How often what was put is flushed and committed; 60 s in Kafka."""

FLUSH_RECORDS_MAX: Final = 100_000
"""Records that are put before the next flush, at most one batch more."""

REFRESH_S: Final = 10.0
"""How soon new topics and partitions are read."""

PUT_RETRY_S_MIN: Final = 60.0
"""So long a put or a flush is repeated, or for `errors.retry.timeout` if that is longer. Then the
task fails with the reason, and is restarted by itself: nothing is lost."""

RETRY_S_MIN: Final = 0.2
RETRY_S_MAX: Final = 10.0
"""Pauses while the log, or a registry of schemas, cannot be reached."""

EMPTY_PUT_S: Final = 1.0
"""How often a task that fills files is asked whether one is finished."""


class SinkLoop:
    def __init__(
        self,
        parts: ConnectParts,
        connector: ConnectorItem,
        number: int,
        config: Config,
        task: SinkTask,
        pipeline: SinkPipeline,
        policy: ErrorPolicy,
        commits: TaskCommits,
        *,
        records_max: int,
        flush_s: float = FLUSH_S,
    ) -> None:
        """`records_max` are put at once, unless the configuration says how many."""
        self._parts = parts
        self._connector = connector
        self._number = number
        self._config = config
        self._task = task
        # Asked once: a check against a protocol takes longer than the rest of an idle round.
        self._filling = task if isinstance(task, FillingSinkTask) else None
        self._pipeline = pipeline
        self._policy = policy
        self._commits = commits
        self._flush_s = flush_s
        self._world = parts.gateway.world
        is_latest = config.get("consumer.override.auto.offset.reset", "").lower() == "latest"
        self._reader = SinkReader(parts, connector, "latest" if is_latest else "earliest")
        self._records_max = int(config.get("consumer.override.max.poll.records", records_max))
        self._owned: set[TopicPartition] = set()
        self._refreshed_s: float | None = None
        self._committed: dict[TopicPartition, int] = {}
        self._held: dict[TopicPartition, int] = {}
        """Before these offsets the target has everything, as it said when they were begun."""
        self._put_to: dict[TopicPartition, int] = {}
        """The offsets behind the last records that were put, where the task may keep them."""
        self._put_count = 0
        """Records read since the last commit."""
        self._flushed_s = self._world.monotonic_s()
        self._has_put = False
        self._has_begun = False
        """Whether partitions were begun since the last flush: where, is to be committed."""
        self.is_stopping = False
        """Set it, and `run` returns once what was put is flushed and committed."""

    async def run(self, until_s: float | None = None) -> None:
        """Run until told to stop, or until a moment of the monotonic clock.

        Raises what commits raise, `TaskFault`, and `RetriableFault` from the sink.
        """
        self._policy.is_over = lambda: self.is_stopping
        self._flushed_s = self._world.monotonic_s()
        while not self._is_over(until_s):
            await self._once(until_s)
        await self._flush()

    def _is_over(self, until_s: float | None) -> bool:
        is_late = until_s is not None and self._world.monotonic_s() >= until_s
        # A reader of a gateway that drains waits for nothing: a loop that went on would never rest.
        return self.is_stopping or is_late or self._parts.gateway.draining.is_set()

    async def _once(self, until_s: float | None) -> None:
        now_s = self._world.monotonic_s()
        # Sums as in `_wait_s`: a difference may be rounded to one that is never due.
        if self._refreshed_s is None or now_s >= self._refreshed_s + REFRESH_S:
            await self._patiently(self._refresh)
        batch = await self._patiently(
            lambda: self._reader.poll(
                self._records_max, self._wait_s(until_s), lambda: self.is_stopping
            )
        )
        if batch:
            await self._convert_and_put(batch)
        elif self._filling is not None and self._owned:
            await self._put([])
        is_due = self._world.monotonic_s() >= self._flushed_s + self._flush_s
        if is_due or self._policy.is_full or self._put_count >= FLUSH_RECORDS_MAX:
            await self._flush()

    def _wait_s(self, until_s: float | None) -> float:
        """Return how long to wait for records: until there is something else to do."""
        now_s = self._world.monotonic_s()
        ends_s = [(self._refreshed_s or now_s) + REFRESH_S]
        if self._filling is not None:
            ends_s.append(now_s + EMPTY_PUT_S)
        if self._is_pending:
            ends_s.append(self._flushed_s + self._flush_s)
        if until_s is not None:
            ends_s.append(until_s)
        return max(0.0, min(ends_s) - now_s)

    @property
    def _is_pending(self) -> bool:
        """Whether there may be something to flush or commit."""
        return self._has_put or self._has_begun or self._put_count > 0 or self._policy.errors > 0

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call with back-off while it raises `RetriableFault`, or until told to stop."""
        pause_s = RETRY_S_MIN
        while True:
            try:
                return await call()
            except RetriableFault:
                if self.is_stopping:
                    raise
                await self._world.sleep(pause_s * (0.5 + self._world.random() / 2))
                pause_s = min(RETRY_S_MAX, pause_s * 2)

    # Which partitions

    async def _refresh(self) -> None:
        """Take up partitions that are new, and leave those that are gone."""
        try:
            owned = set(
                await owned_partitions(self._parts, self._connector, self._config, self._number)
            )
        except RiachoError as error:
            raise fault_of(error) from error
        self._refreshed_s = self._world.monotonic_s()
        # The reader has left those whose topics were deleted; they may be there again.
        known = self._owned & self._reader.positions.keys()
        if owned == known:
            return
        await self._flush()
        self._reader.forget(self._owned - owned)
        self._committed = {p: o for p, o in self._committed.items() if p in owned}
        ordered = sorted(owned, key=lambda place: (place.topic, place.partition))
        held = await self._task.positions(ordered)
        new = [place for place in ordered if place not in known]
        stored = await self._group_offsets(new)
        self._committed |= stored
        self._held = {p: o for p, o in self._held.items() if p in owned}
        self._put_to = {p: o for p, o in self._put_to.items() if p in known & owned}
        self._held |= {place: held[place] for place in new if place in held}
        self._policy.lettered |= {place: stored[place] for place in stored if place in held}
        await self._reader.begin({place: _first(held, stored, place) for place in new})
        self._owned = owned & self._reader.positions.keys()
        self._has_begun = True
        if self._policy.dead_letter_topic and any(place not in stored for place in new):
            # Dead letters go by what is committed: from here on, whatever the target holds later.
            await self._flush()

    async def _group_offsets(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        prefix, group = self._connector.name_prefix, group_of(self._connector)
        try:
            caller = await caller_of(self._parts, self._connector)
            caller.require_group(Operation.READ, group)
            found = await self._parts.offsets.read_some(
                group,
                [(prefix + each.topic, PartitionNumber(each.partition)) for each in places],
            )
        except RiachoError as error:
            raise fault_of(error) from error
        return {
            TopicPartition(topic.removeprefix(prefix), partition): offset
            for (topic, partition), offset in found.items()
        }

    # Records

    async def _convert_and_put(self, batch: Sequence[LogRecord]) -> None:
        try:
            converted = await self._patiently(lambda: self._pipeline.from_log(batch))
        except StoppedAt as stopped:
            # Those before it are done, so that the task fails at this one again, and at no other.
            count = len(stopped.before)
            self._reader.rewind(batch[count:])
            before = [each for each in stopped.before if isinstance(each, ConnectRecord)]
            await self._put([each for each in before if not self._is_held(each)])
            self._put_count += count
            await self._flush()
            raise
        records = [each for each in converted if each is not None and not self._is_held(each)]
        try:
            if records:
                await self._put(records)
        except RetriableFault:
            if not self.is_stopping:
                raise
            # None of them was taken: what was put before is still flushed and committed.
            self._reader.rewind(batch)
            return
        self._put_count += len(batch)

    def _is_held(self, record: ConnectRecord) -> bool:
        """Whether the target had this record when its partition was begun."""
        origin = record.origin
        if not self._held or not isinstance(origin, FromLog):
            return False
        return origin.offset < self._held.get(TopicPartition(origin.topic, origin.partition), 0)

    async def _put(self, records: Sequence[ConnectRecord]) -> None:
        await self._policy.retried(lambda: self._task.put(records), timeout_min_s=PUT_RETRY_S_MIN)
        self._has_put = True
        if self._filling is not None:
            origins = [each.origin for each in records if isinstance(each.origin, FromLog)]
            self._put_to |= {
                TopicPartition(each.topic, each.partition): each.offset + 1 for each in origins
            }

    # RunCommits

    async def _flush(self) -> None:
        """Make durable what was put, then commit how far that is."""
        if self._has_put:
            await self._policy.retried(self._task.flush, timeout_min_s=PUT_RETRY_S_MIN)
            self._has_put = False
        self._has_begun = False
        self._flushed_s = self._world.monotonic_s()
        positions: Mapping[TopicPartition, int] = self._reader.positions
        if self._filling is not None:
            positions = self._filled(self._filling.committable())
        moved = {
            place: offset
            for place, offset in positions.items()
            if self._committed.get(place) != offset and place in self._owned
        }
        letters = self._policy.drain(positions)
        if self._policy.is_full:
            # Records that are kept for so long may have their dead letters twice, after a crash.
            letters += self._policy.drain()
        if not (moved or letters or self._put_count or self._policy.errors):
            return
        await self._commit(letters, moved, self._put_count, self._policy.errors)
        self._put_count = 0
        self._policy.errors = 0
        self._committed |= moved

    def _filled(self, durable: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return what may be committed of a task that keeps records: never beyond what was read."""
        found: dict[TopicPartition, int] = {}
        for place, read in self._reader.positions.items():
            if durable.get(place, 0) >= self._put_to.get(place, 0):
                # It keeps nothing: those that were read since were dropped, or given up.
                found[place] = read
            elif place in durable:
                found[place] = min(durable[place], read)
        return found

    async def _commit(
        self,
        letters: Sequence[LogRecord],
        moved: Mapping[TopicPartition, int],
        read: int,
        errors: int,
    ) -> None:
        try:
            await self._patiently(
                lambda: self._commits.commit(records=letters, group=moved, read=read, errors=errors)
            )
        except TooWide:
            if len(moved) < 2:
                raise
            # Dying between the two, letters of the second half are written again.
            places = list(moved.items())
            middle = len(places) // 2
            await self._commit(letters, dict(places[:middle]), read, errors)
            await self._commit((), dict(places[middle:]), 0, 0)


def _first(
    held: Mapping[TopicPartition, int], stored: Mapping[TopicPartition, int], place: TopicPartition
) -> int | None:
    """Return where a partition is begun, by what its target holds and its group has committed."""
    if place in held and place in stored:
        return min(held[place], stored[place])
    return held.get(place, stored.get(place))
