"""Rows of tables as they are in one snapshot, in the order that `position.py` knows.

A table is one COPY, which a task of its own reads ahead by a bounded amount. One row is held back,
so that the last one is known: its position says that the snapshot is done.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from service.connect.connectors.api import Position, Reporter
from service.connect.connectors.postgres import server, tables
from service.connect.connectors.postgres.envelope import Moment, TableShape, TableShapes, change
from service.connect.connectors.postgres.pgoutput import Row
from service.connect.connectors.postgres.position import Covered, RowPlace
from service.connect.connectors.postgres.settings import PostgresSettings
from service.connect.connectors.postgres.tables import PgTable, PublishedTable
from service.connect.data.errors import DataFault, RetriableFault, TaskFault
from service.connect.data.records import ConnectRecord, FromSource
from service.world.clock import World
from storage.tasks import begin

CHUNKS_MAX: Final = 8
"""Pieces of a COPY that wait to be read; one has some hundred KB, or one row."""

CLOSE_S_MAX: Final = 5.0

_BEGIN: Final = """
SELECT pg_current_snapshot()::text AS snapshot, pg_current_wal_insert_lsn() AS lsn,
       (extract(epoch FROM clock_timestamp()) * 1000000)::int8 AS us,
       current_setting('server_encoding') AS encoding
"""
_ENCODINGS: Final = ("UTF8", "LATIN1", "SQL_ASCII")
"""In which the order of bytes is the order of characters."""
_TEXTS: Final = frozenset({"text", "varchar"})
_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class _Read:
    table: PublishedTable
    shape: TableShape
    row: Row


class SnapshotReader:
    """Reads what is behind `at`; `covered` then has the snapshot that it reads from."""

    def __init__(
        self,
        settings: PostgresSettings,
        partition: Position,
        covered: Covered,
        at: RowPlace | None,
        world: World,
        report: Reporter,
    ) -> None:
        self.covered = covered
        self.is_done = False
        self._settings = settings
        self._partition = partition
        self._at = at
        self._world = world
        self._report = report
        self._connection: Any = None
        self._tables: list[PublishedTable] = []
        self._copy: _Copy | None = None
        self._held: _Read | None = None
        self._before: PublishedTable | None = None
        """The table of the row that was given last."""
        self._lsn = 0
        self._us = 0
        self._can_order = True
        self._is_broken = False

    async def start(self) -> None:
        """Take the snapshot. The slot must be there already."""
        self._connection = await server.connect(self._settings)
        with server.faults("taking a snapshot"):
            await self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            row = await self._connection.fetchrow(_BEGIN)
            self._types = await tables.types(self._connection)
            found = await tables.published(self._connection, self._settings.publication)
        self._lsn, self._us = row["lsn"], row["us"]
        self._can_order = row["encoding"] in _ENCODINGS
        self.covered = self.covered.begun(row["snapshot"], row["lsn"], self._at)
        self._stored = self.covered.stored()
        self._shapes = TableShapes(self._settings, self._types)
        at = self._at
        self._tables = [
            each
            for each in found
            if self._settings.filters.has_table(each.schema, each.name)
            and (at is None or (each.schema, each.name) >= (at.schema, at.table))
        ]

    async def poll(self, records_max: int) -> list[ConnectRecord]:
        """Return the next rows; the last ones come with `is_done`.

        After an error this snapshot cannot be read on: the task starts again, with another one.
        """
        if self._is_broken:
            raise TaskFault("the snapshot was interrupted: a new one goes on behind the position")
        self._is_broken = True  # Rows that were read are lost if this is cancelled or fails.
        try:
            with server.faults("reading tables"):
                records = await self._rows(records_max)
        except RetriableFault as error:
            raise TaskFault(str(error)) from error
        self._is_broken = False
        return records

    async def _rows(self, records_max: int) -> list[ConnectRecord]:
        out: list[ConnectRecord] = []
        while len(out) < records_max and not self.is_done:
            read = await self._next()
            if self._held is not None:
                await self._give(self._held, read, out)
            self._held = read
            self.is_done = read is None
        return out

    async def stop(self) -> None:
        if self._connection is not None:
            # First, so that nothing arrives for a COPY that is given up.
            self._connection.terminate()
            self._connection = None
        if self._copy is not None:
            await self._copy.stop()
            self._copy = None

    async def _next(self) -> _Read | None:
        while True:
            if self._copy is None:
                if not self._tables:
                    return None
                self._copy = await self._open(self._tables.pop(0))
            line = await self._copy.line()
            if line is not None:
                return _Read(self._copy.table, self._copy.shape, row_of(line))
            await self._copy.stop()
            self._copy = None

    async def _open(self, published: PublishedTable) -> "_Copy":
        table = await tables.table(
            self._connection, published.oid, published.schema, published.name
        )
        if published.columns:
            kept = tuple(each for each in table.columns if each.name in published.columns)
            table = replace(table, columns=kept)
        shape = self._shapes.of(table)
        if not self._can_order and self._has_text(shape, table):
            shape = replace(shape, order=None)
        at = self._at
        is_same = at is not None and (at.schema, at.table) == (table.schema, table.name)
        after = at.key if at is not None and is_same else None
        return _Copy(self._connection, published, shape, self._sql(published, table, shape, after))

    def _has_text(self, shape: TableShape, table: PgTable) -> bool:
        kinds = (self._types[table.by_name[name].type_oid].name for name in shape.key_names)
        return not _TEXTS.isdisjoint(kinds)

    def _sql(
        self,
        published: PublishedTable,
        table: PgTable,
        shape: TableShape,
        after: tuple[Any, ...] | None,
    ) -> str:
        columns = server.columns_sql([each.name for each in table.columns])
        only = "" if published.is_root else "ONLY"
        where = [] if published.condition is None else [f"({published.condition})"]
        order = ""
        if shape.order is not None:
            keys = [self._ordered(table, name) for name in shape.key_names]
            order = f"ORDER BY {', '.join(keys)}"
            if after is not None:
                where.append(f"({', '.join(keys)}) > ({', '.join(map(_literal, after))})")
        condition = f"WHERE {' AND '.join(where)}" if where else ""
        source = server.qualified(table.schema, table.name)
        # Every part is quoted, or a literal made below, or comes from the server's catalog.
        parts = ("SELECT", columns, "FROM", only, source, condition, order)
        return " ".join(part for part in parts if part)

    def _ordered(self, table: PgTable, name: str) -> str:
        quoted = server.columns_sql([name])
        is_text = self._types[table.by_name[name].type_oid].name in _TEXTS
        return f'{quoted} COLLATE "C"' if is_text else quoted

    async def _give(self, read: _Read, after: _Read | None, out: list[ConnectRecord]) -> None:
        """Make the record of a row, given the one that follows it."""
        shape, table = read.shape, read.table
        marker = self._marker(read, after)
        self._before = table
        place = RowPlace(shape.schema, shape.table, shape.ordered_key(read.row))
        if after is None:
            offset: dict[str, Any] = {"lsn": 0, "change": 0, "part": 0, "previous": 0}
        else:
            offset = {"at": place.stored()}
        origin = FromSource(self._partition, offset | self._stored)
        moment = Moment(
            name=self._settings.prefix,
            database=self._settings.database,
            commit_us=self._us,
            xid=None,
            previous=None,
        )
        try:
            struct = shape.row(read.row)
        except DataFault as error:
            await self._report(ConnectRecord(shape.topic, None, None, None, origin=origin), error)
            return
        source = moment.source(shape, self._lsn, marker)
        out.append(change(shape, "r", None, struct, source, self._world.now_ms(), origin))

    def _marker(self, read: _Read, after: _Read | None) -> str:
        if after is None:
            return "last"
        if self._before is None and self._at is None:
            return "first"
        if after.table is not read.table:
            return "last_in_data_collection"
        return "true" if self._before is read.table else "first_in_data_collection"


class _Copy:
    """The lines of one COPY, read ahead."""

    def __init__(self, connection: Any, table: PublishedTable, shape: TableShape, sql: str) -> None:
        self.table = table
        self.shape = shape
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(CHUNKS_MAX)
        self._lines: list[bytes] = []
        """Those that come next, the first at the end."""
        self._rest = b""
        self._reading = begin(self._read(connection, sql))

    async def _read(self, connection: Any, sql: str) -> None:
        try:
            await connection.copy_from_query(sql, output=self._chunks.put)
        finally:
            await self._chunks.put(None)

    async def line(self) -> bytes | None:
        """Return the next line; None: there is none."""
        while not self._lines:
            chunk = await self._chunks.get()
            if chunk is None:
                await self._reading
                if self._rest:
                    raise TaskFault(f"COPY ended inside a row of {self.table.name}")
                return None
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            self._lines = lines[::-1]
        return self._lines.pop()

    async def stop(self) -> None:
        if not self._reading.done():
            self._reading.cancel()
            while not self._chunks.empty():
                self._chunks.get_nowait()
            with suppress(asyncio.CancelledError, Exception):
                await asyncio.wait_for(self._reading, CLOSE_S_MAX)


def row_of(line: bytes) -> Row:
    """Return the values of a line of COPY's text format."""
    return [
        None if cell == "\\N" else (_unescaped(cell) if "\\" in cell else cell)
        for cell in line.decode().split("\t")
    ]


def _unescaped(cell: str) -> str:
    parts = cell.split("\\")
    out = [parts[0]]
    at = 1
    while at < len(parts):
        part = parts[at]
        if part:
            out.append(_ESCAPES.get(part[0], part[0]) + part[1:])
            at += 1
        else:  # A backslash that was escaped, and what follows it.
            out.append("\\" + (parts[at + 1] if at + 1 < len(parts) else ""))
            at += 2
    return "".join(out)


def _literal(value: Any) -> str:
    if isinstance(value, int):
        return str(value)
    # Without backslash escapes, as the session sets it, only quotes are special.
    return "'" + str(value).replace("'", "''") + "'"
