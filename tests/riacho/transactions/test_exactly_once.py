"""Copiers that read, transform and write in transactions, while copiers and gateways crash.

They use the synchronous clients, and gateways in processes of their own.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from riacho import (
    Admin,
    Consumer,
    InvalidProducerEpoch,
    Producer,
    Record,
    RecordMetadata,
    RiachoError,
    TransactionAborted,
)
from tests.gateway import GatewayProcess, free_port, start_gateway

RECORDS = 2000
PER_TRANSACTION = 50


def fill(url: str) -> None:
    """Write 0, 1, … to each of two partitions."""
    with Admin(url) as admin, Producer(url) as producer:
        admin.create_topic("in", partitions=2)
        admin.create_topic("out", partitions=3)
        for n in range(RECORDS):
            for partition in range(2):
                producer.send("in", str(n), key=f"{partition}", partition=partition)


class Copier(threading.Thread):
    """Copies "in" to "out" until it is stopped; `crash` makes it lose its state."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(name=name)
        self._url = url
        self.is_stopped = False
        self.crash = threading.Event()
        self.crashes = 0
        self.copied = 0

    def run(self) -> None:
        while not self.is_stopped:
            producer = Producer(
                self._url,
                transactional_id=self.name,
                retry_backoff_ms=20,
                delivery_timeout_ms=20_000,
            )
            consumer = Consumer(
                self._url,
                group_id="copiers",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                max_poll_records=PER_TRANSACTION,
                heartbeat_interval_ms=100,
                session_timeout_ms=3000,
                retry_backoff_ms=20,
            )
            with producer, consumer:
                consumer.subscribe("in")
                self._copy(producer, consumer)

    def _copy(self, producer: Producer, consumer: Consumer) -> None:
        while not self.is_stopped:
            try:
                with producer.transaction():
                    records = consumer.poll(100)
                    for n, record in enumerate(records):
                        producer.send("out", record.value, record.key, partition=n % 3)
                    producer.send_offsets(consumer)
                    if self.crash.is_set():
                        self.crash.clear()
                        self.crashes += 1
                        raise InterruptedError
                self.copied += len(records)
            except InterruptedError:
                return
            except InvalidProducerEpoch:
                return
            except RiachoError:
                consumer.seek_to_committed()


def copied(url: str) -> list[Record]:
    """Return all records of "out"."""
    records: list[Record] = []
    with Consumer(url, auto_offset_reset="earliest") as consumer:
        consumer.assign([("out", partition) for partition in range(3)])
        total = sum(consumer.end_offsets().values())
        while len(records) < total:
            records += consumer.poll(1000)
    return records


@pytest.mark.slow
def test_each_record_is_copied_once_despite_crashes_of_copiers_and_gateways(tmp_path: Path) -> None:
    port = free_port()
    gateway = start_gateway(tmp_path, "--log-level", "error", port=port)
    fill(gateway.url)
    copiers = [Copier(gateway.url, f"copier-{n}") for n in range(2)]
    for copier in copiers:
        copier.start()
    try:
        for turn in range(4):
            wait_until(lambda turn=turn: sum(c.copied for c in copiers) > (turn + 1) * 600)  # type: ignore[misc]
            if turn % 2:
                copiers[turn // 2].crash.set()
            else:
                gateway.kill()
                gateway = start_gateway(tmp_path, "--log-level", "error", port=port)
        with Admin(gateway.url) as admin:
            wait_until(lambda: sum(lag.lag for lag in admin.group_lag("copiers")) == 0)
    finally:
        for copier in copiers:
            copier.is_stopped = True
        for copier in copiers:
            copier.join()

    with gateway:
        records = copied(gateway.url)
    assert sum(copier.crashes for copier in copiers) == 2
    for key in ("0", "1"):
        own = sorted(int(record.text()) for record in records if record.key_text() == key)
        assert own == list(range(RECORDS))
    for partition in range(3):
        for key in ("0", "1"):
            own = [
                int(record.text())
                for record in records
                if (record.partition, record.key_text()) == (partition, key)
            ]
            assert own == sorted(own)


def test_transactions_work_without_an_event_loop(gateway: GatewayProcess) -> None:
    with Admin(gateway.url) as admin:
        admin.create_topic("sync", partitions=3)
        with Producer(gateway.url, transactional_id="sync") as producer:
            with producer.transaction() as txn:
                first = txn.send("sync", "a", partition=1)
                txn.send_offsets(group="sync", offsets={("sync", 0): 1})
            assert first.result(0) == RecordMetadata("sync", 1, 0, first.result(0).timestamp)
            producer.begin_transaction()
            second = producer.send("sync", "b", partition=1)
            producer.abort_transaction()
            assert isinstance(second.exception(0), TransactionAborted)
            with producer.transaction():
                large = [producer.send("sync", b"x" * 1_000_000, partition=1) for _ in range(10)]
            assert [future.result(0).offset for future in large] == list(range(1, 11))
        [offset] = admin.group_offsets("sync")
        assert (offset.partition, offset.offset) == (0, 1)


def wait_until(is_so: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < give_up_s
        time.sleep(0.02)
