"""The tables of a sink: looked up once, created and widened where the configuration says so.

Definitions are changed before the transaction of the rows, since MariaDB would end it. Two tasks
may create the same table at once: the one that comes second finds it there.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, NoSuchTableError

from service.connect.connectors.jdbc.columns import TableColumn, columns_of
from service.connect.connectors.jdbc.dialects import SqlDialect, TableName
from service.connect.connectors.jdbc.failures import Meaning, meaning_of
from service.connect.connectors.jdbc.sink.binding import column_type, default_text, has_default
from service.connect.connectors.jdbc.sink.rows import RowField, RowPlan
from service.connect.data.errors import TaskFault

ATTEMPTS_MAX: Final = 3


class SinkTables:
    """Its methods run where the session runs them."""

    def __init__(self, dialect: SqlDialect, *, creates: bool, evolves: bool) -> None:
        self._dialect = dialect
        self._creates = creates
        self._evolves = evolves

    def columns_for(self, connection: Connection, plan: RowPlan) -> Sequence[TableColumn] | None:
        """Return the columns of the plan's fields, creating what may be created.

        None: it deletes, and the table will be created by the first row to insert.
        Raises `TaskFault` that says what is missing.
        """
        for attempt in range(ATTEMPTS_MAX):
            known = self._known(connection, plan.table)
            missing = [f for f in plan.fields if known is None or _find(known, f.name) is None]
            if known is not None and not missing:
                return [_found(known, field.name) for field in plan.fields]
            if known is None and plan.is_delete and self._creates:
                return None
            try:
                if known is None:
                    self._create(connection, plan)
                else:
                    self._add(connection, plan.table, missing)
            except DBAPIError as error:
                connection.rollback()
                if attempt == ATTEMPTS_MAX - 1 or meaning_of(error) is Meaning.LATER:
                    raise
        raise TaskFault(f"table {plan.table} has not the columns that were just added to it")

    def _known(self, connection: Connection, table: TableName) -> Mapping[str, TableColumn] | None:
        try:
            columns = columns_of(connection, table, self._dialect.name)
        except NoSuchTableError:
            return None
        finally:
            connection.rollback()
        return {column.name: column for column in columns}

    def _create(self, connection: Connection, plan: RowPlan) -> None:
        if not self._creates:
            raise TaskFault(f"table {plan.table} is missing: create it, or set auto.create=true")
        quoted = self._dialect.quoted
        parts = [self._definition(field, is_key=True) for field in plan.keys]
        parts += [self._definition(field) for field in plan.others]
        if plan.keys:
            parts.append(f"PRIMARY KEY ({', '.join(quoted(each.name) for each in plan.keys)})")
        table = self._dialect.table(plan.table)
        statement = f"CREATE TABLE {table} ({', '.join(parts)})"
        connection.exec_driver_sql(self._dialect.finished(statement))
        connection.commit()

    def _add(self, connection: Connection, table: TableName, missing: Sequence[RowField]) -> None:
        names = ", ".join(repr(each.name) for each in missing)
        if not self._evolves:
            raise TaskFault(f"table {table} has no column {names}: add it, or set auto.evolve=true")
        for field in missing:
            if not field.schema.is_optional and not has_default(field.schema):
                raise TaskFault(
                    f"column {field.name!r} cannot be added to table {table}: the field is neither"
                    " optional nor has it a default for the rows that are there"
                )
        for field in missing:
            definition = self._definition(field)
            statement = f"ALTER TABLE {self._dialect.table(table)} ADD COLUMN {definition}"
            connection.exec_driver_sql(self._dialect.finished(statement))
        connection.commit()

    def _definition(self, field: RowField, *, is_key: bool = False) -> str:
        schema, dialect = field.schema, self._dialect.name
        parts = [self._dialect.quoted(field.name), column_type(schema, dialect, is_key=is_key)]
        default = default_text(schema, dialect)
        if default is not None:
            parts.append(f"DEFAULT {default}")
        # A default that SQL cannot have is given by the sink, so the column may be null.
        is_given = default is None and has_default(schema)
        if is_key or not (schema.is_optional or is_given):
            parts.append("NOT NULL")
        return " ".join(parts)


def _find(known: Mapping[str, TableColumn], name: str) -> TableColumn | None:
    """Return the column with this name, or else the only one that differs in case alone."""
    if name in known:
        return known[name]
    loose = [column for each, column in known.items() if each.lower() == name.lower()]
    return loose[0] if len(loose) == 1 else None


def _found(known: Mapping[str, TableColumn], name: str) -> TableColumn:
    column = _find(known, name)
    assert column is not None, name
    return column
