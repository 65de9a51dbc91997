"""The task of the JDBC source: its tables in turn, each when it is due.

The tables that were there when tasks were planned are dealt among them in order; one that came
later belongs to the task that the checksum of its name says, so that no plan is needed for it. A
task looks for new and removed tables, and for new columns, every `table.poll.interval.ms`.
"""

import json
import zlib
from collections.abc import Sequence
from datetime import UTC
from typing import Final
from zoneinfo import ZoneInfo

from sqlalchemy import Connection
from sqlalchemy.exc import NoSuchTableError

from service.connect.config.keys import Config
from service.connect.config.values import Values
from service.connect.connectors.api import Environment, TaskContext
from service.connect.connectors.jdbc.connecting import DatabaseSession, address_of, open_session
from service.connect.connectors.jdbc.dialects import dialect_of
from service.connect.connectors.jdbc.failures import fault_of
from service.connect.connectors.jdbc.source.criteria import criteria_of
from service.connect.connectors.jdbc.source.keys import SOURCE_KEYS
from service.connect.connectors.jdbc.source.positions import position_of
from service.connect.connectors.jdbc.source.reader import ReaderLimits, RelationReader
from service.connect.connectors.jdbc.source.relations import (
    Relation,
    describe_query,
    describe_table,
    find_tables,
)
from service.connect.connectors.jdbc.source.values import RowReading, shape_of
from service.connect.data.errors import ConnectFault, DataFault, TaskFault
from service.connect.data.records import ConnectRecord

PLANNED: Final = "task.tables"
SHARE: Final = "task.share"
"""Keys of a task's configuration: the tables of the plan, and which of how many tasks it is."""

PAUSE_S_MIN: Final = 0.01
"""Between two readings of a table, even if `poll.interval.ms` is 0."""


async def planned_tasks(config: Config, tasks_max: int, environment: Environment) -> list[Config]:
    """Return the configurations of the tasks: no more than there are tables."""
    values = Values(SOURCE_KEYS, config)
    if values["query"]:
        return [config]
    session = await open_session(values, environment)
    try:
        tables = await session.run(lambda on: find_tables(on, values, session.dialect))
    except Exception as error:
        raise _of(error, "listing tables") from error
    finally:
        await session.close()
    names = [each.names[0] for each in tables]
    count = max(1, min(tasks_max, len(names)))
    return [
        {**config, PLANNED: json.dumps(names), SHARE: f"{number}/{count}"}
        for number in range(count)
    ]


class JdbcSourceTask:
    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._world = context.environment.world
        self._values = Values(SOURCE_KEYS, context.config)
        values = self._values
        zone = values["db.timezone"]
        self._dialect = dialect_of(address_of(values).dialect, values["quote.sql.identifiers"])
        mapping = values["numeric.mapping"]
        if mapping is None:
            mapping = "precision_only" if values["numeric.precision.mapping"] else "none"
        self._reading = RowReading(
            dialect=self._dialect.name,
            zone=UTC if zone == "UTC" else ZoneInfo(zone),
            numeric_mapping=mapping.lower(),
            granularity=values["timestamp.granularity"].lower(),
        )
        initial = values["timestamp.initial"]
        self._limits = ReaderLimits(
            fetched_rows_max=values["batch.max.rows"],
            delay_ms=values["timestamp.delay.interval.ms"],
            suffix=values["query.suffix"].strip(),
            initial_ms=values["timestamp.initial.ms"] if initial in (None, -1) else initial,
            begins_now=initial == -1,
            now_ms=self._world.now_ms,
        )
        number, _, count = context.config.get(SHARE, "0/1").partition("/")
        self._share = (int(number), int(count))
        self._planned: Sequence[str] = json.loads(context.config.get(PLANNED, "[]"))
        self._session: DatabaseSession | None = None
        self._readers: dict[str, RelationReader] = {}
        self._due_s: dict[str, float] = {}
        self._tables_due_s = 0.0

    async def start(self) -> None:
        await self._find()

    async def poll(self, wait_s: float, records_max: int) -> Sequence[ConnectRecord]:
        deadline_s = self._world.monotonic_s() + wait_s
        while True:
            try:
                reader = await self._next()
                records = [] if reader is None else await self._read(reader, records_max)
            except Exception as error:
                await self._disconnect()
                raise _of(error, "reading") from error
            now_s = self._world.monotonic_s()
            if records or now_s >= deadline_s:
                return records
            if reader is None:
                due_s = min([*self._due_s.values(), self._tables_due_s, deadline_s])
                await self._world.sleep(max(due_s - now_s, PAUSE_S_MIN))

    async def committed(self) -> None:
        """Nothing is held until then."""

    async def stop(self) -> None:
        await self._disconnect()

    async def _disconnect(self) -> None:
        for reader in self._readers.values():
            reader.forget()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _connected(self) -> DatabaseSession:
        if self._session is None:
            self._session = await open_session(self._values, self._context.environment)
        return self._session

    async def _next(self) -> RelationReader | None:
        """Return the table whose statement is open, or else the one that is due longest."""
        for reader in self._readers.values():
            if reader.is_open:
                return reader
        now_s = self._world.monotonic_s()
        if now_s >= self._tables_due_s:
            await self._find()
        due = [(due_s, label) for label, due_s in self._due_s.items() if due_s <= now_s]
        return self._readers[min(due)[1]] if due else None

    async def _read(self, reader: RelationReader, records_max: int) -> list[ConnectRecord]:
        session = await self._connected()
        records = await session.run(lambda on: reader.read(on, records_max))
        if not reader.is_open:
            pause_s = max(self._values["poll.interval.ms"] / 1000, PAUSE_S_MIN)
            self._due_s[reader.relation.label] = self._world.monotonic_s() + pause_s
        bad, reader.bad = reader.bad, []
        for each in bad:
            await self._context.report(each.record, each.fault)
        return records

    async def _find(self) -> None:
        """Make a reader for each table that is ours now; those that are known go on."""
        session = await self._connected()
        try:
            relations = await session.run(self._relations)
        except Exception as error:
            await self._disconnect()
            raise _of(error, "looking for tables") from error
        partitions = [each for relation in relations for each in relation.partitions]
        offsets = iter(await self._context.offsets.read(partitions))
        readers = {}
        for relation in relations:
            stored = [next(offsets) for _ in relation.partitions]
            known = self._readers.get(relation.label)
            found = next((each for each in stored if each is not None), None)
            position = position_of(found) if known is None else known.position
            criteria = criteria_of(relation, self._values, self._dialect, self._reading.zone)
            shape = shape_of(relation.name, relation.columns, self._reading)
            readers[relation.label] = RelationReader(
                relation, criteria, shape, position, self._limits
            )
        self._readers = readers
        now_s = self._world.monotonic_s()
        self._due_s = {
            label: self._due_s.get(label, self._due_at_start(reader, now_s))
            for label, reader in readers.items()
        }
        pause_s = max(self._values["table.poll.interval.ms"] / 1000, PAUSE_S_MIN)
        self._tables_due_s = now_s + pause_s

    def _due_at_start(self, reader: RelationReader, now_s: float) -> float:
        """Return when to read first: not before the interval since a table was read whole."""
        read_ms = reader.position.bulk_ms
        if read_ms is None:
            return now_s
        left_ms: int = read_ms + self._values["poll.interval.ms"] - self._world.now_ms()
        return now_s + max(left_ms, 0) / 1000

    def _relations(self, connection: Connection) -> Sequence[Relation]:
        values, dialect = self._values, self._dialect
        prefix = values["topic.prefix"]
        if values["query"]:
            return [describe_query(connection, values["query"], dialect, prefix)]
        relations = []
        for table in find_tables(connection, values, dialect.name):
            if self._is_ours(table.names[0]):
                # It may be dropped meanwhile: then it is not ours any more.
                try:
                    relations.append(describe_table(connection, table, dialect, prefix))
                except NoSuchTableError:
                    continue
        connection.rollback()
        return relations

    def _is_ours(self, name: str) -> bool:
        number, count = self._share
        if name in self._planned:
            return self._planned.index(name) % count == number
        return zlib.crc32(name.encode()) % count == number


def _of(error: Exception, doing: str) -> ConnectFault:
    if isinstance(error, ConnectFault):
        return error
    fault = fault_of(error, doing)
    # No single record is to blame, so none can be given up.
    return TaskFault(str(fault)) if isinstance(fault, DataFault) else fault
