"""The object sink on folders and on SeaweedFS: names, formats, each record once after deaths."""

import io
import secrets
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import obstore
import pyarrow.parquet as pq
import pytest
from obstore.store import S3Store

from service.connect.connectors.api import FillingSinkTask, TopicPartition
from service.connect.connectors.catalog import plugin_of
from service.connect.connectors.objects import task as object_task
from service.connect.connectors.objects.cutting import partition as partition_files
from service.connect.data import schema as types
from service.connect.data.errors import ConfigFault, TaskFault
from service.connect.data.schema import struct
from service.world.clock import real_world
from storage.errors import StoreUnavailable
from storage.stores.directory import DirectoryObjects
from storage.stores.objects import Body
from tests.service.connect.connectors.harness import SinkCrash, SinkTrial, environment
from tests.service.connect.connectors.objects.files_read import Found, all_rows, in_folder, rows
from tests.storage.helpers import servers

pytestmark = pytest.mark.anyio

START_MS = 1_700_000_000_000  # 2023-11-14, 22:13:20 UTC
HOUR_MS = 3_600_000
PACKAGE = "io.confluent.connect.s3.format."
ROW = struct([("id", types.INT32), ("city", types.OPTIONAL_STRING)], name="shop.Row", version=1)


def sink(files: Path, **config: str) -> SinkTrial:
    """Return a trial on the folder `out`; dots of keys are written as underscores."""
    plugin = plugin_of("io.confluent.connect.s3.S3SinkConnector")
    assert plugin is not None
    said = {name.replace("_", "."): text for name, text in config.items()}
    defaults = {"store.url": "file:///out", "flush.size": "3"}
    return SinkTrial(plugin, {**defaults, **said}, environment(files))


async def test_names_are_those_of_confluent(tmp_path: Path) -> None:
    trial = sink(tmp_path)
    trial.give("orders", 0, *({"n": n} for n in range(7)))
    trial.give("orders", 1, {"n": 100})

    await trial.run()

    found = in_folder(tmp_path / "out")
    assert list(found) == [
        "topics/orders/partition=0/orders+0+0000000000.json",
        "topics/orders/partition=0/orders+0+0000000003.json",
    ]
    assert all_rows(found) == [{"n": n} for n in range(6)]
    assert trial.committed == {TopicPartition("orders", 0): 6, TopicPartition("orders", 1): 0}


VALUE = {
    "small": 7,
    "ratio": 1.5,
    "yes": True,
    "name": "Zoë",
    "raw": b"\x00\xff",
    "price": Decimal("12.50"),
    "day": date(2024, 2, 29),
    "clock": time(12, 30, 1, 5000),
    "at": datetime(2024, 2, 29, 1, 2, 3, 4000, tzinfo=UTC),
    "tags": ["a", "b"],
    "counts": {"x": 1},
    "inner": {"city": None},
    "other": {"city": "Rio"},
}
WIDE = struct(
    [
        ("small", types.INT8),
        ("ratio", types.FLOAT64),
        ("yes", types.BOOLEAN),
        ("name", types.STRING),
        ("raw", types.BYTES),
        ("price", types.decimal(2)),
        ("day", types.DATE_SCHEMA),
        ("clock", types.TIME_SCHEMA),
        ("at", types.TIMESTAMP_SCHEMA),
        ("tags", types.array(types.STRING)),
        ("counts", types.map_of(types.STRING, types.INT64)),
        ("inner", struct([("city", types.OPTIONAL_STRING)])),
        ("other", struct([("city", types.OPTIONAL_STRING)], name="shop.Place").optional()),
    ]
)


@pytest.mark.parametrize(
    ("form", "ending"),
    [("avro.AvroFormat", ".avro"), ("parquet.ParquetFormat", ".snappy.parquet")],
)
async def test_typed_files_are_read_by_others(tmp_path: Path, form: str, ending: str) -> None:
    trial = sink(tmp_path, format_class=PACKAGE + form)
    trial.give("t", 0, VALUE, VALUE, VALUE, schema=WIDE)

    await trial.run()

    [(name, body)] = in_folder(tmp_path / "out").items()
    assert name.endswith(f"t+0+0000000000{ending}")
    found = rows(name, body)
    assert len(found) == 3
    assert {**found[0], "counts": dict(found[0]["counts"])} == VALUE


async def test_duckdb_reads_parquet_below_folders_by_time(tmp_path: Path) -> None:
    trial = sink(
        tmp_path,
        format_class="ParquetFormat",
        flush_size="1000",
        rotate_interval_ms=str(HOUR_MS),
        partitioner_class="io.confluent.connect.storage.partitioner.HourlyPartitioner",
        locale="en-US",
        timezone="America/Sao_Paulo",
        timestamp_extractor="Record",
    )
    for n in range(40):
        at_ms = START_MS + n * HOUR_MS // 10
        trial.give("t", 0, {"id": n, "city": "x"}, schema=ROW, timestamp_ms=at_ms)

    await trial.run()

    pattern = tmp_path / "out/topics/t/*/*/*/*/*.parquet"
    found = duckdb.sql(f"SELECT id, hour FROM read_parquet('{pattern}', hive_partitioning=true)")
    hours = dict(found.fetchall())
    # 19:13 there, and six minutes more with each record; the last hour is not full.
    assert hours == {n: 19 + (13 + 6 * n) // 60 for n in range(38)}


async def test_raw_bytes_and_gzip(tmp_path: Path) -> None:
    raw = sink(tmp_path, format_class="ByteArrayFormat", s3_compression_type="gzip")
    raw.give("raw", 0, b"a", b"b", "no bytes", b"c")

    await raw.run()

    [(name, body)] = in_folder(tmp_path / "out").items()
    assert name.endswith("raw+0+0000000000.bin.gz")
    assert rows(name, body) == [b"a", b"b", b"c"]
    assert [record.value for record, _ in raw.reports.given_up] == ["no bytes"]


async def test_folders_by_fields_are_safe_names(tmp_path: Path) -> None:
    trial = sink(
        tmp_path, partitioner_class="FieldPartitioner", partition_field_name="city,place.zip"
    )
    places = ["Rio", "..", "a/b", "São"]
    trial.give("t", 0, *({"city": each, "place": {"zip": 7}} for each in places))
    trial.give("t", 0, {"city": None}, {"n": 1})

    await trial.run()

    folders = [Path(name).parts[2:4] for name in in_folder(tmp_path / "out")]
    assert folders == [
        ("city=%2E%2E", "place.zip=7"),
        ("city=Rio", "place.zip=7"),
        ("city=a%2Fb", "place.zip=7"),
    ]
    assert len(trial.reports.given_up) == 2


async def test_another_schema_begins_another_file_or_is_projected(tmp_path: Path) -> None:
    newer = struct([*((f.name, f.schema) for f in ROW.fields), ("n", types.INT64.optional())])
    versioned = types.ConnectSchema(
        types.Type.STRUCT, name="shop.Row", version=2, fields=newer.fields
    )
    for mode, expected in (("NONE", [1, 1, 3]), ("BACKWARD", [1, 3])):
        trial = sink(tmp_path, schema_compatibility=mode, topics_dir=mode, flush_size="3")
        trial.give("t", 0, {"id": 1, "city": None}, schema=ROW)
        trial.give("t", 0, {"id": 2, "city": None, "n": 5}, schema=versioned)
        trial.give("t", 0, {"id": 3, "city": None}, schema=ROW)
        trial.give("t", 0, *[{"id": n, "city": None} for n in (4, 5, 6)], schema=ROW)

        await trial.run()

        found = in_folder(tmp_path / "out" / mode)
        counts = [len(rows(name, body)) for name, body in found.items()]
        assert counts == expected
        identifiers = [row["id"] for row in all_rows(found)]
        assert identifiers == list(range(1, len(identifiers) + 1))


def once(trial: SinkTrial, found: Found) -> None:
    """Check that the files have each committed record once, and no other."""
    seen = Counter(row["id"] for row in all_rows(found))
    expected = {
        record.value["id"]
        for at, held in trial.log.records.items()
        for record in held[: trial.committed.get(at, 0)]
    }
    assert expected
    assert set(seen) == expected
    assert set(seen.values()) == {1}


async def deaths(trial: SinkTrial, crashes: int) -> None:
    """Kill the sink again and again at all points, then let it run to the end."""
    points = (SinkCrash.AFTER_PUT, SinkCrash.AFTER_FLUSH)
    for n in range(crashes):
        crash = points[n % 2]
        await trial.run(crash=crash, crash_at=2 + n % 4, records_max=7, stop=False)
    await trial.run(records_max=11)


@pytest.mark.parametrize("form", ["JsonFormat", "AvroFormat", "ParquetFormat"])
async def test_each_record_once_after_many_deaths(tmp_path: Path, form: str) -> None:
    trial = sink(
        tmp_path,
        format_class=form,
        flush_size="9",
        partitioner_class="FieldPartitioner",
        partition_field_name="city",
    )
    for partition in range(2):
        values = [{"id": partition * 1000 + n, "city": f"c{n % 4}"} for n in range(120)]
        trial.give("t", partition, *values, schema=ROW)

    await deaths(trial, crashes=8)

    once(trial, in_folder(tmp_path / "out"))
    assert all(offset == 117 for offset in trial.committed.values())


async def test_each_record_once_in_a_bucket(seaweed: str, tmp_path: Path) -> None:
    bucket = f"sink-{secrets.token_hex(4)}"
    servers.make_bucket(seaweed, bucket)
    trial = sink(
        tmp_path,
        store_url=seaweed,
        s3_bucket_name=bucket,
        s3_region=servers.REGION,
        aws_access_key_id=servers.ACCESS_KEY,
        aws_secret_access_key=servers.SECRET_KEY,
        flush_size="20",
    )
    values: list[Any] = [{"id": n, "city": "x"} for n in range(100)]
    trial.give("t", 0, *values, schema=ROW)

    await deaths(trial, crashes=4)

    store = S3Store(
        bucket,
        endpoint=seaweed,
        region=servers.REGION,
        access_key_id=servers.ACCESS_KEY,
        secret_access_key=servers.SECRET_KEY,
        client_options={"allow_http": True},
    )
    names = [each["path"] for batch in obstore.list(store) for each in batch]
    found = {name: bytes(obstore.get(store, name).bytes()) for name in names}
    once(trial, found)
    assert len(found) == 5


async def test_another_writers_file_is_replaced_at_first_only(tmp_path: Path) -> None:
    trial = sink(tmp_path, flush_size="1")
    trial.give("t", 0, {"id": 1})
    file = tmp_path / "out/topics/t/partition=0/t+0+0000000000.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"left by a task that died\n")
    await trial.run()
    assert file.read_bytes() == b'{"id":1}\n'

    # The next task takes the partition up, and is stopped for an hour.
    file.with_name("t+0+0000000001.json").write_bytes(b"of another connector\n")
    trial.give("t", 0, {"id": 2})
    hours = count(0, 3600)
    world = replace(real_world(), monotonic_s=lambda: float(next(hours)))
    trial.environment = environment(tmp_path, world=world)
    with pytest.raises(TaskFault, match="other bytes"):
        await trial.run()
    assert file.with_name("t+0+0000000001.json").read_bytes() == b"of another connector\n"


async def test_each_record_once_in_a_store_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, calls = DirectoryObjects.put, count()

    async def failing(self: DirectoryObjects, key: str, body: Body) -> None:
        number = next(calls)
        if number % 3 != 1:
            await put(self, key, body)
        if number % 3:
            raise StoreUnavailable("as a test demands: before it was stored, or after")

    monkeypatch.setattr(DirectoryObjects, "put", failing)
    trial = sink(tmp_path, flush_size="4", behavior_on_null_values="fail")
    values = [{"id": n} if n % 5 else None for n in range(50)]
    trial.give("t", 0, *values)

    await trial.run(records_max=7)

    rows_found = all_rows(in_folder(tmp_path / "out"))
    assert [row["id"] for row in rows_found] == [n for n in range(50) if n % 5]
    assert len(trial.reports.given_up) == 10


async def test_files_are_cut_by_the_wall_clock(tmp_path: Path) -> None:
    now_ms = START_MS
    world = replace(real_world(), now_ms=lambda: now_ms)
    config = {
        "store.url": "file:///out",
        "flush.size": "100",
        "timezone": "UTC",
        "rotate.schedule.interval.ms": str(HOUR_MS),
    }
    plugin = plugin_of("ObjectSinkConnector")
    assert plugin is not None
    trial = SinkTrial(plugin, config, environment(tmp_path, world=world))
    trial.give("t", 0, {"id": 1}, {"id": 2})
    task = plugin.make(await trial.context())
    assert isinstance(task, FillingSinkTask)
    await task.start()
    await task.positions([TopicPartition("t", 0)])
    await task.put(trial.log.records[TopicPartition("t", 0)])
    await task.flush()
    assert task.committable() == {TopicPartition("t", 0): 0}

    now_ms += HOUR_MS
    await task.put([])

    assert task.committable() == {TopicPartition("t", 0): 2}
    assert len(in_folder(tmp_path / "out")) == 1
    await task.stop()


async def test_large_files_wait_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_task, "MEMORY_BYTES_MAX", 100_000)
    monkeypatch.setattr(object_task, "SPILL_EVERY", 10)
    trial = sink(tmp_path, flush_size="900")
    trial.give("t", 0, *({"id": n, "text": "x" * 1000} for n in range(900)))

    await trial.run(records_max=100)

    assert [row["id"] for row in all_rows(in_folder(tmp_path / "out"))] == list(range(900))


async def test_rows_held_back_for_parquet_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_files, "HELD_BYTES_MAX", 1000)
    trial = sink(
        tmp_path,
        format_class="ParquetFormat",
        flush_size="300",
        partitioner_class="FieldPartitioner",
        partition_field_name="city",
    )
    values = [{"id": n, "city": f"c{n % 3}"} for n in range(300)]
    trial.give("t", 0, *values, schema=ROW)

    await trial.run()

    found = in_folder(tmp_path / "out")
    once(trial, found)
    groups = [pq.ParquetFile(io.BytesIO(body)).num_row_groups for body in found.values()]
    assert groups == [3, 3, 3]


async def test_files_are_cut_by_bytes_too(tmp_path: Path) -> None:
    trial = sink(tmp_path, flush_size="1000", file_bytes_max="20")
    trial.give("t", 0, *({"id": n} for n in range(10)))

    await trial.run()

    assert len(in_folder(tmp_path / "out")) == 3


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"store.url": "file:///../up"}, "store.url"),
        ({"store.url": "ftp://host"}, "store.url"),
        ({"store.url": "https://s3.test"}, "s3.bucket.name"),
        ({"flush.size": "0"}, "flush.size"),
        ({"partitioner.class": "FieldPartitioner"}, "partition.field.name"),
        ({"partitioner.class": "DailyPartitioner"}, "timezone"),
        ({"path.format": "'open"}, "path.format"),
        ({"timezone": "Mars/Base"}, "timezone"),
        ({"rotate.schedule.interval.ms": "1000"}, "timezone"),
        ({"aws.access.key.id": "k"}, "aws.access.key.id"),
        ({"format.class": "OrcFormat"}, "format.class"),
        ({"format.class": "AvroFormat", "s3.compression.type": "gzip"}, "s3.compression.type"),
        ({"store.kafka.keys": "true"}, "store.kafka.keys"),
    ],
)
def test_refused_configurations_are_named(
    tmp_path: Path, config: dict[str, str], named: str
) -> None:
    trial = sink(tmp_path)
    trial.config = {**trial.config, **config}

    with pytest.raises(ConfigFault) as refused:
        trial.check()

    assert list(refused.value.problems) == [named]


def test_a_configuration_of_confluent_is_accepted(tmp_path: Path) -> None:
    trial = sink(tmp_path)
    trial.config = {
        "name": "s3-sink",
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "tasks.max": "1",
        "topics": "s3_topic",
        "s3.region": "us-west-2",
        "s3.bucket.name": "bucket",
        "s3.part.size": "5242880",
        "flush.size": "3",
        "storage.class": "io.confluent.connect.s3.storage.S3Storage",
        "format.class": "io.confluent.connect.s3.format.avro.AvroFormat",
        "schema.generator.class": "io.confluent.connect.storage.hive.schema.SchemaGenerator",
        "partitioner.class": "io.confluent.connect.storage.partitioner.TimeBasedPartitioner",
        "partition.duration.ms": "3600000",
        "path.format": "YYYY-MM-dd",
        "locale": "US",
        "timezone": "UTC",
        "timestamp.extractor": "Record",
        "schema.compatibility": "NONE",
    }

    trial.check()


async def test_a_link_does_not_lead_out(tmp_path: Path) -> None:
    files = tmp_path / "files"
    (files / "out").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (files / "out/topics").symlink_to(tmp_path / "elsewhere")
    trial = sink(files, flush_size="1")
    trial.give("t", 0, {"id": 1})

    with pytest.raises(TaskFault, match="link"):
        await trial.run()

    assert in_folder(tmp_path / "elsewhere") == {}
