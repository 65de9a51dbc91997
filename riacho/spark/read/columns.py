"""Decodes stored bytes into the columns that Spark asked for.

Only requested columns are decoded: the fields of a slice, or the column chunks of a row group.
Records are combined into batches of some megabytes, since each batch has a cost in the JVM. Then
the columns that are not stored are added: topic, partition, offset.

Arrays are built from buffers here. `pa.array` and `to_numpy` would also work, but the first use
of either imports pandas if it is installed, and every new worker would wait for that.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from riacho.records import TopicPartition
from riacho.spark.read.decoding import COLUMN, Decoding, conformed
from riacho.spark.read.ranges import StoredRange
from storage.errors import Corrupt, InvalidConfig
from storage.formats.records import RECORD_SCHEMA
from storage.formats.slices import SCHEMA_MESSAGE

Offsets: TypeAlias = "int | pa.Array"
"""The first offset of dense records, else one for each record."""

MS_MAX: Final = (2**63 - 1) // 1000
"""Spark counts microseconds; later timestamps are clipped to the last one possible."""

FIELDS: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}
"""All columns that can be read."""


@dataclass(frozen=True, slots=True)
class RecordPiece:
    """Some records: their offsets, and those of their stored columns that are needed.

    If no stored column is needed, `rows` is None and only `count` is known.
    """

    offsets: Offsets
    count: int
    rows: pa.RecordBatch | None

    def between(self, start: int, end: int) -> "RecordPiece":
        """Return the records with `start <= offset < end`."""
        if isinstance(self.offsets, int):
            first = min(max(start - self.offsets, 0), self.count)
            last = max(first, min(end - self.offsets, self.count))
        else:
            found = np.searchsorted(_numbers(self.offsets), [start, end])
            first, last = int(found[0]), int(found[1])
        if first == 0 and last == self.count:
            return self
        return RecordPiece(
            self.offsets + first
            if isinstance(self.offsets, int)
            else self.offsets.slice(first, last - first),
            last - first,
            None if self.rows is None else self.rows.slice(first, last - first),
        )


def check_schema(schema: pa.Schema, decoding: Decoding | None = None) -> None:
    """Raise `InvalidConfig` unless every field is one of `FIELDS`, or decoded."""
    for field in schema:
        if decoding is not None and field.name == COLUMN:
            conformed(pa.nulls(0, decoding.type), field.type)
            continue
        if FIELDS.get(field.name) != field.type and not _is_headers(field):
            there_are = ", ".join(f"{name} {kind}" for name, kind in FIELDS.items())
            raise InvalidConfig(
                f"there is no column {field.name} of type {field.type}; there are {there_are}"
            )


def _is_headers(field: pa.Field) -> bool:
    """Whether the field can hold headers, ignoring the nullability of its parts."""
    if field.name != "headers" or not pa.types.is_list(field.type):
        return False
    kind = field.type.value_type
    return pa.types.is_struct(kind) and [(part.name, part.type) for part in kind] == [
        ("key", pa.string()),
        ("value", pa.binary()),
    ]


class SourceColumns:
    """Makes batches of `schema` out of records of one partition."""

    def __init__(
        self,
        schema: pa.Schema,
        topic: str,
        partition: int,
        timestamp_type: int,
        decoding: Decoding | None = None,
    ) -> None:
        self._schema = schema
        self._decoding = decoding
        self.place = TopicPartition(topic, partition)
        self._same: dict[str, str | int] = {
            "topic": topic,
            "partition": partition,
            "timestampType": timestamp_type,
        }
        self._repeated: dict[str, pa.Array] = {}
        names = {*schema.names, *(("value", "headers") if COLUMN in schema.names else ())}
        self.stored = [name for name in RECORD_SCHEMA.names if name in names]
        self._options = pa.ipc.IpcReadOptions(
            use_threads=False,
            included_fields=[RECORD_SCHEMA.get_field_index(name) for name in self.stored],
        )

    def decode_slices(self, ranges: Sequence[StoredRange], data: Any) -> list[RecordPiece]:
        """Return the records of slices that are adjacent in `data`.

        `data` begins with `SCHEMA_MESSAGE`. Raises `Corrupt` if a slice is damaged.
        """
        view = memoryview(data)[len(SCHEMA_MESSAGE) :]
        first = ranges[0].start
        for each in ranges:
            if crc32c(view[each.start - first : each.end - first]) != each.crc32c:
                raise Corrupt(f"the slice of offset {each.base_offset} is damaged")
        if any(each.is_kafka for each in ranges):
            batches = [*self._each(ranges, view)]
        else:
            batches = self._stream(pa.py_buffer(data))
        if [batch.num_rows for batch in batches] != [each.count for each in ranges]:
            raise Corrupt("slices have another number of records than the index says")
        return [
            RecordPiece(each.base_offset, each.count, batch)
            for each, batch in zip(ranges, batches, strict=True)
        ]

    def _each(self, ranges: Sequence[StoredRange], view: memoryview) -> Iterator[pa.RecordBatch]:
        """Yield the records of adjacent slices of which some are Kafka's batches."""
        from storage.formats.kafka import decoding as kafka

        first = ranges[0].start
        for is_kafka, group in groupby(ranges, lambda each: each.is_kafka):
            some = [*group]
            if is_kafka:
                for each in some:
                    records = kafka.decode(view[each.start - first : each.end - first])
                    yield records.select(self.stored)
            else:
                data = view[some[0].start - first : some[-1].end - first]
                yield from self._stream(pa.py_buffer(b"".join((SCHEMA_MESSAGE, data))))

    def _stream(self, data: pa.Buffer) -> list[pa.RecordBatch]:
        """Return the records of adjacent Arrow slices behind `SCHEMA_MESSAGE`."""
        try:
            with pa.ipc.open_stream(data, options=self._options) as stream:
                batches = [*stream]
            for batch in batches:
                batch.validate(full=True)
        except (pa.ArrowException, EOFError, OSError, ValueError) as error:
            raise Corrupt(f"not slices: {error}") from error
        return batches

    def batch(self, pieces: Sequence[RecordPiece]) -> pa.RecordBatch:
        """Return all records of `pieces` as one batch."""
        count = sum(piece.count for piece in pieces)
        rows: pa.RecordBatch | None = None
        if self.stored:
            parts = [piece.rows.select(self.stored) for piece in pieces if piece.rows is not None]
            rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
            assert rows.num_rows == count, (rows.num_rows, count)
        arrays = [self._column(field, rows, pieces, count) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(
        self,
        field: pa.Field,
        rows: pa.RecordBatch | None,
        pieces: Sequence[RecordPiece],
        count: int,
    ) -> pa.Array:
        if field.name in self._same:
            made = self._repeated.get(field.name)
            if made is None or len(made) < count:
                made = self._repeated[field.name] = _repeat(self._same[field.name], count)
            return made.slice(0, count)
        if field.name == "offset":
            return _offsets(pieces)
        assert rows is not None, field
        if field.name == COLUMN:
            assert self._decoding is not None, field
            values, headers = rows.column("value"), rows.column("headers")
            return self._decoding.column(values, headers, field.type, self.place)
        column = rows.column(field.name)
        if field.name == "timestamp":
            return _moments(column)
        return column if field.name != "headers" else _headers(column, field.type)


def _array(kind: pa.DataType, count: int, *buffers: Any) -> pa.Array:
    """Return `count` values that are not null, without a copy."""
    return pa.Array.from_buffers(kind, count, [None, *map(pa.py_buffer, buffers)], null_count=0)


def _numbers(column: pa.Array) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return 64-bit numbers, none of them null, without a copy."""
    if not len(column):
        return np.empty(0, np.int64)
    return np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset)


def _repeat(value: str | int, count: int) -> pa.Array:
    if isinstance(value, int):
        return _array(pa.int32(), count, np.full(count, value, np.int32))
    text = value.encode()
    starts = np.arange(0, len(text) * count + 1, len(text), dtype=np.int32)
    return _array(pa.string(), count, starts, text * count)


def _offsets(pieces: Sequence[RecordPiece]) -> pa.Array:
    parts = [
        np.arange(piece.offsets, piece.offsets + piece.count, dtype=np.int64)
        if isinstance(piece.offsets, int)
        else _numbers(piece.offsets)
        for piece in pieces
    ]
    numbers = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return _array(pa.int64(), len(numbers), numbers)


def _moments(timestamps: pa.Array) -> pa.Array:
    """Return milliseconds as Spark's timestamps."""
    moments = np.clip(_numbers(timestamps), -MS_MAX, MS_MAX) * 1000
    return _array(FIELDS["timestamp"], len(moments), moments)


def _headers(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return headers as Kafka's source does: null if there are none."""
    column = column.cast(kind)
    empty = pc.equal(pc.list_value_length(column), 0)
    return pc.if_else(empty, pa.scalar(None, kind), column) if pc.any(empty).as_py() else column
