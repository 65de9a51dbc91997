"""Produce and fetch over HTTP on the embedded default, against the floor of this machine.

python -m benchmarks.http [seconds]
"""

import json
import os
import random
import statistics
import string
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from benchmarks.harness import Connection, Server, gateway, hammer, request, show
from storage.formats.records import record_batch

VALUES = [
    "".join(random.Random(n).choices(string.ascii_lowercase + "    ", k=100)) for n in range(4000)
]
JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"


def json_body(count: int, *, keyed: bool) -> bytes:
    chosen = random.Random(count).choices(VALUES, k=count)
    records = [
        {"key": f"user-{n}", "value": value} if keyed else {"value": value}
        for n, value in enumerate(chosen)
    ]
    return json.dumps({"records": records}).encode()


def arrow_body(count: int) -> bytes:
    chosen = random.Random(count).choices(VALUES, k=count)
    batch = record_batch([0] * count, [f"user-{n}" for n in range(count)], chosen)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def main(seconds: float) -> None:
    rows: list[list[str]] = []
    with gateway() as server:
        connection = Connection(server.port)
        for name, partitions in (("one", 1), ("many", 12), ("arrow", 1), ("latency", 1)):
            body = json.dumps({"name": name, "partitions": partitions}).encode()
            status, _ = connection.call(request("POST", "/v1/topics", body, content_type=JSON))
            assert status == 201, status
        rows += produce_rows(server, seconds)
        rows += fetch_rows(server, seconds)
        show(
            "Over HTTP, embedded, acks=all, 100-byte records",
            ["what", "records/s", "MB/s", "CPU µs/record", "ratio"],
            rows,
        )
        low_load(server, connection)
        print(f"peak memory of the gateway: {server.rss_mib():.0f} MiB")


def measure(
    server: Server,
    name: str,
    requests: list[bytes],
    count: int,
    seconds: float,
    connections: int = 4,
) -> tuple[list[str], float]:
    cpu = server.cpu_s()
    calls, took = hammer(server.port, requests, connections, seconds)
    records = calls * count
    cpu = server.cpu_s() - cpu
    rate = records / took
    return [name, f"{rate:,.0f}", f"{rate * 110 / 1e6:.0f}", f"{cpu / records * 1e6:.2f}", ""], rate


def produce_rows(server: Server, seconds: float) -> list[list[str]]:
    rows = []
    path = "/v1/topics/one/partitions/0/records"
    plain = request("POST", path, json_body(1000, keyed=False), content_type=JSON)
    row, base = measure(server, "JSON 1,000, one partition", [plain], 1000, seconds)
    rows.append(row)
    keyed = request(
        "POST", "/v1/topics/many/records", json_body(1000, keyed=True), content_type=JSON
    )
    row, rate = measure(server, "JSON 1,000, keys over 12 partitions", [keyed], 1000, seconds)
    row[-1] = f"{rate / base:.2f} × JSON"
    rows.append(row)
    body = arrow_body(10_000)
    arrow = request("POST", "/v1/topics/arrow/partitions/0/records", body, content_type=ARROW)
    row, rate = measure(server, "Arrow 10,000", [arrow], 10_000, seconds)
    floor = straight_into_store(body, seconds / 2)
    row[-1] = f"{rate / (floor * 10_000):.2f} × same bytes into the same store"
    rows.append(row)
    single = request(
        "POST", path, b'{"records":[{"value":"%s"}]}' % VALUES[0].encode(), content_type=JSON
    )
    row, rate = measure(server, "JSON 1, 32 connections", [single], 1, seconds, connections=32)
    rows.append(row)
    return rows


def straight_into_store(body: bytes, seconds: float) -> float:
    """Return how many objects of these bytes one second takes, written as the store does it."""
    import asyncio

    from storage.stores.directory import DirectoryObjects

    async def write() -> float:
        with tempfile.TemporaryDirectory() as folder:
            store = DirectoryObjects(Path(folder))
            began, done = time.perf_counter(), 0
            while time.perf_counter() - began < seconds:
                await asyncio.gather(
                    *(store.put(f"{n % 256:02x}/{done + n}", [body]) for n in range(4))
                )
                done += 4
            took = time.perf_counter() - began
            await store.close()
            return done / took

    return asyncio.run(write())


def fetch_rows(server: Server, seconds: float) -> list[list[str]]:
    rows = []
    connection = Connection(server.port)
    _, body = connection.call(request("GET", "/v1/topics/arrow/partitions"))
    end = json.loads(body)["partitions"][0]["high_watermark"]
    offsets = random.Random(1).choices(range(0, max(1, end - 60_000), 10_000), k=64)
    path = "/v1/topics/arrow/partitions/0/records?offset={}&max_records=10000&max_bytes=8000000"
    calls = [request("GET", path.format(offset)) for offset in offsets]
    row, _ = measure(server, "fetch JSON 10,000", calls, 10_000, seconds)
    rows.append(row)
    big = "/v1/topics/arrow/partitions/0/records?offset={}&max_records=50000&max_bytes=16000000"
    calls = [request("GET", big.format(offset), accept=ARROW) for offset in offsets]
    _, body = connection.call(calls[0])
    stored = len(body)
    count = sum(batch.num_rows for batch in pa.ipc.open_stream(body))
    row, rate = measure(server, f"fetch Arrow {count:,}", calls, count, seconds)
    row[-1] = f"{rate / count * stored / 1e6:.0f} MB/s as stored (LZ4)"
    rows.append(row)
    return rows


def low_load(server: Server, connection: Connection) -> None:
    """One record at a time, against one file write + fsync + SQLite commit, taking turns."""
    call = request(
        "POST",
        "/v1/topics/latency/partitions/0/records",
        b'{"records":[{"value":"x"}]}',
        content_type=JSON,
    )
    with tempfile.TemporaryDirectory() as folder:
        floor = Floor(Path(folder))
        ours, theirs = [], []
        for _ in range(400):
            began = time.perf_counter()
            status, _ = connection.call(call)
            ours.append(time.perf_counter() - began)
            assert status == 200
            began = time.perf_counter()
            floor.write()
            theirs.append(time.perf_counter() - began)

    def at(values: list[float], q: float) -> str:
        return f"{statistics.quantiles(values, n=100)[int(q) - 1] * 1000:.2f} ms"

    show(
        "One record at low load",
        ["what", "p50", "p90", "p99", "ratio of p50"],
        [
            [
                "write + fsync + SQLite commit",
                at(theirs, 50),
                at(theirs, 90),
                at(theirs, 99),
                "1.00",
            ],
            [
                "produce over HTTP",
                at(ours, 50),
                at(ours, 90),
                at(ours, 99),
                f"{statistics.median(ours) / statistics.median(theirs):.2f}",
            ],
        ],
    )


class Floor:
    """What a durable append costs at least: a file and a row, both on the disk."""

    def __init__(self, folder: Path) -> None:
        import sqlite3

        self._folder = folder
        self._db = sqlite3.connect(folder / "floor.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("CREATE TABLE t (k TEXT PRIMARY KEY, v BLOB)")
        self._count = 0

    def write(self) -> None:
        self._count += 1
        fd = os.open(self._folder / f"{self._count}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(fd, b"x" * 1000)
        os.fsync(fd)
        os.close(fd)
        self._db.execute("INSERT OR REPLACE INTO t VALUES ('head', ?)", (b"x" * 2000,))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 3.0)
