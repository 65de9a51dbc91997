"""What a failure of SQLite means for the caller, and what an operator can do about it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from storage.errors import (
    DiskFailing,
    MetadataDamaged,
    OutcomeUnknown,
    RiachoError,
    StoreLocked,
    StoreUnavailable,
)
from storage.stores.sqlite.rows import REMEDY
from storage.stores.trouble import MACHINE_ERRORS

_DISK: Final = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOMEM,
)
_MALFORMED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_UNDECODABLE: Final = "Could not decode to UTF-8"
"""How Python's error for invalid UTF-8 begins; it has no code."""

_WRITE_LOCK_BYTE: Final = "120"
"""The byte of the `-shm` file that a writer of the write-ahead log locks."""


def primary_code(error: sqlite3.Error) -> int:
    # The upper bits only add detail. Errors that Python itself raises have no code.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_malformed(error: BaseException) -> bool:
    """Whether the file is not a readable database, or no longer."""
    if not isinstance(error, sqlite3.Error):
        return False
    return primary_code(error) in _MALFORMED or str(error).startswith(_UNDECODABLE)


def failure(path: Path, error: sqlite3.Error | OSError) -> RiachoError:
    """Return what to raise for `error`, which certainly wrote nothing."""
    if isinstance(error, OSError):
        kind = DiskFailing if error.errno in MACHINE_ERRORS else StoreUnavailable
        return kind(f"{path}: {error}; check the disk's space and the directory's permissions")
    if is_malformed(error):
        return MetadataDamaged(
            f"{path}: {error}. To send the request again does not help: stop all gateways that use"
            f" the file; {REMEDY}, or save what can be read with `sqlite3 {path.name} .recover`"
        )
    code = primary_code(error)
    if code == sqlite3.SQLITE_BUSY:
        return locked(path)
    if code in _DISK:
        return DiskFailing(
            f"{path}: {error}; check the disk (its space, its health, whether it is mounted"
            " read-only) and how many files the process may open"
        )
    return StoreUnavailable(f"{path}: {error}; check the disk and who else uses the file")


def commit_failure(path: Path, error: sqlite3.Error) -> RiachoError:
    """Return what to raise if a COMMIT failed."""
    # A full disk has no room for the commit record, so nothing was committed. After any other
    # failure that record may be in the log, and a recovery after a crash may apply it.
    if primary_code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY):
        return failure(path, error)
    return OutcomeUnknown(f"{path}: {error}; the commit may or may not survive a crash")


def locked(path: Path, held_s: float | None = None) -> StoreLocked:
    """Return the error that names the process that holds the file's lock, if it is known."""
    holder = _holder(path)
    who = "another process" if holder is None else f"another process (pid {holder})"
    since = "" if held_s is None else f" for {held_s:.1f} s"
    return StoreLocked(
        f"{path} is locked: {who} has held its lock{since}. Nothing was written. If that process is"
        " stopped or hangs, resume or end it; then send the request again"
    )


def _holder(path: Path) -> int | None:
    """Return the process that writes to the file, if the system reports it."""
    # The file must not be opened for this: closing it again would drop our own locks on it.
    with suppress(OSError, ValueError):
        inode = path.with_name(path.name + "-shm").stat().st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            is_lock = len(fields) == 8 and fields[3] == "WRITE" and fields[6] == _WRITE_LOCK_BYTE
            if is_lock and fields[5].endswith(f":{inode}") and int(fields[4]) > 0:
                return int(fields[4])
    return None


@contextmanager
def reporting(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the system into ours."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise failure(path, error) from error
