"""Half an hour of everything at once against one embedded gateway: does anything grow?

    python -m benchmarks.soak [--minutes 30] [--rate 100]

Produce, fetches, tails, a group whose members join and leave, transactions, topics and producers
that are created and dropped, and maintenance (retention, compaction, sweep) every two minutes, all
at a steady pace. `--rate` is produce requests per second; `benchmarks.overload` measures the knee,
of which about half is right on an otherwise idle machine.

Samples are compared by quarters: the first is for caches to fill, the second is the reference. A
moment after all actors have stopped, the gateway must have no more open files and tasks than after
a first minute of the same: those belong to no client. Ends with 1 if memory grew by more than 5 %
from the second quarter to the last, or if there are more open files, threads or tasks at rest than
there were; else with 0.
"""

import argparse
import statistics
import sys
import time
import urllib.request
from dataclasses import dataclass, fields
from pathlib import Path

from benchmarks.harness import Server, gateway, show
from benchmarks.soak_actors import Crew

SAMPLE_S = 5.0
RSS_GROWTH_MAX = 1.05
SPARE_MAX = 2
"""Tolerated difference at rest, caused by background work of the gateway."""

WARM_S = 60.0
REST_S = 8.0
"""Idle connections are closed after 5 seconds."""

MIB = 1024 * 1024
ENV = {
    "RIACHO_MAINTAIN_EVERY": "2m",
    # Full within the first quarter, also when it is a short one.
    "RIACHO_SLICE_CACHE_BYTES": str(16 * MIB),
    "RIACHO_INDEX_CACHE_BYTES": str(8 * MIB),
}


@dataclass(frozen=True)
class Sample:
    rss_mib: float
    files: int
    threads: int
    tasks: int
    table_mib: float
    wal_mib: float
    data_mib: float


def sample(server: Server) -> Sample:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return Sample(
        rss_mib=int(lines["VmRSS"].split()[0]) / 1024,
        files=len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())),
        threads=int(lines["Threads"]),
        tasks=tasks(server),
        table_mib=size_bytes(server.data / "metadata.db") / MIB,
        wal_mib=size_bytes(server.data / "metadata.db-wal") / MIB,
        data_mib=sum(map(size_bytes, (server.data / "zones").rglob("*"))) / MIB,
    )


def tasks(server: Server) -> int:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as reply:
        lines = reply.read().decode().splitlines()
    return int(float(next(line for line in lines if line.startswith("riacho_tasks ")).split()[1]))


def size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def main(minutes: float, rate: float) -> int:
    seconds = minutes * 60
    with gateway(**ENV) as server:
        crew = Crew(server.port, rate)
        crew.prepare()
        watch(server, crew, min(WARM_S, seconds / 10))
        early = at_rest(server)
        before = server.cpu_s()
        samples = watch(server, crew, seconds)
        cores = (server.cpu_s() - before) / seconds
        late = at_rest(server)
    quarters = [samples[len(samples) * n // 4 : len(samples) * (n + 1) // 4] for n in range(4)]
    report(quarters, crew, seconds)
    print(f"{sum(map(len, crew.took.values())):,} timed calls, {cores:.2f} cores of the gateway")
    print(f"at rest, early: {early}\nat rest, late:  {late}")
    problems = [*growth(quarters[1], quarters[3]), *left(early, late), *crew.problems]
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


def watch(server: Server, crew: Crew, seconds: float) -> list[Sample]:
    """Run all actors for this long, and sample the gateway meanwhile."""
    samples = []
    with crew.working() as stop:
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0 and not stop.is_set():
            samples.append(sample(server))
            if sys.stderr.isatty():
                print(f"\r{left_s:6.0f} s to go, {samples[-1]}", end="", file=sys.stderr)
            stop.wait(min(SAMPLE_S, left_s))
    return samples


def at_rest(server: Server) -> Sample:
    """Return how the gateway is when it has noticed that all have left."""
    time.sleep(REST_S)
    return sample(server)


def growth(before: list[Sample], after: list[Sample]) -> list[str]:
    was, now = typical(before, "rss_mib"), typical(after, "rss_mib")
    return [f"memory grew from {was:.0f} to {now:.0f} MiB"] if now > was * RSS_GROWTH_MAX else []


def left(early: Sample, late: Sample) -> list[str]:
    """Return the files and tasks that remain after the actors have stopped."""
    return [
        f"at rest there are {getattr(late, name)} {name}, and were {getattr(early, name)}"
        for name in ("files", "threads", "tasks")
        if getattr(late, name) > getattr(early, name) + SPARE_MAX
    ]


def typical(samples: list[Sample], name: str) -> float:
    return float(statistics.median(getattr(each, name) for each in samples))


def report(quarters: list[list[Sample]], crew: Crew, seconds: float) -> None:
    rows = []
    for field in fields(Sample):
        of = [typical(quarter, field.name) for quarter in quarters]
        ratio = f"{of[3] / of[1]:.2f}" if of[1] else ""
        rows.append([field.name.replace("_", " "), *(f"{each:,.1f}" for each in of), ratio])
    for name, took in crew.took.items():
        parts = [
            [took_ms for at_s, took_ms in took if n <= 4 * at_s / seconds < n + 1] for n in range(4)
        ]
        for percent in (50, 99):
            of = [percentile(part, percent) for part in parts]
            ratio = f"{of[3] / of[1]:.2f}" if of[1] else ""
            rows.append([f"{name} p{percent} ms", *(f"{each:.2f}" for each in of), ratio])
    columns = ["median of a quarter", "first", "second", "third", "last", "last / second"]
    show(f"{seconds / 60:g} minutes of everything", columns, rows)


def percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1] if len(values) > 1 else 0.0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=float, default=100, help="produce requests per second")
    arguments = parser.parse_args()
    sys.exit(main(arguments.minutes, arguments.rate))
