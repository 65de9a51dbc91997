"""Compaction: how fast, how it grows, what memory it takes, and what a fetch reads afterwards.

    python -m benchmarks.compaction [--records 1000000,5000000] [--spark]

A gateway writes records of 100 B to a directory, 4 partitions. Then `riacho compact` runs as users
run it, a separate process on two cores; its own clock counts from the plan to the last swap, so
starting Python (or Spark) is left out. `merge` keeps every record; `keyed` is a compacted topic in
which each key was written ten times; `keyed, all stay` one in which no key comes twice. The ratio
is to the first row: what grows linearly stays at 1. In the end random fetches of one record are
made through a reader without any cache of rows, and row groups are counted.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Connection, Server, gateway, request, show
from riacho import Admin
from service.process.stores import open_table, open_zones
from service.settings import Settings
from service.world.clock import real_world
from storage import keys
from storage.formats.records import RECORD_SCHEMA
from storage.head import head as heads
from storage.reading.catalog import Catalog
from storage.reading.fetched import Budget
from storage.reading.reader import LogReader
from storage.stores.objects import ObjectStore
from storage.topics.topics import Topics
from storage.zones.zones import Zones

RECORDS = "1000000,5000000"
BATCH = 50_000
PARTITIONS = 4
FETCHES = 200
VALUE_BYTES = 100


@dataclass(frozen=True)
class Kind:
    name: str
    policy: str
    repeats: int
    """How often each key is written."""


KINDS = (
    Kind("merge", "delete", 10),
    Kind("keyed", "compact", 10),
    Kind("keyed, all stay", "compact", 1),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", default=RECORDS)
    parser.add_argument("--spark", action=argparse.BooleanOptionalAction, default=False)
    given = parser.parse_args()
    counts = [int(part) for part in given.records.split(",")]
    for kind in KINDS:
        rows: list[list[str]] = []
        first: float | None = None
        for count in counts:
            for engine in ["--no-spark", *(["--spark"] if given.spark else [])]:
                done = measure(kind, count, engine)
                first = first or done.rate
                rows.append(done.row(first))
        show(
            f"compaction, {kind.name}, records of {VALUE_BYTES} B",
            [
                *("records", "left", "s", "M records/s", "ratio"),
                *("MiB in", "MiB out", "peak MiB", "row groups/fetch"),
            ],
            rows,
        )


@dataclass(frozen=True)
class Done:
    name: str
    document: dict[str, Any]
    peak_mib: float
    row_groups: float

    @property
    def rate(self) -> float:
        return float(self.document["records_in"] / max(self.document["seconds"], 1e-9))

    def row(self, first: float) -> list[str]:
        found = self.document
        return [
            self.name,
            f"{found['records_out']:,}",
            f"{found['seconds']:.2f}",
            f"{self.rate / 1e6:.2f}",
            f"{self.rate / first:.2f}",
            f"{found['bytes_in'] / 2**20:.0f}",
            f"{found['bytes_out'] / 2**20:.0f}",
            f"{self.peak_mib:.0f}",
            f"{self.row_groups:.2f}",
        ]


def measure(kind: Kind, count: int, engine: str) -> Done:
    with gateway() as server:
        fill(server, kind, count)
        document, peak_mib = compact(server.data, engine)
        row_groups = asyncio.run(row_groups_read(server.data, kind))
    assert document["ok"], document
    assert document["records_in"] == count, document
    assert document["records_out"] == count if kind.policy == "delete" else True
    name = f"{count:,}" + (" in Spark" if engine == "--spark" else "")
    return Done(name, document, peak_mib, row_groups)


def fill(server: Server, kind: Kind, count: int) -> None:
    config = {"cleanup.policy": kind.policy, "min.cleanable.dirty.ratio": "0"}
    with Admin(server.url) as admin:
        admin.create_topic("bench", partitions=PARTITIONS, config=config)
    dice = np.random.default_rng(count)
    connection = Connection(server.port)
    for start in range(0, count, BATCH):
        partition = start // BATCH % PARTITIONS
        body = stream_of(dice, start, min(BATCH, count - start), count // kind.repeats)
        path = f"/v1/topics/bench/partitions/{partition}/records"
        call = request("POST", path, body, content_type="application/vnd.apache.arrow.stream")
        status, answer = connection.call(call)
        assert status == 200, answer
    connection.close()


def stream_of(dice: np.random.Generator, start: int, count: int, key_count: int) -> bytes:
    if key_count > 10 * count or key_count > start:
        numbers = np.arange(start, start + count) % key_count
    else:
        numbers = dice.integers(0, key_count, count)
    texts = np.char.add("user-", np.char.zfill(numbers.astype(str), 9)).astype(f"S{14}")
    # Half of a value is chance, half of it is not: about as JSON compresses.
    noise = dice.integers(97, 123, (count, VALUE_BYTES), dtype=np.uint8)
    noise[:, ::2] = ord("e")
    values = noise.view(f"S{VALUE_BYTES}").ravel()
    stamps = np.arange(start, start + count, dtype=np.int64) + 1_700_000_000_000
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(stamps),
            pa.array(texts.tolist(), pa.binary()),
            pa.array(values.tolist(), pa.binary()),
            pa.nulls(count, RECORD_SCHEMA.field("headers").type),
        ],
        schema=RECORD_SCHEMA,
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, RECORD_SCHEMA) as writer:
        writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def compact(data: Path, engine: str) -> tuple[dict[str, Any], float]:
    """Return what `riacho compact` says, and the memory of its largest process in MiB."""
    command = [sys.executable, "-m", "riacho", "compact", "bench", engine, "-o", "json"]
    with tempfile.TemporaryFile() as out:
        env = {**os.environ, "RIACHO_DATA": str(data)}
        process = subprocess.Popen([*command, "--concurrency", "2"], stdout=out, env=env)
        _, status, usage = os.wait4(process.pid, 0)
        out.seek(0)
        text = out.read()
    assert os.waitstatus_to_exitcode(status) == 0, text
    document: dict[str, Any] = json.loads(text)
    return document, usage.ru_maxrss / 1024


class Counted:
    """An object store that counts the ranges of compacted segments that are asked for."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.ranges = 0

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.ranges += len(ranges) if key.endswith(".parquet") else 0
        return await self._inner.get_ranges(key, ranges)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def row_groups_read(data: Path, kind: Kind) -> float:
    """Return how many row groups a fetch of one record at a random offset reads on average."""
    world, settings = real_world(), Settings(data=data)
    zones, table = open_zones(settings), open_table(settings, world)
    [name] = zones.names
    counted = Counted(zones.store(name))
    topics = Topics(table, zones.names, world.new_id, world.now_ms, world.monotonic_s)
    topic = await topics.read("bench")
    item = await table.get(keys.head(topic.topic_id, 0))
    assert item is not None
    head = heads.decode(item.value)
    watched = Zones({name: counted})  # type: ignore[dict-item]
    catalog = Catalog(watched, world.new_id, 1 << 28)
    dice = random.Random(7)
    one = Budget(records_max=1, bytes_max=1 << 20)
    for partition in range(PARTITIONS):
        # Footers are an index, and cached like one.
        for segment in (await catalog.segment_list(head, partition)).segments:
            await catalog.footer(head, segment)
    counted.ranges = 0
    for _ in range(FETCHES):
        partition = dice.randrange(PARTITIONS)
        offset = dice.randrange(head.next_offsets[partition])
        reader = LogReader(watched, catalog, 0)
        await reader.fetch(head, partition, offset, one)
    await table.close()
    await zones.close()
    return counted.ranges / FETCHES


if __name__ == "__main__":
    main()
