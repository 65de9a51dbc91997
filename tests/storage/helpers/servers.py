"""Real local servers, started as subprocesses on loopback and killed afterwards.

Each is a context manager that yields the URL of an endpoint, once the endpoint answers. The
credentials are `ACCESS_KEY` and `SECRET_KEY` everywhere; SeaweedFS and MinIO check them, and
ministack those of presigned URLs.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import boto3
import httpx
import pytest

from tests.gateway import free_port

ACCESS_KEY: Final = "riacho"
SECRET_KEY: Final = "riacho-secret"
REGION: Final = "us-east-1"

START_S_MAX: Final = 60
POLL_S: Final = 0.05

_BIN: Final = Path(sys.executable).parent
_SEAWEED_IDENTITIES: Final = {
    "identities": [
        {
            "name": "riacho",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
    ]
}


@contextmanager
def ministack(services: str = "s3,dynamodb") -> Iterator[str]:
    """S3 and DynamoDB in one process, with correct conditions, transactions and tokens."""
    [port] = free_ports(1)
    environment = {
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "SERVICES": services,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,  # To check presigned URLs.
    }
    with _running([str(_BIN / "ministack")], environment, f"http://127.0.0.1:{port}") as url:
        yield url


@contextmanager
def moto() -> Iterator[str]:
    """Most of AWS; one request at a time, because moto is not atomic by itself."""
    [port] = free_ports(1)
    module = "tests.storage.helpers.moto_in_turns"
    command = [sys.executable, "-m", module, "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, {}, f"http://127.0.0.1:{port}") as url:
        yield url


@contextmanager
def seaweed() -> Iterator[str]:
    """A real S3 server that checks signatures, on an empty folder."""
    # Every part has a port for gRPC too, by default 10000 above: too high for a free port.
    s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = free_ports(8)
    with tempfile.TemporaryDirectory(prefix="weed") as folder:
        identities = Path(folder) / "identities.json"
        identities.write_text(json.dumps(_SEAWEED_IDENTITIES))
        command = [
            *(
                str(_BIN / "weed"),
                "server",
                f"-dir={folder}",
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",
            ),
            *(f"-master.port={master}", f"-master.port.grpc={master_grpc}"),
            *(f"-volume.port={volume}", f"-volume.port.grpc={volume_grpc}", "-volume.max=200"),
            *(f"-filer.port={filer}", f"-filer.port.grpc={filer_grpc}"),
            *("-s3", f"-s3.port={s3}", f"-s3.port.grpc={s3_grpc}", f"-s3.config={identities}"),
            *("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false"),
        ]
        # One volume at a time, because each new bucket would otherwise grow seven.
        environment = {"WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}
        with _running(command, environment, f"http://127.0.0.1:{s3}") as url:
            yield url


@contextmanager
def minio() -> Iterator[str]:
    """A real S3 server that checks signatures; skips the test where it is not installed."""
    program = shutil.which("minio", path=f"{_BIN}:{os.environ['PATH']}")
    if program is None:
        pytest.skip("there is no minio here; localstack/install-minio builds one")
    [port] = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="minio") as folder:
        command = [program, "server", "--quiet", f"--address=127.0.0.1:{port}", folder]
        environment = {
            "MINIO_ROOT_USER": ACCESS_KEY,
            "MINIO_ROOT_PASSWORD": SECRET_KEY,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
        }
        with _running(command, environment, f"http://127.0.0.1:{port}") as url:
            yield url


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that are free now."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)


@contextmanager
def _running(command: Sequence[str], environment: Mapping[str, str], url: str) -> Iterator[str]:
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            if not _answers(process, url):
                output.seek(0)
                raise RuntimeError(f"{command[0]} did not start: {output.read()[-2000:]!r}")
            yield url
        finally:
            process.kill()  # SIGTERM makes SeaweedFS tidy up for half a minute.
            process.wait()


def _answers(process: subprocess.Popen[bytes], url: str) -> bool:
    for _ in range(int(START_S_MAX / POLL_S)):
        if process.poll() is not None:
            return False
        try:
            # SeaweedFS answers 5xx or refuses until its parts have found each other.
            if httpx.get(url, timeout=5).status_code < 500:
                return True
        except httpx.TransportError:
            pass
        time.sleep(POLL_S)
    return False


def make_bucket(url: str, bucket: str) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    )
    try:
        client.create_bucket(Bucket=bucket)
    finally:
        client.close()
