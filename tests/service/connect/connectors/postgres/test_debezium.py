"""Debezium and we read the same table, each by a slot of its own: the records must be equal.

What differs on purpose is in docs/connectors/postgres.md, and not in these tables.
"""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.peers.maven import BENCH, Artifact, installed, java
from benchmarks.peers.peer import NotHere
from service.connect.converters.json import converter
from service.connect.data.records import ConnectRecord
from tests.service.connect.connectors.postgres.writer import connect, trial_of
from tests.service.connect.databases import Database, Server

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

FOLDER: Final = Path(__file__).with_name("debezium")
VERSION: Final = "3.2.0.Final"
INSTALL_S_MAX: Final = 180.0
ANSWER_S_MAX: Final = 300.0
OF_THE_SNAPSHOT: Final = 5

PASSING: Final = {"ts_ms", "ts_us", "ts_ns", "version"}
"""Fields that say when and by what a record was made."""

MOMENT: Final = {"lsn", "txId", "sequence", "xmin"}
"""Fields of `source` that say which snapshot it was; each has its own."""

JVM: Final = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@pytest.fixture(scope="module")
def jars() -> Path:
    if shutil.which("javac") is None:
        pytest.skip("there is no `javac` on the PATH: install a JDK")
    try:
        java()
        wanted = [
            Artifact("io.debezium", "debezium-embedded", VERSION),
            Artifact("io.debezium", "debezium-connector-postgres", VERSION),
            Artifact("org.slf4j", "slf4j-simple", "1.7.36"),
        ]
        return installed(BENCH / "debezium" / "libs", wanted, INSTALL_S_MAX)
    except NotHere as why:
        pytest.skip(str(why))


class Debezium:
    """Debezium's engine, which writes its records as lines into a file."""

    def __init__(self, process: "subprocess.Popen[bytes]", lines: Path, log: Path) -> None:
        self._process = process
        self._lines = lines
        self._log = log

    async def records(self, count: int) -> list[dict[str, Any]]:
        """Return all records once there are so many."""
        async with asyncio.timeout(ANSWER_S_MAX):
            while True:
                lines = self._lines.read_bytes().split(b"\n")[:-1]
                if len(lines) >= count:
                    return [json.loads(line) for line in lines]
                told = self._log.read_text()[-3000:]
                assert self._process.poll() is None, f"Debezium ended:\n{told}"
                await asyncio.sleep(0.1)


@contextmanager
def _debezium(jars: Path, database: Database, folder: Path) -> Iterator[Debezium]:
    settings = {
        "name": "oracle",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
        "database.hostname": database.host,
        "database.port": str(database.port),
        "database.user": database.user,
        "database.password": database.password,
        "database.dbname": database.name,
        "topic.prefix": "p",
        "plugin.name": "pgoutput",
        "slot.name": f"debezium_{database.name}",
        "skipped.operations": "none",
    }
    properties = folder / "engine.properties"
    properties.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
    lines, log = folder / "records", folder / "log"
    program = str(FOLDER / "Oracle.java")
    with lines.open("wb") as out, log.open("wb") as errors:
        process = subprocess.Popen(
            [java(), *JVM, "-cp", f"{jars}/*", program, str(properties)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=errors,
        )
        try:
            yield Debezium(process, lines, log)
        finally:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()


@pytest.fixture
def database(postgresql: Server) -> Iterator[Database]:
    fresh = postgresql.fresh()
    yield fresh
    postgresql.run(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
        f"WHERE database = '{fresh.name}' AND active"
    )
    postgresql.run(
        "DO $$ BEGIN FOR n IN 1..100 LOOP EXIT WHEN NOT EXISTS (SELECT FROM pg_replication_slots "
        f"WHERE database = '{fresh.name}' AND active); PERFORM pg_sleep(0.1); END LOOP; END $$"
    )
    postgresql.run(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
        f"WHERE database = '{fresh.name}'"
    )


async def _script(database: Database, name: str) -> None:
    connection = await connect(database)
    try:
        for statement in (FOLDER / name).read_text().split(";\n"):
            if statement.strip():
                await connection.execute(statement)
    finally:
        await connection.close()


def _ours(records: list[ConnectRecord]) -> list[dict[str, Any]]:
    write = converter.JsonConverter().to_bytes
    return [
        {
            "topic": record.topic,
            "key": json.loads(write("", record.key_schema, record.key) or b"null"),
            "value": json.loads(write("", record.value_schema, record.value) or b"null"),
        }
        for record in records
    ]


def _comparable(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record without what depends on when it was made."""
    record = {name: record[name] for name in ("topic", "key", "value")}
    if record["value"] is not None:
        payload = record["value"]["payload"]
        source = payload["source"]
        left_out = {"version"} if source["snapshot"] == "false" else PASSING | MOMENT
        payload["source"] = {k: v for k, v in source.items() if k not in left_out}
        record["value"]["payload"] = {k: v for k, v in payload.items() if k not in PASSING}
    return record


async def test_records_are_debeziums(jars: Path, database: Database, tmp_path: Path) -> None:
    await _script(database, "tables.sql")
    trial = trial_of(database, skipped_operations="none")
    await trial.run(until=lambda: len(trial.records) >= OF_THE_SNAPSHOT)
    with _debezium(jars, database, tmp_path) as debezium:
        await debezium.records(OF_THE_SNAPSHOT)
        await _script(database, "changes.sql")
        quiet: list[int] = []

        def is_quiet() -> bool:
            quiet.append(len(trial.records))
            return len(quiet) > 10 and quiet[-10] == quiet[-1]

        await trial.run(until=is_quiet)
        theirs = await debezium.records(len(trial.records))
    ours = _ours(trial.records)
    assert len(ours) == len(theirs) > 40
    for one, other in zip(ours, theirs, strict=True):
        assert json.dumps(_comparable(one), indent=1) == json.dumps(_comparable(other), indent=1)
