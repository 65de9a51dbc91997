"""Writes of real Spark jobs to a real gateway: there once, whole, or not at all."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import count, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
import pytest

from riacho import Admin, Consumer, InvalidProducerEpoch
from riacho.records import Record
from riacho.spark.write.options import parse_batch
from riacho.spark.write.sink import StagedTask, batch_writer
from riacho.spark.write.transactions import Connection, Stager
from storage.errors import InvalidTransactionState, TransactionTooLarge
from tests.gateway import GatewayProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

needs_spark = pytest.mark.slow
LARGE = 100_000
"""Bytes of a value, of which a few hundred are several requests."""

_numbers = count()


@pytest.fixture
def topic(gateway: GatewayProcess) -> str:
    return new_topic(gateway)


def new_topic(gateway: GatewayProcess, partitions: int = 1) -> str:
    name = f"written-{next(_numbers)}"
    with Admin(gateway.url) as admin:
        admin.create_topic(name, partitions=partitions)
    return name


def read(gateway: GatewayProcess, topic: str) -> list[Record]:
    """Return all records there are."""
    with Admin(gateway.url) as admin, Consumer(gateway.url) as consumer:
        ends = {info.partition: info.high_watermark for info in admin.partitions(topic)}
        consumer.assign((topic, partition) for partition in ends)
        for partition in ends:
            consumer.seek(topic, partition, 0)
        records: list[Record] = []
        while len(records) < sum(ends.values()):
            records += consumer.poll(10_000)
        return sorted(records, key=lambda record: (record.partition, record.offset))


def values(gateway: GatewayProcess, topic: str) -> list[str]:
    return [(record.value or b"").decode() for record in read(gateway, topic)]


def save(frame: "DataFrame", gateway: GatewayProcess, topic: str, **options: str) -> None:
    writer = frame.write.format("riacho").option("url", gateway.url).option("topic", topic)
    writer.options(**options).mode("append").save()


# A job


@needs_spark
def test_rows_arrive_with_all_their_columns_in_the_order_of_tasks(
    gateway: GatewayProcess, topic: str, spark: "SparkSession"
) -> None:
    rows = spark.range(0, 100, numPartitions=4).selectExpr(
        "cast(id AS string) AS key",
        "cast(concat('v', id) AS binary) AS value",
        "timestamp_millis(1000 + id) AS timestamp",
        "array(named_struct('key', 'h', 'value', cast(cast(id AS string) AS binary))) AS headers",
        "0 AS partition",
        "id AS offset",
    )
    save(rows, gateway, topic)

    records = read(gateway, topic)
    assert [record.key for record in records] == [b"%d" % i for i in range(100)]
    assert [record.value for record in records] == [b"v%d" % i for i in range(100)]
    assert [record.timestamp for record in records] == [1000 + i for i in range(100)]
    assert records[7].headers == (("h", b"7"),)


@needs_spark
def test_rows_choose_their_topics_and_nulls_stay_nulls(
    gateway: GatewayProcess, topic: str, spark: "SparkSession"
) -> None:
    other = new_topic(gateway, partitions=3)
    rows = spark.sql(
        f"SELECT * FROM VALUES ('{topic}', 'a', 'x', 0), ('{other}', 'b', NULL, 2),"
        f" ('{other}', NULL, 'z', 1) AS t(topic, key, value, partition)"
    )
    rows.write.format("riacho").option("url", gateway.url).mode("append").save()

    assert [(r.key, r.value) for r in read(gateway, topic)] == [(b"a", b"x")]
    found = [(r.partition, r.key, r.value) for r in read(gateway, other)]
    assert found == [(1, None, b"z"), (2, b"b", None)]


def failing(folder: Path, failures: int) -> Callable[[Any], Any]:
    """Return a step that fails so many times behind some twenty large rows."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch
            if number == 20 and len(list(folder.iterdir())) < failures:
                (folder / str(len(list(folder.iterdir())))).touch()
                raise RuntimeError("as the test wants it")

    return step


@pytest.fixture
def small_batches(spark: "SparkSession") -> Iterator[None]:
    """Few rows in a batch, so that a step fails when some batches are staged."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "5")
    yield
    spark.conf.set(name, before)


def large_rows(spark: "SparkSession", folder: Path, failures: int) -> "DataFrame":
    rows = spark.range(0, 300, numPartitions=2).selectExpr(
        f"concat(id, '-', repeat('x', {LARGE})) AS value"
    )
    return rows.mapInArrow(failing(folder, failures), "value string")


@needs_spark
@pytest.mark.usefixtures("small_batches")
def test_what_a_failed_attempt_has_staged_is_not_there_besides_its_repetition(
    gateway: GatewayProcess, topic: str, spark: "SparkSession", tmp_path: Path
) -> None:
    save(large_rows(spark, tmp_path, failures=2), gateway, topic)

    assert len(list(tmp_path.iterdir())) == 2
    assert [value.split("-")[0] for value in values(gateway, topic)] == [*map(str, range(300))]


@needs_spark
@pytest.mark.usefixtures("small_batches")
def test_a_job_that_fails_has_written_nothing(
    gateway: GatewayProcess, topic: str, spark: "SparkSession", tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="as the test wants it"):
        save(large_rows(spark, tmp_path, failures=99), gateway, topic)

    assert values(gateway, topic) == []
    found = httpx.get(f"{gateway.url}/v1/transactions").json()["transactions"]
    assert {each["state"] for each in found} <= {"committed", "aborted"}


@needs_spark
def test_tasks_may_commit_by_themselves(
    gateway: GatewayProcess, topic: str, spark: "SparkSession"
) -> None:
    rows = spark.range(0, 10, numPartitions=3).selectExpr("cast(id AS string) AS value")
    save(rows, gateway, topic, atomic="task")

    assert sorted(values(gateway, topic), key=int) == [*map(str, range(10))]


@needs_spark
def test_nothing_is_easily_written(
    gateway: GatewayProcess, topic: str, spark: "SparkSession"
) -> None:
    rows = spark.range(0).selectExpr("cast(id AS string) AS value")
    save(rows, gateway, topic)
    save(rows, gateway, topic, queryId="nothing", batchId="0")

    assert values(gateway, topic) == []


@needs_spark
def test_a_batch_of_foreach_batch_is_written_once(
    gateway: GatewayProcess, topic: str, spark: "SparkSession"
) -> None:
    rows = spark.range(3).selectExpr("cast(id AS string) AS value")
    for batch_id in ("0", "0", "1", "0", "1"):
        save(rows, gateway, topic, queryId=f"query-{topic}", batchId=batch_id)

    assert sorted(values(gateway, topic)) == ["0", "0", "1", "1", "2", "2"]


# A query


@needs_spark
def test_a_micro_batch_that_spark_runs_again_is_recognised(
    gateway: GatewayProcess, topic: str, spark: "SparkSession", tmp_path: Path
) -> None:
    def run_until(batch_id: int) -> None:
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "10")
        rows = source.option("numPartitions", "2").option("startTimestamp", "0").load()
        query = (
            rows.selectExpr("cast(value AS string) AS value")
            .writeStream.format("riacho")
            .option("url", gateway.url)
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            while not (tmp_path / f"checkpoint/commits/{batch_id}").exists():
                assert query.isActive, query.exception()
                query.awaitTermination(1)
        finally:
            query.stop()

    run_until(2)
    commits = tmp_path / "checkpoint/commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    # As if Spark had died between our commit and its own.
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)

    run_until(last + 2)

    written = values(gateway, topic)
    batches = len(written) // 10
    assert batches >= last + 3
    rows = [10 * b + row for b in range(batches) for row in (*range(0, 10, 2), *range(1, 10, 2))]
    assert written == [*map(str, rows)]


# Without Spark: what tasks and drivers do


def staged(gateway: GatewayProcess, topic: str, name: str, *texts: str) -> StagedTask:
    options = parse_batch({"url": gateway.url, "transactionalId": name})
    batch = pa.RecordBatch.from_pydict({"value": [text.encode() for text in texts]})
    with Connection(options) as connection:
        transaction_id = connection.begin(name)
        stager = Stager(connection, transaction_id)
        stager.send(topic, batch)
        return StagedTask(transaction_id, tuple(stager.finish()), frozenset({topic}))


def send_all(stager: Stager, topic: str, batches: Iterable[pa.RecordBatch]) -> None:
    for batch in batches:
        stager.send(topic, batch)


def writer_of(gateway: GatewayProcess, topic: str, **more: str) -> Any:
    from pyspark.sql.types import StringType, StructField, StructType

    options = {"url": gateway.url, "topic": topic, **more}
    return batch_writer(options, StructType([StructField("value", StringType())]), False)


def test_a_driver_that_was_replaced_can_commit_nothing(gateway: GatewayProcess, topic: str) -> None:
    old = staged(gateway, topic, "job-1", "old")
    new = staged(gateway, topic, "job-1", "new")
    writer = writer_of(gateway, topic, transactionalId="job-1")

    with pytest.raises(InvalidProducerEpoch, match="another driver goes on with this query"):
        writer.commit([old])
    writer.commit([new, None])
    writer.commit([new])

    assert values(gateway, topic) == ["new"]


def test_a_writer_begins_when_it_is_sent_to_its_tasks_and_once(
    gateway: GatewayProcess, topic: str
) -> None:
    writer = writer_of(gateway, topic, transactionalId="job-2")
    shipped = [pickle.loads(pickle.dumps(writer)) for _ in range(2)]

    described = httpx.get(f"{gateway.url}/v1/transactions").json()["transactions"]
    assert [each["epoch"] for each in described if each["transactional_id"] == "job-2"] == [0]
    shipped[0].abort([])
    described = httpx.get(f"{gateway.url}/v1/transactions").json()["transactions"]
    [state] = [each["state"] for each in described if each["transactional_id"] == "job-2"]
    assert state == "aborted"


def test_what_is_too_much_says_what_to_do_in_spark(gateway: GatewayProcess) -> None:
    wide = new_topic(gateway, partitions=1000)
    options = parse_batch({"url": gateway.url})
    batch = pa.RecordBatch.from_pydict(
        {"value": [b""] * 1000, "partition": pa.array(range(1000), pa.int32())}
    )
    with Connection(options) as connection:
        stager = Stager(connection, connection.begin("job-3"))
        with pytest.raises(TransactionTooLarge, match=r"maxOffsetsPerTrigger.*'atomic', 'task'"):
            send_all(stager, wide, [batch] * 20)


def test_what_took_too_long_says_what_to_do_in_spark(gateway: GatewayProcess, topic: str) -> None:
    options = parse_batch({"url": gateway.url, "transactionTimeoutMs": "1"})
    batch = pa.RecordBatch.from_pydict({"value": [b"late"]})
    with Connection(options) as connection:
        stager = Stager(connection, connection.begin("job-4"))
        with pytest.raises(InvalidTransactionState, match="transactionTimeoutMs"):
            send_all(stager, topic, repeat(batch))
