"""The targets, and whether they are met. A missed one is reported like the others."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness import show
from benchmarks.side_by_side import fan_out, latency, throughput
from benchmarks.side_by_side.figures import CPU, P50, RATE, Results, Spread, Workload, number, span
from benchmarks.side_by_side.lineup import ARROW_PEER, JSON_PEER, Entry, chosen, reason
from benchmarks.side_by_side.run import IN_FLIGHT, Run, show_absent

BATCHES = (1000, 10_000)
BRIDGE, KAFKA, KAFKA_SYNCED, NATS = "HTTP bridge, Kafka", "Kafka", "Kafka, synced", "NATS JetStream"
JSON_CODEC, ARROW_CODEC = "floor: codec alone, JSON", "floor: codec alone, Arrow"
AT_LEAST, AT_MOST = "≥", "≤"
SAME_GATEWAY, APART = "at one gateway", "at another than writes"
FAN_OUT = "store reads per slice, 50 tails"


@dataclass(frozen=True, slots=True)
class Target:
    what: str
    against: str
    relation: str
    bound: float
    measured: Spread | None

    @property
    def is_met(self) -> bool | None:
        """None if it was not measured."""
        if self.measured is None:
            return None
        if self.relation == AT_LEAST:
            return self.measured.median >= self.bound
        return self.measured.median <= self.bound

    @property
    def verdict(self) -> str:
        return {True: "met", False: "NOT met", None: "not measured"}[self.is_met]

    def row(self) -> list[str]:
        measured = (
            [number(self.measured.median), span(self.measured)] if self.measured else ["-"] * 2
        )
        return [self.what, self.against, f"{self.relation} {self.bound:g}", *measured, self.verdict]


def ratios(
    results: Results,
    workloads: Sequence[tuple[str, Workload]],
    ours: str,
    theirs: str,
    measure: str,
) -> list[tuple[str, Spread | None]]:
    return [(text, results.ratio(workload, ours, theirs, measure)) for text, workload in workloads]


def targets_of(results: Results, reads: dict[str, Spread]) -> list[Target]:
    """Return every target, for every workload it is measured with."""
    produce, fetch = of_batches("produce"), of_batches("fetch")
    half = [(f"at {load} load", latency.workload_of(load)) for load in ("50 %", latency.SAME)]
    wanted = [
        ("JSON produce", JSON_PEER, BRIDGE, RATE, AT_LEAST, 5.0, produce),
        ("Arrow produce", ARROW_PEER, KAFKA, RATE, AT_LEAST, 1.0, produce),
        ("Arrow produce", ARROW_PEER, KAFKA_SYNCED, RATE, AT_LEAST, 1.0, produce),
        ("Arrow fetch", ARROW_PEER, KAFKA, RATE, AT_LEAST, 2.0, fetch),
        ("end to end p50", JSON_PEER, NATS, P50, AT_MOST, 2.0, half),
        ("CPU per MB, JSON produce", JSON_PEER, JSON_CODEC, CPU, AT_MOST, 2.0, produce),
        ("CPU per MB, Arrow produce", ARROW_PEER, ARROW_CODEC, CPU, AT_MOST, 2.0, produce),
    ]
    found = [
        Target(f"{what} {text}", theirs, relation, bound, ratio)
        for what, ours, theirs, measure, relation, bound, workloads in wanted
        for text, ratio in ratios(results, workloads, ours, theirs, measure)
    ]
    return found + [
        Target(FAN_OUT, where, AT_MOST, 1.2, reads.get(where)) for where in (SAME_GATEWAY, APART)
    ]


def of_batches(section: str) -> list[tuple[str, Workload]]:
    flights = IN_FLIGHT if section == "produce" else {}
    return [
        (
            f"{size} B × {batch:,}",
            Workload(section=section, size=size, batch=batch, in_flight=flights.get(batch, 0)),
        )
        for size in throughput.SIZES
        for batch in BATCHES
    ]


def targets(run: Run) -> None:
    """Measure targets that are not measured yet, and show all."""
    here = {entry.key for entry in run.entries}

    def among(*keys: str) -> list[Entry]:
        return [entry for entry in chosen(keys) if entry.key in here and entry.key in keys]

    if not any(run.results.has(workload, ARROW_PEER) for _, workload in of_batches("produce")):
        peers = among(
            "riacho-json",
            "riacho-arrow",
            "kafka",
            "kafka-synced",
            "bridge",
            "codec-json",
            "codec-arrow",
        )
        throughput.produce(run, batches=BATCHES, entries=peers)
    if not any(run.results.has(workload, ARROW_PEER) for _, workload in of_batches("fetch")):
        throughput.fetch(run, batches=BATCHES, entries=among("riacho-arrow", "kafka"))
    if not run.results.has(latency.workload_of("50 %"), JSON_PEER):
        latency.latency(run, ("50 %", latency.SAME), among("riacho-json", "nats"))
    found = targets_of(run.results, measure_fan_out(run))
    columns = ["target", "against", "wanted", "measured", "least to most", ""]
    show("Targets", columns, [target.row() for target in found])
    show_absent(run)
    write(run, found)


def measure_fan_out(run: Run) -> dict[str, Spread]:
    reads: dict[str, Spread] = {}
    for where, apart in ((SAME_GATEWAY, False), (APART, True)):
        try:
            rounds = [fan_out.reads_per_slice(apart=apart) for _ in range(run.rounds)]
            reads[where] = Spread(tuple(rounds))
        except Exception as error:  # noqa: BLE001 - shown with the targets, which are printed anyway.
            run.absent[f"fan-out {where}"] = reason(error)
    return reads


def write(run: Run, found: Sequence[Target]) -> None:
    run.append(
        {
            "benchmark": "side_by_side",
            "section": "targets",
            "what": target.what,
            "against": target.against,
            "wanted": f"{target.relation} {target.bound:g}",
            "verdict": target.verdict,
            **(target.measured.document() if target.measured else {}),
        }
        for target in found
    )
