"""What the columns of a table or a query are, in kinds that all databases share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from sqlalchemy import Connection, inspect, types
from sqlalchemy.dialects import mysql, postgresql

from service.connect.connectors.jdbc.dialects import TableName
from service.connect.connectors.jdbc.urls import MYSQL, POSTGRESQL, SQLITE


class ColumnKind(Enum):
    INT8 = auto()
    INT16 = auto()
    INT32 = auto()
    INT64 = auto()
    FLOAT32 = auto()
    FLOAT64 = auto()
    BOOLEAN = auto()
    NUMERIC = auto()
    STRING = auto()
    BYTES = auto()
    DATE = auto()
    TIME = auto()
    LOCAL = auto()
    """A date with a time, in the zone that `db.timezone` says."""
    INSTANT = auto()
    """A point in time; the database knows its zone."""
    TEXT = auto()
    """Anything else: read as text where the database can write it so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    name: str
    kind: ColumnKind
    precision: int | None = None
    scale: int | None = None
    """Of NUMERIC; None: any."""
    is_nullable: bool = True
    is_counted: bool = False
    """The database gives new rows the next number."""
    is_key: bool = False
    type_name: str = ""
    """As SQLAlchemy calls it: TEXT, JSONB, UUID."""


_BY_CLASS: Final[Sequence[tuple[Any, ColumnKind]]] = (
    (types.Boolean, ColumnKind.BOOLEAN),
    (types.SmallInteger, ColumnKind.INT16),
    (types.BigInteger, ColumnKind.INT64),
    (types.Integer, ColumnKind.INT32),
    (types.REAL, ColumnKind.FLOAT32),
    (types.Float, ColumnKind.FLOAT64),
    (types.Numeric, ColumnKind.NUMERIC),
    (types._Binary, ColumnKind.BYTES),
    (types.Date, ColumnKind.DATE),
    (types.Time, ColumnKind.TIME),
    (types.DateTime, ColumnKind.LOCAL),
    (types.String, ColumnKind.STRING),
)
"""The first that fits, of SQLAlchemy's types."""

WIDER: Final = {
    ColumnKind.INT8: ColumnKind.INT16,
    ColumnKind.INT16: ColumnKind.INT32,
    ColumnKind.INT32: ColumnKind.INT64,
    ColumnKind.INT64: ColumnKind.NUMERIC,
}
"""Of whole numbers without a sign."""


def columns_of(connection: Connection, name: TableName, dialect: str) -> Sequence[TableColumn]:
    """Return the columns of a table or a view, in order.

    Raises `sqlalchemy.exc.NoSuchTableError`.
    """
    found = inspect(connection)
    keys = found.get_pk_constraint(name.table, name.schema).get("constrained_columns") or []
    columns = []
    for each in found.get_columns(name.table, name.schema):
        kind = kind_of(each["type"], dialect)
        is_key = each["name"] in keys
        is_rowid = dialect == SQLITE and keys == [each["name"]] and _is_rowid(each["type"])
        columns.append(
            TableColumn(
                name=each["name"],
                kind=kind,
                precision=getattr(each["type"], "precision", None),
                scale=_scale_of(each["type"], kind),
                is_nullable=bool(each["nullable"]) and not is_rowid,
                is_counted=is_rowid or _is_counted(each),
                is_key=is_key,
                type_name=type(each["type"]).__name__.upper(),
            )
        )
    return columns


def kind_of(of: Any, dialect: str) -> ColumnKind:
    """Return the kind of a type of SQLAlchemy."""
    if dialect == SQLITE and isinstance(of, types.Integer):
        return ColumnKind.INT64  # Whatever it is called, it holds 64 bits.
    if dialect == POSTGRESQL:
        if isinstance(of, postgresql.BIT):
            return ColumnKind.TEXT
        if isinstance(of, types.DateTime) and of.timezone:
            return ColumnKind.INSTANT
        if isinstance(of, types.Time) and of.timezone:
            return ColumnKind.TEXT
    if dialect == MYSQL and (kind := _of_mysql(of)) is not None:
        return kind
    return next((kind for known, kind in _BY_CLASS if isinstance(of, known)), ColumnKind.TEXT)


def _of_mysql(of: Any) -> ColumnKind | None:
    if isinstance(of, mysql.BIT):
        return ColumnKind.BYTES if (of.length or 1) > 1 else ColumnKind.INT8
    if isinstance(of, mysql.YEAR):
        return ColumnKind.INT32
    if isinstance(of, types.TIMESTAMP):
        return ColumnKind.INSTANT
    if isinstance(of, mysql.FLOAT):
        return ColumnKind.FLOAT32
    if not isinstance(of, types.Integer):
        return None
    kind = ColumnKind.INT32
    for known, named in (
        (mysql.TINYINT, ColumnKind.INT8),
        (types.SmallInteger, ColumnKind.INT16),
        (types.BigInteger, ColumnKind.INT64),
    ):
        if isinstance(of, known):
            kind = named
    return WIDER[kind] if getattr(of, "unsigned", False) else kind


def _scale_of(of: Any, kind: ColumnKind) -> int | None:
    if kind is not ColumnKind.NUMERIC:
        return None
    if isinstance(of, types.Integer):
        return 0
    if of.precision is not None and of.scale is None:
        return 0
    scale: int | None = of.scale
    return scale


def _is_rowid(of: Any) -> bool:
    return isinstance(of, types.Integer) and type(of).__name__ == "INTEGER"


def _is_counted(column: Mapping[str, Any]) -> bool:
    if column.get("identity"):
        return True
    if "nextval(" in str(column.get("default") or ""):
        return True
    return column.get("autoincrement") is True
