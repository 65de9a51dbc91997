"""Row groups of compacted segments as slices, so that readers handle only slices."""

from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from storage.formats import compacted, slices
from storage.formats.compacted import Footer, Unseal
from storage.reading.fetched import StoredSlice

Pieces: TypeAlias = tuple[StoredSlice, ...]
"""Consecutive slices that together cover the offsets of a row group."""


def pieces_of(footer: Footer, number: int, data: bytes, unseal: Unseal | None = None) -> Pieces:
    """Return a row group, whose bytes are `data`, as slices of about `SLICE_BYTES`.

    Takes milliseconds, so do not call it in the event loop. Raises `Corrupt` if damaged.
    """
    group = footer.row_groups[number]
    batch = compacted.decode_row_group(footer, number, data, unseal=unseal)
    offsets, records = compacted.to_record_columns(batch)
    numbers = _numbers(offsets)
    parts = [*slices.cut(records, records.nbytes)]
    pieces: list[StoredSlice] = []
    first, start = 0, group.start_offset
    for part, encoded in zip(parts, slices.encode(parts, "lz4"), strict=True):
        last = first + part.num_rows
        end = numbers[last] if last < len(numbers) else group.end_offset
        pieces.append(
            StoredSlice(
                start,
                end,
                # A copy: a view would keep the whole buffer of all slices.
                bytes(encoded.data),
                None if end - start == part.num_rows else numbers[first:last],
                part.nbytes,
            )
        )
        first, start = last, end
    return tuple(pieces)


def size_of(pieces: Pieces) -> int:
    """Return the approximate size of the pieces in memory."""
    return sum(len(piece.data) + 8 * len(piece.offsets or b"") for piece in pieces)


def first_since(pieces: Pieces, timestamp_ms: int, offset: int) -> tuple[int, int] | None:
    """Return the first record from `offset` on stamped `timestamp_ms` or later, and its stamp."""
    for piece in pieces:
        found = first_late(piece, timestamp_ms, offset)
        if found is not None:
            return found
    return None


def first_late(piece: StoredSlice, timestamp_ms: int, offset: int) -> tuple[int, int] | None:
    """Return the same for one slice."""
    first, end = piece.rows(offset, piece.end_offset)
    stamps = piece.records().column(0).slice(first, end - first)
    row = pc.index(pc.greater_equal(stamps, timestamp_ms), True).as_py()
    if row < 0:
        return None
    return piece.offsets_of(first + row, first + row + 1)[0], stamps[row].as_py()


def _numbers(offsets: pa.Int64Array) -> memoryview:
    values = memoryview(offsets.buffers()[1]).cast("B").cast("q")
    return values[offsets.offset : offsets.offset + len(offsets)]
