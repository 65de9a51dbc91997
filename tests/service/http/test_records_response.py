"""How an answer of records is sent: in pieces that a reader can keep up with, not copied."""

from typing import Any

import pytest

from service.http.records_response import PIECE_BYTES, RecordsResponse
from service.limits.outgoing import Shares

pytestmark = pytest.mark.anyio


async def sent(response: RecordsResponse) -> list[Any]:
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        raise AssertionError("nobody asks")

    await response({"type": "http", "method": "GET"}, receive, send)
    return messages


async def test_what_is_large_goes_out_piece_by_piece() -> None:
    large = bytes(range(256)) * (2 * PIECE_BYTES // 256) + b"more"
    pieces = [b"schema", large, memoryview(b"the end")]

    start, *bodies = await sent(RecordsResponse(pieces, "text/plain", [Shares(1 << 30).take(9)]))

    assert (b"content-length", b"%d" % (len(large) + 13)) in start["headers"]
    assert b"".join(each["body"] for each in bodies) == b"schema" + large + b"the end"
    assert max(len(each["body"]) for each in bodies) == PIECE_BYTES
    assert [each["more_body"] for each in bodies] == [True] * (len(bodies) - 1) + [False]
    views = [each["body"].obj for each in bodies if len(each["body"]) == PIECE_BYTES]
    assert all(view is large for view in views)
    assert views


async def test_what_is_small_goes_out_at_once() -> None:
    pieces = [b"a", memoryview(b"b"), bytes(PIECE_BYTES - 2)]

    start, body = await sent(RecordsResponse(pieces, "text/plain", []))

    assert (b"content-length", b"%d" % PIECE_BYTES) in start["headers"]
    assert body["body"] == b"ab" + bytes(PIECE_BYTES - 2)


async def test_small_pieces_go_out_together() -> None:
    pieces = [b"%07d" % number for number in range(100_000)]

    _, *bodies = await sent(RecordsResponse(pieces, "text/plain", []))

    assert b"".join(each["body"] for each in bodies) == b"".join(pieces)
    assert len(bodies) < 10
    assert max(len(each["body"]) for each in bodies) <= PIECE_BYTES


async def test_nothing_is_an_answer_too() -> None:
    start, body = await sent(RecordsResponse([], "text/plain", []))

    assert (b"content-length", b"0") in start["headers"]
    assert body["body"] == b""


def test_its_share_is_what_it_sends() -> None:
    shares = Shares(1 << 30)

    response = RecordsResponse([b"ab", b"cd"], "text/plain", [shares.take(100), shares.take(100)])

    assert shares.held_bytes == 4
    del response
    assert shares.held_bytes == 0
