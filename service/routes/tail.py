"""Tailing a partition as server-sent events.

id: 41                                   an offset: `Last-Event-ID: 41` resumes at 42
data: {"offset": 41, ...}

event: heartbeat                         nothing came for a while; not resumable, no id
data: {"next_offset": 42, "high_watermark": 42}

retry: 100                               first, where a host ends streams early: come back soon

event: error                             the stream ends; the problem document says why
data: {"code": ...}
"""

import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.http import problems
from service.http.answer_size import AnswerSize
from service.http.bodies.json_fetch import ValueFormat, encode_each
from service.http.deadlines import wait_until_s
from service.http.requests import SSE
from service.log.gateway import FetchResult, Gateway, Position, Wait
from service.log.waiting import LongPoll
from service.process.limits.outgoing import RequestShares
from service.registry.edge.late import CallersSchemas, LateSchemas
from service.security.caller import Caller
from service.security.quotas.open_calls import OpenCall
from storage.errors import QuotaExceeded, RiachoError
from storage.reading.fetched import Batches
from storage.reading.reader import Budget

RETRY_MS: Final = 100
"""Where a host ends tails early, the reader should reconnect at once."""

THROTTLED_S_MAX: Final = 1.0
"""Longest wait before a tail asks again whether it may go on; it may be told to stop meanwhile."""

ROOM_BYTES: Final = 8 * 1024
"""Bytes reserved in an answer for everything besides its events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a tail ends early: its reader continues from the last id."""

    poll: LongPoll
    """Over all its waits."""
    size: AnswerSize
    """If it is limited, the tail ends with its first records."""


def limits_of(request: Request, gateway: Gateway) -> Limits:
    until_s = wait_until_s(request)
    return Limits(
        poll=LongPoll(
            math.inf if until_s is None else until_s, gateway.world.monotonic_s, gateway.draining
        ),
        size=AnswerSize.of(gateway.settings),
    )


async def tail(
    gateway: Gateway,
    first: FetchResult,
    shares: RequestShares,
    budget: Budget,
    value_format: ValueFormat,
    stop_after: int | None,
    limits: Limits,
    count: Callable[[int, int], None],
    caller: Caller,
    schemas: LateSchemas,
) -> AsyncGenerator[bytes, None]:
    """Yield events from `first` on, forever, or until `stop_after` records or `limits`.

    Calls `count` with the records and bytes of each piece that holds records.
    """
    left, size = stop_after, limits.size.without(ROOM_BYTES)
    topic, partition = first.topic.name, first.partition
    result = first
    del first
    # Send something at once, so that the client knows it is connected.
    yield b"retry: %d\n: tailing\n\n" % RETRY_MS if size.is_limited else b": tailing\n\n"
    while not gateway.draining.is_set():
        batches = result.fetched.batches(result.share.size_bytes)
        # Compaction may have removed records after the last one.
        offset = result.fetched.end_of(batches)
        found = schemas.of(caller)
        events = _events(batches, value_format, found)
        while await found.look_up():
            events = _events(batches, value_format, found)
        if left is not None:
            events = events[:left]
            left -= len(events)
        if size.is_limited and events:
            # Send what is there now and fits; the next call continues from the last id.
            fitting = _fitting(events, size.bytes_max)
            if not fitting:
                error = size.too_large(result, len(events[0]))
                yield _event("error", problems.document(error, "", caller))
            data = b"".join(fitting)
            count(len(fitting), len(data))
            yield data
            return
        has_time = limits.poll.left_s > 0
        if events:
            data = b"".join(events)
            count(len(events), len(data))
            yield data
            del data
        elif not size.is_limited or not has_time:
            yield _event(
                "heartbeat", {"next_offset": offset, "high_watermark": result.high_watermark}
            )
        if left == 0 or not has_time:
            return
        # Already sent: keep nothing while waiting for more.
        shares.release_all()
        del result, batches, events
        wait = Wait(max_wait_s=min(gateway.settings.sse_heartbeat_s, limits.poll.left_s))
        try:
            result = await gateway.fetch(
                topic, partition, Position(offset=offset), budget, wait, shares
            )
            # Its credential may be revoked, or its right taken away, while it waits.
            await caller.renew()
        except RiachoError as error:
            yield _event("error", problems.document(error, "", caller))
            return


async def paced(
    gateway: Gateway, caller: Caller, limits: Limits, events: AsyncGenerator[bytes, None]
) -> AsyncIterator[bytes]:
    """Yield `events` as fast as the quota of the caller allows; end with an error if time is up."""
    async with aclosing(events):
        async for data in events:
            while True:
                try:
                    await caller.quotas.admit_fetch(caller, len(data))
                    break
                except QuotaExceeded as error:
                    left_s = limits.poll.left_s
                    if left_s <= 0:
                        yield _event("error", problems.document(error, "", caller))
                        return
                    wait_s = error.throttle_ms / 1000
                # A comment, so that the client knows it is connected.
                yield b": throttled\n\n"
                longest_s = min(gateway.settings.sse_heartbeat_s, THROTTLED_S_MAX)
                await gateway.world.sleep(min(wait_s, left_s, longest_s))
            yield data


class TailResponse(StreamingResponse):
    """A tail that counts as open until its reader has left."""

    def __init__(self, events: AsyncIterator[bytes], opened: OpenCall) -> None:
        # Proxies must neither cache nor buffer the stream.
        headers = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}
        super().__init__(events, media_type=SSE, headers=headers)
        self._opened = opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._opened:
            await super().__call__(scope, receive, send)


def _events(batches: Batches, value_format: ValueFormat, schemas: CallersSchemas) -> list[bytes]:
    return [
        b"id: %d\ndata: %b\n\n" % (number, data)
        for number, data in encode_each(batches, value_format=value_format, schemas=schemas)
    ]


def _fitting(events: Sequence[bytes], bytes_max: int) -> list[bytes]:
    """Return the first events, at most `bytes_max` in total."""
    sizes = accumulate(map(len, events))
    return [event for event, size in zip(events, sizes, strict=True) if size <= bytes_max]


def _event(name: str, data: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))
