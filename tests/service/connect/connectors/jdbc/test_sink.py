"""The JDBC sink on SQLite: what becomes of records, and what a crash changes of it: nothing."""

import sqlite3
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from service.connect.connectors.api import TopicPartition
from service.connect.connectors.jdbc.plugins import JDBC_SINK
from service.connect.data.errors import ConfigFault, DataFault, TaskFault
from service.connect.data.schema import (
    DATE_SCHEMA,
    FLOAT64,
    INT32,
    INT64,
    STRING,
    TIMESTAMP_SCHEMA,
    ConnectSchema,
    Type,
    decimal,
    struct,
)
from tests.service.connect.connectors.harness import SinkCrash, SinkTrial, environment

pytestmark = pytest.mark.anyio

ORDER = struct([("id", INT64), ("of", STRING.optional())], "order")


def sink(tmp_path: Path, config: Mapping[str, str]) -> SinkTrial:
    base = {
        "connection.url": f"jdbc:sqlite:{tmp_path}/shop.db",
        "auto.create": "true",
        "retry.backoff.ms": "1",
        "topics": "orders",
    }
    trial = SinkTrial(JDBC_SINK, {**base, **config}, environment(tmp_path))
    trial.config = {name: text for name, text in trial.config.items() if name != "topics"}
    return trial


def rows(tmp_path: Path, query: str) -> list[Any]:
    connection = sqlite3.connect(tmp_path / "shop.db")
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def orders(start: int, end: int) -> list[dict[str, Any]]:
    return [{"id": n, "of": f"row {n}"} for n in range(start, end)]


@pytest.mark.parametrize("crash", list(SinkCrash))
async def test_inserts_happen_once_whatever_dies(tmp_path: Path, crash: SinkCrash) -> None:
    trial = sink(tmp_path, {})
    trial.give("orders", 0, *orders(0, 300), schema=ORDER)
    trial.give("orders", 1, *orders(300, 500), schema=ORDER)
    await trial.run(crash=crash, records_max=70)
    if crash is not SinkCrash.AFTER_POSITIONS:
        await trial.run(crash=crash, records_max=70)
    await trial.run(records_max=70)
    assert rows(tmp_path, 'SELECT id, "of" FROM orders ORDER BY id') == [
        (n, f"row {n}") for n in range(500)
    ]
    assert trial.gauges == {"exactly_once": 1.0}


async def test_without_the_table_of_positions_rows_may_come_twice(tmp_path: Path) -> None:
    trial = sink(tmp_path, {"offsets.table.name": ""})
    trial.give("orders", 0, *orders(0, 10), schema=ORDER)
    await trial.run(crash=SinkCrash.AFTER_FLUSH)
    await trial.run()
    assert rows(tmp_path, "SELECT count(*), count(DISTINCT id) FROM orders") == [(20, 10)]


async def test_a_paused_holder_writes_nothing(tmp_path: Path) -> None:
    trial = sink(tmp_path, {})
    trial.give("orders", 0, *orders(0, 10), schema=ORDER)
    at = TopicPartition("orders", 0)
    batch = trial.log.records[at]
    paused, new = [trial.plugin.make(await trial.context()) for _ in range(2)]
    for task in (paused, new):
        await task.start()
    assert await paused.positions([at]) == {}  # type: ignore[union-attr]
    assert await new.positions([at]) == {}  # type: ignore[union-attr]
    await new.put(batch[:6])  # type: ignore[union-attr]
    with pytest.raises(TaskFault, match="another task"):
        await paused.put(batch[:8])  # type: ignore[union-attr]
    await new.put(batch[6:])  # type: ignore[union-attr]
    for task in (paused, new):
        await task.stop()
    assert rows(tmp_path, "SELECT count(*) FROM orders") == [(10,)]
    third = trial.plugin.make(await trial.context())
    await third.start()
    assert await third.positions([at]) == {at: 10}  # type: ignore[union-attr]
    await third.stop()


async def test_upserts_and_deletes_keep_the_last_state_of_each_key(tmp_path: Path) -> None:
    key = struct([("a", INT32), ("b", STRING)])
    config = {"insert.mode": "upsert", "pk.mode": "record_key", "delete.enabled": "true"}
    trial = sink(tmp_path, config)
    value = struct([("n", INT64)])
    expected = {}
    for n in range(200):
        at = {"a": n % 7, "b": "x"}
        deletes = n % 5 == 0
        trial.give(
            "orders",
            0,
            None if deletes else {"n": n},
            keys=[at],
            schema=None if deletes else value,
            key_schema=key,
        )
        expected[n % 7] = None if deletes else n
    await trial.run(crash=SinkCrash.AFTER_PUT, crash_at=3, records_max=30)
    await trial.run(records_max=30)
    assert rows(tmp_path, "SELECT a, b, n FROM orders ORDER BY a") == [
        (a, "x", n) for a, n in sorted(expected.items()) if n is not None
    ]


async def test_updates_change_rows_that_are_there(tmp_path: Path) -> None:
    trial = sink(tmp_path, {"pk.mode": "record_value", "pk.fields": "id"})
    trial.give("orders", 0, *orders(0, 3), schema=ORDER)
    await trial.run()
    trial.config = {**trial.config, "insert.mode": "update"}
    trial.give("orders", 0, {"id": 1, "of": "new"}, {"id": 9, "of": "none"}, schema=ORDER)
    await trial.run()
    assert rows(tmp_path, 'SELECT "of" FROM orders ORDER BY id') == [
        ("row 0",),
        ("new",),
        ("row 2",),
    ]


async def test_kafkas_place_may_be_the_key(tmp_path: Path) -> None:
    config = {"pk.mode": "kafka", "insert.mode": "upsert", "fields.whitelist": "of"}
    trial = sink(tmp_path, config)
    trial.give("orders", 3, *orders(5, 7), schema=ORDER)
    await trial.run()
    query = 'SELECT __connect_topic, __connect_partition, __connect_offset, "of" FROM orders'
    assert rows(tmp_path, query) == [("orders", 3, 0, "row 5"), ("orders", 3, 1, "row 6")]


async def test_bad_rows_are_reported_and_the_others_written(tmp_path: Path) -> None:
    trial = sink(tmp_path, {"pk.mode": "record_value", "pk.fields": "id"})
    values = orders(0, 1000)
    for n in (17, 18, 500, 999):
        values[n] = {"id": 3, "of": f"bad {n}"}
    values[40] = {"id": None, "of": "no key"}
    trial.give("orders", 0, *values, schema=ORDER)
    trial.give("orders", 0, {"id": 1}, schema=None)
    await trial.run(records_max=400)
    assert rows(tmp_path, "SELECT count(*) FROM orders") == [(995,)]
    bad = [record.value.get("of") for record, _ in trial.reports.given_up]
    assert sorted(bad, key=str) == [None, "bad 17", "bad 18", "bad 500", "bad 999", "no key"]
    assert all(isinstance(fault, DataFault) for _, fault in trial.reports.given_up)


async def test_nothing_is_written_where_no_bad_row_is_tolerated(tmp_path: Path) -> None:
    trial = sink(tmp_path, {"pk.mode": "record_value", "pk.fields": "id"})
    trial.reports.tolerates = False
    trial.give("orders", 0, *orders(0, 5), {"id": 1, "of": "again"}, schema=ORDER)
    with pytest.raises(DataFault, match="UNIQUE constraint failed"):
        await trial.run()
    assert rows(tmp_path, "SELECT count(*) FROM orders") == [(0,)]


async def test_tables_are_widened_where_that_is_allowed(tmp_path: Path) -> None:
    trial = sink(tmp_path, {})
    trial.give("orders", 0, *orders(0, 2), schema=ORDER)
    await trial.run()
    wider = struct([("id", INT64), ("of", STRING), ("price", FLOAT64.optional())])
    trial.give("orders", 0, {"id": 5, "of": "x", "price": 1.5}, schema=wider)
    with pytest.raises(TaskFault, match="no column 'price'"):
        await trial.run()
    trial.config = {**trial.config, "auto.evolve": "true"}
    await trial.run()
    assert rows(tmp_path, "SELECT id, price FROM orders ORDER BY id") == [
        (0, None),
        (1, None),
        (5, 1.5),
    ]
    required = struct([("id", INT64), ("count", INT64)])
    trial.give("orders", 0, {"id": 6, "count": 1}, schema=required)
    with pytest.raises(TaskFault, match="neither optional"):
        await trial.run()


async def test_odd_names_and_logical_types(tmp_path: Path) -> None:
    odd = 'na"me; DROP TABLE x -- é%s ?'
    schema = struct(
        [
            (odd, INT64),
            ("price", decimal(2)),
            ("day", DATE_SCHEMA),
            ("at", TIMESTAMP_SCHEMA),
            ("raw", ConnectSchema(Type.BYTES)),
        ]
    )
    trial = sink(tmp_path, {"db.timezone": "Asia/Tokyo", "table.name.format": "k ${topic}'\""})
    at = datetime(2026, 1, 31, 20, 0, 0, 123000, UTC)
    value = {
        odd: 1,
        "price": Decimal("12.30"),
        "day": date(2026, 1, 31),
        "at": at,
        "raw": b"\0\xff",
    }
    big = value | {"price": Decimal("12345678901234567890.12")}
    trial.give("or.ders", 0, value, big, schema=schema)
    await trial.run()
    assert rows(tmp_path, 'SELECT * FROM "k or.ders\'"""') == [
        (1, 12.3, "2026-01-31", "2026-02-01 05:00:00.123", b"\0\xff")
    ]
    [(_, fault)] = trial.reports.given_up
    assert "22 digits" in str(fault)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"insert.mode": "upsert"}, "pk.mode"),
        ({"delete.enabled": "true", "pk.mode": "kafka"}, "delete.enabled"),
        ({"connection.url": "jdbc:oracle:thin:@host"}, "connection.url"),
        ({"connection.url": "jdbc:sqlite:/etc/other.db"}, "connection.url"),
        ({"dialect.name": "MySqlDatabaseDialect"}, "dialect.name"),
        ({"offset.table": "x"}, "offset.table"),
    ],
)
async def test_contradictions_are_refused(
    tmp_path: Path, config: Mapping[str, str], key: str
) -> None:
    with pytest.raises(ConfigFault) as refused:
        sink(tmp_path, config).check()
    assert key in refused.value.problems


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shop.db").write_bytes(b"this is no database, however long it may be" * 100)
    trial = sink(tmp_path, {})
    trial.give("orders", 0, *orders(0, 1), schema=ORDER)
    with pytest.raises(TaskFault, match="not a database"):
        await trial.run()


async def test_offsets_set_by_hand_win_over_those_of_the_database_once(tmp_path: Path) -> None:
    trial = sink(tmp_path, {})
    trial.give("orders", 0, *orders(0, 10), schema=ORDER)
    trial.give("orders", 1, *orders(10, 20), schema=ORDER)
    await trial.run()
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    trial.told, trial.committed = {first: 7, second: None}, {first: 7, second: 5}
    await trial.run(crash=SinkCrash.AFTER_POSITIONS)
    await trial.run()
    await trial.run()
    again = [n for n in range(20) if 7 <= n < 10 or n >= 15]
    assert rows(tmp_path, "SELECT id FROM orders ORDER BY id, rowid") == [
        (n,) for n in sorted([*range(20), *again])
    ]
