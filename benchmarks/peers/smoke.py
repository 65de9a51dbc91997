"""A short run of everything that a peer can do, to see that it works; no figures to quote."""

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Protocol

from benchmarks.peers.peer import NotHere, Peer, values_of


class Checked(Peer, Protocol):
    fetched: list[bytes]
    """What the last fetch read."""


def smoke(peer: Checked, seconds: float = 1.0) -> None:
    """Try `peer` in all shapes that the benchmarks use."""
    with tempfile.TemporaryDirectory(prefix="riacho-peer-") as folder:
        try:
            peer.start(Path(folder))
        except NotHere as reason:
            sys.exit(f"{peer.name}: {reason}")
        try:
            print(f"{peer.name} ({peer.durability}): {peer.about()}")
            _check_order(peer, seconds)
            for partitions in (1, 10, 1000):
                for size in (100, 1024):
                    _try(peer, partitions, size, seconds)
            peer.make("tail")
            for rate in (50, 500):
                delays = peer.delays("tail", b"x" * 100, rate, 2 * seconds)
                median_ms = statistics.median(delays) * 1000
                print(f"{rate:>6}/s: {len(delays)} delays, median {median_ms:.2f} ms")
            print(f"{peer.cpu_s():.1f} s of processor time")
        finally:
            peer.stop()


def _check_order(peer: Checked, seconds: float) -> None:
    values = values_of(100)
    peer.make("order")
    written = peer.produce("order", values, 100, 1, seconds)
    peer.fetch("order", written.records, 100)
    expected = [values[number % len(values)] for number in range(written.records)]
    assert peer.fetched == expected, "not in order"
    print(f"{written.records} records in order")


def _try(peer: Checked, partitions: int, size: int, seconds: float) -> None:
    values = values_of(size)
    for batch in (1, 100, 1000, 10_000):
        topic = f"t-{partitions}-{size}-{batch}"
        peer.make(topic, partitions)
        written = peer.produce(topic, values, batch, 4, seconds)
        read = peer.fetch(topic, written.records, batch)
        assert read.records == written.records, (read, written)
        expected = [values[number % len(values)] for number in range(written.records)]
        # With several partitions, or batches in flight, there are several right orders.
        fetched = peer.fetched
        assert sorted(fetched) == sorted(expected), topic
        print(
            f"{topic:>16}: {written.records} records, "
            f"{written.per_s:,.0f}/s written in {written.seconds:.1f} s, {read.per_s:,.0f}/s read"
        )
