"""What produce costs while thousands of readers wait on the same lane.

    python -m benchmarks.polls [--polls 200,2000] [--seconds 6] [--rounds 1] [--pause-ms 20]

A separate gateway serves one topic of 64 partitions, which are one lane. Readers wait by long polls
and ask again as soon as they are answered; they are connections of another process. One producer
sends a record of 100 B to partition 0, waits for the acknowledgement, pauses, and repeats.

    none         no reader waits
    other        every reader waits on another partition of the lane: none is ever answered
    same         every reader waits on the partition that is produced to: all are answered
    mixed        half of them each

Each round measures `none` right before each of the others, in the same gateway, and a ratio is of
these two. `answers` are polls answered in a second; `cpu` is that of the gateway.
"""

import argparse
import multiprocessing
import resource
import selectors
import socket
import statistics
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe

from benchmarks.harness import Connection, Server, gateway, request, show
from benchmarks.http import JSON

PARTITIONS = 64
OTHERS = range(1, PARTITIONS)
WAIT_MS = 30_000
VALUE = "x" * 100
CONNECTED_AT_ONCE = 100


class Poll:
    """One reader on its own connection."""

    def __init__(self, port: int, partition: int, offset: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self._partition = partition
        self._offset = offset
        self._data = b""

    def ask(self) -> None:
        path = f"/v1/topics/t/partitions/{self._partition}/records"
        query = f"?offset={self._offset}&max_wait_ms={WAIT_MS}"
        self.socket.send(request("GET", path + query, accept=JSON))

    def is_answered(self) -> bool:
        """Read available bytes; return whether an answer is complete, and skip it."""
        self._data += self.socket.recv(65536)
        assert self._data, "the gateway hung up"
        split = self._data.find(b"\r\n\r\n")
        if split < 0:
            return False
        head = self._data[:split].lower()
        if len(self._data) < split + 4 + _number(head, b"content-length:"):
            return False
        assert head.startswith(b"http/1.1 200"), self._data[:500]
        self._offset = _number(head, b"riacho-next-offset:")
        self._data = b""
        return True


def _number(head: bytes, name: bytes) -> int:
    return int(head[head.index(name) + len(name) :].split(b"\r\n", 1)[0])


def readers(port: int, places: list[tuple[int, int]], pipe: Pipe) -> None:
    """Poll for ever, in a separate process; when stopped, report the number of answers."""
    selector = selectors.DefaultSelector()
    polls = []
    for number, (partition, offset) in enumerate(places):
        poll = Poll(port, partition, offset)
        selector.register(poll.socket, selectors.EVENT_READ, poll)
        poll.ask()
        polls.append(poll)
        if number % CONNECTED_AT_ONCE == 0:
            time.sleep(0.01)
    selector.register(pipe, selectors.EVENT_READ, None)
    pipe.send("waiting")
    answered = 0
    while True:
        for key, _ in selector.select():
            if key.data is None:
                pipe.send(answered)
                return
            if key.data.is_answered():
                answered += 1
                key.data.ask()


@dataclass(frozen=True)
class Figures:
    p50_ms: float
    p99_ms: float
    answers_per_s: float
    cpu: float


def produced(server: Server, seconds: float, pause_s: float) -> list[float]:
    """Return how long each of some produces took."""
    connection = Connection(server.port)
    body = b'{"records":[{"value":"%b"}]}' % VALUE.encode()
    call = request("POST", "/v1/topics/t/partitions/0/records", body, content_type=JSON)
    took: list[float] = []
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        began_s = time.perf_counter()
        status, answer = connection.call(call)
        took.append(time.perf_counter() - began_s)
        assert status == 200, answer[:300]
        time.sleep(pause_s)
    connection.close()
    return took


def measured(
    server: Server, places: list[tuple[int, int]], seconds: float, pause_s: float
) -> Figures:
    """Produce while readers wait at `places`; the first moments do not count."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=readers, args=(server.port, places, theirs))
    process.start()
    assert ours.recv() == "waiting"
    produced(server, min(1.0, seconds / 2), pause_s)
    cpu_s, began_s = server.cpu_s(), time.perf_counter()
    took = produced(server, seconds, pause_s)
    passed_s = time.perf_counter() - began_s
    cpu_s = server.cpu_s() - cpu_s
    ours.send("stop")
    answered = ours.recv()
    process.join()
    return Figures(
        1000 * statistics.median(took),
        1000 * sorted(took)[int(0.99 * len(took))],
        answered / (passed_s + min(1.0, seconds / 2)),
        cpu_s / passed_s,
    )


def end_of(server: Server) -> int:
    connection = Connection(server.port)
    path = "/v1/topics/t/partitions/0/records?at=latest"
    connection._socket.sendall(request("GET", path, accept=JSON))
    head = connection._receive().lower()
    connection.close()
    return _number(head, b"riacho-high-watermark:")


def places_of(what: str, count: int, end: int) -> list[tuple[int, int]]:
    same = [(0, end)] * count
    other = [(OTHERS[n % len(OTHERS)], 0) for n in range(count)]
    match what:
        case "same":
            return same
        case "other":
            return other
        case _:
            return same[: count // 2] + other[count // 2 :]


def compared(what: str, count: int, seconds: float, pause_s: float) -> tuple[Figures, Figures]:
    """Return the measurements without and with readers, in a separate gateway.

    Readers of an earlier case would keep waiting: a gateway does not notice a disconnect.
    """
    with gateway() as server:
        connection = Connection(server.port)
        body = b'{"name":"t","partitions":%d}' % PARTITIONS
        status, answer = connection.call(request("POST", "/v1/topics", body, content_type=JSON))
        assert status == 201, answer
        connection.close()
        without = measured(server, [], seconds, pause_s)
        places = places_of(what, count, end_of(server))
        return without, measured(server, places, seconds, pause_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--polls", default="200,2000")
    parser.add_argument("--cases", default="other,same,mixed")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--pause-ms", type=float, default=20.0)
    args = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rows = []
    for round_ in range(args.rounds):
        for what in args.cases.split(","):
            for count in map(int, args.polls.split(",")):
                without, found = compared(what, count, args.seconds, args.pause_ms / 1000)
                rows.append(_row(f"{round_ + 1}: {count:,} {what}", without, found))
    show(
        f"produce with polls waiting on the lane ({PARTITIONS} partitions)",
        ["round, polls", "p50 none", "p50", "ratio", "p99 none", "p99", "answers/s", "cpu"],
        rows,
    )


def _row(what: str, without: Figures, found: Figures) -> list[str]:
    return [
        what,
        f"{without.p50_ms:.2f} ms",
        f"{found.p50_ms:.2f} ms",
        f"{found.p50_ms / without.p50_ms:.2f}",
        f"{without.p99_ms:.1f} ms",
        f"{found.p99_ms:.1f} ms",
        f"{found.answers_per_s:,.0f}",
        f"{found.cpu:.0%}",
    ]


if __name__ == "__main__":
    main()
