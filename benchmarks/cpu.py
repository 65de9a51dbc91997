"""CPU of the gateway for each MB that is produced, against its codec alone on the same bodies.

    python -m benchmarks.cpu [--seconds 2] [--rounds 5]

The codec is the least that any server must do: a body is decoded, checked, and encoded as slices,
in this process, by the functions that the gateway calls. It and the gateway take turns, some
rounds, and each ratio is of one round; shown are the median, the least and the most.
MB are those of keys and values. CPU is user and system time of the process, all its threads.

Where the rest goes, each measured separately in the same round:

- `write`: the slices into a new file, and a flush of it: the time to store them. On a
  virtual machine that gives free memory back to its host, new pages make this most of it.
- `log`: decoding and `Gateway.produce` on a directory and SQLite, without HTTP, less the codec. As
  many calls at a time as there are connections, so that they share flushes as over HTTP.
- `HTTP`: bodies of that size which are refused for their first byte: receiving, routing, answering.
- `rest`: the remainder of the gateway. Negative values are noise, or shared work.
"""

import argparse
import asyncio
import json
import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from benchmarks.harness import Connection, Server, gateway, request, show
from benchmarks.peers.peer import values_of
from service.http.bodies.produce import ARROW_STREAM, JSON, NDJSON, decode_produce
from service.log.gateway import Gateway
from service.process.stores import open_table, open_zones
from service.settings import Settings
from service.world.clock import World, real_world
from storage.formats import slices
from storage.formats.records import record_batch

CONNECTIONS = 4
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Case:
    name: str
    topic: str
    body: bytes
    media_type: str
    mb: float
    """Of keys and values in the body."""

    @property
    def path(self) -> str:
        return f"/v1/topics/{self.topic}/partitions/0/records"


@dataclass(frozen=True)
class Cpu:
    """Seconds of a process, or seconds for each MB."""

    user: float
    system: float

    @property
    def total(self) -> float:
        return self.user + self.system

    def since(self, before: "Cpu") -> "Cpu":
        return Cpu(self.user - before.user, self.system - before.system)

    def per(self, mb: float) -> "Cpu":
        return Cpu(self.user / mb, self.system / mb)


@dataclass(frozen=True)
class Round:
    """Seconds for each MB."""

    codec: Cpu
    write: Cpu
    log: Cpu
    http: Cpu
    whole: Cpu

    @property
    def ratio(self) -> float:
        return self.whole.total / self.codec.total

    @property
    def ratio_to_both(self) -> float:
        return self.whole.total / (self.codec.total + self.write.total)


def cases() -> list[Case]:
    found = []
    for size, name in ((100, "100 B"), (1024, "1 KiB")):
        values = values_of(size)
        for kind, count in (("JSON", 1000), ("NDJSON", 1000), ("Arrow", 10_000)):
            chosen = random.Random(count).choices(values, k=count)
            keys = [b"user-%06d" % number for number in range(count)]
            body, media_type = BODIES[kind](keys, chosen)
            mb = sum(map(len, keys + chosen)) / 1e6
            topic = f"{kind.lower()}-{size}"
            found.append(Case(f"{kind} {count:,}, {name}", topic, body, media_type, mb))
    return found


def json_of(keys: Sequence[bytes], values: Sequence[bytes]) -> tuple[bytes, str]:
    return json.dumps({"records": _documents(keys, values)}).encode(), JSON


def ndjson_of(keys: Sequence[bytes], values: Sequence[bytes]) -> tuple[bytes, str]:
    return "\n".join(map(json.dumps, _documents(keys, values))).encode(), NDJSON


def _documents(keys: Sequence[bytes], values: Sequence[bytes]) -> list[dict[str, str]]:
    pairs = zip(keys, values, strict=True)
    return [{"key": key.decode(), "value": value.decode()} for key, value in pairs]


def arrow_of(keys: Sequence[bytes], values: Sequence[bytes]) -> tuple[bytes, str]:
    batch = record_batch([0] * len(keys), list(keys), list(values))
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes(), ARROW_STREAM


BODIES = {"JSON": json_of, "NDJSON": ndjson_of, "Arrow": arrow_of}


# The measurements; each returns seconds of CPU for each MB.


def codec_alone(case: Case, world: World, seconds: float) -> Cpu:
    began, before, calls = time.perf_counter(), own_cpu(), 0
    while time.perf_counter() - began < seconds:
        batch = decode_produce(case.body, case.media_type, now_ms=world.now_ms()).batch
        slices.encode(slices.cut(batch, batch.nbytes), "lz4")
        calls += 1
    return own_cpu().since(before).per(calls * case.mb)


def write_alone(case: Case, folder: Path, seconds: float) -> Cpu:
    """Write what the codec makes of the body to new files, which stay until the end."""
    batch = decode_produce(case.body, case.media_type, now_ms=0).batch
    pieces = [piece.data for piece in slices.encode(slices.cut(batch, batch.nbytes), "lz4")]
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        began, before, calls = time.perf_counter(), own_cpu(), 0
        while time.perf_counter() - began < seconds:
            with (Path(inside) / str(calls)).open("wb", buffering=0) as file:
                os.writev(file.fileno(), pieces)
                os.fsync(file.fileno())
            calls += 1
        return own_cpu().since(before).per(calls * case.mb)


async def without_http(case: Case, inside: Gateway, seconds: float) -> Cpu:
    """Return the CPU of the codec and the log together."""

    async def call() -> None:
        now_ms = inside.world.now_ms()
        batch = decode_produce(case.body, case.media_type, now_ms=now_ms).batch
        await inside.produce(case.topic, batch, batch.nbytes, 0)

    await call()
    before = own_cpu()
    calls = await _repeated(call, seconds)
    return own_cpu().since(before).per(calls * case.mb)


async def _repeated(call: Callable[[], Awaitable[None]], seconds: float) -> int:
    """Make calls, as many at a time as there are connections; return how many."""
    began = time.perf_counter()

    async def work() -> int:
        calls = 0
        while time.perf_counter() - began < seconds:
            await call()
            calls += 1
        return calls

    return sum(await asyncio.gather(*(work() for _ in range(CONNECTIONS))))


def over_http(server: Server, call: bytes, status: int, mb: float, seconds: float) -> Cpu:
    before, began = cpu_of(server), time.perf_counter()

    def work(_: int) -> int:
        connection, calls = Connection(server.port), 0
        while time.perf_counter() - began < seconds:
            found, text = connection.call(call)
            assert found == status, (found, text[:300])
            calls += 1
        connection.close()
        return calls

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        calls = sum(pool.map(work, range(CONNECTIONS)))
    return cpu_of(server).since(before).per(calls * mb)


def own_cpu() -> Cpu:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return Cpu(usage.ru_utime, usage.ru_stime)


def cpu_of(server: Server) -> Cpu:
    text = Path(f"/proc/{server.process.pid}/stat").read_text()
    fields = text.rsplit(")", 1)[1].split()
    return Cpu(int(fields[11]) * TICK_S, int(fields[12]) * TICK_S)


async def one_round(
    case: Case, server: Server, inside: Gateway, folder: Path, seconds: float
) -> Round:
    codec = codec_alone(case, inside.world, seconds / 2)
    write = await asyncio.to_thread(write_alone, case, folder, seconds / 2)
    post = request("POST", case.path, case.body, content_type=case.media_type)
    whole = await asyncio.to_thread(over_http, server, post, 200, case.mb, seconds)
    log = await without_http(case, inside, seconds)
    refused = request("POST", case.path, b"!" * len(case.body), content_type=JSON)
    http = await asyncio.to_thread(over_http, server, refused, 400, case.mb, seconds / 2)
    return Round(codec, write, log, http, whole)


async def measured(server: Server, rounds: int, seconds: float) -> list[list[str]]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="riacho-bench-") as folder:
        settings, world = Settings(data=Path(folder)), real_world()
        inside = Gateway(settings, open_zones(settings), open_table(settings, world), world)
        for case in cases():
            await inside.topics.create(case.topic)
            await asyncio.to_thread(make, server, case.topic)
            place = Path(folder)
            await one_round(case, server, inside, place, seconds / 4)  # A warm-up.
            turns = [one_round(case, server, inside, place, seconds) for _ in range(rounds)]
            found = [await turn for turn in turns]
            rows.append(row_of(case, found))
        await inside.aclose()
    return rows


def make(server: Server, topic: str) -> None:
    connection = Connection(server.port)
    body = json.dumps({"name": topic}).encode()
    status, text = connection.call(request("POST", "/v1/topics", body, content_type=JSON))
    assert status == 201, text
    connection.close()


def row_of(case: Case, rounds: Sequence[Round]) -> list[str]:
    def ms(pick: Callable[[Round], float]) -> str:
        return f"{statistics.median(map(pick, rounds)) * 1000:.2f}"

    ratios = sorted(each.ratio for each in rounds)
    return [
        case.name,
        ms(lambda each: each.codec.total),
        ms(lambda each: each.whole.total),
        f"{statistics.median(ratios):.2f}",
        f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
        ms(lambda each: each.write.total),
        f"{statistics.median(each.ratio_to_both for each in rounds):.2f}",
        ms(lambda each: each.log.total - each.codec.total),
        ms(lambda each: each.http.total),
        ms(lambda each: each.whole.total - each.log.total - each.http.total),
        ms(lambda each: each.whole.system),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with gateway() as server:
        rows = asyncio.run(measured(server, given.rounds, given.seconds))
    show(
        f"CPU ms for each MB produced, {CONNECTIONS} connections, one partition, acks=all",
        [
            *("body", "codec", "gateway", "ratio", "spread", "write", "to both"),
            *("of it: log", "HTTP", "rest", "system time"),
        ],
        rows,
    )


if __name__ == "__main__":
    main()
