"""Connectors whose runner is killed again and again: each row once, in order, and the same end."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.connect_trial import (
    ROWS,
    STEP,
    Feeder,
    Trial,
    eventually,
    needs_proc,
    trial,
)
from tests.service.connect.databases import PASSWORD, Database, Server, start_postgresql
from tests.torture.sizes import FULL

pytestmark = [pytest.mark.slow, needs_proc]

KEYS: Final = 50
PARTITIONS: Final = 4
FILE_RECORDS: Final = ROWS // 100
JSON: Final = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "true",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "true",
}
SOURCE: Final = {
    **JSON,
    "connector.class": "JdbcSourceConnector",
    "connection.url": "jdbc:sqlite:from.db",
    "mode": "incrementing",
    "incrementing.column.name": "id",
    "table.whitelist": "entries",
    "topic.prefix": "",
    "poll.interval.ms": "20",
    "transforms": "key,field",
    "transforms.key.type": "org.apache.kafka.connect.transforms.ValueToKey",
    "transforms.key.fields": "k",
    "transforms.field.type": "org.apache.kafka.connect.transforms.ExtractField$Key",
    "transforms.field.field": "k",
    "topic.creation.default.partitions": str(PARTITIONS),
    "topic.creation.default.replication.factor": "1",
}
UPSERT: Final = {
    **JSON,
    "connector.class": "JdbcSinkConnector",
    "connection.url": "jdbc:sqlite:to.db",
    "topics": "entries",
    "insert.mode": "upsert",
    "pk.mode": "record_key",
    "pk.fields": "k",
    "auto.create": "true",
    "tasks.max": "2",
}
OBJECTS: Final = {
    **JSON,
    "connector.class": "io.confluent.connect.s3.S3SinkConnector",
    "store.url": "file:///out",
    "topics": "entries",
    "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
    "flush.size": str(FILE_RECORDS),
}


def database(trial: Trial, name: str) -> "closing[sqlite3.Connection]":
    return closing(sqlite3.connect(trial.files / name, timeout=60, isolation_level=None))


def entries(trial: Trial) -> Callable[[int, int], None]:
    """Make the table of the source; return what writes rows from the first to the last number."""
    with database(trial, "from.db") as made:
        made.execute("PRAGMA journal_mode=WAL")
        made.execute("CREATE TABLE entries (id INTEGER PRIMARY KEY, k INTEGER NOT NULL, v TEXT)")
    with database(trial, "to.db") as made:
        made.execute("PRAGMA journal_mode=WAL")

    def write(first: int, last: int) -> None:
        with database(trial, "from.db") as on:
            on.execute("BEGIN IMMEDIATE")
            rows = ((n, n % KEYS, f"value {n}") for n in range(first, last + 1))
            on.executemany("INSERT INTO entries VALUES (?, ?, ?)", rows)
            on.execute("COMMIT")

    return write


def check_log(trial: Trial, topic: str, read: Callable[[Any], tuple[Any, int]]) -> list[list[int]]:
    """Check that each number is in the log once, and in order for its key."""
    partitions = []
    latest: dict[Any, tuple[int, int]] = {}
    for partition in range(PARTITIONS):
        numbers = []
        for record in trial.api.read_all_arrow(topic, partition):
            key, number = read(json.loads(record["value"])["payload"])
            numbers.append(number)
            assert latest.get(key, (partition, 0))[0] == partition, key
            assert latest.get(key, (partition, 0))[1] < number, (key, number)
            latest[key] = partition, number
        partitions.append(numbers)
    assert sorted(n for numbers in partitions for n in numbers) == list(range(1, ROWS + 1))
    return partitions


def objects(trial: Trial, partition: int) -> list[int]:
    """Return the numbers that the object sink has written, by the names of its files."""
    folder = trial.files / "out" / "topics" / "entries" / f"partition={partition}"
    lines = [
        line for path in sorted(folder.glob("*.json")) for line in path.read_text().splitlines()
    ]
    return [json.loads(line)["id"] for line in lines]


def upserted(trial: Trial) -> list[tuple[Any, ...]]:
    with database(trial, "to.db") as on:
        return on.execute("SELECT k, id, v FROM entries ORDER BY k").fetchall()


def test_rows_through_a_source_and_two_sinks(tmp_path: Path) -> None:
    with trial(tmp_path) as at:
        write = entries(at)
        at.create("source", SOURCE)
        at.create("upsert", UPSERT)
        at.create("objects", OBJECTS)
        with Feeder(write, lambda: at.arrived("entries")) as feeder:
            at.kill_again_and_again(feeder)
            at.eventually(lambda: at.arrived("entries") >= ROWS)
        partitions = check_log(at, "entries", lambda row: (row["k"], row["id"]))
        at.eventually(lambda: at.committed("upsert") == ROWS)
        last = [(k, n, f"value {n}") for k in range(KEYS) for n in [ROWS - (ROWS - k) % KEYS]]
        assert upserted(at) == last
        cut = [numbers[: len(numbers) // FILE_RECORDS * FILE_RECORDS] for numbers in partitions]
        at.eventually(lambda: at.committed("objects") >= sum(map(len, cut)))
        assert [objects(at, partition) for partition in range(PARTITIONS)] == cut


def test_a_runner_stopped_past_its_lease_writes_nothing_more(tmp_path: Path) -> None:
    with trial(tmp_path) as at, at.another_runner() as another:
        write = entries(at)
        at.create("source", SOURCE)
        at.create("upsert", UPSERT | {"tasks.max": "1"})
        with Feeder(write, lambda: at.arrived("entries"), pauses=3) as feeder:
            at.eventually(lambda: at.runner() is not None and feeder.progress() > 0)
            at.eventually(lambda: 0 not in at.holders())
            first = at.runner()
            assert first is not None
            os.kill(first, signal.SIGSTOP)
            feeder.go_on()
            at.eventually(lambda: at.holders() == {another.pid})
            before = feeder.progress()
            feeder.go_on()
            at.eventually(lambda: feeder.progress() > before)
            os.kill(first, signal.SIGCONT)
            feeder.go_on()
            at.eventually(lambda: at.arrived("entries") >= ROWS)
        check_log(at, "entries", lambda row: (row["k"], row["id"]))
        at.eventually(lambda: at.committed("upsert") == ROWS)
        assert at.holders() == {another.pid}
        if FULL:
            os.kill(another.pid, signal.SIGKILL)
            at.eventually(lambda: at.holders() == {first})


@pytest.mark.skipif(not FULL, reason="part of `make proof`")
def test_another_runner_goes_on_when_a_gateway_is_gone(tmp_path: Path) -> None:
    with trial(tmp_path) as at, at.another_runner():
        write = entries(at)
        at.create("upsert", UPSERT)
        at.create("source", SOURCE)
        write(1, ROWS // 2)
        at.eventually(lambda: at.arrived("entries") > 0)
        at.gateway.kill()
        write(ROWS // 2 + 1, ROWS)
        last = [(k, n, f"value {n}") for k in range(KEYS) for n in [ROWS - (ROWS - k) % KEYS]]
        log = tmp_path / "another.log"
        eventually(lambda: _is(lambda: upserted(at), last), log.read_text)


def changes(server: Server, on: Database) -> Callable[[int, int], None]:
    """Make a table; return what changes one row for each number, a transaction for some of them."""
    server.run_in(on, "CREATE TABLE t (id int PRIMARY KEY, v bigint NOT NULL)")
    at_once = min(KEYS, STEP)

    def write(first: int, last: int) -> None:
        cuts = [(n, min(last, n + at_once - 1)) for n in range(first, last + 1, at_once)]
        sql = (
            f"INSERT INTO t SELECT n % {KEYS}, n FROM generate_series({start}, {end}) n"
            " ON CONFLICT (id) DO UPDATE SET v = excluded.v;"
            for start, end in cuts
        )
        server.run_in(on, f"DO $$ BEGIN {' COMMIT; '.join(sql)} END $$")

    return write


def test_changes_of_postgresql(tmp_path: Path) -> None:
    with start_postgresql() as server, trial(tmp_path, TRIAL_PASSWORD=PASSWORD) as at:
        on = server.fresh()
        write = changes(server, on)
        write(1, KEYS)
        at.create(
            "changes",
            {
                **JSON,
                "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                "database.hostname": on.host,
                "database.port": str(on.port),
                "database.user": on.user,
                "database.password": "${env:TRIAL_PASSWORD}",
                "database.dbname": on.name,
                "topic.prefix": "p",
                "slot.name": "trial",
                "poll.interval.ms": "20",
                "topic.creation.default.partitions": str(PARTITIONS),
                "topic.creation.default.replication.factor": "1",
            },
        )
        topic = "p.public.t"
        # The slot has to be there before rows change again: a snapshot has only their last state.
        at.eventually(lambda: at.arrived(topic) == KEYS)
        later = Feeder(
            lambda first, last: write(first + KEYS, last + KEYS),
            lambda: at.arrived(topic) - KEYS,
            ROWS - KEYS,
        )
        with later as feeder:
            at.kill_again_and_again(feeder)
            at.eventually(lambda: at.arrived(topic) >= ROWS)
        check_log(at, topic, lambda value: (value["after"]["id"], value["after"]["v"]))


def dlq(trial: Trial, *args: str) -> dict[str, Any]:
    """Return what `riacho dlq redrive` says."""
    command = [sys.executable, "-m", "riacho", "dlq", "redrive", *args, "-o", "json"]
    done = subprocess.run(
        [*command, "--url", trial.gateway.url], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


BAD: Final = range(7, 1000, 143)
FIELDS: Final = [{"field": "id", "type": "int32"}, {"field": "v", "type": "string"}]


def test_seven_bad_of_a_thousand_arrive_after_a_repair(tmp_path: Path) -> None:
    """The target refuses some rows, until it is mended."""
    with trial(tmp_path) as at:
        with database(at, "to.db") as target:
            target.execute("PRAGMA journal_mode=WAL")
            target.execute("CREATE TABLE numbers (id INTEGER PRIMARY KEY, v TEXT)")
            target.execute(
                "CREATE TRIGGER refuse BEFORE INSERT ON numbers WHEN NEW.v = 'bad'"
                " BEGIN SELECT RAISE(ABORT, 'not yet'); END"
            )
        at.api.topic(PARTITIONS, "numbers")
        schema = {"type": "struct", "fields": FIELDS}
        rows = [{"id": n, "v": "bad" if n in BAD else "good"} for n in range(1000)]
        records = [{"value": json.dumps({"schema": schema, "payload": row})} for row in rows]
        for partition in range(PARTITIONS):
            at.api.produce("numbers", records[partition::PARTITIONS], partition)
        at.create(
            "numbers-to-table",
            UPSERT
            | {
                "topics": "numbers",
                "pk.mode": "record_value",
                "pk.fields": "id",
                "auto.create": "false",
                "errors.tolerance": "all",
                "errors.deadletterqueue.topic.name": "dead",
                "errors.deadletterqueue.topic.replication.factor": "1",
                "errors.deadletterqueue.context.headers.enable": "true",
            },
        )

        def stored() -> list[int]:
            with database(at, "to.db") as on:
                return [n for (n,) in on.execute("SELECT id FROM numbers ORDER BY id")]

        at.eventually(lambda: at.arrived("dead") >= len(BAD))
        at.eventually(lambda: at.committed("numbers-to-table") == 1000)
        assert stored() == [n for n in range(1000) if n not in BAD]
        check_letters(at)
        with database(at, "to.db") as target:
            target.execute("DROP TRIGGER refuse")
        assert dlq(at, "dead")["sent"] == len(BAD)
        at.eventually(lambda: len(stored()) == 1000)
        assert dlq(at, "dead")["sent"] == 0
        assert at.arrived("numbers") == 1000 + len(BAD)
        assert at.arrived("dead") == len(BAD)


def check_letters(trial: Trial) -> None:
    """Check that the ten headers of each letter are right, and that nothing else is a letter."""
    wanted = {(str(n % PARTITIONS), str(n // PARTITIONS)): n for n in BAD}
    found = trial.api.http.get("/v1/topics/dead/partitions").json()["partitions"]
    for partition in range(len(found)):
        for letter in trial.api.read_all_arrow("dead", partition):
            said = {each["key"]: each["value"].decode() for each in letter["headers"]}
            context = {
                name.removeprefix("__connect.errors."): text
                for name, text in said.items()
                if name.startswith("__connect.errors.")
            }
            assert len(context) == 10, sorted(context)
            number = wanted.pop((context["partition"], context["offset"]))
            assert json.loads(letter["value"])["payload"] == {"id": number, "v": "bad"}
            assert context["topic"] == "numbers"
            assert context["connector.name"] == "numbers-to-table"
            assert context["task.id"] in ("0", "1")
            assert context["stage"] == "TASK_PUT"
            assert context["class.name"].endswith("JdbcSinkConnector"), context
            assert context["exception.class.name"].startswith("org.apache.kafka.connect.errors.")
            assert "not yet" in context["exception.message"]
            assert context["exception.message"] in context["exception.stacktrace"]
    assert not wanted


def _is(found: Callable[[], object], wanted: object) -> bool:
    try:
        return found() == wanted
    except sqlite3.OperationalError:  # There is no table yet.
        return False
