"""A local AWS: `localstack/run` gives a gateway on one, and leaves nothing behind."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import httpx
import pytest
import yaml

from storage.stores.dynamodb import failures as dynamodb_failures
from tests.docs.markdown import ROOT, blocks
from tests.gateway import free_port
from tests.local_aws import LocalAws, find

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


@pytest.mark.aws
def test_init_makes_what_is_missing(ministack: str) -> None:
    aws = LocalAws(ministack, ministack)
    zones = "a=s3://init-a/log,b=s3://init-b,c=s3://init-a/other,d=file:///tmp/d"
    for _ in range(2):
        env = aws.prepare(zones, "dynamodb://init")
    s3 = boto3.client(
        "s3",
        endpoint_url=env["AWS_ENDPOINT_URL_S3"],
        aws_access_key_id=env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
    )
    names = {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}
    s3.close()
    assert {"init-a", "init-b"} <= names
    assert "d" not in names


@pytest.mark.parametrize("name", ["localstack", "minio"])
def test_compose_files_are_pinned_and_stay_on_this_machine(name: str) -> None:
    services = yaml.safe_load((ROOT / f"localstack/{name}.yaml").read_text())["services"]
    run = (ROOT / "localstack/run").read_text()
    for service in services.values():
        tag = service["image"].partition(":")[2]
        assert any(letter.isdigit() for letter in tag), service["image"]
        assert service["ports"]
        for port in service["ports"]:
            assert port.startswith("127.0.0.1:"), port
        for credential in ("ROOT_USER", "ROOT_PASSWORD"):
            assert service.get("environment", {}).get(f"MINIO_{credential}", "riacho") in run
    assert f"ON={name} " in run


@pytest.mark.parametrize("name", ["localstack", "minio"])
def test_compose_understands_its_files(name: str) -> None:
    compose = [shutil.which("docker") or "", "compose"]
    if not compose[0] or subprocess.run([*compose, "version"], capture_output=True).returncode:
        pytest.skip("there is no docker compose here")
    file = str(ROOT / f"localstack/{name}.yaml")
    checked = subprocess.run([*compose, "-f", file, "config", "--quiet"], capture_output=True)
    assert checked.returncode == 0, checked.stderr.decode()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ("started ministack", "started ministack")),
        ("seaweedfs+ministack", ("started seaweed", "started ministack")),
        ("http://one", ("http://one", "http://one")),
        ("http://one+https://other", ("http://one", "https://other")),
    ],
)
def test_one_variable_says_where_the_suite_runs(text: str, found: tuple[str, str]) -> None:
    aws = find(text, lambda fixture: f"started {fixture}")
    assert (aws.s3, aws.dynamodb) == found


@pytest.mark.parametrize("text", ["seaweedfs", "minio", "localstack", "ministack+minio", "a+b+c"])
def test_what_is_no_local_aws_is_refused(text: str) -> None:
    with pytest.raises(pytest.UsageError, match="RIACHO_TEST_AWS="):
        find(text, str)


def test_the_policy_names_what_the_errors_ask_for() -> None:
    [policy] = blocks(ROOT / "docs/aws.md", "json")
    statements = json.loads(policy.text)["Statement"]
    allowed = {a for each in statements for a in [*_listed(each["Action"])]}
    source = (
        Path(dynamodb_failures.__file__).read_text() + (ROOT / "storage/stores/s3.py").read_text()
    )
    asked = re.findall(r"(?:s3|dynamodb):[A-Z]\w+", source)
    asked += [f"dynamodb:{name}" for name in re.findall(r"\b(?:\w+Item|Query)\b", source)]
    assert {name for name in asked if name in allowed} == allowed


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
