"""How long other requests wait while hostile and large bodies are read, and what memory that takes.

    python -m benchmarks.bombs [--rounds 3] [kind ...]

A separate process sends the bodies, each over its own connection and all at once, while this one
asks for `/healthy` every two milliseconds. A bomb is about 2 MB of gzip or zstd that inflates to
gigabytes; the other bodies are as large as a request may be, in the shapes that are most expensive
to decode. `mix` sends bodies of 16 MiB, bombs and large fetches together. Memory is that of the
gateway process: at most, and afterwards.
"""

import argparse
import gzip
import json
import multiprocessing
import statistics
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import zstandard

from benchmarks.harness import Connection, Server, gateway, request, show

KIB = 1024
MIB = 1024 * KIB
BODY_BYTES = 16 * MIB
BOMB_BYTES = 2_000_000
PROBE_S = 0.002
CALM_S = 5.0
TOPIC = "t"
PATH = f"/v1/topics/{TOPIC}/records"
JSON = "application/json"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"


def bomb(encoding: str) -> bytes:
    """Return a request of about 2 MB whose body inflates to gigabytes."""
    zeros = bytes(64 * MIB)
    member = gzip.compress(zeros, 9) if encoding == "gzip" else zstandard.compress(zeros)
    body = member * (BOMB_BYTES // len(member))
    return request("POST", PATH, body, content_type=JSON, content_encoding=encoding)


def posted(body: bytes, media_type: str = JSON) -> bytes:
    return request("POST", PATH, body, content_type=media_type)


def repeated(start: bytes, item: bytes, end: bytes, size_bytes: int = BODY_BYTES) -> bytes:
    """Return `start`, as many items as there is room for with commas between them, and `end`."""
    count = (size_bytes - len(start) - len(end)) // (len(item) + 1)
    return start + b",".join([item] * count) + end


def packed(body: bytes) -> bytes:
    """Return a request whose body is as large as any may be once it is inflated."""
    zipped = zstandard.compress(body)
    return request("POST", PATH, zipped, content_type=JSON, content_encoding="zstd")


def arrow_body(size_bytes: int) -> bytes:
    value = "y" * 200
    table = pa.table({"value": pa.array([value] * (size_bytes // len(value)), pa.binary())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)
    return bytes(sink.getvalue())


def large_records() -> bytes:
    return repeated(b'{"records":[', b'{"value":"' + b"x" * 900 * KIB + b'"}', b"]}")


def fetch(accept: str) -> bytes:
    path = f"/v1/topics/{TOPIC}/partitions/0/records?offset=0&max_bytes={64 * MIB}"
    return request("GET", path, accept=accept)


def mix() -> list[bytes]:
    plain, columns = posted(large_records()), posted(arrow_body(15 * MIB), ARROW)
    many = posted(
        repeated(b'{"records":[', b'{"key":"12345","value":"' + b"v" * 200 + b'"}', b"]}")
    )
    bombs = [bomb("gzip"), bomb("zstd")]
    return [plain, many, columns] * 17 + bombs * 10 + [fetch(JSON), fetch(ARROW), fetch(NDJSON)] * 8


KINDS: dict[str, Callable[[], list[bytes]]] = {
    "10 gzip bombs": lambda: [bomb("gzip")] * 10,
    "50 gzip bombs": lambda: [bomb("gzip")] * 50,
    "10 zstd bombs": lambda: [bomb("zstd")] * 10,
    "50 zstd bombs": lambda: [bomb("zstd")] * 50,
    "50 JSON, large records": lambda: [posted(large_records())] * 50,
    "50 JSON, empty records": lambda: [posted(repeated(b'{"records":[', b"{}", b"]}"))] * 50,
    "50 JSON, nested": lambda: (
        [posted(b'{"records":[{"value":' + b"[" * (BODY_BYTES - 200) + b"}]}")] * 50
    ),
    "50 JSON, headers of one record": lambda: (
        [posted(repeated(b'{"records":[{"headers":[', b'{"key":"a"}', b"]}]}"))] * 50
    ),
    "50 JSON, escapes": lambda: (
        [posted(repeated(b'{"records":[', b'{"value":"' + rb"\u00e9" * 100_000 + b'"}', b"]}"))]
        * 50
    ),
    "50 JSON, long numbers": lambda: (
        [posted(repeated(b'{"records":[', b'{"value":1' + b"0" * 5000 + b"}", b"]}"))] * 50
    ),
    "50 JSON of 32 MiB, zstd": lambda: (
        [packed(repeated(b'{"records":[', b"{}", b"]}", 32 * MIB - KIB))] * 50
    ),
    "50 NDJSON, one mistake": lambda: [posted(b"{}\n" * (BODY_BYTES // 3 - 1) + b"{", NDJSON)] * 50,
    "50 Arrow": lambda: [posted(arrow_body(15 * MIB), ARROW)] * 50,
    "24 large fetches": lambda: [fetch(JSON), fetch(ARROW), fetch(NDJSON)] * 8,
    "mix": mix,
}


@dataclass(frozen=True)
class Found:
    latencies_ms: Sequence[float]
    took_s: float
    statuses: Counter[int]


def send_all(port: int, kind: str, pipe: "multiprocessing.connection.Connection") -> None:
    """Send one body over each of many connections at the same time, on every request to do so."""
    requests = KINDS[kind]()
    pipe.send(len(requests))
    while pipe.recv():
        with ThreadPoolExecutor(len(requests)) as pool:
            pipe.send(Counter(pool.map(lambda each: call(port, each), requests)))


def call(port: int, data: bytes) -> int:
    """Return the status. A gateway that refuses may hang up before it has read everything."""
    connection = Connection(port)
    try:
        return connection.call(data)[0]
    except OSError:
        return 0
    finally:
        connection.close()


def under(server: Server, kind: str, rounds: int) -> Found:
    """Return how `/healthy` was answered while bodies of a kind were sent."""
    ours, theirs = multiprocessing.Pipe()
    sender = multiprocessing.get_context("fork").Process(
        target=send_all, args=(server.port, kind, theirs), daemon=True
    )
    sender.start()
    ours.recv()
    latencies: list[float] = []
    statuses: Counter[int] = Counter()
    began_s = time.perf_counter()
    for _ in range(rounds):
        ours.send(True)
        latencies += probe(server.port, ours.poll)
        statuses += ours.recv()
    took_s = time.perf_counter() - began_s
    ours.send(False)
    sender.join()
    return Found(latencies, took_s, statuses)


def probe(port: int, is_over: Callable[[], bool]) -> list[float]:
    """Ask for `/healthy` until it is over; return the milliseconds of each answer."""
    connection, data = Connection(port), request("GET", "/healthy")
    found: list[float] = []
    while not is_over():
        began_s = time.perf_counter()
        status, _ = connection.call(data)
        assert status == 200, status
        found.append((time.perf_counter() - began_s) * 1000)
        time.sleep(PROBE_S)
    connection.close()
    return found


def quiet(port: int, seconds: float) -> Found:
    end_s = time.perf_counter() + seconds
    return Found(probe(port, lambda: time.perf_counter() > end_s), seconds, Counter())


def memory_mib(server: Server, name: str) -> float:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith(name + ":")]
    return int(line.split()[1]) / KIB


def forget_peak(server: Server) -> None:
    """Let the highest memory of the process be counted from now on."""
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")


def row(name: str, found: Found, server: Server) -> list[str]:
    latencies = sorted(found.latencies_ms)
    answers = ", ".join(f"{count} x {status}" for status, count in sorted(found.statuses.items()))
    return [
        name,
        f"{latencies[-1]:,.0f}",
        f"{latencies[int(len(latencies) * 0.99)]:,.1f}",
        f"{statistics.median(latencies):,.1f}",
        f"{found.took_s:.1f}",
        f"{memory_mib(server, 'VmHWM'):.0f}",
        f"{memory_mib(server, 'VmRSS'):.0f}",
        answers,
    ]


def main(kinds: Sequence[str], rounds: int, is_shared: bool) -> int:
    rows: list[list[str]] = []
    for group in [list(kinds)] if is_shared else [[kind] for kind in kinds]:
        with gateway() as server:
            create(server)
            found = quiet(server.port, 2.0)
            if not rows:
                rows.append(row("nothing", found, server))
            for kind in group:
                forget_peak(server)
                found = under(server, kind, rounds)
                time.sleep(CALM_S)
                rows.append(row(kind, found, server))
                print(rows[-1], file=sys.stderr)
    columns = ["bodies", "max ms", "p99 ms", "p50 ms", "took s", "peak MiB", "MiB after", "answers"]
    show("`/healthy` while bodies are read", columns, rows)
    return 0


def create(server: Server) -> None:
    body = json.dumps({"name": TOPIC}).encode()
    call = urllib.request.Request(
        f"{server.url}/v1/topics", body, {"content-type": JSON}, method="POST"
    )
    urllib.request.urlopen(call, timeout=30).close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", help=f"some of: {'; '.join(KINDS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shared", action="store_true", help="one gateway for all kinds")
    arguments = parser.parse_args()
    sys.exit(main(arguments.kinds or list(KINDS), arguments.rounds, arguments.shared))
