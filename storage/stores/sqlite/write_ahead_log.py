"""SQLite's write-ahead log after a flush that failed.

Linux counts a page as written once it could not write it: it reports the error once, and the next
flush succeeds without that page. The page can be read until the power goes. SQLite does not know
of that. It commits behind frames that the disk lacks, and after a power cut the log ends at the
first of them: what was committed later, and flushed, would be gone.

So the log is written once more, whole, before anything else is committed. The caller holds SQLite's
write lock meanwhile, so nobody else changes it; there is no lock on the log itself that closing
it could release. What SQLite moves from the log into its file needs none of this: if that flush
fails, SQLite writes all of it again.
"""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

from storage.stores.sqlite.failures import failure, primary_code

_COPY_BYTES: Final = 1024 * 1024
_PAGES_MAX: Final = 1000  # What SQLite does by itself.


def choose_flush(db: sqlite3.Connection, flushes: bool) -> None:
    """Say whether the next commits wait for the disk.

    While they do not, SQLite moves nothing from the log into the file either: that begins with a
    flush of the log, and nobody is told when it fails.
    """
    db.execute(f"PRAGMA synchronous = {'FULL' if flushes else 'NORMAL'}")
    db.execute(f"PRAGMA wal_autocheckpoint = {_PAGES_MAX if flushes else 0}")


def is_doubtful_after(error: Exception) -> bool:
    """Whether `error` may have been that of a flush."""
    return isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_IOERR


def write_again(path: Path) -> None:
    """Write the log of the database `path` once more, and flush it, or raise `StoreUnavailable`."""
    try:
        with suppress(FileNotFoundError), Path(f"{path}-wal").open("r+b") as log:
            while part := log.read(_COPY_BYTES):
                log.seek(-len(part), os.SEEK_CUR)
                log.write(part)
            log.flush()
            os.fsync(log.fileno())
    except OSError as error:
        raise failure(path, error) from error
