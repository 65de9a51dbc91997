"""Fifty consumers tail one partition: how often is each slice read from the object store?

    python -m benchmarks.fan_out [--consumers 50] [--rate 20] [--seconds 4] [--stores embedded,s3]

A producer writes a slice of 100 records, 100 B each, `--rate` times a second; the
others follow, by long polls (JSON, Arrow) or server-sent events. With two gateways it writes to the
first, and half of the consumers follow at each. Then a gateway that has just started, and so has
nothing in its caches, is asked by all of them at once for everything from the beginning.

Every call to the object store is counted in the gateway, in front of the store, and shown by
/metrics; on S3 (ministack) a proxy before the server counts GETs on the wire, too. `reads` are of
slices, `index` of the objects that list them, both for each slice that was written.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from benchmarks.counted_gateway import Counted, Deployment, Note, deployment
from benchmarks.harness import Connection, request, show
from benchmarks.http import ARROW, JSON, json_body

SSE = "text/event-stream"
KINDS = {"JSON": JSON, "Arrow": ARROW, "SSE": SSE}
RECORDS = 100
HISTORY = "history"
HISTORY_SLICES = 400
FETCH_BYTES = 4 * 1024 * 1024
SMALL_CACHE_BYTES = 1024 * 1024
SMALL_FETCH_BYTES = SMALL_CACHE_BYTES // 16
"""Of a gateway whose cache holds a third of the history; a fetch is to it as 4 MiB are to 64."""
WAIT_MS = 5000
EVENT = b"\nid: "  # No value of ours has a colon.


# The followers.


class Follower(Connection):
    """Reads one partition until it has all that was written, and returns how much that was."""

    def __init__(self, port: int, topic: str, accept: str, goal: int, bytes_max: int) -> None:
        super().__init__(port)
        self._socket.settimeout(30)
        self._path = f"/v1/topics/{topic}/partitions/0/records"
        self._accept = accept
        self._goal = goal
        self._limits = f"max_records=100000&max_bytes={bytes_max}"

    def follow(self) -> int:
        try:
            return self._stream() if self._accept == SSE else self._poll()
        finally:
            self.close()

    def _poll(self) -> int:
        offset = 0
        while offset < self._goal:
            query = f"?offset={offset}&max_wait_ms={WAIT_MS}&{self._limits}"
            offset = self._next_offset(request("GET", self._path + query, accept=self._accept))
        return offset

    def _next_offset(self, call: bytes) -> int:
        """Send, and read and forget the body."""
        self._socket.sendall(call)
        data = b""
        while (split := data.find(b"\r\n\r\n")) < 0:
            data += self._receive()
        head = data[:split].lower()
        assert head.startswith(b"http/1.1 200"), data[:500]
        left = _number(head, b"content-length:") - (len(data) - split - 4)
        while left > 0:
            left -= self._socket.recv_into(self._buffer)
        return _number(head, b"riacho-next-offset:")

    def _stream(self) -> int:
        self._socket.sendall(request("GET", f"{self._path}?offset=0", accept=SSE))
        records, rest = 0, b""
        while records < self._goal:
            data = rest + self._receive()
            records += data.count(EVENT)
            rest = data[1 - len(EVENT) :]
        return records


def _number(head: bytes, name: bytes) -> int:
    return int(head[head.index(name) + len(name) :].split(b"\r\n", 1)[0])


# The measurements.


@dataclass(frozen=True)
class Outcome:
    what: str
    slices: int
    seconds: float
    delivered: int
    before: Sequence[Note]
    after: Sequence[Note]

    def rows(self) -> list[list[str]]:
        rows = []
        for number, (before, after) in enumerate(zip(self.before, self.after, strict=True)):
            is_first = number == 0
            cpu_s = after.cpu_s - before.cpu_s
            rows.append(
                [
                    self.what if is_first else "",
                    f"{number + 1} of {len(self.before)}",
                    f"{self.slices:,}" if is_first else "",
                    f"{(after.reads['slices'] - before.reads['slices']) / self.slices:.2f}",
                    f"{(after.reads['index'] - before.reads['index']) / self.slices:.2f}",
                    _wire(before, after, self.slices),
                    f"{self.delivered / self.seconds:,.0f}" if is_first else "",
                    f"{cpu_s / self.seconds:.0%}",
                ]
            )
        return rows


def _wire(before: Note, after: Note, slices: int) -> str:
    if before.wire is None or after.wire is None:
        return "-"
    return f"{(after.wire - before.wire) / slices:.2f}"


def tail(
    gateways: Sequence[Counted], what: str, topic: str, accept: str, given: argparse.Namespace
) -> Outcome:
    """Let all readers follow while a producer writes."""
    make(gateways[0], topic)
    slices = int(given.rate * given.seconds)

    def write() -> None:
        produce(gateways[0], topic, slices, given.rate)

    return measure(gateways, what, topic, accept, given.consumers, slices, write)


def warm_up(gateway: Counted) -> None:
    """Let a gateway do the imports and connections of its first request."""
    topic = f"warm-up-{gateway.server.port}"
    make(gateway, topic)
    produce(gateway, topic, 1, 1.0)
    for accept in KINDS.values():
        measure([gateway], "", topic, accept, 1, 1, nothing)


def catch_up(
    gateway: Counted, what: str, accept: str, consumers: int, bytes_max: int = FETCH_BYTES
) -> Outcome:
    """Let all readers read the existing records."""
    return measure([gateway], what, HISTORY, accept, consumers, HISTORY_SLICES, nothing, bytes_max)


def measure(
    gateways: Sequence[Counted],
    what: str,
    topic: str,
    accept: str,
    consumers: int,
    slices: int,
    write: Callable[[], None],
    bytes_max: int = FETCH_BYTES,
) -> Outcome:
    ports = [gateways[number % len(gateways)].server.port for number in range(consumers)]
    followers = [Follower(port, topic, accept, slices * RECORDS, bytes_max) for port in ports]
    before = [gateway.note() for gateway in gateways]
    began = time.perf_counter()
    with ThreadPoolExecutor(consumers) as pool:
        following = [pool.submit(follower.follow) for follower in followers]
        write()
        delivered = [each.result() for each in following]
    seconds = time.perf_counter() - began
    assert set(delivered) == {slices * RECORDS}, Counter(delivered)
    after = [gateway.note() for gateway in gateways]
    return Outcome(what, slices, seconds, sum(delivered), before, after)


def nothing() -> None:
    pass


def make(gateway: Counted, topic: str) -> None:
    connection = Connection(gateway.server.port)
    body = json.dumps({"name": topic, "partitions": 1}).encode()
    status, text = connection.call(request("POST", "/v1/topics", body, content_type=JSON))
    assert status == 201, text
    connection.close()


def produce(gateway: Counted, topic: str, slices: int, rate: float) -> None:
    """Write `slices`, one after the other, `rate` a second if that can be kept up."""
    connection = Connection(gateway.server.port)
    path, body = f"/v1/topics/{topic}/partitions/0/records", json_body(RECORDS, keyed=False)
    call = request("POST", path, body, content_type=JSON)
    began = time.perf_counter()
    for number in range(slices):
        time.sleep(max(0.0, began + number / rate - time.perf_counter()))
        status, text = connection.call(call)
        assert status == 200, text
    connection.close()


def rows_of(stores: Deployment, given: argparse.Namespace) -> list[list[str]]:
    rows: list[list[str]] = []
    with stores.gateway() as first:
        warm_up(first)
        for name, accept in KINDS.items():
            rows += tail([first], f"tail, {name}", f"one-{name}", accept, given).rows()
        with stores.gateway() as second:
            warm_up(second)
            for name, accept in KINDS.items():
                both = [first, second]
                rows += tail(both, f"tail, {name}", f"two-{name}", accept, given).rows()
        make(first, HISTORY)
        produce(first, HISTORY, HISTORY_SLICES, 1e9)
    for name, accept in KINDS.items():
        with stores.gateway() as fresh:
            rows += catch_up(fresh, f"catch up, {name}", accept, given.consumers).rows()
    with stores.gateway(RIACHO_SLICE_CACHE_BYTES=str(SMALL_CACHE_BYTES)) as fresh:
        what = "catch up, small cache"
        rows += catch_up(fresh, what, ARROW, given.consumers, SMALL_FETCH_BYTES).rows()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--consumers", type=int, default=50)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--stores", default="embedded,s3")
    given = parser.parse_args()
    for name in given.stores.split(","):
        with deployment(name) as stores:
            rows = rows_of(stores, given)
        columns = ["what", "gateway", "slices", "reads", "index", "GETs on the wire"]
        show(
            f"{given.consumers} consumers, {name}; per slice, of each gateway",
            [*columns, "records/s delivered", "CPU"],
            rows,
        )


if __name__ == "__main__":
    main()
