"""The statements of a sink, and how many rows are sent with them.

    SQLite            executemany
    MariaDB, MySQL    executemany, of which PyMySQL makes statements of many rows
    PostgreSQL        COPY, for upserts into a temporary table that is then merged

Upserts of one group have each key once: the last row of a key would overwrite the others anyway.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.util import await_only

from service.connect.connectors.jdbc.columns import TableColumn
from service.connect.connectors.jdbc.dialects import VALUE, SqlDialect
from service.connect.connectors.jdbc.sink.keys import INSERT, UPDATE, UPSERT
from service.connect.connectors.jdbc.sink.rows import RowPlan
from service.connect.connectors.jdbc.urls import MYSQL, POSTGRESQL

COPIED_ROWS_MIN: Final = 50
"""Fewer are sent as statements."""

Row = Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStatement:
    """What writes the rows of one plan."""

    plan: RowPlan
    columns: Sequence[TableColumn]
    """Of the plan's fields, the keys first."""
    dialect: SqlDialect
    mode: str
    number: int
    """Of this plan, for the name of its temporary table."""

    def execute(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Write rows, all or none of them."""
        keys = len(self.plan.keys)
        if self.plan.is_delete:
            return self._many(connection, self._delete(), rows)
        if self.mode == UPDATE:
            # The values to set come before those to find the row by.
            return self._many(connection, self._update(), [(*r[keys:], *r[:keys]) for r in rows])
        if self.mode == UPSERT:
            rows = list({tuple(row[:keys]): row for row in rows}.values())
        is_copied = self.dialect.name == POSTGRESQL and len(rows) >= COPIED_ROWS_MIN
        if not is_copied:
            conflict = self._conflict() if self.mode == UPSERT else ""
            values = ", ".join([VALUE] * len(self.columns))
            return self._many(connection, f"{self._into()} VALUES ({values})", rows, conflict)
        if self.mode == INSERT:
            return self._copy(connection, self.plan.table.table, self.plan.table.schema, rows)
        return self._merge(connection, rows)

    def _many(
        self, connection: Connection, statement: str, rows: Sequence[Row], end: str = ""
    ) -> None:
        finished = self.dialect.finished(statement + end)
        if self.dialect.name == MYSQL and "%" in end:
            # PyMySQL makes one statement of many rows, and then leaves `%%` in its end as it is.
            for row in rows:
                connection.exec_driver_sql(finished, tuple(row))
            return
        connection.exec_driver_sql(finished, [tuple(row) for row in rows])

    def _merge(self, connection: Connection, rows: Sequence[Row]) -> None:
        names, table = self._names(), f"riacho_rows_{self.number}"
        target = self.dialect.table(self.plan.table)
        create = f"CREATE TEMPORARY TABLE IF NOT EXISTS {table} ON COMMIT DELETE ROWS"
        parts = (create, "AS SELECT", names, "FROM", target, "WITH NO DATA")
        connection.exec_driver_sql(" ".join(parts))
        self._copy(connection, table, None, rows)
        parts = (self._into(), "SELECT", names, "FROM", table, self._conflict())
        connection.exec_driver_sql(" ".join(parts))
        connection.exec_driver_sql(f"TRUNCATE {table}")

    def _copy(
        self, connection: Connection, table: str, schema: str | None, rows: Sequence[Row]
    ) -> None:
        driver: Any = connection.connection.driver_connection
        columns = [column.name for column in self.columns]
        await_only(
            driver.copy_records_to_table(table, records=rows, columns=columns, schema_name=schema)
        )

    def _names(self) -> str:
        return ", ".join(self.dialect.quoted(column.name) for column in self.columns)

    def _into(self) -> str:
        return f"INSERT INTO {self.dialect.table(self.plan.table)} ({self._names()})"

    def _split(self) -> tuple[Sequence[str], Sequence[str]]:
        names = [self.dialect.quoted(column.name) for column in self.columns]
        keys = len(self.plan.keys)
        return names[:keys], names[keys:]

    def _conflict(self) -> str:
        keys, others = self._split()
        if self.dialect.name == MYSQL:
            changes = ", ".join(f"{each} = VALUES({each})" for each in (others or keys))
            return f" ON DUPLICATE KEY UPDATE {changes}"
        changes = ", ".join(f"{each} = excluded.{each}" for each in others)
        then = " ".join(("UPDATE SET", changes)) if others else "NOTHING"
        return f" ON CONFLICT ({', '.join(keys)}) DO {then}"

    def _update(self) -> str:
        keys, others = self._split()
        changes = ", ".join(f"{each} = {VALUE}" for each in (others or keys))
        table = self.dialect.table(self.plan.table)
        return " ".join(("UPDATE", table, "SET", changes, self._where(keys)))

    def _delete(self) -> str:
        keys, _ = self._split()
        return " ".join(("DELETE FROM", self.dialect.table(self.plan.table), self._where(keys)))

    def _where(self, keys: Sequence[str]) -> str:
        return "WHERE " + " AND ".join(f"{each} = {VALUE}" for each in keys)
