"""The keys that the JDBC source and sink share, with Confluent's and Aiven's names."""

from collections.abc import Mapping
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from service.connect.config.keys import REQUIRED, Importance, Key, KeyType, between, one_of
from service.connect.connectors.jdbc.urls import parse_url

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

CONNECTION: Final = "Connection"
DIALECTS: Final = ("", "SqliteDatabaseDialect", "PostgreSqlDatabaseDialect", "MySqlDatabaseDialect")


def _is_url(_: str, value: Any) -> str | None:
    try:
        parse_url(value)
    except ValueError as error:
        return str(error)
    return None


def _is_zone(_: str, value: Any) -> str | None:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return f"{value!r} is no time zone: write UTC, or a name like Europe/Lisbon"
    return None


def jdbc_key(name: str, kind: KeyType, default: Any, about: str, group: str, **more: Any) -> Key:
    """Return a key; numbers may not be negative unless `check` says what they may be."""
    if kind in (KeyType.INT, KeyType.LONG):
        more.setdefault("check", between(0, INT_MAX if kind is KeyType.INT else LONG_MAX))
    return Key(name=name, type=kind, default=default, about=about, group=group, **more)


CONNECTION_KEYS: Final = (
    jdbc_key(
        "connection.url",
        KeyType.STRING,
        REQUIRED,
        "Where the database is: jdbc:sqlite:FILE, jdbc:postgresql://HOST:PORT/DATABASE,"
        " jdbc:mysql://… or jdbc:mariadb://…, or as SQLAlchemy writes it. Without the password.",
        CONNECTION,
        importance=Importance.HIGH,
        width="LONG",
        check=_is_url,
    ),
    jdbc_key(
        "connection.user",
        KeyType.STRING,
        None,
        "The user of the database.",
        CONNECTION,
        importance=Importance.HIGH,
    ),
    jdbc_key(
        "connection.password",
        KeyType.PASSWORD,
        None,
        "A reference to the password of the user.",
        CONNECTION,
        importance=Importance.HIGH,
    ),
    jdbc_key(
        "connection.attempts",
        KeyType.INT,
        3,
        "How often to try to connect before the task fails.",
        CONNECTION,
        importance=Importance.LOW,
        check=between(1, 1000),
    ),
    jdbc_key(
        "connection.backoff.ms",
        KeyType.LONG,
        10_000,
        "How long to wait between these attempts.",
        CONNECTION,
        importance=Importance.LOW,
    ),
    jdbc_key(
        "dialect.name",
        KeyType.STRING,
        "",
        "The database, where the URL shall not decide: it must agree with the URL.",
        CONNECTION,
        importance=Importance.LOW,
        check=one_of(*DIALECTS),
    ),
    jdbc_key(
        "db.timezone",
        KeyType.STRING,
        "UTC",
        "The time zone of timestamps that the database stores without one.",
        CONNECTION,
        check=_is_zone,
    ),
    jdbc_key(
        "quote.sql.identifiers",
        KeyType.STRING,
        "always",
        "Whether to put names in quotes: always, or never where they are plain words.",
        CONNECTION,
        check=one_of("always", "never"),
    ),
)

_CREDENTIALS: Final = "passwords are references here: connection.password"

IGNORED: Final[Mapping[str, str]] = {
    "jdbc.credentials.provider.class": _CREDENTIALS,
    "date.calendar.system": "dates are of the proleptic Gregorian calendar",
    "sql.quote.identifiers": "quote.sql.identifiers says it; names that need quotes have them",
    "trim.sensitive.log": "logs never have values of records",
}
IGNORED_PREFIXES: Final = ("jdbc.credentials.provider.",)

_DIALECT_OF_CLASS: Final = {
    "sqlitedatabasedialect": "sqlite",
    "postgresqldatabasedialect": "postgresql",
    "mysqldatabasedialect": "mysql",
}


def dialect_problem(config: Mapping[str, str]) -> str | None:
    """Return how `dialect.name` contradicts the URL; None: it does not."""
    named = _DIALECT_OF_CLASS.get(config.get("dialect.name", "").lower())
    try:
        address = parse_url(config.get("connection.url", ""))
    except ValueError:
        return None
    if named is None or named == address.dialect:
        return None
    return f"the URL is one of {address.dialect}"
