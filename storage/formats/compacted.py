"""Compacted segments: the records of one partition as a standard Parquet file.

    file       = "PAR1"  row group*  footer
    footer     = Parquet's own metadata  its length (u32)  "PAR1"
    row group  = about `ROW_GROUP_BYTES` of records, its column chunks one behind the other

Parquet's metadata locates the columns. The rest is in its key-value metadata, as JSON:

    riacho.topic_id      hexadecimal
    riacho.partition
    riacho.row_groups    [start offset, end offset, crc32c, bytes, records, min ms, max ms] of each
    riacho.data_key      only if the row groups are sealed: the number of the topic's data key
    riacho.schemas       only with typed columns: [column, id or GUID, indexes] of each schema

Typed columns, `value_` and `key_`, come behind the columns of records and are for other programs:
nothing here reads them. Where they are, they are in every row group of the file.

Of an encrypted topic, each row group is sealed as a whole (storage/crypto/envelope.py), bound to
its start offset; then the bytes and the checksum above are those of the sealed row group. Parquet's
metadata stays as it is, with the positions that the columns would have in a file that is not
sealed: of values it has only the smallest and largest offset and timestamp
(docs/decisions/0040).

Row groups tile the offsets that the segment covers, even those without a record, so the row group
for an offset is the first that ends after it. A row group that is read whole is checked by its
CRC32C; if only some columns are read, they are checked page by page.

Dictionary encoding of keys and values made writing a third slower and files larger. Delta encoding
is faster than plain numbers.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from crc32c import crc32c

from storage.errors import Corrupt, EncryptionKeyUnavailable
from storage.formats.compacted_footer import (
    DATA_KEY,
    PARTITION,
    ROW_GROUPS,
    SCHEMAS,
    TOPIC_ID,
    UNREADABLE,
    ColumnSchema,
    Footer,
    Row,
    RowGroup,
    check_row_group,
    column_ranges,
    footer_of,
    parse_footer,
    spans,
)
from storage.formats.partitions import PartitionNumber
from storage.formats.records import HEADERS_TYPE, RECORD_SCHEMA
from storage.formats.segment_list import Segment
from storage.formats.zone_sets import ZoneSet
from storage.stores.ranges import Range

__all__ = [
    "ROW_GROUP_BYTES",
    "SCHEMA",
    "CompactedWriter",
    "Footer",
    "RowGroup",
    "WrittenSegment",
    "check_row_group",
    "column_ranges",
    "decode_columns",
    "decode_row_group",
    "footer_of",
    "parse_footer",
    "spans",
    "to_record_columns",
]

ROW_GROUP_BYTES: Final = 4 * 1024 * 1024
"""Approximate size of a row group before compression: a random read decodes at most two, and the
550 bytes of footer for each row group are negligible."""

SCHEMA: Final = pa.schema([pa.field("offset", pa.int64(), nullable=False), *RECORD_SCHEMA])

Seal: TypeAlias = Callable[[bytes, int], bytes]
"""Takes a row group and its start offset; returns it sealed."""

Unseal: TypeAlias = Callable[[bytes, int], bytes]
"""Takes a sealed row group and its start offset; returns it as it was, or raises `Corrupt`."""

_ROW_BYTES: Final = 16
"""Offset and timestamp."""

_OPTIONS: Final[dict[str, Any]] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": False,
    "write_statistics": ["offset", "timestamp"],
    "column_encoding": {
        "offset": "DELTA_BINARY_PACKED",
        "timestamp": "DELTA_BINARY_PACKED",
        "key": "PLAIN",
        "value": "PLAIN",
    },
    "write_page_checksum": True,
    "store_schema": False,
}

_DICTIONARY_BYTES_MAX: Final = 64 * 1024


class MoreColumns(Protocol):
    """Adds typed columns to the row groups of one file: the same ones to all of them."""

    @property
    def rows_max(self) -> int:
        """Maximum number of rows of a row group."""

    def widened(self, table: pa.Table) -> pa.Table:
        """Return a row group with its typed columns behind its own."""

    def schemas(self) -> Sequence[ColumnSchema]:
        """Return the schemas that the columns were made for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSegment:
    """What a segment list says of a file, except its object, its zones and when it was written."""

    path: Path
    partition: PartitionNumber
    first_offset: int
    start_offset: int
    end_offset: int
    record_count: int
    size_bytes: int
    footer_bytes: int
    footer_crc: int
    min_ms: int
    max_ms: int

    def segment(self, *, object_id: bytes, zones: ZoneSet, written_ms: int) -> Segment:
        return Segment(
            object_id=object_id,
            partition=self.partition,
            first_offset=self.first_offset,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            record_count=self.record_count,
            size_bytes=self.size_bytes,
            footer_bytes=self.footer_bytes,
            footer_crc=self.footer_crc,
            min_ms=self.min_ms,
            max_ms=self.max_ms,
            zones=zones,
            written_ms=written_ms,
        )


class CompactedWriter:
    """Writes one segment to a local file; buffers about one row group."""

    def __init__(
        self,
        path: Path,
        *,
        topic_id: bytes,
        partition: PartitionNumber,
        start_offset: int,
        row_group_bytes: int = ROW_GROUP_BYTES,
        seal: Seal | None = None,
        data_key: int = 0,
        typed: MoreColumns | None = None,
    ) -> None:
        """Begin the segment that covers the offsets from `start_offset` on.

        `seal` seals its row groups with the topic's data key of that number; `typed` adds columns
        to a segment that is not sealed.
        """
        assert typed is None or seal is None, "typed columns would have statistics that are open"
        self._path = path
        self._topic_id = topic_id
        self._partition = partition
        self._start_offset = start_offset
        self._row_group_bytes = row_group_bytes
        self._seal = seal
        self._data_key = data_key
        self._sink = _Sink(path)
        self._typed = typed
        self._writer: pq.ParquetWriter | None = None
        self._rows: list[Row] = []
        self._first_offset = -1
        self._last_offset = start_offset - 1
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = self._held_rows = 0

    @property
    def size_bytes(self) -> int:
        """Approximate size of the file; buffered records count with their size in memory."""
        return self._sink.size_bytes + self._held_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Add records, which have `SCHEMA`; their offsets increase and follow those before."""
        if not batch.num_rows:
            return
        offsets = batch.column(0)
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        assert first > self._last_offset, (first, self._last_offset)
        assert last - first + 1 >= batch.num_rows, (first, last, batch.num_rows)
        if self._first_offset < 0:
            self._first_offset = first
        self._last_offset = last
        until = _bytes_before(batch)
        rows = range(batch.num_rows + 1)
        start = 0
        while start < batch.num_rows:
            room = until(start) + self._row_group_bytes - self._held_bytes
            # The row that fills the row group belongs to it.
            end = min(batch.num_rows, bisect_left(rows, room, start + 1, key=until))
            if self._typed is not None:
                end = min(end, start + max(1, self._typed.rows_max - self._held_rows))
            self._hold(batch.slice(start, end - start), until(end) - until(start))
            start = end

    def _hold(self, batch: pa.RecordBatch, size_bytes: int) -> None:
        self._held.append(batch)
        self._held_bytes += size_bytes
        self._held_rows += batch.num_rows
        is_full = self._typed is not None and self._held_rows >= self._typed.rows_max
        if is_full or self._held_bytes >= self._row_group_bytes:
            self._flush()

    def _flush(self) -> None:
        table = pa.Table.from_batches(self._held, SCHEMA)
        if self._typed is not None:
            table = self._typed.widened(table)
        start_offset = self._rows[-1].end_offset if self._rows else self._start_offset
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._sink, table.schema, **_options(table.schema))
        begins = self._sink.begin(holds=self._seal is not None)
        self._writer.write_table(table, row_group_size=table.num_rows)
        if self._seal is not None:
            self._sink.release(self._seal(self._sink.held(), start_offset))
        span = pc.min_max(table.column(1))
        self._rows.append(
            Row(
                start_offset,
                self._held[-1].column(0)[-1].as_py() + 1,
                self._sink.crc,
                self._sink.size_bytes - begins,
                table.num_rows,
                span["min"].as_py(),
                span["max"].as_py(),
            )
        )
        self._held = []
        self._held_bytes = self._held_rows = 0

    def close(self, end_offset: int) -> WrittenSegment | None:
        """Finish the file, which covers the offsets up to `end_offset`; None if it has no records.

        A file without records is removed. The file is not flushed to disk: the object store that
        takes it makes the bytes durable.
        """
        assert end_offset > self._last_offset, (end_offset, self._last_offset)
        if self._held:
            self._flush()
        if self._writer is None:
            self.discard()
            return None
        rows = self._rows
        rows[-1] = msgspec.structs.replace(rows[-1], end_offset=end_offset)
        named = {
            TOPIC_ID: self._topic_id.hex(),
            PARTITION: str(self._partition),
            ROW_GROUPS: msgspec.json.encode(rows).decode(),
        }
        if self._data_key:
            named[DATA_KEY] = str(self._data_key)
        if self._typed is not None and (schemas := self._typed.schemas()):
            named[SCHEMAS] = msgspec.json.encode(schemas).decode()
        self._writer.add_key_value_metadata(named)
        footer_begins = self._sink.begin()
        self._writer.close()
        self._sink.close()
        return WrittenSegment(
            path=self._path,
            partition=self._partition,
            first_offset=self._first_offset,
            start_offset=self._start_offset,
            end_offset=end_offset,
            record_count=sum(row.count for row in rows),
            size_bytes=self._sink.size_bytes,
            footer_bytes=self._sink.size_bytes - footer_begins,
            footer_crc=self._sink.crc,
            min_ms=min(row.min_ms for row in rows),
            max_ms=max(row.max_ms for row in rows),
        )

    def discard(self) -> None:
        """Remove the file, finished or not."""
        if self._writer is not None:
            self._writer.close()
        self._sink.close()
        self._path.unlink(missing_ok=True)


def _options(schema: pa.Schema) -> dict[str, Any]:
    """Return the options for a file; typed columns have statistics.

    Their texts have dictionaries, small ones, so that those with few values are small, too.
    """
    typed = schema.names[len(SCHEMA) :]
    if not typed:
        return _OPTIONS
    empty = pa.BufferOutputStream()
    pq.ParquetWriter(empty, pa.schema([schema.field(name) for name in typed])).close()
    leaves = [*pq.read_metadata(pa.BufferReader(empty.getvalue())).schema]
    numbers = [leaf.path for leaf in leaves if leaf.physical_type in ("INT32", "INT64")]
    return {
        **_OPTIONS,
        "use_dictionary": [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"],
        "dictionary_pagesize_limit": _DICTIONARY_BYTES_MAX,
        "write_statistics": [*_OPTIONS["write_statistics"], *(leaf.path for leaf in leaves)],
        "column_encoding": {
            **_OPTIONS["column_encoding"],
            **dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        },
    }


class _Sink:
    """A file that computes the checksum of what was written since `begin`.

    It may hold back what is written, for something else to be written in its place. Parquet does
    not notice: it is told where it would be.
    """

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb")
        self._held: list[bytes] | None = None
        self._position = 0
        self.size_bytes = 0
        """Of the file."""
        self.crc = 0

    def begin(self, *, holds: bool = False) -> int:
        self.crc = 0
        self._held = [] if holds else None
        return self.size_bytes

    def held(self) -> bytes:
        """Return what was written since it began to hold."""
        return b"".join(self._held or ())

    def release(self, instead: bytes) -> None:
        """Write this in place of what is held."""
        self._held = None
        self._write(instead)

    def write(self, data: bytes) -> int:
        if self._held is None:
            self._write(data)
        else:
            self._held.append(bytes(data))
        self._position += len(data)
        return len(data)

    def _write(self, data: bytes) -> None:
        self.crc = crc32c(data, self.crc)
        self._file.write(data)
        self.size_bytes += len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return self._file.closed


def _bytes_before(batch: pa.RecordBatch) -> Callable[[int], int]:
    """Return a function that estimates how many bytes the rows before a row have."""
    headers = batch.column(4)
    lists = _starts(headers)
    fields = headers.values
    columns = [_starts(batch.column(2)), _starts(batch.column(3))]
    parts = [_starts(fields.field(0)), _starts(fields.field(1))]

    def before(row: int) -> int:
        size_bytes = row * _ROW_BYTES + sum(starts[row] - starts[0] for starts in columns)
        return size_bytes + sum(starts[lists[row]] - starts[lists[0]] for starts in parts)

    return before


def _starts(array: pa.Array) -> Sequence[int]:
    """Return where each value of an array of lists or bytes begins, and where the last one ends."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return (0,)
    starts = memoryview(buffer).cast("B").cast("i")
    return starts[array.offset : array.offset + len(array) + 1]


def decode_row_group(
    footer: Footer,
    number: int,
    data: bytes,
    columns: Sequence[str] | None = None,
    unseal: Unseal | None = None,
) -> pa.RecordBatch:
    """Return the records of a row group, whose bytes are `data`, or only some `columns` of them.

    Columns are in the order of `SCHEMA`. Raises `Corrupt` if the bytes are damaged, and
    `EncryptionKeyUnavailable` if they are sealed and there is no `unseal`.
    """
    group = footer.row_groups[number]
    check_row_group(group, data)
    begins = group.position
    if footer.data_key:
        if unseal is None:
            raise EncryptionKeyUnavailable("a segment is sealed, and its reader has no key")
        data = unseal(data, group.start_offset)
        # Parquet knows where the row group would be, had nothing before it been sealed.
        begins -= number * (group.length - len(data))
    names = SCHEMA.names if columns is None else columns
    file = _Pieces([(begins, begins + len(data))], [data])
    return _decoded(footer, group, file, names, False)


def decode_columns(
    footer: Footer,
    number: int,
    ranges: Sequence[Range],
    pieces: Sequence[bytes],
    columns: Sequence[str],
    unseal: Unseal | None = None,
) -> pa.RecordBatch:
    """Return some columns of a row group from the `pieces` of the file at `column_ranges`.

    Raises `Corrupt` if they are damaged; see `decode_row_group` if they are sealed.
    """
    if footer.data_key:
        return decode_row_group(footer, number, pieces[0], columns, unseal)
    for (start, end), piece in zip(ranges, pieces, strict=True):
        if len(piece) != end - start:
            raise Corrupt(f"a segment ends before {end}, in row group {number}")
    group = footer.row_groups[number]
    return _decoded(footer, group, _Pieces(ranges, pieces), columns, True)


def _decoded(
    footer: Footer, group: RowGroup, file: "_Pieces", columns: Sequence[str], verify: bool
) -> pa.RecordBatch:
    # In the order of the schema, as Parquet returns them, whatever order the caller gave.
    fields = [field for field in SCHEMA if field.name in columns]
    try:
        source = pq.ParquetFile(
            pa.PythonFile(file, mode="r"),
            metadata=footer.metadata,
            page_checksum_verification=verify,
            pre_buffer=False,
        )
        table = source.read_row_group(
            group.number, columns=[field.name for field in fields], use_threads=False
        )
        [batch] = table.combine_chunks().to_batches()
        arrays = [
            array.cast(HEADERS_TYPE) if field.name == "headers" else array
            for field, array in zip(fields, batch.columns, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    except UNREADABLE as error:
        raise Corrupt(f"row group {group.number} of a segment does not decode: {error}") from error
    if batch.num_rows != group.count:
        raise Corrupt(f"row group {group.number} has {batch.num_rows} records, not {group.count}")
    return batch


class _Pieces:
    """Some ranges of a file, presented to Parquet as the file. Reading elsewhere is an error."""

    closed = False

    def __init__(self, ranges: Sequence[Range], pieces: Sequence[bytes]) -> None:
        self._ranges = ranges
        self._pieces = pieces
        self._position = 0

    def seek(self, position: int, whence: int = 0) -> int:
        self._position = position + (self._ranges[-1][1] if whence == 2 else 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, count: int) -> memoryview:
        begins = self._position
        for (start, end), piece in zip(self._ranges, self._pieces, strict=True):
            if start <= begins and begins + count <= end:
                self._position += count
                return memoryview(piece)[begins - start : begins - start + count]
        raise OSError(f"there is nothing at {begins}")

    def close(self) -> None:
        pass


def to_record_columns(batch: pa.RecordBatch) -> tuple[pa.Int64Array, pa.RecordBatch]:
    """Return the offsets of a batch with `SCHEMA`, and its records without them."""
    return batch.column(0), pa.RecordBatch.from_arrays(batch.columns[1:], schema=RECORD_SCHEMA)
