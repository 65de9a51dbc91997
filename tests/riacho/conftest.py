"""One gateway process for all tests of a file that do not mind company."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway import GatewayProcess, start_gateway


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    path: Path = tmp_path_factory.mktemp("gateway")
    with start_gateway(path, "--log-level", "warning") as process:
        yield process
