"""Databases for the tests of connectors."""

from collections.abc import Iterator

import pytest

from tests.service.connect import databases


@pytest.fixture(scope="session")
def postgresql() -> Iterator[databases.Server]:
    with databases.start_postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[databases.Server]:
    with databases.start_mariadb() as server:
        yield server
