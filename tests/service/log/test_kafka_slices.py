"""A record is the same through every reader, whichever door it came by, wherever it is stored."""

import asyncio
import base64
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from riacho.records import TopicPartition
from riacho.spark.read.planning import Span
from riacho.spark.read.ranges import EVERYTHING, Located
from riacho.spark.read.sealed import DataKeys
from riacho.spark.read.spans import SpanReader, Wishes
from service.log.gateway import Position, Wait
from service.log.numbering import Numbered
from storage.errors import InvalidProducerEpoch, OutOfOrderSequence
from storage.formats.entries import Kind
from storage.formats.kafka.compression import COMPRESSIONS, Compression
from storage.formats.partitions import PartitionNumber
from storage.head import head as heads
from storage.reading import reader
from storage.reading.forms import kafka_bytes
from storage.reading.reader import Budget
from tests.service.log.sealed import ENCRYPTED, Sealed, running
from tests.service.log.test_encryption import checked, compacted, located
from tests.storage.helpers import logs
from tests.storage.helpers.compacted_logs import compact
from tests.storage.helpers.kafka_records import VARIED, Kept, batch_of, rows, seen

pytestmark = pytest.mark.anyio

RECORDS = "/v1/topics/t/partitions/0/records"
ALL = Budget(records_max=10**9, bytes_max=10**8)
SPARK = pa.schema(
    [
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("offset", pa.int64()),
    ]
)
OPEN = {"encryption": "none", "encryption.kek": ""}


async def send(
    gateway: Sealed, records: Sequence[Kept], codec: Compression = "none", **given: Any
) -> int:
    return await gateway.gateway.produce_batches("t", 0, batch_of(records, codec), **given)


async def consumed(gateway: Sealed, offset: int = 0, bytes_max: int = 10**8) -> list[Kept]:
    """Return what a consumer that speaks Kafka's protocol gets from `offset` on."""
    found: list[Kept] = []
    while True:
        budget = replace(ALL, bytes_max=bytes_max)
        position = Position(offset=offset)
        result = await gateway.gateway.fetch("t", 0, position, budget, Wait(), as_kafka=True)
        some, following = seen(kafka_bytes(result.fetched, bytes_max))
        if following == -1:
            assert offset == result.high_watermark
            return found
        assert following > offset
        found += [each for each in some if each.offset >= offset]
        offset = following


def of_json(record: dict[str, Any]) -> Kept:
    def field(of: dict[str, Any], name: str) -> bytes | None:
        if of.get(f"{name}_base64") is not None:
            return base64.b64decode(of[f"{name}_base64"])
        return of[name].encode() if of.get(name) is not None else None

    headers = tuple((each["key"], field(each, "value")) for each in record["headers"])
    return Kept(
        record["timestamp"],
        field(record, "key"),
        field(record, "value"),
        headers,
        record["offset"],
    )


async def by_http(gateway: Sealed) -> dict[str, list[Kept]]:
    """Return what each way to read over HTTP gives."""
    found = {}
    for value_format in ("text", "base64"):
        reply = await gateway.http.get(RECORDS, params={"value_format": value_format})
        assert reply.json()["next_offset"] == reply.json()["high_watermark"], reply.text
        found[value_format] = [*map(of_json, reply.json()["records"])]
    lines = await gateway.http.get(RECORDS, headers={"accept": "application/x-ndjson"})
    found["lines"] = [of_json(json.loads(line)) for line in lines.text.splitlines()]
    body = {"partitions": [{"topic": "t", "partition": 0}]}
    [part] = (await gateway.http.post("/v1/fetch", json=body)).json()["partitions"]
    found["several"] = [*map(of_json, part["records"])]
    for form in ("base", "column"):
        found[form] = await by_arrow(gateway, form)
    count = len(found["text"])
    events = await gateway.http.get(
        RECORDS, params={"max_records": count}, headers={"accept": "text/event-stream"}
    )
    data = [line[6:] for line in events.text.splitlines() if line.startswith("data: ")]
    found["tail"] = [*map(of_json, map(json.loads, data))]
    return found


async def by_arrow(gateway: Sealed, form: str) -> list[Kept]:
    reply = await gateway.http.get(
        RECORDS,
        params={"offsets": form},
        headers={"accept": "application/vnd.apache.arrow.stream"},
    )
    assert reply.status_code == 200, reply.text
    found = []
    with pa.ipc.open_stream(reply.content) as stream:
        bases = json.loads((stream.schema.metadata or {}).get(b"riacho.base_offsets", b"[]"))
        for number, batch in enumerate(stream):
            if form == "column":
                found += rows(batch, batch.column("offset").to_pylist())
            else:
                found += rows(batch, range(bases[number], bases[number] + batch.num_rows))
    return found


async def by_spark(gateway: Sealed, count: int) -> list[Kept]:
    """Return what a task of Spark's source reads, past the gateway."""
    place = TopicPartition("t", 0)
    reply = await gateway.http.get("/v1/topics/t/partitions/0/segments")
    ranges = msgspec.json.decode(reply.content, type=Located).segments
    span = Span(partition=place, start=0, end=count, ranges=tuple(ranges))
    nowhere = "http://127.0.0.1:1"
    wishes = Wishes(url=nowhere, schema=SPARK, bounds=EVERYTHING, fail_on_data_loss=True)
    numbers = {each.data_key for each in ranges} - {0}
    keys = {number: await gateway.gateway.data_key("t", number) for number in numbers}
    found = []
    with SpanReader(wishes) as task:
        task._keys = DataKeys(lambda _, number: keys[number])
        for batch in task.batches(span, 0):
            stamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
            plain = batch.drop_columns(["timestamp"])
            plain = plain.append_column("timestamp", pa.array([ms // 1000 for ms in stamps]))
            found += rows(plain, plain.column("offset").to_pylist())
        assert (task.relocations, task.fetches) == (0, 0)
    return found


async def check_all(gateway: Sealed, expected: Sequence[Kept]) -> None:
    """Compare what every reader gives."""
    for name, found in (await by_http(gateway)).items():
        assert found == expected, name
    assert await consumed(gateway) == expected
    assert await consumed(gateway, bytes_max=1) == expected
    assert await by_spark(gateway, expected[-1].offset + 1) == expected


def placed(*batches: Sequence[Kept]) -> list[Kept]:
    every = [record for batch in batches for record in batch]
    return [replace(each, offset=offset) for offset, each in enumerate(every)]


@pytest.mark.parametrize("codec", COMPRESSIONS)
async def test_a_record_is_the_same_through_every_reader(
    tmp_path: Path, codec: Compression
) -> None:
    async with running(tmp_path, table_batch_bytes_max=0) as gateway:
        await gateway.create(config=OPEN)
        assert await send(gateway, VARIED, codec) == 0
        assert await send(gateway, VARIED[:1], codec) == len(VARIED)
        assert [each["format"] for each in await located(gateway)] == ["kafka"] * 2
        await check_all(gateway, placed(VARIED, VARIED[:1]))


@pytest.mark.parametrize("config", [OPEN, ENCRYPTED], ids=["open", "encrypted"])
@pytest.mark.parametrize("policy", ["delete", "compact"])
async def test_wherever_it_is_stored(
    tmp_path: Path, config: dict[str, str], policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the table, rolled, compacted, and all of them at once; all of it is whole."""
    monkeypatch.setattr(heads, "INLINE_BYTES_MAX", 300)
    sealed = "-sealed" if config is ENCRYPTED else ""
    distinct = [replace(each, key=b"%d" % number) for number, each in enumerate(VARIED)]
    large = [Kept(5, b"large", random.Random(7).randbytes(9000))]
    async with running(tmp_path) as gateway:
        await gateway.create(config={**config, "cleanup.policy": policy})
        await send(gateway, distinct, "gzip")
        [first] = await located(gateway)
        assert first["format"] == f"kafka{sealed}"
        assert first["url"].startswith("data:")
        await check_all(gateway, placed(distinct))
        await send(gateway, large, "lz4")
        await gateway.produce("http")
        for _ in range(12):
            await send(gateway, distinct)
        await check_all(gateway, expected := await everything(gateway))
        assert expected[:6] == placed(distinct, large)
        assert expected[7:] == placed(distinct, large, large, *[distinct] * 12)[7:]
        ranges = await located(gateway)
        assert {each["format"] for each in ranges} == {f"kafka{sealed}", f"arrow{sealed}"}
        # The first was rolled out of the table, the last is still there.
        assert ranges[0]["url"].startswith("file:")
        assert ranges[-1]["url"].startswith("data:")
    await checked(tmp_path)
    await compacted(tmp_path)
    await checked(tmp_path)
    async with running(tmp_path) as gateway:
        assert {each["format"] for each in await located(gateway)} == {f"parquet{sealed}"}
        kept = expected if policy == "delete" else [*expected[5:7], *expected[-5:]]
        await check_all(gateway, kept)
        await send(gateway, large)
        await check_all(gateway, [*kept, replace(large[0], offset=len(expected))])


async def everything(gateway: Sealed) -> list[Kept]:
    return (await by_http(gateway))["base64"]


async def test_what_came_by_http_is_read_by_consumers(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        await gateway.create(config=OPEN)
        body = {
            "records": [
                {"key": "k", "value": "v", "timestamp": 5},
                {"value": None, "timestamp": 6},
                {
                    "key_base64": "/w==",
                    "value": "",
                    "timestamp": 4,
                    "headers": [{"key": "h", "value": "1"}, {"key": "h", "value": None}],
                },
            ]
        }
        await gateway.http.post(RECORDS, json=body)
        await gateway.produce("later")

        expected = await everything(gateway)
        assert expected[:3] == [
            Kept(5, b"k", b"v", (), 0),
            Kept(6, None, None, (), 1),
            Kept(4, b"\xff", b"", (("h", b"1"), ("h", None)), 2),
        ]
        assert await consumed(gateway) == expected
        assert await consumed(gateway, 1) == expected[1:]


async def test_small_batches_share_slices_and_large_ones_keep_theirs(tmp_path: Path) -> None:
    async with running(tmp_path, table_batch_bytes_max=0) as gateway:
        await gateway.create(config=OPEN)
        one = [Kept(7, b"k", b"x" * 100_000)]
        offsets = await asyncio.gather(*(send(gateway, one) for _ in range(7)))
        assert offsets == [*range(7)]

        counts = [each["count"] for each in await located(gateway)]

        assert sum(counts) == 7
        assert len(counts) <= 5
        assert await consumed(gateway) == placed(*[one] * 7)
        # Whole batches that fit, and the first whether it fits or not.
        result = await gateway.gateway.fetch("t", 0, Position(offset=1), ALL, Wait(), as_kafka=True)
        for bytes_max, count in ((1, 1), (250_000, 2), (10**6, 6)):
            found, following = seen(kafka_bytes(result.fetched, bytes_max))
            assert [each.offset for each in found] == [*range(1, 1 + count)]
            assert following == 1 + count


async def test_a_fetch_begins_with_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        await gateway.create(config=OPEN)
        for _ in range(3):
            await send(gateway, VARIED)
        position = Position(offset=7)

        result = await gateway.gateway.fetch("t", 0, position, ALL, Wait(), as_kafka=True)

        found, following = seen(kafka_bytes(result.fetched, 10**6))
        assert [each.offset for each in found] == [*range(5, 15)]
        assert following == 15


async def test_consumers_get_to_the_end_though_compaction_left_nothing_there(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as gateway:
        await gateway.create(config=OPEN)
        for _ in range(4):
            await send(gateway, VARIED)
        await compact(gateway.gateway, "t", 0, {2, 3, 9}.__contains__)

        expected = [each for each in placed(*[VARIED] * 4) if each.offset in (2, 3, 9)]

        assert await consumed(gateway) == expected
        assert await consumed(gateway, 10) == []
        assert await consumed(gateway, 4, bytes_max=1) == expected[2:]


async def test_idempotent_batches_are_appended_once_and_in_sequence(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        await gateway.create(config=OPEN)

        async def numbered(sequence: int, epoch: int = 0) -> int:
            sender = Numbered(producer_id=9, epoch=epoch, sequence=sequence)
            return await send(gateway, VARIED, numbered=sender)

        both = await asyncio.gather(numbered(0), numbered(5), numbered(0))
        assert both == [0, 5, 0]
        assert await numbered(5) == 5
        with pytest.raises(OutOfOrderSequence):
            await numbered(20)
        assert await numbered(0, epoch=2) == 10
        with pytest.raises(InvalidProducerEpoch):
            await numbered(10, epoch=1)
        assert await consumed(gateway) == placed(VARIED, VARIED, VARIED)


async def test_settings_of_the_topic_decide_what_is_stored(tmp_path: Path) -> None:
    async with running(tmp_path, table_batch_bytes_max=0) as gateway:

        async def stored(**config: str) -> tuple[str, list[Kept]]:
            given = {name.replace("_", "."): value for name, value in config.items()}
            await gateway.http.delete("/v1/topics/t")
            await gateway.create(config={**OPEN, **given})
            await send(gateway, VARIED, "gzip")
            [each] = await located(gateway)
            await check_all(gateway, found := await everything(gateway))
            data = Path(each["url"].removeprefix("file://")).read_bytes()
            data = data[each["start"] : each["end"]]
            codec = data[22] & 7 if each["format"] == "kafka" else None
            return (f"{each['format']} {codec}", found)

        same = placed(VARIED)
        assert await stored() == ("kafka 1", same)
        assert await stored(compression_type="gzip") == ("kafka 1", same)
        assert await stored(compression_type="zstd") == ("kafka 4", same)
        assert await stored(compression_type="uncompressed") == ("kafka 0", same)
        assert await stored(riacho_kafka_slices="arrow") == ("arrow None", same)
        for kind in ("raw", "arrow"):
            stamped = {"message_timestamp_type": "LogAppendTime", "riacho_kafka_slices": kind}
            _, found = await stored(**stamped)
            [now] = {each.timestamp for each in found}
            assert now > VARIED[0].timestamp
            assert found == [replace(each, timestamp=now) for each in same]


async def test_timestamps_are_looked_up_within_slices(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        await gateway.create(config=OPEN)
        await send(gateway, VARIED, "zstd")
        first = VARIED[0].timestamp

        assert await gateway.gateway.offset_at("t", 0, first + 1) == (1, first + 7)
        assert await gateway.gateway.offset_at("t", 0, first + 8) == (4, first + 9)
        assert await gateway.gateway.offset_at("t", 0, first + 10) == (5, -1)


async def test_both_doors_share_a_flush(tmp_path: Path) -> None:
    async with running(tmp_path, table_batch_bytes_max=0) as gateway:
        await gateway.create(config=OPEN)
        many = [send(gateway, VARIED) if n % 2 else gateway.produce("a", "b") for n in range(8)]

        offsets = await asyncio.gather(*many)

        assert sorted(offsets) != [*range(8)]
        expected = await everything(gateway)
        assert len(expected) == 4 * (len(VARIED) + 2)
        await check_all(gateway, expected)
        for number, offset in enumerate(offsets):
            assert expected[offset].value == (VARIED[0].value if number % 2 else b"a")


async def test_staged_batches_of_both_doors_are_one_commit(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        await gateway.create(config=OPEN)
        topic = await gateway.gateway.topics.get("t")
        arrow = logs.batch_of(b"a", b"b")
        parts = [{PartitionNumber(0): arrow}, {PartitionNumber(0): batch_of(VARIED)}]

        [staged] = await gateway.gateway.batcher.stage([(topic, each) for each in parts], 100)

        assert [run.kind for run in staged.runs] == [Kind.ARROW, Kind.KAFKA]
        assert await consumed(gateway) == []


async def test_a_hot_slice_is_converted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    converted = []
    for name in ("as_arrow", "as_kafka"):
        convert = getattr(reader, name)
        monkeypatch.setattr(
            reader, name, lambda *a, of=name, do=convert: (converted.append(of), do(*a))[1]
        )
    async with running(tmp_path) as gateway:
        await gateway.create(config=OPEN)
        await send(gateway, VARIED)
        await gateway.produce("a")
        for _ in range(3):
            await by_http(gateway)
            await consumed(gateway)
        assert sorted(converted) == ["as_arrow", "as_kafka"]
