"""Streaming reads: micro-batches between offsets, which Spark keeps in its checkpoint.

Offsets are written as Kafka's source does, {"orders": {"0": 23}}. A partition that is added later
is read from its beginning. If records were deleted before they were read, the query fails with an
error that names them, unless `failOnDataLoss` is false: then it continues with what is left.
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
from riacho.spark.read.reading import arrow_schema, decoding_for, planned, read_spans, start_offsets
from riacho.spark.read.spans import Wishes
from storage.errors import OffsetOutOfRange

Document = dict[str, dict[str, int]]


class RiachoStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = stream_options(given)
        self._decoding = decoding_for(self._options)
        self._schema = arrow_schema(schema, self._decoding)
        self._log: Log | None = None
        self._target: Offsets | None = None
        self._extents: dict[TopicPartition, Extent] = {}
        self._moved_s = time.monotonic()

    def initialOffset(self) -> Document:  # noqa: N802
        log = self._opened()
        # A missing topic always fails here: it may be misspelt. Later it may have been deleted.
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
        # The rest of a target may be less than the minimum, and will not grow.
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
            credentials=self._options.credentials,
            schema=self._schema,
            bounds=EVERYTHING,
            fail_on_data_loss=self._options.fail_on_data_loss,
            decoding=self._decoding,
        )
        return read_spans(wishes, partition)

    def commit(self, end: Document) -> None:
        """Do nothing: Spark keeps the checkpoint, and the gateway need not know it."""

    def stop(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy, which needs no connection of the driver.
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
            # Partitions that were added later wait for the next run.
            return {p: end for p, end in ends.items() if p in self._target or p in begin}
        return ends

    def _first(self, begin: Offsets, partition: TopicPartition, extent: Extent) -> int:
        """Return where a partition begins: a new one at its first record."""
        if partition in begin:
            return begin[partition]
        return 0 if self._options.fail_on_data_loss else extent.log_start

    def _begun(self, begin: Offsets, end: Offsets) -> Offsets:
        """Return the first unread offsets, which are never before the log starts."""
        return {p: max(begin.get(p, 0), self._extents[p].log_start) for p in end}

    def _is_early(self, begin: Offsets, end: Offsets, least: int) -> bool:
        """Whether fewer than `least` offsets wait, and the maximum trigger delay has not passed."""
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
            self._log = Log(self._options.url, self._options.credentials)
        return self._log
