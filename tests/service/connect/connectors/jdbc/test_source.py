"""The JDBC source on SQLite: its modes, and what it remembers when it dies."""

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from service.connect.connectors.jdbc.plugins import JDBC_SOURCE
from service.connect.data.errors import ConfigFault, TaskFault
from tests.service.connect.connectors.harness import SourceCrash, SourceTrial, environment

pytestmark = pytest.mark.anyio


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    yield connection
    connection.close()


def source(tmp_path: Path, config: Mapping[str, str], tasks_max: int = 1) -> SourceTrial:
    base = {
        "connection.url": f"jdbc:sqlite:{tmp_path}/shop.db",
        "topic.prefix": "db-",
        "poll.interval.ms": "0",
    }
    return SourceTrial(JDBC_SOURCE, {**base, **config}, environment(tmp_path), tasks_max)


def fill(connection: sqlite3.Connection, count: int, ts: str = "'2026-01-01 00:00:00'") -> None:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, ts TEXT NOT NULL, of TEXT)"
    )
    connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
        f" INSERT INTO orders(ts, of) SELECT {ts}, 'row ' || i FROM n",
        (count,),
    )


async def test_incrementing_gives_each_row_once(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    fill(database, 1000)
    trial = source(tmp_path, {"mode": "incrementing"})
    for crash in (SourceCrash.BEFORE_COMMIT, SourceCrash.AFTER_COMMIT):
        await trial.run(until=lambda: False, crash=crash, crash_at=2, records_max=70)
    await trial.run(until=lambda: len(trial.records) >= 1000, records_max=70)
    fill(database, 10)
    await trial.run(until=lambda: len(trial.records) >= 1010)
    assert [value["id"] for value in trial.values] == list(range(1, 1011))
    assert trial.records[0].topic == "db-orders"
    [(partition, offset)] = await trial.offsets.all()
    assert partition == {"protocol": "1", "table": "orders"}
    assert offset == {"incrementing": 1010}


async def test_timestamp_and_incrementing_splits_equal_timestamps_anywhere(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    fill(database, 500, "'2026-01-01 00:00:0' || (i / 100)")
    config = {"mode": "timestamp+incrementing", "timestamp.column.name": "ts"}
    trial = source(tmp_path, config)
    for round_ in range(6):
        crash = SourceCrash.AFTER_COMMIT if round_ % 2 else SourceCrash.BEFORE_COMMIT
        await trial.run(until=lambda: False, crash=crash, crash_at=2, records_max=30)
    await trial.run(until=lambda: len(trial.records) >= 500, records_max=30)
    assert [value["id"] for value in trial.values] == list(range(1, 501))
    # An update gives the row again, behind all others.
    database.execute("UPDATE orders SET ts = '2026-02-01 00:00:00.000001', of = 'new' WHERE id = 7")
    await trial.run(until=lambda: len(trial.records) >= 501)
    assert trial.values[500]["of"] == "new"


@pytest.mark.parametrize("key", ["INTEGER PRIMARY KEY", "TEXT NOT NULL"])
async def test_timestamp_alone_loses_no_row_of_a_group(
    database: sqlite3.Connection, tmp_path: Path, key: str
) -> None:
    database.execute(f"CREATE TABLE orders (id {key}, ts TEXT NOT NULL)")
    rows = [(n, f"2026-01-01 00:00:0{n // 50}") for n in range(200)]
    database.executemany("INSERT INTO orders VALUES (?, ?)", rows)
    trial = source(tmp_path, {"mode": "timestamp", "timestamp.column.name": "ts"})
    await trial.run(until=lambda: False, crash=SourceCrash.AFTER_COMMIT, crash_at=3, records_max=30)
    await trial.run(until=lambda: len({int(v["id"]) for v in trial.values}) >= 200, records_max=30)
    # The group that the crash was in is repeated where no key tells its rows apart.
    is_once = len(trial.records) == 200
    assert is_once == key.startswith("INTEGER")
    assert len(trial.records) < 300


async def test_bulk_reads_the_table_again(database: sqlite3.Connection, tmp_path: Path) -> None:
    fill(database, 100)
    trial = source(tmp_path, {"mode": "bulk", "poll.interval.ms": "1"})
    await trial.run(until=lambda: len(trial.records) >= 300)
    assert [value["id"] for value in trial.values[:200]] == [*range(1, 101), *range(1, 101)]


async def test_bulk_waits_for_the_interval_after_a_restart(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    fill(database, 100)
    trial = source(tmp_path, {"mode": "bulk", "poll.interval.ms": "3600000"})
    await trial.run(until=lambda: len(trial.records) >= 100)
    polls = trial.polls
    await trial.run(until=lambda: trial.polls > polls + 3)
    assert len(trial.records) == 100


async def test_new_tables_are_found_and_shared_by_tasks(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    names = [f"table {n}" for n in range(4)]
    for name in names[:3]:
        database.execute(f'CREATE TABLE "{name}" (id INTEGER PRIMARY KEY)')
        database.execute(f'INSERT INTO "{name}" VALUES (1)')
    config = {"mode": "incrementing", "table.poll.interval.ms": "0"}
    trial = source(tmp_path, config, tasks_max=2)
    plan = await trial.plugin.tasks(trial.config, 2, trial.environment)
    assert len(plan) == 2
    await trial.run(until=lambda: len(trial.records) == 2, task=0)
    await trial.run(until=lambda: len(trial.records) == 3, task=1)
    assert {record.topic for record in trial.records} == {f"db-{name}" for name in names[:3]}


async def test_a_table_that_is_made_later_is_read_by_a_running_task(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    fill(database, 3)
    config = {"mode": "incrementing", "table.poll.interval.ms": "0"}
    trial = source(tmp_path, config)

    def made_and_read() -> bool:
        if len(trial.records) == 3:
            database.execute("CREATE TABLE IF NOT EXISTS later (id INTEGER PRIMARY KEY)")
            database.execute("INSERT OR IGNORE INTO later VALUES (1)")
        return len(trial.records) == 4

    await trial.run(until=made_and_read)
    assert trial.records[3].topic == "db-later"


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"mode": "timestamp"}, "timestamp.column.name"),
        ({"mode": "bulk", "table.whitelist": "a", "table.blacklist": "b"}, "table.blacklist"),
        ({"mode": "bulk", "table.exclude.list": "a"}, "table.exclude.list"),
        ({"mode": "bulk", "query": "SELECT 1", "table.whitelist": "a"}, "query"),
        ({"mode": "incrementing", "query": "SELECT 1"}, "incrementing.column.name"),
        ({"mode": "always"}, "mode"),
        ({"mode": "bulk", "db.timezone": "Mars/Olympus"}, "db.timezone"),
        ({"mode": "bulk", "connection.url": "jdbc:sqlite:../x.db"}, "connection.url"),
    ],
)
async def test_contradictions_are_refused(
    tmp_path: Path, config: Mapping[str, str], key: str
) -> None:
    with pytest.raises(ConfigFault) as refused:
        source(tmp_path, config).check()
    assert key in refused.value.problems


async def test_tables_are_chosen_by_lists_and_patterns(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    for name in ("a1", "a2", "b,1"):
        database.execute(f'CREATE TABLE "{name}" (id INTEGER PRIMARY KEY)')
        database.execute(f'INSERT INTO "{name}" VALUES (1)')
    database.execute("CREATE VIEW v AS SELECT id FROM a1")
    for config, expected in (
        ({"table.whitelist": "a1"}, {"a1"}),
        ({"table.blacklist": "a1"}, {"a2", "b,1"}),
        ({"table.include.list": "a.", "table.exclude.list": ".2"}, {"a1"}),
        ({"table.types": "view"}, {"v"}),
    ):
        trial = source(tmp_path, {"mode": "bulk", "topic.prefix": "", **config})
        await trial.run(
            until=lambda trial=trial, expected=expected: len(trial.records) >= len(expected)
        )  # type: ignore[misc]
        assert {record.topic for record in trial.records} == expected


async def test_a_query_is_read_like_a_table(database: sqlite3.Connection, tmp_path: Path) -> None:
    fill(database, 50)
    config = {
        "mode": "incrementing",
        "incrementing.column.name": "number",
        "query": "SELECT id AS number, of FROM orders WHERE of LIKE '%1%';",
        "query.suffix": "LIMIT 5",
    }
    trial = source(tmp_path, config)
    await trial.run(until=lambda: len(trial.records) >= 14)
    assert [value["number"] for value in trial.values][:6] == [1, 10, 11, 12, 13, 14]
    assert trial.records[0].topic == "db-"
    assert [partition for partition, _ in await trial.offsets.all()] == [{"query": "query"}]


async def test_young_rows_wait_for_the_delay(database: sqlite3.Connection, tmp_path: Path) -> None:
    fill(database, 5, "'2026-01-01 00:00:00'")
    fill(database, 5, "'2199-01-01 00:00:00'")
    trial = source(tmp_path, {"mode": "timestamp+incrementing", "timestamp.column.name": "ts"})
    await trial.run(until=lambda: trial.polls >= 4)
    assert [value["id"] for value in trial.values] == [1, 2, 3, 4, 5]


async def test_a_row_of_the_wrong_type_is_reported(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, price DECIMAL(10, 2))")
    database.execute("INSERT INTO orders VALUES (1, '1.50'), (2, 'cheap'), (3, 4)")
    trial = source(tmp_path, {"mode": "incrementing"})
    await trial.run(until=lambda: len(trial.records) >= 2)
    assert [str(value["price"]) for value in trial.values] == ["1.50", "4.00"]
    [(record, fault)] = trial.reports.given_up
    assert record.value == {"id": "2", "price": "cheap"}
    assert "column 'price'" in str(fault)


async def test_a_table_that_cannot_be_followed_is_refused(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE orders (id TEXT, ts TEXT)")
    with pytest.raises(TaskFault, match="0 columns that the database counts"):
        await source(tmp_path, {"mode": "incrementing"}).run(until=lambda: True)
    config = {"mode": "timestamp", "timestamp.column.name": "ts"}
    with pytest.raises(TaskFault, match="may be null"):
        await source(tmp_path, config).run(until=lambda: True)


async def test_a_hundred_thousand_rows(database: sqlite3.Connection, tmp_path: Path) -> None:
    fill(database, 100_000)
    trial = source(tmp_path, {"mode": "incrementing"})
    await trial.run(
        until=lambda: False, crash=SourceCrash.AFTER_COMMIT, crash_at=9, records_max=5000
    )
    await trial.run(until=lambda: len(trial.records) >= 100_000, records_max=5000)
    assert [value["id"] for value in trial.values] == list(range(1, 100_001))
