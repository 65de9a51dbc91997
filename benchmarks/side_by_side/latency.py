"""Delay from due to received: single records, at a fraction of each peer's capacity.

The capacity of a peer is the rate it acknowledges with 32 single records in flight and no reader,
so 90 % of it may be too much for one that also serves a reader: then the delay grows as long as the
turn lasts, and the table shows it. At `same` all get half of our capacity. `p99.9` is of the
records of all rounds together, and left out where these are fewer than a thousand.
"""

from collections.abc import Sequence

from benchmarks.harness import show
from benchmarks.peers.peer import Peer, values_of
from benchmarks.side_by_side.figures import P50, P99, P999, Workload, number, percentile, span
from benchmarks.side_by_side.lineup import JSON_PEER, Entry, Stand, stand
from benchmarks.side_by_side.run import IN_FLIGHT, Run, show_who, told
from benchmarks.side_by_side.throughput import without_floors

SIZE = 100
SHARES = {"10 %": 0.1, "50 %": 0.5, "90 %": 0.9}
SAME = "same"
LOADS = (*SHARES, SAME)
SAMPLES_FOR_P999 = 1000


def workload_of(load: str) -> Workload:
    return Workload(section="latency", size=SIZE, in_flight=IN_FLIGHT[1], load=load)


def latency(run: Run, loads: Sequence[str] = LOADS, entries: Sequence[Entry] | None = None) -> None:
    # A client that sends single records uses JSON, so Riacho takes part once.
    taking_part = [
        entry for entry in without_floors(entries or run.entries) if entry.key != "riacho-arrow"
    ]
    with stand(taking_part, run.absent, run.seconds) as standing:
        run.meet(standing.peers)
        standing.rest(run.seconds)
        capacities = measure_capacities(run, standing)
        for load in loads:
            names = run.meet(standing.peers)
            rates = rates_of(load, capacities)
            samples = rounds_of_latency(run, standing, workload_of(load), rates)
            show_latency(run, workload_of(load), names, rates, samples)
            run.write(workload_of(load), names, rate=rates, capacity=capacities)
        show_who(run, standing)


def measure_capacities(run: Run, standing: Stand) -> dict[str, float]:
    """Return how many single records a second each peer acknowledges."""
    values, capacities = values_of(SIZE), {}
    for peer in standing.peers:

        def closed_loop(peer: Peer = peer) -> float:
            peer.make("capacity")
            return peer.produce("capacity", values, 1, IN_FLIGHT[1], run.seconds).per_s

        per_s = standing.attempt(peer, closed_loop)
        if per_s is not None:
            capacities[peer.name] = per_s
    return capacities


def rates_of(load: str, capacities: dict[str, float]) -> dict[str, float]:
    """Return the rate of each peer, without those that `same` would overload."""
    if load != SAME:
        return {name: per_s * SHARES[load] for name, per_s in capacities.items()}
    rate = capacities.get(JSON_PEER, 0.0) / 2
    return {name: rate for name, per_s in capacities.items() if per_s > rate > 0}


def rounds_of_latency(
    run: Run, standing: Stand, workload: Workload, rates: dict[str, float]
) -> dict[str, list[float]]:
    """Return all delays, in seconds, by peer."""
    [value] = values_of(SIZE, 1)
    samples: dict[str, list[float]] = {name: [] for name in rates}
    for number_ in range(run.rounds):
        for peer in standing.turns(number_):
            if peer.name not in rates:
                continue

            def follow(peer: Peer = peer, topic: str = f"{workload.load}-{number_}") -> list[float]:
                topic = "latency-" + topic.replace(" %", "")
                peer.make(topic)
                return peer.delays(topic, value, rates[peer.name], run.seconds)

            delays = standing.attempt(peer, follow)
            if delays:
                samples[peer.name] += delays
                measures = {P50: percentile(delays, 50) * 1e3, P99: percentile(delays, 99) * 1e3}
                run.results.add(workload, peer.name, number_, measures)
    for name, delays in samples.items():
        if len(delays) >= SAMPLES_FOR_P999:
            run.results.add(workload, name, 0, {P999: percentile(delays, 99.9) * 1e3})
    return samples


def show_latency(
    run: Run,
    workload: Workload,
    names: Sequence[str],
    rates: dict[str, float],
    samples: dict[str, list[float]],
) -> None:
    rows = []
    for name in names:
        p50 = run.results.spread(workload, name, P50)
        p99 = run.results.spread(workload, name, P99)
        p999 = run.results.spread(workload, name, P999)
        if p50 is None or p99 is None:
            continue
        rows.append(
            [
                name,
                run.facts[name].durability,
                number(rates[name]),
                str(len(samples[name])),
                number(p50.median),
                span(p50),
                number(p99.median),
                number(p999.median) if p999 else "-",
                told(run.results.ratio(workload, JSON_PEER, name, P50)),
            ]
        )
    what = "half of our" if workload.load == SAME else f"{workload.load} of its own"
    columns = ["peer", "durability", "records/s", "records", "p50 ms", "least to most", "p99 ms"]
    show(
        f"End to end, single records of {SIZE} B at {what} capacity",
        [*columns, "p99.9 ms", "our p50 / its"],
        rows,
    )
