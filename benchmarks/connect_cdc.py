"""How fast PostgreSQL's changes become records, against a peek that nobody decodes.

    python -m benchmarks.connect_cdc

A real server without fsync; a table of five columns; inserts in transactions of 100 rows, then
updates of all of them. Each line does what the one above does, and more.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from benchmarks.harness import show
from service.connect.connectors.api import SourceTask
from service.connect.connectors.postgres.pgoutput import decode
from service.connect.connectors.postgres.plugins import POSTGRES
from service.connect.converters.json.converter import JsonConverter
from service.connect.data.records import ConnectRecord
from tests.service.connect.connectors.harness import SourceTrial
from tests.service.connect.connectors.postgres.writer import connect, trial_of
from tests.service.connect.databases import Database, Server, start_postgresql

ROWS: Final = 50_000
PEEK: Final = 20_000
POLL: Final = 2_000

_FILL: Final = """
DO $$ BEGIN
    FOR n IN 0..{last} LOOP
        INSERT INTO t SELECT i, 'name ' || i, i * 1.25, now(), repeat('x', 60)
        FROM generate_series(n * 100 + 1, n * 100 + 100) i;
        COMMIT;
    END LOOP;
    FOR n IN 0..{last} LOOP
        UPDATE t SET price = price + 1 WHERE id BETWEEN n * 100 + 1 AND n * 100 + 100;
        COMMIT;
    END LOOP;
END $$
"""


async def fresh(server: Server, rows: int = ROWS) -> Database:
    """Return a database whose slot has all changes before it, and none was read."""
    database = server.fresh()
    await create(database)
    await trial(database).run(until=once())
    await fill(database, rows)
    return database


async def create(database: Database) -> None:
    connection = await connect(database)
    await connection.execute(
        "CREATE TABLE t (id int PRIMARY KEY, name text, price numeric(12,2), "
        "at timestamptz, filler text)"
    )
    await connection.close()


async def fill(database: Database, rows: int) -> None:
    """Insert rows, and update each once."""
    connection = await connect(database)
    await connection.execute(_FILL.format(last=rows // 100 - 1))
    await connection.close()


def trial(database: Database) -> SourceTrial:
    return trial_of(database, snapshot_mode="no_data", max_batch_size=str(POLL))


def once() -> Callable[[], bool]:
    asked: list[None] = []

    def is_second() -> bool:
        asked.append(None)
        return len(asked) > 1

    return is_second


async def peeked(database: Database, each: Callable[[bytes], Any] | None) -> int:
    """Read the slot as the connector does, and return how many changes there were."""
    connection = await connect(database)
    count = 0
    while True:
        rows = await connection.fetch(
            "SELECT lsn, data FROM pg_logical_slot_peek_binary_changes($1, NULL, $2, "
            "'proto_version', '1', 'publication_names', 'dbz_publication')",
            f"slot_{database.name}",
            PEEK,
        )
        if not rows:
            break
        if each is not None:
            for row in rows:
                each(row["data"])
        count += sum(row["data"][0] in b"IUD" for row in rows)
        await connection.fetch(
            "SELECT pg_replication_slot_advance($1, $2)", f"slot_{database.name}", rows[-1]["lsn"]
        )
    await connection.close()
    return count


async def recorded(database: Database, each: Callable[[ConnectRecord], Any] | None) -> int:
    """Run the connector's task, as a runner whose commits take no time."""
    task = cast(SourceTask, POSTGRES.make(await trial(database).context()))
    await task.start()
    count = 0
    while count < 2 * ROWS:
        records = await task.poll(1.0, POLL)
        if each is not None:
            for record in records:
                each(record)
        count += len(records)
        await task.committed()
    await task.stop()
    return count


def as_json() -> Callable[[ConnectRecord], Any]:
    to_bytes = JsonConverter(with_schemas=False).to_bytes

    def write(record: ConnectRecord) -> None:
        to_bytes(record.topic, record.key_schema, record.key)
        to_bytes(record.topic, record.value_schema, record.value)

    return write


async def main() -> None:
    steps: list[tuple[str, Callable[[Database], Awaitable[int]]]] = [
        ("peek and advance", lambda database: peeked(database, None)),
        ("the same, decoded", lambda database: peeked(database, decode)),
        ("records of the connector", lambda database: recorded(database, None)),
        ("records as JSON", lambda database: recorded(database, as_json())),
    ]
    rows: list[list[str]] = []
    first = 0.0
    with start_postgresql() as server:
        for name, step in steps:
            database = await fresh(server)
            began, cpu_began_s = time.perf_counter(), time.process_time()
            count = await step(database)
            took, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began_s
            first = first or took
            assert count >= 2 * ROWS, (name, count)
            rows.append(
                [name, f"{count / took:,.0f}", f"{took / first:.1f}", f"{count / cpu_s:,.0f}"]
            )
            server.run(f"SELECT pg_drop_replication_slot('slot_{database.name}')")
    show(
        "changes of PostgreSQL",
        ["", "changes/s", "time, peek = 1", "changes per s of our CPU"],
        rows,
    )


if __name__ == "__main__":
    asyncio.run(main())
