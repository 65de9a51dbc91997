"""Connect with exactly-once sources on a gateway: files, MirrorMaker 2, Debezium."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.peers.kafka_server import JavaServer, start_kafka
from tests.gateway import GatewayProcess
from tests.integration.test_kafka_clients import Sent
from tests.kafka_programs.connect import DEBEZIUM, EXACTLY_ONCE, MIRROR, connecting
from tests.kafka_programs.programs import TIMEOUT_S, Tools, debezium_jars, kafka_jars
from tests.service.connect import databases

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

RECORDS = 200
JSON = "org.apache.kafka.connect.json.JsonConverter"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


def values_of(gateway: GatewayProcess, topic: str, partition: int = 0) -> list[str]:
    """Return all values of a partition; none if the topic is not there yet."""
    values: list[str] = []
    at = f"{gateway.url}/v1/topics/{topic}/partitions/{partition}/records"
    while True:
        page = httpx.get(at, params={"offset": len(values), "value_format": "text"}, timeout=60)
        if page.status_code == 404:
            return values
        found = page.json()["records"]
        if not found:
            return values
        values += [record["value"] for record in found]


def append(source: Path, ended: threading.Event, lines: list[str]) -> None:
    """Write lines a few at a time, so that a worker reads them in many transactions."""
    for first in range(0, len(lines), 5):
        with source.open("a") as more:
            more.write("".join(f"{line}\n" for line in lines[first : first + 5]))
        ended.wait(0.02)


def test_lines_are_read_once_by_workers_that_are_killed(
    tools: Tools, gateway: GatewayProcess, tmp_path: Path
) -> None:
    lines = [f"line {number}" for number in range(RECORDS)]
    source = tmp_path / "source"
    source.touch()
    writer = threading.Thread(target=append, args=(source, threading.Event(), lines))

    with connecting(tools, tmp_path, **EXACTLY_ONCE) as connect:
        connect.create("once", "FileStreamSource", file=str(source), topic="once")
        connect.until(lambda: connect.is_running("once"))
        writer.start()
        connect.until(lambda: len(values_of(gateway, "once")) >= RECORDS // 4)
        connect.kill()
    writer.join()
    with connecting(tools, tmp_path, **EXACTLY_ONCE) as connect:
        connect.until(lambda: len(values_of(gateway, "once")) >= RECORDS)

    assert values_of(gateway, "once") == lines


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[JavaServer]:
    server = start_kafka(tmp_path, "page cache", kafka_jars())
    yield server
    server.kill()


def test_mirror_maker_copies_a_topic_of_a_kafka(
    tools: Tools, gateway: GatewayProcess, kafka: JavaServer, tmp_path: Path
) -> None:
    there = f"127.0.0.1:{kafka.port}"
    admin = AdminClient({"bootstrap.servers": there})
    admin.create_topics([NewTopic("moved", 2, 1)])["moved"].result(TIMEOUT_S)
    sent = Sent(there)
    for number in range(RECORDS):
        sent.send("moved", number % 2, str(number).encode())
    sent.flush()
    config = {
        "source.cluster.alias": "old",
        "source.cluster.bootstrap.servers": there,
        "target.cluster.bootstrap.servers": tools.bootstrap,
        "topics": "moved",
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "offset-syncs.topic.location": "target",
        "key.converter": BYTES,
        "value.converter": BYTES,
    }

    def copied() -> list[list[str]]:
        return [values_of(gateway, "old.moved", partition) for partition in range(2)]

    with connecting(tools, tmp_path, **EXACTLY_ONCE) as connect:
        connect.create("mirror", MIRROR, **config)
        connect.until(lambda: sum(map(len, copied())) >= RECORDS)

    assert copied() == [[str(n) for n in range(first, RECORDS, 2)] for first in range(2)]
    mirrored = httpx.get(f"{gateway.url}/v1/topics/old.moved").json()
    assert mirrored["partitions"] == 2


@pytest.fixture
def database() -> Iterator[databases.Database]:
    with databases.start_postgresql() as server:
        yield server.fresh()


def execute(database: databases.Database, *statements: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(
            host=database.host,
            port=database.port,
            user=database.user,
            password=database.password,
            database=database.name,
        )
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(run())


def test_debezium_streams_the_changes_of_a_table_once(
    tools: Tools, gateway: GatewayProcess, database: databases.Database, tmp_path: Path
) -> None:
    beside = tools.beside(debezium_jars())
    execute(
        database,
        "CREATE TABLE people (id int PRIMARY KEY, name text)",
        "INSERT INTO people SELECT n, 'person ' || n FROM generate_series(1, 3) n",
    )
    config = {
        "database.hostname": database.host,
        "database.port": str(database.port),
        "database.user": database.user,
        "database.password": database.password,
        "database.dbname": database.name,
        "topic.prefix": "pg",
        "plugin.name": "pgoutput",
        "key.converter": JSON,
        "value.converter": JSON,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
    }
    topic = "pg.public.people"

    with connecting(beside, tmp_path, **EXACTLY_ONCE) as connect:
        connect.create("people", DEBEZIUM, **config)
        connect.until(lambda: len(values_of(gateway, topic)) >= 3)
        execute(database, "UPDATE people SET name = 'ana' WHERE id = 1")
        connect.until(lambda: len(values_of(gateway, topic)) >= 4)
        connect.kill()
    execute(database, "INSERT INTO people VALUES (4, 'caio')", "DELETE FROM people WHERE id = 2")
    with connecting(beside, tmp_path, **EXACTLY_ONCE) as connect:
        # The last one is the tombstone behind the delete.
        connect.until(lambda: len(values_of(gateway, topic)) >= 7)

    *changes, tombstone = values_of(gateway, topic)
    assert [json.loads(change)["op"] for change in changes] == ["r", "r", "r", "u", "c", "d"]
    assert json.loads(changes[3])["after"] == {"id": 1, "name": "ana"}
    assert json.loads(changes[5])["before"]["id"] == 2
    assert tombstone is None
