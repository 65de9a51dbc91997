"""Reads of a topic that is compacted and swept meanwhile: plans outlive what they point to."""

import subprocess
import sys
from pathlib import Path

from riacho import Admin, Producer
from riacho.spark.read.reading import RiachoReader, SpanPartition
from riacho.spark.read.spans import SpanReader, Wishes
from tests.gateway import GatewayProcess, start_gateway
from tests.riacho.spark.reads import ALL, columns, table

ROOT = Path(__file__).parents[3]
KEYS = 7
RECORDS = 300


def job(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "service.jobs", *arguments, "--no-spark"]
    command += ["--data", str(folder / "data")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def produce(gateway: GatewayProcess, start: int, end: int) -> None:
    with Producer(gateway.url) as producer:
        for number in range(start, end):
            producer.send("t", key=f"k{number % KEYS}", value=f"v{number}", partition=0)


def rows(reader: RiachoReader) -> list[tuple[int, bytes, bytes]]:
    found = table(reader).select(["offset", "key", "value"]).to_pylist()
    return [(row["offset"], row["key"], row["value"]) for row in found]


def expected(offsets: range) -> list[tuple[int, bytes, bytes]]:
    return [(n, b"k%d" % (n % KEYS), b"v%d" % n) for n in offsets]


def formats(reader: RiachoReader) -> list[str]:
    spans = [each.span for each in reader.partitions() if isinstance(each, SpanPartition)]
    return sorted({each.format for span in spans for each in span.ranges or ()})


def test_plans_outlive_the_objects_they_name(tmp_path: Path) -> None:
    # A plan names objects; what is in the table it holds itself.
    with start_gateway(tmp_path, env={"RIACHO_TABLE_BATCH_BYTES_MAX": "0"}) as gateway:
        with Admin(gateway.url) as admin:
            admin.create_topic("t", config={"cleanup.policy": "compact"})
        for start in range(0, RECORDS, 50):
            produce(gateway, start, start + 50)
        given = {"url": gateway.url, "subscribe": "t"}
        reader = RiachoReader(given, ALL)
        [old] = reader.partitions()
        assert isinstance(old, SpanPartition)

        job(tmp_path, "compact", "--force", "t")
        job(tmp_path, "sweep", "--min-age", "0s", "--unsafe")
        # What is new is beside what is compacted.
        produce(gateway, RECORDS, RECORDS + 20)

        survivors = expected(range(RECORDS - KEYS, RECORDS))
        assert formats(RiachoReader(given, ALL)) == ["arrow", "parquet"]
        assert rows(RiachoReader(given, ALL)) == survivors + expected(range(RECORDS, RECORDS + 20))
        few = table(RiachoReader(given, columns("offset", "key")))
        assert few.column("offset").to_pylist()[: KEYS + 1] == [n for n, *_ in survivors] + [
            RECORDS
        ]
        wishes = Wishes(
            url=gateway.url, schema=reader._schema, bounds=reader._bounds, fail_on_data_loss=True
        )
        with SpanReader(wishes) as task:
            batches = [*task.batches(old.span, old.timestamp_type)]
        found = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
        assert found == [n for n, *_ in survivors]
        assert (task.relocations, task.fetches) == (1, 0)
