"""Which partition a record belongs to, decided as Kafka's clients decide it.

A record that names its partition goes there. A record with a key goes where Kafka's murmur2 hash
of the key says, so that producers of both systems agree. Records with neither are distributed in
runs: neighbours stay together, which makes few slices. Each request continues where the last one
ended, which keeps the partitions level.

Requests of a few records are handled in plain Python: calls into numpy would cost more than they
save.
"""

from collections.abc import Sequence
from functools import cache
from itertools import chain
from math import gcd
from struct import unpack_from
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from storage.errors import UnknownTopicOrPartition

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes: TypeAlias = NDArray[np.uint8]
    Words: TypeAlias = NDArray[np.uint32]
    Integers: TypeAlias = NDArray[np.int64]

Explicit: TypeAlias = "Sequence[int | None] | pa.Array | None"
"""The partition that each record asks for, if any: a list, or an Arrow array of integers."""

RUNS_MAX: Final = 64
"""Maximum number of partitions for the keyless records of one request: those of a lane."""

_FEW: Final = 64
_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_U32: Final = 0xFFFFFFFF
_LONG_BYTES: Final = 256


def murmur2(data: bytes) -> int:
    """Return Kafka's hash of `data`, as an unsigned 32-bit integer."""
    if len(data) > _LONG_BYTES:
        return _murmur2_of_long(data)
    words, tail = divmod(len(data), 4)
    h = _SEED ^ len(data)
    for k in unpack_from(f"<{words}I", data):
        k = k * _M & _U32
        h = (h * _M & _U32) ^ ((k ^ k >> 24) * _M & _U32)
    return _finished(h, data[-tail:] if tail else b"")


def partition_for(key: bytes, count: int) -> int:
    """Return the partition, of `count`, that Kafka's clients give to `key`."""
    return (murmur2(key) & 0x7FFFFFFF) % count


def partitions_for(keys: pa.BinaryArray, count: int) -> "Integers":
    """Return the partition of every key, as `partition_for` gives it one by one.

    A null key gets an arbitrary partition: the caller knows which keys are null, and overrides it.
    """
    import numpy as np

    offsets = np.zeros(1, np.int64)
    if len(keys):
        offsets = np.frombuffer(keys.buffers()[1], np.int32, len(keys) + 1, keys.offset * 4)
    first, end = int(offsets[0]), int(offsets[-1])
    # Three extra bytes, so that a whole word can be read at every byte of a key.
    data = np.zeros(end - first + 3, np.uint8)
    if end > first:
        data[:-3] = np.frombuffer(keys.buffers()[2], np.uint8, end - first, first)
    hashes = _hashes(data, (offsets[:-1] - first).astype(np.int64), np.diff(offsets))
    return (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % count


class Spreader:
    """Distributes keyless records over partitions, and remembers where it stopped."""

    def __init__(self, cursor: int = 0) -> None:
        self._cursor = cursor

    def runs(self, records: int, count: int) -> list[tuple[int, int]]:
        """Return (partition, size) of the runs that `records` neighbours are cut into.

        The runs go to neighbouring partitions. Their sizes differ by at most one record.
        """
        run_count = min(records, count, RUNS_MAX)
        if run_count == 0:
            return []
        size, longer = divmod(records, run_count)
        start = self._cursor % count
        self._cursor = (start + self._step(records, count)) % count
        return [((start + i) % count, size + (i < longer)) for i in range(run_count)]

    @staticmethod
    def _step(records: int, count: int) -> int:
        # Advance as if records were distributed one by one. If only some partitions get a run,
        # that could repeat the same ones forever; then use a step that starts at each in turn.
        return records if min(records, count) <= RUNS_MAX else _coprime_step(count)


class Keeper(Spreader):
    """Sends all keyless records to one partition, which is derived from a number.

    A retried batch goes to the same partition: only there it is recognised as a duplicate.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)

    def runs(self, records: int, count: int) -> list[tuple[int, int]]:
        return [(self._cursor % count, records)] if records else []


def assign(
    batch: pa.RecordBatch, explicit: Explicit, count: int, spreader: Spreader
) -> dict[int, pa.RecordBatch]:
    """Return the records of each partition, the partition of the first record first.

    Records keep their order within a partition. Raises `UnknownTopicOrPartition` for a record
    that asks for a partition that the topic, having `count` of them, does not have.
    """
    rows = batch.num_rows
    assert explicit is None or len(explicit) == rows, (len(explicit), rows)
    if rows == 0:
        return {}
    if rows > _FEW:
        return _assign_many(batch, explicit, count, spreader)
    wanted = _wanted_by_few(explicit, count)
    if count == 1:
        return {0: batch}
    return _grouped_few(batch, _places_of_few(batch, wanted, count, spreader))


def _assign_many(
    batch: pa.RecordBatch, explicit: Explicit, count: int, spreader: Spreader
) -> dict[int, pa.RecordBatch]:
    wanted = _wanted_by_many(explicit, count)
    if count == 1:
        return {0: batch}
    keys = batch.column("key")
    if wanted is None and keys.null_count == len(keys):
        return _cut(batch, spreader.runs(len(keys), count))
    return _grouped_many(batch, _places_of_many(keys, wanted, count, spreader))


def _wanted_by_few(explicit: Explicit, count: int) -> Sequence[int | None] | None:
    if explicit is None:
        return None
    wanted = explicit.to_pylist() if isinstance(explicit, pa.Array) else explicit
    for row, partition in enumerate(wanted):
        if partition is not None and not 0 <= partition < count:
            raise _unknown(row, partition, count)
    return wanted


def _wanted_by_many(explicit: Explicit, count: int) -> "Integers | None":
    """Return the partition of every record that names one, and -1 for the others."""
    if explicit is None:
        return None
    import numpy as np

    numbers = explicit if isinstance(explicit, pa.Array) else pa.array(explicit, pa.int64())
    free = numbers.is_null().to_numpy(zero_copy_only=False)
    wanted: Integers = numbers.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
    bad = np.flatnonzero((wanted < 0) | (wanted >= count))
    if bad.size:
        raise _unknown(int(bad[0]), int(wanted[bad[0]]), count)
    return None if free.all() else np.where(free, -1, wanted)


def _unknown(row: int, partition: int, count: int) -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition(
        f"records[{row}].partition is {partition},"
        f" but the topic has {count} partitions, 0 to {count - 1}"
    )


def _cut(batch: pa.RecordBatch, runs: list[tuple[int, int]]) -> dict[int, pa.RecordBatch]:
    """Return consecutive slices of `batch`."""
    parts: dict[int, pa.RecordBatch] = {}
    start = 0
    for partition, size in runs:
        parts[partition] = batch.slice(start, size)
        start += size
    return parts


def _places_of_few(
    batch: pa.RecordBatch, explicit: Sequence[int | None] | None, count: int, spreader: Spreader
) -> list[int]:
    keys: list[bytes | None] = batch.column("key").to_pylist()
    wanted = explicit or [None] * len(keys)
    free = sum(p is None and key is None for p, key in zip(wanted, keys, strict=True))
    dealt = chain.from_iterable([p] * size for p, size in spreader.runs(free, count))
    return [
        p if p is not None else next(dealt) if key is None else partition_for(key, count)
        for p, key in zip(wanted, keys, strict=True)
    ]


def _places_of_many(
    keys: pa.BinaryArray, wanted: "Integers | None", count: int, spreader: Spreader
) -> "Integers":
    import numpy as np

    places = partitions_for(keys, count)
    free = keys.is_null().to_numpy(zero_copy_only=False)
    if wanted is not None:
        places = np.where(wanted < 0, places, wanted)
        free = free & (wanted < 0)
    if runs := spreader.runs(int(free.sum()), count):
        places[free] = np.repeat([p for p, _ in runs], [size for _, size in runs])
    return places


def _grouped_few(batch: pa.RecordBatch, places: list[int]) -> dict[int, pa.RecordBatch]:
    rows: dict[int, list[int]] = {}
    for row, partition in enumerate(places):
        rows.setdefault(partition, []).append(row)
    if len(rows) == 1:
        return {places[0]: batch}
    ordered = _taken(batch, pa.array(chain.from_iterable(rows.values()), pa.int64()))
    return _cut(ordered, [(partition, len(group)) for partition, group in rows.items()])


def _grouped_many(batch: pa.RecordBatch, places: "Integers") -> dict[int, pa.RecordBatch]:
    import numpy as np

    if (places == places[0]).all():
        return {int(places[0]): batch}
    # numpy sorts 16-bit integers by radix, four times as fast as wider ones.
    narrow = places.astype(np.uint16) if int(places.max()) < 1 << 16 else places
    order = np.argsort(narrow, kind="stable")
    grouped = places[order]
    starts = np.flatnonzero(np.diff(grouped, prepend=-1))
    sizes = np.diff(starts, append=len(order))
    ordered = _taken(batch, pa.array(order))
    # The sort is stable, so each group begins with the first of its records.
    return {
        int(grouped[starts[group]]): ordered.slice(int(starts[group]), int(sizes[group]))
        for group in np.argsort(order[starts])
    }


def _taken(batch: pa.RecordBatch, rows: pa.Array) -> pa.RecordBatch:
    # A column of nulls needs no reordering, and headers are mostly all null.
    columns = [c if c.null_count == len(c) else c.take(rows) for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


@cache
def _coprime_step(count: int) -> int:
    step = RUNS_MAX
    while gcd(step, count) != 1:
        step += 1
    return step


def _finished(h: int, tail: bytes) -> int:
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _U32
    h = (h ^ h >> 13) * _M & _U32
    return h ^ h >> 15


def _murmur2_of_long(data: bytes) -> int:
    """Return the same hash, mixing all words at once: a key may have a megabyte."""
    import numpy as np

    words = len(data) // 4
    h = _SEED ^ len(data)
    for k in _mixed(np.frombuffer(data, "<u4", words)).tolist():
        h = (h * _M & _U32) ^ k
    return _finished(h, data[words * 4 :])


def _mixed(words: "Words") -> "Words":
    k = words * _m()
    k ^= k >> 24
    k *= _m()
    return k


def _m() -> "np.uint32":
    import numpy as np

    return np.uint32(_M)


def _hashes(data: "Bytes", starts: "Integers", lengths: "Integers") -> "Words":
    """Return the hash of every key: short keys together, word by word; long keys one by one."""
    import numpy as np

    # Sorted by length, the keys that have a next word are always the last ones.
    order = np.argsort(np.minimum(lengths, _LONG_BYTES + 1).astype(np.uint16), kind="stable")
    starts, lengths = starts[order], lengths[order]
    short = int(np.searchsorted(lengths, _LONG_BYTES, side="right"))
    long = (
        murmur2(data[start : start + length].tobytes())
        for start, length in zip(starts[short:].tolist(), lengths[short:].tolist(), strict=True)
    )
    hashes = np.empty(len(order), np.uint32)
    hashes[order[:short]] = _hashes_of_short(data, starts[:short], lengths[:short])
    hashes[order[short:]] = np.fromiter(long, np.uint32, len(order) - short)
    return hashes


def _hashes_of_short(data: "Bytes", starts: "Integers", lengths: "Integers") -> "Words":
    import numpy as np

    words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
    h = lengths.astype(np.uint32) ^ np.uint32(_SEED)
    for position in range(0, int(lengths[-1]) & ~3 if len(lengths) else 0, 4):
        first = int(np.searchsorted(lengths, position + 4))
        h[first:] = h[first:] * _m() ^ _mixed(words[starts[first:] + position])
    ragged = np.flatnonzero(lengths & 3)
    bits = (lengths[ragged] & 3).astype(np.uint32) * 8
    tails = words[starts[ragged] + (lengths[ragged] & ~3)] & ((np.uint32(1) << bits) - 1)
    h[ragged] = (h[ragged] ^ tails) * _m()
    h ^= h >> 13
    h *= _m()
    h ^= h >> 15
    return h
