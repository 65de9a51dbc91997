"""The Spark data source: how fast a task reads, alone and inside Spark.

    python -m benchmarks.spark_source [--no-spark] [--records N]

A gateway writes records of 100 B to a directory; tasks read them past it. Without Spark the rates
are records per second of CPU of one process, best of some rounds, so that neighbours on the
machine disturb little; the ratio is to decoding the same slices and nothing else. Then a Spark
session of two cores reads the same topic into nothing; those are wall times, less what a job
takes that reads one record of each partition.
"""

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from benchmarks.harness import Connection, Server, gateway, request, show
from riacho import Admin
from riacho.spark.read.direct import Direct
from riacho.spark.read.ranges import groups, url_of
from riacho.spark.read.reading import RiachoReader, SpanPartition
from storage.formats.records import RECORD_SCHEMA, record_batch
from storage.formats.slices import SCHEMA_MESSAGE

RECORDS = 2_000_000
BATCH = 50_000
PARTITIONS = 4
ROUNDS = 5
TOPIC = "bench"
DDL = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "integer",
    "offset": "long",
    "timestamp": "timestamp",
    "timestampType": "integer",
}


@dataclass(frozen=True)
class Rate:
    name: str
    per_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spark", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--records", type=int, default=RECORDS)
    given = parser.parse_args()
    for codec in ("lz4", "zstd"):
        with gateway() as server:
            fill(server, given.records, codec)
            rates = alone(server, given.records)
            if given.spark:
                rates += in_spark(server, given.records)
        show(
            f"data source, {given.records:,} records of 100 B, {codec}",
            ["read", "M records/s", "ratio"],
            [[r.name, f"{r.per_s / 1e6:.2f}", f"{r.per_s / rates[0].per_s:.2f}"] for r in rates],
        )


def fill(server: Server, count: int, codec: str) -> None:
    with Admin(server.url) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS, config={"compression.type": codec})
    connection = Connection(server.port)
    for start in range(0, count, BATCH):
        path = f"/v1/topics/{TOPIC}/partitions/{start // BATCH % PARTITIONS}/records"
        body = stream_of(start, min(BATCH, count - start))
        status, answer = connection.call(
            request("POST", path, body, content_type="application/vnd.apache.arrow.stream")
        )
        assert status == 200, answer
    connection.close()


def stream_of(start: int, count: int) -> bytes:
    dice = random.Random(start)
    words = ["alpha", "beta", "gamma", "delta", "stream", "river", "record"]
    texts = [" ".join(f"{dice.choice(words)}{dice.randrange(100)}" for _ in range(20))[:100]
             for _ in range(1000)]  # fmt: skip
    numbers = range(start, start + count)
    batch = record_batch(
        [1_700_000_000_000 + number for number in numbers],
        [f"user-{number:08}" for number in numbers],
        [texts[number % 1000] for number in numbers],
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, RECORD_SCHEMA) as writer:
        writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def schema(*names: str) -> StructType:
    fields = [{"name": name, "type": DDL[name], "nullable": True, "metadata": {}} for name in names]
    return StructType.fromJson({"type": "struct", "fields": fields})


def alone(server: Server, count: int) -> list[Rate]:
    """Return rates of one process, per second of its CPU; the first is the least work there is."""
    given = {"url": server.url, "subscribe": TOPIC}
    whole = RiachoReader(given, schema(*DDL))
    plan = whole.partitions()

    def reading(*names: str) -> Callable[[], int]:
        reader = RiachoReader(given, schema(*names))
        return lambda: sum(batch.num_rows for part in plan for batch in reader.read(part))

    rows = [
        ("read and decode slices, no checks", lambda: decoded(plan)),
        ("task, all columns", reading(*DDL)),
        ("task, key and offset", reading("key", "offset")),
        ("task, offset", reading("partition", "offset")),
    ]
    return [Rate(name, count / best_cpu_s(run, count)) for name, run in rows]


def decoded(plan: Any) -> int:
    options = pa.ipc.IpcReadOptions(use_threads=False)
    count = 0
    with Direct() as direct:
        for part in plan:
            assert isinstance(part, SpanPartition)
            for run in groups(part.span.ranges or ()):
                data = direct.read(url_of(run), run[0].start, run[-1].end, SCHEMA_MESSAGE)
                with pa.ipc.open_stream(pa.py_buffer(data), options=options) as batches:
                    count += sum(batch.num_rows for batch in batches)
    return count


def best_cpu_s(run: Callable[[], int], count: int) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        assert run() == count
        best = min(best, time.process_time() - began)
    return best


def in_spark(server: Server, count: int) -> list[Rate]:
    """Return rates of a session with two cores, by the clock, for each core."""
    from riacho.spark import RiachoDataSource
    from service.jobs.runners.spark_session import session

    with session("local[2]", computes=True) as spark:
        spark.dataSource.register(RiachoDataSource)
        read = spark.read.format("riacho").option("url", server.url).option("subscribe", TOPIC)

        def seconds(names: list[str], **options: str) -> float:
            typed = ", ".join(f"{each} {DDL[each]}" for each in names)
            frame = read.schema(typed).options(**options).load()
            best = float("inf")
            for _ in range(3):
                began = time.perf_counter()
                frame.write.format("noop").mode("overwrite").save()
                best = min(best, time.perf_counter() - began)
            return best

        few = json.dumps({TOPIC: dict.fromkeys(map(str, range(PARTITIONS)), 1)})
        rates = []
        for name, names in (("all columns", [*DDL]), ("key and offset", ["key", "offset"])):
            # Planning, and starting a task, cost the same however much is read.
            fixed_s = seconds(names, endingOffsets=few)
            whole_s = seconds(names, endingOffsets="latest")
            per_core = count / max(whole_s - fixed_s, 1e-9) / 2
            rates.append(Rate(f"Spark, {name}, each of 2 cores ({fixed_s:.1f} s fixed)", per_core))
        return rates


if __name__ == "__main__":
    main()
