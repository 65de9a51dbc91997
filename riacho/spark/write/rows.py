"""Turns rows of a data frame into records, in requests of a suitable size.

Columns are those of Spark's Kafka sink (`key`, `value`, `topic`, `partition`, `headers`), and
`timestamp`. Others are ignored, so that rows read from one topic can be written to another one
unchanged. Batches stay Arrow throughout; only those that are too large are split.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from storage.errors import InvalidConfig, InvalidRecord

REQUEST_BYTES: Final = 8 * 1024 * 1024
"""A transaction keeps a list of its requests, so it can hold more if they are larger."""

REQUEST_RECORDS: Final = 50_000

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TEXT: Final = (StringType, BinaryType)
_KINDS: Final[dict[str, tuple[tuple[type[DataType], ...], str]]] = {
    "key": (_TEXT, "string or binary"),
    "value": (_TEXT, "string or binary"),
    "topic": ((StringType,), "string"),
    "partition": ((IntegerType, ShortType, ByteType, LongType), "int"),
    "timestamp": ((TimestampType, TimestampNTZType, LongType), "timestamp, or bigint in ms"),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of a record's columns."""

    columns: dict[str, int]
    topic: str | None
    """The topic of all rows; None: each row's column `topic`."""


def layout(schema: StructType, topic: str | None) -> Layout:
    """Return the layout of rows of `schema`, or raise `InvalidConfig`."""
    columns = {}
    for place, each in enumerate(schema.fields):
        if each.name in columns:
            raise InvalidConfig(f"there are two columns {each.name!r}")
        if each.name in _KINDS:
            kinds, wanted = _KINDS[each.name]
            if not isinstance(each.dataType, kinds):
                found = each.dataType.simpleString()
                raise InvalidConfig(f"column {each.name!r} is {found}, and must be {wanted}")
            columns[each.name] = place
        elif each.name == "headers":
            _check_headers(each.dataType)
            columns[each.name] = place
    if "value" not in columns:
        names = ", ".join(each.name for each in schema.fields) or "none"
        raise InvalidConfig(
            f"there is no column 'value' (but: {names}); to_json(struct(*)) AS value makes one of"
            " all columns"
        )
    if topic is None and "topic" not in columns:
        raise InvalidConfig("where to? Set the option topic, or have a column 'topic'")
    return Layout(columns, topic)


def _check_headers(kind: DataType) -> None:
    is_right = (
        isinstance(kind, ArrayType)
        and isinstance(kind.elementType, StructType)
        and [each.name for each in kind.elementType.fields] == ["key", "value"]
        and isinstance(kind.elementType.fields[0].dataType, StringType)
        and isinstance(kind.elementType.fields[1].dataType, BinaryType)
    )
    if not is_right:
        raise InvalidConfig(
            f"column 'headers' is {kind.simpleString()}, and must be"
            " array<struct<key:string,value:binary>>"
        )


@dataclass(slots=True)
class _Waiting:
    batches: list[pa.RecordBatch] = field(default_factory=list)
    size_bytes: int = 0
    row_count: int = 0


def requests(
    batches: Iterable[pa.RecordBatch], wanted: Layout
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield requests: a topic and its next records, in order within each topic.

    Holds less than `REQUEST_BYTES` of each topic, and one of Spark's batches.
    """
    waiting: dict[str, _Waiting] = {}
    for batch in batches:
        for topic, records in _by_topic(batch, wanted):
            for piece in _pieces(records):
                held = waiting.setdefault(topic, _Waiting())
                size_bytes = held.size_bytes + piece.nbytes
                is_full = held.row_count + piece.num_rows > REQUEST_RECORDS
                if held.batches and (is_full or size_bytes > REQUEST_BYTES):
                    yield topic, pa.concat_batches(held.batches)
                    held = waiting[topic] = _Waiting()
                held.batches.append(piece)
                held.size_bytes += piece.nbytes
                held.row_count += piece.num_rows
    for topic, held in waiting.items():
        yield topic, pa.concat_batches(held.batches)


def _by_topic(batch: pa.RecordBatch, wanted: Layout) -> Iterator[tuple[str, pa.RecordBatch]]:
    if not batch.num_rows:
        return
    records = _records(batch, wanted)
    if wanted.topic is not None:
        yield wanted.topic, records
        return
    topics = batch.column(wanted.columns["topic"])
    if topics.null_count:
        raise InvalidRecord("the topic of a row is null; set the option topic, or a column")
    for topic in pc.unique(topics).to_pylist():
        yield topic, records.filter(pc.equal(topics, topic))


def _records(batch: pa.RecordBatch, wanted: Layout) -> pa.RecordBatch:
    """Return the rows with the columns and types of a produce request."""
    columns: dict[str, pa.Array] = {}
    for name, place in wanted.columns.items():
        column = batch.column(place)
        if name in ("key", "value"):
            columns[name] = column.cast(pa.binary())
        elif name == "headers":
            columns[name] = column.cast(_HEADERS)
        elif name == "partition":
            columns[name] = column.cast(pa.int32())
        elif name == "timestamp":
            columns[name] = _in_ms(column)
    return pa.RecordBatch.from_pydict(columns)


def _in_ms(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        # Truncated to milliseconds, as Spark's own casts do.
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    return column.cast(pa.int64())


def _pieces(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield `records` in pieces that fit into a request; a single row cannot be split."""
    is_small = records.nbytes <= REQUEST_BYTES and records.num_rows <= REQUEST_RECORDS
    if is_small or records.num_rows == 1:
        yield records
        return
    middle = records.num_rows // 2
    yield from _pieces(records.slice(0, middle))
    yield from _pieces(records.slice(middle))
