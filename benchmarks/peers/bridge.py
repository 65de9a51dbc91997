"""Strimzi's HTTP bridge in front of Kafka, with JSON, over bare sockets.

    RIACHO_BENCH_BRIDGE=... python -m benchmarks.peers.bridge

It makes a Kafka producer for each connection, so connections are kept. How long its producers
linger and the most records that one answer holds are settings of its process, so there is one
for each; which linger is best for a size of batches is found by trial. All are given time to
compile what they do before anything counts.
"""

import http.client
import itertools
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import Connection, free_port, request
from benchmarks.peers.kafka import Kafka, ring
from benchmarks.peers.kafka_server import JavaServer
from benchmarks.peers.peer import CACHED, SYNCED, NotHere, Rate, cpu_s, values_of

VERSION: Final = "0.33.1"
VARIABLE: Final = "RIACHO_BENCH_BRIDGE"
JSON_RECORDS: Final = "application/vnd.kafka.json.v2+json"
JSON: Final = "application/vnd.kafka.v2+json"
POLL_RECORDS: Final = 500
"""Default of records per poll of a Kafka consumer in Java."""
POLL_MS: Final = 1000
READ_S_MAX: Final = 120.0
WARM_S: Final = 3.0
STEADY_ROUNDS_MAX: Final = 8
"""Maximum number of warm-up rounds, each a tenth faster than the last."""
LINGERS_MS: Final = (0, 2)
OPTIONS: Final = (
    # With two cores there would be a new thread for each request instead of a pool.
    "-Djava.util.concurrent.ForkJoinPool.common.parallelism=4",
)
LOGGING: Final = """\
appender.console.type = Console
appender.console.name = STDOUT
appender.console.layout.type = PatternLayout
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = STDOUT
"""
"""As it ships, it would write a line for each request."""
SETTINGS: Final = {
    "bridge.id": "bench",
    "http.host": "127.0.0.1",
    "kafka.producer.acks": "all",
    "kafka.producer.compression.type": "lz4",
    "kafka.producer.enable.metrics.push": "false",
    "kafka.producer.batch.size": "1000000",
    "kafka.producer.buffer.memory": "134217728",
    "kafka.producer.max.request.size": "16000000",
    "kafka.consumer.auto.offset.reset": "earliest",
    "kafka.consumer.max.partition.fetch.bytes": "4000000",
    "http.consumer.enabled": "true",
    "http.producer.enabled": "true",
}


@dataclass
class Bridge:
    durability: str = CACHED
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = "HTTP bridge, Kafka" + (", synced" if self.durability == SYNCED else "")
        self._kafka = Kafka(self.durability)
        self._bridges: dict[tuple[int, int], JavaServer] = {}
        self._connections: dict[int, list[Connection]] = {}
        self._lingers_ms: dict[int, int] = {}
        self._read: set[int] = set()
        self._names = (f"reader-{number}" for number in itertools.count())

    def about(self) -> str:
        return (
            f"Strimzi bridge {VERSION}, heap 1 GiB, lz4, linger.ms by trial, before"
            f" {self._kafka.about().split(';')[0]}"
        )

    def start(self, folder: Path) -> None:
        self._libs = bridge_libs()
        self._folder = folder
        (folder / "kafka").mkdir()
        self._kafka.start(folder / "kafka")
        try:
            self._bridge()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for bridge in self._bridges.values():
            bridge.kill()
        self._bridges.clear()
        self._connections.clear()
        self._lingers_ms.clear()
        self._read.clear()
        self._kafka.stop()

    def cpu_s(self) -> float:
        bridges = [bridge.process for bridge in self._bridges.values()]
        return cpu_s(self._kafka.processes + bridges)

    def make(self, topic: str, partitions: int = 1) -> None:
        self._kafka.make(topic, partitions)

    def _bridge(self, poll_records: int = POLL_RECORDS, linger_ms: int = 0) -> JavaServer:
        """Return a bridge whose answers hold that many records, and whose producers linger."""
        key = poll_records, linger_ms
        if key in self._bridges:
            return self._bridges[key]
        folder, port = self._folder / f"bridge-{poll_records}-{linger_ms}", free_port()
        folder.mkdir()
        (folder / "log4j2.properties").write_text(LOGGING)
        settings = SETTINGS | {
            "kafka.bootstrap.servers": f"127.0.0.1:{self._kafka.port}",
            "http.port": str(port),
            "kafka.producer.linger.ms": str(linger_ms),
            "kafka.consumer.max.poll.records": str(poll_records),
        }
        file = folder / "application.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        options = [
            *OPTIONS,
            f"-Dlog4j2.configurationFile=file:{folder / 'log4j2.properties'}",
            f"-Dvertx.cacheDirBase={folder / 'vertx'}",
        ]
        main = ["io.strimzi.kafka.bridge.Application", f"--config-file={file}"]
        bridge = JavaServer.start(folder / "bridge.log", port, self._libs, [*options, *main])
        self._bridges[key] = bridge
        return bridge

    def produce(
        self, topic: str, values: Sequence[bytes], batch: int, in_flight: int, seconds: float
    ) -> Rate:
        bodies = [body_of(chunk) for chunk in ring(values, batch)]
        if batch not in self._lingers_ms:
            rates = {each: self._steady(bodies, batch, in_flight, each) for each in LINGERS_MS}
            self._lingers_ms[batch] = max(rates, key=rates.__getitem__)
        before = self._kafka.ends(topic)
        writers = self._writers(topic, len(before), in_flight, self._lingers_ms[batch])
        rate = writers.run(bodies, batch, seconds)
        kept = sum(self._kafka.ends(topic)) - sum(before)
        if kept != rate.records:
            raise RuntimeError(f"{rate.records} were acknowledged, {kept} are there")
        return rate

    def _steady(self, bodies: list[bytes], batch: int, in_flight: int, linger_ms: int) -> float:
        """Write until that gets no quicker, and return how quick it is."""
        best = 0.0
        for _ in range(STEADY_ROUNDS_MAX):
            writers = self._writers("warm-up", 1, in_flight, linger_ms)
            per_s = writers.run(bodies, batch, WARM_S / 2).per_s
            if per_s < 1.1 * best:
                break
            best = per_s
        return max(best, per_s)

    def _writers(self, topic: str, partitions: int, in_flight: int, linger_ms: int) -> "Writers":
        port = self._bridge(linger_ms=linger_ms).port
        kept = self._connections.setdefault(linger_ms, [])
        while len(kept) < in_flight:
            kept.append(Connection(port))
            # The first request makes the bridge's producer for this connection.
            wanted = request_to("warm-up", 0, body_of([b"first"]))
            answer_to(kept[-1], wanted)
        return Writers(kept[:in_flight], topic, partitions)

    def fetch(self, topic: str, records: int, batch: int) -> Rate:
        port = self._bridge(batch).port
        partitions = len(self._kafka.ends(topic))
        if batch not in self._read:
            self._read.add(batch)
            self._warm_up_reading(port, topic, records, partitions)
        reader = Reader(port, next(self._names), topic, partitions)
        began_s = time.perf_counter()
        count = sum(map(len, reader.read(records)))
        took_s = time.perf_counter() - began_s
        reader.close()
        return Rate(count, took_s)

    def _warm_up_reading(self, port: int, topic: str, records: int, partitions: int) -> None:
        until_s = time.perf_counter() + WARM_S
        while time.perf_counter() < until_s:
            reader = Reader(port, next(self._names), topic, partitions)
            for _ in reader.read(records):
                if time.perf_counter() > until_s:
                    break
            reader.close()

    def values(self, topic: str, records: int, batch: int) -> list[bytes]:
        """Return the first values of a topic with one partition, as `fetch` reads them."""
        reader = Reader(self._bridge(batch).port, next(self._names), topic, 1)
        found = list(itertools.chain.from_iterable(reader.read(records)))
        reader.close()
        return found

    def delays(self, topic: str, value: bytes, rate: float, seconds: float) -> list[float]:
        raise NotHere("the bridge has no way to follow: its readers ask again and again")


class Writers:
    """One connection for each batch that may be in flight."""

    def __init__(self, connections: list[Connection], topic: str, partitions: int) -> None:
        self._connections = connections
        self._topic = topic
        self._partitions = partitions
        self._numbers = itertools.count()

    def run(self, bodies: list[bytes], batch: int, seconds: float) -> Rate:
        began_s = time.perf_counter()

        def work(connection: Connection) -> int:
            batches = 0
            while time.perf_counter() - began_s < seconds:
                number = next(self._numbers)
                body = bodies[number % len(bodies)]
                wanted = request_to(self._topic, number % self._partitions, body)
                text = answer_to(connection, wanted)
                assert text.count(b'"offset"') == batch, text[:300]
                batches += 1
            return batches

        with ThreadPoolExecutor(len(self._connections)) as pool:
            batches = sum(pool.map(work, self._connections))
        return Rate(batches * batch, time.perf_counter() - began_s)


def request_to(topic: str, partition: int, body: bytes) -> bytes:
    path = f"/topics/{topic}/partitions/{partition}"
    return request("POST", path, body, content_type=JSON_RECORDS)


class Reader:
    """A consumer of the bridge with all partitions of a topic, at their beginning."""

    def __init__(self, port: int, name: str, topic: str, partitions: int) -> None:
        self._port = port
        self._path = f"/consumers/{name}/instances/{name}"
        every = {"partitions": [{"topic": topic, "partition": n} for n in range(partitions)]}
        settings = {"name": name, "format": "json", "enable.auto.commit": False}
        self._post(f"/consumers/{name}", settings)
        self._post(self._path + "/assignments", every)
        self._post(self._path + "/positions/beginning", every)
        self._connection = Connection(port)

    def _post(self, path: str, body: dict[str, Any]) -> None:
        self._control("POST", path, json.dumps(body))

    def _control(self, method: str, path: str, body: str | None = None) -> None:
        # Not our bare client: answers without a body have no length.
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=READ_S_MAX)
        connection.request(method, path, body, {"content-type": JSON})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.status not in {200, 204}:
            raise RuntimeError(f"{method} {path} was answered with {answer.status}: {text!r}")

    def read(self, records: int) -> Iterator[list[bytes]]:
        """Yield at least this many values; raise if they do not arrive."""
        path = f"{self._path}/records?timeout={POLL_MS}"
        wanted = request("GET", path, accept=JSON_RECORDS)
        late_s = time.monotonic() + READ_S_MAX
        while records > 0:
            values = [
                each["value"].encode() for each in json.loads(answer_to(self._connection, wanted))
            ]
            records -= len(values)
            if values:
                yield values
            elif time.monotonic() > late_s:
                raise RuntimeError(f"{records} records did not come")

    def close(self) -> None:
        self._connection.close()
        self._control("DELETE", self._path)


def answer_to(connection: Connection, wanted: bytes) -> bytes:
    """Return the body of the answer, or raise with what the bridge said."""
    status, body = connection.call(wanted)
    if status not in {200, 204} or b'"error_code"' in body[:1000]:
        raise RuntimeError(f"{wanted[:100]!r} was answered with {status}: {body[:500]!r}")
    return body


def body_of(values: Sequence[bytes]) -> bytes:
    return json.dumps({"records": [{"value": value.decode()} for value in values]}).encode()


def bridge_libs() -> Path:
    """Return the folder of the bridge's jars, or raise `NotHere`."""
    where = os.environ.get(VARIABLE)
    if not where:
        raise NotHere(
            f"{VARIABLE} does not name the folder of an unpacked Strimzi Kafka bridge {VERSION}"
            f" (kafka-bridge-{VERSION}.tar.gz of its releases, or of `mvn package` in its source)"
        )
    libs = Path(where) / "libs"
    if not any(libs.glob("*kafka-bridge-*.jar")):
        raise NotHere(f"{VARIABLE} is {where}, where there is no libs/ with a kafka-bridge jar")
    return libs


def main() -> None:
    bridge, values = Bridge(), values_of(100)
    with tempfile.TemporaryDirectory(prefix="riacho-bench-") as folder:
        try:
            bridge.start(Path(folder))
            print(bridge.about())
            bridge.make("smoke")
            written = bridge.produce("smoke", values, 1000, 4, 3.0)
            print(f"wrote {written.per_s:,.0f}/s")
            print(f"read {bridge.fetch('smoke', written.records, 1000).per_s:,.0f}/s")
            found = bridge.values("smoke", written.records, 1000)
            assert len(found) == written.records, len(found)
            assert set(found) <= set(values), "other values than were written"
            print(f"the servers took {bridge.cpu_s():.1f} s of a core")
        finally:
            bridge.stop()


if __name__ == "__main__":
    main()
