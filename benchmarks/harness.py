"""What the benchmarks share: a gateway process, a lean HTTP client, and tables.

The client is a bare socket, because an HTTP library in Python would cost more than the gateway
that it measures; both share two cores here.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass
class Server:
    url: str
    port: int
    process: subprocess.Popen[bytes]
    data: Path

    def rss_mib(self) -> float:
        """Return the memory of the process, as the system counts it."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("no VmHWM in /proc")

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def gateway(**env: str) -> Iterator[Server]:
    """Run a separate gateway on an empty directory."""
    with tempfile.TemporaryDirectory(prefix="riacho-bench-") as folder:
        port = free_port()
        process = subprocess.Popen(
            [sys.executable, "-m", "riacho", "serve", "--port", str(port), "--data", folder],
            env={**os.environ, "RIACHO_LOG_LEVEL": "warning", **env},
            stdout=subprocess.DEVNULL,
        )
        try:
            wait_ready(f"http://127.0.0.1:{port}/ready", process)
            yield Server(f"http://127.0.0.1:{port}", port, process, Path(folder))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        if process.poll() is not None:
            raise RuntimeError(f"the gateway ended with {process.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("the gateway does not answer")


class Connection:
    """A keep-alive connection that sends prepared requests and reads whole answers."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(1024 * 1024)

    def call(self, request: bytes) -> tuple[int, bytes]:
        """Return status and body."""
        self._socket.sendall(request)
        data = b""
        while (split := data.find(b"\r\n\r\n")) < 0:
            data += self._receive()
        head = data[:split].lower()
        start = head.index(b"content-length:") + 15
        length = int(head[start:].split(b"\r\n", 1)[0])
        chunks = [data[split + 4 :]]
        left = length - len(chunks[0])
        while left > 0:
            chunk = self._receive()
            chunks.append(chunk)
            left -= len(chunk)
        return int(head[9:12]), b"".join(chunks)

    def _receive(self) -> bytes:
        size = self._socket.recv_into(self._buffer)
        if size == 0:
            raise ConnectionError("the gateway hung up")
        return bytes(memoryview(self._buffer)[:size])

    def close(self) -> None:
        self._socket.close()


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: bench", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def hammer(port: int, requests: list[bytes], connections: int, seconds: float) -> tuple[int, float]:
    """Send `requests` round and round over several connections; return calls and seconds."""
    began = time.perf_counter()

    def work(number: int) -> int:
        connection = Connection(port)
        calls = 0
        while time.perf_counter() - began < seconds:
            status, body = connection.call(requests[(number + calls) % len(requests)])
            assert status in {200, 202}, (status, body[:300])
            calls += 1
        connection.close()
        return calls

    with ThreadPoolExecutor(connections) as pool:
        calls = sum(pool.map(work, range(connections)))
    return calls, time.perf_counter() - began


def show(title: str, columns: list[str], rows: list[list[str]]) -> None:
    table = Table(title=title, title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=110).print(table)
