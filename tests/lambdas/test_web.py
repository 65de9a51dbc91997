"""`riacho serve` as the Lambda Web Adapter starts it: streams, and stands still between answers."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.gateway import free_port
from tests.integration.processes import SSE, TIMEOUT_S, Api

SCRIPT = Path(__file__).parents[2] / "lambdas" / "web"


@contextlib.contextmanager
def adapted(tmp_path: Path, **changed: str) -> Iterator[tuple[Api, subprocess.Popen[bytes]]]:
    """Start the script as the adapter does, and wait until it is ready."""
    port = free_port()
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("RIACHO_")}
    env = {
        **inherited,
        "PYTHON": sys.executable,
        "AWS_LWA_PORT": str(port),
        "AWS_LWA_INVOKE_MODE": "response_stream",
        "RIACHO_ANSWER_S_MAX": "6",
        "RIACHO_DATA": str(tmp_path / "data"),
        "RIACHO_LOG_LEVEL": "warning",
        **changed,
    }
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([SCRIPT], env=env, stdout=log, stderr=log)
    try:
        with Api(f"http://127.0.0.1:{port}") as api:
            give_up_s = time.monotonic() + TIMEOUT_S
            while True:
                assert process.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < give_up_s
                try:
                    # As the adapter does, until the gateway is ready.
                    if api.http.get("/ready").status_code == 200:
                        break
                except httpx.TransportError:
                    time.sleep(0.05)
            yield api, process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[Api, subprocess.Popen[bytes]]]:
    with adapted(tmp_path) as made:
        yield made


def test_answers_are_streamed_and_end_in_time(
    web: tuple[Api, subprocess.Popen[bytes]],
) -> None:
    api, process = web
    topic = api.topic()
    path = f"/v1/topics/{topic}/partitions/0/records"
    for number in range(5):
        acks = "0" if number % 2 else "all"
        assert api.produce(topic, [{"value": str(number)}], acks=acks)
        # From the last byte of an answer on it stands still.
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(process.pid, signal.SIGCONT)
    assert [record["value"] for record in api.read_all(topic)] == ["0", "1", "2", "3", "4"]
    with api.http.stream("GET", path, headers={"accept": SSE}) as tail:
        lines = tail.iter_lines()
        ids = [line for line in lines if line.startswith("id: ")]
    # The tail has ended by itself, at a record.
    assert ids == [f"id: {number}" for number in range(5)]


def test_a_function_is_closed_and_believes_the_adapter_if_it_was_told_to(tmp_path: Path) -> None:
    arn = "arn:aws:iam::123456789012:user/ana"
    header = {"x-amzn-request-context": f'{{"authorizer": {{"iam": {{"userArn": "{arn}"}}}}}}'}
    function = {"AWS_LAMBDA_FUNCTION_NAME": "riacho"}
    with adapted(tmp_path, **function) as (api, _):
        assert api.http.get("/v1/whoami", headers=header).status_code == 401
    with adapted(tmp_path, **function, RIACHO_ADAPTER_IDENTITY="true") as (api, _):
        assert api.http.get("/v1/whoami").status_code == 401
        found = api.http.get("/v1/whoami", headers=header).json()
        assert found["principal"] == f"User:{arn}"
        twice = [*header.items(), *header.items()]
        assert api.http.get("/v1/whoami", headers=twice).status_code == 401


def test_an_open_function_does_not_start_unless_somebody_insists(tmp_path: Path) -> None:
    env = {
        **os.environ,
        "PYTHON": sys.executable,
        "AWS_LAMBDA_FUNCTION_NAME": "riacho",
        "RIACHO_DATA": str(tmp_path / "data"),
        "RIACHO_SECURITY": "off",
    }
    done = subprocess.run([SCRIPT], env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "RIACHO_INSECURE=1" in done.stderr
