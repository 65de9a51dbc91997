"""Flipped bits in the SQLite file: no item is mistaken for another, no loss goes unnoticed."""

import sqlite3
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

import pytest

from storage.errors import Corrupt, MetadataDamaged
from storage.stores.metadata import Put, Versioned
from storage.stores.sqlite.table import SqliteMetadata

pytestmark = pytest.mark.anyio

KEYS = [f"head/0123456789abcdef/{lane:05d}" for lane in range(20)]
OLD_TABLE = """
    CREATE TABLE item (
        collection TEXT NOT NULL, rest TEXT NOT NULL, value BLOB NOT NULL, version TEXT NOT NULL,
        PRIMARY KEY (collection, rest)
    ) WITHOUT ROWID
"""
OLD_PUT = "INSERT OR REPLACE INTO item (collection, rest, value, version) VALUES (?, ?, ?, ?)"


def opened(path: Path) -> SqliteMetadata:
    versions = count()
    return SqliteMetadata(path, lambda: f"version-{next(versions)}")


async def filled(path: Path) -> None:
    store = opened(path)
    await store.transact([Put(key, f"value of {key}".encode(), None) for key in KEYS])
    await store.close()  # This moves everything into one file.
    assert not path.with_name(path.name + "-wal").exists()


async def problems(store: SqliteMetadata) -> list[str]:
    try:
        return [each.key async for some in store.every_item() for each in some if each.problem]
    except MetadataDamaged as error:
        return [str(error)]


async def checks(store: SqliteMetadata) -> None:
    """Read every item in every way; each found value must be the written one."""
    for key in KEYS:
        with suppress(Corrupt):
            item = await store.get(key)
            assert item is None or item.value == f"value of {key}".encode()
    with suppress(Corrupt):
        for key, item in await store.list("head/0123456789abcdef/"):
            assert item.value == f"value of {key}".encode()


@pytest.mark.parametrize("part", ["key", "value", "version"])
async def test_a_flipped_bit_in_a_row_is_detected(tmp_path: Path, part: str) -> None:
    path = tmp_path / "metadata.db"
    await filled(path)
    whole = path.read_bytes()
    wanted = {"key": b"head/0123456789abcdef00007", "value": b"value of " + KEYS[7].encode()}
    sought = wanted.get(part, b"version-0")
    begin = whole.index(sought)
    for position in range(begin, begin + len(sought)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << bit
            path.write_bytes(damaged)
            store = opened(path)
            assert await problems(store), (position - begin, bit)
            await checks(store)
            await store.close()


async def test_a_flipped_key_does_not_hide_the_keys_after_it(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    await filled(path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"head/0123456789abcdef00007", b"iead/0123456789abcdef00007"))
    store = opened(path)

    # A range ends at the first key outside it, so a list cannot detect this.
    assert len(await store.list("head/0123456789abcdef/")) < len(KEYS)
    assert len([each async for some in store.every_item() for each in some]) == len(KEYS)
    assert "iead/0123456789abcdef/00007" in await problems(store)
    await store.close()


async def test_a_conflict_does_not_return_a_damaged_row(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    await filled(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE item SET value = ? WHERE rest = '00003'", (b"other",))
    store = opened(path)

    with pytest.raises(MetadataDamaged, match=r"head/0123456789abcdef/00003.*riacho fsck"):
        await store.transact([Put(KEYS[3], b"new", "other"), Put(KEYS[4], b"new", "version-0")])

    # A writer that knows the version read the item before, and can overwrite it.
    await store.transact([Put(KEYS[3], b"new", "version-0")])
    assert (await store.list("head/0123456789abcdef/"))[3][1].value == b"new"

    await store.close()


async def test_a_file_of_an_older_version_is_read_and_gets_checksums(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(OLD_TABLE)
        db.execute(OLD_PUT, ("topic", "a", b"1", "v"))
    store = opened(path)
    other = opened(path)

    assert await store.get("topic/a") == Versioned(b"1", "v")
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute("SELECT count(*) FROM item WHERE crc IS NULL").fetchone() == (0,)
        db.execute("UPDATE item SET rest = 'b'")
    with pytest.raises(MetadataDamaged):
        await store.get("topic/b")
    await store.close()
    await other.close()


async def test_an_older_version_can_use_the_file_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        old.execute(OLD_TABLE)
        old.execute(OLD_PUT, ("topic", "a", b"1", "v1"))
        store = opened(path)
        await store.transact([Put("topic/a", b"2", "v1")])

        assert old.execute("SELECT value, version FROM item").fetchall() == [(b"2", "version-0")]
        old.execute(OLD_PUT, ("topic", "a", b"3", "v3"))

        assert await store.get("topic/a") == Versioned(b"3", "v3")
        assert await problems(store) == []
        await store.transact([Put("topic/a", b"4", "v3")])
        assert await store.list("topic/") == [("topic/a", Versioned(b"4", "version-1"))]
        await store.close()


async def test_a_file_that_is_not_a_database_is_damaged_and_not_retryable(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    path.write_bytes(b"no database at all" * 1000)

    with pytest.raises(MetadataDamaged, match="not a database") as caught:
        opened(path)

    assert not caught.value.retryable
    assert "backup" in str(caught.value)


async def test_a_malformed_file_is_reported_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    store = opened(path)
    for number in range(200):
        await store.transact([Put(f"topic/{number:04d}", bytes(1000), None)])
    await store.close()
    whole = bytearray(path.read_bytes())
    for page in range(4096 * 2, len(whole), 4096):
        whole[page : page + 100] = b"\xff" * 100
    path.write_bytes(whole)
    store = opened(path)

    with pytest.raises(MetadataDamaged, match=r"malformed.*backup"):
        await store.get("topic/0100")
    with pytest.raises(MetadataDamaged, match="malformed"):
        await store.transact([Put("topic/0100", b"", None)])

    assert "malformed" in store.trouble.reason
    await store.close()
