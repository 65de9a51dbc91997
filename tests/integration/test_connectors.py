"""Connectors beside a real gateway: started with the first one, killed at work."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway import GatewayProcess
from tests.integration.processes import embedded

pytestmark = pytest.mark.slow

PATIENCE_S = 50.0
LINES = 3_000
FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"


def eventually(condition: Callable[[], bool], what: str) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_s, what
        time.sleep(0.05)


def runners_of(gateway: GatewayProcess) -> list[int]:
    """Return the processes that run connectors beside the gateway."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            command = (folder / "cmdline").read_bytes()
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except (OSError, IndexError):
            continue
        if b"service.connect.running" in command and int(parent) == gateway.process.pid:
            found.append(int(folder.name))
    return found


def lines_in(gateway: GatewayProcess, topic: str) -> list[str]:
    lines: list[str] = []
    while True:
        at = f"{gateway.url}/v1/topics/{topic}/partitions/0/records"
        answer = httpx.get(at, params={"offset": len(lines)}, timeout=PATIENCE_S)
        if answer.status_code == 404:
            return []
        found: dict[str, Any] = answer.raise_for_status().json()
        if not found["records"]:
            return lines
        lines += [record["value"] for record in found["records"]]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_every_line_is_in_the_log_once_though_the_runner_is_killed(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    source = files / "in.txt"
    source.write_text("".join(f"line {n}\n" for n in range(LINES // 2)))
    env = {"RIACHO_CONNECT_FILES": str(files), "RIACHO_LOG_LEVEL": "info"}
    config = {
        "connector.class": FILE_SOURCE,
        "topic": "lines",
        "file": "in.txt",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    }
    with embedded(tmp_path).start(env=env) as gateway:
        assert runners_of(gateway) == []
        made = httpx.put(f"{gateway.url}/connectors/lines/config", json=config, timeout=PATIENCE_S)
        assert made.status_code == 201, made.text
        eventually(lambda: bool(lines_in(gateway, "lines")), gateway.log.read_text())
        with source.open("a") as more:
            more.writelines(f"line {n}\n" for n in range(LINES // 2, LINES))
        [first] = runners_of(gateway)
        os.kill(first, signal.SIGKILL)
        eventually(lambda: len(lines_in(gateway, "lines")) >= LINES, gateway.log.read_text())
        assert lines_in(gateway, "lines") == [f"line {n}" for n in range(LINES)]
        status = httpx.get(f"{gateway.url}/connectors/lines/status", timeout=PATIENCE_S).json()
        assert status["tasks"][0]["state"] == "RUNNING", status
        [last] = runners_of(gateway)
    eventually(lambda: not Path(f"/proc/{last}").exists(), "it outlives its gateway")
