"""A real HTTP server in a thread of this process, on a free port, that answers as a test says."""

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class LocalServer:
    url: str
    port: int
    asked: list[Asked]
    answer: Callable[[Asked], Answer]


@contextmanager
def local_server(tls: ssl.SSLContext | None = None) -> Iterator[LocalServer]:
    """Serve until the block ends. `answer` may be replaced at any time."""
    state = LocalServer("", 0, [], lambda _: Answer())

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): text for name, text in self.headers.items()}
            asked = Asked(self.command, self.path, headers, body)
            state.asked.append(asked)
            answer = state.answer(asked)
            self.send_response(answer.status)
            for name, text in answer.headers.items():
                self.send_header(name, text)
            if answer.status != 304:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Clients that hang up are part of some tests."""

    with Server(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        state.port = server.server_address[1]
        state.url = f"http{'s' if tls else ''}://127.0.0.1:{state.port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
