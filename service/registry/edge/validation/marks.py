"""Which schema each key or value says it has: by whole columns, whatever the number of records.

    00 | id, 4 bytes | data                    in front of the data, as most serializers write it
    __value_schema_id: 01 | GUID, 16 bytes     in a header, as newer ones do; the value is the data
    __value_schema_id: 00 | id, 4 bytes        the same

Behind the GUID or id in a header, Protobuf's serializers say which message of the schema it is.
"""

from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

FRAME_BYTES: Final = 5
_GUID_BYTES: Final = 17
_NULL: Final = -1
_PLAIN: Final = -1

Rows: TypeAlias = NDArray[np.int64]
Ints: TypeAlias = NDArray[Any]
"""Whole numbers of any size."""


class Mark(NamedTuple):
    """What some values say of their schema."""

    schema: int | str | None
    """Its id or its GUID; None: they say nothing."""
    skipped: int = 0
    """Bytes in front of the data."""
    lead: bytes = b""
    """What a header says behind the id: it belongs in front of the data."""
    fault: str = ""
    """Why that cannot be understood."""


class Marks:
    """The marks of all values of a column, and which value has which."""

    def __init__(self, distinct: list[Mark], numbers: NDArray[np.int64], sizes: Ints) -> None:
        self.distinct = distinct
        self._numbers = numbers
        """Of each row: the number of its mark, or -1 if it is null."""
        self._sizes = sizes
        self.order = _order(numbers) if len(distinct) > 1 else [0] * bool((numbers == 0).any())
        """The numbers of the marks that there are, that of the first record first."""

    def first_rows(self, number: int, count: int) -> list[int]:
        """Return the first rows of a mark, at most `count`."""
        found: list[int] = np.flatnonzero(self._numbers == number)[:count].tolist()
        return found

    def rows(self, number: int) -> Rows:
        """Return all rows of a mark; what finds them for one finds them for all."""
        rows, numbers = self._sorted
        start, end = np.searchsorted(numbers, [number, number + 1])
        return rows[start:end]

    def size_bytes(self, rows: Rows) -> int:
        """Return how many bytes the values of these rows have."""
        return int(self._sizes[rows].sum())

    @cached_property
    def _sorted(self) -> tuple[Rows, NDArray[np.int64]]:
        rows = np.argsort(self._numbers, kind="stable")
        return rows, self._numbers[rows]


def _order(numbers: NDArray[np.int64]) -> list[int]:
    found, first = np.unique(numbers, return_index=True)
    return [int(found[at]) for at in np.argsort(first) if found[at] != _NULL]


class Places(NamedTuple):
    """Where the values of a column lie, one after the other."""

    data: NDArray[np.uint8]
    starts: Ints
    sizes: Ints
    """Negative: null."""


def places_in(column: pa.Array) -> Places:
    """Return where the bytes of an Arrow array lie."""
    _, offset_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer or bytes(4), np.int32)[column.offset :]
    offsets = offsets[: len(column) + 1]
    sizes = np.diff(offsets) if offset_buffer else np.zeros(len(column), np.int32)
    if column.null_count:
        sizes[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return Places(np.frombuffer(data_buffer or b"", np.uint8), offsets[:-1], sizes)


def marks_of(places: Places, headers: pa.Array | None, header: str) -> Marks:
    """Return the marks of a column of keys or values.

    `headers` are those of its records, None if no record has any; `header` is the name of the one
    that carries its mark.
    """
    ids = _ids(places)
    if len(ids) and ids[0] >= 0 and (ids == ids[0]).all():
        distinct, numbers = [Mark(int(ids[0]), FRAME_BYTES)], np.zeros(len(ids), np.int64)
    else:
        found, numbers = np.unique(ids, return_inverse=True)
        distinct = [Mark(None) if n == _PLAIN else Mark(int(n), FRAME_BYTES) for n in found]
    if headers is not None and headers.null_count < len(headers):
        _from_headers(headers, header, distinct, numbers)
    numbers[places.sizes < 0] = _NULL
    return Marks(distinct, numbers, places.sizes)


def _ids(places: Places) -> NDArray[np.int64]:
    """Return the id in front of each value; -1: there is none."""
    data, starts, sizes = places
    if sizes.min(initial=FRAME_BYTES) >= FRAME_BYTES:
        return _ids_at(data, starts)
    ids = np.full(len(sizes), _PLAIN, np.int64)
    rows = np.flatnonzero(sizes >= FRAME_BYTES)
    if len(rows):
        ids[rows] = _ids_at(data, starts[rows])
    return ids


def _ids_at(data: NDArray[np.uint8], starts: Ints) -> NDArray[np.int64]:
    # A number may begin at any byte.
    numbers: NDArray[np.uint32] = np.ndarray((len(data) - 3,), ">u4", data, strides=(1,))
    return np.where(data[starts] == 0, numbers[starts + 1].astype(np.int64), _PLAIN)


def _from_headers(
    headers: pa.Array, header: str, distinct: list[Mark], numbers: NDArray[np.int64]
) -> None:
    """Give rows that have the header the mark in it: the last one, if there are several."""
    entries = pc.list_flatten(headers)
    is_it = pc.equal(pc.struct_field(entries, [0]), header).to_numpy(zero_copy_only=False)
    hits = np.flatnonzero(is_it)
    if not len(hits):
        return
    rows = pc.list_parent_indices(headers).to_numpy()[hits]
    encoded = pc.struct_field(entries, [1]).take(pa.array(hits)).dictionary_encode()
    indices = encoded.indices.fill_null(_NULL).to_numpy()
    named = indices != _NULL
    numbers[rows[named]] = indices[named] + len(distinct)
    distinct += [_mark_in(value) for value in encoded.dictionary.to_pylist()]


def _mark_in(value: bytes) -> Mark:
    if value[:1] == b"\x01" and len(value) >= _GUID_BYTES:
        return Mark(str(UUID(bytes=value[1:_GUID_BYTES])), lead=value[_GUID_BYTES:])
    if value[:1] == b"\x00" and len(value) >= FRAME_BYTES:
        return Mark(int.from_bytes(value[1:FRAME_BYTES]), lead=value[FRAME_BYTES:])
    return Mark(None, fault="its header has neither 01 and a GUID nor 00 and an id")
