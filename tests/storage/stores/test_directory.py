"""Directories of objects: crashes at any moment, leftovers, and disks that fail."""

import asyncio
import fcntl
import os
import resource
import shutil
from pathlib import Path

import pytest

from storage.errors import ObjectMissing, StoreUnavailable
from storage.stores.directory import DirectoryObjects
from tests.storage.helpers.processes import killed_after

pytestmark = pytest.mark.anyio

WRITER = """
import asyncio, sys
from pathlib import Path
from storage.stores.directory import DirectoryObjects

async def write(store, writer):
    for number in range(100_000):
        key = f"{number % 7}/{writer}/{number}"
        await store.put(key, [key.encode(), b"x" * 10_000, key.encode()])
        print(key, flush=True)

async def main():
    store = DirectoryObjects(Path(sys.argv[1]), anonymous=sys.argv[2] == "anonymous")
    await asyncio.gather(*(write(store, writer) for writer in range(3)))

asyncio.run(main())
"""


@pytest.mark.parametrize("naming", ["anonymous", "named"])
async def test_after_kill_9_every_object_is_complete_and_no_acknowledged_one_is_missing(
    tmp_path: Path, naming: str
) -> None:
    acknowledged = killed_after(WRITER, 60, str(tmp_path), naming)

    store = DirectoryObjects(tmp_path)
    found = {info.key async for batch in store.list("") for info in batch}
    assert len(acknowledged) >= 60
    assert found >= set(acknowledged)
    for key in found:
        assert await store.get(key) == key.encode() + b"x" * 10_000 + key.encode()
    assert all(path.name != ".partial" or not any(path.iterdir()) for path in tmp_path.iterdir())
    await store.close()


async def test_leftovers_are_never_listed_and_a_listing_removes_them(tmp_path: Path) -> None:
    store = DirectoryObjects(tmp_path, anonymous=False)
    await store.put("a", [b"x"])
    dead, alive = tmp_path / ".partial/dead", tmp_path / ".partial/alive"
    dead.write_bytes(b"half")
    alive.write_bytes(b"half")

    with alive.open("rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        keys = [info.key async for batch in store.list("") for info in batch]

    assert keys == ["a"]
    assert not dead.exists()
    assert alive.exists()
    with pytest.raises(ValueError, match="unfinished"):
        await store.get(".partial/alive")
    await store.close()


@pytest.mark.parametrize("anonymous", [True, False])
async def test_a_put_recreates_a_removed_directory(tmp_path: Path, anonymous: bool) -> None:
    store = DirectoryObjects(tmp_path / "root", anonymous=anonymous)
    await store.put("a/b/1", [b"x"])
    shutil.rmtree(tmp_path / "root")

    await store.put("a/b/2", [b"y"])

    assert await store.get("a/b/2") == b"y"
    with pytest.raises(ObjectMissing):
        await store.get("a/b/1")
    await store.close()


@pytest.mark.parametrize("anonymous", [True, False])
async def test_a_full_disk_is_reported_and_leaves_nothing_behind(
    tmp_path: Path, anonymous: bool
) -> None:
    store = DirectoryObjects(tmp_path, anonymous=anonymous)
    await store.put("before", [b"x"])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(StoreUnavailable, match="File too large"):
            await store.put("large", [b"x" * 40_000, b"x" * 40_000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert [info.key async for batch in store.list("") for info in batch] == ["before"]
    await store.put("large", [b"x" * 80_000])
    await store.close()


async def test_a_root_that_is_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = DirectoryObjects(tmp_path / "file")

    with pytest.raises(StoreUnavailable, match="check the disk"):
        await store.put("a", [b"x"])
    # Not `ObjectMissing`: while the disk is away that cannot be known.
    for call in (store.get("a"), store.get_ranges("a", [(0, 1)]), store.size("a")):
        with pytest.raises(StoreUnavailable, match="check the disk"):
            await call
    await store.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_a_directory_without_permission_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    store = DirectoryObjects(tmp_path)

    with pytest.raises(StoreUnavailable, match="Permission denied"):
        await store.put("a", [b"x"])
    await store.close()


async def test_a_file_url_points_to_the_bytes(tmp_path: Path) -> None:
    store = DirectoryObjects(tmp_path / "with space")
    await store.put("a/b", [b"x"])

    assert store.address("a/b") == (tmp_path / "with space/a/b").as_uri()
    await store.close()


async def test_two_stores_on_one_directory_see_each_other(tmp_path: Path) -> None:
    one, two = DirectoryObjects(tmp_path), DirectoryObjects(tmp_path, anonymous=False)

    await asyncio.gather(*(store.put("same", [b"x"]) for store in (one, two, one, two)))

    assert await one.get("same") == await two.get("same") == b"x"
    await one.close()
    await two.close()
