"""Which dead letters were sent again, and where to.

    redrive/<topic id>/<partition>/<digest of the destination>   RRD1   ranges of offsets

    redriven/<topic id>                                          RRD1   that there are such items

The item changes in the transaction that appends the letters to their destination. So a re-drive
that is killed and repeated, or runs twice at the same time, sends each letter once to the same
destination. The ranges need no order of sending: a re-drive with a filter leaves holes that a later
one fills.

The second kind is written before the first, and lists the topics: items of one that was deleted are
found by it, and removed (`service/connect/running/left_behind.py`).
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from storage.formats import frames

RANGES_MAX: Final = 10_000
"""Ranges of one item, some 100 KiB. Retention of the letters removes them again."""

_MAGIC: Final = b"RRD1"


class SentLetters(msgspec.Struct, array_like=True, frozen=True):
    destination: str
    ranges: list[tuple[int, int]] = []
    """Half-open, in order, and not touching."""
    changed_ms: int = 0

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self.ranges, (offset, 1 << 63)) - 1
        return at >= 0 and self.ranges[at][0] <= offset < self.ranges[at][1]

    def with_offsets(self, offsets: Iterable[int], log_start: int, now_ms: int) -> "SentLetters":
        """Return these and `offsets`, without what is before the log start."""
        added = ((offset, offset + 1) for offset in offsets)
        kept = [each for each in _joined([*self.ranges, *added]) if each[1] > log_start]
        return SentLetters(self.destination, kept, now_ms)


def union(all_sent: Sequence[SentLetters]) -> SentLetters:
    """Return what was sent to any destination."""
    return SentLetters("", _joined(each for sent in all_sent for each in sent.ranges))


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def encode_sent(item: SentLetters) -> bytes:
    return frames.seal(_MAGIC, msgspec.msgpack.encode(item))


def decode_sent(value: bytes) -> SentLetters:
    return frames.unpack(_MAGIC, value, _DECODER, "dead letters that were sent again")


_DECODER: Final = msgspec.msgpack.Decoder(SentLetters)
