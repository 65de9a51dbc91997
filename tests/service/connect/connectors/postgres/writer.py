"""A table under change, and what its records say of it."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import asyncpg

from service.connect.connectors.postgres.plugins import POSTGRES
from service.connect.data.records import ConnectRecord
from tests.service.connect.connectors.harness import SourceTrial, environment
from tests.service.connect.databases import Database


def config_of(database: Database, **more: str) -> dict[str, str]:
    config = {
        "database.hostname": database.host,
        "database.port": str(database.port),
        "database.user": database.user,
        "database.password": database.password,
        "database.dbname": database.name,
        "topic.prefix": "p",
        "slot.name": f"slot_{database.name}",
        "poll.interval.ms": "10",
    }
    return config | {name.replace("_", "."): text for name, text in more.items()}


def trial_of(database: Database, **more: str) -> SourceTrial:
    return SourceTrial(POSTGRES, config_of(database, **more), environment())


async def connect(database: Database) -> "asyncpg.Connection[Any]":
    return await asyncpg.connect(
        host=database.host,
        port=database.port,
        user=database.user,
        password=database.password,
        database=database.name,
    )


class Writer:
    """Changes rows of a table `t (id, v)` at random until it is told to stop."""

    def __init__(self, database: Database, seed: int, ids: int) -> None:
        self._database = database
        self._random = random.Random(seed)
        self._ids = ids
        self._ends = asyncio.Event()
        self.transactions = 0

    async def run(self, table: str = "t") -> None:
        connection = await connect(self._database)
        try:
            while not self._ends.is_set():
                transaction = connection.transaction()
                await transaction.start()
                for _ in range(self._random.randrange(1, 6)):
                    await self._change(connection, table)
                if self._random.random() < 0.1:
                    await transaction.rollback()
                else:
                    await transaction.commit()
                    self.transactions += 1
                await asyncio.sleep(0)
        finally:
            await connection.close()

    def stop(self) -> None:
        self._ends.set()

    async def _change(self, connection: "asyncpg.Connection[Any]", table: str) -> None:
        one, other = (self._random.randrange(self._ids) for _ in range(2))
        value = str(self._random.randrange(1 << 30))
        match self._random.randrange(4):
            case 0 | 1:
                await connection.execute(
                    f"INSERT INTO {table} VALUES ('{one}', '{value}')"
                    f" ON CONFLICT (id) DO UPDATE SET v = '{value}'"
                )
            case 2:
                await connection.execute(f"DELETE FROM {table} WHERE id = '{one}'")
            case _:
                await connection.execute(
                    f"UPDATE {table} SET id = '{other}' WHERE id = '{one}'"
                    f" AND NOT EXISTS (SELECT FROM {table} WHERE id = '{other}')"
                )


def replayed(records: Sequence[ConnectRecord]) -> dict[Any, str]:
    """Return the rows that the records make; each change must fit what is there: once, in order."""
    rows: dict[Any, str] = {}
    for record in records:
        if record.value is None:
            assert record.key["id"] not in rows
            continue
        before, after, op = (record.value[name] for name in ("before", "after", "op"))
        if op in ("c", "r"):
            assert after["id"] not in rows, record
            rows[after["id"]] = after["v"]
        elif op == "u":
            assert rows[after["id"]] != after["v"] or before is None, record
            rows[after["id"]] = after["v"]
        else:
            del rows[before["id"]]
    return rows


def changes(records: Sequence[ConnectRecord]) -> list[tuple[Any, ...]]:
    """Return op, key, and what is before and after, of each record."""
    return [
        ("tombstone", record.key, None, None)
        if record.value is None
        else (
            record.value["op"],
            record.key,
            record.value["before"],
            record.value["after"],
        )
        for record in records
    ]
