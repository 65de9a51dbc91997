"""Slices of one partition as columns: the input of plans, and of the tasks that read them.

A busy partition has millions of them, so they are Python objects only while a page is read.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.errors import Corrupt
from storage.formats import frames
from storage.formats.entries import SLICES, Entry
from storage.keys import ID_BYTES

Ints = npt.NDArray[np.int64]

_FIELDS: Final = (
    "end_offset",
    "record_count",
    "kind",
    "object_id",
    "position",
    "length",
    "min_ms",
    "max_ms",
    "crc",
    "zones",
    "data_key",
)
_COLUMNS: Final = tuple(Entry._fields.index(name) for name in _FIELDS)
_SCHEMA: Final = pa.schema(
    [
        pa.field(name, pa.binary(ID_BYTES) if name == "object_id" else pa.int64(), nullable=False)
        for name in _FIELDS
    ]
)
_ROW_BYTES: Final = sum(field.type.byte_width for field in _SCHEMA)
_ENCODED: Final = msgspec.msgpack.Decoder(tuple[int, bytes])

_INFLATION_MAX: Final = 32 * 1024
"""Maximum compression ratio: four bytes of zstd are a block of at most 128 KiB."""


class Hot:
    """Slices in the order of their offsets, none of them empty."""

    __slots__ = ("batch", "counts", "ends", "lengths")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.ends: Ints = self.column("end_offset")
        self.counts: Ints = self.column("record_count")
        self.lengths: Ints = self.column("length")

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def column(self, name: str) -> Ints:
        values: Ints = self.batch.column(name).to_numpy()
        return values

    @property
    def size_bytes(self) -> int:
        return int(self.lengths.sum())

    @property
    def record_count(self) -> int:
        return int(self.counts.sum())

    @property
    def start_offset(self) -> int:
        return int(self.ends[0] - self.counts[0])

    @property
    def end_offset(self) -> int:
        return int(self.ends[-1])

    @property
    def oldest_ms(self) -> int:
        return int(self.column("min_ms").min())

    def part(self, start: int, end: int) -> "Hot":
        """Return the slices at these positions, without copying."""
        return Hot(self.batch.slice(start, max(0, end - start)))

    def before(self, end_offset: int) -> "Hot":
        """Return the slices that end at `end_offset` or before."""
        return self.part(0, int(np.searchsorted(self.ends, end_offset, "right")))

    def after(self, offset: int) -> "Hot":
        """Return the slices that end after `offset`."""
        return self.part(int(np.searchsorted(self.ends, offset, "right")), len(self))

    def rows(self) -> list[dict[str, Any]]:
        return list(self.batch.to_pylist())

    def encode(self) -> bytes:
        # Not as an Arrow stream: most are tiny, and there may be thousands.
        columns = [_bytes_of(column) for column in self.batch.columns]
        joined = b"".join(columns)
        packed = pa.compress(joined, codec="zstd", asbytes=True)
        return msgspec.msgpack.encode((len(self), packed))

    @classmethod
    def decode(cls, data: bytes) -> "Hot":
        """Return the slices that `encode` encoded, or raise `Corrupt`."""
        count, packed = frames.decoded(data, _ENCODED, "the slices of a task")
        try:
            # Otherwise a few bytes could allocate any amount of memory.
            if not 0 <= count * _ROW_BYTES <= _INFLATION_MAX * len(packed):
                raise ValueError(f"{count} slices in {len(packed)} bytes")
            joined = pa.py_buffer(pa.decompress(packed, count * _ROW_BYTES, "zstd", asbytes=True))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise Corrupt(f"the slices of a task cannot be inflated: {error}") from error
        columns = []
        position = 0
        for field in _SCHEMA:
            length = count * field.type.byte_width
            part = joined.slice(position, length)
            columns.append(pa.Array.from_buffers(field.type, count, [None, part]))
            position += length
        return cls(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> "Hot":
        """Return `entries`, which are slices of one partition in order; `Corrupt` if not."""
        # Slices in the table are allowed in plans; they are rolled before they are read.
        if any(entry.kind not in SLICES for entry in entries):
            raise Corrupt("a page lists something that is not a slice")
        columns = list(zip(*entries, strict=True)) if entries else [()] * len(Entry._fields)
        arrays = [
            pa.array(columns[number], field.type)
            for number, field in zip(_COLUMNS, _SCHEMA, strict=True)
        ]
        return cls(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA))

    @classmethod
    def joined(cls, parts: Sequence["Hot"]) -> "Hot":
        if len(parts) == 1:
            return parts[0]
        return cls(pa.concat_batches([part.batch for part in parts])) if parts else cls.of([])


def _bytes_of(column: pa.Array) -> memoryview:
    """Return the bytes of a fixed-width column without nulls."""
    width = column.type.byte_width
    data = memoryview(column.buffers()[1] or b"").cast("B")
    return data[column.offset * width : (column.offset + len(column)) * width]
