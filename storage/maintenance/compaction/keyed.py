"""The last record of each key: which offsets survive, and the rows that have them. Pure Arrow.

There are two passes: keys and offsets first, then only the rows that survive. The first pass
reduces as it reads, so it holds at most the distinct keys and some rows. The second needs one
number per survivor.

A partition that is too large for one worker takes three phases, with a shuffle between them:

    spread    a range ─▶ its last offset of each key, by a hash of the key      `KEYS`
    regroup   one part of all keys ─▶ those offsets that are the last of all    `SURVIVORS`
    gather    a range, and its survivors ─▶ segments                 (tasks.py)

Records without a key are not older versions of other records: they stay. (A compacted topic
refuses them, but it may have had another cleanup policy before.)
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.maintenance.compaction.hot import Ints

GROUP: Final = "group"
"""The column by which a shuffle groups rows."""

PAIRS: Final = pa.schema(
    [pa.field("key", pa.binary()), pa.field("offset", pa.int64(), nullable=False)]
)
KEYS: Final = pa.schema(
    [
        pa.field(GROUP, pa.int64(), nullable=False),
        pa.field("range", pa.int64(), nullable=False),
        *PAIRS,
    ]
)
SURVIVORS: Final = pa.schema(
    [
        pa.field(GROUP, pa.int64(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
    ]
)

REDUCE_ROWS: Final = 1 << 20
"""Minimum number of rows collected before they are reduced."""

_IS_THERE: Final = -1
_HASH_ROWS: Final = 1 << 16
_WEIGHTS: Final = np.random.default_rng(20_21).integers(0, 2**64, 1 << 12, dtype=np.uint64)
"""The same in every worker, because workers must agree. Only buckets depend on it."""


class LastOffsets:
    """The last offset of every key in the rows added so far."""

    def __init__(self, reduce_rows: int = REDUCE_ROWS) -> None:
        self._reduce_rows = reduce_rows
        self._reduced = PAIRS.empty_table()
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._keyless: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of `PAIRS`."""
        keys = batch.column(0)
        if keys.null_count:
            self._keyless.append(batch.filter(keys.is_null()))
            batch = batch.filter(keys.is_valid())
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        # Wait for as many rows as are kept, so that each row is reduced only a few times.
        if self._waiting_rows >= max(self._reduce_rows, self._reduced.num_rows):
            self._reduce()

    def _reduce(self) -> None:
        if not self._waiting:
            return
        table = pa.concat_tables([self._reduced, pa.Table.from_batches(self._waiting, PAIRS)])
        self._reduced = last_of(table)
        self._waiting, self._waiting_rows = [], 0

    def table(self) -> pa.Table:
        """Return one row for each key, and all rows without a key, in any order."""
        self._reduce()
        return pa.concat_tables([self._reduced, pa.Table.from_batches(self._keyless, PAIRS)])


def last_of(table: pa.Table) -> pa.Table:
    """Return the last offset of each key in rows of `PAIRS`, which all have a key."""
    grouped = table.group_by("key", use_threads=False).aggregate([("offset", "max")])
    return grouped.select(["key", "offset_max"]).rename_columns(PAIRS.names).cast(PAIRS)


def survivors(table: pa.Table) -> Ints:
    """Return the offsets in `table`, in order."""
    offsets: Ints = table.column("offset").to_numpy()
    return np.sort(offsets[offsets != _IS_THERE])


def pairs(batch: pa.RecordBatch, floor: int = 0) -> pa.RecordBatch:
    """Return keys and offsets of the records from `floor` on."""
    found = batch.select(PAIRS.names).cast(PAIRS)
    offsets = batch.column("offset")
    if len(offsets) and offsets[0].as_py() < floor:
        return found.filter(pc.greater_equal(offsets, floor))
    return found


def within(wanted: Ints | None, start_offset: int, end_offset: int) -> int:
    """Return how many of the `wanted` offsets are in a range; None: all are wanted."""
    if wanted is None:
        return end_offset - start_offset
    first, end = np.searchsorted(wanted, [start_offset, end_offset])
    return int(end - first)


def kept(batch: pa.RecordBatch, wanted: Ints | None, *, floor: int, horizon: int) -> pa.RecordBatch:
    """Return the records that stay.

    These are the records whose offset is `wanted` (None: all) and not before `floor`, except
    tombstones before `horizon`. Rows and `wanted` are in the order of offsets.
    """
    batch = _wanted(batch, wanted, floor)
    if not batch.num_rows or batch.column("offset")[0].as_py() >= horizon:
        return batch
    if not tombstone_count(batch):
        return batch
    is_late = pc.greater_equal(batch.column("offset"), horizon)
    return batch.filter(pc.or_(pc.invert(_tombstones(batch)), is_late))


def tombstone_count(batch: pa.RecordBatch) -> int:
    """Return the number of tombstones: records with a key and no value."""
    if not batch.column("value").null_count:
        return 0
    return int(_tombstones(batch).true_count)


def _tombstones(batch: pa.RecordBatch) -> pa.BooleanArray:
    return pc.and_(batch.column("value").is_null(), batch.column("key").is_valid())


def _wanted(batch: pa.RecordBatch, wanted: Ints | None, floor: int) -> pa.RecordBatch:
    if not batch.num_rows:
        return batch
    offsets: Ints = batch.column("offset").to_numpy()
    if offsets[0] < floor:
        skipped = int(np.searchsorted(offsets, floor))
        batch, offsets = batch.slice(skipped), offsets[skipped:]
    if wanted is None or not len(offsets):
        return batch
    first, end = np.searchsorted(wanted, [offsets[0], offsets[-1] + 1])
    chosen = wanted[first:end]
    if len(chosen) == len(offsets):
        return batch
    return batch.take(pa.array(np.searchsorted(offsets, chosen)))


def spread(table: pa.Table, number: int, buckets: int) -> Iterator[pa.RecordBatch]:
    """Yield rows of `PAIRS` of the range with that number as rows of `KEYS`.

    One extra row marks the range as present. It always reaches the last phase, so a range lost on
    the way is not mistaken for one without survivors.
    """
    yield pa.RecordBatch.from_pylist(
        [{GROUP: 0, "range": number, "key": None, "offset": _IS_THERE}], schema=KEYS
    )
    for batch in table.to_batches(max_chunksize=_HASH_ROWS):
        groups = pa.array(bucket_of(batch.column(0), buckets))
        ranges = pa.array(np.full(batch.num_rows, number, np.int64))
        columns = [groups, ranges, *batch.columns]
        yield pa.RecordBatch.from_arrays(columns, schema=KEYS)


def bucket_of(keys: pa.Array, buckets: int) -> Ints:
    """Return a number below `buckets` for each key, the same for the same key."""
    parts = [_hashed(keys.slice(at, _HASH_ROWS)) for at in range(0, len(keys), _HASH_ROWS)]
    hashes = np.concatenate(parts) if parts else np.empty(0, np.uint64)
    numbers: Ints = ((hashes >> np.uint64(17)) % np.uint64(buckets)).astype(np.int64)
    return numbers


def _hashed(keys: pa.Array) -> npt.NDArray[np.uint64]:
    # The sum of each byte times a weight of its place, which NumPy computes for all keys.
    keys = keys.fill_null(b"") if keys.null_count else keys
    _, starts, data = keys.buffers()
    borders = np.frombuffer(starts, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    borders, first = borders - borders[0], int(borders[0])
    if not borders[-1]:
        return np.zeros(len(keys), np.uint64)
    values = np.frombuffer(data, np.uint8)[first : first + int(borders[-1])]
    places = np.arange(len(values)) - np.repeat(borders[:-1], np.diff(borders))
    weighed = (values.astype(np.uint64) + np.uint64(1)) * _WEIGHTS[places % len(_WEIGHTS)]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(weighed, dtype=np.uint64)])
    hashes: npt.NDArray[np.uint64] = sums[borders[1:]] - sums[borders[:-1]]
    return hashes ^ (hashes >> np.uint64(32))


def regroup(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the survivors among `KEYS`, which has all rows of its keys, as `SURVIVORS`."""
    keys = table.column("key")
    keyless = table.filter(keys.is_null()) if keys.null_count else table.slice(0, 0)
    keyed = table.filter(keys.is_valid()) if keys.null_count else table
    # Ranges are in the order of their offsets, so the last offset is in the last range.
    last = keyed.group_by("key", use_threads=False).aggregate([("range", "max"), ("offset", "max")])
    for ranges, offsets in (
        (last.column("range_max"), last.column("offset_max")),
        (keyless.column("range"), keyless.column("offset")),
    ):
        found = pa.table([ranges, offsets], schema=SURVIVORS)
        yield from found.combine_chunks().to_batches()
