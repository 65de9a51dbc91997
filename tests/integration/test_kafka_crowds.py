"""Crowds at the Kafka door: those who only stay, those who do not read or do not send on, bombs,
and as much work as both doors can do. All the time a client works, and notices nothing.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from service.kafka.protocol.codec import decode_response, encode_request
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from service.kafka.protocol.messages.handshake import ApiVersionsRequest
from service.kafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from service.kafka.protocol.notation import Message
from storage.formats.kafka.encoding import encode
from storage.formats.records import record_batch
from tests.integration.processes import Api
from tests.integration.test_kafka_clients import PATIENCE_S, Door, Sent, consumed
from tests.integration.test_overload import full_load, memory_bytes, peak_bytes
from tests.torture.summary import report
from tests.torture.test_many import many_descriptors

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

KIB = 1024
MIB = 1024 * KIB

IDLE = 1_000
IDLE_BYTES_MAX = 50 * KIB
"""Of a connection that only stays."""
CROWD_BYTES_MAX = 448 * MIB
BOTH_DOORS_BYTES_MAX = 600 * MIB

LAZY, ASKED_AT_ONCE = 40, 8
"""Clients that do not read, and what each has asked for: a megabyte, so many times."""
STALLED, ANNOUNCED_BYTES = 40, 90 * MIB
BOMBERS, BOMBS = 10, 3
BOMB_BYTES = 256 * MIB


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with many_descriptors(2 * IDLE):
        found = Door(tmp_path)
    with found.process:
        yield found


def frame(version: int, request: Message) -> bytes:
    pieces = encode_request(request.KEY, version, 1, "crowd", request)
    return b"".join(bytes(piece) for piece in pieces)


def answer(connection: socket.socket) -> bytes:
    [length] = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    return connection.recv(length, socket.MSG_WAITALL)


@contextmanager
def connections(door: Door, count: int) -> Iterator[list[socket.socket]]:
    """Yield connections from several addresses, since each may have so many only."""
    with ExitStack() as stack:
        found = []
        for number in range(count):
            own = f"127.0.0.{2 + number // 500}", 0
            opened = socket.create_connection(("127.0.0.1", door.port), PATIENCE_S, own)
            found.append(stack.enter_context(opened))
        yield found


def greeted(crowd: Sequence[socket.socket]) -> None:
    for connection in crowd:
        connection.sendall(frame(3, ApiVersionsRequest(client_software_name="crowd")))
    for connection in crowd:
        assert answer(connection)


def works(door: Door, topic: str) -> None:
    """A client writes and reads what it wrote, without an error."""
    sent = Sent(door.address, **{"linger.ms": 5})
    values = [b"%d" % number for number in range(500)]
    sent.send(topic, 0, *values)
    sent.flush()
    assert consumed(door.address, topic, 1, len(values)) == {0: values}


def test_a_thousand_connections_that_only_stay(door: Door) -> None:
    pid = door.process.process.pid
    works(door, "before")
    with many_descriptors(2 * IDLE), connections(door, 50) as first:
        greeted(first)
        before = memory_bytes(pid)
        with connections(door, IDLE) as crowd:
            greeted(crowd)
            each = (memory_bytes(pid) - before) / IDLE
            works(door, "beside")
            # None of them was closed meanwhile.
            greeted(crowd)
    report(f"memory of an idle connection, of {IDLE:,}", f"{each / KIB:.1f} KiB")
    assert each < IDLE_BYTES_MAX


def test_clients_that_do_not_read_or_send_on_and_bombs(door: Door) -> None:
    pid = door.process.process.pid
    works(door, "before")
    sent = Sent(door.address, **{"message.max.bytes": 2 * MIB})
    sent.send("large", 0, *(b"%d" % number + bytes(500 * KIB) for number in range(20)))
    sent.flush()
    with many_descriptors(2 * IDLE), connections(door, LAZY) as lazy:
        with connections(door, STALLED) as stalled, connections(door, BOMBERS) as bombers:
            for connection in lazy:
                connection.sendall(fetched() * ASKED_AT_ONCE)
            for connection in stalled:
                connection.sendall(struct.pack(">i", ANNOUNCED_BYTES) + bytes(64 * KIB))
            for connection in bombers:
                connection.sendall(bomb() * BOMBS)
            works(door, "beside")
            codes = [code_of(answer(each)) for each in bombers for _ in range(BOMBS)]
        assert codes == [ErrorCode.MESSAGE_TOO_LARGE] * BOMBERS * BOMBS
        works(door, "after")
    peak_mib = peak_bytes(pid) // MIB
    report("peak memory beside clients that do not read, or send bombs", f"{peak_mib} MiB")
    assert peak_mib * MIB < CROWD_BYTES_MAX


def fetched() -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
    topic = FetchTopic(topic="large", partitions=[partition])
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=MIB, topics=[topic])
    return frame(11, request)


def bomb() -> bytes:
    """Return a request of some kilobytes whose records are far longer than a gateway unpacks."""
    data = encode(record_batch([1], [b"k"], [bytes(BOMB_BYTES)]), base_offset=0, codec="zstd")
    assert len(data) < 64 * KIB
    partition = PartitionProduceData(index=0, records=bytes(data))
    topic = TopicProduceData(name="large", partition_data=[partition])
    return frame(9, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]))


def code_of(frame: bytes) -> int:
    _, response = decode_response(ProduceRequest.KEY, 9, frame)
    [topic] = response.responses
    [partition] = topic.partition_responses
    return int(partition.error_code)


def test_memory_stays_bounded_while_both_doors_are_busy(door: Door) -> None:
    pid = door.process.process.pid
    with Api(door.process.url) as api:
        topic = api.topic(6)
        over = threading.Event()
        clients = [Busy(door, topic, number, over) for number in range(6)]
        for client in clients:
            client.start()
        try:
            counts = full_load(door.process, topic)
        finally:
            over.set()
            for client in clients:
                client.join(PATIENCE_S)
        works(door, "after")
    peak_mib = peak_bytes(pid) // MIB
    report(
        f"both doors busy: {sum(client.count for client in clients)} records by Kafka's protocol,"
        f" answers by HTTP {counts}; peak memory",
        f"{peak_mib} MiB",
    )
    assert [client.error for client in clients] == [None] * len(clients)
    assert all(client.count for client in clients)
    assert counts.keys() <= {200, 503}
    assert peak_mib * MIB < BOTH_DOORS_BYTES_MAX


class Busy(threading.Thread):
    """A client of Kafka's protocol that writes, or reads from the start again and again."""

    def __init__(self, door: Door, topic: str, partition: int, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.count = 0
        self.error: str | None = None
        self._common = {"bootstrap.servers": door.address, "log_level": 0}
        self._place = topic, partition
        self._over = over

    def run(self) -> None:
        work: Callable[[], None] = self._write if self._place[1] % 2 else self._read
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - The test looks at it.
            self.error = repr(error)

    def _write(self) -> None:
        settings = {"enable.idempotence": True, "compression.type": "lz4", "linger.ms": 5}
        producer = Producer({**self._common, **settings, "queue.buffering.max.kbytes": 32 * KIB})
        topic, partition = self._place
        value = b"some words " * 90
        while not self._over.is_set():
            try:
                producer.produce(topic, value, partition=partition, on_delivery=self._delivered)
            except BufferError:
                producer.poll(0.05)
        assert producer.flush(PATIENCE_S) == 0

    def _delivered(self, error: object, _: object) -> None:
        assert error is None, error
        self.count += 1

    def _read(self) -> None:
        consumer = Consumer({**self._common, "group.id": "busy", "auto.offset.reset": "earliest"})
        topic, partition = self._place
        try:
            while not self._over.is_set():
                consumer.assign([TopicPartition(topic, partition - partition % 2 + 1, 0)])
                until_s = time.monotonic() + 2
                while time.monotonic() < until_s and not self._over.is_set():
                    found = consumer.consume(10_000, 0.1)
                    assert not [each.error() for each in found if each.error()]
                    self.count += len(found)
        finally:
            consumer.close()
