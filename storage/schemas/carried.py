"""Which schema each value of a column says it has, found for all of them at once.

A header of the record counts before the first bytes of the value (`storage/schemas/framing.py`).
Both may be there by chance, so an id need not exist.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.schemas.framing import prefix_of, split_header

SchemaRef: TypeAlias = int | str
"""The id of a schema, or its GUID."""

Ints: TypeAlias = npt.NDArray[np.int64]

_PREFIX_BYTES: Final = len(prefix_of(0))


@dataclass(frozen=True, slots=True)
class Carried:
    """The rows whose values have one schema."""

    ref: SchemaRef
    rows: Ints
    lead: bytes
    """What a header has before the data of each value."""
    skip: int
    """How many bytes of each value are before its data."""

    def bodies(self, values: pa.BinaryArray) -> list[bytes]:
        """Return data with what is before it: of Protobuf, the indexes of the message."""
        found = values.take(pa.array(self.rows)).to_pylist()
        if self.skip:
            return [value[self.skip :] for value in found]
        return [self.lead + value for value in found] if self.lead else found


def carried(values: pa.BinaryArray, headers: pa.ListArray, header: str) -> list[Carried]:
    """Return the rows that name a schema, in `header` or before their value."""
    named = _in_headers(values, headers, header)
    found = [Carried(ref, _ints(rows), lead, 0) for (ref, lead), rows in named.items()]
    taken = np.zeros(len(values), np.bool_)
    for each in found:
        taken[each.rows] = True
    return [*found, *_in_prefixes(values, taken)]


def _ints(rows: list[int]) -> Ints:
    return np.array(rows, np.int64)


def _in_headers(
    values: pa.BinaryArray, headers: pa.ListArray, header: str
) -> dict[tuple[SchemaRef, bytes], list[int]]:
    rows: dict[int, tuple[SchemaRef, bytes]] = {}
    items = headers.flatten()
    if len(items):
        hits = np.flatnonzero(pc.equal(items.field(0), header).to_numpy(zero_copy_only=False))
        parents = pc.list_parent_indices(headers).take(pa.array(hits)).to_pylist()
        contents = items.field(1).take(pa.array(hits)).to_pylist()
        for row, content in zip(parents, contents, strict=True):
            # The last one counts.
            rows.pop(row, None)
            if (split := split_header(content or b"")) is not None and values[row].is_valid:
                rows[row] = split
    found: dict[tuple[SchemaRef, bytes], list[int]] = defaultdict(list)
    for row, named in rows.items():
        found[named].append(row)
    return found


def _in_prefixes(values: pa.BinaryArray, taken: npt.NDArray[np.bool_]) -> Iterator[Carried]:
    _, starts, data = values.buffers()
    if data is None or not len(values):
        return
    borders = np.frombuffer(starts, np.int32)[values.offset : values.offset + len(values) + 1]
    content = np.frombuffer(data, np.uint8)
    has_id = (np.diff(borders) >= _PREFIX_BYTES) & ~taken
    if values.null_count:
        has_id &= values.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(has_id)
    rows = rows[content[borders[rows]] == 0]
    at = borders[rows].astype(np.int64)
    ids = np.zeros(len(rows), np.int64)
    for place in range(1, _PREFIX_BYTES):
        ids = ids << 8 | content[at + place]
    found, first = np.unique(np.sort(ids), return_index=True)
    ordered = rows[np.argsort(ids, kind="stable")]
    for schema_id, some in zip(found.tolist(), np.split(ordered, first[1:]), strict=False):
        yield Carried(schema_id, some, b"", _PREFIX_BYTES)
