"""A gateway at three times its capacity, and how soon it recovers.

    python -m benchmarks.overload [--seconds 10] [--workers 1]

Load comes whether or not there are answers (`benchmarks.open_loop`). It is raised until latency or
refusals bend: that is the knee. Then three times as much is offered for a while, and then half of
the knee again, until requests are answered as before. Once with batches of 100 records of 1 KiB,
which a gateway refuses when it holds too many bytes, and once with single records. Every record
that was acknowledged is read afterwards.
"""

import argparse
import asyncio
import json
import sys
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import Server, gateway, request, show
from benchmarks.open_loop import Answer, OpenLoop, Step, accepted, find_knee, percentile_ms

TOPIC = "t"
TIMES = 3
RECOVERY_S_MAX = 60.0
JSON = "application/json"


@dataclass(frozen=True)
class Load:
    name: str
    records: int
    value_bytes: int
    first_rate: float

    def request(self, number: int) -> bytes:
        """Return a request whose values say which record of which request they are."""
        padding = "x" * self.value_bytes
        values = ",".join(f'{{"value":"{number}.{n}.{padding}"}}' for n in range(self.records))
        body = f'{{"records":[{values}]}}'.encode()
        path = f"/v1/topics/{TOPIC}/partitions/0/records"
        return request("POST", path, body, content_type=JSON)


LOADS = (Load("100 records of 1 KiB", 100, 1024, 20), Load("1 record of 200 bytes", 1, 200, 50))


@dataclass
class Memory:
    """Watches the memory of a gateway with all its workers."""

    server: Server
    samples_mib: list[float] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Memory":
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.samples_mib.append(rss_mib(self.server.process.pid))
            if self.stop.wait(0.2):
                return


def rss_mib(pid: int) -> float:
    """Return the memory of a process and its children."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return 0.0
    own = sum(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
    return own + sum(rss_mib(int(child)) for child in children)


def main(seconds: float, workers: int) -> int:
    problems = []
    for load in LOADS:
        with gateway(RIACHO_WORKERS=str(workers)) as server:
            problems += asyncio.run(overload(server, load, seconds))
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


async def overload(server: Server, load: Load, seconds: float) -> list[str]:
    create(server)
    loop = OpenLoop(server.port)
    seen: list[Answer] = []

    async def offer(rate: float, seconds: float) -> list[Answer]:
        answers = await loop.offer(rate, seconds, load.request, first=len(seen))
        seen.extend(answers)
        return answers

    await offer(load.first_rate, 2)  # Until it is warm.
    with Memory(server) as quiet:
        steps = await find_knee(offer, load.first_rate, seconds / 4)
    knee = steps[-2]
    with Memory(server) as busy:
        crowded = Step(TIMES * knee.rate, await offer(TIMES * knee.rate, seconds))
    before, after, recovery_s = await recover(offer, steps)
    await loop.close()
    report(load, knee, before, crowded, after, quiet, busy)
    lost = await asyncio.to_thread(lost_records, server, load, {a.number for a in accepted(seen)})
    print(f"recovered after {recovery_s:.1f} s; {lost} of {len(accepted(seen)):,} lost\n")
    found = [f"{load.name}: {lost} were acknowledged and are lost"] if lost else []
    odd = [answer for answer in seen if answer.status != 200 and not answer.is_refusal]
    found += [f"{load.name}: answered {each.status} {each.body[:200]!r}" for each in odd[:3]]
    if recovery_s > RECOVERY_S_MAX:
        found.append(f"{load.name}: not as before within {RECOVERY_S_MAX:.0f} s")
    return found


async def recover(
    offer: Callable[[float, float], Awaitable[list[Answer]]], steps: list[Step]
) -> tuple[Step, Step, float]:
    """Return a step before and one after at about half of the knee, and how long it took."""
    before = min(steps, key=lambda step: abs(step.rate - steps[-2].rate / 2))
    began_s = time.monotonic()
    while True:
        after = Step(before.rate, await offer(before.rate, 1.0))
        is_near = percentile_ms(after.answers, 50) < 2 * percentile_ms(before.answers, 50)
        took_s = time.monotonic() - began_s
        if (is_near and not after.refused) or took_s > 2 * RECOVERY_S_MAX:
            return before, after, took_s - 1.0


def report(
    load: Load,
    knee: Step,
    before: Step,
    crowded: Step,
    after: Step,
    quiet: Memory,
    busy: Memory,
) -> None:
    base_ms = percentile_ms(before.answers, 50)

    def row(name: str, step: Step) -> list[str]:
        return [
            name,
            f"{step.rate:,.0f}",
            f"{step.rate / knee.rate:.2f}",
            f"{step.accepted_per_s / knee.accepted_per_s:.2f}",
            f"{step.refused:.0%}",
            f"{percentile_ms(step.answers, 50) / base_ms:.1f}",
            f"{percentile_ms(step.answers, 99) / base_ms:.1f}",
        ]

    rows = [
        row("before", before),
        row("at the knee", knee),
        row(f"{TIMES} times the knee", crowded),
        row("afterwards", after),
    ]
    show(
        f"{load.name} a request; latencies of those accepted, against the median before",
        ["load", "offered/s", "/ knee", "accepted / knee", "refused", "p50", "p99"],
        rows,
    )
    most, usual = max(busy.samples_mib), max(quiet.samples_mib)
    print(f"memory: {most:.0f} MiB at most, {most / usual:.2f} × that up to the knee")


def create(server: Server) -> None:
    body = json.dumps({"name": TOPIC}).encode()
    call = urllib.request.Request(
        f"{server.url}/v1/topics", body, {"content-type": JSON}, method="POST"
    )
    urllib.request.urlopen(call, timeout=30).close()


def lost_records(server: Server, load: Load, numbers: set[int]) -> int:
    """Return how many of the accepted requests are not in the log, whole and once."""
    found: dict[int, int] = {}
    offset, end = 0, 1
    path = f"{server.url}/v1/topics/{TOPIC}/partitions/0/records?max_bytes=16000000&offset="
    while offset < end:
        with urllib.request.urlopen(f"{path}{offset}", timeout=60) as reply:
            page = json.load(reply)
        offset, end = page["next_offset"], page["high_watermark"]
        for record in page["records"]:
            number = int(record["value"].partition(".")[0])
            found[number] = found.get(number, 0) + 1
    return sum(found.get(number) != load.records for number in numbers)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10, help="how long the overload lasts")
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    sys.exit(main(arguments.seconds, arguments.workers))
