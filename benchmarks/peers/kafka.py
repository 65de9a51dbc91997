"""Kafka, one KRaft node, with librdkafka, at its best.

    python -m benchmarks.peers.kafka

starts it, tries each method for a second and says whether it read what it wrote.

What we have found to be quickest, with confluent-kafka 2.16: `produce` for each record rather
than `produce_batch`, which looks up six names in a dict for each; no delivery callbacks, since
the length of the producer is what waits for an acknowledgement; timeouts of `poll` below 200 ms,
as longer ones are waited for to the end; `poll` rather than `consume` for one record. Without
callbacks a failure would not be seen, so the ends of the partitions are compared afterwards.
Linger and batch size are chosen by trial before the first measurement of each kind, which warms
the server up as well.
"""

import itertools
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from benchmarks.peers.kafka_server import MESSAGE_BYTES_MAX, JavaServer, start_kafka
from benchmarks.peers.maven import KAFKA
from benchmarks.peers.peer import CACHED, SYNCED, Rate, cpu_s, values_of

ANSWER_S_MAX: Final = 60.0
POLL_S: Final = 0.1
TRIAL_S: Final = 0.4
TRIALS: Final = 2
LINGERS_MS: Final = (0.0, 0.5, 1.0, 5.0)
BATCH_BYTES: Final = 1_000_000
"""librdkafka's default of `batch.size`."""
RING_RECORDS_MAX: Final = 200_000
NUMBER_DIGITS: Final = 12
SWITCH_S: Final = 0.0005
"""How soon the reader gets the interpreter from the writer, instead of 5 ms."""

_PRODUCER: Final[dict[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    "compression.type": "lz4",
    "batch.num.messages": 100_000,
    "message.max.bytes": MESSAGE_BYTES_MAX,
    "queue.buffering.max.messages": 5_000_000,
    "queue.buffering.max.kbytes": 2_000_000,
}
_CONSUMER: Final[dict[str, Any]] = {
    "group.id": "bench",  # Required, though partitions are assigned by hand.
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "fetch.message.max.bytes": 4_000_000,
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 100_000,
    # A second by default, in which it would fetch nothing whenever it is ahead of us.
    "fetch.queue.backoff.ms": 1,
}


@dataclass(frozen=True, slots=True)
class Tuning:
    linger_ms: float
    batch_bytes: int

    def settings(self) -> dict[str, Any]:
        return {"linger.ms": self.linger_ms, "batch.size": self.batch_bytes}


@dataclass(frozen=True, slots=True)
class Kind:
    """Kinds of load that are tuned separately."""

    size_bytes: int
    batch: int
    in_flight: int
    partitions: int

    def candidates(self) -> list[Tuning]:
        sizes = [BATCH_BYTES]
        if self.size_bytes * self.batch > BATCH_BYTES // 2:
            sizes.append(MESSAGE_BYTES_MAX)
        return [Tuning(linger_ms, size) for size in sizes for linger_ms in LINGERS_MS]


@dataclass
class Kafka:
    durability: str = CACHED
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = "Kafka, synced" if self.durability == SYNCED else "Kafka"
        self._server: JavaServer | None = None
        self._tuned: dict[Kind, Tuning] = {}
        self._numbers = itertools.count()

    def about(self) -> str:
        flush = "log.flush.interval.messages=1" if self.durability == SYNCED else "no log.flush"
        return (
            f"Kafka {KAFKA.version}, one KRaft node, heap 1 GiB, {flush};"
            f" confluent-kafka {confluent_kafka.version()}, librdkafka"
            f" {confluent_kafka.libversion()[0]}, acks=all, idempotent, lz4,"
            f" linger.ms and batch.size by trial"
        )

    def tunings(self) -> dict[Kind, Tuning]:
        """Return the choices so far."""
        return dict(self._tuned)

    def start(self, folder: Path) -> None:
        self._server = start_kafka(folder, self.durability)
        try:
            self._connect()
            self.make("warm-up")
            self.producer(Tuning(0, BATCH_BYTES), "warm-up")
        except BaseException:
            self.stop()
            raise

    def _connect(self) -> None:
        self._admin = AdminClient(self._settings())

    def stop(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server = None

    @property
    def port(self) -> int:
        assert self._server is not None, "not started"
        return self._server.port

    @property
    def processes(self) -> list[subprocess.Popen[bytes]]:
        return [] if self._server is None else [self._server.process]

    def cpu_s(self) -> float:
        return cpu_s(self.processes)

    def make(self, topic: str, partitions: int = 1) -> None:
        made = self._admin.create_topics(
            [NewTopic(topic, partitions, 1)], operation_timeout=ANSWER_S_MAX
        )
        made[topic].result(ANSWER_S_MAX)
        give_up_s = time.monotonic() + ANSWER_S_MAX
        while not self._is_there(topic, partitions):
            if time.monotonic() > give_up_s:
                raise RuntimeError(f"{topic} has no leaders")
            time.sleep(0.02)

    def _is_there(self, topic: str, partitions: int) -> bool:
        try:
            return len(self.ends(topic)) == partitions
        except KafkaException:
            return False  # Leaders are named before they know that they lead.

    def ends(self, topic: str) -> list[int]:
        """Return how many records each partition holds."""
        found = self._admin.list_topics(topic, timeout=ANSWER_S_MAX).topics[topic]
        wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in found.partitions}
        ends = self._admin.list_offsets(wanted, request_timeout=ANSWER_S_MAX)
        return [int(end.result().offset) for end in ends.values()]

    def produce(
        self, topic: str, values: Sequence[bytes], batch: int, in_flight: int, seconds: float
    ) -> Rate:
        before = self.ends(topic)
        kind = Kind(len(values[0]), batch, in_flight, len(before))
        if kind not in self._tuned:
            self._tuned[kind] = self._tune(kind, values)
        rate = self.write(topic, values, kind, self._tuned[kind], seconds)
        kept = sum(self.ends(topic)) - sum(before)
        if kept != rate.records:
            raise RuntimeError(f"{rate.records} were acknowledged, {kept} are there")
        return rate

    def _tune(self, kind: Kind, values: Sequence[bytes]) -> Tuning:
        """Return the fastest choice, by the best of several short trials."""
        topic = f"trial-{next(self._numbers)}"
        self.make(topic, kind.partitions)
        rates = dict.fromkeys(kind.candidates(), 0.0)
        for _ in range(TRIALS):
            for tuning, best in rates.items():
                rate = self.write(topic, values, kind, tuning, TRIAL_S)
                rates[tuning] = max(best, rate.per_s)
        self._admin.delete_topics([topic])[topic].result(ANSWER_S_MAX)
        return max(rates, key=rates.__getitem__)

    def write(
        self, topic: str, values: Sequence[bytes], kind: Kind, tuning: Tuning, seconds: float
    ) -> Rate:
        producer = self.producer(tuning, topic)
        produce, poll = producer.produce, producer.poll
        chunks = ring(values, kind.batch)
        room = (kind.in_flight - 1) * kind.batch
        batches = 0
        began_s = time.perf_counter()
        until_s = began_s + seconds
        while time.perf_counter() < until_s:
            while len(producer) > room:
                poll(POLL_S)
            # Whole batches in turn, as librdkafka's sticky partitioner would, but evenly.
            partition = batches % kind.partitions
            for value in chunks[batches % len(chunks)]:
                produce(topic, value, None, partition)
            batches += 1
        left = producer.flush(ANSWER_S_MAX)
        took_s = time.perf_counter() - began_s
        assert left == 0, left
        producer.close()
        return Rate(batches * kind.batch, took_s)

    def producer(self, tuning: Tuning, topic: str) -> Producer:
        """Return one that is connected, has its id and knows the topic."""
        producer = Producer(self._settings() | _PRODUCER | tuning.settings())
        producer.list_topics(topic, timeout=ANSWER_S_MAX)
        producer.produce("warm-up", b"-")
        assert producer.flush(ANSWER_S_MAX) == 0, "the warm-up was not acknowledged"
        return producer

    def fetch(self, topic: str, records: int, batch: int) -> Rate:
        consumer = self._consumer()
        assigned = [TopicPartition(topic, number, 0) for number in range(len(self.ends(topic)))]
        consumer.list_topics(topic, timeout=ANSWER_S_MAX)
        began_s = time.perf_counter()
        consumer.assign(assigned)
        for _ in read(consumer, records, batch):
            pass
        took_s = time.perf_counter() - began_s
        reached = sum(max(0, each.offset) for each in consumer.position(assigned))
        consumer.close()
        if reached != records:
            raise RuntimeError(f"{records} were read, but the position is {reached}")
        return Rate(records, took_s)

    def values(self, topic: str, partition: int, records: int, batch: int) -> list[bytes]:
        """Return the first values of a partition, as `fetch` reads them."""
        consumer = self._consumer()
        consumer.assign([TopicPartition(topic, partition, 0)])
        found = list(itertools.chain.from_iterable(read(consumer, records, batch)))
        consumer.close()
        return found

    def _consumer(self) -> Consumer:
        return Consumer(self._settings() | _CONSUMER)

    def delays(self, topic: str, value: bytes, rate: float, seconds: float) -> list[float]:
        count = int(rate * seconds)
        body = value[NUMBER_DIGITS:]
        producer = self.producer(Tuning(0, BATCH_BYTES), topic)
        reader = Reader(self._consumer(), topic, self.ends(topic), count)
        partitions = itertools.cycle(range(len(reader.ends)))
        switch_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        try:
            reader.start()
            for number in range(len(reader.ends)):
                producer.produce(topic, reader.first, None, number)
            reader.following.wait(ANSWER_S_MAX)
            began_s = time.perf_counter()
            for number in range(count):
                wait_s = began_s + number / rate - time.perf_counter()
                if wait_s > 0:
                    time.sleep(wait_s)
                producer.produce(topic, b"%012d" % number + body, None, next(partitions))
                producer.poll(0)
            assert producer.flush(ANSWER_S_MAX) == 0, "not all were acknowledged"
            seen_s = reader.wait()
        finally:
            sys.setswitchinterval(switch_s)
            reader.close()
            producer.close()
        return [seen_s[number] - began_s - number / rate for number in range(count // 10, count)]

    def _settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "log_level": 2,
            "socket.nagle.disable": True,
        }


class Reader(threading.Thread):
    """A consumer that follows from the end, and knows when it had which record.

    It is `following` when it has had `first` from all partitions.
    """

    first: Final = b"first"

    def __init__(self, consumer: Consumer, topic: str, ends: list[int], count: int) -> None:
        super().__init__(daemon=True)
        self.ends = ends
        self._consumer = consumer
        self._seen_s = [math.nan] * count
        self._stopped = False
        self.following = threading.Event()
        consumer.list_topics(topic, timeout=ANSWER_S_MAX)
        consumer.assign([TopicPartition(topic, number, end) for number, end in enumerate(ends)])

    def run(self) -> None:
        left, quiet = len(self._seen_s), len(self.ends)
        poll, clock, seen_s = self._consumer.poll, time.perf_counter, self._seen_s
        while left and not self._stopped:
            message = poll(POLL_S)
            if message is None:
                continue
            now_s = clock()
            if message.error():
                raise RuntimeError(message.error())
            value = message.value()
            if value == self.first:
                quiet -= 1
                if quiet == 0:
                    self.following.set()
            else:
                seen_s[int(value[:NUMBER_DIGITS])] = now_s
                left -= 1

    def wait(self) -> list[float]:
        """Return when each was there."""
        self.join(ANSWER_S_MAX)
        missing = sum(map(math.isnan, self._seen_s))
        if missing:
            raise RuntimeError(f"{missing} records did not come")
        return self._seen_s

    def close(self) -> None:
        self._stopped = True
        self.join(ANSWER_S_MAX)
        self._consumer.close()


def ring(values: Sequence[bytes], batch: int) -> list[list[bytes]]:
    """Return batches that go round and round `values`, as many as there are different ones."""
    count = len(values) // math.gcd(len(values), batch)
    endless = itertools.cycle(values)
    count = max(1, min(count, RING_RECORDS_MAX // batch))
    return [list(itertools.islice(endless, batch)) for _ in range(count)]


def read(consumer: Consumer, records: int, batch: int) -> Iterator[list[bytes]]:
    """Yield the values of this many records; raise if they do not arrive."""
    left = records
    late_s = time.monotonic() + ANSWER_S_MAX
    while left:
        if batch == 1:
            message = consumer.poll(POLL_S)
            values = [] if message is None else [message.value()]
        else:
            values = [message.value() for message in consumer.consume(min(batch, left), POLL_S)]
        left -= len(values)
        if values:
            yield values
        elif time.monotonic() > late_s:
            raise RuntimeError(f"{left} of {records} records did not come")


def try_out(kafka: Kafka) -> None:
    """Print what each method returns, and fail if a record is lost or out of order."""
    values = values_of(100)
    kafka.make("smoke")
    written = kafka.produce("smoke", values, 1000, 4, 1.0)
    print(f"{kafka.name}: wrote {written.per_s:,.0f}/s with {kafka.tunings()}")
    print(f"read {kafka.fetch('smoke', written.records, 1000).per_s:,.0f}/s")
    found = kafka.values("smoke", 0, written.records, 1000)
    assert found == list(itertools.islice(itertools.cycle(values), written.records))
    delays_s = sorted(kafka.delays("smoke", values[0], 500, 1.0))
    print(f"p50 {delays_s[len(delays_s) // 2] * 1000:.2f} ms of {len(delays_s)}")
    print(f"the server took {kafka.cpu_s():.1f} s of a core")


def main() -> None:
    for durability in (CACHED, SYNCED):
        kafka = Kafka(durability)
        with tempfile.TemporaryDirectory(prefix="riacho-bench-") as folder:
            kafka.start(Path(folder))
            try:
                print(kafka.about())
                try_out(kafka)
            finally:
                kafka.stop()


if __name__ == "__main__":
    main()
