"""SQLite: which writes wait for the disk, and the items that survive a power cut."""

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest

from storage.stores.metadata import Delete, Put
from storage.stores.sqlite.table import SqliteMetadata

pytestmark = pytest.mark.anyio

FULL, NORMAL = 2, 1
ITEM, HEAD = "batch/0/id", "head/t/0"
FRAME_HEADER_BYTES, WAL_HEADER_BYTES = 24, 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteMetadata]:
    versions = count()
    made = SqliteMetadata(path, lambda: f"v{next(versions)}")
    yield made
    await made.close()


@pytest.fixture
def levels(store: SqliteMetadata) -> list[int]:
    """The synchronous level of each commit."""
    found: list[int] = []
    db = store._writer._db

    def trace(statement: str) -> None:
        if statement == "COMMIT":
            db.set_trace_callback(None)
            found.append(db.execute("PRAGMA synchronous").fetchone()[0])
            db.set_trace_callback(trace)

    db.set_trace_callback(trace)
    return found


async def test_only_writes_that_can_wait_skip_the_flush(
    store: SqliteMetadata, levels: list[int]
) -> None:
    for turn in range(20):  # On the writer's thread at first, on the loop once that is quick.
        item = Put(f"{ITEM}{turn}", b"records", None, can_wait=True)
        version = (await store.transact([item]))[item.key]
        await store.transact([Put(f"{HEAD}{turn}", b"names it", None)])
        await store.transact([Delete(item.key, version, can_wait=True)])
        await store.transact([Put(f"{HEAD}{turn}.", b"", None)])

    assert levels == [NORMAL, FULL] * 40


async def test_a_write_that_cannot_wait_flushes_its_whole_transaction(
    store: SqliteMetadata, levels: list[int]
) -> None:
    await store.transact([Put(ITEM, b"", None, can_wait=True), Put(HEAD, b"", None)])

    assert levels == [FULL]


async def test_a_group_flushes_if_one_of_its_writes_cannot_wait(
    store: SqliteMetadata, levels: list[int]
) -> None:
    with store._writer._lock:  # So that they gather in one group.
        writes = [
            asyncio.ensure_future(store.transact([Put(f"{ITEM}{n}", b"", None, can_wait=n != 3)]))
            for n in range(6)
        ]
        await asyncio.sleep(0)
        while store._writer._queue.qsize() > 5:
            await asyncio.sleep(0.001)
    await asyncio.gather(*writes)

    assert FULL in levels
    assert len(levels) <= 2, "the first may have been taken alone"


async def test_after_a_power_cut_no_head_exists_without_its_batch(
    store: SqliteMetadata, path: Path, tmp_path: Path
) -> None:
    """This holds for any part of the write-ahead log that reached the disk."""
    for turn in range(6):
        await store.transact([Put(f"{ITEM}{turn}", b"r" * 3000, None, can_wait=True)])
        await store.transact([Put(f"{HEAD}{turn}", b"h" * 2000, None)])
    log = Path(f"{path}-wal").read_bytes()
    page_bytes = int.from_bytes(log[8:12], "big")
    frame_bytes = FRAME_HEADER_BYTES + page_bytes

    found = set()
    for size_bytes in [*range(WAL_HEADER_BYTES, len(log), frame_bytes // 3), len(log)]:
        cut = tmp_path / f"cut-{size_bytes}.sqlite"
        shutil.copy(path, cut)
        Path(f"{cut}-wal").write_bytes(log[:size_bytes])
        found.add(what_is_there(cut))

    assert {(n, n) for n in range(7)} <= found, "every head was the last one once"
    assert all(items - heads in {0, 1} for items, heads in found)


def what_is_there(path: Path) -> tuple[int, int]:
    """Return the number of batches and of heads, counted from the first."""
    with sqlite3.connect(path) as db:
        try:
            rows = db.execute("SELECT collection, rest FROM item").fetchall()
        except sqlite3.OperationalError:  # The table does not exist yet.
            rows = []
    db.close()
    names = {f"{collection}/{rest}" for collection, rest in rows}
    items = sum(f"{ITEM}{turn}" in names for turn in range(6))
    heads = sum(f"{HEAD}{turn}" in names for turn in range(6))
    assert names == {f"{ITEM}{n}" for n in range(items)} | {f"{HEAD}{n}" for n in range(heads)}
    return items, heads
