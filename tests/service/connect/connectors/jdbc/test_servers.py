"""The JDBC connectors on PostgreSQL and MariaDB, from Debian's packages."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from service.connect.connectors.jdbc.plugins import JDBC_SINK, JDBC_SOURCE
from service.connect.data.errors import DataFault, RetriableFault, TaskFault
from service.connect.data.schema import (
    BOOLEAN,
    BYTES,
    DATE_SCHEMA,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    struct,
)
from service.connect.data.schema import decimal as decimal_schema
from tests.service.connect.connectors.harness import (
    SinkCrash,
    SinkTrial,
    SourceCrash,
    SourceTrial,
    environment,
)
from tests.service.connect.databases import Database, Server

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


def source(on: Database, config: Mapping[str, str]) -> SourceTrial:
    return SourceTrial(
        JDBC_SOURCE,
        {**common(on), "topic.prefix": "", "poll.interval.ms": "0", **config},
        environment(),
    )


def sink(on: Database, config: Mapping[str, str]) -> SinkTrial:
    config = {**common(on), "auto.create": "true", "retry.backoff.ms": "1", **config}
    return SinkTrial(JDBC_SINK, config, environment())


def common(on: Database) -> dict[str, str]:
    return {
        "connection.url": on.jdbc,
        "connection.user": on.user,
        "connection.password": on.password,
    }


async def rows(on: Database, query: str, **config: str) -> list[Any]:
    """What a query gives, through the source."""
    trial = source(on, {"mode": "bulk", "query": query, "poll.interval.ms": "3600000", **config})
    await trial.run(until=lambda: trial.polls > 0, records_max=100_000)
    return [tuple(value.values()) for value in trial.values]


async def test_equal_timestamps_across_crashes(server: Server) -> None:
    on = server.fresh()
    server.run_in(
        on,
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, ts TIMESTAMP NOT NULL);"
        "INSERT INTO orders WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE"
        " i < 500) SELECT 501 - i, TIMESTAMP '2026-01-31 23:59:58' FROM n;",
    )
    trial = source(
        on,
        {
            "mode": "timestamp+incrementing",
            "timestamp.column.name": "ts",
            "incrementing.column.name": "id",
            "db.timezone": "America/Sao_Paulo",
            "timestamp.delay.interval.ms": "1000",
        },
    )
    for crash in (SourceCrash.BEFORE_COMMIT, SourceCrash.AFTER_COMMIT, SourceCrash.BEFORE_COMMIT):
        await trial.run(until=lambda: False, crash=crash, crash_at=2, records_max=70)
    await trial.run(until=lambda: len(trial.records) >= 500, records_max=70)
    assert [value["id"] for value in trial.values] == list(range(1, 501))
    is_local = server.kind == "postgresql"  # MariaDB's TIMESTAMP knows its zone.
    assert trial.values[0]["ts"] == (
        datetime(2026, 2, 1, 2, 59, 58, tzinfo=UTC)
        if is_local
        else datetime(2026, 1, 31, 23, 59, 58, tzinfo=UTC)
    )


async def test_the_sink_writes_each_row_once(server: Server) -> None:
    on = server.fresh()
    schema = struct([("id", INT64), ("n", INT32.optional())])
    trial = sink(on, {"pk.mode": "record_value", "pk.fields": "id", "insert.mode": "upsert"})
    for start in range(0, 3000, 100):
        values = [{"id": n % 700, "n": n} for n in range(start, start + 100)]
        trial.give("orders", 0, *values, schema=schema)
    for crash in (SinkCrash.AFTER_PUT, SinkCrash.AFTER_FLUSH):
        await trial.run(crash=crash, crash_at=2, records_max=400)
    await trial.run(records_max=400)
    found = await rows(on, "SELECT id, n FROM orders")
    assert sorted(found) == sorted({n % 700: n for n in range(3000)}.items())


async def test_bad_rows_are_found_among_good_ones(server: Server) -> None:
    on = server.fresh()
    trial = sink(on, {"pk.mode": "record_value", "pk.fields": "id"})
    values = [{"id": n, "of": "x"} for n in range(500)]
    for n in (3, 250, 499):
        values[n] = {"id": 1, "of": f"bad {n}"}
    schema = struct([("id", INT16), ("of", STRING)])
    trial.give("orders", 0, *values, schema=schema)
    await trial.run()
    assert await rows(on, "SELECT count(*) AS n FROM orders") == [(497,)]
    bad = {record.value["of"] for record, fault in trial.reports.given_up}
    assert bad == {"bad 3", "bad 250", "bad 499"}
    assert all(isinstance(fault, DataFault) for _, fault in trial.reports.given_up)


async def test_what_the_sink_writes_the_source_reads(server: Server) -> None:
    on = server.fresh()
    # SQLAlchemy does not find a column with a backtick in its name in MariaDB.
    odd = 'o"d d é %s $1 ?' + ("`" if server.kind == "postgresql" else "")
    schema = struct(
        [
            ("id", INT64),
            (odd, STRING.optional()),
            ("flag", BOOLEAN),
            ("small", INT8),
            ("short", FLOAT32),
            ("long", FLOAT64),
            ("price", decimal_schema(4).optional()),
            ("day", DATE_SCHEMA),
            ("clock", TIME_SCHEMA),
            ("at", TIMESTAMP_SCHEMA),
            ("raw", BYTES.optional()),
        ]
    )
    value = {
        "id": 1,
        odd: 'it\'s\n\\ "q" %s é 🌊',
        "flag": True,
        "small": -3,
        "short": 0.5,
        "long": 1.1,
        "price": Decimal("123456789012345678901234567890.1234"),
        "day": date(1969, 12, 31),
        "clock": time(23, 59, 59, 123000),
        "at": datetime(2026, 7, 1, 12, 0, 0, 123000, UTC),
        "raw": b"\0\xff'",
    }
    nulls = value | {"id": 2, odd: None, "price": None, "raw": None}
    config = {"db.timezone": "Europe/Lisbon", "table.name.format": "Table é %"}
    config |= {"pk.mode": "record_value", "pk.fields": "id", "insert.mode": "upsert"}
    trial = sink(on, config)
    # Once row by row, once as a copy of many.
    trial.give("orders", 0, value, nulls, schema=schema)
    await trial.run()
    trial.give("orders", 0, *(value | {"id": n} for n in range(3, 103)), schema=schema)
    await trial.run()
    assert trial.reports.given_up == []
    back = source(on, {"mode": "bulk", "db.timezone": "Europe/Lisbon"})
    await back.run(until=lambda: len(back.records) >= 102)
    first, second = sorted(back.values[:102], key=lambda each: int(each["id"]))[:2]
    scale = 127 if server.kind == "postgresql" else 4
    expected = value | {"flag": True if server.kind == "postgresql" else 1}
    assert first == expected
    assert -first["price"].as_tuple().exponent == scale
    assert second == expected | {"id": 2, odd: None, "price": None, "raw": None}
    assert back.records[0].value_schema is not None
    assert back.records[0].value_schema.name == config["table.name.format"]


async def test_a_paused_transaction_is_fenced(server: Server) -> None:
    on = server.fresh()
    trial = sink(on, {})
    trial.give("orders", 0, *({"id": n} for n in range(10)), schema=struct([("id", INT64)]))
    [at] = trial.log.records
    batch = trial.log.records[at]
    old, new = [trial.plugin.make(await trial.context()) for _ in range(2)]
    for task in (old, new):
        await task.start()
        await task.positions([at])  # type: ignore[union-attr]
    await new.put(batch[:5])  # type: ignore[union-attr]
    with pytest.raises(TaskFault, match="another task"):
        await old.put(batch[:7])  # type: ignore[union-attr]
    await new.put(batch[5:])  # type: ignore[union-attr]
    for task in (old, new):
        await task.stop()
    assert await rows(on, "SELECT count(*) AS n FROM orders") == [(10,)]


async def test_a_lost_connection_is_made_again(server: Server) -> None:
    on = server.fresh()
    server.run_in(on, "CREATE TABLE orders (id BIGINT PRIMARY KEY);")
    trial = sink(on, {})
    trial.give("orders", 0, *({"id": n} for n in range(20)), schema=struct([("id", INT64)]))
    [at] = trial.log.records
    task: Any = trial.plugin.make(await trial.context())
    await task.start()
    await task.positions([at])
    await task.put(trial.log.records[at][:10])
    server.disconnect(on)
    with pytest.raises(RetriableFault):
        await task.put(trial.log.records[at][10:])
    await task.put(trial.log.records[at][10:])
    await task.stop()
    assert await rows(on, "SELECT count(*) AS n FROM orders") == [(20,)]


async def test_a_wrong_password_is_said_and_not_repeated(server: Server) -> None:
    on = server.fresh()
    trial = source(on, {"mode": "bulk", "connection.password": "wr0ng", "connection.attempts": "1"})
    with pytest.raises(TaskFault) as refused:
        await trial.run(until=lambda: True)
    assert "cannot connect to 127.0.0.1" in str(refused.value)
    assert "wr0ng" not in str(refused.value)


async def test_types_of_postgresql(postgresql: Server) -> None:
    on = postgresql.fresh()
    postgresql.run_in(
        on,
        "CREATE TYPE mood AS ENUM ('sad', 'ok');"
        "CREATE TABLE t (id SERIAL PRIMARY KEY, a INT[], j JSONB, u UUID, m mood, n NUMERIC(9, 0),"
        " p NUMERIC(20, 3), f REAL, b BYTEA, z TIMESTAMPTZ, l TIMESTAMP, i INTERVAL, s CHAR(3),"
        " v INET, o BOOLEAN, k BIT(3));"
        "INSERT INTO t VALUES (1, '{1,2}', '{\"a\": 1}', '11111111-2222-3333-4444-555555555555',"
        " 'ok', 7, 1.5, 0.5, '\\x00ff', '2026-01-01 00:00:00.123456+02', '2026-01-01', '1 day',"
        " 'ab', '10.0.0.1', true, B'101');"
        "INSERT INTO t (id) VALUES (2);",
    )
    config = {
        "mode": "incrementing",
        "numeric.mapping": "best_fit",
        "timestamp.granularity": "micros_iso_datetime_string",
    }
    trial = source(on, config)
    await trial.run(until=lambda: len(trial.records) >= 2)
    assert trial.values[0] == {
        "id": 1,
        "a": "{1,2}",
        "j": '{"a": 1}',
        "u": "11111111-2222-3333-4444-555555555555",
        "m": "ok",
        "n": 7,
        "p": Decimal("1.500"),
        "f": 0.5,
        "b": b"\0\xff",
        "z": "2025-12-31T22:00:00.123456",
        "l": "2026-01-01T00:00:00.000000",
        "i": "1 day",
        "s": "ab ",
        "v": "10.0.0.1/32",
        "o": True,
        "k": "101",
    }
    assert set(trial.values[1].values()) == {2, None}
    [(partition, offset)] = await trial.offsets.all()
    assert partition == {"protocol": "1", "table": f"{on.name}.public.t"}
    assert offset == {"incrementing": 2}


async def test_types_of_mariadb(mariadb: Server) -> None:
    on = mariadb.fresh()
    mariadb.run_in(
        on,
        "CREATE TABLE t (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, u BIGINT UNSIGNED, y YEAR,"
        " b BIT(1), c BIT(10), e ENUM('a', 'b'), j JSON, x TEXT, d DATETIME(6), z TIMESTAMP NULL,"
        " t TIME, v VARBINARY(9), n DECIMAL(6, 2), f FLOAT);"
        "INSERT INTO t VALUES (4000000000, 18446744073709551615, 2026, 1, 5, 'b', '{}', 'é',"
        " '2026-01-01 00:00:00.123456', '2026-01-01 00:00:00', '12:00:01', X'00ff', 1.5, 0.5);",
    )
    trial = source(on, {"mode": "incrementing", "db.timezone": "Asia/Tokyo"})
    await trial.run(until=lambda: len(trial.records) >= 1)
    assert trial.values[0] == {
        "id": 4_000_000_000,
        "u": Decimal(2**64 - 1),
        "y": 2026,
        "b": 1,
        "c": b"\0\x05",
        "e": "b",
        "j": "{}",
        "x": "é",
        "d": datetime(2025, 12, 31, 15, 0, 0, 123456, UTC),
        "z": datetime(2026, 1, 1, tzinfo=UTC),
        "t": time(12, 0, 1),
        "v": b"\0\xff",
        "n": Decimal("1.50"),
        "f": 0.5,
    }
    # The same through a query, whose types the protocol says.
    [row] = await rows(on, "SELECT * FROM t", **{"db.timezone": "Asia/Tokyo"})
    assert row == tuple(trial.values[0].values())


async def test_a_source_goes_on_where_its_connection_was_lost(server: Server) -> None:
    on = server.fresh()
    server.run_in(
        on,
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, of VARCHAR(100));"
        "INSERT INTO orders WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE"
        " i < 900) SELECT i, '100% of it' FROM n;",
    )
    config = {
        "mode": "incrementing",
        "incrementing.column.name": "number",
        "query": "SELECT id AS number, of FROM orders WHERE of LIKE '100%'",
        "batch.max.rows": "100",
    }
    trial = source(on, config)
    lost: list[int] = []

    def done() -> bool:
        if not lost and trial.records:
            lost.append(len(trial.records))
            server.disconnect(on)
        return len(trial.records) >= 900

    await trial.run(until=done, records_max=100)
    assert lost == [100]
    assert [value["number"] for value in trial.values] == list(range(1, 901))
