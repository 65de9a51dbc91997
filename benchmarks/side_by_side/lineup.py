"""The peers that take part, and their servers while they take turns."""

import importlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers.peer import SYNCED, NotHere, Peer, values_of
from benchmarks.side_by_side.figures import rotated

JSON_PEER, ARROW_PEER = "Riacho, JSON", "Riacho, Arrow"
FOLDER = Path(__file__).parents[2] / ".bench" / "run"
"""Beside the project rather than in `/tmp`, which may be memory: there a flush costs nothing."""
WARM_UP_SHARE = 0.5
"""Of a turn, before the first."""


@dataclass(frozen=True, slots=True)
class Entry:
    key: str
    """As `--peers` calls it."""
    module: str
    maker: str
    options: dict[str, Any] = field(default_factory=dict)

    def make(self) -> Peer:
        """Return the peer, not started. Raises `NotHere` if its client is not installed."""
        try:
            module = importlib.import_module(f"benchmarks.peers.{self.module}")
        except ImportError as error:
            raise NotHere(f"{error}; `make bench` installs what can be") from error
        peer: Peer = getattr(module, self.maker)(**self.options)
        return peer


OURS = (
    Entry("riacho-json", "riacho", "RiachoJson"),
    Entry("riacho-arrow", "riacho", "RiachoArrow"),
)
THEIRS = (
    Entry("kafka", "kafka", "Kafka"),
    Entry("kafka-synced", "kafka", "Kafka", {"durability": SYNCED}),
    Entry("bridge", "bridge", "Bridge"),
    Entry("nats", "nats_jetstream", "NatsJetStream"),
    Entry("redis", "redis_streams", "RedisStreams"),
    Entry("rabbitmq", "rabbitmq_streams", "RabbitStreams"),
)
FLOORS = (
    Entry("memcpy", "floors", "Memcpy"),
    Entry("write", "floors", "Write"),
    Entry("write-fsync", "floors", "WriteSynced"),
    Entry("store", "floors", "ObjectStoreAlone"),
    Entry("codec-json", "floors", "JsonCodec"),
    Entry("codec-arrow", "floors", "ArrowCodec"),
)


def chosen(keys: Sequence[str]) -> tuple[Entry, ...]:
    """Return ours, and those of `keys`; all if there are none. Raises `ValueError`."""
    everyone = (*OURS, *THEIRS, *FLOORS)
    known = {entry.key for entry in everyone} | {"floors"}
    if unknown := set(keys) - known:
        raise ValueError(f"no peer is called {', '.join(sorted(unknown))}; there are {known}")
    wanted = set(keys) | {entry.key for entry in OURS}
    if "floors" in wanted:
        wanted |= {entry.key for entry in FLOORS}
    return tuple(entry for entry in everyone if not keys or entry.key in wanted)


class Stand:
    """Peers whose servers run. One that fails is named in `absent`, and has no more turns."""

    def __init__(self, absent: dict[str, str]) -> None:
        self.absent = absent
        self.idle: dict[str, float] = {}
        """Processor seconds a second of idle servers."""
        self._running: list[tuple[Peer, Path]] = []
        self._keys: dict[str, str] = {}

    @property
    def peers(self) -> list[Peer]:
        return [peer for peer, _ in self._running]

    def key_of(self, peer: Peer) -> str:
        return self._keys[peer.name]

    def turns(self, number: int) -> list[Peer]:
        """Return the peers of round `number`, in the order of their turns."""
        return rotated(self.peers, number)

    def start(self, entry: Entry) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{entry.key}-", dir=FOLDER))
        peer: Peer | None = None
        try:
            peer = entry.make()
            peer.start(folder)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one, the others go on.
            self.absent[peer.name if peer else entry.key] = reason(error)
            self._end(peer, folder)
        except BaseException:
            self._end(peer, folder)
            raise
        else:
            self._running.append((peer, folder))
            self._keys[peer.name] = entry.key

    def attempt(self, peer: Peer, turn: Callable[[], Any]) -> Any:
        """Return what `turn` gives, or None if it failed; then the peer is out."""
        try:
            result = turn()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one, the others go on.
            self.absent[peer.name] = reason(error)
            for running in [entry for entry in self._running if entry[0] is peer]:
                self._running.remove(running)
                self._end(*running)
            return None
        finally:
            os.sync()
        return result

    def rest(self, seconds: float) -> None:
        """Measure what servers use that are asked for nothing."""
        before = {peer.name: peer.cpu_s() for peer in self.peers}
        time.sleep(seconds)
        self.idle = {peer.name: (peer.cpu_s() - before[peer.name]) / seconds for peer in self.peers}

    def stop(self) -> None:
        if self._running:
            last = self._running.pop()
            try:
                self._end(*last)
            except BaseException:
                # Interrupted while it was stopped: once more, then the others.
                self._end(*last)
                raise
            finally:
                self.stop()

    def _end(self, peer: Peer | None, folder: Path) -> None:
        try:
            if peer is not None:
                peer.stop()
        except Exception as error:  # noqa: BLE001 - the others must be stopped too.
            print(f"{peer and peer.name} did not stop: {reason(error)}")
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def stand(entries: Sequence[Entry], absent: dict[str, str], seconds: float) -> Iterator[Stand]:
    """Start all servers, warm them up, and stop them at the end, also when interrupted."""
    standing = Stand(absent)
    try:
        for entry in entries:
            standing.start(entry)
        values = values_of(100)
        for peer in standing.peers:
            standing.attempt(peer, partial(warm_up, peer, values, seconds * WARM_UP_SHARE))
        yield standing
    finally:
        standing.stop()


def warm_up(peer: Peer, values: Sequence[bytes], seconds: float) -> None:
    peer.make("first-of-all")
    peer.produce("first-of-all", values, 100, 4, seconds)


def reason(error: BaseException) -> str:
    text = str(error) if isinstance(error, NotHere) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:300]
