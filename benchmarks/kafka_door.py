"""Produce and consume with Kafka's own client: our Kafka door beside Kafka, in one run.

    python -m benchmarks.kafka_door [--seconds 2] [--rounds 3] [--only riacho]

librdkafka, lz4, acks=all, idempotent, one partition, linger 5 ms and batches of up to 1 MB, with
the same values for all peers, which take turns. Kafka runs twice: with a flush before every
acknowledgement (`log.flush.interval.messages=1`), as we have it, and as it is shipped,
acknowledging what is only in the page cache. Client and server share the machine.

CPU is that of the server for a MB of values. A lone record is produced when nothing else is under
way, with linger 0; through HTTP as a JSON body on a connection that stays open.
"""

import argparse
import base64
import json
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import Connection, request, show
from benchmarks.peers.kafka import BATCH_BYTES, Kafka, Kind, Tuning
from benchmarks.peers.peer import CACHED, SYNCED, NotHere, Rate, values_of
from benchmarks.peers.riacho import JSON
from benchmarks.peers.riacho_kafka import RiachoKafka

SIZES = ((1024, "1 KiB"), (100, "100 B"))
BATCH, IN_FLIGHT = 10_000, 5
"""The client holds up to 50,000 records at a time."""
TUNING = Tuning(5.0, BATCH_BYTES)
LONE_RECORDS = 200
IDLE_CONNECTIONS = 900
MB, KIB, MIB = 1e6, 1024, 1024 * 1024


@dataclass
class Found:
    """What was measured of one peer, a figure for each round."""

    produced: dict[int, list[float]] = field(default_factory=dict)
    consumed: dict[int, list[float]] = field(default_factory=dict)
    produce_cpu: dict[int, list[float]] = field(default_factory=dict)
    consume_cpu: dict[int, list[float]] = field(default_factory=dict)
    lone_ms: list[float] = field(default_factory=list)
    lone_http_ms: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["riacho"])
    given = parser.parse_args()
    peers: list[Kafka] = [RiachoKafka()]
    if given.only is None:
        peers += [Kafka(SYNCED), Kafka(CACHED)]
    with ExitStack() as stack:
        running = [peer for peer in peers if started(peer, stack)]
        riacho = running[0]
        assert isinstance(riacho, RiachoKafka)
        idle_kib = idle_connection_kib(riacho)
        found = {peer.name: Found() for peer in running}
        for number in range(-1, given.rounds):
            for peer in running:
                # The first round warms up.
                kept = found[peer.name] if number >= 0 else Found()
                one_round(peer, kept, f"-{number}", given.seconds if number >= 0 else 1.0)
        report(found)
        [process] = riacho.processes
        print(f"memory of our gateway, at most: {_status(process.pid, 'VmHWM') / MIB:.0f} MiB")
        print(f"of an idle connection, of {IDLE_CONNECTIONS}: {idle_kib:.1f} KiB")


def started(peer: Kafka, stack: ExitStack) -> bool:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="riacho-bench-")))
    try:
        peer.start(folder)
    except NotHere as error:
        print(f"{peer.name} is left out: {error}")
        return False
    stack.callback(peer.stop)
    print(f"{peer.name}: {peer.about()}")
    return True


def one_round(peer: Kafka, kept: Found, suffix: str, seconds: float) -> None:
    for size, _ in SIZES:
        topic = f"size-{size}{suffix}"
        peer.make(topic)
        kind = Kind(size, BATCH, IN_FLIGHT, 1)
        values = values_of(size)
        written, cpu_s = _metered(
            peer,
            lambda: peer.write(topic, values, kind, TUNING, seconds),  # noqa: B023
        )
        mb = written.records * size / MB
        kept.produced.setdefault(size, []).append(written.per_s)
        kept.produce_cpu.setdefault(size, []).append(cpu_s * 1e3 / mb)
        assert sum(peer.ends(topic)) == written.records, "not all are there"
        read, cpu_s = _metered(
            peer,
            lambda: peer.fetch(topic, written.records, BATCH),  # noqa: B023
        )
        kept.consumed.setdefault(size, []).append(read.per_s)
        kept.consume_cpu.setdefault(size, []).append(cpu_s * 1e3 / mb)
    kept.lone_ms.append(lone_ms(peer))
    if isinstance(peer, RiachoKafka):
        kept.lone_http_ms.append(lone_http_ms(peer))


def _metered(peer: Kafka, work: Callable[[], Rate]) -> tuple[Rate, float]:
    before = peer.cpu_s()
    rate = work()
    return rate, peer.cpu_s() - before


def lone_ms(peer: Kafka) -> float:
    producer = peer.producer(Tuning(0, BATCH_BYTES), "warm-up")
    took: list[float] = []
    for _ in range(LONE_RECORDS):
        began = time.perf_counter()
        producer.produce("warm-up", b"x" * 100, None, 0)
        assert producer.flush(10) == 0
        took.append(time.perf_counter() - began)
    producer.close()
    return statistics.median(took) * 1e3


def lone_http_ms(riacho: RiachoKafka) -> float:
    connection = Connection(riacho.http_port)
    value = base64.b64encode(b"x" * 75).decode()
    body = json.dumps({"records": [{"value": value}]}).encode()
    path = "/v1/topics/warm-up/partitions/0/records"
    post = request("POST", path, body, content_type=JSON)
    took: list[float] = []
    for _ in range(LONE_RECORDS):
        began = time.perf_counter()
        status, text = connection.call(post)
        assert status == 200, text
        took.append(time.perf_counter() - began)
    connection.close()
    return statistics.median(took) * 1e3


def report(found: dict[str, Found]) -> None:
    for title, pick in (
        ("produced, records/s", lambda each: each.produced),
        ("consumed from the start, records/s", lambda each: each.consumed),
        ("server CPU ms for a MB produced", lambda each: each.produce_cpu),
        ("server CPU ms for a MB consumed", lambda each: each.consume_cpu),
    ):
        rows = []
        for size, name in SIZES:
            by_peer = [pick(each)[size] for each in found.values()]
            rows.append([name, *(spread(each) for each in by_peer), *ratios(by_peer)])
        columns = [title, *found, *(f"to {name}" for name in list(found)[1:])]
        show(title, columns, rows)
    lone = {
        "Kafka's protocol": [each.lone_ms for each in found.values()],
        "HTTP": [each.lone_http_ms for each in found.values()],
    }
    rows = [[name, *(spread(each) if each else "" for each in of)] for name, of in lone.items()]
    show("a lone record, ms", ["", *found], rows)


def spread(values: Sequence[float]) -> str:
    middle, low, high = statistics.median(values), min(values), max(values)
    if middle > 1000:
        return f"{middle / 1e3:,.0f} k ({low / 1e3:,.0f} to {high / 1e3:,.0f})"
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def ratios(by_peer: Sequence[Sequence[float]]) -> list[str]:
    """Return our ratio to each other peer: the median of the rounds' own ratios."""
    ours = by_peer[0]
    return [
        f"{statistics.median(a / b for a, b in zip(ours, theirs, strict=True)):.2f}"
        for theirs in by_peer[1:]
    ]


def idle_connection_kib(riacho: RiachoKafka) -> float:
    """Return the memory that a connection takes which has asked for versions and waits."""
    [process] = riacho.processes
    before = _status(process.pid, "VmRSS")
    idle = [_asked_for_versions(riacho.port) for _ in range(IDLE_CONNECTIONS)]
    after = _status(process.pid, "VmRSS")
    for connection in idle:
        connection.close()
    return (after - before) / IDLE_CONNECTIONS / KIB


def _asked_for_versions(port: int) -> socket.socket:
    """Return a connection that has asked for ApiVersions and has its answer."""
    connection = socket.create_connection(("127.0.0.1", port))
    call = struct.pack(">hhih", 18, 0, 1, 4) + b"idle"
    connection.sendall(struct.pack(">i", len(call)) + call)
    [length] = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    connection.recv(length, socket.MSG_WAITALL)
    return connection


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * KIB
    raise KeyError(name)


if __name__ == "__main__":
    main()
