"""Rows become requests: which columns count, and how they are cut. No Spark is started."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from riacho.spark.write import rows as sink_rows
from riacho.spark.write.options import parse_batch, parse_stream
from riacho.spark.write.rows import Layout, layout, requests
from storage.errors import InvalidConfig, InvalidRecord

URL = {"url": "http://localhost:8080"}


TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "long": LongType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "map": MapType(StringType(), BinaryType()),
    "pairs": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


def wanted(schema: str, topic: str | None = "t") -> Layout:
    """Return the layout of columns like "key string, value binary"."""
    pairs = [column.split() for column in schema.split(", ")]
    return layout(StructType([StructField(name, TYPES[kind]) for name, kind in pairs]), topic)


def test_takes_the_columns_of_a_record_and_leaves_others_out() -> None:
    found = wanted(
        "offset long, value binary, key string, timestampType int, partition int, headers pairs"
    )

    assert found.columns == {"value": 1, "key": 2, "partition": 4, "headers": 5}


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("key string", "no column 'value'.*to_json"),
        ("value int", "'value' is int, and must be string or binary"),
        ("value string, key double", "'key' is double"),
        ("value string, value string", "two columns 'value'"),
        ("value string, partition string", "'partition' is string, and must be int"),
        ("value string, timestamp date", "'timestamp' is date"),
        ("value string, headers map", "array<struct<key:string,value:binary>>"),
        ("value string, topic binary", "'topic' is binary"),
    ],
)
def test_says_what_is_wrong_with_a_column(schema: str, told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        wanted(schema)


def test_needs_a_topic_from_somewhere() -> None:
    with pytest.raises(InvalidConfig, match="option topic"):
        wanted("value string", topic=None)
    assert wanted("value string, topic string", topic=None).topic is None


def batch_of(**columns: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(dict(columns))


def test_rows_go_to_the_topic_of_their_column_unless_the_option_names_one() -> None:
    rows = batch_of(value=["a", "b", "c"], topic=["x", "y", "x"])
    by_column = wanted("value string, topic string", topic=None)
    by_option = wanted("value string, topic string", topic="z")

    told = {topic: b.column("value").to_pylist() for topic, b in requests([rows], by_column)}
    assert told == {"x": [b"a", b"c"], "y": [b"b"]}
    [(topic, batch)] = requests([rows], by_option)
    assert (topic, batch.num_rows) == ("z", 3)


def test_a_row_without_a_topic_is_refused() -> None:
    rows = batch_of(value=["a"], topic=pa.array([None], pa.string()))
    with pytest.raises(InvalidRecord, match="topic of a row is null"):
        list(requests([rows], wanted("value string, topic string", topic=None)))


def test_times_are_cut_to_milliseconds() -> None:
    times = pa.array([1_999, None], pa.timestamp("us", "UTC"))
    rows = batch_of(value=["a", "b"], timestamp=times)

    [(_, batch)] = requests([rows], wanted("value string, timestamp timestamp"))

    assert batch.column("timestamp").to_pylist() == [1, None]


@given(st.lists(st.lists(st.integers(0, 60), max_size=30), max_size=8))
def test_requests_hold_all_rows_in_order_and_are_small_enough(sizes: list[list[int]]) -> None:
    batches = [
        batch_of(value=pa.array([b"x" * size for size in batch], pa.binary())) for batch in sizes
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink_rows, "REQUEST_BYTES", 200)
        patch.setattr(sink_rows, "REQUEST_RECORDS", 7)
        found = [batch for _, batch in requests(batches, wanted("value binary"))]

    values = [value for batch in found for value in batch.column("value").to_pylist()]
    assert [len(value) for value in values] == [size for batch in sizes for size in batch]
    assert all(batch.num_rows <= 7 for batch in found)
    assert all(batch.nbytes <= 220 for batch in found)


# Options


def test_a_query_is_named_by_its_checkpoint_however_that_is_written() -> None:
    names = {
        parse_stream({**URL, "checkpointlocation": place}).transactional_id
        for place in ("/a/b", "/a/b/", "file:/a/b", "file:///a/b")
    }
    other = parse_stream({**URL, "checkpointLocation": "/a/c"}).transactional_id

    assert len(names) == 1
    assert other not in names


def test_a_query_without_a_name_that_lasts_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="checkpointLocation"):
        parse_stream(URL)
    given_id = parse_stream({**URL, "transactionalId": "mine"}).transactional_id
    assert given_id == "mine"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"queryId": "q"}, "queryId and batchId together"),
        ({"batchId": "1"}, "queryId and batchId together"),
        ({"queryId": "a/b", "batchId": "1"}, "queryId is 'a/b'"),
        ({"queryId": "q", "batchId": "1", "atomic": "task"}, "atomic=task"),
        ({"transactionalId": "a b"}, "transactionalId is 'a b'"),
        ({"atomic": "none"}, "job or task"),
        ({"tpoic": "t"}, "no option 'tpoic'"),
        ({"compression": "brotli"}, "lz4 or zstd or none"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        parse_batch(URL | options)


def test_a_micro_batch_is_always_whole() -> None:
    with pytest.raises(InvalidConfig, match="always whole"):
        parse_stream({**URL, "checkpointLocation": "/c", "atomic": "task"})
