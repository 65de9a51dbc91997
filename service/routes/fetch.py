"""`GET …/records` and `POST /v1/fetch`: from offsets to bodies."""

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from functools import partial
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from service.http.access_log import request_id_of
from service.http.answer_size import NEEDS_SCHEMAS, AnswerSize, Body, body_of, with_rest
from service.http.bodies.arrow_fetch import arrow_body
from service.http.bodies.fields import OFFSET_MAX
from service.http.bodies.json_fetch import ValueFormat, ndjson_pieces
from service.http.bodies.schema_fetch import HasSchemas
from service.http.deadlines import wait_s
from service.http.json_requests import read_json
from service.http.methods import is_head
from service.http.metrics import Metrics
from service.http.records_response import RecordsResponse, shares_of
from service.http.requests import (
    ARROW,
    JSON,
    NDJSON,
    SSE,
    Query,
    accepted,
    parse_event_id,
    partition_of,
)
from service.log.gateway import FetchResult, Gateway, Position, Wait
from service.process.limits.outgoing import RequestShares
from service.registry.edge.late import CallersSchemas, LateSchemas, with_schemas
from service.routes.multi_fetch import FetchBody, MultiFetch, fetched_json, fetched_rest
from service.routes.tail import TailResponse, limits_of, paced, tail
from service.security.caller import Caller, caller_of
from service.security.quotas.open_calls import OpenCall
from storage.errors import InvalidRequest
from storage.formats.partitions import PartitionNumber
from storage.reading.reader import Budget

_FETCH_BODY: Final = msgspec.json.Decoder(FetchBody)


class FetchRoutes:
    def __init__(self, gateway: Gateway, metrics: Metrics, schemas: LateSchemas) -> None:
        self._gateway = gateway
        self._metrics = metrics
        self._schemas = schemas
        self._several = MultiFetch(gateway, metrics, schemas)

    async def one(self, request: Request) -> Response:
        """Fetch records of one partition, or tail it as server-sent events."""
        media_type = accepted(request.headers, (JSON, NDJSON, ARROW, SSE))
        query = Query(request)
        topic, partition = request.path_params["topic"], partition_of(request)
        if media_type == SSE:
            return await self._tail(request, query, topic, partition)
        caller = caller_of(request.scope)
        budget, wait = self._budget(query, caller), self._wait(request, query)
        value_format, form = query.value_format(), query.offsets_form()
        shares = shares_of(request)
        with caller.quotas.open_wait(caller, wait.max_wait_s):
            result = await self._gateway.fetch(
                topic, partition, query.position(), budget, wait, shares
            )
        if wait.max_wait_s:
            await caller.renew()

        async def arrow(bytes_max: int) -> Body:
            return await arrow_body(result.fetched, bytes_max, form)

        if media_type == ARROW:
            encode: Callable[[int], Awaitable[Body]] = arrow
        else:
            encode = self._text(result, media_type, value_format, None)
        asked = (media_type, value_format, form)
        found = await self._found(result, encode, media_type, asked)
        if found.has_schemas:
            # Readers with the same rights share what they may see.
            encode = self._text(result, media_type, value_format, self._schemas.of(caller))
            found = await self._found(result, encode, media_type, (*asked, caller.rights))
        return await self._answer(result, found, shares, media_type, caller)

    def _text(
        self,
        result: FetchResult,
        media_type: str,
        value_format: ValueFormat,
        schemas: CallersSchemas | None,
    ) -> Callable[[int], Awaitable[Body]]:
        """Return what encodes records as text; without `schemas`, only those that name none."""

        def encoded(bytes_max: int) -> Body:
            batches = result.fetched.batches(bytes_max)
            if media_type == NDJSON:
                pieces = ndjson_pieces(batches, value_format=value_format, schemas=schemas)
            else:
                pieces = fetched_json(result, batches, value_format, schemas)
            return body_of(result, batches, pieces)

        async def text(bytes_max: int) -> Body:
            size_bytes = min(bytes_max, result.fetched.memory_bytes)
            try:
                return await with_schemas(
                    self._gateway.heavy_work, size_bytes, lambda: encoded(bytes_max), schemas
                )
            except HasSchemas:
                return NEEDS_SCHEMAS

        return text

    def _budget(self, query: Query, caller: Caller) -> Budget:
        settings = self._gateway.settings
        bytes_max = settings.fetch_bytes_max
        affordable = caller.quotas.fetch_bytes_max(caller)
        if affordable is not None:
            bytes_max = min(bytes_max, affordable)
        return Budget(
            records_max=query.up_to(
                "max_records", settings.fetch_records_default, settings.fetch_records_max
            ),
            bytes_max=query.up_to(
                "max_bytes", min(settings.fetch_bytes_default, bytes_max), bytes_max
            ),
        )

    def _wait(self, request: Request, query: Query) -> Wait:
        longest = self._gateway.settings.wait_ms_max
        wanted_s = (query.integer("max_wait_ms", 0, longest) or 0) / 1000
        return Wait(
            min_bytes=query.up_to("min_bytes", 1, OFFSET_MAX, low=0),
            max_wait_s=wait_s(request, wanted_s, self._gateway.world.monotonic_s()),
        )

    async def _found(
        self,
        result: FetchResult,
        encode: Callable[[int], Awaitable[Body]],
        media_type: str,
        form: Hashable,
    ) -> Body:
        share = result.share if result.answer is None else result.answer.share
        size = AnswerSize.of(self._gateway.settings)
        fits = partial(size.fitted, encode, share.size_bytes, result)
        if result.answer is None:
            return await fits()
        found = await result.answer.body(form, fits)
        if media_type == JSON and not found.has_schemas:
            # The records are shared with other readers; the end of the log must be current.
            return with_rest(found, fetched_rest(result, found.next_offset))
        return found

    async def _answer(
        self,
        result: FetchResult,
        found: Body,
        shares: RequestShares,
        media_type: str,
        caller: Caller,
    ) -> Response:
        if found.record_count:
            await caller.quotas.admit_fetch(caller, found.body_bytes)
        self._metrics.fetched(found.record_count, found.body_bytes)
        headers = _headers(result, found.next_offset)
        return RecordsResponse(found.pieces, media_type, shares, headers)

    async def _tail(
        self, request: Request, query: Query, topic: str, partition: PartitionNumber
    ) -> Response:
        position = query.position()
        last = request.headers.get("last-event-id")
        if last is not None:
            position = Position(offset=parse_event_id(last) + 1)
        caller = caller_of(request.scope)
        budget = self._budget(query, caller)
        stop_after = query.integer("max_records", 1, OFFSET_MAX)
        value_format = query.value_format()
        limits = limits_of(request, self._gateway)
        # The first read happens here, so that a bad request is refused by its status.
        shares = shares_of(request)
        first = await self._gateway.fetch(topic, partition, position, budget, Wait(), shares)
        events = tail(
            self._gateway,
            first,
            shares,
            budget,
            value_format,
            stop_after,
            limits,
            self._metrics.fetched,
            caller,
            self._schemas,
        )
        if is_head(request):
            return TailResponse(_nothing(), OpenCall())
        paced_events = paced(self._gateway, caller, limits, events)
        return TailResponse(paced_events, caller.quotas.open_tail(caller))

    async def many(self, request: Request) -> Response:
        """Fetch from several partitions with one wait and one budget of bytes."""
        Query(request)
        body = await read_json(request, self._gateway, _FETCH_BODY)
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
        wanted_s = wait_s(request, body.max_wait_ms / 1000, self._gateway.world.monotonic_s())
        body.max_wait_ms = int(wanted_s * 1000)
        shares = shares_of(request)
        caller = caller_of(request.scope)
        items = await self._several.fetch(body, request_id_of(request), shares, caller)
        return RecordsResponse([b'{"partitions":', *items, b"}"], JSON, shares)


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield


def _headers(result: FetchResult, next_offset: int) -> dict[str, str]:
    return {
        "riacho-next-offset": str(next_offset),
        "riacho-high-watermark": str(result.high_watermark),
        "riacho-log-start-offset": str(result.log_start_offset),
    }
