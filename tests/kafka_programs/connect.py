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
MIRROR: Final = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
DEBEZIUM: Final = "io.debezium.connector.postgresql.PostgresConnector"
EXACTLY_ONCE: Final = {"exactly_once_source_support": "enabled"}
CONVERTER: Final = "org.apache.kafka.connect.storage.StringConverter"


class Connect:
    def __init__(self, url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._url = url
        self._process = process
        self._log = log

    def create(self, name: str, kind: str, **config: str) -> None:
        """Create a connector with one task; `kind` is a class, or the name of a file connector."""
        plugin = kind if "." in kind else PLUGIN.format(name=kind)
        config |= {"connector.class": plugin, "tasks.max": "1"}

        def created() -> bool:
            with contextlib.suppress(httpx.TransportError):
                at = f"{self._url}/connectors/{name}/config"
                # 409 while the workers share out their work.
                return httpx.put(at, json=config, timeout=60).status_code in (200, 201)
            return False

        self.until(created)

    def is_running(self, name: str) -> bool:
        """Return whether all tasks of a connector run, of which there is one at least."""
        with contextlib.suppress(httpx.TransportError):
            got = httpx.get(f"{self._url}/connectors/{name}/status", timeout=60).json()
            states = [task["state"] for task in got.get("tasks", ())]
            return bool(states) and set(states) == {"RUNNING"}
        return False

    def kill(self) -> None:
        """End the worker at once, as a machine that fails."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def until(self, condition: Callable[[], bool]) -> None:
        give_up_s = time.monotonic() + TIMEOUT_S
        while not condition():
            told = self._log.read_text()[-3000:]
            assert self._process.poll() is None, f"Connect ended:\n{told}"
            assert time.monotonic() < give_up_s, f"Connect does not get there:\n{told}"
            time.sleep(0.1)


@contextlib.contextmanager
def connecting(tools: Tools, folder: Path, **more: str) -> Iterator[Connect]:
    """Run a worker, whose settings `more` adds to; underscores stand for dots."""
    port = free_port()
    config = {
        "bootstrap.servers": tools.bootstrap,
        "group.id": "connect",
        "key.converter": CONVERTER,
        "value.converter": CONVERTER,
        "offset.flush.interval.ms": "1000",
        "listeners": f"HTTP://127.0.0.1:{port}",
        "plugin.discovery": "service_load",
        **{name.replace("_", "."): text for name, text in more.items()},
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
    connect = Connect(f"http://127.0.0.1:{port}", process, log)
    try:
        yield connect
    finally:
        if process.poll() is None:
            connect.kill()
