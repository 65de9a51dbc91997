"""The rows of one put, grouped by statement; written in order, or searched for those refused."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from itertools import groupby
from typing import Final, TypeAlias

from sqlalchemy import Connection

from service.connect.config.values import Values
from service.connect.connectors.jdbc.dialects import SqlDialect, TableName
from service.connect.connectors.jdbc.failures import Meaning, meaning_of
from service.connect.connectors.jdbc.sink.binding import bind_of
from service.connect.connectors.jdbc.sink.rows import RowChange, RowMaker, RowPlanner
from service.connect.connectors.jdbc.sink.statements import RowStatement
from service.connect.connectors.jdbc.sink.tables import SinkTables
from service.connect.connectors.jdbc.urls import POSTGRESQL
from service.connect.data.records import ConnectRecord
from service.connect.data.schema import ConnectSchema

PLANS_MAX: Final = 1000
"""How many pairs of schemas are remembered."""

_Shape: TypeAlias = tuple[str, ConnectSchema | None, ConnectSchema | None, bool]
_Change: TypeAlias = tuple[RowStatement, RowChange]
Refused: TypeAlias = tuple[ConnectRecord, Exception]


@dataclass
class RowBatch:
    """Changes by table, each in the order of the log."""

    tables: dict[TableName, list[_Change]] = field(default_factory=dict)

    def remove(self, records: Sequence[ConnectRecord]) -> None:
        gone = {id(record) for record in records}
        for table, changes in self.tables.items():
            self.tables[table] = [each for each in changes if id(each[1].record) not in gone]


class RowWriter:
    """Knows the statements of the shapes that records have. Most methods run in the session."""

    def __init__(self, values: Values, dialect: SqlDialect, zone: tzinfo) -> None:
        self._dialect = dialect
        self._zone = zone
        self._mode: str = values["insert.mode"].lower()
        self._rows_max: int = values["batch.size"]
        self._replaces_null: bool = values["replace.null.with.default"]
        self._planner = RowPlanner(values, dialect)
        self._tables = SinkTables(
            dialect, creates=values["auto.create"], evolves=values["auto.evolve"]
        )
        self._known: dict[_Shape, tuple[RowStatement, RowMaker]] = {}
        self._last: ConnectRecord | None = None
        self._pair: tuple[RowStatement, RowMaker] | None = None
        self._numbered = 0

    def forget(self) -> None:
        """Look at all tables anew."""
        self._known.clear()
        self._last = None

    def is_planned(self, record: ConnectRecord) -> bool:
        return self._is_last(record) or _shape(record) in self._known

    def _is_last(self, record: ConnectRecord) -> bool:
        """Whether it has the very schemas of the record before: most have, and hashing is slow."""
        last = self._last
        return (
            last is not None
            and record.value_schema is last.value_schema
            and record.key_schema is last.key_schema
            and (record.value is None) == (last.value is None)
            and record.topic == last.topic
        )

    def plan(self, connection: Connection, record: ConnectRecord) -> None:
        """Find out how records of this shape are written. Raises `DataFault`, `TaskFault`.

        Afterwards it is still not planned if there is nothing to write yet: the record deletes a
        row of a table that is not there.
        """
        plan = self._planner.plan(record)
        columns = self._tables.columns_for(connection, plan)
        if columns is None:
            return
        binds = [
            bind_of(each.schema, column, self._dialect.name, self._zone)
            for each, column in zip(plan.fields, columns, strict=True)
        ]
        self._numbered += 1
        statement = RowStatement(
            plan=plan,
            columns=columns,
            dialect=self._dialect,
            mode=self._mode,
            number=self._numbered,
        )
        if len(self._known) >= PLANS_MAX:
            self._known.clear()
        maker = RowMaker(plan, binds, self._replaces_null)
        self._known[_shape(record)] = (statement, maker)

    def add(self, batch: RowBatch, record: ConnectRecord) -> None:
        """Add the row of a record whose shape is planned; raise `DataFault` if it has none."""
        if not self._is_last(record):
            self._pair = self._known[_shape(record)]
            self._last = record
        assert self._pair is not None, record.topic
        statement, maker = self._pair
        change = maker.row(record)
        batch.tables.setdefault(statement.plan.table, []).append((statement, change))

    def write(self, connection: Connection, batch: RowBatch) -> None:
        """Write all rows in the transaction of the connection."""
        if self._dialect.name == POSTGRESQL:
            # SQLAlchemy begins with the first statement that it sees, and COPY passes it by.
            connection.exec_driver_sql("SELECT 1")
        for group in self._groups(batch):
            group[0][0].execute(connection, [change.row for _, change in group])

    def refused(self, connection: Connection, batch: RowBatch) -> Sequence[Refused]:
        """Return the rows that the database refuses, and change nothing."""
        connection.execution_options(riacho_writes=True)
        found: list[Refused] = []
        transaction = connection.begin()
        try:
            for group in self._groups(batch):
                self._halve(connection, group, found)
        finally:
            transaction.rollback()
        return found

    def _halve(
        self, connection: Connection, group: Sequence[_Change], found: list[Refused]
    ) -> None:
        savepoint = connection.begin_nested()
        try:
            if self._dialect.name == POSTGRESQL:
                connection.exec_driver_sql("SELECT 1")
            group[0][0].execute(connection, [change.row for _, change in group])
        except Exception as error:
            savepoint.rollback()
            if meaning_of(error) is not Meaning.BAD_ROW:
                raise
            if len(group) == 1:
                found.append((group[0][1].record, error))
                return
            middle = len(group) // 2
            self._halve(connection, group[:middle], found)
            self._halve(connection, group[middle:], found)
        else:
            savepoint.commit()

    def _groups(self, batch: RowBatch) -> Iterator[Sequence[_Change]]:
        """Yield rows of the same statement that follow each other, at most `batch.size`."""
        for changes in batch.tables.values():
            for _, same in groupby(changes, key=lambda each: id(each[0])):
                group = list(same)
                for start in range(0, len(group), self._rows_max):
                    yield group[start : start + self._rows_max]


def _shape(record: ConnectRecord) -> _Shape:
    return record.topic, record.key_schema, record.value_schema, record.value is None
