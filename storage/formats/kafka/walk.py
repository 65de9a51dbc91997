"""Where the keys, values and headers of a batch lie: every length followed, every end compared.

    record  = length  attributes  timestamp delta  offset delta
              key length  key  value length  value  header count  header*
    header  = key length  key  value length  value

All numbers are varints but the attributes, a byte that nobody uses. A length of -1 is null.

Only the chain from one record to the next must be followed one by one. `_chain` guesses long runs
of records of one size, and walks otherwise; then everything else is read for all records at
once. What `_chain` found is not believed but compared, so that it may guess.
"""

from typing import Final, NamedTuple

import numpy as np

from storage.formats.kafka import varints
from storage.formats.kafka.layout import Malformed
from storage.formats.kafka.varints import Ints, Octets

RECORD_BYTES_MIN: Final = 7
HEADER_ENTRY_BYTES_MIN: Final = 2

_RUN_MIN: Final = 16
"""A shorter run of records of one size is not worth its guess."""
_TRY: Final = 64
_WALK: Final = 64
"""Records to walk after a wrong guess; twice as many after each further one."""


class Entries(NamedTuple):
    """The headers of all records, in order."""

    counts: Ints
    """How many each record has."""
    key_at: Ints
    key_bytes: Ints
    value_at: Ints
    value_bytes: Ints
    """-1: null."""


class Walked(NamedTuple):
    """A place and a length for everything; a length of -1 is null."""

    time_delta: Ints
    offset_delta: Ints
    key_at: Ints
    key_bytes: Ints
    value_at: Ints
    value_bytes: Ints
    entries: Entries | None
    """None: no record has headers."""

    def record_bytes(self) -> Ints:
        """Return the bytes of each record's key, value and headers."""
        sizes = np.maximum(self.key_bytes, 0) + np.maximum(self.value_bytes, 0)
        if self.entries is not None:
            entries = self.entries
            each = entries.key_bytes + np.maximum(entries.value_bytes, 0)
            totals = np.concatenate([[0], np.cumsum(each)])
            ends = np.cumsum(entries.counts)
            sizes += totals[ends] - totals[ends - entries.counts]
        return sizes


def walk(body: bytes, count: int) -> Walked:
    """Return where everything lies, or raise `Malformed`."""
    if not 0 < count <= len(body) // RECORD_BYTES_MIN:
        raise Malformed(f"{len(body)} bytes cannot be {count} records")
    octets = np.frombuffer(body, np.uint8)
    starts = _chain(body, octets, count)
    lengths, at = varints.read(octets, starts[:-1])
    ends = starts[1:]
    if ends[-1] != len(body) or (at + lengths != ends).any():
        raise Malformed("the lengths of the records do not add up")
    time_delta, at = varints.read(octets, at + 1, varints.LONG_BYTES)
    offset_delta, at = varints.read(octets, at)
    key_bytes, key_at = varints.read(octets, at)
    value_bytes, value_at = varints.read(octets, key_at + np.maximum(key_bytes, 0))
    counts, at = varints.read(octets, value_at + np.maximum(value_bytes, 0))
    if min(key_bytes.min(), value_bytes.min()) < -1:
        raise Malformed("a key or a value has a negative length")
    if counts.min() < 0 or (counts > (ends - at) // HEADER_ENTRY_BYTES_MIN).any():
        raise Malformed("a record has no room for the headers that it claims")
    entries = None
    if counts.any():
        entries, at = _entries(octets, counts, at)
    # Nothing goes back, so what ends where it should has not left its record on the way.
    if (at != ends).any():
        raise Malformed("the parts of a record are not as long as the record")
    return Walked(time_delta, offset_delta, key_at, key_bytes, value_at, value_bytes, entries)


def _entries(octets: Octets, counts: Ints, at: Ints) -> tuple[Entries, Ints]:
    """Read the first header of all records, then the second of those that have two, and so on."""
    total = int(counts.sum())
    key_at, key_bytes, value_at, value_bytes = np.zeros((4, total), np.int64)
    slots = np.cumsum(counts) - counts
    rows = np.flatnonzero(counts)
    done = 0
    while len(rows):
        here = slots[rows] + done
        key_bytes[here], key_at[here] = varints.read(octets, at[rows])
        if key_bytes[here].min() < 0:
            raise Malformed("the key of a header is null")
        value_bytes[here], value_at[here] = varints.read(octets, key_at[here] + key_bytes[here])
        if value_bytes[here].min() < -1:
            raise Malformed("a header has a negative length")
        at[rows] = value_at[here] + np.maximum(value_bytes[here], 0)
        done += 1
        rows = rows[counts[rows] > done]
    return Entries(counts, key_at, key_bytes, value_at, value_bytes), at


_ONE: Final = [1 + (first >> 1) for first in range(0x80)]
"""The bytes of a record by its first, if that is its whole length."""
_TWO: Final = [
    [2 + (((first & 0x7F) | second << 7) >> 1) if second < 0x80 else 0 for second in range(256)]
    for first in range(256)
]
"""The same by its first two; 0: its length takes more."""


def _chain(body: bytes, octets: Octets, count: int) -> Ints:
    """Return where each record begins, and where the last one ends; to be compared."""
    found: list[Ints | range] = []
    left, at, patience = count, 0, _WALK
    try:
        while left:
            if left >= _RUN_MIN and (run := _run(octets, at, _step(body, at), left)) is not None:
                found.append(run)
                at, left, patience = run.stop, left - len(run), _WALK
                continue
            places = _walk(body, at, min(left, patience))
            at = places.pop()
            found.append(np.array(places, np.int64))
            left -= len(places)
            patience *= 2
    except IndexError:
        raise Malformed("the records end before the last") from None
    found.append(range(at, at + 1))
    return np.concatenate(found)


def _run(octets: Octets, at: int, step: int, left: int) -> range | None:
    """Return the places of records that are as long as the one at `at`, if there are many."""
    for most in (min(left, _TRY), left):
        many = min(most, (len(octets) - 2 - at) // step + 1)
        same = octets[at : at + many * step : step] == octets[at]
        if step > len(_ONE):
            same &= octets[at + 1 : at + many * step : step] == octets[at + 1]
        many = len(same) if same.all() else int(same.argmin())
        if many < _RUN_MIN:
            return None
        if many < most:
            break
    return range(at, at + many * step, step)


def _walk(body: bytes, at: int, count: int) -> list[int]:
    places = [at]
    for _ in range(count):
        first = body[at]
        # `_step`, written out: this is all that is done for each record.
        at += _ONE[first] if first < 0x80 else _TWO[first][body[at + 1]] or _step(body, at)
        places.append(at)
    return places


def _step(body: bytes, at: int) -> int:
    length, content = varints.read_one(body, at)
    if length < RECORD_BYTES_MIN - 1:
        raise Malformed(f"a record of {length} bytes")
    return content - at + length
