"""One connection for one task: SQLAlchemy on asyncpg, or on PyMySQL and sqlite3 in a thread.

What is done with the connection is written once, as plain functions of SQLAlchemy's `Connection`,
and `DatabaseSession.run` runs them: for asyncpg on the event loop, where each wait for the server
gives way to others, for the others in a thread of the session. Calls of a session run one after
the other.

A session that holds locks and no longer speaks, like that of a stopped process, is ended by
PostgreSQL and MariaDB after `IDLE_TRANSACTION_S_MAX` if it writes: the task that took over waits
for its locks no longer.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import URL, Connection, create_engine, event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from service.connect.config.keys import Config
from service.connect.config.values import Values
from service.connect.connectors.api import Environment
from service.connect.connectors.guarded_files import RefusedFile, checked_path
from service.connect.connectors.jdbc.failures import Meaning, meaning_of, text_of_failure
from service.connect.connectors.jdbc.urls import (
    MYSQL,
    POSTGRESQL,
    SQLITE,
    DatabaseAddress,
    parse_url,
)
from service.connect.data.errors import TaskFault

T = TypeVar("T")

CONNECT_S_MAX: Final = 15
CLOSE_S_MAX: Final = 5.0
LOCK_S_MAX: Final = 30
"""How long a statement waits for a lock."""
IDLE_TRANSACTION_S_MAX: Final = 30
SQLITE_BUSY_S_MAX: Final = 10


class DatabaseSession(Protocol):
    dialect: str

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Return what `work` returns, called with the connection."""

    async def close(self) -> None:
        """Close the connection, whatever it is doing. Raises nothing."""


class _ThreadSession:
    """Drivers that block."""

    def __init__(self, dialect: str, url: URL, arguments: Mapping[str, Any]) -> None:
        self.dialect = dialect
        self._engine = create_engine(
            url, poolclass=NullPool, hide_parameters=True, connect_args=dict(arguments)
        )
        if dialect == SQLITE:
            event.listen(self._engine, "connect", _prepare_sqlite)
            event.listen(self._engine, "begin", _begin_sqlite)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jdbc")
        self._connection: Connection | None = None

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._connection = await loop.run_in_executor(self._thread, self._engine.connect)

    async def run(self, work: Callable[[Connection], T]) -> T:
        assert self._connection is not None, "the session is not open"
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, work, self._connection)

    async def close(self) -> None:
        with suppress(Exception):
            async with asyncio.timeout(CLOSE_S_MAX):
                if self._connection is not None:
                    await self.run(_abandon)
        self._thread.shutdown(wait=False)


class _LoopSession:
    """asyncpg."""

    dialect = POSTGRESQL

    def __init__(self, url: URL, arguments: Mapping[str, Any]) -> None:
        self._engine: AsyncEngine = create_async_engine(
            url, poolclass=NullPool, hide_parameters=True, connect_args=dict(arguments)
        )
        self._connection: AsyncConnection | None = None

    async def open(self) -> None:
        self._connection = await self._engine.connect()

    async def run(self, work: Callable[[Connection], T]) -> T:
        assert self._connection is not None, "the session is not open"
        return await self._connection.run_sync(work)

    async def close(self) -> None:
        with suppress(Exception):
            async with asyncio.timeout(CLOSE_S_MAX):
                if self._connection is not None:
                    # Not `close`: that would wait for what the server is doing.
                    raw: Any = await self._connection.get_raw_connection()
                    raw.driver_connection.terminate()
                    await self._connection.invalidate()
                    await self._connection.close()


def _abandon(connection: Connection) -> None:
    # PyMySQL's `close` of a cursor reads all rows that are left; closing the socket does not.
    connection.invalidate()
    connection.close()


def _prepare_sqlite(connection: Any, _: Any) -> None:
    # sqlite3 would begin transactions late, and not at all for savepoints: `_begin_sqlite` does.
    connection.isolation_level = None
    # Nothing in a statement may open another file: neither ATTACH nor VACUUM INTO.
    connection.setlimit(7, 0)  # SQLITE_LIMIT_ATTACHED


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("riacho_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


async def open_session(
    values: Values, environment: Environment, *, writes: bool = False
) -> DatabaseSession:
    """Return an open session; raise `TaskFault` if none can be had.

    A server that does not answer is tried `connection.attempts` times, `connection.backoff.ms`
    apart.
    """
    address = address_of(values)
    attempts = max(1, values["connection.attempts"])
    for left in reversed(range(attempts)):
        try:
            session = await _opened(address, values.raw, environment)
            if writes:
                await session.run(_limit_idle)
            return session
        except (RefusedFile, FileNotFoundError, NotADirectoryError) as error:
            raise TaskFault(f"connection.url: {error}") from error
        except Exception as error:
            if not left or meaning_of(error) is not Meaning.LATER:
                where = address.database if address.dialect == SQLITE else address.host
                raise TaskFault(f"cannot connect to {where}: {text_of_failure(error)}") from error
            await environment.world.sleep(values["connection.backoff.ms"] / 1000)
    raise AssertionError(attempts)


def address_of(values: Values) -> DatabaseAddress:
    try:
        return parse_url(values["connection.url"])
    except ValueError as error:
        raise TaskFault(f"connection.url {error}") from None


def _limit_idle(connection: Connection) -> None:
    dialect: Any = connection.dialect
    if dialect.name == POSTGRESQL:
        name, limit = "idle_in_transaction_session_timeout", IDLE_TRANSACTION_S_MAX * 1000
        connection.exec_driver_sql(f"SET SESSION {name} = {limit}")
    elif getattr(dialect, "is_mariadb", False):
        connection.exec_driver_sql(
            f"SET SESSION idle_transaction_timeout = {IDLE_TRANSACTION_S_MAX}"
        )
    connection.commit()


async def _opened(
    address: DatabaseAddress, config: Config, environment: Environment
) -> DatabaseSession:
    if address.dialect == SQLITE:
        return await _opened_sqlite(address, environment)
    user = config.get("connection.user") or address.user or None
    url = URL.create(
        "postgresql+asyncpg" if address.dialect == POSTGRESQL else "mysql+pymysql",
        username=user,
        password=config.get("connection.password"),
        host=address.host,
        port=address.port,
        database=address.database,
    )
    if address.dialect == POSTGRESQL:
        session = _LoopSession(url, _asyncpg_arguments(address))
        await session.open()
        return session
    blocking = _ThreadSession(MYSQL, url, _pymysql_arguments(address))
    await blocking.open()
    return blocking


async def _opened_sqlite(address: DatabaseAddress, environment: Environment) -> DatabaseSession:
    path = await asyncio.to_thread(checked_path, environment, address.database)
    url = URL.create("sqlite+pysqlite", database=str(path))
    session = _ThreadSession(
        SQLITE, url, {"check_same_thread": False, "timeout": SQLITE_BUSY_S_MAX}
    )
    await session.open()
    opened = await session.run(_file_of)
    if opened != path:
        await session.close()
        raise RefusedFile(f"{path} is not what was opened: somebody put a link there")
    return session


def _file_of(connection: Connection) -> Path:
    [row] = connection.exec_driver_sql("PRAGMA database_list").fetchmany(1)
    connection.rollback()
    return Path(row[2])


def _asyncpg_arguments(address: DatabaseAddress) -> Mapping[str, Any]:
    settings = {
        "application_name": "riacho connect",
        "timezone": "UTC",
        "lock_timeout": f"{LOCK_S_MAX}s",
    }
    if address.schema:
        settings["search_path"] = address.schema
    verifies = address.tls in ("verify-ca", "verify-full")
    return {
        "timeout": CONNECT_S_MAX,
        "server_settings": settings,
        "ssl": _tls_context(address) if verifies else address.tls,
    }


def _pymysql_arguments(address: DatabaseAddress) -> Mapping[str, Any]:
    commands = [
        "SET SESSION time_zone = '+00:00'",
        f"innodb_lock_wait_timeout = {LOCK_S_MAX}",
        "sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'",
    ]
    arguments: dict[str, Any] = {
        "connect_timeout": CONNECT_S_MAX,
        "charset": "utf8mb4",
        "init_command": ", ".join(commands),
        "local_infile": False,
    }
    if address.tls == "disable":
        arguments["ssl_disabled"] = True
    elif address.tls != "prefer":
        arguments["ssl"] = _tls_context(address)
    return arguments


def _tls_context(address: DatabaseAddress) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = address.tls == "verify-full"
    if address.tls == "require":
        context.verify_mode = ssl.CERT_NONE
    return context
