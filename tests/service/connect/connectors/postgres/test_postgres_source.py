"""The PostgreSQL source on a real server, with writers and crashes."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, cast

import asyncpg
import pytest

from service.connect.connectors.api import SourceTask
from service.connect.connectors.postgres import stream
from service.connect.data.errors import ConfigFault, RetriableFault, TaskFault
from service.connect.data.records import ConnectRecord
from tests.service.connect.connectors.harness import SourceCrash, SourceTrial
from tests.service.connect.connectors.postgres.writer import (
    Writer,
    changes,
    connect,
    replayed,
    trial_of,
)
from tests.service.connect.databases import Database, Server

pytestmark = pytest.mark.anyio


@pytest.fixture
def database(postgresql: Server) -> Iterator[Database]:
    fresh = postgresql.fresh()
    yield fresh
    postgresql.run(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
        f"WHERE database = '{fresh.name}'"
    )


async def _execute(database: Database, *statements: str) -> None:
    connection = await connect(database)
    try:
        for each in statements:
            await connection.execute(each)
    finally:
        await connection.close()


async def _rows(database: Database, table: str = "t") -> dict[Any, str]:
    connection = await connect(database)
    try:
        rows = await connection.fetch(f"SELECT id, v FROM {table}")
        return {row["id"]: row["v"] for row in rows}
    finally:
        await connection.close()


def _more(trial: SourceTrial, count: int) -> Any:
    """Return the condition that so many records follow those that there are now."""
    end = len(trial.records) + count
    return lambda: len(trial.records) >= end


async def _quiet(trial: SourceTrial, polls: int = 3) -> None:
    """Run until polls give nothing more."""
    seen: list[int] = []

    def is_quiet() -> bool:
        seen.append(len(trial.records))
        return len(seen) > polls and len({*seen[-polls:]}) == 1

    await trial.run(until=is_quiet)


async def test_rows_are_read_and_then_their_changes(database: Database) -> None:
    await _execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    )
    trial = trial_of(database)
    await trial.run(until=_more(trial, 2))
    await _execute(
        database,
        "INSERT INTO t VALUES (3, 'c')",
        "UPDATE t SET v = 'd' WHERE id = 1",
        "UPDATE t SET id = 4 WHERE id = 2",
        "DELETE FROM t WHERE id = 3",
    )
    await trial.run(until=_more(trial, 7))
    assert changes(trial.records) == [
        ("r", {"id": 1}, None, {"id": 1, "v": "a"}),
        ("r", {"id": 2}, None, {"id": 2, "v": "b"}),
        ("c", {"id": 3}, None, {"id": 3, "v": "c"}),
        ("u", {"id": 1}, None, {"id": 1, "v": "d"}),
        ("d", {"id": 2}, {"id": 2, "v": None}, None),
        ("tombstone", {"id": 2}, None, None),
        ("c", {"id": 4}, None, {"id": 4, "v": "b"}),
        ("d", {"id": 3}, {"id": 3, "v": None}, None),
        ("tombstone", {"id": 3}, None, None),
    ]
    assert {record.topic for record in trial.records} == {"p.public.t"}
    markers = [each.value["source"]["snapshot"] for each in trial.records[:3]]
    assert markers == ["first", "last", "false"]
    assert trial.records[4].headers[0].value == {"id": 4}
    assert trial.records[6].headers[0].value == {"id": 2}
    assert "slot_lag_bytes" in trial.gauges


@pytest.mark.parametrize("key", ["int", "text"])
async def test_writers_and_crashes_during_the_snapshot_lose_and_repeat_nothing(
    database: Database, key: str
) -> None:
    await _execute(
        database,
        f"CREATE TABLE t (id {key} PRIMARY KEY, v text)",
        "CREATE TABLE a (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT n, n FROM generate_series(0, 5998, 2) n",
        "INSERT INTO a SELECT n, n FROM generate_series(1, 50) n",
    )
    writers = [Writer(database, seed, 6000) for seed in (1, 2)]
    writing = [asyncio.create_task(writer.run()) for writer in writers]
    trial = trial_of(database)
    try:
        for n in range(8):
            crash = SourceCrash.AFTER_COMMIT if n % 2 else SourceCrash.BEFORE_COMMIT
            await trial.run(until=lambda: False, crash=crash, crash_at=2, records_max=150)
        assert any("at" in position for _, position in trial.offsets.stored.values())
        done = [writer.transactions + 30 for writer in writers]
        await trial.run(
            until=lambda: all(w.transactions > n for w, n in zip(writers, done, strict=True)),
            records_max=150,
        )
        for _ in range(4):
            crash = SourceCrash.AFTER_COMMIT
            await trial.run(until=lambda: False, crash=crash, records_max=7)
    finally:
        for writer in writers:
            writer.stop()
        await asyncio.gather(*writing)
    await _quiet(trial)
    of_t = [record for record in trial.records if record.topic == "p.public.t"]
    assert replayed(of_t) == await _rows(database)
    of_a = [record for record in trial.records if record.topic == "p.public.a"]
    assert len(of_a) == 50
    assert replayed(of_a) == await _rows(database, "a")


async def test_a_large_transaction_goes_on_where_it_was_interrupted(database: Database) -> None:
    await _execute(database, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    trial = trial_of(database, snapshot_mode="no_data")
    await trial.run(until=lambda: trial.polls > 0)
    await _execute(database, "INSERT INTO t SELECT n, n FROM generate_series(1, 5000) n")
    await _execute(database, "UPDATE t SET id = -id")
    for n in range(6):
        crash = SourceCrash.AFTER_COMMIT if n % 2 else SourceCrash.BEFORE_COMMIT
        await trial.run(until=lambda: False, crash=crash, crash_at=3, records_max=700)
    await trial.run(until=lambda: len(trial.records) >= 20_000)
    await _quiet(trial)
    assert len(trial.records) == 20_000
    assert [each.key["id"] for each in trial.records[:5000]] == list(range(1, 5001))
    assert replayed(trial.records) == await _rows(database)


async def test_polls_that_are_cancelled_or_lose_their_connection_lose_no_change(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PEEK_CHANGES_MAX", 300)
    await _execute(database, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    trial = trial_of(database, snapshot_mode="no_data")
    await trial.run(until=lambda: trial.polls > 0)
    for n in range(20):
        rows = f"generate_series({n * 100}, {n * 100 + 99})"
        await _execute(database, f"INSERT INTO t SELECT n, n FROM {rows} n")
    task = cast(SourceTask, trial.plugin.make(await trial.context()))
    await task.start()
    records: list[ConnectRecord] = []
    ends = 0
    while len(records) < 2000:
        poll = asyncio.create_task(task.poll(1.0, 70))
        ends += 1
        if ends % 3:
            # At another point each time, of the few that a poll has.
            for _ in range(ends % 11):
                await asyncio.sleep(0)
                await asyncio.wait([poll], timeout=0.001)
            poll.cancel()
        if ends == 10:
            await _execute(
                database,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'riacho-connect' AND datname = current_database()",
            )
        with contextlib.suppress(asyncio.CancelledError, RetriableFault):
            records += await poll
            await task.committed()
    await task.stop()
    assert [record.key["id"] for record in records] == list(range(2000))


async def test_messages_are_fetched_by_their_size(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "FETCH_BYTES", 10_000)
    await _execute(database, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    trial = trial_of(database, snapshot_mode="no_data")
    await trial.run(until=lambda: trial.polls > 0)
    await _execute(
        database, "INSERT INTO t SELECT n, repeat('x', 3000) FROM generate_series(1, 40) n"
    )
    before = trial.polls
    await trial.run(until=_more(trial, 40))
    assert trial.polls - before >= 10


async def test_the_slot_moves_on_while_only_others_write(database: Database) -> None:
    await _execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE TABLE other (v text)",
        "CREATE PUBLICATION dbz_publication FOR TABLE t",
    )
    trial = trial_of(database, snapshot_mode="no_data", publication_autocreate_mode="disabled")
    await trial.run(until=lambda: trial.polls > 0)
    await _execute(
        database, "INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 4000)"
    )

    def is_released() -> bool:
        return 0 <= trial.gauges.get("slot_lag_bytes", -1) < 1 << 20 and trial.polls > 5

    await trial.run(until=is_released)
    assert trial.records == []


async def test_a_slot_that_vanished_is_an_error_or_a_new_snapshot(
    database: Database, postgresql: Server
) -> None:
    await _execute(
        database, "CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')"
    )
    trial = trial_of(database)
    await trial.run(until=_more(trial, 1))
    postgresql.run(f"SELECT pg_drop_replication_slot('slot_{database.name}')")
    with pytest.raises(TaskFault, match="vanished"):
        await trial.run(until=lambda: False)
    again = trial_of(database, snapshot_mode="when_needed")
    again.offsets = trial.offsets
    await again.run(until=_more(again, 1))
    assert changes(again.records) == [("r", {"id": 1}, None, {"id": 1, "v": "a"})]


async def test_another_reader_of_the_slot_is_noticed(database: Database) -> None:
    await _execute(database, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    trial = trial_of(database, snapshot_mode="no_data")

    async def interfere() -> None:
        while trial.polls == 0:
            await asyncio.sleep(0)
        connection = await connect(database)
        advance = f"SELECT pg_replication_slot_advance('slot_{database.name}', pg_switch_wal())"
        try:
            while True:
                # Now and then the connector has read as far before, or reads just now.
                await connection.execute("INSERT INTO t SELECT max(id) + 1, 'a' FROM t")
                with contextlib.suppress(asyncpg.ObjectInUseError):
                    await connection.execute(advance)
        finally:
            await connection.close()

    await _execute(database, "INSERT INTO t VALUES (1, 'a')")
    interfering = asyncio.create_task(interfere())
    with pytest.raises(TaskFault, match=r"slot\.name of its own"):
        await trial.run(until=lambda: False)
    interfering.cancel()
    await asyncio.wait([interfering])


async def test_tables_columns_and_operations_are_chosen(database: Database) -> None:
    await _execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, v text, secret text)",
        "CREATE TABLE not_t (id int PRIMARY KEY)",
        "CREATE TABLE bare (id int, v text)",
        "ALTER TABLE bare REPLICA IDENTITY FULL",
        "INSERT INTO t VALUES (1, 'a', 's')",
        "INSERT INTO bare VALUES (1, 'a')",
    )
    trial = trial_of(
        database,
        table_include_list=r"public\.t,public\.bare",
        column_exclude_list=r".*\.secret",
        publication_autocreate_mode="filtered",
        skipped_operations="u",
        tombstones_on_delete="false",
    )
    await trial.run(until=_more(trial, 2))
    await _execute(
        database,
        "INSERT INTO not_t VALUES (1)",
        "UPDATE t SET v = 'b'",
        "DELETE FROM t",
        "DELETE FROM bare",
        "TRUNCATE t",
    )
    await trial.run(until=_more(trial, 3))
    assert changes(trial.records) == [
        ("r", None, None, {"id": 1, "v": "a"}),
        ("r", {"id": 1}, None, {"id": 1, "v": "a"}),
        ("d", {"id": 1}, {"id": 1, "v": None}, None),
        ("d", None, {"id": 1, "v": "a"}, None),
        ("t", None, None, None),
    ]


async def test_a_table_may_change_while_it_is_read(database: Database) -> None:
    await _execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, v text NOT NULL)",
        "INSERT INTO t VALUES (1, 'a')",
    )
    trial = trial_of(database)
    await trial.run(until=_more(trial, 1))
    await _execute(
        database,
        "INSERT INTO t VALUES (2, 'b')",
        "ALTER TABLE t ALTER v DROP NOT NULL",
        "INSERT INTO t VALUES (3, NULL)",
        "ALTER TABLE t ADD w int",
        "INSERT INTO t VALUES (4, 'd', 4)",
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "ALTER TABLE t ADD m mood",
        "INSERT INTO t VALUES (5, 'd', 4, 'ok')",
    )
    await trial.run(until=_more(trial, 4))
    assert [record.value["after"] for record in trial.records] == [
        {"id": 1, "v": "a"},
        {"id": 2, "v": "b"},
        {"id": 3, "v": None},
        {"id": 4, "v": "d", "w": 4},
        {"id": 5, "v": "d", "w": 4, "m": "ok"},
    ]


async def test_only_the_snapshot_needs_no_slot(database: Database) -> None:
    await _execute(
        database, "CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')"
    )
    trial = trial_of(database, snapshot_mode="initial_only")
    await trial.run(until=_more(trial, 1))
    await _execute(database, "INSERT INTO t VALUES (2, 'b')")
    await _quiet(trial)
    assert len(trial.records) == 1
    connection = await connect(database)
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    assert await connection.fetchval(slots) == 0
    await connection.close()


async def test_heartbeats_tell_that_nothing_changes(database: Database) -> None:
    await _execute(database, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    trial = trial_of(database, snapshot_mode="no_data", heartbeat_interval_ms="1")
    await trial.run(until=_more(trial, 2))
    assert trial.records[0].topic == "__debezium-heartbeat.p"
    assert trial.records[0].key == {"serverName": "p"}


@pytest.mark.parametrize(
    ("key", "text", "says"),
    [
        ("plugin.name", "decoderbufs", "pgoutput"),
        ("snapshot.mode", "always", "delete the connector's offsets"),
        ("slot.name", "A-b", "letters"),
        ("slot.drop.on.stop", "true", "drop the slot by hand"),
        ("provide.transaction.metadata", "true", "txId"),
        ("table.include.list", "(", "RE2"),
        ("skipped.operations", "x", "c, u, d, t"),
        ("message.key.columns", "x", "schema.table:column"),
    ],
)
def test_what_cannot_be_is_refused_by_key(key: str, text: str, says: str) -> None:
    trial = trial_of(Database("postgresql", 1, "none"))
    trial.config = {**trial.config, key: text}
    with pytest.raises(ConfigFault) as fault:
        trial.check()
    assert list(fault.value.problems) == [key]
    assert says in fault.value.problems[key]


def test_two_lists_of_a_kind_are_refused() -> None:
    trial = trial_of(
        Database("postgresql", 1, "none"), table_include_list="a", table_exclude_list="b"
    )
    with pytest.raises(ConfigFault, match=r"table\.exclude\.list"):
        trial.check()
