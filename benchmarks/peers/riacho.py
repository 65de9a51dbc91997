"""Ourselves: a gateway process as `riacho serve` starts it, and bare sockets for a client.

Embedded, so files and SQLite; `acks=all`. The client is no SDK: requests are written to keep-alive
connections and answers read whole.

- JSON: bodies are prepared before the clock starts, as for the HTTP bridge: what a caller pays to
  make JSON depends on the caller.
- Arrow: every body is made from Python's bytes while the clock runs, LZ4 included, because that
  is what a client of Kafka does too.
- A fetch has one connection, on which a thread asks for what comes next while the answer before
  is decoded. As JSON it asks for a batch each time, as callers of HTTP do. As Arrow it asks for
  `FETCH_BYTES_MAX` and returns the records in batches, as every client of Kafka does.
"""

import json
import math
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from benchmarks.harness import Connection, free_port, request, wait_ready
from benchmarks.peers import peer
from benchmarks.peers.peer import SYNCED, Rate
from benchmarks.peers.riacho_delays import OpenLoop
from storage.formats import slices
from storage.formats.records import record_batch

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
BODIES_MAX = 64
"""More prepared bodies would only be more memory; all of them are different."""
FETCH_BYTES_MAX = 4_000_000
"""As much as the Kafka peer asks for."""
FETCH_RECORDS_MAX = 100_000
PREFETCHED_MAX = 2
STOP_S_MAX = 30.0
REFUSED_WAIT_S = 0.002

_NEXT_OFFSET = re.compile(rb"riacho-next-offset: (\d+)")
_LENGTH = re.compile(rb"content-length: (\d+)")


class Riacho:
    """What both formats share; `RiachoJson` and `RiachoArrow` are the peers."""

    name: str
    durability = SYNCED

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self.refused = 0
        """Requests that were refused with `Retry-After`, and retried."""

    def about(self) -> str:
        return f"one gateway, files and SQLite, acks=all, pyarrow {pa.__version__}"

    def start(self, folder: Path) -> None:
        self._port = free_port()
        self._process = start_gateway(folder, self._port)

    def join(self, process: subprocess.Popen[bytes], port: int) -> None:
        """Use a running gateway, which the caller stops."""
        self._process, self._port = process, port

    def stop(self) -> None:
        if self._process is not None:
            stop_gateway(self._process)
            self._process = None

    @property
    def port(self) -> int:
        return self._port

    def cpu_s(self) -> float:
        return peer.cpu_s([self._process] if self._process else [])

    def make(self, topic: str, partitions: int = 1) -> None:
        body = json.dumps({"name": topic, "partitions": partitions}).encode()
        self._call(request("POST", "/v1/topics", body, content_type=JSON), expected=201)

    def produce(
        self, topic: str, values: Sequence[bytes], batch: int, in_flight: int, seconds: float
    ) -> Rate:
        call_of = self._calls(topic, values, batch)
        connections = [Connection(self._port) for _ in range(in_flight)]
        began_s = time.perf_counter()

        def work(number: int) -> int:
            # Each begins elsewhere, so that not all send the same.
            turn, acknowledged = number, 0
            while time.perf_counter() - began_s < seconds:
                acknowledged += self._send(connections[number], call_of(turn), batch)
                turn += in_flight
            return acknowledged

        with ThreadPoolExecutor(in_flight) as pool:
            records = sum(pool.map(work, range(in_flight)))
        took_s = time.perf_counter() - began_s
        for connection in connections:
            connection.close()
        return Rate(records, took_s)

    def _send(self, connection: Connection, call: bytes, batch: int) -> int:
        status, body = connection.call(call)
        if status == 503:
            self.refused += 1
            time.sleep(REFUSED_WAIT_S)
            return 0
        if status != 200:
            raise RuntimeError(f"produce was answered with {status}: {body[:300]!r}")
        return batch

    def _calls(self, topic: str, values: Sequence[bytes], batch: int) -> Callable[[int], bytes]:
        """Return what makes the request of a turn."""
        raise NotImplementedError

    def fetch(self, topic: str, records: int, batch: int) -> Rate:
        prefetched: queue.Queue[pa.Buffer | BaseException | None] = queue.Queue(PREFETCHED_MAX)
        enough = threading.Event()
        began_s = time.perf_counter()
        asking = threading.Thread(target=self._ask, args=(topic, batch, prefetched, enough))
        asking.start()
        count = 0
        try:
            while count < records and (answer := prefetched.get()) is not None:
                if isinstance(answer, BaseException):
                    raise answer
                count += self._decode(answer, batch)
            took_s = time.perf_counter() - began_s
        finally:
            enough.set()
            while asking.is_alive():
                _drain(prefetched)
                asking.join(0.01)
        if count < records:
            raise RuntimeError(f"{records} records were written, {count} read")
        return Rate(count, took_s)

    def _ask(
        self,
        topic: str,
        batch: int,
        prefetched: "queue.Queue[pa.Buffer | BaseException | None]",
        enough: threading.Event,
    ) -> None:
        try:
            for answer in self._answers(topic, batch):
                if enough.is_set():
                    return
                prefetched.put(answer)
            prefetched.put(None)
        except BaseException as error:  # noqa: BLE001 - raised where the answers are awaited.
            prefetched.put(error)

    def _answers(self, topic: str, batch: int) -> Iterator[pa.Buffer]:
        described = json.loads(self._call(request("GET", f"/v1/topics/{topic}/partitions")))
        connection = FetchConnection(self._port)
        try:
            for partition in described["partitions"]:
                path = f"/v1/topics/{topic}/partitions/{partition['partition']}/records"
                options = f"max_records={self._asked(batch)}&max_bytes={FETCH_BYTES_MAX}"
                offset = partition["log_start_offset"]
                while offset < partition["high_watermark"]:
                    path_now = f"{path}?offset={offset}&{options}"
                    answer, offset = connection.fetch(
                        request("GET", path_now, accept=self._accept())
                    )
                    yield answer
        finally:
            connection.close()

    def _accept(self) -> str:
        raise NotImplementedError

    def _asked(self, batch: int) -> int:
        """Return how many records to ask for, if batches are to be handed out."""
        return batch

    def _decode(self, body: pa.Buffer, batch: int) -> int:
        """Make every value available, a batch at a time, and return how many there are."""
        raise NotImplementedError

    def delays(self, topic: str, value: bytes, rate: float, seconds: float) -> list[float]:
        # A client that sends one record in a request uses JSON, so both peers do.
        return OpenLoop(self._port, topic, value).run(rate, seconds)

    def _call(self, call: bytes, expected: int = 200) -> bytes:
        connection = Connection(self._port)
        try:
            status, body = connection.call(call)
        finally:
            connection.close()
        if status != expected:
            raise RuntimeError(f"answered with {status}: {body[:300]!r}")
        return body


class RiachoJson(Riacho):
    name = "Riacho, JSON"

    def _calls(self, topic: str, values: Sequence[bytes], batch: int) -> Callable[[int], bytes]:
        path = f"/v1/topics/{topic}/records"
        bodies = map(json_body, chunks(values, batch))
        calls = [request("POST", path, body, content_type=JSON) for body in bodies]
        return lambda turn: calls[turn % len(calls)]

    def _accept(self) -> str:
        return JSON

    def _decode(self, body: pa.Buffer, batch: int) -> int:
        return len([record["value"].encode() for record in json.loads(bytes(body))["records"]])


class RiachoArrow(Riacho):
    name = "Riacho, Arrow"

    def _calls(self, topic: str, values: Sequence[bytes], batch: int) -> Callable[[int], bytes]:
        path = f"/v1/topics/{topic}/records"
        lists = chunks(values, batch)
        return lambda turn: request(
            "POST", path, arrow_body(lists[turn % len(lists)]), content_type=ARROW
        )

    def _accept(self) -> str:
        return ARROW

    def _asked(self, batch: int) -> int:
        return FETCH_RECORDS_MAX

    def _decode(self, body: pa.Buffer, batch: int) -> int:
        # Reading a slice unpacks it: then all values are slices of one buffer.
        options = pa.ipc.IpcReadOptions(use_threads=False)  # As `riacho.http.wire` does.
        count = 0
        for stored in pa.ipc.open_stream(body, options=options):
            values = stored.column("value")
            for start in range(0, len(values), batch):
                count += len(values.slice(start, batch))
        return count


def chunks(values: Sequence[bytes], batch: int) -> list[list[bytes]]:
    """Return lists of `batch` values, round and round, until they would repeat."""
    count = min(BODIES_MAX, len(values) // math.gcd(len(values), batch))
    size = len(values)
    return [[values[(n * batch + i) % size] for i in range(batch)] for n in range(count)]


def json_body(values: Sequence[bytes]) -> bytes:
    return json.dumps({"records": [{"value": value.decode()} for value in values]}).encode()


def arrow_body(values: Sequence[bytes]) -> bytes:
    """Return what `riacho.http.wire` would send for these values, without keys."""
    count = len(values)
    batch = record_batch([time.time_ns() // 1_000_000] * count, [None] * count, values)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        for piece in slices.cut(batch, batch.nbytes):
            writer.write_batch(piece)
    body: bytes = sink.getvalue().to_pybytes()
    return body


class FetchConnection(Connection):
    """Reads the body of an answer to where it stays: no copy is made of it."""

    def fetch(self, call: bytes) -> tuple[pa.Buffer, int]:
        """Return the body and the next offset."""
        self._socket.sendall(call)
        data = b""
        while (split := data.find(b"\r\n\r\n")) < 0:
            data += self._socket.recv(4096)
            if not data:
                raise ConnectionError("the gateway hung up")
        head, begun = data[:split].lower(), data[split + 4 :]
        length, following = _LENGTH.search(head), _NEXT_OFFSET.search(head)
        if head[9:12] != b"200" or length is None or following is None:
            raise RuntimeError(f"a fetch was answered with {data[:300]!r}")
        body = pa.allocate_buffer(int(length[1]))
        view = memoryview(body).cast("B")
        view[: len(begun)] = begun
        position = len(begun)
        while position < len(view):
            received = self._socket.recv_into(view[position:])
            if received == 0:
                raise ConnectionError("the gateway hung up")
            position += received
        return body, int(following[1])


def start_gateway(folder: Path, port: int, **env: str) -> subprocess.Popen[bytes]:
    """Start a gateway on the data in `folder`; return when it is ready."""
    command = [sys.executable, "-m", "riacho", "serve", "--port", str(port)]
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("RIACHO_")}
    process = subprocess.Popen(
        [*command, "--data", str(folder)],
        env={**inherited, "RIACHO_LOG_LEVEL": "warning", **env},
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_ready(f"http://127.0.0.1:{port}/ready", process)
    except BaseException:
        stop_gateway(process)
        raise
    return process


def stop_gateway(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _drain(prefetched: "queue.Queue[pa.Buffer | BaseException | None]") -> None:
    with suppress(queue.Empty):
        while True:
            prefetched.get_nowait()
