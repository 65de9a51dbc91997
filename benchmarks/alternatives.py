"""Other ways to do it, each measured against ours: what docs/performance.md decides by.

    python -m benchmarks.alternatives [server dynamodb process thread sendfile sqlite ...]

Every figure is the median of some rounds in which all ways take turns. Ratios are theirs divided
by ours: above 1, theirs takes longer.
"""

import argparse
import asyncio
import hashlib
import hmac
import json
import multiprocessing
import os
import resource
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import aiohttp
from aiobotocore.session import get_session
from crc32c import crc32c

from benchmarks.harness import free_port, show, wait_ready
from benchmarks.peers.peer import values_of
from benchmarks.peers.riacho import JSON, Riacho, RiachoArrow, RiachoJson, json_body, stop_gateway
from service.http.bodies.produce import decode_produce
from storage.formats import slices

ROUNDS = 5
TURN_S = 0.6
TABLE = "bench"

Ways = dict[str, Callable[[], object]]


def compared(title: str, ways: Ways, unit: str = "µs", *, cpu: bool = False) -> None:
    """Show how long each way takes for one call: processor time, or time that passes."""
    rounds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, call in ways.items():
            rounds[name].append(took_s(call, cpu=cpu))
    ours = rounds[next(iter(ways))]
    rows = []
    for name, each in rounds.items():
        ratios = [one / other for one, other in zip(each, ours, strict=True)]
        rows.append(
            [
                name,
                f"{statistics.median(each) * 1e6:,.1f}",
                f"{statistics.median(ratios):.2f}",
                f"{min(ratios):.2f} to {max(ratios):.2f}",
            ]
        )
    what = "CPU " if cpu else ""
    show(f"{title}, {what}{unit} for each call", ["way", unit, "/ ours", "spread"], rows)


def took_s(call: Callable[[], object], *, cpu: bool) -> float:
    call()
    began_s, cpu_s, calls = time.perf_counter(), own_cpu_s(), 0
    while time.perf_counter() - began_s < TURN_S:
        call()
        calls += 1
    passed_s = own_cpu_s() - cpu_s if cpu else time.perf_counter() - began_s
    return passed_s / calls


def awaited(
    runner: asyncio.Runner, call: Callable[..., Coroutine[Any, Any, Any]], *args: Any, **named: Any
) -> object:
    return runner.run(call(*args, **named))


def own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def server() -> None:
    """Uvicorn or granian."""
    rows = []
    measured: dict[str, list[list[float]]] = {}
    for _ in range(3):
        for name in ("uvicorn", "granian"):
            with tempfile.TemporaryDirectory(prefix="riacho-bench-") as folder:
                measured.setdefault(name, []).append(measured_server(name, Path(folder)))
    for name, rounds in measured.items():
        medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
        rows.append([name, *(f"{median:,.1f}" for median in medians)])
    show(
        "Servers: records/s of produce and fetch, and ms until a tail has a record at 500/s",
        ["server", "JSON × 1", "JSON × 1,000", "Arrow × 10,000", "fetch", "p50 ms"],
        rows,
    )


def measured_server(name: str, folder: Path) -> list[float]:
    port = free_port()
    command = [sys.executable, "-m", "riacho", "serve", "--port", str(port)]
    if name == "granian":
        program = str(Path(sys.executable).with_name("granian"))
        command = [program, "--interface", "asgi", "--factory", "--port", str(port), "--no-ws"]
        command += ["--loop", "uvloop", "--http", "1", "service.app:create_app"]
    process = subprocess.Popen(
        command,
        env={**os.environ, "RIACHO_LOG_LEVEL": "warning", "RIACHO_DATA": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_ready(f"http://127.0.0.1:{port}/ready", process)
        found = []
        peers: list[tuple[Riacho, int, int, int]] = [
            (RiachoJson(), 100, 1, 32),
            (RiachoJson(), 100, 1000, 4),
            (RiachoArrow(), 1024, 10_000, 2),
        ]
        for peer, size, batch, in_flight in peers:
            topic = f"{batch}"
            peer.join(process, port)
            peer.make(topic)
            peer.produce(topic, values_of(size), batch, in_flight, 0.5)
            found.append(peer.produce(topic, values_of(size), batch, in_flight, 1.5).per_s)
        last = peers[-1][0]
        last.fetch("10000", 20_000, 10_000)
        found.append(last.fetch("10000", 20_000, 10_000).per_s)
        last.make("delays")
        found.append(statistics.median(last.delays("delays", values_of(100)[0], 500, 2)) * 1000)
        return found
    finally:
        stop_gateway(process)


def dynamodb() -> None:
    """aiobotocore, or a signed request by hand."""
    os.environ.update(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret")
    with ministack() as url, asyncio.Runner() as runner:
        by_name, by_hand, session = runner.run(clients(url))
        for body in (b"x" * 500, b"x" * 8000):
            item = {"pk": {"S": "a"}, "value": {"B": body}}
            put = {"TableName": TABLE, "Item": item}
            ways: Ways = {
                "aiobotocore": partial(awaited, runner, by_name.put_item, **put),
                "signed by hand": partial(awaited, runner, by_hand, put),
            }
            compared(f"DynamoDB PutItem of {len(body):,} bytes", ways, cpu=True)
        runner.run(session.close())
        runner.run(by_name.close())


async def clients(url: str) -> tuple[Any, Callable[[Any], Any], aiohttp.ClientSession]:
    client = await get_session()._create_client("dynamodb", "us-east-1", endpoint_url=url)
    names = (await client.list_tables())["TableNames"]
    if TABLE not in names:
        await client.create_table(
            TableName=TABLE,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        )
    session = aiohttp.ClientSession()

    async def put(document: Any) -> None:
        value = b64encode(document["Item"]["value"]["B"]).decode()
        item = {"pk": document["Item"]["pk"], "value": {"B": value}}
        body = json.dumps({**document, "Item": item}).encode()
        headers = signed(url, "DynamoDB_20120810.PutItem", body)
        async with session.post(url, data=body, headers=headers) as reply:
            assert reply.status == 200, await reply.text()
            await reply.read()

    return client, put, session


def signed(url: str, target: str, body: bytes) -> dict[str, str]:
    """Return the headers of a request to DynamoDB, signed as AWS asks for (SigV4)."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    host, scope = url.split("//")[1], f"{now[:8]}/us-east-1/dynamodb/aws4_request"
    canonical = (
        f"POST\n/\n\nhost:{host}\nx-amz-date:{now}\nx-amz-target:{target}\n\n"
        f"host;x-amz-date;x-amz-target\n{hashlib.sha256(body).hexdigest()}"
    )
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = b"AWS4secret"
    for part in (now[:8], "us-east-1", "dynamodb", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    names = "host;x-amz-date;x-amz-target"
    return {
        "host": host,
        "x-amz-date": now,
        "x-amz-target": target,
        "content-type": "application/x-amz-json-1.0",
        "authorization": f"AWS4-HMAC-SHA256 Credential=key/{scope},"
        f" SignedHeaders={names}, Signature={signature}",
    }


@contextmanager
def ministack() -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("ministack"))],
        env={
            **os.environ,
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(port),
            "SERVICES": "dynamodb",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def process() -> None:
    """JSON bodies decoded here, or in another process that sends back slices."""
    ours, theirs = multiprocessing.Pipe()
    other = multiprocessing.Process(target=decode_for, args=(theirs,), daemon=True)
    other.start()
    for count in (10, 1000, 10_000):
        values = values_of(100)
        body = json_body([values[n % len(values)] for n in range(count)])

        def there(body: bytes = body) -> bytes:
            ours.send_bytes(body)
            return ours.recv_bytes()

        ways: Ways = {
            "decoded here": partial(encoded, body),
            "by another process": there,
        }
        compared(f"JSON of {count:,} records to slices", ways)
        compared(f"JSON of {count:,} records to slices, of the gateway alone", ways, cpu=True)
    other.terminate()
    other.join()


def decode_for(pipe: Pipe) -> None:
    while True:
        pipe.send_bytes(encoded(pipe.recv_bytes()))


def encoded(body: bytes) -> bytes:
    batch = decode_produce(body, JSON, now_ms=1).batch
    return b"".join(piece.data for piece in slices.encode(slices.cut(batch, batch.nbytes), "lz4"))


def thread() -> None:
    """Compression on the loop, or in a thread."""
    with asyncio.Runner() as runner:
        for count in (10, 300, 3000):
            values = values_of(100)
            body = json_body([values[n % len(values)] for n in range(count)])
            batch = decode_produce(body, JSON, now_ms=1).batch

            async def here(batch: Any = batch) -> object:
                return slices.encode([batch], "lz4")

            async def there(batch: Any = batch) -> object:
                return await asyncio.to_thread(slices.encode, [batch], "lz4")

            ways: Ways = {
                "on the loop": partial(awaited, runner, here),
                "in a thread": partial(awaited, runner, there),
            }
            compared(f"LZ4 of a slice of {batch.nbytes / 1024:,.0f} KiB", ways)


def sendfile() -> None:
    """A slice read, compared with its checksum and sent; or sent by the kernel, unseen."""
    with tempfile.TemporaryDirectory(prefix="riacho-bench-") as folder:
        path = Path(folder) / "slice"
        for size in (16 * 1024, 256 * 1024, 2 * 1024 * 1024):
            path.write_bytes(os.urandom(size))
            ours, theirs = socket.socketpair()
            drain = threading.Thread(target=drained, args=(theirs,), daemon=True)
            drain.start()
            file = os.open(path, os.O_RDONLY)

            def read(file: int = file, size: int = size, ours: socket.socket = ours) -> None:
                data = os.pread(file, size, 0)
                crc32c(data)
                ours.sendall(data)

            def send(file: int = file, size: int = size, ours: socket.socket = ours) -> None:
                sent = 0
                while sent < size:
                    sent += os.sendfile(ours.fileno(), file, sent, size - sent)

            ways: Ways = {"read, checked, sent": read, "sendfile": send}
            compared(f"A slice of {size // 1024:,} KiB to a socket", ways)
            ours.close()
            drain.join()
            os.close(file)


def drained(source: socket.socket) -> None:
    buffer = bytearray(1 << 20)
    while source.recv_into(buffer):
        pass
    source.close()


def sqlite() -> None:
    """What a commit of the table takes, by pragma and by how many share it."""
    with tempfile.TemporaryDirectory(prefix="riacho-bench-") as folder:
        ways: Ways = {}
        for name, pragmas in (
            ("FULL", ["synchronous = FULL"]),
            ("NORMAL: a power cut takes the last commits", ["synchronous = NORMAL"]),
            ("FULL, mmap_size 256 MiB", ["synchronous = FULL", "mmap_size = 268435456"]),
            ("FULL, page_size 16 KiB", ["page_size = 16384", "synchronous = FULL"]),
            ("FULL, locking_mode EXCLUSIVE", ["locking_mode = EXCLUSIVE", "synchronous = FULL"]),
        ):
            db = opened(Path(folder) / f"{len(ways)}.db", pragmas)
            ways[name] = partial(commit, db, 1)
        for count in (8, 64):
            db = opened(Path(folder) / f"{len(ways)}.db", ["synchronous = FULL"])
            ways[f"FULL, {count} in one commit"] = partial(commit, db, count)
        compared("SQLite: a head of 4 KiB", ways)


def opened(path: Path, pragmas: Sequence[str]) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    for pragma in [*pragmas[:-1], "journal_mode = WAL", pragmas[-1]]:
        db.execute(f"PRAGMA {pragma}")
    db.execute("CREATE TABLE item (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID")
    return db


def commit(db: sqlite3.Connection, count: int) -> None:
    db.execute("BEGIN IMMEDIATE")
    for number in range(count):
        db.execute("INSERT OR REPLACE INTO item VALUES (?, ?)", (f"{number}", os.urandom(4096)))
    db.execute("COMMIT")


PARTS: dict[str, Callable[[], None]] = {
    "server": server,
    "dynamodb": dynamodb,
    "process": process,
    "thread": thread,
    "sendfile": sendfile,
    "sqlite": sqlite,
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.alternatives",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="part", help="all, unless some are named")
    given = parser.parse_args(arguments)
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    for name, part in PARTS.items():
        if not given.parts or name in given.parts:
            part()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
