"""`localstack/run` gives a gateway on S3 and DynamoDB, and leaves nothing behind."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from storage import dynamodb_failures
from tests.docs.markdown import ROOT, blocks
from tests.gateway import free_port

START_S_MAX = 90


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[str, str, subprocess.Popen[bytes]]]:
    aws, port = free_port(), free_port()
    log = tmp_path / "log"
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("RIACHO_")}
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [str(ROOT / "localstack/run"), "--port", str(port)],
            env={**inherited, "AWS_PORT": str(aws)},
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(START_S_MAX * 10):
            assert process.poll() is None, log.read_text()
            try:
                if httpx.get(url + "/ready", timeout=2).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url, f"http://127.0.0.1:{aws}", process
        assert "FAILED" not in log.read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.aws
@pytest.mark.slow
def test_run_serves_from_s3_and_dynamodb(
    running: tuple[str, str, subprocess.Popen[bytes]],
) -> None:
    url, aws, process = running
    [zone] = httpx.get(url + "/v1/cluster").json()["zones"]
    assert (zone["name"], zone["kind"]) == ("a", "s3")
    httpx.post(url + "/v1/topics", json={"name": "t"}).raise_for_status()
    body = {"records": [{"value": "v"}]}
    httpx.post(url + "/v1/topics/t/records", json=body).raise_for_status()
    records = httpx.get(url + "/v1/topics/t/partitions/0/records").json()["records"]
    assert [record["value"] for record in records] == ["v"]

    process.send_signal(signal.SIGTERM)
    assert process.wait(40) == 0
    for address in (url, aws):
        with pytest.raises(httpx.ConnectError):
            httpx.get(address, timeout=2)


def test_the_policy_names_what_the_errors_ask_for() -> None:
    [policy] = blocks(ROOT / "docs/aws.md", "json")
    statements = json.loads(policy.text)["Statement"]
    allowed = {a for each in statements for a in [*_listed(each["Action"])]}
    source = Path(dynamodb_failures.__file__).read_text() + (ROOT / "storage/s3.py").read_text()
    asked = re.findall(r"(?:s3|dynamodb):[A-Z]\w+", source)
    asked += [f"dynamodb:{name}" for name in re.findall(r"\b(?:\w+Item|Query)\b", source)]
    assert {name for name in asked if name in allowed} == allowed


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
