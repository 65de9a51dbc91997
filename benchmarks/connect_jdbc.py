"""The JDBC source and sink, in rows per CPU second, beside their drivers alone.

    python -m benchmarks.connect_jdbc [rows]

Each line is the best of some rounds, in CPU seconds of this process: SQLite works in it, and the
servers of the others do not. It is the whole way that the connector goes: rows to records
with their positions, and records to committed rows with theirs. The driver reads the same rows
into tuples, and writes the same tuples in one transaction for each batch. PostgreSQL and MariaDB
are those of the tests, without `fsync`; what is not installed is left out.
"""

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pymysql
import pytest
from rich.console import Console
from rich.table import Table

from service.connect.connectors.api import TopicPartition
from service.connect.connectors.jdbc.plugins import JDBC_SINK, JDBC_SOURCE
from service.connect.data.logical import timestamp_from_ms
from service.connect.data.schema import FLOAT64, INT64, STRING, TIMESTAMP_SCHEMA, struct
from tests.service.connect import databases
from tests.service.connect.connectors.harness import SinkTrial, SourceTrial, environment

ROUNDS = 3
BATCH = 5000
COLUMNS = "id, name, amount, at"
SCHEMA = struct([("id", INT64), ("name", STRING), ("amount", FLOAT64), ("at", TIMESTAMP_SCHEMA)])
COUNT = "SELECT coalesce(max(id) + 1, 0) FROM target"
CREATE = (
    "CREATE TABLE {} (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(40) NOT NULL,"
    " amount {} NOT NULL, at {} NOT NULL)"
)

Work = Callable[[], Awaitable[None]]


def values(count: int) -> list[dict[str, Any]]:
    at = timestamp_from_ms(1_700_000_000_123)
    return [{"id": n, "name": f"customer {n}", "amount": n * 0.5, "at": at} for n in range(count)]


async def best(count: int, work: Work, before: Callable[[], None] = lambda: None) -> float:
    """Return the rows per CPU second of this process, in the best round."""
    rates = []
    for _ in range(ROUNDS):
        before()
        start_s = time.process_time()
        await work()
        rates.append(count / (time.process_time() - start_s))
    return max(rates)


class Place:
    """A database with two tables: one to read, one to write."""

    name: str
    config: Mapping[str, str]
    files: Path | None = None

    def execute(self, sql: str) -> None: ...

    async def read(self) -> None: ...

    async def write(self, batches: Sequence[Sequence[tuple[Any, ...]]]) -> None: ...

    async def count(self) -> int:
        """Return how many rows the target has; they are written in order."""
        return 0

    def empty(self) -> None:
        for statement in ("DELETE FROM target", "DELETE FROM riacho_connect_offsets"):
            self.execute(statement)


class Sqlite(Place):
    name = "SQLite"

    def __init__(self, folder: Path) -> None:
        self.files = folder
        self.config = {"connection.url": f"jdbc:sqlite:{folder}/bench.db"}
        self._on = sqlite3.connect(folder / "bench.db", isolation_level=None)
        self._on.execute("PRAGMA journal_mode=WAL")

    def execute(self, sql: str) -> None:
        self._on.execute(sql)

    async def count(self) -> int:
        [(found,)] = self._on.execute(COUNT)
        return int(found)

    async def read(self) -> None:
        cursor = self._on.execute(f"SELECT {COLUMNS} FROM source ORDER BY id")
        while cursor.fetchmany(1000):
            pass

    async def write(self, batches: Sequence[Sequence[tuple[Any, ...]]]) -> None:
        for batch in batches:
            rows = [(*row[:3], str(row[3])) for row in batch]
            self._on.execute("BEGIN IMMEDIATE")
            self._on.executemany(f"INSERT INTO target ({COLUMNS}) VALUES (?, ?, ?, ?)", rows)
            self._on.execute("COMMIT")


class Served(Place):
    def __init__(self, server: databases.Server) -> None:
        self._server, self._on = server, server.fresh()
        self._counting: Any = None
        on = self._on
        self.config = {
            "connection.url": on.jdbc,
            "connection.user": on.user,
            "connection.password": on.password,
        }

    def execute(self, sql: str) -> None:
        self._server.run_in(self._on, sql)


class Postgresql(Served):
    name = "PostgreSQL"

    async def _connected(self) -> Any:
        on = self._on
        return await asyncpg.connect(
            host=on.host, port=on.port, user=on.user, password=on.password, database=on.name
        )

    async def read(self) -> None:
        connection = await self._connected()
        async with connection.transaction():
            cursor = await connection.cursor(f"SELECT {COLUMNS} FROM source ORDER BY id")
            while await cursor.fetch(1000):
                pass
        await connection.close()

    async def count(self) -> int:
        if self._counting is None:
            self._counting = await self._connected()
        return int(await self._counting.fetchval(COUNT))

    async def write(self, batches: Sequence[Sequence[tuple[Any, ...]]]) -> None:
        connection = await self._connected()
        for batch in batches:
            rows = [(*row[:3], row[3].replace(tzinfo=None)) for row in batch]
            await connection.copy_records_to_table(
                "target", records=rows, columns=COLUMNS.split(", ")
            )
        await connection.close()


class Mariadb(Served):
    name = "MariaDB"

    async def count(self) -> int:
        if self._counting is None:
            self._counting = self._connected(autocommit=True)
        with self._counting.cursor() as cursor:
            cursor.execute(COUNT)
            [(found,)] = cursor.fetchall()
            return int(found)

    def _connected(self, **more: Any) -> Any:
        on = self._on
        return pymysql.connect(
            host=on.host, port=on.port, user=on.user, password=on.password, database=on.name, **more
        )

    async def read(self) -> None:
        with self._connected(cursorclass=pymysql.cursors.SSCursor) as connection:
            cursor = connection.cursor()
            cursor.execute(f"SELECT {COLUMNS} FROM source ORDER BY id")
            while cursor.fetchmany(1000):
                pass
            cursor.close()

    async def write(self, batches: Sequence[Sequence[tuple[Any, ...]]]) -> None:
        with self._connected() as connection, connection.cursor() as cursor:
            for batch in batches:
                rows = [(*row[:3], row[3].replace(tzinfo=None)) for row in batch]
                cursor.executemany(f"INSERT INTO target ({COLUMNS}) VALUES (%s, %s, %s, %s)", rows)
                connection.commit()


async def source_rate(place: Place, count: int) -> float:
    async def read() -> None:
        trial = SourceTrial(
            JDBC_SOURCE,
            {
                **place.config,
                "mode": "incrementing",
                "incrementing.column.name": "id",
                "table.whitelist": "source",
                "topic.prefix": "",
            },
            environment(place.files),
        )
        task: Any = trial.plugin.make(await trial.context())
        await task.start()
        got = 0
        while got < count:
            got += len(await task.poll(10.0, BATCH))
        await task.stop()
        assert got == count, got

    return await best(count, read)


async def sink_rate(place: Place, rows: Sequence[dict[str, Any]], **more: str) -> float:
    trial = SinkTrial(JDBC_SINK, {**place.config, **more}, environment(place.files))
    trial.give("target", 0, *rows, schema=SCHEMA)
    [at] = trial.log.records
    records = trial.log.records[TopicPartition(at.topic, at.partition)]

    async def write() -> None:
        task: Any = trial.plugin.make(await trial.context())
        await task.start()
        await task.positions([at])
        for start in range(0, len(records), BATCH):
            await task.put(records[start : start + BATCH])
        await task.flush()
        await task.stop()

    # The table of positions is made before the first round empties it.
    task: Any = trial.plugin.make(await trial.context())
    await task.start()
    await task.stop()
    return await best(len(rows), write, place.empty)


async def measure(place: Place, count: int, table: Table) -> None:
    double = "DOUBLE" if place.name == "MariaDB" else "DOUBLE PRECISION"
    at = {"MariaDB": "DATETIME(3)"}.get(place.name, "TIMESTAMP")
    for name in ("source", "target"):
        place.execute(CREATE.format(name, double, at))
    rows = values(count)
    tuples = [tuple(row.values()) for row in rows]
    batches = [tuples[start : start + BATCH] for start in range(0, count, BATCH)]
    await place.write(batches)
    place.execute("INSERT INTO source SELECT * FROM target")
    driver = await best(count, place.read)
    ours = await source_rate(place, count)
    table.add_row(place.name, "source", *_figures(driver, ours))
    ours = await sink_rate(place, rows)
    driver = await best(count, lambda: place.write(batches), place.empty)
    table.add_row(place.name, "sink, insert", *_figures(driver, ours))
    upsert = {"insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "id"}
    ours = await sink_rate(place, rows, **upsert)
    table.add_row(place.name, "sink, upsert", *_figures(driver, ours))


def _figures(driver: float, ours: float) -> tuple[str, str, str]:
    return f"{driver:,.0f}", f"{ours:,.0f}", f"{ours / driver:.2f}"


@contextmanager
def places() -> Iterator[list[Place]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="riacho-bench-")))
        found: list[Place] = [Sqlite(folder)]
        for start, kind in (
            (databases.start_postgresql, Postgresql),
            (databases.start_mariadb, Mariadb),
        ):
            try:
                found.append(kind(stack.enter_context(start())))
            except pytest.skip.Exception as reason:
                print(reason)
        yield found


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    table = Table(
        "database", "what", "driver alone, rows/s of CPU", "connector, rows/s of CPU", "ratio"
    )
    with places() as found:
        for place in found:
            asyncio.run(measure(place, count, table))
    Console().print(table)


if __name__ == "__main__":
    main()
