"""Fifty tails of one partition: how often is each slice read from the store?

Producer and readers use two gateways on the same data, or one; the other gateway has written
nothing itself, so it must have read everything it sends. Every batch is a slice, and no two share
one, because each is sent when the one before is acknowledged.
"""

import json
import select
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness import Connection, free_port, request
from benchmarks.peers.peer import values_of
from benchmarks.peers.riacho import JSON, json_body, start_gateway, stop_gateway
from benchmarks.peers.riacho_delays import Chunks
from benchmarks.side_by_side.lineup import FOLDER

READERS = 50
SLICES = 100
BATCH = 10
ARRIVAL_S_MAX = 60.0
TOPIC = "fan-out"


def reads_per_slice(readers: int = READERS, slices: int = SLICES, *, apart: bool) -> float:
    """Return store reads for each slice written; `apart`: readers ask another gateway."""
    with gateways(2 if apart else 1) as ports:
        produced, read = ports[0], ports[-1]
        body = json.dumps({"name": TOPIC}).encode()
        call(produced, request("POST", "/v1/topics", body, content_type=JSON), 201)
        tails = [Tail(read) for _ in range(readers)]
        try:
            reads, flushes = metric(read, "riacho_store_reads"), metric(produced, "riacho_flushes")
            writing = threading.Thread(target=write, args=(produced, slices))
            writing.start()
            follow(tails, slices * BATCH)
            writing.join()
        finally:
            for tail in tails:
                tail.close()
        written = metric(produced, "riacho_flushes") - flushes
        return (metric(read, "riacho_store_reads") - reads) / written


@contextmanager
def gateways(count: int) -> Iterator[list[int]]:
    """Run gateways on the same data, and yield their ports."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    processes = []
    with tempfile.TemporaryDirectory(prefix="fan-out-", dir=FOLDER) as folder:
        try:
            ports = []
            for _ in range(count):
                ports.append(free_port())
                # Objects, and no items of the table: it is reads of the store that are counted.
                settings = {"RIACHO_TABLE_BATCH_BYTES_MAX": "0"}
                processes.append(start_gateway(Path(folder), ports[-1], **settings))
            yield ports
        finally:
            for process in processes:
                stop_gateway(process)


def write(port: int, slices: int) -> None:
    connection = Connection(port)
    body = json_body(values_of(100, BATCH))
    sent = request("POST", f"/v1/topics/{TOPIC}/partitions/0/records", body, content_type=JSON)
    for _ in range(slices):
        status, answer = connection.call(sent)
        if status != 200:
            raise RuntimeError(f"answered with {status}: {answer[:300]!r}")
    connection.close()


class Tail:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        path = f"/v1/topics/{TOPIC}/partitions/0/records?offset=0"
        self._socket.sendall(request("GET", path, accept="text/event-stream"))
        self._chunks = Chunks()
        self.records = 0
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._received()
        self._count(data.partition(b"\r\n\r\n")[2])

    def fileno(self) -> int:
        return self._socket.fileno()

    def take(self) -> None:
        self._count(self._received())

    def _received(self) -> bytes:
        received = self._socket.recv(1 << 18)
        if not received:
            raise ConnectionError("the gateway ended a tail")
        return received

    def _count(self, data: bytes) -> None:
        self.records += self._chunks.fed(data).count(b'\ndata: {"offset"')

    def close(self) -> None:
        self._socket.close()


def follow(tails: list[Tail], records: int) -> None:
    """Return when every tail has all."""
    waiting = list(tails)
    while waiting:
        readable, _, _ = select.select(waiting, [], [], ARRIVAL_S_MAX)
        if not readable:
            raise RuntimeError(f"{len(waiting)} tails of {len(tails)} miss records")
        for tail in readable:
            tail.take()
        waiting = [tail for tail in waiting if tail.records < records]


def call(port: int, sent: bytes, expected: int = 200) -> bytes:
    connection = Connection(port)
    status, body = connection.call(sent)
    connection.close()
    if status != expected:
        raise RuntimeError(f"answered with {status}: {body[:300]!r}")
    return body


def metric(port: int, name: str) -> float:
    for line in call(port, request("GET", "/metrics")).decode().splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    raise RuntimeError(f"no metric {name}")
