"""Where records are stored, for clients that read the bucket themselves.

An answer may have thousands of ranges, so they are encoded by msgspec.
"""

import base64
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated, Final, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from service.http.answer_size import AnswerSize
from service.http.bodies.fields import OFFSET_MAX
from service.http.methods import is_head
from service.http.records_response import shares_of
from service.http.requests import JSON, Query, partition_of
from service.http.stored_urls import Address, Addresses, key_of, parse_name, parse_range
from service.log.gateway import Gateway
from service.log.locating import Located
from service.security.caller import caller_of
from storage.errors import InvalidRequest, NotSupported
from storage.formats.entries import Entry
from storage.formats.slices import SCHEMA_MESSAGE
from storage.head.head import Head
from storage.head.replication import read_names
from storage.reading.catalog import ENTRIES_MAX
from storage.reading.fetched import Data
from storage.stores.ranges import Range

RANGES: Final = ENTRIES_MAX
"""Default maximum number of ranges in an answer."""

RANGES_MAX: Final = 10_000

PIECE_BYTES: Final = 1024 * 1024
"""Maximum size of what is in memory for one reader of an object."""

OCTETS: Final = "application/octet-stream"

SCHEMA_BASE64: Final = base64.b64encode(SCHEMA_MESSAGE).decode()

Format = Literal["arrow", "kafka", "parquet", "arrow-sealed", "kafka-sealed", "parquet-sealed"]


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
            " kafka: one or more record batches of Kafka's format 2 as their producers sent them,"
            " whose offsets are dense from base_offset on, whatever their headers say;"
            " parquet: one row group of a Parquet file with a column offset;"
            " arrow-sealed, kafka-sealed, parquet-sealed: the same, encrypted with data_key"
        ),
    ]
    url: Annotated[
        str,
        Meta(
            description="where to read it, with exactly the header Range: bytes=start-(end - 1); of"
            " the Parquet file for parquet, which may be read in any ranges; a data: URL (RFC 2397)"
            " with the bytes themselves if they are in no bucket yet; a path of this gateway, read"
            " with the same credentials, where the store cannot sign URLs"
        ),
    ]
    start: Annotated[int, Meta(description="first byte of the range in what the URL gives")]
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
    joint_url: Annotated[
        str | None,
        Meta(
            description="for this range and those that follow it directly, in one request with"
            " exactly the header Range: bytes=start-(joint_end - 1)"
        ),
    ] = None
    joint_end: Annotated[int | None, Meta(description="byte behind the last of these ranges")] = (
        None
    )
    data_key: Annotated[
        int | None,
        Meta(description="number of the key that opens the range; only if it is sealed"),
    ] = None


class StoredRanges(msgspec.Struct):
    segments: list[StoredRange]
    arrow_schema_base64: Annotated[str, Meta(description="message to put in front of arrow ranges")]
    next_offset: Annotated[int, Meta(description="where to ask on; nothing before it is left out")]
    high_watermark: int
    log_start_offset: int


class SegmentRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def locate_records(self, request: Request) -> Response:
        """Return where records are stored, with URLs to read them past this gateway."""
        query = Query(request)
        offset = query.integer("offset", 0, OFFSET_MAX)
        end = query.integer("end", 0, OFFSET_MAX)
        limit = query.integer("limit", 1, RANGES_MAX) or RANGES
        place = request.path_params["topic"], partition_of(request)
        size = AnswerSize.of(self._gateway.settings)
        caller = caller_of(request.scope)
        is_limited = caller.quotas.fetch_bytes_max(caller) is not None
        while True:
            located = await self._gateway.locate(*place, offset, end, limit)
            addresses = Addresses(
                self._gateway,
                located.head,
                quote(request.scope["path"]),
                not caller.is_anyone,
                is_limited,
            )
            body = await stored_ranges(addresses, located)
            if limit == 1 or size.holds(len(body)):
                await caller.quotas.admit_fetch(caller, len(body))
                return Response(body, media_type=JSON)
            limit //= 2

    async def read_range(self, request: Request) -> Response:
        """Return bytes of a slice, or of a compacted object, if this partition has it."""
        Query(request)
        offset, object_id = parse_name(request.path_params["range"])
        place = request.path_params["topic"], partition_of(request)
        # Only the index says what belongs to the partition; the path is a hint where to look.
        located = await self._gateway.locate(*place, offset, offset + 1, 1)
        stored = _Stored(self._gateway, located.head, _entry(located, object_id))
        wanted = parse_range(request.headers.get("range"), stored.size_bytes)
        start, end = wanted or (0, stored.size_bytes)
        if not AnswerSize.of(self._gateway.settings).holds(end - start):
            raise NotSupported(f"{end - start} bytes are too many for one answer here; use Range")
        caller = caller_of(request.scope)
        if not is_head(request):
            await caller.quotas.admit_fetch(caller, end - start)
        headers = {"accept-ranges": "bytes", "content-length": str(end - start)}
        if wanted is not None:
            headers["content-range"] = f"bytes {start}-{end - 1}/{stored.size_bytes}"
        piece_bytes = max(1, shares_of(request).take(PIECE_BYTES).size_bytes)
        pieces = stored.pieces((start, end), piece_bytes)
        # The first is read here, so that an error is one.
        first = b"" if is_head(request) else await anext(pieces)
        return StreamingResponse(
            _all(first, pieces, is_head(request)),
            HTTPStatus.OK if wanted is None else HTTPStatus.PARTIAL_CONTENT,
            headers,
            OCTETS,
        )


def _entry(located: Located, object_id: bytes) -> Entry:
    """Return the entry that was located, if it is still in this object."""
    for entry in located.entries:
        if entry.object_id == object_id and not entry.is_in_table:
            return entry
    raise InvalidRequest("these records were moved or deleted; locate them again")


class _Stored:
    """What a URL of this gateway gives: a slice, or a whole object if one partition has it."""

    def __init__(self, gateway: Gateway, head: Head, entry: Entry) -> None:
        self._zones = gateway.zones
        self._key = key_of(head, entry)
        self._names = read_names(head, entry.zones, entry.partition)
        self._front = 0 if entry.segment is not None else entry.position
        self.size_bytes = entry.length if entry.segment is None else entry.segment.size_bytes

    async def pieces(self, span: Range, piece_bytes: int) -> AsyncIterator[bytes]:
        start, end = span
        for position in range(start, end, piece_bytes):
            piece = (self._front + position, self._front + min(position + piece_bytes, end))
            [found] = await self._zones.get_ranges(self._key, [piece], self._names)
            yield found


async def _all(first: bytes, others: AsyncIterator[bytes], is_head: bool) -> AsyncIterator[bytes]:
    if is_head:
        return
    yield first
    async for piece in others:
        yield piece


async def stored_ranges(addresses: Addresses, located: Located) -> bytes:
    """Return the JSON of what was located, with URLs."""
    head, local = located.head, located.local
    found = iter(await addresses.of([e for e in located.entries if not e.is_in_table]))
    ranges = [
        _range(entry, next(found))
        if not entry.is_in_table
        # The URL holds only this range.
        else _range(entry, Address(_data_url(located.in_table[entry.object_id, entry.position]), 0))
        for entry in located.entries
    ]
    return msgspec.json.encode(
        StoredRanges(
            segments=ranges,
            arrow_schema_base64=SCHEMA_BASE64,
            next_offset=located.next_offset,
            high_watermark=head.next_offsets[local],
            log_start_offset=head.log_starts[local],
        )
    )


def _data_url(data: Data) -> str:
    return f"data:{OCTETS};base64,{base64.b64encode(data).decode()}"


def _range(entry: Entry, address: Address) -> StoredRange:
    found = StoredRange(
        base_offset=entry.start_offset,
        end_offset=entry.end_offset,
        count=entry.record_count,
        format=_format(entry),
        url=address.url,
        start=address.position,
        end=address.position + entry.length,
        crc32c=entry.crc,
        min_timestamp=entry.min_ms,
        max_timestamp=entry.max_ms,
        joint_url=address.joint_url,
        joint_end=address.joint_end,
    )
    if entry.segment is not None:
        found.row_group = entry.row_group
        found.footer_start = entry.segment.size_bytes - entry.segment.footer_bytes
        found.footer_end = entry.segment.size_bytes
        found.footer_crc32c = entry.segment.footer_crc
    if entry.data_key:
        found.data_key = entry.data_key
    return found


def _format(entry: Entry) -> Format:
    if entry.is_row_group:
        return "parquet-sealed" if entry.data_key else "parquet"
    if entry.is_kafka:
        return "kafka-sealed" if entry.data_key else "kafka"
    return "arrow-sealed" if entry.data_key else "arrow"
