"""Copies compacted segments between zones, through a file, since they may be large.

A segment is read some row groups at a time, each from any zone that holds it intact, and compared
with its checksum. So the file has the bytes that were written originally, even if no single zone
has all of them intact. Memory is bounded by `PIECE_BYTES`, or the largest row group.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from storage.formats import compacted
from storage.formats.compacted import RowGroup
from storage.formats.compacted_footer import MAGIC
from storage.formats.segment_list import Segment
from storage.zones.zones import Zones

PIECE_BYTES: Final = 8 * 1024 * 1024


async def _at_once(_: int) -> None:
    return


async def fetch(
    zones: Zones,
    topic_id: bytes,
    segment: Segment,
    names: Sequence[str],
    path: Path,
    take: Callable[[int], Awaitable[None]] = _at_once,
) -> None:
    """Read the segment from the named zones into the file `path`.

    `take` is awaited before each read, with its number of bytes. Raises `Corrupt` if no zone holds
    some part intact, and `StoreUnavailable` if it cannot be read now; the file is then unusable.
    """
    key = segment.key(topic_id)

    def check_footer(pieces: list[bytes]) -> None:
        compacted.footer_of(segment, topic_id, pieces[0])

    begins = segment.size_bytes - segment.footer_bytes
    await take(segment.footer_bytes)
    [data] = await zones.get_ranges(key, [(begins, segment.size_bytes)], names, check_footer)
    footer = compacted.footer_of(segment, topic_id, data)
    with path.open("wb") as file:
        file.write(MAGIC)
        for span in compacted.spans(footer, PIECE_BYTES):
            await take(span[-1].end - span[0].position)
            pieces = await _row_groups(zones, key, span, names)
            await asyncio.to_thread(file.writelines, pieces)
        file.write(data)


async def _row_groups(
    zones: Zones, key: str, span: Sequence[RowGroup], names: Sequence[str]
) -> list[bytes]:
    def check(pieces: list[bytes]) -> None:
        for group, piece in zip(span, pieces, strict=True):
            compacted.check_row_group(group, piece)

    ranges = [(group.position, group.end) for group in span]
    return await zones.get_ranges(key, ranges, names, check)
