"""What a value of Connect is to a column: types of new columns, and values for the drivers.

    Connect       SQLite    PostgreSQL         MariaDB, MySQL
    INT8, INT16   INTEGER   SMALLINT           TINYINT, SMALLINT
    INT32, INT64  INTEGER   INT, BIGINT        INT, BIGINT
    FLOAT32       REAL      REAL               FLOAT
    FLOAT64       REAL      DOUBLE PRECISION   DOUBLE
    BOOLEAN       INTEGER   BOOLEAN            TINYINT
    STRING        TEXT      TEXT               LONGTEXT, as a key VARCHAR(255)
    BYTES         BLOB      BYTEA              LONGBLOB, as a key VARBINARY(255)
    Decimal       NUMERIC   DECIMAL            DECIMAL(65, scale)
    Date          NUMERIC   DATE               DATE
    Time          NUMERIC   TIME               TIME(3)
    Timestamp     NUMERIC   TIMESTAMP          DATETIME(3)
    ARRAY         none      the type, and []   none

A NUMERIC column of SQLite keeps dates as text, and no more than 15 digits of a number: decimals
with more are refused, unless their column is TEXT.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from typing import Any, Final

from service.connect.connectors.jdbc.columns import ColumnKind, TableColumn
from service.connect.connectors.jdbc.sink.rows import Bind
from service.connect.connectors.jdbc.urls import MYSQL, POSTGRESQL, SQLITE
from service.connect.data.errors import DataFault, TaskFault
from service.connect.data.logical import scale_of
from service.connect.data.schema import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    UNSET,
    ConnectSchema,
    Type,
)

SQLITE_DIGITS_MAX: Final = 15
MYSQL_SCALE_MAX: Final = 30

_LOGICAL: Final[Mapping[str, Mapping[str, str]]] = {
    SQLITE: dict.fromkeys((DECIMAL, DATE, TIME, TIMESTAMP), "NUMERIC"),
    POSTGRESQL: {DECIMAL: "DECIMAL", DATE: "DATE", TIME: "TIME", TIMESTAMP: "TIMESTAMP"},
    MYSQL: {DATE: "DATE", TIME: "TIME(3)", TIMESTAMP: "DATETIME(3)"},
}
_PLAIN: Final[Mapping[str, Mapping[Type, str]]] = {
    SQLITE: {
        **dict.fromkeys((Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.BOOLEAN), "INTEGER"),
        **dict.fromkeys((Type.FLOAT32, Type.FLOAT64), "REAL"),
        Type.STRING: "TEXT",
        Type.BYTES: "BLOB",
    },
    POSTGRESQL: {
        Type.INT8: "SMALLINT",
        Type.INT16: "SMALLINT",
        Type.INT32: "INT",
        Type.INT64: "BIGINT",
        Type.FLOAT32: "REAL",
        Type.FLOAT64: "DOUBLE PRECISION",
        Type.BOOLEAN: "BOOLEAN",
        Type.STRING: "TEXT",
        Type.BYTES: "BYTEA",
    },
    MYSQL: {
        Type.INT8: "TINYINT",
        Type.INT16: "SMALLINT",
        Type.INT32: "INT",
        Type.INT64: "BIGINT",
        Type.FLOAT32: "FLOAT",
        Type.FLOAT64: "DOUBLE",
        Type.BOOLEAN: "TINYINT",
        Type.STRING: "LONGTEXT",
        Type.BYTES: "LONGBLOB",
    },
}
_KEYS_OF_MYSQL: Final = {Type.STRING: "VARCHAR(255)", Type.BYTES: "VARBINARY(255)"}


def column_type(schema: ConnectSchema, dialect: str, *, is_key: bool = False) -> str:
    """Return the type of a new column; raise `TaskFault` if the database has none for it."""
    if schema.name == DECIMAL and dialect == MYSQL:
        scale = scale_of(schema)
        if not 0 <= scale <= MYSQL_SCALE_MAX:
            raise TaskFault(f"a Decimal of scale {scale}: this database has 0 to {MYSQL_SCALE_MAX}")
        return f"DECIMAL(65, {scale})"
    if schema.name in _LOGICAL[dialect]:
        return _LOGICAL[dialect][schema.name or ""]
    if dialect == MYSQL and is_key and schema.type in _KEYS_OF_MYSQL:
        return _KEYS_OF_MYSQL[schema.type]
    if schema.type is Type.ARRAY and dialect == POSTGRESQL and schema.value_schema is not None:
        return f"{column_type(schema.value_schema, dialect)}[]"
    found = _PLAIN[dialect].get(schema.type)
    if found is None:
        raise TaskFault(f"no column of {dialect} holds a value of type {schema.type.name}")
    return found


def default_text(schema: ConnectSchema, dialect: str) -> str | None:
    """Return the default of a new column as SQL; None: it has none that can be written so."""
    match schema.default:
        case bool() as value:
            return str(value).upper() if dialect == POSTGRESQL else str(int(value))
        case int() | float() | Decimal() as value:
            return str(value)
        case str() as value if dialect != MYSQL:
            return _literal(value)
        case datetime() as value:
            return _literal(value.astimezone(UTC).replace(tzinfo=None).isoformat(" "))
        case date() as value:
            return _literal(value.isoformat())
    return None


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def has_default(schema: ConnectSchema) -> bool:
    return schema.default is not UNSET and schema.default is not None


def bind_of(schema: ConnectSchema, column: TableColumn, dialect: str, zone: tzinfo) -> Bind | None:
    """Return what changes values of a schema into what the driver takes for a column."""
    match schema.name:
        case name if name == TIMESTAMP:
            return _timestamp(column, dialect, zone)
        case name if name == DECIMAL:
            return _decimal(column, dialect)
        case name if name in (DATE, TIME) and dialect == SQLITE:
            return _iso
        case name if name in (DATE, TIME) and column.kind is ColumnKind.STRING:
            return _iso
    if dialect == POSTGRESQL:
        return _of_postgresql(schema, column)
    return None


def _of_postgresql(schema: ConnectSchema, column: TableColumn) -> Bind | None:
    """Return what makes the very type of the column: asyncpg takes no other."""
    wants_text = column.kind is ColumnKind.STRING
    if schema.type is Type.BOOLEAN:
        if column.kind is ColumnKind.BOOLEAN:
            return None
        return _boolean_text if wants_text else int
    is_number = schema.type in _WHOLE or schema.type in _REAL
    if wants_text and is_number:
        return str
    if column.kind is ColumnKind.BOOLEAN and schema.type in _WHOLE:
        return bool
    return None


_WHOLE: Final = (Type.INT8, Type.INT16, Type.INT32, Type.INT64)
_REAL: Final = (Type.FLOAT32, Type.FLOAT64)


def _boolean_text(value: Any) -> str:
    return "true" if value else "false"


def _iso(value: Any) -> str:
    return str(value.isoformat())


def _timestamp(column: TableColumn, dialect: str, zone: tzinfo) -> Bind:
    is_text = dialect == SQLITE or column.kind is ColumnKind.STRING

    def bind(value: Any) -> Any:
        if not isinstance(value, datetime):
            raise DataFault(f"{value!r} is no Timestamp")
        if column.kind is ColumnKind.INSTANT:
            return value if dialect == POSTGRESQL else value.astimezone(UTC).replace(tzinfo=None)
        # Most are in UTC, and most databases are: converting one costs more than the rest.
        in_zone = value if value.tzinfo is zone else value.astimezone(zone)
        local = in_zone.replace(tzinfo=None)
        digits = "microseconds" if local.microsecond % 1000 else "milliseconds"
        return local.isoformat(" ", digits) if is_text else local

    return bind


def _decimal(column: TableColumn, dialect: str) -> Bind | None:
    if column.kind is ColumnKind.STRING:
        return str
    if dialect != SQLITE:
        return None

    def bind(value: Any) -> str:
        digits = len(value.as_tuple().digits)
        if digits > SQLITE_DIGITS_MAX:
            raise DataFault(
                f"a decimal of {digits} digits, of which SQLite keeps {SQLITE_DIGITS_MAX} in a"
                " column of numbers: make the column TEXT"
            )
        return str(value)

    return bind
