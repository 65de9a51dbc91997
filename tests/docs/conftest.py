from collections.abc import Iterator

import pytest

from tests.gateway import GatewayProcess, start_gateway


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One gateway for the documents of a module, which follow on each other as for a reader."""
    with start_gateway(tmp_path_factory.mktemp("gateway")) as started:
        yield started
