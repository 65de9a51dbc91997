"""Decoded values in the rows that they belong to, and the messages of Protobuf among them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from storage.schemas.carried import Ints
from storage.schemas.columns import Fit, fitted
from storage.schemas.framing import unpack_indexes

Indexes: TypeAlias = tuple[int, ...]
"""Which message of its file it is."""


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """Decoded values of one schema, and the rows that they are in."""

    rows: Ints
    array: pa.Array
    fit: Fit


def by_message(bodies: Sequence[bytes]) -> Iterator[tuple[Indexes, list[int], list[bytes]]]:
    """Yield each message, the places that have it, and its data there, without indexes.

    What does not begin with valid indexes is left out.
    """
    places: dict[Indexes, list[int]] = defaultdict(list)
    found: dict[Indexes, list[bytes]] = defaultdict(list)
    for place, body in enumerate(bodies):
        try:
            indexes, start = unpack_indexes(body)
        except ValueError:
            continue
        places[indexes].append(place)
        found[indexes].append(body[start:])
    for indexes, some in found.items():
        yield indexes, places[indexes], some


def spread(values: Sequence[ColumnValues], kind: pa.DataType, count: int) -> pa.Array:
    """Return a column with these values in their rows, and null in others."""
    arrays = [fitted(each.array, each.fit, kind) for each in values]
    if len(arrays) == 1 and len(arrays[0]) == count:
        return arrays[0]
    places = np.full(count, -1, np.int64)
    first = 0
    for each in values:
        places[each.rows] = np.arange(first, first + len(each.rows))
        first += len(each.rows)
    joined = pa.concat_arrays([*arrays, pa.nulls(1, kind)])
    return joined.take(pa.array(np.where(places < 0, first, places)))
