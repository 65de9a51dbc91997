"""Connectors end to end, through the runner beside a gateway, beside their drivers alone.

    python -m benchmarks.connect [rows] [sqlite|postgresql|mariadb|cdc ...]

A gateway with its own process for connectors on a directory and SQLite, as `riacho serve` has them.
A table is read into a topic of one partition, as JSON with schemas, which a sink writes to another
table; each is timed from the first rows that are seen at the far end to the last. The driver alone
reads the same rows into tuples, and writes the same tuples. Changes of PostgreSQL are inserts and
updates in transactions of 100, beside a peek at the server's log that nobody decodes. What the
runner used of a processor is measured, too: on a busy machine only that counts. The servers are
those of the tests, without `fsync`; what is not installed is left out.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks import connect_cdc
from benchmarks.connect_jdbc import CREATE, Place, places, values
from benchmarks.harness import Server, gateway, show
from tests.service.connect import databases

ROWS = 200_000
BATCH = 5_000
LOOK_S = 0.02
WAIT_S_MAX = 600.0
JSON = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "true",
}


class Rig:
    def __init__(self, server: Server) -> None:
        self._server = server

    def call(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            self._server.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            content = answer.read()
        return json.loads(content) if content else None

    def arrived(self, topic: str) -> int:
        found = self.call("GET", "/v1/topics")["topics"]
        if topic not in {each["name"] for each in found}:
            return 0
        partitions = self.call("GET", f"/v1/topics/{topic}/partitions")["partitions"]
        return sum(each["high_watermark"] for each in partitions)

    def state(self, name: str) -> str:
        tasks = self.call("GET", f"/connectors/{name}/status")["tasks"]
        return tasks[0]["state"] if tasks else ""

    def runner_cpu_s(self) -> float:
        """Return the CPU seconds of the process that runs connectors."""
        for folder in Path("/proc").iterdir():
            try:
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
                command = (folder / "cmdline").read_bytes()
            except (OSError, IndexError):
                continue
            if b"service.connect.running" in command and int(fields[1]) == self._server.process.pid:
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    async def rates(self, count: int, seen: Callable[[], Awaitable[int]]) -> tuple[float, float]:
        """Return rows a second, and for each CPU second of the runner, from first to last."""
        await until(seen, 1)
        first, began_s, cpu_began_s = await seen(), time.perf_counter(), self.runner_cpu_s()
        await until(seen, count)
        took_s, cpu_s = time.perf_counter() - began_s, self.runner_cpu_s() - cpu_began_s
        rows = count - first
        return rows / took_s, rows / max(cpu_s, 0.01)

    async def connected(
        self, name: str, config: Mapping[str, str], count: int, seen: Callable[[], Awaitable[int]]
    ) -> tuple[float, float]:
        self.call("PUT", f"/connectors/{name}/config", config)
        found = await self.rates(count, seen)
        self.call("DELETE", f"/connectors/{name}")
        return found


async def until(seen: Callable[[], Awaitable[int]], count: int) -> None:
    give_up_s = time.monotonic() + WAIT_S_MAX
    while await seen() < count:
        if time.monotonic() > give_up_s:
            raise RuntimeError(f"only {await seen()} of {count} rows have arrived")
        await asyncio.sleep(LOOK_S)


async def rate(count: int, work: Awaitable[Any]) -> float:
    began_s = time.perf_counter()
    await work
    return count / (time.perf_counter() - began_s)


def line(what: str, driver: float, ours: tuple[float, float]) -> list[str]:
    per_s, per_cpu_s = ours
    return [what, f"{driver:,.0f}", f"{per_s:,.0f}", f"{per_s / driver:.2f}", f"{per_cpu_s:,.0f}"]


async def jdbc(rig: Rig, place: Place, count: int) -> list[list[str]]:
    double = "DOUBLE" if place.name == "MariaDB" else "DOUBLE PRECISION"
    at = {"MariaDB": "DATETIME(3)"}.get(place.name, "TIMESTAMP")
    for name in ("source", "target"):
        place.execute(CREATE.format(name, double, at))
    tuples = [tuple(row.values()) for row in values(count)]
    batches = [tuples[start : start + BATCH] for start in range(0, count, BATCH)]
    wrote = await rate(count, place.write(batches))
    place.execute("INSERT INTO source SELECT * FROM target")
    place.execute("DELETE FROM target")
    read = await rate(count, place.read())
    topic = f"{place.name.lower()}-source"
    config = dict(place.config)
    if "connection.password" in config:
        config["connection.password"] = "${env:BENCH_PASSWORD}"

    async def in_topic() -> int:
        return rig.arrived(topic)

    source = {
        **config,
        **JSON,
        "connector.class": "JdbcSourceConnector",
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "table.whitelist": "source",
        "topic.prefix": f"{place.name.lower()}-",
    }
    rows = [
        line(f"{place.name}, source", read, await rig.connected(topic, source, count, in_topic))
    ]
    for mode, more in (
        ("insert", {}),
        ("upsert", {"pk.mode": "record_value", "pk.fields": "id"}),
    ):
        sink = {
            **config,
            **JSON,
            **more,
            "connector.class": "JdbcSinkConnector",
            "topics": topic,
            "insert.mode": mode,
            "table.name.format": "target",
        }
        name = f"{topic}-{mode}"
        ours = await rig.connected(name, sink, count, place.count)
        rows.append(line(f"{place.name}, sink, {mode}", wrote, ours))
        place.execute("DELETE FROM target")
    return rows


async def cdc(rig: Rig, server: databases.Server, count: int) -> list[list[str]]:
    database = await connect_cdc.fresh(server, count // 2)
    peeked = await rate(count, connect_cdc.peeked(database, None))
    server.run(f"SELECT pg_drop_replication_slot('slot_{database.name}')")
    database = server.fresh()
    await connect_cdc.create(database)
    config = {
        **JSON,
        "connector.class": "PostgresSource",
        "database.hostname": database.host,
        "database.port": str(database.port),
        "database.user": database.user,
        "database.password": "${env:BENCH_PASSWORD}",
        "database.dbname": database.name,
        "topic.prefix": "cdc",
        "slot.name": "bench",
        "snapshot.mode": "no_data",
    }
    rig.call("PUT", "/connectors/cdc/config", config)

    async def slots() -> int:
        shown = server.run("SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'bench'")
        return int(shown.split()[2]) * (rig.state("cdc") == "RUNNING")

    await until(slots, 1)
    rig.call("PUT", "/connectors/cdc/pause")

    async def paused() -> int:
        return int(rig.state("cdc") == "PAUSED")

    await until(paused, 1)
    await connect_cdc.fill(database, count // 2)

    async def in_topic() -> int:
        return rig.arrived("cdc.public.t")

    rig.call("PUT", "/connectors/cdc/resume")
    ours = await rig.rates(count, in_topic)
    rig.call("DELETE", "/connectors/cdc")
    return [line("PostgreSQL, changes", peeked, ours)]


@contextmanager
def rig_of(folder: Path) -> Iterator[Rig]:
    with gateway(RIACHO_CONNECT_FILES=str(folder), BENCH_PASSWORD=databases.PASSWORD) as server:
        yield Rig(server)


async def measure(count: int, wanted: Sequence[str]) -> None:
    rows: list[list[str]] = []
    with places() as found:
        for place in found:
            if not wanted or place.name.lower() in wanted:
                folder = place.files or Path(tempfile.gettempdir())
                with rig_of(folder) as rig:
                    rows += await jdbc(rig, place, count)
    if not wanted or "cdc" in wanted:
        try:
            with databases.start_postgresql() as server, rig_of(Path(tempfile.gettempdir())) as rig:
                rows += await cdc(rig, server, count)
        except pytest.skip.Exception as reason:
            print(reason)
    title = f"{count:,} rows through connectors, from the first to the last"
    names = ["", "driver alone, rows/s", "rows/s", "ratio", "rows per s of the runner's CPU"]
    show(title, names, rows)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    asyncio.run(measure(count, sys.argv[2:]))


if __name__ == "__main__":
    main()
