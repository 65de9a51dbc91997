"""Produce, fetch from the beginning on (catch-up), and both with several partitions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.peers.peer import Peer, values_of
from benchmarks.side_by_side.figures import CPU, RATE, Workload
from benchmarks.side_by_side.lineup import FLOORS, Entry, Stand, stand
from benchmarks.side_by_side.run import IN_FLIGHT, Run, show_throughput, show_who

SIZES = (100, 1024)
BATCHES = (1, 100, 1000, 10_000)
PARTITIONS = (1, 10, 1000)
FLOOR_SHARE = 0.25
"""Floors do the same all the time, so a part of a turn is enough for them."""
FILL_BATCH = 1000
FILL_TURNS = 1.5
"""The log to read is filled for this many turns."""
FETCH_SHARE = 0.5
"""Fraction of a turn: reading waits for no disk, so it varies less."""
FIRST_READ = 100
FIRST_READ_SHARE = 0.1
"""Fraction of a turn: minimum length of the read that the others are planned from. A shorter one
would mostly measure the start."""
FETCH_LEFT_SHARE = 0.2
"""Fraction of a turn: with less left, no further read is started."""


def produce(
    run: Run,
    sizes: Sequence[int] = SIZES,
    batches: Sequence[int] = BATCHES,
    entries: Sequence[Entry] | None = None,
) -> None:
    for size in sizes:
        workloads = [
            Workload(section="produce", size=size, batch=batch, in_flight=IN_FLIGHT[batch])
            for batch in batches
        ]
        with stand(entries or run.entries, run.absent, run.seconds) as standing:
            run.meet(standing.peers)
            standing.rest(run.seconds)
            for workload in workloads:
                names = run.meet(standing.peers)
                rounds_of_produce(run, standing, workload)
                title = f"Produce {size} B records, {workload.batch:,} a batch"
                show_throughput(run, workload, names, _with_flight(title, workload))
                run.write(workload, names)
            show_who(run, standing)


def rounds_of_produce(run: Run, standing: Stand, workload: Workload) -> None:
    values = values_of(workload.size)
    floors = {entry.key for entry in FLOORS}
    for number in range(run.rounds):
        for peer in standing.turns(number):
            share = FLOOR_SHARE if standing.key_of(peer) in floors else 1.0
            turn = ProduceTurn(workload, values, number, run.seconds * share)
            measures = standing.attempt(peer, partial(turn.take, peer))
            if measures is not None:
                run.results.add(workload, peer.name, number, measures)


@dataclass(frozen=True, slots=True)
class ProduceTurn:
    workload: Workload
    values: Sequence[bytes]
    number: int
    seconds: float

    def take(self, peer: Peer) -> dict[str, float]:
        workload = self.workload
        parts = (workload.section, workload.size, workload.batch, workload.partitions, self.number)
        topic = "-".join(map(str, parts))
        peer.make(topic, workload.partitions)
        cpu_s = peer.cpu_s()
        rate = peer.produce(topic, self.values, workload.batch, workload.in_flight, self.seconds)
        return measures_of(rate.records, rate.seconds, workload.size, peer.cpu_s() - cpu_s)


def fetch(
    run: Run,
    sizes: Sequence[int] = SIZES,
    batches: Sequence[int] = BATCHES,
    entries: Sequence[Entry] | None = None,
) -> None:
    for size in sizes:
        with stand(without_floors(entries or run.entries), run.absent, run.seconds) as standing:
            run.meet(standing.peers)
            standing.rest(run.seconds)
            filled = fill_all(run, standing, f"fetch-{size}", size, 1)
            for batch in batches:
                workload = Workload(section="fetch", size=size, batch=batch)
                names = run.meet(standing.peers)
                rounds_of_fetch(run, standing, workload, f"fetch-{size}", filled)
                title = f"Fetch {size} B records from the beginning on, up to {batch:,} at once"
                show_throughput(run, workload, names, title)
                run.write(workload, names)
            show_who(run, standing)


def rounds_of_fetch(
    run: Run, standing: Stand, workload: Workload, topic: str, filled: dict[str, int]
) -> None:
    for number in range(run.rounds):
        for peer in standing.turns(number):
            turn = FetchTurn(workload, topic, filled[peer.name], run.seconds * FETCH_SHARE)
            measures = standing.attempt(peer, partial(turn.take, peer))
            if measures is not None:
                run.results.add(workload, peer.name, number, measures)


def fill_all(run: Run, standing: Stand, topic: str, size: int, partitions: int) -> dict[str, int]:
    """Write a log to be read, and return how many records each peer has."""
    values, filled = values_of(size), {}
    for peer in standing.peers:

        def fill(peer: Peer = peer) -> int:
            peer.make(topic, partitions)
            seconds = run.seconds * FILL_TURNS
            return peer.produce(topic, values, FILL_BATCH, IN_FLIGHT[FILL_BATCH], seconds).records

        records = standing.attempt(peer, fill)
        if records is not None:
            filled[peer.name] = records
    return filled


@dataclass(frozen=True, slots=True)
class FetchTurn:
    """Reads the log again and again, a part of it if all would take too long."""

    workload: Workload
    topic: str
    filled: int
    seconds: float

    def take(self, peer: Peer) -> dict[str, float]:
        # The speed must be known before the number of records that fills the time.
        first = min(self.filled, FIRST_READ)
        rate = peer.fetch(self.topic, first, self.workload.batch)
        while rate.seconds < self.seconds * FIRST_READ_SHARE and first < self.filled:
            first = min(self.filled, first * 8)
            rate = peer.fetch(self.topic, first, self.workload.batch)
        records, spent_s, cpu_s = 0, 0.0, peer.cpu_s()
        while spent_s < self.seconds * (1 - FETCH_LEFT_SHARE):
            wanted = int(rate.per_s * (self.seconds - spent_s))
            rate = peer.fetch(self.topic, max(1, min(self.filled, wanted)), self.workload.batch)
            records += rate.records
            spent_s += rate.seconds
        return measures_of(records, spent_s, self.workload.size, peer.cpu_s() - cpu_s)


def partitions(run: Run) -> None:
    """Produce to, and fetch from, topics with more and more partitions."""
    wanted = ("riacho-", "kafka")
    entries = [entry for entry in run.entries if entry.key.startswith(wanted)]
    with stand(entries, run.absent, run.seconds) as standing:
        run.meet(standing.peers)
        for count in PARTITIONS:
            many = Workload(
                section="partitions", size=100, batch=1000, partitions=count, in_flight=4
            )
            names = run.meet(standing.peers)
            rounds_of_produce(run, standing, many)
            what = f"{count:,} partitions" if count > 1 else "1 partition"
            title = f"Produce 100 B records, 1,000 a batch, to {what}"
            show_throughput(run, many, names, _with_flight(title, many))
            run.write(many, names)
        show_who(run, standing)


def measures_of(records: int, seconds: float, size: int, cpu_s: float) -> dict[str, float]:
    if records == 0:
        raise RuntimeError(f"not one record in {seconds:.1f} s")
    return {RATE: records / seconds, CPU: cpu_s / (records * size / 1e6)}


def without_floors(entries: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry not in FLOORS]


def _with_flight(title: str, workload: Workload) -> str:
    return f"{title}; up to {workload.in_flight} batches wait for their acknowledgement"
