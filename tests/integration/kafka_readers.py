"""Members of one classic group that remember what they have read together."""

import subprocess
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Protocol

from confluent_kafka import Consumer

SESSION_MS: Final = 6_000


class Reading:
    """What the members of a group have read, and who of them reads which partitions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: Counter[bytes] = Counter()

    def add(self, values: Sequence[bytes]) -> None:
        with self._lock:
            self._read.update(values)

    def has(self, values: set[bytes]) -> bool:
        with self._lock:
            return values <= self._read.keys()

    def missing(self, values: set[bytes]) -> int:
        with self._lock:
            return len(values - self._read.keys())

    def of(self, values: set[bytes]) -> Counter[bytes]:
        """Return how often each of these values was read."""
        with self._lock:
            return Counter({value: self._read[value] for value in values})


class Member(Protocol):
    def stop(self) -> None: ...


class LibrdkafkaMember:
    """A member on librdkafka, in a thread."""

    def __init__(self, bootstrap: str, topic: str, reading: Reading, **config: Any) -> None:
        self.owned: list[int] = []
        self.fatal: list[str] = []
        self._over = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                "log_level": 0,
                "error_cb": self._on_error,
                **config,
            }
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run, args=(reading,))
        self._thread.start()

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.fatal.append(str(error))

    def _run(self, reading: Reading) -> None:
        try:
            while not self._over.is_set():
                found = [each for each in self._consumer.consume(500, 0.1) if each.error() is None]
                reading.add([value for each in found if (value := each.value()) is not None])
                self.owned = [each.partition for each in self._consumer.assignment()]
        finally:
            self._consumer.close()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


class PrintingMember:
    """A program that prints each value that it reads on a line, such as Kafka's own consumer."""

    def __init__(self, command: Sequence[str], reading: Reading) -> None:
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
        self._thread = threading.Thread(target=self._read, args=(reading,))
        self._thread.start()

    def _read(self, reading: Reading) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            reading.add([line.rstrip(b"\n")])

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
