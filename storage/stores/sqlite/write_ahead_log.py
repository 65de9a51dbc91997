"""Repairs SQLite's write-ahead log after a failed flush.

When Linux fails to write a page, it reports the error once and then treats the page as written:
the next flush succeeds without it. The page can be read until a power cut. SQLite does not handle
that. It commits after frames that the disk lacks, and after a power cut the log ends at the first
of them: later commits would be lost although they were flushed.

So the whole log is written again before the next commit. The caller holds SQLite's write lock
meanwhile, so no other process changes the log. There is no lock on the log file itself that
closing it could release. What SQLite moves from the log into its file needs no repair: if that
flush fails, SQLite writes all of it again.
"""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

from storage.stores.sqlite.failures import failure, primary_code

_COPY_BYTES: Final = 1024 * 1024
_PAGES_MAX: Final = 1000  # SQLite's default.


def choose_flush(db: sqlite3.Connection, flushes: bool) -> None:
    """Set whether the next commits wait for the disk.

    While they do not, SQLite moves nothing from the log into the file either: that begins with a
    flush of the log, whose failure is not reported.
    """
    db.execute(f"PRAGMA synchronous = {'FULL' if flushes else 'NORMAL'}")
    db.execute(f"PRAGMA wal_autocheckpoint = {_PAGES_MAX if flushes else 0}")


def is_doubtful_after(error: Exception) -> bool:
    """Whether `error` may be that of a failed flush."""
    return isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_IOERR


def write_again(path: Path) -> None:
    """Write the log of the database `path` again, and flush it, or raise `StoreUnavailable`."""
    try:
        with suppress(FileNotFoundError), Path(f"{path}-wal").open("r+b") as log:
            while part := log.read(_COPY_BYTES):
                log.seek(-len(part), os.SEEK_CUR)
                log.write(part)
            log.flush()
            os.fsync(log.fileno())
    except OSError as error:
        raise failure(path, error) from error
