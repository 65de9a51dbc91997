"""Tailing a partition as server-sent events.

id: 41                                   an offset: `Last-Event-ID: 41` resumes at 42
data: {"offset": 41, ...}

event: heartbeat                         nothing came for a while; not resumable, no id
data: {"next_offset": 42, "high_watermark": 42}

event: error                             the stream ends; the problem document says why
data: {"code": ...}
"""

from collections.abc import AsyncIterator

import msgspec

from service import problems
from service.fetch_bodies import encode_each
from service.gateway import FetchResult, Gateway, Position, Wait
from service.requests import ValueFormat
from storage.errors import RiachoError
from storage.reader import Budget


async def tail(
    gateway: Gateway,
    first: FetchResult,
    budget: Budget,
    value_format: ValueFormat,
    stop_after: int | None,
) -> AsyncIterator[bytes]:
    """Yield events from `first` on, for ever, or until `stop_after` records were sent."""
    left = stop_after
    topic, partition = first.topic.name, first.partition
    result = first
    del first
    wait = Wait(max_wait_s=gateway.settings.sse_heartbeat_s)
    # Something at once, so that the client knows it is connected.
    yield b": tailing\n\n"
    while not gateway.draining.is_set():
        batches = result.fetched.batches(result.share.size_bytes)
        # Behind the last record there may be offsets that compaction emptied.
        offset = result.fetched.end_of(batches)
        events = [
            b"id: %d\ndata: %b\n\n" % (number, data)
            for number, data in encode_each(batches, value_format=value_format)
        ]
        if left is not None:
            events = events[:left]
            left -= len(events)
        if events:
            yield b"".join(events)
        else:
            yield _event(
                "heartbeat", {"next_offset": offset, "high_watermark": result.high_watermark}
            )
        if left == 0:
            return
        # Sent: what waits for more must not keep what there was.
        del result, batches, events
        try:
            result = await gateway.fetch(topic, partition, Position(offset=offset), budget, wait)
        except RiachoError as error:
            yield _event("error", problems.document(error, ""))
            return


def _event(name: str, data: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))
