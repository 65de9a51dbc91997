"""`GET …/records` and `POST /v1/fetch`: from offsets to bodies."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Final

import msgspec
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from service import problems
from service.access_log import request_id_of
from service.fetch_bodies import encode_json, encode_ndjson
from service.gateway import FetchResult, Gateway, Position, Wait
from service.methods import is_head
from service.metrics import Metrics
from service.requests import (
    ARROW,
    JSON,
    NDJSON,
    OFFSET_MAX,
    SSE,
    Query,
    ValueFormat,
    accepted,
    parse_place,
    partition_of,
    read_body,
)
from service.tail import tail
from storage import slices
from storage.errors import InvalidRequest, RiachoError
from storage.reader import Budget, rows_within
from storage.records import RECORD_SCHEMA

PARAMETERS: Final = (
    "offset",
    "at",
    "max_records",
    "max_bytes",
    "min_bytes",
    "max_wait_ms",
    "value_format",
)

BASE_OFFSETS_KEY: Final = b"riacho.base_offsets"
"""Where the schema of an Arrow response says the first offset of each of its batches."""

FETCHES_AT_ONCE: Final = 16
"""Partitions of one `POST /v1/fetch` that are read at the same time. More would read beyond
the budget, fewer would wait for the store more often."""

_Count = Annotated[int, msgspec.Meta(ge=1, le=OFFSET_MAX)]


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """One partition of a `POST /v1/fetch`."""

    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    offset: int | None = None
    at: int | str | None = None
    max_bytes: _Count | None = None

    def position(self) -> Position:
        if self.offset is not None and self.at is not None:
            raise InvalidRequest("give offset or at, not both")
        if self.offset is not None:
            return Position(offset=self.offset)
        return Position(at=parse_place(str("earliest" if self.at is None else self.at)))


class FetchBody(msgspec.Struct, forbid_unknown_fields=True):
    partitions: list[Wanted]
    max_records: _Count | None = None
    max_bytes: _Count | None = None
    min_bytes: Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)] = 1
    max_wait_ms: Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)] = 0
    value_format: ValueFormat = "text"


_FETCH_BODY: Final = msgspec.json.Decoder(FetchBody)


class FetchRoutes:
    def __init__(self, gateway: Gateway, metrics: Metrics) -> None:
        self._gateway = gateway
        self._metrics = metrics

    async def one(self, request: Request) -> Response:
        """Fetch records of one partition, or tail it as server-sent events."""
        media_type = accepted(request.headers, (JSON, NDJSON, ARROW, SSE))
        query = Query(request, PARAMETERS)
        topic, partition = request.path_params["topic"], partition_of(request)
        if media_type == SSE:
            return await self._tail(request, query, topic, partition)
        budget, wait = self._budget(query), self._wait(query)
        value_format = query.value_format()
        result = await self._gateway.fetch(topic, partition, query.position(), budget, wait)
        if media_type == ARROW:
            return self._arrow(result, budget)
        return self._text(result, budget, media_type, value_format)

    def _budget(self, query: Query) -> Budget:
        settings = self._gateway.settings
        return Budget(
            records_max=query.up_to(
                "max_records", settings.fetch_records_default, settings.fetch_records_max
            ),
            bytes_max=query.up_to(
                "max_bytes", settings.fetch_bytes_default, settings.fetch_bytes_max
            ),
        )

    def _wait(self, query: Query) -> Wait:
        longest = self._gateway.settings.wait_ms_max
        return Wait(
            min_bytes=query.up_to("min_bytes", 1, OFFSET_MAX, low=0),
            max_wait_s=(query.integer("max_wait_ms", 0, longest) or 0) / 1000,
        )

    def _text(
        self, result: FetchResult, budget: Budget, media_type: str, value_format: ValueFormat
    ) -> Response:
        batches = result.fetched.batches(budget.bytes_max)
        headers = _headers(result, _end(result, batches))
        if media_type == NDJSON:
            body = encode_ndjson(batches, value_format=value_format)
        else:
            body = _json(result, batches, value_format)
        self._metrics.fetched(sum(batch.num_rows for _, batch in batches), len(body))
        return Response(body, media_type=media_type, headers=headers)

    def _arrow(self, result: FetchResult, budget: Budget) -> Response:
        pieces, bases, end = _arrow_pieces(result, budget)
        metadata = {BASE_OFFSETS_KEY: json.dumps(bases).encode()}
        schema = RECORD_SCHEMA.with_metadata(metadata).serialize().to_pybytes()
        body = b"".join([schema, *pieces, slices.END_OF_STREAM])
        self._metrics.fetched(end - result.fetched.start_offset, len(body))
        return Response(body, media_type=ARROW, headers=_headers(result, end))

    async def _tail(self, request: Request, query: Query, topic: str, partition: int) -> Response:
        position = query.position()
        last = request.headers.get("last-event-id")
        if last is not None:
            if not (last.isascii() and last.isdigit()) or len(last) > 18:
                raise InvalidRequest(f"Last-Event-ID must be an offset, not {last!r}")
            position = Position(offset=int(last) + 1)
        budget = self._budget(query)
        stop_after = query.integer("max_records", 1, OFFSET_MAX)
        value_format = query.value_format()
        # The first look happens here, so that a bad request is refused by its status.
        first = await self._gateway.fetch(topic, partition, position, budget, Wait())
        events = tail(self._gateway, first, budget, value_format, stop_after)
        if is_head(request):
            events = _nothing()
        return StreamingResponse(
            events,
            media_type=SSE,
            # Proxies must neither keep nor gather what they pass on.
            headers={"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"},
        )

    async def many(self, request: Request) -> Response:
        """Fetch from several partitions with one wait and one budget of bytes."""
        Query(request, ())
        body = await self._fetch_body(request)
        settings = self._gateway.settings
        if not 1 <= len(body.partitions) <= settings.fetch_partitions_max:
            raise InvalidRequest(
                f"partitions: ask for 1 to {settings.fetch_partitions_max},"
                f" not {len(body.partitions)}"
            )
        if body.max_wait_ms > settings.wait_ms_max:
            raise InvalidRequest(
                f"max_wait_ms: must be from 0 to {settings.wait_ms_max}, not {body.max_wait_ms}"
            )
        return Response(await self._fetch_many(body, request_id_of(request)), media_type=JSON)

    async def _fetch_body(self, request: Request) -> FetchBody:
        settings = self._gateway.settings
        with self._gateway.admission.hold() as hold:
            data = await read_body(
                request,
                hold,
                request_bytes_max=settings.request_bytes_max,
                decompressed_bytes_max=settings.decompressed_bytes_max,
            )
        try:
            return _FETCH_BODY.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(f"body: {error}") from None

    async def _fetch_many(self, body: FetchBody, request_id: str) -> bytes:
        now_s = self._gateway.world.monotonic_s
        deadline_s = now_s() + body.max_wait_ms / 1000
        positions: list[Position | None] = [None] * len(body.partitions)
        while True:
            results = await self._fetch_each(body, positions)
            good = [result for result in results if isinstance(result, FetchResult)]
            for number, result in enumerate(results):
                if isinstance(result, FetchResult):
                    # "latest" means the end at the time of the call, not of the last look.
                    positions[number] = Position(offset=result.fetched.start_offset)
            left_s = deadline_s - now_s()
            if (
                sum(result.fetched.size_bytes for result in good) >= body.min_bytes
                or len(good) < len(results)
                or left_s <= 0
                or self._gateway.draining.is_set()
            ):
                return self._many_json(body, results, request_id)
            await self._gateway.changed([result.watch for result in good], left_s)

    async def _fetch_each(
        self, body: FetchBody, positions: Sequence[Position | None]
    ) -> list[FetchResult | RiachoError]:
        """Fetch from all partitions, some at a time, until the budget is used up."""
        settings = self._gateway.settings
        left = min(body.max_bytes or settings.fetch_bytes_default, settings.fetch_bytes_max)
        records = min(
            body.max_records or settings.fetch_records_default, settings.fetch_records_max
        )
        results: list[FetchResult | RiachoError] = []
        for start in range(0, len(body.partitions), FETCHES_AT_ONCE):
            wave = await asyncio.gather(
                *(
                    self._fetch_one(
                        wanted,
                        positions[start + number],
                        Budget(
                            records_max=records if left > 0 else 0,
                            bytes_max=min(left, wanted.max_bytes or left),
                        ),
                    )
                    for number, wanted in enumerate(
                        body.partitions[start : start + FETCHES_AT_ONCE]
                    )
                )
            )
            left -= sum(r.fetched.size_bytes for r in wave if isinstance(r, FetchResult))
            results += wave
        return results

    async def _fetch_one(
        self, wanted: Wanted, position: Position | None, budget: Budget
    ) -> FetchResult | RiachoError:
        try:
            return await self._gateway.fetch(
                wanted.topic, wanted.partition, position or wanted.position(), budget, Wait()
            )
        except RiachoError as error:
            return error

    def _many_json(
        self, body: FetchBody, results: Sequence[FetchResult | RiachoError], request_id: str
    ) -> bytes:
        settings = self._gateway.settings
        left = min(body.max_bytes or settings.fetch_bytes_default, settings.fetch_bytes_max)
        records = min(
            body.max_records or settings.fetch_records_default, settings.fetch_records_max
        )
        items: list[bytes] = []
        for wanted, result in zip(body.partitions, results, strict=True):
            place = {"topic": wanted.topic, "partition": wanted.partition}
            if isinstance(result, RiachoError):
                error = problems.document(result, request_id)
                items.append(msgspec.json.encode({**place, "error": error}))
                continue
            batches = (
                result.fetched.batches(min(left, wanted.max_bytes or left)) if left > 0 else []
            )
            batches = _first_records(batches, records)
            for _, batch in batches:
                left -= batch.nbytes
                records -= batch.num_rows
            item = _json(result, batches, body.value_format)
            items.append(msgspec.json.encode(place)[:-1] + b"," + item[1:])
        data = b'{"partitions":[' + b",".join(items) + b"]}"
        self._metrics.fetched(0, len(data))
        return data


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield


def _first_records(
    batches: Sequence[tuple[int, pa.RecordBatch]], count: int
) -> list[tuple[int, pa.RecordBatch]]:
    """Return `batches` cut behind `count` records."""
    cut = []
    for base, batch in batches:
        if count <= 0:
            break
        cut.append((base, batch.slice(0, count)))
        count -= batch.num_rows
    return cut


def _end(result: FetchResult, batches: Sequence[tuple[int, pa.RecordBatch]]) -> int:
    """Return where the next fetch begins after one that returned `batches`."""
    if not batches:
        return result.fetched.start_offset
    base, batch = batches[-1]
    return base + int(batch.num_rows)


def _json(
    result: FetchResult,
    batches: Sequence[tuple[int, pa.RecordBatch]],
    value_format: ValueFormat,
) -> bytes:
    rest = msgspec.json.encode(
        {
            "next_offset": _end(result, batches),
            "high_watermark": result.high_watermark,
            "log_start_offset": result.log_start_offset,
        }
    )
    return b'{"records":' + encode_json(batches, value_format=value_format) + b"," + rest[1:]


def _headers(result: FetchResult, next_offset: int) -> dict[str, str]:
    return {
        "riacho-next-offset": str(next_offset),
        "riacho-high-watermark": str(result.high_watermark),
        "riacho-log-start-offset": str(result.log_start_offset),
    }


def _arrow_pieces(
    result: FetchResult, budget: Budget
) -> tuple[list[bytes | memoryview], list[int], int]:
    """Return slices as they are stored, but for those of which only a part is wanted."""
    fetched = result.fetched
    whole = fetched.size_bytes <= budget.bytes_max
    if whole and all(
        fetched.start_offset <= piece.base_offset and piece.end_offset <= fetched.end_offset
        for piece in fetched.slices[:1] + fetched.slices[-1:]
    ):
        pieces = [piece.data for piece in fetched.slices]
        return pieces, [piece.base_offset for piece in fetched.slices], fetched.end_offset
    pieces, bases = [], []
    end = fetched.start_offset
    for piece in fetched.slices:
        first = max(piece.base_offset, fetched.start_offset)
        last = min(piece.end_offset, fetched.end_offset)
        if whole and (first, last) == (piece.base_offset, piece.end_offset):
            pieces.append(piece.data)
        else:
            batch = piece.records().slice(first - piece.base_offset, last - first)
            if not whole:
                batch = batch.slice(0, max(1, rows_within(batch, budget.bytes_max)))
                last = first + batch.num_rows
            pieces.append(slices.encode_one(batch))
        bases.append(first)
        end = last
    return pieces, bases, end
