"""The position of a sink in the database itself, written in the transaction of the rows.

    riacho_connect_offsets
      connector, topic, partition_number   the primary key
      next_offset                          what comes next

The row is changed only from the position that its task knows: of two tasks that hold a partition,
one that was paused and one that took over, only the first to write does; the other has an error,
and nothing of its transaction happens.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError, NoSuchTableError

from service.connect.connectors.api import TopicPartition
from service.connect.connectors.jdbc.columns import columns_of
from service.connect.connectors.jdbc.dialects import VALUE, SqlDialect, TableName
from service.connect.connectors.jdbc.failures import Meaning, meaning_of
from service.connect.data.errors import TaskFault

_WHERE: Final = f"connector = {VALUE} AND topic = {VALUE} AND partition_number = {VALUE}"


class OvertakenSink(TaskFault):
    """Another task has written what this one was about to write."""


class OffsetsTable:
    """Its methods run where the session runs them."""

    def __init__(self, dialect: SqlDialect, name: str, connector: str) -> None:
        self._dialect = dialect
        self._name: TableName = dialect.table_name(name)
        self._connector = connector

    def prepare(self, connection: Connection) -> bool:
        """Create the table unless it is there; return whether it may be used.

        Raises what the database raises when it is busy or gone.
        """
        if self._exists(connection):
            return True
        try:
            statement = (
                f"CREATE TABLE {self._dialect.table(self._name)} ("
                "connector VARCHAR(255) NOT NULL, topic VARCHAR(249) NOT NULL,"
                " partition_number INTEGER NOT NULL, next_offset BIGINT NOT NULL,"
                " PRIMARY KEY (connector, topic, partition_number))"
            )
            connection.exec_driver_sql(self._dialect.finished(statement))
            connection.commit()
        except DBAPIError as error:
            connection.rollback()
            if meaning_of(error) is Meaning.LATER:
                raise
            # Another task has created it meanwhile, or this user may not.
            return self._exists(connection)
        return True

    def _exists(self, connection: Connection) -> bool:
        try:
            columns_of(connection, self._name, self._dialect.name)
        except NoSuchTableError:
            return False
        finally:
            connection.rollback()
        return True

    def read(
        self, connection: Connection, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Return the next offsets of the partitions that have one."""
        parts = ("SELECT next_offset FROM", self._dialect.table(self._name), "WHERE", _WHERE)
        finished = self._dialect.finished(" ".join(parts))
        found = {}
        for at in partitions:
            row = connection.exec_driver_sql(finished, self._key(at)).first()
            if row is not None:
                found[at] = int(row[0])
        connection.rollback()
        return found

    def advance(
        self,
        connection: Connection,
        known: Mapping[TopicPartition, int],
        following: Mapping[TopicPartition, int],
    ) -> None:
        """Write the next offsets in this transaction; raise `OvertakenSink` if they were moved."""
        # In one order, so that two tasks do not wait for each other.
        for at in sorted(following, key=lambda each: (each.topic, each.partition)):
            if not self._moved(connection, at, known.get(at), following[at]):
                raise OvertakenSink(
                    f"partition {at.partition} of {at.topic} was moved from offset {known.get(at)}"
                    " by another task of this connector: it holds the partition now"
                )

    def alter(
        self,
        connection: Connection,
        known: Mapping[TopicPartition, int],
        wanted: Mapping[TopicPartition, int | None],
    ) -> None:
        """Write or delete next offsets in this transaction; raise `OvertakenSink` as `advance`."""
        self.advance(connection, known, {at: n for at, n in wanted.items() if n is not None})
        delete = ("DELETE FROM", self._dialect.table(self._name), "WHERE", _WHERE)
        statement = self._dialect.finished(f"{' '.join(delete)} AND next_offset = {VALUE}")
        for at, offset in wanted.items():
            if offset is not None or at not in known:
                continue
            if connection.exec_driver_sql(statement, (*self._key(at), known[at])).rowcount != 1:
                raise OvertakenSink(
                    f"partition {at.partition} of {at.topic} was moved from offset {known[at]}"
                    " by another task of this connector: it holds the partition now"
                )

    def _moved(
        self, connection: Connection, at: TopicPartition, known: int | None, following: int
    ) -> bool:
        table = self._dialect.table(self._name)
        if known is None:
            columns = "(connector, topic, partition_number, next_offset)"
            parts = ("INSERT INTO", table, columns, f"VALUES ({', '.join([VALUE] * 4)})")
            statement = self._dialect.finished(" ".join(parts))
            try:
                connection.exec_driver_sql(statement, (*self._key(at), following))
            except IntegrityError:
                return False
            return True
        changed = f"next_offset = {VALUE}"
        update = ("UPDATE", table, "SET", changed, "WHERE", _WHERE, "AND", changed)
        statement = self._dialect.finished(" ".join(update))
        done = connection.exec_driver_sql(statement, (following, *self._key(at), known))
        return done.rowcount == 1

    def _key(self, at: TopicPartition) -> tuple[str, str, int]:
        return self._connector, at.topic, at.partition
