"""Encrypted topics through the front door: stored sealed, read open."""

from pathlib import Path

import pytest

from tests.service.log.sealed import running, stored_bytes

pytestmark = pytest.mark.anyio

MARKER = "marmalade-on-the-stairs"


async def test_records_are_stored_sealed_and_read_open(tmp_path: Path) -> None:
    async with running(tmp_path) as sealed:
        await sealed.create(config={"compression.type": "none"})
        small = await sealed.produce(MARKER)
        large = [f"{MARKER} {number} " + "x" * 1000 for number in range(200)]
        await sealed.produce(*large)
        assert await sealed.values() == [MARKER, *large]

    async with running(tmp_path) as again:
        assert small == 0
        assert await again.values() == [MARKER, *large]

    assert MARKER.encode() not in stored_bytes(tmp_path)


async def test_without_encryption_the_marker_is_found(tmp_path: Path) -> None:
    """The search would find it: the other tests show something."""
    async with running(tmp_path, table_batch_bytes_max=0) as plain:
        config = {"encryption": "none", "encryption.kek": "", "compression.type": "none"}
        await plain.create(config=config)
        await plain.produce(MARKER)

    assert MARKER.encode() in stored_bytes(tmp_path)
