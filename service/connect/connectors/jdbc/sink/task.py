"""The task of the JDBC sink: one transaction for each put, with the position in it.

A put is durable when it returns. If the connection is lost, whether the transaction was committed
is not known: the position in the database says it, and records below it are left out when the put
is repeated. Rows that the database refuses are found by halving, on a transaction that is rolled
back; they are reported, and the others written.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from typing import Any, Final, TypeVar
from zoneinfo import ZoneInfo

from sqlalchemy import Connection

from service.connect.config.values import Values
from service.connect.connectors.api import TaskContext, TopicPartition
from service.connect.connectors.jdbc.connecting import DatabaseSession, address_of, open_session
from service.connect.connectors.jdbc.dialects import dialect_of
from service.connect.connectors.jdbc.failures import (
    Meaning,
    fault_of,
    meaning_of,
    text_of_failure,
)
from service.connect.connectors.jdbc.sink.batches import RowBatch, RowWriter
from service.connect.connectors.jdbc.sink.keys import SINK_KEYS
from service.connect.connectors.jdbc.sink.offsets import OffsetsTable
from service.connect.data.errors import ConnectFault, DataFault, RetriableFault, TaskFault
from service.connect.data.records import ConnectRecord, FromLog

ROUNDS_MAX: Final = 10
"""How often a transaction is written again without the rows that were refused."""

T = TypeVar("T")


class JdbcSinkTask:
    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._world = context.environment.world
        self._values = Values(SINK_KEYS, context.config)
        values = self._values
        self._dialect = dialect_of(address_of(values).dialect, values["quote.sql.identifiers"])
        zone = values["db.timezone"]
        self._writer = RowWriter(values, self._dialect, UTC if zone == "UTC" else ZoneInfo(zone))
        name = values["offsets.table.name"]
        self._offsets = OffsetsTable(self._dialect, name, context.connector) if name else None
        self._known: dict[TopicPartition, int] = {}
        self._asked: set[TopicPartition] = set()
        """Partitions whose position in the database is in `_known`, or was missing there."""
        self._session: DatabaseSession | None = None
        self._retries_left: int = values["max.retries"]

    async def start(self) -> None:
        if self._offsets is None:
            return
        is_usable = await self._run(self._offsets.prepare)
        self._context.metric("exactly_once", float(is_usable))
        if is_usable:
            return
        if "offsets.table.name" in self._context.config:
            raise TaskFault(
                f"the table {self._values['offsets.table.name']} of offsets.table.name is missing"
                " and cannot be created: create it, or set offsets.table.name to nothing for at"
                " least once"
            )
        self._offsets = None

    async def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._known.clear()
        self._asked.clear()
        await self._ask(partitions)
        return dict(self._known)

    async def set_positions(self, positions: Mapping[TopicPartition, int | None]) -> None:
        offsets = self._offsets
        if offsets is None:
            return

        def alter(connection: Connection) -> None:
            connection.execution_options(riacho_writes=True)
            with connection.begin():
                offsets.alter(connection, self._known, positions)

        await self._run(alter)
        for at, offset in positions.items():
            self._known.pop(at, None)
            if offset is not None:
                self._known[at] = offset

    async def put(self, records: Sequence[ConnectRecord]) -> None:
        places = {TopicPartition(*place) for place in map(_partition, records)}
        await self._ask(places - self._asked)
        done = {} if self._offsets is None else self._known
        first = {(at.topic, at.partition): offset for at, offset in done.items()}
        records = [each for each in records if _offset(each) >= first.get(_partition(each), 0)]
        if not records:
            return
        # Records of a partition come in the order of the log.
        last = {_partition(each): _offset(each) for each in records}
        following = {TopicPartition(*place): offset + 1 for place, offset in last.items()}
        batch = await self._batch(records)
        for _ in range(ROUNDS_MAX):
            if await self._written(batch, following):
                break
        else:
            raise TaskFault(f"rows were refused {ROUNDS_MAX} times, each time others")
        self._known.update(following)
        self._retries_left = self._values["max.retries"]

    async def flush(self) -> None:
        """Do nothing: a put is durable when it returns."""

    async def stop(self) -> None:
        await self._disconnect()

    async def _ask(self, partitions: Any) -> None:
        wanted = list(partitions)
        offsets = self._offsets
        if offsets is None or not wanted:
            return
        self._known.update(await self._run(lambda on: offsets.read(on, wanted)))
        self._asked.update(wanted)

    async def _batch(self, records: Sequence[ConnectRecord]) -> RowBatch:
        """Return the rows of the records; those that have none are reported."""
        batch = RowBatch()
        for record in records:
            try:
                if not self._writer.is_planned(record):
                    await self._run(lambda on, record=record: self._writer.plan(on, record))  # type: ignore[misc]
                if self._writer.is_planned(record):
                    self._writer.add(batch, record)
            except DataFault as fault:
                await self._context.report(record, fault)
        return batch

    async def _written(self, batch: RowBatch, following: Mapping[TopicPartition, int]) -> bool:
        """Write everything in one transaction; False: rows were refused, and taken out."""
        try:
            await self._run(lambda on: self._transaction(on, batch, following))
        except DataFault as fault:
            refused = await self._run(lambda on: self._writer.refused(on, batch))
            if not refused:
                raise TaskFault(f"{fault}, and each row alone is accepted") from fault
            for record, error in refused:
                text = f"the row is refused: {text_of_failure(error)}"
                await self._context.report(record, DataFault(text))
            batch.remove([record for record, _ in refused])
            return False
        return True

    def _transaction(
        self,
        connection: Connection,
        batch: RowBatch,
        following: Mapping[TopicPartition, int],
    ) -> None:
        connection.execution_options(riacho_writes=True)
        with connection.begin():
            if self._offsets is not None:
                self._offsets.advance(connection, self._known, following)
            self._writer.write(connection, batch)

    async def _run(self, work: Callable[[Connection], T]) -> T:
        """Run what speaks with the database; errors become faults, and a retry is counted."""
        try:
            if self._session is None:
                environment = self._context.environment
                self._session = await open_session(self._values, environment, writes=True)
            return await self._session.run(work)
        except ConnectFault:
            raise
        except Exception as error:
            fault = fault_of(error, "writing")
            if meaning_of(error) is not Meaning.BAD_ROW:
                # The definition of a table may have changed, and the transaction be committed.
                self._writer.forget()
                await self._disconnect()
                self._asked.clear()
            elif self._session is not None:
                await self._session.run(Connection.rollback)
            if isinstance(fault, RetriableFault):
                await self._wait(fault)
            raise fault from error

    async def _wait(self, fault: RetriableFault) -> None:
        if self._retries_left <= 0:
            raise TaskFault(f"{fault} (after {self._values['max.retries']} retries)") from fault
        self._retries_left -= 1
        await self._world.sleep(self._values["retry.backoff.ms"] / 1000)

    async def _disconnect(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _partition(record: ConnectRecord) -> tuple[str, int]:
    origin = record.origin
    assert isinstance(origin, FromLog), origin
    return origin.topic, origin.partition


def _offset(record: ConnectRecord) -> int:
    assert isinstance(record.origin, FromLog), record.origin
    return record.origin.offset
