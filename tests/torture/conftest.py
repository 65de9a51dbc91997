"""What a scenario needs that not every machine has."""

from pathlib import Path

import pytest

from tests.torture import shim as shims
from tests.torture.summary import figures


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = shims.build(tmp_path_factory.mktemp("shim"))
    if isinstance(built, str):
        pytest.skip(built)
    return built


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if figures:
        terminalreporter.section("figures")
        for what, figure in figures:
            terminalreporter.write_line(f"{what}: {figure}")
