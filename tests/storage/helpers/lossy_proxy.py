"""A proxy that loses replies, and otherwise misbehaves, exactly where a test says so.

    async with LossyProxy(url) as proxy:
        proxy.faults.append(Fault("PUT", lose_reply=True))
        ...  # The next PUT reaches the server; its reply does not reach the client.

Every request is one connection on either side, so a fault never touches another request.
"""

import asyncio
import re
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

HEAD_BYTES_MAX: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    head: bytes
    body: bytes

    @property
    def line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode()


@dataclass(slots=True)
class Fault:
    """What to do to requests whose head contains `text`, after `skip` of them, `times` times.

    Without an action the request is forwarded: then only `gate` has an effect.
    """

    text: str
    skip: int = 0
    times: int = 1
    lose_reply: bool = False
    """Forward, wait for the reply, and cut the connection instead of passing it on."""
    refuse: bool = False
    """Cut the connection and forward nothing."""
    answer: bytes | None = None
    """Answer this, and forward nothing."""
    answer_after: bytes | None = None
    """Forward, then answer this instead of what the server said."""
    gate: asyncio.Event | None = None
    """Wait for this first."""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a request meets the fault."""

    def takes(self, request: Request) -> bool:
        if self.text.encode() not in request.head or self.times == 0:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True


def answer(status: int, body: str = "", kind: str = "application/xml", headers: str = "") -> bytes:
    """Return an HTTP response for a `Fault`."""
    return (
        f"HTTP/1.1 {status} Injected\r\nContent-Type: {kind}\r\n{headers}"
        f"Content-Length: {len(body.encode())}\r\nConnection: close\r\n\r\n{body}"
    ).encode()


@dataclass
class LossyProxy:
    upstream: str
    faults: list[Fault] = field(default_factory=list)
    seen: list[Request] = field(default_factory=list)
    url: str = ""

    async def __aenter__(self) -> Self:
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=HEAD_BYTES_MAX)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def count(self, text: str) -> int:
        """Return how many requests had `text` in their head."""
        return sum(text.encode() in request.head for request in self.seen)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            request = await _read_request(reader)
            if request is None or not await self._handle(request, writer):
                writer.transport.abort()
        except (ConnectionError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            writer.close()

    async def _handle(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Answer, or return False: then the connection is cut."""
        self.seen.append(request)
        fault = next((each for each in self.faults if each.takes(request)), Fault(""))
        fault.reached.set()
        if fault.gate is not None:
            await fault.gate.wait()
        if fault.refuse:
            return False
        reply = fault.answer or await self._forward(request)
        if fault.lose_reply:
            return False
        writer.write(fault.answer_after or reply)
        await writer.drain()
        return True

    async def _forward(self, request: Request) -> bytes:
        address = urlsplit(self.upstream)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            writer.write(_closing(request.head) + request.body)
            await writer.drain()
            reply = await reader.read()
        finally:
            writer.close()
        head, end, body = reply.partition(b"\r\n\r\n")
        return _closing(head + end) + body


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)^content-length: *(\d+)", head, re.MULTILINE)
        return Request(head, await reader.readexactly(int(length[1]) if length else 0))
    except asyncio.IncompleteReadError:
        return None


def _closing(head: bytes) -> bytes:
    """Return `head` with the header that closes the connection afterwards."""
    kept = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head)
    return kept.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
