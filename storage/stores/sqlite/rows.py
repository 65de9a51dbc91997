"""How metadata looks in SQLite: one table, one row per key, each with a checksum.

    collection, rest   the key
    value, version     the item
    crc                crc32c of key, version and value

The checksum detects an item read under another key than it was written for, and any flipped bit in
a row. A row without one was written by an older version of Riacho. It is accepted as it is, and
gets a checksum when it is written again. An old process that uses the same file replaces whole
rows, so it leaves no checksum that does not match.
"""

import sqlite3
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from crc32c import crc32c

from storage.errors import MetadataConflict, MetadataDamaged
from storage.stores.metadata import Check, Delete, Op, Put, Scanned, Versioned, collection_of

WAL_BYTES_KEPT: Final = 64 * 1024 * 1024
"""SQLite moves the log into the file every 1000 pages and restarts it. If a long read let the
log grow beyond this size, it is truncated."""

REMEDY: Final = (
    "run `riacho fsck` to see what is damaged, and restore the metadata table from a backup"
)

_BUSY_DELAY_S: Final = 0.02
_LAST_TEXT: Final = "\U0010ffff"  # Sorts behind every character that keys are made of.
_ROWS_AT_ONCE: Final = 1000

_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS item (
        collection TEXT NOT NULL,
        rest TEXT NOT NULL,
        value BLOB NOT NULL,
        version TEXT NOT NULL,
        crc INTEGER,
        PRIMARY KEY (collection, rest)
    ) WITHOUT ROWID
"""
_SELECT: Final = "SELECT value, version, crc FROM item WHERE collection = ? AND rest = ?"
_VERSION: Final = "SELECT version FROM item WHERE collection = ? AND rest = ?"
_LIST: Final = """
    SELECT rest, value, version, crc FROM item
    WHERE collection = ? AND rest >= ? AND rest < ? AND rest > ? ORDER BY rest LIMIT ?
"""
_PUT: Final = """
    INSERT OR REPLACE INTO item (collection, rest, value, version, crc) VALUES (?, ?, ?, ?, ?)
"""
_DELETE: Final = "DELETE FROM item WHERE collection = ? AND rest = ?"


def checksum(key: str, version: str, value: bytes) -> int:
    # One call for all of it: a call costs more than the copy.
    found: int = crc32c(f"{key}\0{version}\0".encode() + value)
    return found


def checked(key: str, value: Any, version: str, crc: int | None) -> Versioned:
    """Return the item of a row, or raise `MetadataDamaged` if it is not what was written."""
    if type(value) is bytes and (crc is None or crc == checksum(key, version, value)):
        return Versioned(value, version)
    raise MetadataDamaged(
        f"the item {key} of the metadata table is not what was written under this key: the"
        f" checksum does not match; {REMEDY}"
    )


def select(db: sqlite3.Connection, key: str) -> Versioned | None:
    row = db.execute(_SELECT, collection_of(key)).fetchone()
    return None if row is None else checked(key, *row)


def listed(
    db: sqlite3.Connection, prefix: str, after: str | None, limit: int
) -> list[tuple[str, Versioned]]:
    collection, rest = collection_of(prefix)
    behind = "" if after is None else after.removeprefix(f"{collection}/")
    bounds = (collection, rest, rest + _LAST_TEXT, behind, limit)
    rows = db.execute(_LIST, bounds).fetchall()
    keys = [f"{collection}/{row[0]}" for row in rows]
    return [(key, checked(key, *row[1:])) for key, row in zip(keys, rows, strict=True)]


def apply(db: sqlite3.Connection, ops: Sequence[Op], version: str) -> Mapping[str, str]:
    """Do `ops`, or raise `MetadataConflict` before anything is written.

    Items that are returned are checked. Items with the expected version are replaced unchecked.
    """
    if any(_version(db, op.key) != op.expected for op in ops):
        raise MetadataConflict({op.key: select(db, op.key) for op in ops})
    for op in ops:
        match op:
            case Put():
                crc = checksum(op.key, version, op.value) if isinstance(op.value, bytes) else None
                db.execute(_PUT, (*collection_of(op.key), op.value, version, crc))
            case Delete():
                db.execute(_DELETE, collection_of(op.key))
            case Check():
                pass
    return {op.key: version for op in ops if isinstance(op, Put)}


def _version(db: sqlite3.Connection, key: str) -> str | None:
    row = db.execute(_VERSION, collection_of(key)).fetchone()
    return None if row is None else row[0]


def connect(path: Path, busy_s: float) -> sqlite3.Connection:
    # Any thread may use it: SQLite itself serialises the calls on one connection.
    db = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
    _use_wal(db, busy_s)
    db.execute("PRAGMA synchronous = FULL")
    db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
    db.execute(_SCHEMA)
    if not _has_checksums(db):
        _add_checksums(db)
    return db


def _has_checksums(db: sqlite3.Connection) -> bool:
    return any(row[1] == "crc" for row in db.execute("PRAGMA table_info(item)"))


def _add_checksums(db: sqlite3.Connection) -> None:
    """Give a file of an older version the column, and every item in it a checksum."""
    db.create_function("item_crc", 4, _item_crc)
    db.execute("BEGIN IMMEDIATE")
    try:
        if not _has_checksums(db):  # Else another process added them.
            db.execute("ALTER TABLE item ADD COLUMN crc INTEGER")
            db.execute("UPDATE item SET crc = item_crc(collection, rest, version, value)")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _item_crc(collection: str, rest: str, version: str, value: Any) -> int | None:
    return checksum(f"{collection}/{rest}", version, value) if isinstance(value, bytes) else None


def _use_wal(db: sqlite3.Connection, busy_s: float) -> None:
    """Switch to a write-ahead log, even if other processes open the new file at the same moment.

    SQLite itself waits for other processes in every operation but this.
    """
    give_up_s = time.monotonic() + busy_s
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up_s:
                raise
            time.sleep(_BUSY_DELAY_S)


def every_row(path: Path, busy_s: float) -> Generator[list[Scanned], None, None]:
    """Yield all items as of one moment, some at a time.

    Rows are read one after the other in the order of the file, because a lookup or a range may
    miss, or end at, a row whose key is damaged.
    """
    db = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
    try:
        db.text_factory = bytes  # A damaged key may not be text any more.
        db.execute("BEGIN")
        [verdict] = db.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != b"ok":
            raise MetadataDamaged(f"{path}: {_text(verdict)}; {REMEDY}")
        before: tuple[bytes, bytes] | None = None
        rows = db.execute("SELECT collection, rest, value, version, crc FROM item NOT INDEXED")
        while some := rows.fetchmany(_ROWS_AT_ONCE):
            found = []
            for row in some:
                place = _raw(row[0]), _raw(row[1])
                found.append(_seen(row, is_in_order=before is None or place > before))
                before = place
            yield found
    finally:
        db.close()


def _seen(row: Sequence[Any], *, is_in_order: bool) -> Scanned:
    collection, rest, value, version, crc = row
    key = f"{_text(collection)}/{_text(rest)}"
    try:
        item = checked(key, value, _text(version), crc)
    except MetadataDamaged as error:
        return Scanned(key, None, str(error))
    if not is_in_order:
        problem = f"the key {key} is out of order: it, or the one before it, is damaged"
        return Scanned(key, None, problem)
    return Scanned(key, item)


def _raw(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _text(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
