"""The server: its connection, its slot and its publication, and its errors as Connect's."""

import logging
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from service.connect.connectors.postgres import tables
from service.connect.connectors.postgres.settings import PostgresSettings
from service.connect.data.errors import RetriableFault, TaskFault

if TYPE_CHECKING:
    import asyncpg

log = logging.getLogger(__name__)

CONNECT_S_MAX: Final = 20.0
VERSION_MIN: Final = 12

_SESSION: Final = {
    "application_name": "riacho-connect",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "datestyle": "ISO, YMD",
    "extra_float_digits": "3",
    "idle_in_transaction_session_timeout": "0",
    "intervalstyle": "postgres",
    "lc_monetary": "C",
    "standard_conforming_strings": "on",
    "statement_timeout": "0",
    "timezone": "UTC",
}
_STATE: Final = """
SELECT pg_current_wal_flush_lsn() AS flushed, s.confirmed_flush_lsn AS confirmed,
       pg_wal_lsn_diff(pg_current_wal_flush_lsn(), s.confirmed_flush_lsn)::int8 AS lag,
       s.plugin::text AS plugin, s.database::text AS database,
       to_jsonb(s) ->> 'wal_status' AS wal_status
FROM (SELECT) AS one LEFT JOIN pg_catalog.pg_replication_slots s ON s.slot_name = $1
"""
_ADVANCE: Final = """
SELECT a.end_lsn FROM pg_catalog.pg_replication_slots s,
       LATERAL pg_replication_slot_advance(s.slot_name, $2::pg_lsn) a
WHERE s.slot_name = $1 AND s.confirmed_flush_lsn < $2::pg_lsn
"""
_BUSY: Final = ("55006", "55P03", "57014")
"""Objects in use, locks that are not to be had, statements that were cancelled."""
_PASSING: Final = ("08", "40", "53", "57")
"""Classes of errors that pass: connection, conflict, resources, an operator's intervention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotState:
    flushed: int
    """How far the server's log is on its disk."""
    confirmed: int
    """How far the slot was released."""
    lag_bytes: int


@contextmanager
def faults(what: str) -> Iterator[None]:
    """Raise the server's errors as `RetriableFault` and `TaskFault` that name what was tried."""
    import asyncpg

    try:
        yield
    except asyncpg.PostgresError as error:
        state = getattr(error, "sqlstate", None) or ""
        text = f"{what}: {error} ({state})"
        hint = getattr(error, "hint", None)
        if state in _BUSY or state[:2] in _PASSING:
            raise RetriableFault(text) from error
        raise TaskFault(f"{text}; {hint}" if hint else text) from error
    except (TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
        raise RetriableFault(f"{what}: {error or type(error).__name__}") from error


def _ssl(mode: str) -> "ssl.SSLContext | str":
    """Return what asyncpg takes; certificates are checked by the authorities of the machine."""
    if mode not in ("verify-ca", "verify-full"):
        return mode
    context = ssl.create_default_context()
    context.check_hostname = mode == "verify-full"
    return context


async def connect(settings: PostgresSettings) -> "asyncpg.Connection[Any]":
    """Return a connection whose values have the text that `text_values.py` reads."""
    import asyncpg

    with faults(f"connecting to {settings.host}:{settings.port}"):
        connection: asyncpg.Connection[Any] = await asyncpg.connect(
            host=settings.host,
            port=settings.port,
            user=settings.user,
            password=settings.password,
            database=settings.database,
            ssl=_ssl(settings.sslmode),
            timeout=CONNECT_S_MAX,
            server_settings=dict(_SESSION),
            statement_cache_size=0,
        )
    major = connection.get_server_version().major
    if major < VERSION_MIN:
        await connection.close()
        raise TaskFault(f"PostgreSQL {major} is too old: version {VERSION_MIN} or later is needed")
    return connection


async def slot_state(
    connection: "asyncpg.Connection[Any]", settings: PostgresSettings
) -> SlotState | None:
    """Return how the slot fares; None: there is no such slot. Raises if it cannot be used."""
    with faults(f"reading the state of slot {settings.slot!r}"):
        row = await connection.fetchrow(_STATE, settings.slot)
    assert row is not None
    if row["plugin"] is None:
        return None
    if row["plugin"] != "pgoutput" or row["database"] != settings.database:
        raise TaskFault(
            f"the slot {settings.slot!r} is of plugin {row['plugin']} and database "
            f"{row['database']}: choose another slot.name"
        )
    if row["wal_status"] == "lost" or row["confirmed"] is None:
        raise TaskFault(
            f"the server has invalidated the slot {settings.slot!r}, since it fell behind by more "
            "than max_slot_wal_keep_size: changes are lost. Drop the slot, delete the connector's "
            "offsets and start it again, which takes a new snapshot"
        )
    return SlotState(flushed=row["flushed"], confirmed=row["confirmed"], lag_bytes=row["lag"])


async def create_slot(connection: "asyncpg.Connection[Any]", settings: PostgresSettings) -> None:
    with faults(f"creating the slot {settings.slot!r}"):
        await connection.fetchval(
            "SELECT lsn FROM pg_create_logical_replication_slot($1, 'pgoutput')", settings.slot
        )
    log.info("replication slot created", extra={"slot": settings.slot})


async def advance_slot(
    connection: "asyncpg.Connection[Any]", settings: PostgresSettings, lsn: int
) -> None:
    """Release the log before `lsn`; a slot that is there already stays as it is."""
    with faults(f"advancing the slot {settings.slot!r}"):
        await connection.fetchval(_ADVANCE, settings.slot, lsn)


async def ensure_publication(
    connection: "asyncpg.Connection[Any]", settings: PostgresSettings
) -> None:
    """Create the publication if it is missing and may be created; keep that of `filtered`."""
    name = settings.publication
    with faults(f"reading the publication {name!r}"):
        exists = await connection.fetchval(
            "SELECT true FROM pg_catalog.pg_publication WHERE pubname = $1", name
        )
    if settings.autocreate == "disabled":
        if not exists:
            raise TaskFault(
                f"there is no publication {name!r}, and publication.autocreate.mode is disabled: "
                f"CREATE PUBLICATION {_quoted(name)} FOR TABLE …"
            )
        return
    root = " WITH (publish_via_partition_root = true)" if settings.via_root else ""
    if settings.autocreate == "all_tables":
        if not exists:
            await _execute(connection, f"CREATE PUBLICATION {_quoted(name)} FOR ALL TABLES{root}")
        return
    wanted = [
        (schema, table)
        for schema, table in await tables.all_tables(connection)
        if settings.filters.has_table(schema, table)
    ]
    if not wanted:
        raise TaskFault("publication.autocreate.mode is filtered, and no table is included")
    listed = ", ".join(f"{_quoted(schema)}.{_quoted(table)}" for schema, table in wanted)
    if not exists:
        await _execute(connection, f"CREATE PUBLICATION {_quoted(name)} FOR TABLE {listed}{root}")
        return
    has = {(each.schema, each.name) for each in await tables.published(connection, name)}
    if has != set(wanted):
        await _execute(connection, f"ALTER PUBLICATION {_quoted(name)} SET TABLE {listed}")


async def _execute(connection: "asyncpg.Connection[Any]", sql: str) -> None:
    import asyncpg

    with faults(sql[:200]):
        try:
            await connection.execute(sql)
        except asyncpg.DuplicateObjectError:
            return  # Another task was first.


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def qualified(schema: str, table: str) -> str:
    return f"{_quoted(schema)}.{_quoted(table)}"


def columns_sql(names: Sequence[str]) -> str:
    return ", ".join(map(_quoted, names))
