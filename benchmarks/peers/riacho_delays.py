"""From due to there: single records to a gateway when they are due, and a tail that waits.

One thread does both, so that no other thread of ours holds Python's lock when news arrives. It
waits with `select`, which wakes up within microseconds of a due time; `epoll` would round up to
a millisecond.

- A record is sent when it is due on an idle keep-alive connection, or on a new one; when there
  are `CONNECTIONS_MAX` already and none is idle, it waits, and its delay counts on.
- The reader is a tail (server-sent events), as a browser or `curl -N` would have it.
- A value begins with its number, by which the reader knows when it was due.
"""

import json
import re
import select
import socket
import time

from benchmarks.harness import request

CONNECTIONS_MAX = 500
LAST_S_MAX = 60.0
"""Maximum time from the last due record until all are received."""
NUMBER_DIGITS = 10

_VALUE = re.compile(rb'"value":"(\d{10})')


class OpenLoop:
    def __init__(self, port: int, topic: str, value: bytes) -> None:
        self._port, self._topic = port, topic
        self._filling = value[NUMBER_DIGITS:].decode()
        self._idle: list[socket.socket] = []
        self._busy: dict[socket.socket, bytes] = {}
        self._arrived_s: dict[int, float] = {}
        self._tail = self._open()
        self._chunks = Chunks()

    def run(self, rate: float, seconds: float) -> list[float]:
        """Return how long each record took, but for the first tenth."""
        count = max(10, int(rate * seconds))
        calls = [self._request(number) for number in range(count)]
        self._begin_tail()
        try:
            # A little later, so that the first is not late before it begins.
            began_s = time.perf_counter() + 0.01
            self._follow(calls, began_s, rate)
        finally:
            for opened in (self._tail, *self._idle, *self._busy):
                opened.close()
        return [
            self._arrived_s[number] - (began_s + number / rate)
            for number in range(count // 10, count)
        ]

    def _follow(self, calls: list[bytes], began_s: float, rate: float) -> None:
        sent, give_up_s = 0, began_s + len(calls) / rate + LAST_S_MAX
        while len(self._arrived_s) < len(calls) or self._busy:
            now_s = time.perf_counter()
            while sent < len(calls) and now_s >= began_s + sent / rate and self._has_room():
                self._send(calls[sent])
                sent += 1
            wait_s = give_up_s - now_s
            if wait_s <= 0:
                missing = len(calls) - len(self._arrived_s)
                raise RuntimeError(f"{missing} of {len(calls)} records did not arrive")
            if sent < len(calls) and self._has_room():
                wait_s = max(0.0, began_s + sent / rate - time.perf_counter())
            self._receive(wait_s)

    def _has_room(self) -> bool:
        return bool(self._idle) or len(self._busy) < CONNECTIONS_MAX

    def _send(self, call: bytes) -> None:
        connection = self._idle.pop() if self._idle else self._open()
        connection.sendall(call)
        self._busy[connection] = b""

    def _receive(self, wait_s: float) -> None:
        readable, _, _ = select.select([self._tail, *self._busy], [], [], wait_s)
        if self._tail in readable:
            self._take_events()
        for connection in readable:
            if connection is not self._tail:
                self._take_answer(connection)

    def _take_events(self) -> None:
        data = self._tail.recv(1 << 20)
        now_s = time.perf_counter()
        if not data:
            raise ConnectionError("the gateway ended the tail")
        for number in _VALUE.findall(self._chunks.fed(data)):
            self._arrived_s[int(number)] = now_s

    def _take_answer(self, connection: socket.socket) -> None:
        data = self._busy[connection] + connection.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head.lower())
        if found is None or len(body) < int(found[1]):
            if not data or data == self._busy[connection]:
                raise ConnectionError("the gateway hung up")
            self._busy[connection] = data
            return
        if head[9:12] != b"200":
            raise RuntimeError(f"a record was answered with {data[:300]!r}")
        del self._busy[connection]
        self._idle.append(connection)

    def _begin_tail(self) -> None:
        """Begin at the end, and return when the gateway has said that it does."""
        path = f"/v1/topics/{self._topic}/partitions/0/records?at=latest"
        self._tail.sendall(request("GET", path, accept="text/event-stream"))
        data = b""
        while b": tailing\n\n\r\n" not in data:
            received = self._tail.recv(65536)
            if not received:
                raise ConnectionError(f"no tail: {data[:300]!r}")
            data += received
        self._chunks.fed(data.partition(b"\r\n\r\n")[2])

    def _request(self, number: int) -> bytes:
        value = f"{number:0{NUMBER_DIGITS}}{self._filling}"
        body = json.dumps({"records": [{"value": value}]}).encode()
        path = f"/v1/topics/{self._topic}/records"
        return request("POST", path, body, content_type="application/json")

    def _open(self) -> socket.socket:
        opened = socket.create_connection(("127.0.0.1", self._port))
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened


class Chunks:
    """The body of an answer of unknown length (`transfer-encoding: chunked`)."""

    def __init__(self) -> None:
        self._left = b""

    def fed(self, data: bytes) -> bytes:
        """Return the complete bytes."""
        data = self._left + data
        parts, position = [], 0
        while (line := data.find(b"\r\n", position)) >= 0:
            start = line + 2
            end = start + int(data[position:line], 16)
            if len(data) < end + 2:
                break
            parts.append(data[start:end])
            position = end + 2
        self._left = data[position:]
        return b"".join(parts)
