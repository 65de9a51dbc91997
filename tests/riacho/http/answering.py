"""A small HTTP server that answers what it is told, and remembers what it was asked."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    status: int
    document: Any = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    at_s: float
    method: str
    path: str
    authorization: str | None


@dataclass
class Answering:
    url: str
    asked: list[Asked]

    def times_s(self, ending: str) -> list[float]:
        """Return when paths with this ending were asked for."""
        return [each.at_s for each in self.asked if each.path.partition("?")[0].endswith(ending)]


@contextmanager
def answering(answer: Callable[[str, int], Answer]) -> Iterator[Answering]:
    """Serve what `answer` returns for a path and how often it was asked for, counted from 1."""
    found = Answering("", [])

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _reply(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", "0")))
            path = self.path.partition("?")[0]
            asked = Asked(time.monotonic(), self.command, path, self.headers.get("authorization"))
            found.asked.append(asked)
            told = answer(path, sum(each.path == path for each in found.asked))
            body = json.dumps(told.document).encode()
            self.send_response(told.status)
            kind = "application/problem+json" if told.status >= 400 else "application/json"
            headers = {"content-type": kind, "content-length": str(len(body)), **told.headers}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _reply  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def throttled(ms: int) -> Answer:
    """Return the answer of a gateway to a caller that has used up its quota."""
    document = {
        "code": "THROTTLING_QUOTA_EXCEEDED",
        "detail": "the quota of User:ana is used up",
        "status": 429,
        "retryable": True,
        "may_have_applied": False,
        "throttle_time_ms": ms,
        "request_id": "abc",
    }
    return Answer(429, document, {"retry-after": str(max(1, -(-ms // 1000)))})
