"""SQLite: several processes on one file, crashes, full disks, and cancelled callers."""

import asyncio
import resource
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from itertools import count
from pathlib import Path
from threading import Timer

import pytest

from storage.errors import MetadataConflict, OutcomeUnknown, StoreUnavailable
from storage.stores.metadata import Put, Versioned
from storage.stores.sqlite.rows import connect
from storage.stores.sqlite.table import SqliteMetadata
from tests.storage.helpers.processes import killed_after, program

pytestmark = pytest.mark.anyio

COUNTER = """
import asyncio, secrets, sys
from pathlib import Path
from storage.errors import MetadataConflict
from storage.stores.metadata import Put
from storage.stores.sqlite.table import SqliteMetadata

async def main():
    store = SqliteMetadata(Path(sys.argv[1]), lambda: secrets.token_hex(8))
    for _ in range(int(sys.argv[2])):
        while True:
            item = await store.get("head/t/0")
            value = int(item.value) if item else 0
            try:
                expected = item.version if item else None
                await store.transact([Put("head/t/0", b"%d" % (value + 1), expected)])
            except MetadataConflict:
                continue
            print(value + 1, flush=True)
            break
    await store.close()

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteMetadata]:
    made = open_store(path)
    yield made
    await made.close()


def open_store(path: Path, busy_s: float = 10) -> SqliteMetadata:
    versions = count()
    return SqliteMetadata(path, lambda: f"v{next(versions)}", busy_s=busy_s)


async def test_two_processes_that_increment_a_counter_lose_no_increment(path: Path) -> None:
    with program(COUNTER, str(path), "100") as one, program(COUNTER, str(path), "100") as two:
        printed = [process.communicate()[0].split() for process in (one, two)]
        assert (one.returncode, two.returncode) == (0, 0)

    assert sorted(int(number) for numbers in printed for number in numbers) == list(range(1, 201))


async def test_after_kill_9_every_acknowledged_write_is_stored(path: Path) -> None:
    acknowledged = killed_after(COUNTER, 50, str(path), "100000")

    store = open_store(path)
    item = await store.get("head/t/0")
    await store.close()
    assert item is not None
    assert int(item.value) >= int(acknowledged[-1]) >= 50


async def test_a_reopened_store_has_its_items(path: Path) -> None:
    first = open_store(path)
    await first.transact([Put("topic/a", b"1", None)])
    await first.close()

    second = open_store(path)

    assert await second.get("topic/a") == Versioned(b"1", "v0")
    await second.close()


async def test_a_write_waits_while_another_process_holds_the_file(
    store: SqliteMetadata, path: Path
) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(store.transact([Put("topic/a", b"1", None)]))
    await asyncio.sleep(0)
    assert await store.get("topic/a") is None  # Reads do not wait.
    other.execute("COMMIT")
    other.close()

    assert await writing == {"topic/a": "v0"}


async def test_a_write_gives_up_when_another_process_keeps_the_file(path: Path) -> None:
    store = open_store(path, busy_s=0.01)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreUnavailable, match="locked"):
        await store.transact([Put("topic/a", b"1", None)])

    other.execute("ROLLBACK")
    other.close()
    assert await store.transact([Put("topic/a", b"1", None)]) == {"topic/a": "v1"}
    await store.close()


async def test_a_conflict_in_a_group_does_not_fail_the_others(store: SqliteMetadata) -> None:
    await store.transact([Put("topic/taken", b"", None)])

    results = await asyncio.gather(
        *(
            store.transact([Put(f"topic/{number}", b"", None), Put(key, b"", None)])
            for number, key in enumerate(["x/0", "topic/taken", "x/2", "topic/taken", "x/4"])
        ),
        return_exceptions=True,
    )

    assert [isinstance(result, MetadataConflict) for result in results] == [
        *(False, True, False, True, False)
    ]
    keys = [key for key, _ in await store.list("topic/")]
    assert keys == ["topic/0", "topic/2", "topic/4", "topic/taken"]


async def test_a_later_write_of_a_group_sees_the_earlier_ones(store: SqliteMetadata) -> None:
    first = store.transact([Put("topic/a", b"1", None)])
    second = store.transact([Put("topic/a", b"2", "v0")])

    assert await asyncio.gather(first, second) == [{"topic/a": "v0"}, {"topic/a": "v1"}]


async def test_a_value_that_sqlite_cannot_store_fails_only_its_own_transaction(
    store: SqliteMetadata,
) -> None:
    wrong = store.transact([Put("topic/b", b"", None), Put("topic/c", [], None)])  # type: ignore[arg-type]
    right = store.transact([Put("topic/a", b"1", None)])

    failed, done = await asyncio.gather(wrong, right, return_exceptions=True)

    assert isinstance(failed, StoreUnavailable)
    assert done == {"topic/a": "v1"}
    assert [key for key, _ in await store.list("topic/")] == ["topic/a"]


async def test_a_full_disk_raises_store_unavailable_and_writes_nothing(
    store: SqliteMetadata,
) -> None:
    await store.transact([Put("topic/a", b"1", None)])
    # SQLite treats its limit of pages like a full disk.
    store._writer._db.execute("PRAGMA max_page_count = 3")

    with pytest.raises(StoreUnavailable, match="full"):
        await store.transact([Put("topic/b", b"x" * 100_000, None)])

    store._writer._db.execute("PRAGMA max_page_count = 1000000")
    assert [key for key, _ in await store.list("topic/")] == ["topic/a"]
    await store.transact([Put("topic/b", b"x" * 100_000, None)])


async def test_a_commit_that_fails_half_way_is_unknown_to_every_transaction_in_it(
    store: SqliteMetadata, path: Path
) -> None:
    await store.transact([Put("topic/a", b"1", None)])
    log_bytes = path.with_name(path.name + "-wal").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log_bytes + 5_000, hard))
    try:
        results = await asyncio.gather(
            *(store.transact([Put(f"topic/{n}", b"x" * 50_000, None)]) for n in range(3)),
            return_exceptions=True,
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert [type(result) for result in results] == [OutcomeUnknown] * 3
    await store.transact([Put("topic/after", b"works again", None)])


async def test_closing_finishes_waiting_transactions(path: Path) -> None:
    store = open_store(path)
    waiting = [
        asyncio.create_task(store.transact([Put(f"topic/{number}", b"", None)]))
        for number in range(20)
    ]
    await asyncio.sleep(0)

    await store.close()

    assert len(await asyncio.gather(*waiting)) == 20
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.transact([Put("topic/late", b"", None)])


def test_a_loop_that_ended_early_does_not_stop_the_writer(path: Path) -> None:
    store = open_store(path)

    async def leave() -> None:
        task = asyncio.create_task(store.transact([Put("topic/left", b"", None)]))
        await asyncio.sleep(0)
        task.cancel()

    async def come_back() -> None:
        await store.transact([Put("topic/back", b"", None)])
        assert [key for key, _ in await store.list("topic/")] == ["topic/back", "topic/left"]
        await store.close()

    asyncio.run(leave())
    asyncio.run(come_back())


def test_connecting_waits_while_another_process_sets_up_the_file(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")  # SQLite itself does not wait for this.
        ending = Timer(0.1, other.rollback)
        ending.start()
        with closing(connect(path, 10.0)) as db:
            assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        ending.join()


def test_connecting_to_a_file_that_stays_locked_gives_up(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE t (x)")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            connect(path, 0.01)
