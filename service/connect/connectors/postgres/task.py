"""The task: snapshot, then changes; the slot is released after each commit.

What if the task dies: before a commit, nothing has happened; between a commit and the release, the
slot gives the same again, and all up to the position is skipped; after the release, there is
nothing to do. A task that was replaced may still release what was committed, which is harmless.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from service.connect.connectors.api import TaskContext
from service.connect.connectors.postgres import server
from service.connect.connectors.postgres.envelope import heartbeat
from service.connect.connectors.postgres.position import Covered, Start, StreamPosition, start_of
from service.connect.connectors.postgres.settings import PostgresSettings
from service.connect.connectors.postgres.snapshot import SnapshotReader
from service.connect.connectors.postgres.stream import ChangeStream
from service.connect.data.errors import RetriableFault, TaskFault
from service.connect.data.records import ConnectRecord, FromSource

log = logging.getLogger(__name__)

IDLE_RELEASE_BYTES: Final = 1 << 20
"""Of the server's log without changes for us, before the slot is moved over it."""

CLOSE_S_MAX: Final = 5.0
UNCOMMITTED_WAIT_S: Final = 0.05


class PostgresTask:
    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._settings = PostgresSettings.of(context.config)
        self._world = context.environment.world
        self._partition = {"server": self._settings.prefix}
        self._connection: Any = None
        self._snapshot: SnapshotReader | None = None
        self._stream: ChangeStream | None = None
        self._confirmed = 0
        self._has_uncommitted = False
        self._has_committed = False
        self._is_alarmed = False
        self._beat_s = self._world.monotonic_s()

    async def start(self) -> None:
        settings = self._settings
        self._connection = await server.connect(settings)
        [offset] = await self._context.offsets.read([self._partition])
        start = None if offset is None else start_of(offset)
        await server.ensure_publication(self._connection, settings)
        if settings.snapshot_mode != "initial_only":
            start = await self._with_slot(start)
        if start is None and settings.snapshot_mode != "no_data":
            start = Start(Covered(), StreamPosition(), None, in_snapshot=True)
        if start is not None and start.in_snapshot:
            self._snapshot = SnapshotReader(
                settings,
                self._partition,
                start.covered,
                start.at,
                self._world,
                self._context.report,
            )
            await self._snapshot.start()
        else:
            await self._begin_stream(start or Start(Covered(), StreamPosition()))

    async def _with_slot(self, start: Start | None) -> Start | None:
        """Make sure that there is a slot, and that it has all that follows `start`."""
        settings = self._settings
        state = await server.slot_state(self._connection, settings)
        if state is None:
            if start is not None and settings.snapshot_mode != "when_needed":
                raise TaskFault(_lost(settings.slot))
            start = None
            await server.create_slot(self._connection, settings)
            state = await server.slot_state(self._connection, settings)
        if state is None:
            raise TaskFault(_lost(settings.slot))
        self._confirmed = state.confirmed
        return start

    async def _begin_stream(self, start: Start) -> None:
        if self._settings.snapshot_mode == "initial_only":
            return
        self._stream = ChangeStream(
            self._settings,
            self._partition,
            start.covered,
            start.stream,
            self._world,
            self._context.report,
        )
        await self._stream.start(self._connection, self._confirmed)

    async def poll(self, wait_s: float, records_max: int) -> Sequence[ConnectRecord]:
        limit = min(records_max, self._settings.batch_max)
        if self._snapshot is not None:
            records = await self._snapshot.poll(limit)
            if self._snapshot.is_done:
                await self._end_snapshot(self._snapshot)
            self._has_uncommitted |= bool(records)
            if records:
                return records
        give_up_s = self._world.monotonic_s() + wait_s
        while True:
            with self._or_terminated():
                records = await self._changes(limit)
            left_s = give_up_s - self._world.monotonic_s()
            if records or left_s <= 0:
                self._has_uncommitted |= bool(records)
                return records
            if self._stream is None or not self._stream.is_open:
                await self._world.sleep(min(left_s, self._settings.poll_interval_s))

    @contextmanager
    def _or_terminated(self) -> Iterator[None]:
        """Give up the connection after an error: what was cancelled on it may still go on."""
        try:
            yield
        except BaseException:
            self._connection.terminate()
            raise

    async def _end_snapshot(self, snapshot: SnapshotReader) -> None:
        self._snapshot = None
        await snapshot.stop()
        log.info("snapshot read", extra={"connector": self._context.connector})
        await self._begin_stream(Start(snapshot.covered, StreamPosition()))

    async def _changes(self, records_max: int) -> list[ConnectRecord]:
        """Return what is new, or a heartbeat that is due; empty: nothing, or not for us."""
        stream = self._stream
        if stream is None:
            return []
        if stream.is_open:
            return await stream.poll(0, records_max)
        if self._has_uncommitted:
            # The slot would only give again what has not been committed.
            await self._world.sleep(UNCOMMITTED_WAIT_S)
            return []
        if self._connection.is_closed():
            self._connection.terminate()
            self._connection = await server.connect(self._settings)
            await stream.start(self._connection, self._confirmed)
        state = await self._state(stream)
        await self._release(stream)
        if state.flushed <= stream.drained_lsn:
            return self._beat(stream, state.flushed)
        records = await stream.poll(state.flushed, records_max)
        return records or self._beat(stream, state.flushed)

    async def _state(self, stream: ChangeStream) -> server.SlotState:
        settings = self._settings
        state = await server.slot_state(self._connection, settings)
        if state is None:
            raise TaskFault(_lost(settings.slot))
        if state.confirmed > max(self._confirmed, stream.drained_lsn):
            raise TaskFault(
                f"something else reads the slot {settings.slot!r}: it is at {state.confirmed}, "
                f"though only {max(self._confirmed, stream.drained_lsn)} was read here. Changes "
                "between may be lost: give each connector a slot.name of its own"
            )
        self._confirmed = state.confirmed
        self._context.metric("slot_lag_bytes", float(state.lag_bytes))
        is_alarmed = state.lag_bytes > settings.lag_bytes_max
        self._context.metric("slot_lag_alarm", float(is_alarmed))
        if is_alarmed and not self._is_alarmed:
            log.warning(
                "the server keeps its log for a slot that is behind",
                extra={"slot": settings.slot, "slot_lag_bytes": state.lag_bytes},
            )
        self._is_alarmed = is_alarmed
        return state

    def _beat(self, stream: ChangeStream, flushed: int) -> list[ConnectRecord]:
        """Return a heartbeat if one is due and all before `flushed` is known."""
        now_s, every_s = self._world.monotonic_s(), self._settings.heartbeat_s
        if not every_s or now_s - self._beat_s < every_s or stream.drained_lsn < flushed:
            return []
        self._beat_s = now_s
        record = heartbeat(
            self._settings.heartbeat_topic,
            self._settings.prefix,
            self._world.now_ms(),
            FromSource(self._partition, stream.stored_position()),
        )
        return [record]

    async def committed(self) -> None:
        self._has_uncommitted = False
        self._has_committed = True
        if self._stream is None or self._stream.is_open or self._connection.is_closed():
            return
        with suppress(RetriableFault), self._or_terminated():
            # If it fails now, a later poll does it.
            await self._release(self._stream)

    async def _release(self, stream: ChangeStream) -> None:
        """Let the server forget what was read and committed."""
        ahead = stream.drained_lsn - self._confirmed
        if ahead <= 0 or (not self._has_committed and ahead < IDLE_RELEASE_BYTES):
            return
        await server.advance_slot(self._connection, self._settings, stream.drained_lsn)
        self._confirmed = stream.drained_lsn
        self._has_committed = False

    async def stop(self) -> None:
        if self._snapshot is not None:
            await self._snapshot.stop()
            self._snapshot = None
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(Exception):
                await connection.close(timeout=CLOSE_S_MAX)
            connection.terminate()


def _lost(slot: str) -> str:
    return (
        f"the replication slot {slot!r} has vanished, and with it the changes since the position: "
        "delete the connector's offsets and start it again, which takes a new snapshot, or set "
        "snapshot.mode to when_needed"
    )
