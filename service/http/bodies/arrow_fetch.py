"""Records as the Arrow stream of a fetch response.

A batch is a stored slice, byte for byte, if all of it was requested. It does not contain offsets:
they are dense, and the schema's metadata has the first offset of each batch. Where compaction has
left gaps, the client chooses how to get offsets:

    base      batches are cut at the gaps, so that base offset + row is true of every record
    column    every batch has a further column `offset`, and is not cut
    either    whichever is less work: the column if there are gaps, as stored if there are none
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, TypeAlias

import pyarrow as pa

from service.http.answer_size import Body
from storage.formats import slices
from storage.formats.records import RECORD_SCHEMA
from storage.reading.fetched import Data, Fetched, rows_within

OffsetsForm: TypeAlias = Literal["base", "column", "either"]

BASE_OFFSETS_KEY: Final = b"riacho.base_offsets"
"""Metadata key for the first offset of each batch of an Arrow response."""

BATCHES_MAX: Final = 1024
"""Maximum number of batches when an answer is cut at gaps. Each has several hundred bytes of
overhead, so records at every other offset would make an answer many times as large as its data."""

_OFFSET: Final = pa.field("offset", pa.int64(), nullable=False)
_SCHEMA_WITH_OFFSETS: Final = RECORD_SCHEMA.append(_OFFSET)
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of a slice."""

    data: Data | None
    """The slice as it is stored, if these are all its rows."""
    records: pa.RecordBatch | None
    """Otherwise the rows."""
    offsets: Sequence[int]

    @property
    def is_dense(self) -> bool:
        return self.offsets[-1] - self.offsets[0] == len(self.offsets) - 1

    @property
    def size_bytes(self) -> int:
        return len(self.data) if self.data is not None else int(self.batch().nbytes)

    def batch(self) -> pa.RecordBatch:
        if self.data is not None:
            return slices.decode_unchecked(self.data)
        assert self.records is not None, self.offsets
        return self.records


async def arrow_body(fetched: Fetched, bytes_max: int, form: OffsetsForm) -> Body:
    """Return the records as a stream, up to `bytes_max`."""
    parts = [*_parts(fetched, bytes_max)]
    is_dense = all(part.is_dense for part in parts)
    # In a thread where it takes milliseconds, so that other requests need not wait.
    if form == "column" or (form == "either" and not is_dense):
        pieces = await asyncio.to_thread(_with_column, parts)
    elif is_dense:
        pieces = _with_bases(parts)
    else:
        parts = await asyncio.to_thread(_cut_at_gaps, parts)
        pieces = await asyncio.to_thread(_with_bases, parts)
    count = sum(len(part.offsets) for part in parts)
    is_all = count == fetched.record_count
    next_offset = fetched.end_offset if is_all else parts[-1].offsets[-1] + 1
    return Body(pieces, next_offset, count, sum(part.size_bytes for part in parts))


def _parts(fetched: Fetched, bytes_max: int) -> Iterator[_Part]:
    fits = fetched.size_bytes <= bytes_max
    left_bytes, least = bytes_max, 1
    for piece in fetched.slices:
        first, end = piece.rows(fetched.start_offset, fetched.end_offset)
        offsets = piece.offsets_of(first, end)
        if fits and (first, end) == piece.rows(piece.base_offset, piece.end_offset):
            yield _Part(piece.data, None, offsets)
            continue
        batch = piece.records().slice(first, end - first)
        if not fits:
            batch = batch.slice(0, max(least, rows_within(batch, left_bytes)))
            left_bytes, least = left_bytes - batch.nbytes, 0
            if not batch.num_rows:
                return
        yield _Part(None, batch, offsets[: batch.num_rows])
        if batch.num_rows < end - first:
            return


def _cut_at_gaps(parts: Sequence[_Part]) -> list[_Part]:
    """Return the same records in parts without gaps, at most `BATCHES_MAX` of them."""
    dense: list[_Part] = []
    for part in parts:
        if part.is_dense:
            dense.append(part)
            continue
        numbers = part.offsets
        batch = part.batch()
        starts = [n for n, each in enumerate(numbers) if not n or each != numbers[n - 1] + 1]
        for start, end in pairwise([*starts, len(numbers)]):
            dense.append(_Part(None, batch.slice(start, end - start), numbers[start:end]))
    return dense[:BATCHES_MAX]


def _with_bases(parts: Sequence[_Part]) -> list[Data]:
    stored = [part.data for part in parts]
    encoded = iter(slices.encode([part.batch() for part in parts if part.data is None], "none"))
    pieces = [next(encoded).data if data is None else data for data in stored]
    bases = [part.offsets[0] for part in parts]
    metadata = {BASE_OFFSETS_KEY: json.dumps(bases).encode()}
    schema = RECORD_SCHEMA.with_metadata(metadata).serialize().to_pybytes()
    return [schema, *pieces, slices.END_OF_STREAM]


def _with_column(parts: Sequence[_Part]) -> list[Data]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA_WITH_OFFSETS, options=_OPTIONS) as writer:
        for part in parts:
            columns = [*part.batch().columns, pa.array(part.offsets, pa.int64())]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA_WITH_OFFSETS))
    return [memoryview(sink.getvalue())]
