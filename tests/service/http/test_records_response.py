"""How an answer with records is sent: in pieces of limited size, without copies."""

from typing import Any

import pytest

from service.http.records_response import PIECE_BYTES, RecordsResponse
from service.process.limits.outgoing import RequestShares, Shares

pytestmark = pytest.mark.anyio


def no_shares() -> RequestShares:
    return RequestShares(Shares(1 << 30))


async def sent(response: RecordsResponse) -> list[Any]:
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        raise AssertionError("nobody asks")

    await response({"type": "http", "method": "GET"}, receive, send)
    return messages


async def test_a_large_answer_is_sent_in_pieces() -> None:
    large = bytes(range(256)) * (2 * PIECE_BYTES // 256) + b"more"
    pieces = [b"schema", large, memoryview(b"the end")]

    start, *bodies = await sent(RecordsResponse(pieces, "text/plain", no_shares()))

    assert (b"content-length", b"%d" % (len(large) + 13)) in start["headers"]
    assert b"".join(each["body"] for each in bodies) == b"schema" + large + b"the end"
    assert max(len(each["body"]) for each in bodies) == PIECE_BYTES
    assert [each["more_body"] for each in bodies] == [True] * (len(bodies) - 1) + [False]
    views = [each["body"].obj for each in bodies if len(each["body"]) == PIECE_BYTES]
    assert all(view is large for view in views)
    assert views


async def test_a_small_answer_is_sent_at_once() -> None:
    pieces = [b"a", memoryview(b"b"), bytes(PIECE_BYTES - 2)]

    start, body = await sent(RecordsResponse(pieces, "text/plain", no_shares()))

    assert (b"content-length", b"%d" % PIECE_BYTES) in start["headers"]
    assert body["body"] == b"ab" + bytes(PIECE_BYTES - 2)


async def test_small_pieces_are_sent_together() -> None:
    pieces = [b"%07d" % number for number in range(100_000)]

    _, *bodies = await sent(RecordsResponse(pieces, "text/plain", no_shares()))

    assert b"".join(each["body"] for each in bodies) == b"".join(pieces)
    assert len(bodies) < 10
    assert max(len(each["body"]) for each in bodies) <= PIECE_BYTES


async def test_nothing_is_an_answer_too() -> None:
    start, body = await sent(RecordsResponse([], "text/plain", no_shares()))

    assert (b"content-length", b"0") in start["headers"]
    assert body["body"] == b""


def test_a_response_holds_a_share_of_the_bytes_it_sends() -> None:
    shares = Shares(1 << 30)

    with RequestShares(shares) as owned:
        owned.take(100)
        owned.take(100)
        RecordsResponse([b"ab", b"cd"], "text/plain", owned)

        assert shares.held_bytes == 4

    assert shares.held_bytes == 0
