"""A Java server in its own process group, and a Kafka of a single KRaft node."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from benchmarks.peers.maven import java, kafka_libs
from benchmarks.peers.peer import SYNCED
from tests.gateway import free_port

START_S_MAX: Final = 60.0
CLUSTER: Final = "cmlhY2hvLWJlbmNobWFyaw"
"""Sixteen bytes in base64, as Kafka wants the id of a cluster."""
MESSAGE_BYTES_MAX: Final = 16_000_000
"""Beyond what Kafka ships with (1 MB), so that batches of 10,000 records fit in one."""
JAVA_OPTIONS: Final = (
    *("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Djava.awt.headless=true",
)
"""Those of Kafka's own start script."""


@dataclass(frozen=True)
class JavaServer:
    process: subprocess.Popen[bytes]
    log: Path
    port: int

    @classmethod
    def start(cls, log: Path, port: int, libs: Path, arguments: Sequence[str]) -> Self:
        """Run a main class with `arguments`, and return when it listens on `port`."""
        with log.open("ab") as sink:
            process = subprocess.Popen(
                [java(), *JAVA_OPTIONS, "-cp", f"{libs}/*", *arguments],
                stdout=sink,
                stderr=sink,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        server = cls(process, log, port)
        try:
            server._wait_until_it_listens()
        except BaseException:
            server.kill()
            raise
        return server

    def _wait_until_it_listens(self) -> None:
        give_up_s = time.monotonic() + START_S_MAX
        while time.monotonic() < give_up_s and self.process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.05)
        raise RuntimeError(f"{self.process.args!r} did not start:\n{self.log.read_text()[-3000:]}")

    def kill(self) -> None:
        """Kill it at once: its data is not needed."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def start_kafka(folder: Path, durability: str, libs: Path | None = None) -> JavaServer:
    """Start Kafka on an empty folder, and return when it listens; `libs` are its jars."""
    libs = libs or kafka_libs()
    port, controller = free_port(), free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "kafka"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
        "message.max.bytes": str(MESSAGE_BYTES_MAX),
    }
    if durability == SYNCED:
        settings["log.flush.interval.messages"] = "1"
    file = folder / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    tool = [java(), "-cp", f"{libs}/*", "kafka.tools.StorageTool", "format"]
    subprocess.run(
        [*tool, "--cluster-id", CLUSTER, "--config", str(file)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=START_S_MAX,
        check=True,
    )
    return JavaServer.start(folder / "kafka.log", port, libs, ["kafka.Kafka", str(file)])
