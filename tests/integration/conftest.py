"""Deployments to test against, as parameters."""

from collections.abc import Iterator

import pytest

from tests.gateway import GatewayProcess
from tests.integration.backends import BACKENDS
from tests.integration.processes import Api, Deployment, cloud, embedded


@pytest.fixture(scope="module", params=BACKENDS)
def deployment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Deployment:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "embedded":
        return embedded(folder)
    return cloud(folder, request.getfixturevalue("local_aws"))


@pytest.fixture(scope="module")
def gateway(deployment: Deployment) -> Iterator[GatewayProcess]:
    """One gateway for all the tests of a module that do it no harm."""
    env = {"RIACHO_SSE_HEARTBEAT_S": "0.2"}
    if deployment.kind == "cloud":
        # As in Lambda: small flushes are in the table at first. To clients it is all the same.
        env["RIACHO_TABLE_BATCH_BYTES_MAX"] = "4096"
    with deployment.start(env=env) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def api(gateway: GatewayProcess) -> Iterator[Api]:
    with Api(gateway.url) as api:
        yield api
