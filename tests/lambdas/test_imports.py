"""A cold start imports what its request needs, and nothing that only others need."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.service.security.oidc.provider import provider

ENVIRONMENT = {
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
}
CLOUD = {"RIACHO_ZONES": "a=s3://bucket", "RIACHO_METADATA": "dynamodb://table"}
MEMORY = {"RIACHO_ZONES": "a=memory://", "RIACHO_METADATA": "memory://"}

NEVER = ("pandas", "pyspark", "httpx", "boto3", "aioboto3", "uvicorn", "rich", "typer", "moto")
SCHEMAS = (
    "avro",
    "fastavro",
    "google.protobuf",
    "jsonschema_rs",
    "service.registry.assembly",
    "service.registry.formats",
)
SELDOM = ("fastapi", "prometheus_client", "service.controller.controller", "service.jobs", *SCHEMAS)

CALLS = """
import json
from lambdas.gateway import handler


class Context:
    def get_remaining_time_in_millis(self):
        return 20_000


def call(method, path, body=None):
    http = {"method": method, "path": path, "sourceIp": "192.0.2.1"}
    answer = handler(
        {
            "version": "2.0",
            "rawPath": path,
            "rawQueryString": "",
            "headers": {"content-type": "application/json"},
            "requestContext": {"http": http, "stage": "$default"},
            "body": json.dumps(body) if body else None,
        },
        Context(),
    )
    assert answer["statusCode"] == 200, answer
    return json.loads(answer["body"])


handler._loop.run_until_complete(handler.app.gateway.topics.create("t", partitions=1))
call("POST", "/v1/topics/t/records", {"records": [{"key": "k", "value": "v"}]})
assert call("GET", "/v1/topics/t/partitions/0/records")["records"][0]["value"] == "v"
"""


def imported(code: str, env: dict[str, str]) -> set[str]:
    """Return what a fresh process has imported after `code`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules, file=sys.stderr)"],
        env={**ENVIRONMENT, **env},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def test_the_gateway_waits_for_no_more_than_its_stores() -> None:
    modules = imported("import lambdas.gateway", CLOUD)
    assert "storage.stores.dynamodb.table" in modules
    assert "storage.stores.s3" in modules
    assert not modules & {*NEVER, *SELDOM}


def test_to_produce_and_fetch_takes_no_more() -> None:
    modules = imported(CALLS, MEMORY)
    assert not modules & {*NEVER, *SELDOM, "botocore", "obstore"}


@pytest.mark.parametrize("function", ["controller", "compaction"])
def test_the_other_functions_are_small_too(function: str) -> None:
    emr = {"APPLICATION_ID": "a", "ROLE_ARN": "r", "ENTRY_POINT": "s3://code/job.py"}
    env = {**CLOUD, **{f"RIACHO_EMR_{name}": value for name, value in emr.items()}}
    modules = imported(f"import lambdas.{function}", env)
    assert not modules & {"pandas", "pyspark", "fastapi", "uvicorn", "rich", "typer"}


TOKEN = """
import os
from lambdas.gateway import handler

answer = handler(
    {
        "version": "2.0",
        "rawPath": "/v1/whoami",
        "rawQueryString": "",
        "headers": {"authorization": "Bearer " + os.environ["TOKEN"]},
        "requestContext": {
            "http": {"method": "GET", "path": "/v1/whoami", "sourceIp": "192.0.2.1"},
            "stage": "$default",
        },
    },
    None,
)
assert answer["statusCode"] == 200, answer
assert '"User:ana"' in answer["body"], answer
"""


def test_a_token_of_a_provider_loads_what_verifies_it() -> None:
    now_s = int(time.time())
    with provider() as idp:
        env = {
            **MEMORY,
            "RIACHO_SECURITY": "on",
            "RIACHO_JWT_ISSUER": idp.url,
            "RIACHO_JWT_AUDIENCE": "riacho",
            "TOKEN": idp.token(iat=now_s, exp=now_s + 600),
        }
        modules = imported(TOKEN, env)
    assert {"httpx", "joserfc", "cryptography"} <= modules
    assert not modules & {*SELDOM, "pandas", "scramp", "boto3"}


def test_a_gateway_without_a_provider_loads_no_cryptography() -> None:
    modules = imported(CALLS, {**MEMORY, "RIACHO_JWT_ISSUER": ""})
    assert not modules & {"joserfc", "cryptography", "scramp", "httpx"}


CONNECTORS = """
import asyncio
from pathlib import Path

import lambdas.connect
from service.connect.connectors.api import Environment, TaskContext
from service.connect.connectors.catalog import plugin_of, plugins
from service.world.clock import real_world

environment = Environment(world=real_world())
url = {"http.api.url": "https://example.invalid/", "topics": "t"}
assert len(plugins()) > 10
assert plugin_of("HttpSink").check(url, environment) == {}
"""

MADE = """
async def make():
    unused = lambda *_: None
    context = TaskContext(
        connector="c", task=0, config=url, environment=environment, offsets=None, report=unused,
        metric=unused,
    )
    task = plugin_of("HttpSink").make(context)
    await task.start()
    await task.stop()

asyncio.run(make())
"""


def test_connectors_load_their_libraries_when_they_are_made() -> None:
    libraries = {"asyncpg", "confluent_kafka", "fastavro", "obstore", "pymysql", "sqlalchemy"}
    assert not imported(CONNECTORS, MEMORY) & {*libraries, "pandas", "uvicorn", "typer"}
    assert "httpx" in imported(CONNECTORS + MADE, MEMORY)
