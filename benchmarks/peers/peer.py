"""What a peer must be able to do, so that all are measured alike.

A peer is a server in processes of its own, on an empty folder, and a client in this process: the
client that its makers give to Python. Everything it acknowledges must be as durable as it says in
`durability`; compare only peers with the same durability.
"""

import asyncio
import os
import random
import selectors
import string
import subprocess
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

SYNCED: Final = "synced"
"""On the disk (`fsync`) before it is acknowledged."""
CACHED: Final = "page cache"
"""Given to the operating system; a power cut loses it."""


WORDS: Final = 1000
"""Number of different words in values; the common ones are far more frequent."""


class NotHere(Exception):
    """A peer that cannot be had on this machine, and why."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Records that were acknowledged, or read, and the time taken."""

    records: int
    seconds: float

    @property
    def per_s(self) -> float:
        return self.records / self.seconds


class Peer(Protocol):
    name: str
    """As tables call it, such as `Kafka` or `Riacho, Arrow`."""
    durability: str
    """`SYNCED` or `CACHED`."""

    def about(self) -> str:
        """Return versions and settings that matter, in one line."""

    def start(self, folder: Path) -> None:
        """Start the server on an empty `folder`, and return when it answers.

        Raises `NotHere` if it cannot be had, with what to install.
        """

    def stop(self) -> None:
        """End all its processes."""

    def cpu_s(self) -> float:
        """Return the processor time of the server's processes so far."""

    def make(self, topic: str, partitions: int = 1) -> None:
        """Create a topic, or its nearest equivalent."""

    def produce(
        self, topic: str, values: Sequence[bytes], batch: int, in_flight: int, seconds: float
    ) -> Rate:
        """Write `values`, round and round, for about `seconds`; count acknowledged records.

        `batch` records are given to the client at once and acknowledged together, as one request
        where the protocol has such; at most `in_flight` batches wait for theirs. Records go to
        all partitions evenly. Whatever the client must do to a record is part of the time.
        """

    def fetch(self, topic: str, records: int, batch: int) -> Rate:
        """Read `records` from the beginning of all partitions on, up to `batch` at once.

        Each value must be there as bytes of Python or as a slice of one buffer (Arrow).
        """

    def delays(self, topic: str, value: bytes, rate: float, seconds: float) -> list[float]:
        """Return how long records took from when they were due until a tailing reader had them.

        `rate` records a second, one by one, are sent when they are due, whether or not the ones
        before are acknowledged; the reader waits for news and follows from the end. All in
        seconds, one for each record; the first tenth, a warm-up, is left out.
        """


def values_of(size: int, count: int = 4000) -> list[bytes]:
    """Return texts of `size` bytes that LZ4 makes about half as large, as it does real ones."""
    made_up = random.Random(0)
    words = ["".join(made_up.choices(string.ascii_lowercase, k=2 + n % 7)) for n in range(WORDS)]
    weights = [1 / (rank + 1) for rank in range(WORDS)]  # As words of any language are.
    texts = (random.Random(n).choices(words, weights, k=size // 2) for n in range(count))
    return [" ".join(text)[:size].encode() for text in texts]


def cpu_s(processes: Sequence[subprocess.Popen[bytes]]) -> float:
    """Return the processor time of `processes` and of all that they have started."""
    ticks = 0
    waiting = [process.pid for process in processes]
    while waiting:
        pid = waiting.pop()
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except FileNotFoundError:
            continue
        ticks += int(fields[11]) + int(fields[12])
        waiting += map(int, children)
    return ticks / os.sysconf("SC_CLK_TCK")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns, in an event loop that keeps time to less than a millisecond."""
    # `select`, because `epoll` would round what is due up to a millisecond.
    with asyncio.Runner(
        loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())
    ) as runner:
        return runner.run(work)
