"""A real gateway in a process of its own, for tests that must not share memory with it.

    with start_gateway(tmp_path) as gateway:
        httpx.get(gateway.url + "/v1/topics")

Data lives under `tmp_path`, so a gateway started again with the same path and port continues
where the last one stopped.
"""

import contextlib
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import httpx

PORTS = (15_000, 32_000)
CHANCE = random.SystemRandom()
"""Not the usual one: Hypothesis makes it the same in every worker."""

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 40.0


@dataclass
class GatewayProcess:
    url: str
    process: subprocess.Popen[bytes]
    log: Path
    port: int = field(default=0)
    tls: ssl.SSLContext | None = None
    """With what a client reaches it, if it serves TLS."""

    def stop(self) -> None:
        """Ask it to finish what it has begun, and wait until it has."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            # The group, because with workers or --reload there are more processes.
            os.killpg(self.process.pid, number)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise AssertionError(f"the gateway did not stop:\n{self.log.read_text()}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


def free_port() -> int:
    """Return a port that nobody listens on, for now.

    It is below those that the system gives to outgoing connections: one of them would take it
    before a gateway that is started, or started again, listens there.
    """
    while True:
        port = CHANCE.randrange(*PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def start_gateway(
    tmp_path: Path,
    *args: str,
    env: Mapping[str, str] | None = None,
    port: int | None = None,
    module: str = "riacho",
    tls: ssl.SSLContext | None = None,
) -> GatewayProcess:
    """Start `riacho serve` with its data under `tmp_path`; return when it is ready.

    `module` may be another one that takes the same arguments. With `tls`, what a client trusts, the
    arguments say that it serves TLS.
    """
    port = port or free_port()
    log = tmp_path / f"gateway-{port}.log"
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("RIACHO_")}
    command = [sys.executable, "-m", module, "serve", "--port", str(port)]
    with log.open("ab") as sink:
        process = subprocess.Popen(
            [*command, "--data", str(tmp_path / "data"), *args],
            stdout=sink,
            stderr=sink,
            stdin=subprocess.DEVNULL,
            # The default port for Kafka's clients is one for all tests on this machine.
            env=inherited | {"RIACHO_KAFKA": "off"} | dict(env or {}),
            cwd=Path(__file__).parent.parent,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}" if tls is None else f"https://localhost:{port}"
    gateway = GatewayProcess(url, process, log, port, tls)
    try:
        _wait_until_ready(gateway)
    except BaseException:
        gateway.kill()
        raise
    return gateway


def _wait_until_ready(gateway: GatewayProcess) -> None:
    give_up_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < give_up_s:
        if gateway.process.poll() is not None:
            break
        with contextlib.suppress(httpx.TransportError):
            answer = httpx.get(gateway.url + "/ready", timeout=2, verify=gateway.tls or False)
            if answer.status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError(f"the gateway did not start:\n{gateway.log.read_text()}")
