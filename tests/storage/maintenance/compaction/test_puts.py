"""Putting a file into several zones, some of which fail."""

from pathlib import Path

import pytest

from storage.maintenance.compaction.puts import put_file
from tests.storage.helpers.failing_zones import FailingZones, Mode

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"bytes")
    return path


async def test_every_zone_gets_the_file(path: Path) -> None:
    zones = FailingZones("ab")
    for _ in range(2):
        assert await put_file(zones, "k", path, ["a", "b"], size_bytes=5) == (["a", "b"], [])
    assert await zones["b"].inner.get("k") == b"bytes"


@pytest.mark.parametrize("mode", ["denied", "full", "hanging"])
async def test_a_zone_that_fails_the_put_is_reported_separately(path: Path, mode: Mode) -> None:
    zones = FailingZones("ab")
    zones["b"].mode = mode
    held, [error] = await put_file(zones, "k", path, ["a", "b"], size_bytes=5, patience_s=0.01)
    assert held == ["a"]
    assert error.retryable


async def test_a_zone_that_is_not_configured_counts_as_failed(path: Path) -> None:
    held, [error] = await put_file(FailingZones("a"), "k", path, ["a", "elsewhere"], size_bytes=5)
    assert held == ["a"]
    assert "RIACHO_ZONES" in str(error)
