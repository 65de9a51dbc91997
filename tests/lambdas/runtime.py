"""Lambda on this machine: execution environments that are processes of their own.

An environment runs AWS's own runtime client (`awslambdaric`), which asks a server here for the
next event, as it asks Lambda's. Between two events the process is stopped by a signal, so nothing
that it left for later happens before the next call; and it never gets to say goodbye.

    with environment("lambdas.gateway.handler", env) as function:
        function.invoke({...})
"""

import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any, Final

TIMEOUT_S: Final = 120.0
"""Far longer than anything takes: a test that gets there has failed, not a slow machine."""

PAYLOAD_BYTES_MAX: Final = 6_291_556
"""What Lambda takes and returns at most."""

_API: Final = "/2018-06-01/runtime"
_requests: Final = itertools.count(1)


class FunctionError(Exception):
    """The function did not return, but raised."""


@dataclass
class _Call:
    event: bytes
    deadline_ms: int
    answer: "queue.Queue[tuple[str, bytes]]" = field(default_factory=queue.Queue)


class _RuntimeApi(ThreadingHTTPServer):
    """What the runtime client speaks to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.calls: queue.Queue[_Call] = queue.Queue()
        self.open: dict[str, _Call] = {}
        self.is_waiting = threading.Event()
        """Set while the function asks for its next event."""
        self.failed: str | None = None
        """Why the function could not start."""

    def handle_error(self, *_: object) -> None:
        """Say nothing of connections of processes that were killed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _RuntimeApi

    def do_GET(self) -> None:
        assert self.path == f"{_API}/invocation/next", self.path
        self.server.is_waiting.set()
        call = self.server.calls.get()
        self.server.is_waiting.clear()
        request_id = f"{next(_requests):08}-lambda"
        self.server.open[request_id] = call
        self._answer(
            200,
            call.event,
            {
                "Lambda-Runtime-Aws-Request-Id": request_id,
                "Lambda-Runtime-Deadline-Ms": str(call.deadline_ms),
                "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:us-east-1:0:function:f",
                "Lambda-Runtime-Trace-Id": "Root=1-0-0",
            },
        )

    def do_POST(self) -> None:
        body = self._body()
        if self.path == f"{_API}/init/error":
            self.server.failed = body.decode()
            self.server.is_waiting.set()
        else:
            request_id, kind = self.path.removeprefix(f"{_API}/invocation/").split("/")
            self.server.open.pop(request_id).answer.put((kind, body))
        self._answer(202, b"{}", {})

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Environment:
    """One execution environment, cold until its first event."""

    def __init__(self, handler: str, env: Mapping[str, str], *, timeout_s: float = 30.0) -> None:
        self._timeout_s = timeout_s
        self._api = _RuntimeApi()
        self._thread = threading.Thread(target=self._api.serve_forever, daemon=True)
        self._thread.start()
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._is_frozen = False
        self._turn = threading.Lock()
        clean = ("RIACHO_", "AWS_")
        inherited = {name: v for name, v in os.environ.items() if not name.startswith(clean)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "awslambdaric", handler],
            env={
                **inherited,
                "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{self._api.server_address[1]}",
                "AWS_LAMBDA_FUNCTION_NAME": "riacho",
                "AWS_EXECUTION_ENV": "AWS_Lambda_python3.11",
                # Whoever has the events of a test may do everything.
                "RIACHO_SECURITY": "off",
                "RIACHO_INSECURE": "1",
                **env,
            },
            cwd=Path(__file__).parents[2],
            stdout=self._output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )

    def wait_until_ready(self) -> None:
        """Return when the function has been imported and waits for events."""
        give_up_s = time.monotonic() + TIMEOUT_S
        while not self._api.is_waiting.wait(0.2):
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < give_up_s, self.output()
        if self._api.failed is not None:
            raise FunctionError(self._api.failed)

    def invoke(self, event: Mapping[str, Any]) -> Any:
        """Return what the function returns, and stop the clock for it.

        Raises `FunctionError` if it raised, or returned more than Lambda passes on.
        """
        payload = json.dumps(event).encode()
        assert len(payload) <= PAYLOAD_BYTES_MAX, "such a request never reaches a function"
        # An environment has one event at a time.
        with self._turn:
            self.wait_until_ready()
            call = _Call(payload, int((time.time() + self._timeout_s) * 1000))
            self.thaw()
            self._api.calls.put(call)
            kind, body = self._answer_to(call)
            self.freeze()
        if kind != "response":
            raise FunctionError(body.decode())
        if len(body) > PAYLOAD_BYTES_MAX:
            raise FunctionError(f"413: the answer has {len(body)} bytes")
        return json.loads(body)

    def _answer_to(self, call: _Call) -> tuple[str, bytes]:
        give_up_s = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return call.answer.get(timeout=0.2)
            except queue.Empty:
                assert self.process.poll() is None, self.output()
                assert time.monotonic() < give_up_s, self.output()

    def freeze(self) -> None:
        """Let it stand still once it asks for more, as Lambda does."""
        assert self._api.is_waiting.wait(TIMEOUT_S), self.output()
        os.kill(self.process.pid, signal.SIGSTOP)
        self._is_frozen = True

    def thaw(self) -> None:
        if self._is_frozen:
            os.kill(self.process.pid, signal.SIGCONT)
            self._is_frozen = False

    def output(self) -> str:
        """Return what it has printed."""
        self._output.seek(0)
        return self._output.read().decode()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._api.shutdown()
        self._api.server_close()
        self._output.close()


@contextlib.contextmanager
def environment(
    handler: str, env: Mapping[str, str], *, timeout_s: float = 30.0
) -> Iterator[Environment]:
    started = Environment(handler, env, timeout_s=timeout_s)
    try:
        yield started
    finally:
        started.kill()


class FreshEnvironments:
    """A function of which no environment is used twice; the next ones start meanwhile."""

    def __init__(self, handler: str, env: Mapping[str, str], ahead: int = 2) -> None:
        self._handler = handler
        self._env = env
        self._ready: queue.SimpleQueue[Environment] = queue.SimpleQueue()
        self.used: set[int] = set()
        """Process ids of those that have answered."""
        for _ in range(ahead):
            self._start()

    def _start(self) -> None:
        self._ready.put(Environment(self._handler, self._env))

    def invoke(self, event: Mapping[str, Any]) -> Any:
        environment = self._ready.get()
        self._start()
        try:
            self.used.add(environment.process.pid)
            return environment.invoke(event)
        finally:
            environment.kill()

    def close(self) -> None:
        while not self._ready.empty():
            self._ready.get().kill()
