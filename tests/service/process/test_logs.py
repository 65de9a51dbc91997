"""Log lines: one for every request, for people or for machines."""

import asyncio
import io
import json

import pytest
from starlette.types import Receive, Scope, Send

from service.http.access_log import AccessLog
from service.http.metrics import Metrics
from service.process.logs import LINES_MAX, AccessLine, AccessLines
from service.world.clock import real_world

pytestmark = pytest.mark.anyio

SCOPE = {
    "type": "http",
    "method": "GET",
    "path": "/v1/topics/t",
    "client": ("127.0.0.1", 5),
    "riacho.route": "/v1/topics/{topic}",
    "headers": [
        (b"referer", b"http://here"),
        (b"user-agent", b"curl"),
        (b"x-request-id", b"mine-1"),
    ],
}


async def answered(status: int, body: bytes, *, as_json: bool) -> tuple[list[dict], str]:
    """Return the messages sent for one request, and the logged text."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if status == 0:
            raise RuntimeError("a mistake of ours")
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})

    stream, sent = io.BytesIO(), []
    lines = AccessLines(stream, as_json=as_json)

    async def send(message: dict) -> None:
        sent.append(message)

    async def receive() -> dict:
        return {"type": "http.request"}

    await AccessLog(app, Metrics(), real_world(), lines)(dict(SCOPE), receive, send)
    lines.flush()
    return sent, stream.getvalue().decode()


async def test_a_request_is_logged_as_one_json_line() -> None:
    sent, text = await answered(200, b"12345", as_json=True)

    line = json.loads(text)
    assert line.pop("at").endswith("Z")
    assert line.pop("took_ms") >= 0
    assert line == {
        "method": "GET",
        "route": "/v1/topics/{topic}",
        "path": "/v1/topics/t",
        "status": 200,
        "bytes": 5,
        "referrer": "http://here",
        "user_agent": "curl",
        "client": "127.0.0.1",
        "request_id": "mine-1",
    }
    assert (b"x-request-id", b"mine-1") in sent[0]["headers"]


async def test_a_request_is_logged_as_text() -> None:
    _, text = await answered(404, b"", as_json=False)

    assert " 404 GET    /v1/topics/t 0B " in text
    assert text.endswith("mine-1\n")


async def test_an_unexpected_error_is_answered_and_logged_as_500() -> None:
    sent, text = await answered(0, b"", as_json=True)

    assert sent[0]["status"] == 500
    assert json.loads(text)["status"] == 500
    assert json.loads(sent[1]["body"])["request_id"] == "mine-1"


def line() -> AccessLine:
    return AccessLine(
        method="GET",
        route="/",
        path="/",
        status=200,
        bytes=0,
        took_ms=0.1,
        referrer="",
        user_agent="",
        client="",
        request_id="",
    )


async def test_lines_are_buffered_up_to_a_limit() -> None:
    stream = io.BytesIO()
    lines = AccessLines(stream, as_json=True)

    for _ in range(LINES_MAX - 1):
        lines.add(line(), 0)
    before = stream.getvalue()
    lines.add(line(), 0)

    assert before == b""
    assert stream.getvalue().count(b"\n") == LINES_MAX


async def test_a_closed_log_stream_raises_no_error() -> None:
    stream = io.BytesIO()
    lines = AccessLines(stream, as_json=True)
    lines.add(line(), 0)
    stream.close()

    lines.flush()
    await asyncio.sleep(0)
