"""Byte ranges that lie close together, read as one.

A request costs more than the bytes between two ranges, whether it goes to a disk or to S3.
Only the gap that is worth skipping differs.
"""

from bisect import bisect_right
from collections.abc import Sequence

Range = tuple[int, int]
"""The bytes `start <= position < end`."""


def merged(ranges: Sequence[Range], gap_bytes_max: int) -> list[Range]:
    """Return ranges in order, more than `gap_bytes_max` apart, that cover all `ranges`."""
    covering: list[Range] = []
    for start, end in sorted(ranges):
        if covering and start <= covering[-1][1] + gap_bytes_max:
            covering[-1] = (covering[-1][0], max(end, covering[-1][1]))
        else:
            covering.append((start, end))
    return covering


def cut(covering: Sequence[Range], bodies: Sequence[bytes], wanted: Range) -> bytes:
    """Return the bytes of `wanted`, given what `merged` returned and the bytes of each."""
    start, end = wanted
    number = bisect_right(covering, start, key=lambda each: each[0]) - 1
    origin = covering[number][0]
    return bodies[number][start - origin : end - origin]
