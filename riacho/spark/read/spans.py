"""Reads one span in a task: from the bucket, with fallbacks if that fails.

    plan ──▶ bucket          as the driver located it
               │ fails       the URL expired, or the object was compacted and swept meanwhile
    gateway ──▶ bucket       located again
               │ fails       this machine cannot reach the bucket
    gateway                  the records themselves, as Arrow

Each step continues at the first unread offset, so no record is repeated or skipped.
Memory: `AHEAD_BYTES` of stored bytes, and about two batches of records.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import pyarrow as pa

from riacho.http.identity import NOTHING_GIVEN, Credentials
from riacho.spark.read.columns import RecordPiece, SourceColumns
from riacho.spark.read.decoding import Decoding
from riacho.spark.read.direct import Direct, Unread, is_local
from riacho.spark.read.options import TopicSelection
from riacho.spark.read.planning import Span, lost
from riacho.spark.read.ranges import Bounds, StoredRange, groups, url_of, wanted
from riacho.spark.read.sealed import DataKeys
from storage.errors import Corrupt, NotSupported, OffsetOutOfRange
from storage.formats.slices import SCHEMA_MESSAGE

if TYPE_CHECKING:
    from riacho.spark.read.log import Log
    from storage.formats.compacted import Footer

BATCH_BYTES: Final = 2 * 1024 * 1024
"""In stored bytes; a batch takes several times as much in memory."""
BATCH_PIECES: Final = 32

FOOTERS_MAX: Final = 8
"""Maximum number of cached footers; a span reads its files one after the other."""

STRAIGHT_FAILURES_MAX: Final = 3
"""After this many consecutive failures a task reads the rest through the gateway."""


Pieces: TypeAlias = list[tuple[RecordPiece, int]]
"""Records, each piece with its stored size in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """How a task reads, the same for all spans."""

    url: str
    schema: pa.Schema
    bounds: Bounds
    fail_on_data_loss: bool
    credentials: Credentials = NOTHING_GIVEN
    decoding: Decoding | None = None


class SpanReader:
    """Reads spans; opens connections when they are needed."""

    def __init__(self, wishes: Wishes) -> None:
        self._wishes = wishes
        self._direct = Direct(lambda *place: self._gateway().read(*place))
        self._log: Log | None = None
        self._opening = Lock()
        self._footers: dict[str, Footer] = {}
        self._keys = DataKeys(lambda topic, number: self._gateway().data_key(topic, number))
        self._failures = 0
        self.relocations = 0
        self.fetches = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._direct.close()
        if self._log is not None:
            self._log.close()

    def batches(self, span: Span, timestamp_type: int) -> Iterator[pa.RecordBatch]:
        """Yield the records of `span`, in the order of their offsets.

        Raises `OffsetOutOfRange` if some were deleted and `fail_on_data_loss` is set.
        """
        topic, partition = span.partition
        columns = SourceColumns(
            self._wishes.schema, topic, partition, timestamp_type, self._wishes.decoding
        )
        held: list[RecordPiece] = []
        held_bytes = 0
        for piece, size_bytes in self._pieces(span, columns):
            if not piece.count:
                continue
            held.append(piece)
            held_bytes += size_bytes
            if held_bytes >= BATCH_BYTES or len(held) >= BATCH_PIECES:
                yield columns.batch(held)
                held, held_bytes = [], 0
        if held:
            yield columns.batch(held)

    def _pieces(self, span: Span, columns: SourceColumns) -> Iterator[tuple[RecordPiece, int]]:
        """Yield records in order, each piece with its stored size in bytes."""
        position = span.start
        ranges: Sequence[StoredRange] | None = span.ranges
        end = span.end
        while position < span.end:
            if self._failures >= STRAIGHT_FAILURES_MAX:
                pieces, position = self._fetched(span, position, columns)
                yield from pieces
                continue
            if ranges is None:
                position, end, ranges = self._located(span, position)
                continue
            try:
                for group, result in self._read(ranges, columns):
                    pieces = result()
                    self._failures = 0
                    start, position = position, group[-1].end_offset
                    # Ranges that were located again may include records already read.
                    yield from ((piece.between(start, span.end), size) for piece, size in pieces)
                position = end
            except (Unread, Corrupt):
                self._failures += 1
                if self._failures > 1:
                    pieces, position = self._fetched(span, position, columns)
                    yield from pieces
            ranges = None

    def _located(self, span: Span, position: int) -> tuple[int, int, list[StoredRange]]:
        """Return where to continue, where the ranges end, and the ranges."""
        self.relocations += 1
        try:
            located = self._gateway().locate(span.partition, position, span.end)
        except OffsetOutOfRange as error:
            position = self._after_loss(span, position, error)
            return position, position, []
        except NotSupported:
            self._failures = STRAIGHT_FAILURES_MAX
            return position, position, []
        end = min(located.next_offset, span.end)
        if end <= position:
            raise Corrupt(f"{span.partition}: the gateway has nothing at offset {position}")
        bounds = self._wishes.bounds.within(start=position, end=span.end)
        return position, end, wanted(located.segments, bounds)

    def _fetched(self, span: Span, position: int, columns: SourceColumns) -> tuple[Pieces, int]:
        """Read records from `position` on through the gateway; return them and where they end."""
        self.fetches += 1
        try:
            fetched = self._gateway().fetch(span.partition, position, span.end)
        except OffsetOutOfRange as error:
            return [], self._after_loss(span, position, error)
        if fetched.next_offset <= position:
            raise Corrupt(f"{span.partition}: the gateway has nothing at offset {position}")
        pieces = [
            RecordPiece(offsets, rows.num_rows, rows.select(columns.stored)).between(
                position, span.end
            )
            for offsets, rows in fetched.batches
        ]
        return [(piece, BATCH_BYTES // 4) for piece in pieces], min(fetched.next_offset, span.end)

    def _after_loss(self, span: Span, position: int, error: OffsetOutOfRange) -> int:
        """Return the offset to continue at after records were deleted, or raise."""
        extent = self._gateway().extents(TopicSelection(names=(span.partition.topic,)))[
            span.partition
        ]
        if self._wishes.fail_on_data_loss:
            raise lost(span.partition, position, span.end, extent) from error
        return extent.log_start if position < extent.log_start else span.end

    def _read(
        self, ranges: Sequence[StoredRange], columns: SourceColumns
    ) -> Iterator[tuple[list[StoredRange], Callable[[], Pieces]]]:
        """Yield groups of ranges, each with a function that returns its records."""
        runs = [*groups(ranges)]

        def read(run: list[StoredRange]) -> Callable[[], Pieces]:
            return self._row_group(run[0], columns) if run[0].is_parquet else slices(run)

        def slices(run: list[StoredRange]) -> Callable[[], Pieces]:
            sizes = [each.size_bytes for each in run]
            if not columns.stored:
                # Offsets are dense, so the index is enough to answer.
                known = [RecordPiece(each.base_offset, each.count, None) for each in run]
                return lambda: [*zip(known, sizes, strict=True)]
            if any(each.data_key for each in run):
                return lambda: [*zip(self._unsealed(run, columns), sizes, strict=True)]
            data = self._direct.read(url_of(run), run[0].start, run[-1].end, SCHEMA_MESSAGE)
            return lambda: [*zip(columns.decode_slices(run, data), sizes, strict=True)]

        def read_now(run: list[StoredRange]) -> Pieces:
            return read(run)()

        if is_local(run[0].url for run in runs):
            for run in runs:
                yield run, partial(read_now, run)
        else:
            for run, ahead in self._direct.ahead(runs, _stored_bytes, read):
                yield run, partial(_decoded, ahead)

    def _row_group(self, each: StoredRange, columns: SourceColumns) -> Callable[[], Pieces]:
        from storage.formats.compacted import (
            SCHEMA,
            column_ranges,
            decode_columns,
            decode_row_group,
        )

        footer = self._footer(each)
        unseal = self._keys.unseal(columns.place, each.data_key) if each.data_key else None
        names = ["offset", *columns.stored]
        if len(names) == len(SCHEMA):
            data: Any = self._direct.read(each.url, each.start, each.end)
            decode = partial(decode_row_group, footer, each.row_group, data, unseal=unseal)
            return lambda: _piece(decode(), each)
        ranges = column_ranges(footer, each.row_group, names)
        parts: list[Any] = [self._direct.read(each.url, *span) for span in ranges]
        decode = partial(decode_columns, footer, each.row_group, ranges, parts, names, unseal)
        return lambda: _piece(decode(), each)

    def _unsealed(self, run: list[StoredRange], columns: SourceColumns) -> list[RecordPiece]:
        """Return the records of slices that are sealed and adjacent."""
        data = self._direct.read(url_of(run), run[0].start, run[-1].end)
        ranges, opened = self._keys.opened(columns.place, run, data)
        return columns.decode_slices(ranges, opened)

    def _footer(self, each: StoredRange) -> "Footer":
        from storage.formats.compacted import parse_footer

        found = self._footers.get(each.url)
        if found is None:
            data = self._direct.read(each.url, each.footer_start, each.footer_end)
            found = parse_footer(data.tobytes(), each.footer_crc32c)
            if len(self._footers) >= FOOTERS_MAX:
                self._footers.clear()
            self._footers[each.url] = found
        return found

    def _gateway(self) -> "Log":
        with self._opening:
            if self._log is None:
                from riacho.spark.read.log import Log

                self._log = Log(self._wishes.url, self._wishes.credentials)
            return self._log


def _stored_bytes(run: list[StoredRange]) -> int:
    return run[-1].end - run[0].start


def _decoded(read: Callable[[], Callable[[], Pieces]]) -> Pieces:
    return read()()


def _piece(rows: Any, each: StoredRange) -> Pieces:
    return [(RecordPiece(rows.column("offset"), rows.num_rows, rows), each.size_bytes)]
