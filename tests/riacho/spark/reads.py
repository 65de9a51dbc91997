"""Reading as Spark does, without Spark: what the driver and the tasks are asked, one by one."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from riacho import Producer
from riacho.spark.read.reading import RiachoReader, SpanPartition
from riacho.spark.read.streaming import RiachoStreamReader

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
ALL = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(_HEADER)),
    ]
)


def columns(*names: str) -> StructType:
    return StructType([ALL[name] for name in names])


def table(
    reader: RiachoReader | RiachoStreamReader, partitions: Iterable[Any] | None = None
) -> pa.Table:
    """Return all records of some tasks, or of a whole batch query."""
    if partitions is None:
        assert isinstance(reader, RiachoReader)
        partitions = reader.partitions()
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    schema = reader._schema
    assert all(batch.schema == schema for batch in batches)
    return pa.Table.from_batches(batches, schema)


def spans(partitions: Iterable[Any]) -> list[tuple[int, int, int]]:
    """Return partition, start and end of tasks."""
    assert all(isinstance(each, SpanPartition) for each in partitions)
    return [(each.span.partition.partition, each.span.start, each.span.end) for each in partitions]


def produce(
    url: str, topic: str, values: Sequence[str], *, partition: int = 0, at_ms: int = 1_000
) -> None:
    """Write one record for each of `values`, a millisecond apart, in one partition."""
    with Producer(url) as producer:
        for number, value in enumerate(values):
            producer.send(
                topic,
                key=f"k{number % 5}",
                value=value,
                partition=partition,
                timestamp_ms=at_ms + number,
                headers={"n": str(number)} if number % 2 else None,
            )
