"""What the footer of a compacted segment says: `storage/formats/compacted.py` draws the file.

A footer comes from a bucket, so it is not trusted before it was compared with its checksum, with
itself, and with the list of segments (`footer_of`). The checksum is compared first and is the
check that counts. Forged bytes with a matching checksum may not even raise an error when columns
are read: pyarrow aborts the process on some of them.
"""

import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from storage.errors import Corrupt
from storage.formats.partitions import PartitionNumber
from storage.formats.segment_list import Segment
from storage.stores.ranges import Range

MAGIC: Final = b"PAR1"
TOPIC_ID: Final = "riacho.topic_id"
PARTITION: Final = "riacho.partition"
ROW_GROUPS: Final = "riacho.row_groups"
DATA_KEY: Final = "riacho.data_key"
SCHEMAS: Final = "riacho.schemas"

UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, EOFError, OverflowError)
"""What pyarrow may raise on invalid input."""

_TRAILER: Final = struct.Struct("<I4s")
_LEAVES: Final = (
    ("offset", "INT64"),
    ("timestamp", "INT64"),
    ("key", "BYTE_ARRAY"),
    ("value", "BYTE_ARRAY"),
    ("headers.list.element.key", "BYTE_ARRAY"),
    ("headers.list.element.value", "BYTE_ARRAY"),
)


_TYPED: Final = re.compile(r"(key|value)_(_v[0-9]+)?")
"""Names of typed columns, which come behind the others."""


class ColumnSchema(msgspec.Struct, array_like=True, frozen=True):
    """A schema whose values have typed columns in a segment."""

    column: str
    """`key` or `value`."""
    ref: int | str
    """Its id or its GUID."""
    indexes: tuple[int, ...]
    """Of Protobuf: which message it is."""


class Row(msgspec.Struct, array_like=True, frozen=True):
    start_offset: int
    end_offset: int
    crc: int
    length: int
    count: int
    min_ms: int
    max_ms: int


_SCHEMAS: Final = msgspec.json.Decoder(tuple[ColumnSchema, ...])
_ROWS: Final = msgspec.json.Decoder(tuple[Row, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    number: int
    start_offset: int
    end_offset: int
    count: int
    position: int
    length: int
    crc: int
    min_ms: int
    max_ms: int

    @property
    def end(self) -> int:
        return self.position + self.length


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    topic_id: bytes
    partition: PartitionNumber
    row_groups: tuple[RowGroup, ...]
    """At least one."""
    metadata: pq.FileMetaData
    length: int
    data_key: int = 0
    """The number of the data key that the row groups are sealed with; 0: they are not."""
    schemas: tuple[ColumnSchema, ...] = ()
    """Those that typed columns were made for."""

    @property
    def size_bytes(self) -> int:
        """Size of the whole file."""
        return self.row_groups[-1].end + self.length

    @property
    def record_count(self) -> int:
        return sum(group.count for group in self.row_groups)

    def behind(self, offset: int) -> int:
        """Return the number of the first row group that ends after `offset`."""
        return bisect_right(self.row_groups, offset, key=lambda group: group.end_offset)


def parse_footer(data: bytes, crc: int) -> Footer:
    """Return the footer that the last bytes of a segment encode.

    Raises `Corrupt` if their checksum differs, or if they are not what a `SegmentWriter` wrote.
    """
    if crc32c(data) != crc:
        raise Corrupt("the checksum of a segment's footer does not match")
    if len(data) < _TRAILER.size or _TRAILER.unpack_from(data, len(data) - _TRAILER.size) != (
        len(data) - _TRAILER.size,
        MAGIC,
    ):
        raise Corrupt("a segment does not end with a whole footer")
    try:
        metadata = pq.read_metadata(pa.BufferReader(data))
        named = metadata.metadata or {}
        rows = _ROWS.decode(named[ROW_GROUPS.encode()])
        groups = tuple(_row_groups(rows))
        counts = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        topic_id = bytes.fromhex(named[TOPIC_ID.encode()].decode())
        partition = PartitionNumber(int(named[PARTITION.encode()]))
        data_key = int(named.get(DATA_KEY.encode(), b"0"))
        schemas = _SCHEMAS.decode(named.get(SCHEMAS.encode(), b"[]"))
        leaves = tuple((leaf.path, leaf.physical_type) for leaf in metadata.schema)
    except (*UNREADABLE, KeyError, msgspec.MsgspecError) as error:
        raise Corrupt(f"the footer of a segment does not decode: {error}") from error
    typed = [path for path, _ in leaves[len(_LEAVES) :]]
    if leaves[: len(_LEAVES)] != _LEAVES or not all(map(_is_typed, typed)):
        raise Corrupt(f"a segment has other columns: {leaves!s:.500}")
    if not groups or counts != [group.count for group in groups]:
        raise Corrupt("a segment's footer contradicts itself about its row groups")
    return Footer(
        topic_id=topic_id,
        partition=partition,
        row_groups=groups,
        metadata=metadata,
        length=len(data),
        data_key=data_key,
        schemas=schemas,
    )


def _is_typed(path: str) -> bool:
    return _TYPED.fullmatch(path.partition(".")[0]) is not None


def _row_groups(rows: Iterable[Row]) -> Iterator[RowGroup]:
    position = len(MAGIC)
    reached = -1
    for number, row in enumerate(rows):
        is_next = row.start_offset == reached or (number == 0 and row.start_offset >= 0)
        has_room = 0 < row.count <= row.end_offset - row.start_offset
        if not is_next or not has_room or row.length <= 0 or row.min_ms > row.max_ms:
            raise ValueError(f"row group {number} is impossible: {row}")
        yield RowGroup(
            number=number,
            start_offset=row.start_offset,
            end_offset=row.end_offset,
            count=row.count,
            position=position,
            length=row.length,
            crc=row.crc,
            min_ms=row.min_ms,
            max_ms=row.max_ms,
        )
        position += row.length
        reached = row.end_offset


def footer_of(segment: Segment, topic_id: bytes, data: bytes) -> Footer:
    """Return the footer of a listed segment, or raise `Corrupt` if it belongs to another one."""
    footer = parse_footer(data, segment.footer_crc)
    groups = footer.row_groups
    found = (
        *(footer.topic_id, footer.partition, footer.record_count),
        *(groups[0].start_offset, groups[-1].end_offset, footer.size_bytes),
        *(min(group.min_ms for group in groups), max(group.max_ms for group in groups)),
    )
    listed = (
        *(topic_id, segment.partition, segment.record_count),
        *(segment.start_offset, segment.end_offset, segment.size_bytes),
        *(segment.min_ms, segment.max_ms),
    )
    if found != listed:
        raise Corrupt(f"the footer of {segment.key(topic_id)} is not as listed: {found}")
    return footer


def spans(footer: Footer, size_bytes: int) -> Iterator[list[RowGroup]]:
    """Yield lists of neighbouring row groups: at most `size_bytes`, but at least one row group."""
    span: list[RowGroup] = []
    for group in footer.row_groups:
        if span and group.end - span[0].position > size_bytes:
            yield span
            span = []
        span.append(group)
    yield span


def check_row_group(group: RowGroup, data: bytes | memoryview) -> None:
    """Raise `Corrupt` unless `data` are the bytes of the row group."""
    if len(data) != group.length or crc32c(data) != group.crc:
        raise Corrupt(f"a segment is damaged at {group.position}, in row group {group.number}")


def column_ranges(footer: Footer, number: int, columns: Sequence[str]) -> list[Range]:
    """Return which bytes of the file hold some columns of a row group; neighbours are joined.

    A sealed row group can only be opened as a whole.
    """
    if footer.data_key:
        group = footer.row_groups[number]
        return [(group.position, group.end)]
    ranges: list[Range] = []
    for name, start, end in chunks(footer, number):
        if name not in columns:
            continue
        if ranges and ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((start, end))
    return ranges


def chunks(footer: Footer, number: int) -> list[tuple[str, int, int]]:
    """Return name, start and end of each column chunk; together they fill the row group."""
    group = footer.row_groups[number]
    metadata = footer.metadata.row_group(number)
    found = []
    position = group.position
    for i in range(metadata.num_columns):
        chunk = metadata.column(i)
        start, length = chunk.data_page_offset, chunk.total_compressed_size
        if chunk.has_dictionary_page:
            start = chunk.dictionary_page_offset
        if start != position or length <= 0:
            raise Corrupt(f"row group {number} of a segment has column {i} at {start}")
        position += length
        found.append((chunk.path_in_schema.partition(".")[0], start, position))
    if position != group.end:
        raise Corrupt(f"row group {number} of a segment ends at {position}, not {group.end}")
    return found
