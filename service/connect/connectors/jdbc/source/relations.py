"""What a source reads: the tables that its configuration chooses, or its query.

A table is named `database.schema.table` in positions, as Confluent's connector names it; a position
that was written with a shorter name is found, too.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import re2
from sqlalchemy import Connection, inspect

from service.connect.config.values import Values
from service.connect.connectors.api import Position
from service.connect.connectors.jdbc.columns import (
    WIDER,
    ColumnKind,
    TableColumn,
    columns_of,
)
from service.connect.connectors.jdbc.dialects import SqlDialect, TableName
from service.connect.connectors.jdbc.urls import MYSQL, POSTGRESQL, SQLITE
from service.connect.data.errors import TaskFault

TABLES_MAX: Final = 10_000

_SYSTEM: Final = frozenset(
    {"information_schema", "mysql", "performance_schema", "sys", "pg_catalog", "pg_toast"}
)
_QUERY: Final = "riacho_query"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A table, or the query; what follows SELECT and FROM, and where its rows go."""

    label: str
    name: str | None
    """Of the table, without its schema; None: it is the query."""
    topic: str
    partitions: Sequence[Position]
    """How its position may be named; the first is how it is written."""
    columns: Sequence[TableColumn]
    selected: str
    source: str

    def column(self, name: str) -> TableColumn | None:
        """Return the column with this name, or else the one that differs in case only."""
        exact = [each for each in self.columns if each.name == name]
        loose = [each for each in self.columns if each.name.lower() == name.lower()]
        return next(iter(exact or loose), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    name: TableName
    catalog: str
    """The database; MySQL's is its schema, and SQLite has none."""

    @property
    def names(self) -> Sequence[str]:
        """What it may be called, the whole name first."""
        short = str(self.name)
        whole = f"{self.catalog}.{short}" if self.catalog else short
        return list(dict.fromkeys((whole, short, self.name.table)))


def find_tables(connection: Connection, values: Values, dialect: str) -> Sequence[FoundTable]:
    """Return the tables that the configuration chooses, in the order of their names."""
    inspector = inspect(connection)
    catalog = str(connection.engine.url.database or "") if dialect == POSTGRESQL else ""
    kinds = {each.upper() for each in values["table.types"]}
    found: list[FoundTable] = []
    for schema in _schemas(inspector, values, dialect):
        names: set[str] = set()
        if kinds & {"TABLE", "PARTITIONED TABLE"}:
            names |= set(inspector.get_table_names(schema))
        if "VIEW" in kinds:
            names |= set(inspector.get_view_names(schema))
        if "MATERIALIZED VIEW" in kinds and dialect == POSTGRESQL:
            names |= set(inspector.get_materialized_view_names(schema))
        tables = (FoundTable(name=TableName(each, schema), catalog=catalog) for each in names)
        found += [each for each in tables if _is_chosen(each, values)]
    if len(found) > TABLES_MAX:
        raise TaskFault(
            f"{len(found)} tables are chosen, the limit is {TABLES_MAX}: set table.whitelist"
        )
    return sorted(found, key=lambda each: each.names[0])


def _schemas(inspector: Any, values: Values, dialect: str) -> Sequence[str | None]:
    if dialect == SQLITE:
        return [None]
    pattern = values["catalog.pattern" if dialect == MYSQL else "schema.pattern"]
    schemas = [each for each in inspector.get_schema_names() if each not in _SYSTEM]
    if pattern:
        return [each for each in schemas if _like(pattern, each)]
    # The URL of MySQL names the database to read; schemas of PostgreSQL are all in the database.
    return [inspector.bind.engine.url.database] if dialect == MYSQL else schemas


def _like(pattern: str, text: str) -> bool:
    parts = (".*" if each == "%" else "." if each == "_" else re.escape(each) for each in pattern)
    return re2.fullmatch("".join(parts), text) is not None


def _is_chosen(table: FoundTable, values: Values) -> bool:
    if table.name.table == values.raw.get("offsets.table.name", "riacho_connect_offsets"):
        return False
    names = set(table.names)
    if values["table.whitelist"]:
        return bool(names & set(values["table.whitelist"]))
    if values["table.blacklist"]:
        return not names & set(values["table.blacklist"])
    whole = table.names[0]
    included, excluded = values["table.include.list"], values["table.exclude.list"]
    if included and not any(re2.fullmatch(each, whole) for each in included):
        return False
    return not any(re2.fullmatch(each, whole) for each in excluded)


def describe_table(
    connection: Connection, table: FoundTable, dialect: SqlDialect, topic_prefix: str
) -> Relation:
    columns = columns_of(connection, table.name, dialect.name)
    protocols = [{"protocol": "1", "table": each} for each in table.names]
    return Relation(
        label=table.names[0],
        name=table.name.table,
        topic=f"{topic_prefix}{table.name.table}",
        partitions=[*protocols, {"table": table.name.table}],
        columns=columns,
        selected=_selected(columns, dialect),
        source=dialect.table(table.name),
    )


def describe_query(connection: Connection, query: str, dialect: SqlDialect, topic: str) -> Relation:
    query = query.strip().rstrip(";")
    wrapped = f"({query}) AS {_QUERY}"
    if dialect.name == MYSQL:
        columns = _of_description(
            connection, dialect.finished(" ".join(("SELECT * FROM", wrapped, "LIMIT 0")))
        )
    else:
        # A view that nobody else sees and that is rolled back: reflection knows its columns.
        connection.exec_driver_sql(f"CREATE TEMPORARY VIEW {_QUERY} AS {query}")
        schema = "temp" if dialect.name == SQLITE else None
        columns = columns_of(connection, TableName(_QUERY, schema), dialect.name)
        connection.rollback()
    return Relation(
        label="query",
        name=None,
        topic=topic,
        partitions=[{"query": "query"}],
        columns=columns,
        selected=_selected(columns, dialect),
        source=wrapped,
    )


def _selected(columns: Sequence[TableColumn], dialect: SqlDialect) -> str:
    if not columns:
        raise TaskFault("a table without columns, or none that this user may read")
    # PostgreSQL writes arrays, JSON, intervals and the like as text, which is what they become.
    cast = {POSTGRESQL: "CAST({} AS text)"}.get(dialect.name, "{}")
    names = [(dialect.quoted(each.name), each.kind is ColumnKind.TEXT) for each in columns]
    return ", ".join(
        f"{cast.format(name)} AS {name}" if is_text else name for name, is_text in names
    )


_UNSIGNED: Final = 32
_CODES: Final[Sequence[tuple[ColumnKind, Sequence[int]]]] = (
    (ColumnKind.NUMERIC, (0, 246)),
    (ColumnKind.INT8, (1,)),
    (ColumnKind.INT16, (2,)),
    (ColumnKind.INT32, (3, 9, 13)),
    (ColumnKind.INT64, (8,)),
    (ColumnKind.FLOAT32, (4,)),
    (ColumnKind.FLOAT64, (5,)),
    (ColumnKind.INSTANT, (7,)),
    (ColumnKind.LOCAL, (12,)),
    (ColumnKind.DATE, (10, 14)),
    (ColumnKind.TIME, (11,)),
    (ColumnKind.BYTES, (16,)),
    (ColumnKind.STRING, (245,)),
)
_OF_CODES: Final = {code: kind for kind, codes in _CODES for code in codes}
"""Types of MySQL's protocol; all others are text, or bytes if they have no character set."""
_BINARY: Final = 63
_BIT: Final = 16


def _of_description(connection: Connection, statement: str) -> Sequence[TableColumn]:
    result = connection.exec_driver_sql(statement)
    cursor: Any = result.cursor
    columns = []
    for field in cursor._result.fields:
        is_binary = field.charsetnr == _BINARY
        text = ColumnKind.BYTES if is_binary else ColumnKind.STRING
        kind = _OF_CODES.get(field.type_code, text)
        if field.type_code == _BIT and field.length == 1:
            kind = ColumnKind.INT8
        elif field.flags & _UNSIGNED and kind in WIDER:
            kind = WIDER[kind]
        columns.append(
            TableColumn(
                name=field.name,
                kind=kind,
                precision=field.length if kind is ColumnKind.NUMERIC else None,
                scale=field.scale if kind is ColumnKind.NUMERIC else None,
                is_nullable=not field.flags & 1,
            )
        )
    result.close()
    connection.rollback()
    return columns
