"""Functions on the local AWS."""

import os
from collections.abc import Iterator
from typing import Final

import httpx
import pytest

from tests.integration.processes import Api
from tests.lambdas.events import LambdaTransport
from tests.lambdas.runtime import Environment, FreshEnvironments, environment
from tests.local_aws import LocalAws

GATEWAY: Final = "lambdas.gateway.handler"


@pytest.fixture(scope="session")
def stores(local_aws: LocalAws) -> dict[str, str]:
    """The variables of functions that share a bucket and a table."""
    # The server may be one that others use, too.
    name = f"riacho-lambdas-{os.urandom(6).hex()}"
    return local_aws.prepare(f"a=s3://{name}/log", f"dynamodb://{name}")


@pytest.fixture(scope="module")
def warm(stores: dict[str, str]) -> Iterator[Environment]:
    """An environment of the gateway that answers all calls of a module."""
    with environment(GATEWAY, stores) as function:
        yield function


@pytest.fixture(scope="module")
def api(warm: Environment) -> Iterator[Api]:
    """The HTTP API through the warm environment."""
    with through(warm) as api:
        yield api


@pytest.fixture
def cold(stores: dict[str, str]) -> Iterator[FreshEnvironments]:
    """The gateway, each call in a process of its own."""
    fresh = FreshEnvironments(GATEWAY, stores)
    try:
        yield fresh
    finally:
        fresh.close()


def through(function: "Environment | FreshEnvironments") -> Api:
    api = Api("http://riacho")
    api.http.close()
    api.http = httpx.Client(base_url=api.url, transport=LambdaTransport(function.invoke))
    return api
