"""One run: its options, its measurements so far, and its output."""

import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.harness import show
from benchmarks.peers.peer import Peer
from benchmarks.side_by_side.figures import CPU, RATE, Results, Spread, Workload, number, span
from benchmarks.side_by_side.lineup import ARROW_PEER, JSON_PEER, Entry, Stand

IN_FLIGHT = {1: 32, 100: 8, 1000: 4, 10_000: 2}
"""Maximum unacknowledged batches, the same for all peers."""
IDLE_TOLD = 0.02
"""Processor seconds a second, from which on an idle server is mentioned."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The description of a peer in a table."""

    name: str
    durability: str
    about: str


@dataclass
class Run:
    rounds: int
    seconds: float
    entries: tuple[Entry, ...]
    sink: Path | None = None
    results: Results = field(default_factory=Results)
    absent: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Facts] = field(default_factory=dict)

    def meet(self, peers: Sequence[Peer]) -> list[str]:
        """Note the peers that take part, and return their names."""
        for peer in peers:
            self.facts[peer.name] = Facts(peer.name, peer.durability, peer.about())
        return [peer.name for peer in peers]

    def write(self, workload: Workload, names: Sequence[str], **more: Any) -> None:
        """Append a line of JSON for each peer that was measured."""
        self.append(
            self._document(workload, name)
            | {key: value[name] for key, value in more.items() if name in value}
            for name in names
            if self.results.has(workload, name)
        )

    def append(self, documents: Iterable[dict[str, Any]]) -> None:
        if self.sink is not None:
            with self.sink.open("a") as lines:
                for document in documents:
                    lines.write(json.dumps(document | machine()) + "\n")

    def _document(self, workload: Workload, name: str) -> dict[str, Any]:
        facts = self.facts[name]
        measures = self.results.measures(workload, name)
        spreads = {measure: self.results.spread(workload, name, measure) for measure in measures}
        return {
            "benchmark": "side_by_side",
            "section": workload.section,
            "peer": name,
            "size": workload.size,
            "batch": workload.batch,
            "partitions": workload.partitions,
            "in_flight": workload.in_flight,
            "load": workload.load,
            "durability": facts.durability,
            "about": facts.about,
            "seconds": self.seconds,
            "measures": {
                measure: spread.document() for measure, spread in spreads.items() if spread
            },
        }


def machine() -> dict[str, Any]:
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def show_throughput(run: Run, workload: Workload, names: Sequence[str], title: str) -> None:
    rows = []
    for name in names:
        rate = run.results.spread(workload, name, RATE)
        if rate is None:
            continue
        cpu = run.results.spread(workload, name, CPU)
        rows.append(
            [
                name,
                run.facts[name].durability,
                number(rate.median),
                span(rate),
                number(rate.median * workload.size / 1e6),
                number(cpu.median * 1000) if cpu else "-",
                told(run.results.ratio(workload, JSON_PEER, name, RATE)),
                told(run.results.ratio(workload, ARROW_PEER, name, RATE)),
            ]
        )
    columns = ["peer", "durability", "records/s", "least to most", "MB/s", "CPU ms/MB"]
    show(title, [*columns, "JSON / it", "Arrow / it"], rows)


def told(ratio: Spread | None) -> str:
    return "-" if ratio is None else f"{number(ratio.median)} ×"


def show_who(run: Run, stand: Stand) -> None:
    """Print the peers, the missing ones, and those that use the processor while idle."""
    for peer in stand.peers:
        idle = stand.idle.get(peer.name, 0.0)
        resting = f"; {idle * 100:.0f} % of a core while idle" if idle >= IDLE_TOLD else ""
        print(f"  {peer.name} ({peer.durability}): {peer.about()}{resting}")
    show_absent(run)


def show_absent(run: Run) -> None:
    for name, why in run.absent.items():
        print(f"  NOT measured: {name}: {why}")
