"""How the databases differ in text: quotes of names, placeholders of values, names of tables.

Statements are written with `VALUE` where a value goes; `SqlDialect.finished` puts the placeholder
of the driver there. Names come from tables, topics and fields of records, so they may be anything:
they are quoted always, unless `quote.sql.identifiers` is `never` and they are plain words.
"""

import re
from dataclasses import dataclass, replace
from typing import Final

from service.connect.connectors.jdbc.urls import MYSQL, POSTGRESQL, SQLITE
from service.connect.data.errors import DataFault

VALUE: Final = "\0"
"""Stands for a value in a statement. No name and no text of SQL can have it."""

NAME_CHARACTERS_MAX: Final = 512

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PARTS: Final = re.compile(r'"((?:[^"]|"")*)"|`((?:[^`]|``)*)`|([^."`]+)')


@dataclass(frozen=True, slots=True)
class TableName:
    """A table, as reflection and statements name it. `schema` is MySQL's database."""

    table: str
    schema: str | None = None

    def __str__(self) -> str:
        return self.table if self.schema is None else f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class SqlDialect:
    name: str
    mark: str
    """Around names."""
    quotes_always: bool = True

    def quoted(self, name: str) -> str:
        """Return a name as statements have it; raise `DataFault` if it cannot be one."""
        if not name or "\0" in name or len(name) > NAME_CHARACTERS_MAX:
            raise DataFault(f"{name[:100]!r} cannot be the name of a table or a column")
        if not self.quotes_always and _PLAIN.fullmatch(name):
            return name
        return f"{self.mark}{name.replace(self.mark, self.mark * 2)}{self.mark}"

    def table(self, name: TableName) -> str:
        if name.schema is None:
            return self.quoted(name.table)
        return f"{self.quoted(name.schema)}.{self.quoted(name.table)}"

    def table_name(self, text: str) -> TableName:
        """Return the table that a text names: `table`, `schema.table`, `database.schema.table`.

        Parts in quotes may have dots. SQLite knows no schemas: there it is the whole text.
        """
        if self.name == SQLITE:
            return TableName(text)
        found = _PARTS.findall(text)
        parts = [a.replace('""', '"') or b.replace("``", "`") or c for a, b, c in found]
        if not parts:
            raise DataFault(f"{text!r} is not the name of a table")
        return TableName(parts[-1], parts[-2] if len(parts) > 1 else None)

    def finished(self, statement: str) -> str:
        """Return a statement as its driver takes it, with values or without any."""
        if self.name == MYSQL:
            return statement.replace("%", "%%").replace(VALUE, "%s")
        if self.name == SQLITE:
            return statement.replace(VALUE, "?")
        parts = statement.split(VALUE)
        numbered = [f"${n}{part}" for n, part in enumerate(parts[1:], start=1)]
        return "".join([parts[0], *numbered])


_DIALECTS: Final = {
    SQLITE: SqlDialect(SQLITE, '"'),
    POSTGRESQL: SqlDialect(POSTGRESQL, '"'),
    MYSQL: SqlDialect(MYSQL, "`"),
}


def dialect_of(name: str, quote_sql_identifiers: str = "always") -> SqlDialect:
    return replace(_DIALECTS[name], quotes_always=quote_sql_identifiers.lower() != "never")
