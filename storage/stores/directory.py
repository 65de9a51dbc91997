"""Objects as files: an `ObjectStore` in a local directory.

The file of the object `a/b.seg` is `<root>/a/b.seg`, so people can look at it and back it up.

- A complete file gets its name by a link, which never replaces another file. So a name means a
  complete object, even after `kill -9` at any moment.
- `put` returns after file and name are on disk. Where the file system's journal writes the two
  together, one flush does both; elsewhere the directory is flushed as well. A power cut before
  that may leave a name whose file is incomplete. That object was never acknowledged, no reader
  asks for its random key, and the sweeper removes it.
- An unfinished file has no name where the system allows that (Linux: `O_TMPFILE`); elsewhere it
  has one in `.partial`, to which no key can point, and `list` removes leftovers.
- Directories are never removed, so a writer need not check for them every time.

Several processes may share a root. Since files and directories share names, an object `a` and
an object `a/b` exclude each other; our keys are never nested like that.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from storage.errors import (
    DiskFailing,
    NotSupported,
    ObjectExists,
    ObjectMissing,
    StoreUnavailable,
)
from storage.stores.file_reads import NOWAIT, read
from storage.stores.objects import Body, ObjectInfo, check_key
from storage.stores.pace import Pace
from storage.stores.ranges import Range
from storage.stores.threads import Threads
from storage.stores.trouble import MACHINE_ERRORS, Trouble

THREADS_MAX: Final = 8
"""Enough for the disk to combine several flushes, few enough to be cheap."""

LIST_BATCH_MAX: Final = 1000

HERE_BYTES_MAX: Final = 4096
"""Maximum size of a lone put that may be done on the caller's thread: see pace.py."""

_DIRECTORIES_REMEMBERED_MAX: Final = 100_000
_PIECES_PER_WRITE_MAX: Final = 1024  # IOV_MAX of Linux and macOS.
_JOURNALS_NAMES: Final = frozenset({"ext4", "xfs", "btrfs"})
"""File systems where a link changes directory and file in one journal transaction, and flushing
the file waits for that transaction."""

Parts: TypeAlias = Callable[[], Iterable[Body]]
"""Returns the bytes of an object; may be called repeatedly."""

_COPY_BYTES: Final = 1024 * 1024
_PARTIAL: Final = ".partial"
_ADVICE: Final = {
    errno.EMFILE: "raise the limit of open files of this process (ulimit -n)",
    errno.ENFILE: "raise the limit of open files of this machine",
    errno.EIO: "the disk fails: look into the system's log",
    errno.EROFS: "the file system is mounted read-only",
    errno.EFBIG: "raise the limit of the size of files (ulimit -f)",
}

_PUT_ATTEMPTS_MAX: Final = 3


class DirectoryObjects:
    """An `ObjectStore` on a local directory."""

    def __init__(self, root: Path, *, anonymous: bool = True) -> None:
        """Use `root`, which the first put creates.

        With `anonymous` False, nameless files are not used, as on a system that lacks them.
        """
        self._root = root.absolute()
        # A nameless file is linked through /proc, which a container may lack.
        possible = hasattr(os, "O_TMPFILE") and Path("/proc/self/fd").is_dir()
        self._anonymous = anonymous and possible
        self._pace = Pace()
        self._puts = 0
        """Puts that other threads are doing."""
        self._journals_names: bool | None = None
        self._made: set[Path] = set()
        self._threads = Threads(THREADS_MAX, "directory")
        self.trouble = Trouble(f"directory {self._root}")

    async def put(self, key: str, body: Body) -> None:
        path = Path(self._path(key))
        is_small = sum(map(len, body)) <= HERE_BYTES_MAX
        with self._writing(key):
            if is_small and not self._puts and self._pace.is_quick:
                with self._pace.measured():
                    self._put(key, path, lambda: [body])
                return
            self._puts += 1
            try:
                took_s = await self._threads.run(lambda: self._put_timed(key, path, body))
            finally:
                self._puts -= 1
            if is_small:
                self._pace.took(took_s)

    async def put_file(self, key: str, path: Path) -> None:
        target, source = Path(self._path(key)), path.open("rb")

        def copy() -> None:
            # Closed by the copying thread: a caller that stops waiting does not stop the copy.
            with source:
                self._put(key, target, lambda: _parts_of(source))

        with self._writing(key):
            await self._threads.run(copy)

    @contextmanager
    def _writing(self, key: str) -> Iterator[None]:
        """Turn the system's errors into ours, and record in `trouble` why writing fails."""
        try:
            with _reporting(f"{self._root}/{key}"):
                yield
        except DiskFailing as error:
            self.trouble.failed(str(error))
            raise
        if self.trouble.reason:
            self.trouble.worked()

    @contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        try:
            with _reading(key, self._root):
                yield
        except DiskFailing as error:
            self.trouble.mention("read", str(error))
            raise

    def _put_timed(self, key: str, path: Path, body: Body) -> float:
        began_s = time.perf_counter()
        self._put(key, path, lambda: [body])
        return time.perf_counter() - began_s

    async def get(self, key: str) -> bytes:
        [body] = await self._get(key, None)
        return body

    async def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[bytes]:
        return await self._get(key, ranges)

    async def _get(self, key: str, ranges: Sequence[Range] | None) -> list[bytes]:
        path = self._path(key)
        with self._reading(key):
            # Data in the page cache is read on this thread. If it would have to wait for the
            # disk, the system refuses (RWF_NOWAIT), and another thread reads it.
            cached = read(key, path, ranges, NOWAIT) if NOWAIT else None
            if cached is not None:
                return cached
            found = await self._threads.run(lambda: read(key, path, ranges))
        assert found is not None, key
        return found

    async def size(self, key: str) -> int:
        path = self._path(key)
        with self._reading(key):
            return await self._threads.run(lambda: _size(path))

    async def delete(self, keys: Sequence[str]) -> None:
        paths = [Path(self._path(key)) for key in keys]
        with _reporting(str(self._root)):
            await self._threads.run(lambda: _delete(paths))

    async def list(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        found = self._walk(prefix)
        with _reporting(str(self._root)):
            await self._threads.run(self._remove_leftovers)
            while batch := await self._threads.run(lambda: list(islice(found, LIST_BATCH_MAX))):
                yield batch

    async def presign(
        self, key: str, spans: Sequence[Range | None], expires_s: int
    ) -> Sequence[str]:
        raise NotSupported("whoever may read a file may read all of it")

    def address(self, key: str) -> str:
        return Path(self._path(key)).as_uri()

    async def close(self) -> None:
        self._threads.close()

    def _path(self, key: str) -> str:
        check_key(key)
        if f"{key}/".startswith(f"{_PARTIAL}/"):
            raise ValueError(f"{key!r} is not a key: {_PARTIAL} is kept for unfinished files")
        return f"{self._root}/{key}"

    def _put(self, key: str, path: Path, parts: Parts) -> None:
        for attempt in range(1, _PUT_ATTEMPTS_MAX + 1):
            try:
                return self._write(key, path, parts)
            except FileNotFoundError:
                # A directory, or our unfinished file, was removed meanwhile: retry.
                if attempt == _PUT_ATTEMPTS_MAX:
                    raise
                self._made.clear()
        return None

    def _write(self, key: str, path: Path, parts: Parts) -> None:
        folder = path.parent
        self._make_directory(folder)
        with self._unfinished(folder) as (file, name):
            for part in parts():
                _write_all(file, part)
            try:
                # The source directory is given, though unused, because only then does Python
                # call linkat, which follows /proc/self/fd/N to the nameless file.
                os.link(name, path, src_dir_fd=file)
            except FileExistsError:
                if not _holds(path, parts()):
                    raise ObjectExists(f"{key} holds other bytes") from None
                # It may never have been flushed, and Linux reports a failed flush only once.
                _write_again(path, parts())
                _sync(folder)
                return
            os.fsync(file)
        if not self._name_follows_file():
            _sync(folder)

    def _name_follows_file(self) -> bool:
        """Whether flushing a file that was just linked flushes its name as well."""
        if self._journals_names is None:
            self._journals_names = _file_system(self._root) in _JOURNALS_NAMES
        return self._journals_names

    @contextmanager
    def _unfinished(self, folder: Path) -> Iterator[tuple[int, Path]]:
        """Yield a new file and a path to link it from; the path is removed afterwards."""
        if self._anonymous:
            try:
                file = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o644)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                    raise
                self._anonymous = False  # This file system has no nameless files.
            else:
                try:
                    yield file, Path(f"/proc/self/fd/{file}")
                finally:
                    os.close(file)
                return
        self._make_directory(self._root / _PARTIAL)
        name = self._root / _PARTIAL / os.urandom(12).hex()
        file = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        try:
            # The lock tells `_remove_leftovers` that this file has a living owner.
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file, name
        finally:
            name.unlink(missing_ok=True)
            os.close(file)

    def _make_directory(self, folder: Path) -> None:
        if folder in self._made:
            return
        parent = folder.parent
        if not folder.is_dir():
            self._make_directory(parent)
            folder.mkdir(exist_ok=True)
        if len(self._made) >= _DIRECTORIES_REMEMBERED_MAX:
            self._made.clear()
        # Also if it existed: the process that made it may have died before syncing it.
        _sync(parent)
        self._made.add(folder)

    def _remove_leftovers(self) -> None:
        for entry in _entries(self._root / _PARTIAL):
            with suppress(FileNotFoundError, BlockingIOError):
                file = os.open(entry.path, os.O_WRONLY)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    Path(entry).unlink()
                finally:
                    os.close(file)

    def _walk(self, prefix: str) -> Iterator[ObjectInfo]:
        pending = [prefix.rpartition("/")[0]]
        while pending:
            folder = pending.pop()
            for entry in _entries(self._root / folder):
                key = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    if key != _PARTIAL and (key.startswith(prefix) or prefix.startswith(key)):
                        pending.append(key)
                elif key.startswith(prefix):
                    with suppress(FileNotFoundError):  # Deleted since the directory was read.
                        status = entry.stat()
                        yield ObjectInfo(
                            key=key,
                            size_bytes=status.st_size,
                            modified_ms=status.st_mtime_ns // 1_000_000,
                        )


@contextmanager
def _reporting(what: str) -> Iterator[None]:
    """Turn the system's errors into ours."""
    try:
        yield
    except OSError as error:
        kind = DiskFailing if error.errno in MACHINE_ERRORS else StoreUnavailable
        advice = _ADVICE.get(
            error.errno or 0, "check the disk's space and the directory's permissions"
        )
        raise kind(f"{what}: {error.strerror}; {advice}") from error


@contextmanager
def _reading(key: str, root: Path) -> Iterator[None]:
    """Turn the system's errors into ours; a missing file means that there is no object.

    Unless the root is not a directory: the object may be on a disk that is not mounted.
    """
    try:
        with _reporting(key):
            yield
    except StoreUnavailable as error:
        absent = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
        is_away = isinstance(error.__cause__, NotADirectoryError) and not root.is_dir()
        if isinstance(error.__cause__, absent) and not is_away:
            raise ObjectMissing(f"there is no object {key}") from error.__cause__
        raise


def _size(path: str) -> int:
    status = os.stat(path)  # noqa: PTH116 - A Path would cost more than the call.
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "a directory", path)
    return status.st_size


def _write_all(file: int, body: Body) -> None:
    pieces = [view for piece in body if (view := memoryview(piece).cast("B")).nbytes]
    done = 0
    while done < len(pieces):
        written = os.writev(file, pieces[done : done + _PIECES_PER_WRITE_MAX])
        while done < len(pieces) and written >= pieces[done].nbytes:
            written -= pieces[done].nbytes
            done += 1
        if written:
            pieces[done] = pieces[done][written:]


def _write_again(path: Path, parts: Iterable[Body]) -> None:
    """Write the bytes that a file already holds to it again, and flush them."""
    file = os.open(path, os.O_WRONLY)
    try:
        for part in parts:
            _write_all(file, part)
        os.fsync(file)
    finally:
        os.close(file)


def _holds(path: Path, parts: Iterable[Body]) -> bool:
    with path.open("rb") as file:
        for part in parts:
            joined = b"".join(part)
            if file.read(len(joined)) != joined:
                return False
        return not file.read(1)


def _parts_of(file: BinaryIO) -> Iterator[Body]:
    file.seek(0)
    while part := file.read(_COPY_BYTES):
        yield [part]


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _file_system(path: Path) -> str:
    """Return the type of the file system that holds `path`; empty if unknown."""
    found, longest = "", -1
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            place, rest = line.split(" - ", 1)
            mount = Path(place.split()[4])
            if path.resolve().is_relative_to(mount) and len(mount.parts) > longest:
                found, longest = rest.split()[0], len(mount.parts)
    return found


def _delete(paths: Sequence[Path]) -> None:
    for path in paths:
        with suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        yield from entries
