"""Streaming reads: micro-batches from offset to offset, which Spark keeps in its checkpoint.

Offsets are written as Kafka's source does, {"orders": {"0": 23}}. A partition that appears later
is read from its beginning. What was deleted before it was read is an error that names it, unless
`failOnDataLoss` is false: then the query goes on with what there is.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from riacho.errors import new_error
from riacho.records import TopicPartition
from riacho.spark.read.log import Log
from riacho.spark.read.options import stream_options
from riacho.spark.read.planning import (
    Extent,
    Offsets,
    Span,
    from_json,
    kept,
    limited,
    lost,
    to_json,
)
from riacho.spark.read.ranges import EVERYTHING
from riacho.spark.read.reading import arrow_schema, planned, read_spans, start_offsets
from riacho.spark.read.spans import Wishes
from storage.errors import OffsetOutOfRange

Document = dict[str, dict[str, int]]


class RiachoStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = stream_options(given)
        self._schema = arrow_schema(schema)
        self._log: Log | None = None
        self._target: Offsets | None = None
        self._extents: dict[TopicPartition, Extent] = {}
        self._moved_s = time.monotonic()

    def initialOffset(self) -> Document:  # noqa: N802
        log = self._opened()
        # Here also a misspelt topic is an error, which later could as well be a deleted one.
        extents = log.extents(self._options.subscription)
        return to_json(start_offsets(log, self._options, extents))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Document, limit: ReadLimit) -> Document:  # noqa: N802
        """Return where the next micro-batch ends; `start` if there is nothing to do yet."""
        begin = from_json(start)
        end = self._ends(begin)
        if isinstance(limit, ReadAllAvailable):
            return to_json(end)
        least = self._options.min_offsets_per_trigger
        # What is left of a target may be less, and nothing will be added to it.
        if least is not None and self._target is None and self._is_early(begin, end, least):
            return start
        if isinstance(limit, ReadMaxRows):
            end = limited(self._begun(begin, end), end, limit.max_rows)
        self._moved_s = time.monotonic()
        return to_json(end)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {partition: extent.end for partition, extent in self._look().items()}

    def reportLatestOffset(self) -> Document:  # noqa: N802
        return to_json({partition: extent.end for partition, extent in self._extents.items()})

    def partitions(self, start: Document, end: Document) -> list[InputPartition]:
        begin, ends = from_json(start), from_json(end)
        if begin == ends:
            return []
        extents = self._extents
        if any(p not in extents or extents[p].end < last for p, last in ends.items()):
            extents = self._look()
        spans = []
        for partition, last in sorted(ends.items()):
            extent = extents.get(partition)
            if extent is None:
                self._note_gone([partition])
                continue
            first, last = kept(
                partition,
                self._first(begin, partition, extent),
                last,
                extent,
                fail_on_data_loss=self._options.fail_on_data_loss,
            )
            if first < last:
                spans.append(
                    Span(
                        partition=partition,
                        start=first,
                        end=last,
                        size_bytes=extent.bytes_of(first, last),
                    )
                )
        return [*planned(self._opened(), self._options, self._schema, spans)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        wishes = Wishes(
            url=self._options.url,
            schema=self._schema,
            bounds=EVERYTHING,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        return read_spans(wishes, partition)

    def commit(self, end: Document) -> None:
        """Do nothing: the checkpoint is Spark's, and nobody else asks how far it is."""

    def stop(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy, which needs no connection.
        return self.__dict__ | {"_log": None, "_extents": {}}

    def _ends(self, begin: Offsets) -> Offsets:
        """Return where each partition ends now, never before `begin`."""
        extents = self._look()
        if gone := begin.keys() - extents.keys():
            self._note_gone(sorted(gone))
        ends: Offsets = {}
        for partition, extent in extents.items():
            end = extent.end if self._target is None else self._target.get(partition, 0)
            first = self._first(begin, partition, extent)
            if extent.end < first:
                if self._options.fail_on_data_loss:
                    raise lost(partition, first, first, extent)
                ends[partition] = extent.end
            else:
                ends[partition] = max(end, first)
        if self._target is not None:
            # Partitions that came later wait for the next run.
            return {p: end for p, end in ends.items() if p in self._target or p in begin}
        return ends

    def _first(self, begin: Offsets, partition: TopicPartition, extent: Extent) -> int:
        """Return where to begin with a partition: a new one from its first record on."""
        if partition in begin:
            return begin[partition]
        return 0 if self._options.fail_on_data_loss else extent.log_start

    def _begun(self, begin: Offsets, end: Offsets) -> Offsets:
        """Return from where records wait to be read, log starts included."""
        return {p: max(begin.get(p, 0), self._extents[p].log_start) for p in end}

    def _is_early(self, begin: Offsets, end: Offsets, least: int) -> bool:
        """Whether so little waits, for so short a time, that it is better to wait for more."""
        waited_ms = (time.monotonic() - self._moved_s) * 1000
        started = self._begun(begin, end)
        waiting = sum(max(0, end[partition] - started[partition]) for partition in end)
        return waiting < least and waited_ms < self._options.max_trigger_delay_ms

    def _note_gone(self, partitions: list[TopicPartition]) -> None:
        if self._options.fail_on_data_loss:
            raise new_error(
                OffsetOutOfRange,
                f"{', '.join(map(str, partitions))} is gone, and so may be records that were not"
                " read. Set failOnDataLoss to false to go on without",
            )

    def _look(self) -> dict[TopicPartition, Extent]:
        self._extents = self._opened().extents(
            self._options.subscription, missing_ok=not self._options.fail_on_data_loss
        )
        return self._extents

    def _opened(self) -> Log:
        if self._log is None:
            self._log = Log(self._options.url)
        return self._log
