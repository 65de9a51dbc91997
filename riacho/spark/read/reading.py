"""Batch reads: the driver plans spans, tasks read them from the bucket, bypassing the gateway.

The plan says where the slices are, so that most tasks access the bucket only. A task that finds
part of its plan outdated locates the records again itself: plans do not expire.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from riacho.records import TopicPartition
from riacho.spark.read import filters as pushdown
from riacho.spark.read.columns import FIELDS, check_schema
from riacho.spark.read.decoding import COLUMN, Decoding, decoding_of
from riacho.spark.read.log import Log
from riacho.spark.read.options import Boundary, ReadOptions, batch_options, schema_options
from riacho.spark.read.planning import Extent, Offsets, Span, kept, resolved, tasks, times_of
from riacho.spark.read.ranges import EVERYTHING, Bounds
from riacho.spark.read.spans import SpanReader, Wishes
from storage.errors import InvalidConfig

NO_TYPE: Final = -1


@dataclass(frozen=True)
class SpanPartition(InputPartition):
    """The work of one task."""

    span: Span
    timestamp_type: int = NO_TYPE


def arrow_schema(schema: StructType, decoding: Decoding | None = None) -> pa.Schema:
    """Return the schema that Spark expects of batches, or raise `InvalidConfig`."""
    found = to_arrow_schema(schema, timezone="UTC")
    check_schema(found, decoding)
    return found


def decoding_for(options: ReadOptions) -> Decoding | None:
    """Return what decodes values, if the options ask for it."""
    if options.decode is None:
        return None
    return decoding_of(options.decode, options.url, options.credentials)


def schema_with_values(given: Mapping[str, str], names: Iterable[str]) -> StructType:
    """Return the columns of that name, and the decoded one."""
    decoding = decoding_for(schema_options(given))
    assert decoding is not None, "decode=true"
    fields = [pa.field(name, FIELDS[name]) for name in names]
    fields.append(pa.field(COLUMN, decoding.type))
    found = from_arrow_schema(pa.schema(fields), prefer_timestamp_ntz=True)
    assert isinstance(found, StructType), found
    return found


def read_spans(wishes: Wishes, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task; Spark may stop taking them at any time."""
    if not isinstance(partition, SpanPartition):
        # Spark creates an empty task if there are none.
        return
    with SpanReader(wishes) as reader:
        yield from reader.batches(partition.span, partition.timestamp_type)


def planned(
    log: Log,
    options: ReadOptions,
    schema: pa.Schema,
    spans: Sequence[Span],
    bounds: Bounds = EVERYTHING,
) -> list[SpanPartition]:
    """Return the tasks that read `spans`."""
    located = log.located(spans, bounds)
    cut = tasks(
        located,
        min_partitions=options.min_partitions,
        records_max=options.max_records_per_partition,
    )
    types: Mapping[str, int] = {}
    if "timestampType" in schema.names:
        types = log.timestamp_types({span.partition.topic for span in cut})
    return [SpanPartition(span, types.get(span.partition.topic, NO_TYPE)) for span in cut]


def start_offsets(
    log: Log, options: ReadOptions, extents: Mapping[TopicPartition, Extent]
) -> Offsets:
    """Return the offsets at which the options let a read begin."""

    def late(partition: TopicPartition, extent: Extent) -> int:
        if options.late_is_latest:
            return extent.end
        raise InvalidConfig(
            f"{partition} has no record so new; choose an earlier time, or set"
            " startingOffsetsByTimestampStrategy to latest"
        )

    return _offsets(log, "starting", options.start, extents, late)


def _offsets(
    log: Log, prefix: str, place: Boundary, extents: Mapping[TopicPartition, Extent], late: Any
) -> Offsets:
    by_time = f"{prefix}OffsetsByTimestamp"
    found = log.offsets_at(times_of(by_time, place, extents))
    return resolved(f"{prefix}Offsets", place, extents, found, late)


class RiachoReader(DataSourceReader):
    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = batch_options(given)
        self._decoding = decoding_for(self._options)
        self._schema = arrow_schema(schema, self._decoding)
        self._bounds = EVERYTHING

    @property
    def pushFilters(self) -> Any:  # noqa: N802
        """Take filters, if Spark offers them.

        Spark refuses a reader that overrides `pushFilters` while `filterPushdown` is off, its
        default. Without filters this reader is only slower, so the override is disguised as
        Spark's own method.
        """
        push = partial(self._push)
        push.__dict__["__func__"] = DataSourceReader.pushFilters
        return push

    def _push(self, filters: list[Filter]) -> Iterable[Filter]:
        self._bounds, left = pushdown.pushed(filters, self._bounds)
        return left

    def partitions(self) -> list[InputPartition]:
        with Log(self._options.url, self._options.credentials) as log:
            spans = self._spans(log)
            return [*planned(log, self._options, self._schema, spans, self._bounds)]

    def _spans(self, log: Log) -> list[Span]:
        options = self._options
        extents = log.extents(options.subscription)
        starts = start_offsets(log, options, extents)
        ends = _offsets(log, "ending", options.end, extents, lambda _, extent: extent.end)
        spans = []
        for partition, extent in extents.items():
            start, end = kept(
                partition,
                starts[partition],
                ends[partition],
                extent,
                fail_on_data_loss=options.fail_on_data_loss,
            )
            start, end = max(start, self._bounds.start), min(end, self._bounds.end)
            if start < end and self._bounds.takes(*partition):
                size_bytes = extent.bytes_of(start, end)
                spans.append(Span(partition=partition, start=start, end=end, size_bytes=size_bytes))
        return spans

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_spans(
            Wishes(
                url=self._options.url,
                credentials=self._options.credentials,
                schema=self._schema,
                bounds=self._bounds,
                fail_on_data_loss=self._options.fail_on_data_loss,
                decoding=self._decoding,
            ),
            partition,
        )
