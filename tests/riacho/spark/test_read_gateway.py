"""Reads against a real gateway: what the driver plans and what tasks make of it, without a JVM."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import BinaryType, StructField, StructType

from riacho import Admin
from riacho.spark.read.reading import RiachoReader, SpanPartition
from riacho.spark.read.spans import SpanReader, Wishes
from riacho.spark.read.streaming import RiachoStreamReader
from storage.errors import InvalidConfig, OffsetOutOfRange, UnknownTopicOrPartition
from tests.gateway import GatewayProcess, start_gateway
from tests.riacho.spark.reads import ALL, columns, produce, spans, table


@pytest.fixture
def topic(gateway: GatewayProcess, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own: ten records in partition 0, five in 1, none in 2."""
    name = request.node.name.replace("[", "-").rstrip("]")
    with Admin(gateway.url) as admin:
        admin.create_topic(name, partitions=3)
    # Twice, so that partition 0 has two slices.
    produce(gateway.url, name, [f"a{n}" for n in range(6)])
    produce(gateway.url, name, [f"a{n}" for n in range(6, 10)], at_ms=2_000)
    produce(gateway.url, name, [f"b{n}" for n in range(5)], partition=1, at_ms=5_000)
    return name


def reader(gateway: GatewayProcess, topic: str, *names: str, **options: str) -> RiachoReader:
    given = {"url": gateway.url, "subscribe": topic, **options}
    return RiachoReader(given, columns(*names) if names else ALL)


def delete_before(gateway: GatewayProcess, topic: str, offset: int) -> None:
    with Admin(gateway.url) as admin:
        admin.delete_records(topic, {0: offset})


def offsets(read: RiachoReader) -> dict[int, list[int]]:
    rows = table(read).select(["partition", "offset"]).to_pylist()
    found: dict[int, list[int]] = {}
    for row in rows:
        found.setdefault(row["partition"], []).append(row["offset"])
    return found


def test_records_have_the_columns_of_kafkas_source(gateway: GatewayProcess, topic: str) -> None:
    rows = table(reader(gateway, topic)).to_pylist()

    assert [row["value"] for row in rows] == [
        *(b"a%d" % n for n in range(10)),
        *(b"b%d" % n for n in range(5)),
    ]
    assert rows[1] == {
        "key": b"k1",
        "value": b"a1",
        "topic": topic,
        "partition": 0,
        "offset": 1,
        "timestamp": datetime(1970, 1, 1, 0, 0, 1, 1000, tzinfo=UTC),
        "timestampType": 0,
        "headers": [{"key": "n", "value": b"1"}],
    }
    assert rows[0]["headers"] is None


def test_what_the_log_stamps_says_so(gateway: GatewayProcess) -> None:
    with Admin(gateway.url) as admin:
        admin.create_topic("stamped", config={"message.timestamp.type": "LogAppendTime"})
    produce(gateway.url, "stamped", ["v"])

    assert table(reader(gateway, "stamped", "timestampType")).to_pydict() == {"timestampType": [1]}


def test_moments_that_spark_cannot_hold_are_the_last_it_can(gateway: GatewayProcess) -> None:
    with Admin(gateway.url) as admin:
        admin.create_topic("future")
    produce(gateway.url, "future", ["v"], at_ms=2**63 - 1)

    [moment] = table(reader(gateway, "future", "timestamp")).column(0).cast("int64").to_pylist()

    assert moment == (2**63 - 1) // 1000 * 1000


@pytest.mark.parametrize(
    ("options", "read"),
    [
        ({}, {0: range(10), 1: range(5)}),
        ({"startingOffsets": '{"T": {"0": 4, "1": -2, "2": 0}}'}, {0: range(4, 10), 1: range(5)}),
        ({"endingOffsets": '{"T": {"0": 4, "1": -1, "2": 0}}'}, {0: range(4), 1: range(5)}),
        ({"startingTimestamp": "2001", "startingOffsetsByTimestampStrategy": "latest"},
         {0: range(7, 10), 1: range(5)}),
        ({"endingTimestamp": "1003"}, {0: range(3)}),
        ({"endingOffsetsByTimestamp": '{"T": {"0": 2002, "1": 5002, "2": 9}}'},
         {0: range(8), 1: range(2)}),
        ({"minPartitions": "6"}, {0: range(10), 1: range(5)}),
        ({"maxRecordsPerPartition": "3"}, {0: range(10), 1: range(5)}),
    ],
)  # fmt: skip
def test_reads_from_where_to_where_it_is_told(
    gateway: GatewayProcess, topic: str, options: dict[str, str], read: dict[int, range]
) -> None:
    given = {name: text.replace("T", topic) for name, text in options.items()}

    found = offsets(reader(gateway, topic, "partition", "offset", "value", **given))

    assert found == {partition: [*numbers] for partition, numbers in read.items()}


def test_more_tasks_can_be_asked_for(gateway: GatewayProcess, topic: str) -> None:
    assert spans(reader(gateway, topic).partitions()) == [(0, 0, 10), (1, 0, 5)]
    assert spans(reader(gateway, topic, maxRecordsPerPartition="4").partitions()) == [
        (0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 0, 2), (1, 2, 5),
    ]  # fmt: skip
    assert len(reader(gateway, topic, minPartitions="6").partitions()) == 6


def test_a_time_that_is_not_there_yet_is_an_error(gateway: GatewayProcess, topic: str) -> None:
    with pytest.raises(InvalidConfig, match="no record so new"):
        reader(gateway, topic, startingTimestamp="3000").partitions()


def test_topics_by_pattern_and_partitions_by_hand(gateway: GatewayProcess, topic: str) -> None:
    given = {"url": gateway.url, "subscribePattern": f"{topic}|nothing-like-it"}
    assert spans(RiachoReader(given, ALL).partitions()) == [(0, 0, 10), (1, 0, 5)]

    given = {"url": gateway.url, "assign": f'{{"{topic}": [1, 2]}}'}
    assert spans(RiachoReader(given, ALL).partitions()) == [(1, 0, 5)]

    given = {"url": gateway.url, "assign": f'{{"{topic}": [1, 7]}}'}
    with pytest.raises(UnknownTopicOrPartition, match="/7"):
        RiachoReader(given, ALL).partitions()


def test_filters_leave_nothing_to_read_but_what_they_want(
    gateway: GatewayProcess, topic: str
) -> None:
    read = reader(gateway, topic, "partition", "offset", "value")

    assert read.pushFilters([EqualTo(("partition",), 0), GreaterThanOrEqual(("offset",), 8)]) == []
    assert spans(read.partitions()) == [(0, 8, 10)]
    assert offsets(read) == {0: [8, 9]}


def test_filters_on_time_leave_out_slices(gateway: GatewayProcess, topic: str) -> None:
    read = reader(gateway, topic, "partition", "offset", "value")
    late = GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(2, UTC))

    assert read.pushFilters([late]) == [late]
    assert offsets(read) == {0: [6, 7, 8, 9], 1: [0, 1, 2, 3, 4]}


def test_without_stored_columns_no_object_is_read(
    gateway: GatewayProcess, topic: str, tmp_path: Path
) -> None:
    read = reader(gateway, topic, "topic", "offset")
    nowhere = [elsewhere(each, tmp_path) for each in read.partitions()]

    assert table(read, nowhere).num_rows == 15


def elsewhere(partition: object, folder: Path) -> SpanPartition:
    """Return the task with objects that are not where the plan says, as if it were old."""
    assert isinstance(partition, SpanPartition)
    ranges = tuple(
        msgspec.structs.replace(each, url=(folder / "gone").as_uri())
        for each in partition.span.ranges or ()
    )
    return SpanPartition(replace(partition.span, ranges=ranges), partition.timestamp_type)


def wishes(read: RiachoReader, url: str) -> Wishes:
    return Wishes(url=url, schema=read._schema, bounds=read._bounds, fail_on_data_loss=True)


def test_a_plan_that_is_not_true_any_more_is_made_again(
    gateway: GatewayProcess, topic: str, tmp_path: Path
) -> None:
    read = reader(gateway, topic)
    [task, _] = read.partitions()

    with SpanReader(wishes(read, gateway.url)) as task_reader:
        old = elsewhere(task, tmp_path)
        batches = [*task_reader.batches(old.span, old.timestamp_type)]

    assert sum(batch.num_rows for batch in batches) == 10
    assert (task_reader.relocations, task_reader.fetches) == (1, 0)


def test_damaged_bytes_are_not_believed(gateway: GatewayProcess, topic: str) -> None:
    read = reader(gateway, topic)
    [task, _] = read.partitions()
    assert isinstance(task, SpanPartition)
    damaged = tuple(
        msgspec.structs.replace(each, crc32c=each.crc32c ^ 1) for each in task.span.ranges or ()
    )

    with SpanReader(wishes(read, gateway.url)) as task_reader:
        batches = [*task_reader.batches(replace(task.span, ranges=damaged), 0)]

    assert sum(batch.num_rows for batch in batches) == 10
    assert task_reader.relocations == 1


@pytest.mark.parametrize("zone", ["memory", "directory"])
def test_a_bucket_out_of_reach_is_read_by_the_gateway(tmp_path: Path, zone: str) -> None:
    bucket = tmp_path / "bucket"
    url = "memory://" if zone == "memory" else bucket.as_uri()
    env = {"RIACHO_TABLE_BATCH_BYTES_MAX": "0"}  # What is in the table is never out of reach.
    with start_gateway(tmp_path, "--zones", f"a={url}", env=env) as hidden:
        with Admin(hidden.url) as admin:
            admin.create_topic("t")
        for start in range(0, 50, 10):
            produce(hidden.url, "t", [f"v{n}" for n in range(start, start + 10)])
        read = reader(hidden, "t")
        [task] = read.partitions()
        assert isinstance(task, SpanPartition)
        if zone == "directory":
            # The gateway still has in its memory what it wrote.
            bucket.rename(tmp_path / "elsewhere")

        with SpanReader(wishes(read, hidden.url)) as task_reader:
            batches = [*task_reader.batches(task.span.between(3, 47), 0)]

        values = [value for batch in batches for value in batch.column("value").to_pylist()]
        assert values == [b"v%d" % n for n in range(3, 47)]
        assert task_reader.fetches > 0


def test_deleted_records_are_an_error_or_skipped(gateway: GatewayProcess, topic: str) -> None:
    start = f'{{"{topic}": {{"0": 2, "1": 0, "2": 0}}}}'
    read = reader(gateway, topic, startingOffsets=start)
    lenient = reader(gateway, topic, startingOffsets=start, failOnDataLoss="false")
    unlocated = [
        SpanPartition(replace(each.span, ranges=None))
        for each in read.partitions()
        if isinstance(each, SpanPartition)
    ]
    delete_before(gateway, topic, 7)

    with pytest.raises(OffsetOutOfRange, match="/0: offsets from 2 to 10"):
        read.partitions()
    assert offsets(lenient)[0] == [7, 8, 9]
    # As a task finds it that was planned before.
    with pytest.raises(OffsetOutOfRange, match="/0: offsets from 2 to 10"):
        table(read, unlocated)
    assert table(lenient, unlocated).column("offset").to_pylist()[:4] == [7, 8, 9, 0]


def stream(gateway: GatewayProcess, topic: str, **options: str) -> RiachoStreamReader:
    given = {"url": gateway.url, "subscribe": topic, **options}
    return RiachoStreamReader(given, columns("partition", "offset", "value"))


def test_a_stream_goes_from_offset_to_offset(gateway: GatewayProcess, topic: str) -> None:
    read = stream(gateway, topic, startingOffsets="earliest")
    start = read.initialOffset()
    assert start == {topic: {"0": 0, "1": 0, "2": 0}}

    end = read.latestOffset(start, ReadAllAvailable())
    assert end == {topic: {"0": 10, "1": 5, "2": 0}}
    assert table(read, read.partitions(start, end)).num_rows == 15
    assert read.partitions(end, end) == []

    produce(gateway.url, topic, ["c0", "c1"], partition=2)
    after = read.latestOffset(end, ReadAllAvailable())
    assert table(read, read.partitions(end, after)).column("value").to_pylist() == [b"c0", b"c1"]
    read.stop()


def test_a_stream_is_limited_fairly(gateway: GatewayProcess, topic: str) -> None:
    read = stream(gateway, topic, startingOffsets="earliest", maxOffsetsPerTrigger="6")
    assert read.getDefaultReadLimit() == ReadMaxRows(6)

    end = read.latestOffset(read.initialOffset(), ReadMaxRows(6))

    assert end == {topic: {"0": 4, "1": 2, "2": 0}}
    read.stop()


def test_a_stream_waits_until_there_is_enough(gateway: GatewayProcess, topic: str) -> None:
    read = stream(gateway, topic, startingOffsets="earliest", minOffsetsPerTrigger="16")
    start = read.initialOffset()
    assert read.getDefaultReadLimit() == ReadMinRows(16)
    assert read.latestOffset(start, ReadMinRows(16)) == start

    produce(gateway.url, topic, ["one more"])

    assert read.latestOffset(start, ReadMinRows(16)) == {topic: {"0": 11, "1": 5, "2": 0}}
    read.stop()


def test_what_is_available_now_does_not_grow(gateway: GatewayProcess, topic: str) -> None:
    read = stream(gateway, topic, startingOffsets="earliest", minOffsetsPerTrigger="100")
    start = read.initialOffset()
    read.prepareForTriggerAvailableNow()
    produce(gateway.url, topic, ["late"])
    with Admin(gateway.url) as admin:
        admin.alter_topic(topic, partitions=4)

    end = read.latestOffset(start, ReadMinRows(100))

    assert end == {topic: {"0": 10, "1": 5, "2": 0}}
    assert read.latestOffset(end, ReadMinRows(100)) == end
    read.stop()


def test_a_new_partition_is_read_from_its_beginning(gateway: GatewayProcess, topic: str) -> None:
    read = stream(gateway, topic)
    start = read.initialOffset()
    with Admin(gateway.url) as admin:
        admin.alter_topic(topic, partitions=4)
    produce(gateway.url, topic, ["new"], partition=3)

    end = read.latestOffset(start, ReadAllAvailable())

    assert end[topic]["3"] == 1
    assert table(read, read.partitions(start, end)).column("value").to_pylist() == [b"new"]
    read.stop()


def test_a_stream_says_what_it_has_missed(gateway: GatewayProcess, topic: str) -> None:
    start, end = {topic: {"0": 2}}, {topic: {"0": 9}}
    delete_before(gateway, topic, 7)
    strict, lenient = stream(gateway, topic), stream(gateway, topic, failOnDataLoss="false")

    with pytest.raises(OffsetOutOfRange, match="/0: offsets from 2 to 9"):
        strict.partitions(start, end)
    found = table(lenient, lenient.partitions(start, end))
    assert found.column("offset").to_pylist() == [7, 8]

    beyond = {topic: {"0": 100, "1": 0, "2": 0}}
    with pytest.raises(OffsetOutOfRange, match="another topic"):
        strict.latestOffset(beyond, ReadAllAvailable())
    assert lenient.latestOffset(beyond, ReadAllAvailable())[topic]["0"] == 10

    gone = {topic: {"0": 10, "1": 5, "2": 0, "3": 8}}
    with pytest.raises(OffsetOutOfRange, match="/3 is gone"):
        strict.latestOffset(gone, ReadAllAvailable())
    assert "3" not in lenient.latestOffset(gone, ReadAllAvailable())[topic]
    strict.stop()
    lenient.stop()


def test_what_is_deleted_after_the_plan_is_for_the_task_to_tell(
    gateway: GatewayProcess, topic: str
) -> None:
    strict = stream(gateway, topic, startingOffsets="earliest")
    lenient = stream(gateway, topic, startingOffsets="earliest", failOnDataLoss="false")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ReadAllAvailable())
    assert lenient.latestOffset(start, ReadAllAvailable()) == end
    delete_before(gateway, topic, 7)

    with pytest.raises(OffsetOutOfRange, match="/0: offsets from 0 to 10"):
        table(strict, strict.partitions(start, end))
    found = table(lenient, lenient.partitions(start, end))
    assert found.column("offset").to_pylist() == [7, 8, 9, *range(5)]
    strict.stop()
    lenient.stop()


def test_a_column_that_is_not_there_is_named(gateway: GatewayProcess, topic: str) -> None:
    wrong = StructType([StructField("keys", BinaryType())])

    with pytest.raises(InvalidConfig, match="no column keys of type binary; there are key"):
        RiachoReader({"url": gateway.url, "subscribe": topic}, wrong)
