"""A worker of Kafka Connect in distributed mode, which keeps all of its state in topics."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx

from tests.gateway import free_port
from tests.kafka_programs.programs import TIMEOUT_S, Tools

PLUGIN: Final = "org.apache.kafka.connect.file.{name}Connector"
CONVERTER: Final = "org.apache.kafka.connect.storage.StringConverter"


class Connect:
    def __init__(self, url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._url = url
        self._process = process
        self._log = log

    def create(self, name: str, kind: str, **config: str) -> None:
        """Create a connector with one task."""
        config |= {"connector.class": PLUGIN.format(name=kind), "tasks.max": "1"}

        def created() -> bool:
            with contextlib.suppress(httpx.TransportError):
                at = f"{self._url}/connectors/{name}/config"
                # 409 while the workers share out their work.
                return httpx.put(at, json=config, timeout=60).status_code in (200, 201)
            return False

        self.until(created)

    def until(self, condition: Callable[[], bool]) -> None:
        give_up_s = time.monotonic() + TIMEOUT_S
        while not condition():
            told = self._log.read_text()[-3000:]
            assert self._process.poll() is None, f"Connect ended:\n{told}"
            assert time.monotonic() < give_up_s, f"Connect does not get there:\n{told}"
            time.sleep(0.1)


@contextlib.contextmanager
def connecting(tools: Tools, folder: Path) -> Iterator[Connect]:
    """Run a worker."""
    port = free_port()
    config = {
        "bootstrap.servers": tools.bootstrap,
        "group.id": "connect",
        "key.converter": CONVERTER,
        "value.converter": CONVERTER,
        "offset.flush.interval.ms": "1000",
        "listeners": f"HTTP://127.0.0.1:{port}",
        "plugin.discovery": "service_load",
    }
    for what in ("offset", "config", "status"):
        config[f"{what}.storage.topic"] = f"connect-{what}"
        config[f"{what}.storage.replication.factor"] = "1"
    settings = folder / "worker.properties"
    settings.write_text("".join(f"{key}={text}\n" for key, text in config.items()))
    log = folder / "connect.log"
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            tools.command(main, str(settings)),
            stdout=sink,
            stderr=sink,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        yield Connect(f"http://127.0.0.1:{port}", process, log)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
