"""Gateways for programs: one for each file, open or with security."""

from collections.abc import Iterator

import pytest

from tests.gateway import GatewayProcess, free_port, start_gateway
from tests.kafka_programs.programs import Tools, kafka_jars
from tests.kafka_programs.secured import Secured


@pytest.fixture(scope="module")
def bootstrap() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def gateway(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    path = tmp_path_factory.mktemp("log")
    with start_gateway(path, "--kafka", bootstrap) as gateway:
        yield gateway


@pytest.fixture
def tools(bootstrap: str, gateway: GatewayProcess) -> Tools:
    return Tools(kafka_jars(), bootstrap)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("secured")) as secured:
        yield secured
