"""Reads one table, or the query: opens its statement, fetches rows, makes records of them.

A statement stays open from poll to poll until its rows are all read, with a cursor on the server:
a long table is never in memory. What is remembered is the position behind the last record that was
given; a reader that lost its connection opens a new statement there.

Two kinds of rows need to know what follows: a position moves past a group of equal timestamps with
its last row, and past a table in mode bulk too. So there the last row fetched is kept back until it
is known what comes after.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from sqlalchemy import Connection, CursorResult

from service.connect.connectors.api import Position
from service.connect.connectors.jdbc.source.criteria import Criteria
from service.connect.connectors.jdbc.source.keys import BULK, INCREMENTING
from service.connect.connectors.jdbc.source.positions import ReadPosition, at_ms
from service.connect.connectors.jdbc.source.relations import Relation
from service.connect.connectors.jdbc.source.values import RowShape
from service.connect.connectors.jdbc.urls import MYSQL, POSTGRESQL
from service.connect.data.errors import DataFault
from service.connect.data.records import ConnectRecord, FromSource

Row = Sequence[Any]

_NOW: Final = {POSTGRESQL: "SELECT clock_timestamp()", MYSQL: "SELECT UTC_TIMESTAMP(6)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderLimits:
    fetched_rows_max: int
    delay_ms: int
    suffix: str
    initial_ms: int | None
    """Of timestamps; None: from the first row on."""
    begins_now: bool
    now_ms: Callable[[], int]


@dataclass(frozen=True, slots=True)
class BadRow:
    record: ConnectRecord
    fault: DataFault


class RelationReader:
    """Its plain methods run where the session runs them."""

    def __init__(
        self,
        relation: Relation,
        criteria: Criteria,
        shape: RowShape,
        position: ReadPosition,
        limits: ReaderLimits,
    ) -> None:
        self.relation = relation
        self.position = position
        self.bad: list[BadRow] = []
        """Of the last read; its caller takes them."""
        self._criteria = criteria
        self._shape = shape
        self._limits = limits
        self._result: CursorResult[Any] | None = None
        self._end: datetime | None = None
        self._kept: Row | None = None
        self._partition: Position = dict(relation.partitions[0])
        self._looks_ahead = criteria.mode == BULK or criteria.holds_groups

    @property
    def is_open(self) -> bool:
        return self._result is not None

    def forget(self) -> None:
        """Begin again behind the last record given: the connection is lost."""
        self._result, self._kept, self._end = None, None, None

    def read(self, connection: Connection, rows_max: int) -> list[ConnectRecord]:
        """Return the next records, at most about so many; fewer: the table is read to its end."""
        if self._result is None:
            self._open(connection)
        rows = self._fetched(rows_max)
        if self._looks_ahead:
            rows = self._with_kept(rows)
        return self._records(rows, is_end=self._result is None)

    def close(self, connection: Connection) -> None:
        if self._result is not None:
            self._result.close()
            self.forget()
            connection.rollback()

    def _open(self, connection: Connection) -> None:
        criteria, limits = self._criteria, self._limits
        if criteria.timestamps:
            now = self._now(connection)
            self._end = now - timedelta(milliseconds=limits.delay_ms)
            if self.position.timestamp is None:
                self.position = self._first(connection, now)
        statement, values = criteria.statement(self.relation, self.position, limits.suffix)
        self._result = connection.exec_driver_sql(
            statement,
            tuple(values) if values else None,
            execution_options={
                "stream_results": True,
                "max_row_buffer": limits.fetched_rows_max,
            },
        )

    def _now(self, connection: Connection) -> datetime:
        query = _NOW.get(self._criteria.dialect.name)
        if query is None:
            return at_ms(self._limits.now_ms())
        now: datetime = connection.exec_driver_sql(query).scalar_one()
        return now.astimezone(UTC) if now.tzinfo else now.replace(tzinfo=UTC)

    def _first(self, connection: Connection, now: datetime) -> ReadPosition:
        limits = self._limits
        if not limits.begins_now and limits.initial_ms is None:
            return self.position
        point = now if limits.initial_ms is None else at_ms(limits.initial_ms)
        stored = None
        if self._criteria.dialect.name not in _NOW:
            text = self._criteria.timestamp_text()
            parts = ("SELECT", text, "FROM", self.relation.source, "WHERE", text)
            statement = " ".join((*parts, "IS NOT NULL LIMIT 1"))
            found = connection.exec_driver_sql(statement).first()
            stored = self._criteria.stored_like(point, "" if found is None else found[0])
        return ReadPosition(timestamp=point, stored=stored)

    def _fetched(self, rows_max: int) -> list[Row]:
        assert self._result is not None, "nothing is open"
        rows: list[Row] = []
        while len(rows) < rows_max:
            wanted = min(self._limits.fetched_rows_max, rows_max - len(rows))
            more: Sequence[Row] = self._result.fetchmany(wanted)
            is_last = len(more) < wanted
            # Rows come in the order of their timestamps: behind a young one all are young.
            if more and self._is_young(more[-1]):
                more = [row for row in more if not self._is_young(row)]
                is_last = True
            rows += more
            if is_last:
                self._finish()
                break
        return rows

    def _is_young(self, row: Row) -> bool:
        if self._end is None:
            return False
        timestamp = self._criteria.position(row).timestamp
        return timestamp is not None and timestamp >= self._end

    def _finish(self) -> None:
        assert self._result is not None, "nothing is open"
        connection = self._result.connection
        self._result.close()
        # The snapshot is released between statements.
        connection.rollback()
        self._result, self._end = None, None

    def _with_kept(self, rows: list[Row]) -> list[Row]:
        rows = rows if self._kept is None else [self._kept, *rows]
        is_end = self._result is None
        self._kept = None if is_end or not rows else rows[-1]
        return rows if is_end else rows[:-1]

    def _records(self, rows: Sequence[Row], *, is_end: bool) -> list[ConnectRecord]:
        offsets = self._offsets(rows, is_end=is_end)
        relation, shape, partition = self.relation, self._shape, self._partition
        topic, schema, value_of = relation.topic, shape.schema, shape.value
        records = []
        for row, offset in zip(rows, offsets, strict=True):
            origin = FromSource(partition, offset)
            try:
                value = value_of(row)
            except DataFault as fault:
                texts = {name: str(each) for name, each in zip(shape.names, row, strict=True)}
                self.bad.append(
                    BadRow(ConnectRecord(topic, None, None, texts, origin=origin), fault)
                )
                continue
            records.append(
                ConnectRecord(topic, None, None, value, value_schema=schema, origin=origin)
            )
        return records

    def _offsets(self, rows: Sequence[Row], *, is_end: bool) -> Sequence[Position]:
        """Return the offset to commit with each row, and move behind the last."""
        if not rows:
            return []
        criteria = self._criteria
        if criteria.mode == INCREMENTING:
            counts = [criteria.count(row) for row in rows]
            self.position = ReadPosition(incrementing=counts[-1])
            return [{"incrementing": count} for count in counts]
        positions = self._positions(rows, is_end=is_end)
        self.position = positions[-1]
        return [position.to_offset() for position in positions]

    def _positions(self, rows: Sequence[Row], *, is_end: bool) -> Sequence[ReadPosition]:
        """Return the position to commit with each row."""
        if self._criteria.mode == BULK:
            last = ReadPosition(bulk_ms=self._limits.now_ms()) if is_end else self.position
            return [*(self.position for _ in rows[1:]), last]
        found = [self._criteria.position(row) for row in rows]
        if not self._criteria.holds_groups:
            return found
        following = ReadPosition() if self._kept is None else self._criteria.position(self._kept)
        # Inside a group: where it began, so that it is read again as a whole.
        begun, positions = self.position, []
        for here, after in pairwise([*found, following]):
            if after.timestamp != here.timestamp:
                begun = here
            positions.append(begun)
        return positions
