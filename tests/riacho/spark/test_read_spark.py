"""Reads of a real Spark."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from riacho import Admin
from tests.gateway import GatewayProcess
from tests.riacho.spark.queries import ended
from tests.riacho.spark.read_until_killed import begin
from tests.riacho.spark.reads import produce
from tests.torture.sizes import only_proof

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# A JVM takes 16 s to start where nobody else works, and minutes where many do.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[3]
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def topic(gateway: GatewayProcess) -> str:
    with Admin(gateway.url) as admin:
        admin.create_topic("orders", partitions=3)
    for partition in range(3):
        values = [f'{{"id": {n}}}' for n in range(100)]
        produce(gateway.url, "orders", values, partition=partition)
    return "orders"


def load(
    spark: "SparkSession", gateway: GatewayProcess, schema: str = "", **options: str
) -> "DataFrame":
    reader = spark.read.format("riacho").option("kafka.bootstrap.servers", gateway.url)
    return (reader.schema(schema) if schema else reader).options(**options).load()


def test_a_topic_is_a_table_as_with_kafka(
    spark: "SparkSession", gateway: GatewayProcess, topic: str
) -> None:
    frame = load(spark, gateway, subscribe=topic)

    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    frame.createOrReplaceTempView("orders")
    [row] = spark.sql(
        "SELECT count(*) AS n, sum(get_json_object(cast(value AS string), '$.id')) AS ids,"
        " min(date_format(timestamp, 'ss.SSS')) AS first FROM orders WHERE topic = 'orders'"
    ).collect()
    assert (row.n, row.ids, row.first) == (300, 3 * 4950, "01.000")


def test_headers_come_when_they_are_asked_for(
    spark: "SparkSession", gateway: GatewayProcess, topic: str
) -> None:
    frame = load(spark, gateway, subscribe=topic, includeHeaders="true")

    rows = frame.where("partition = 0 AND offset < 2").orderBy("offset").collect()

    assert frame.dtypes[-1] == ("headers", "array<struct<key:string,value:binary>>")
    assert rows[0].headers is None
    assert [(header.key, bytes(header.value)) for header in rows[1].headers] == [("n", b"1")]


def test_filters_and_columns_are_pushed_down(
    spark: "SparkSession", gateway: GatewayProcess, topic: str
) -> None:
    frame = load(spark, gateway, "partition int, offset long, key binary", subscribe=topic)
    wanted = frame.where("partition = 1 AND offset >= 97")
    plain = wanted.count()
    spark.conf.set(PUSHDOWN, "true")
    try:
        pushed = load(
            spark, gateway, "partition int, offset long, key binary", subscribe=topic
        ).where("partition = 1 AND offset >= 97")

        assert [row.offset for row in pushed.orderBy("offset").collect()] == [97, 98, 99]
        assert pushed.rdd.getNumPartitions() == 1
    finally:
        spark.conf.unset(PUSHDOWN)
    assert plain == 3


def test_what_is_wrong_is_said_where_people_look(
    spark: "SparkSession", gateway: GatewayProcess
) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="no option 'startingoffset'"):
        load(spark, gateway, subscribe="t", startingOffset="earliest").count()


def test_a_stream_reads_in_steps_and_ends_when_all_is_read(
    spark: "SparkSession", gateway: GatewayProcess, topic: str, tmp_path: Path
) -> None:
    frame = (
        spark.readStream.format("riacho")
        .option("url", gateway.url)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "120")
        .load()
    )

    def start(attempt: int) -> "StreamingQuery":
        writer = frame.writeStream.format("memory").queryName("steps")
        folder = tmp_path / f"checkpoint-{attempt}"
        return writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()

    query = ended(start)

    rows = [progress["numInputRows"] for progress in query.recentProgress]
    assert [count for count in rows if count] == [120, 120, 60]
    assert spark.table("steps").select("partition", "offset").distinct().count() == 300


@only_proof  # Another JVM. test_spark_exactly_once.py has one in every run.
def test_a_killed_stream_goes_on_where_its_checkpoint_is(
    spark: "SparkSession", gateway: GatewayProcess, tmp_path: Path
) -> None:
    with Admin(gateway.url) as admin:
        admin.create_topic("copied", partitions=2)
    for partition in range(2):
        produce(gateway.url, "copied", [f"v{n}" for n in range(200)], partition=partition)
    arguments = [gateway.url, "copied", str(tmp_path)]
    command = [sys.executable, "-m", "tests.riacho.spark.read_until_killed", *arguments]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True)
    assert child.stdout is not None
    with child.stdout:
        said = child.stdout.readline()
    # The group, because the JVM and its workers shall not finish what they do.
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    assert said == b"begun\n"
    produce(gateway.url, "copied", ["last"])

    query = ended(lambda _: begin(spark, gateway.url, "copied", str(tmp_path), now=True))

    copied = spark.read.json(f"{tmp_path}/out").orderBy("partition", "offset").collect()
    expected = [*((0, n) for n in range(201)), *((1, n) for n in range(200))]
    assert [(row.partition, row.offset) for row in copied] == expected
    assert query.lastProgress["batchId"] > 0
