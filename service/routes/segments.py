"""Where records are stored, for clients that read the bucket themselves.

An answer may have thousands of ranges, so they are encoded by msgspec, and each object's URL is
created once.
"""

import base64
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from service.http.answer_size import AnswerSize
from service.log.gateway import Gateway
from service.log.locating import Located
from storage import keys
from storage.formats.entries import Entry, Kind
from storage.formats.partitions import PartitionNumber
from storage.formats.slices import SCHEMA_MESSAGE
from storage.head.head import Head
from storage.head.replication import read_names
from storage.reading.catalog import ENTRIES_MAX
from storage.reading.fetched import Data

RANGES: Final = ENTRIES_MAX
"""Default maximum number of ranges in an answer."""

RANGES_MAX: Final = 10_000

SCHEMA_BASE64: Final = base64.b64encode(SCHEMA_MESSAGE).decode()

Format = Literal["arrow", "parquet"]


class StoredRange(msgspec.Struct, gc=False, omit_defaults=True):
    base_offset: Annotated[int, Meta(description="first offset that the range covers")]
    end_offset: int
    count: Annotated[
        int, Meta(description="of records; less than offsets where some were compacted away")
    ]
    format: Annotated[
        Format,
        Meta(
            description="arrow: one Arrow IPC record-batch message, whose offsets are dense;"
            " parquet: one row group of a Parquet file with a column offset"
        ),
    ]
    url: Annotated[
        str,
        Meta(
            description="of the object; the Parquet file for parquet; a data: URL (RFC 2397) with"
            " the bytes themselves if they are in no bucket yet"
        ),
    ]
    start: Annotated[int, Meta(description="first byte of the range")]
    end: Annotated[int, Meta(description="byte behind the range")]
    crc32c: Annotated[int, Meta(description="of the range")]
    min_timestamp: int
    max_timestamp: int
    row_group: Annotated[
        int | None, Meta(description="its number in the file; only for parquet")
    ] = None
    footer_start: Annotated[int | None, Meta(description="first byte of the file's footer")] = None
    footer_end: Annotated[
        int | None, Meta(description="byte behind the footer: the file's size")
    ] = None
    footer_crc32c: int | None = None


class StoredRanges(msgspec.Struct):
    segments: list[StoredRange]
    arrow_schema_base64: Annotated[str, Meta(description="message to put in front of arrow ranges")]
    next_offset: Annotated[int, Meta(description="where to ask on; nothing before it is left out")]
    high_watermark: int
    log_start_offset: int


async def located_ranges(
    gateway: Gateway,
    place: tuple[str, PartitionNumber],
    offset: int | None,
    end: int | None,
    limit: int,
) -> bytes:
    """Return the JSON of ranges that hold `offset` to `end`; fewer if they would not fit."""
    size = AnswerSize.of(gateway.settings)
    while True:
        located = await gateway.locate(*place, offset, end, limit)
        body = await stored_ranges(gateway, located)
        if limit == 1 or size.holds(len(body)):
            return body
        limit //= 2


async def stored_ranges(gateway: Gateway, located: Located) -> bytes:
    """Return the JSON of what was located, with URLs."""
    head, local = located.head, located.local
    urls: dict[bytes, str] = {}
    ranges: list[StoredRange] = []
    for entry in located.entries:
        if entry.kind == Kind.TABLE:
            data = located.in_table[entry.object_id, entry.position]
            # The URL holds only this range.
            ranges.append(_range(entry._replace(position=0), _data_url(data)))
            continue
        if entry.object_id not in urls:
            urls[entry.object_id] = await _url(gateway, head, entry)
        ranges.append(_range(entry, urls[entry.object_id]))
    return msgspec.json.encode(
        StoredRanges(
            segments=ranges,
            arrow_schema_base64=SCHEMA_BASE64,
            next_offset=located.next_offset,
            high_watermark=head.next_offsets[local],
            log_start_offset=head.log_starts[local],
        )
    )


async def _url(gateway: Gateway, head: Head, entry: Entry) -> str:
    if entry.segment is None:
        key = keys.hot_segment(entry.object_id)
    else:
        key = entry.segment.key(head.topic_id)
    names = read_names(head, entry.zones, entry.partition)
    name = min(names, key=gateway.zones.is_avoided)
    return await gateway.zones.store(name).presign(key, gateway.settings.presign_expires_s)


def _data_url(data: Data) -> str:
    return f"data:application/octet-stream;base64,{base64.b64encode(data).decode()}"


def _range(entry: Entry, url: str) -> StoredRange:
    found = StoredRange(
        base_offset=entry.start_offset,
        end_offset=entry.end_offset,
        count=entry.record_count,
        format="parquet" if entry.kind == Kind.PARQUET else "arrow",
        url=url,
        start=entry.position,
        end=entry.position + entry.length,
        crc32c=entry.crc,
        min_timestamp=entry.min_ms,
        max_timestamp=entry.max_ms,
    )
    if entry.segment is not None:
        found.row_group = entry.row_group
        found.footer_start = entry.segment.size_bytes - entry.segment.footer_bytes
        found.footer_end = entry.segment.size_bytes
        found.footer_crc32c = entry.segment.footer_crc
    return found
