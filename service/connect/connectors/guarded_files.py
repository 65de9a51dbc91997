"""Files of connectors: regular files below one folder of the operator's choice, and nothing else.

`RIACHO_CONNECT_FILES` names the folder; unset, connectors have no files. A name is relative to the
folder, or absolute and below it. These are refused, whatever they lead to: `..`, symbolic links in
any part of the name below the folder, devices, FIFOs, sockets, and files of `/proc` and `/sys`.

A name is walked folder by folder, each opened inside the one before without following links. So
a folder or a file that is replaced by a link after the check is not followed either.

All of this blocks: call it in a thread.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from service.connect.connectors.api import Environment
from service.connect.data.errors import TaskFault

VARIABLE: Final = "RIACHO_CONNECT_FILES"
DEPTH_MAX: Final = 32
"""Folders of a name, below the operator's."""

_WALK: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_OPEN: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MODE: Final = 0o640
_OF_THE_KERNEL: Final = ("/proc", "/sys")


class RefusedFile(TaskFault):
    """The name may not be used here; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class HeldFolder:
    """The folder of a file, open: what is done inside it cannot be led elsewhere by links."""

    descriptor: int
    name: str
    """Of the file in it."""
    path: Path
    """Of the file, for messages and for libraries that open it by name."""

    def open(self, flags: int, *, suffix: str = "") -> int:
        """Return a descriptor of the file whose name ends with `suffix` besides.

        Raises `RefusedFile` unless it is a regular file, and `OSError` as `os.open` does.
        """
        name = self.name + suffix
        self.check(suffix=suffix)
        try:
            opened = os.open(name, flags | _OPEN, _MODE, dir_fd=self.descriptor)
        except OSError as error:
            if Path(f"{self.path}{suffix}").is_symlink():
                raise self._refused("is a symbolic link") from error
            raise
        try:
            # Once more, since it may have been replaced since the first look.
            self._require_file(os.fstat(opened))
        except RefusedFile:
            os.close(opened)
            raise
        return opened

    def check(self, *, suffix: str = "") -> None:
        """Raise `RefusedFile` unless it is a regular file, or missing. Opens nothing."""
        with suppress(FileNotFoundError):
            name = self.name + suffix
            self._require_file(os.stat(name, dir_fd=self.descriptor, follow_symlinks=False))

    def rename(self, suffix: str, to_suffix: str = "") -> None:
        """Rename the file whose name ends with `suffix` besides; what has the new name is gone."""
        fd = self.descriptor
        os.rename(self.name + suffix, self.name + to_suffix, src_dir_fd=fd, dst_dir_fd=fd)

    def sync(self) -> None:
        """Make durable which files the folder has."""
        # A descriptor of O_PATH cannot be synchronised.
        readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.descriptor)
        try:
            os.fsync(readable)
        finally:
            os.close(readable)

    def _require_file(self, found: os.stat_result) -> None:
        if stat.S_ISLNK(found.st_mode):
            raise self._refused("is a symbolic link")
        if not stat.S_ISREG(found.st_mode):
            raise self._refused("is not a regular file")
        if found.st_dev in _devices_of_the_kernel():
            raise self._refused(f"is a file of the kernel, as {' and '.join(_OF_THE_KERNEL)} are")

    def _refused(self, why: str) -> RefusedFile:
        return RefusedFile(
            f"{self.path} {why}: connectors open only regular files below {VARIABLE}"
        )


def refusal(environment: Environment, name: str) -> str | None:
    """Return what is wrong with a name, for the check of a configuration; None: nothing is.

    It does not look at the disk: what stands there is judged whenever the file is opened.
    """
    try:
        _parts(environment, name)
    except RefusedFile as error:
        return str(error)
    return None


@contextmanager
def held_folder(environment: Environment, name: str) -> Iterator[HeldFolder]:
    """Hold the folder of a file open. Raises `RefusedFile`, and `FileNotFoundError`."""
    root, parts = _parts(environment, name)
    path = root.joinpath(*parts)
    try:
        here = os.open(root, _WALK)
    except (FileNotFoundError, NotADirectoryError):
        raise RefusedFile(f"{root}, which {VARIABLE} names, is not a folder") from None
    try:
        for n, part in enumerate(parts[:-1], start=1):
            try:
                below = os.open(part, _WALK, dir_fd=here)
            except NotADirectoryError:
                raise RefusedFile(
                    f"{root.joinpath(*parts[:n])} is a symbolic link or not a folder: connectors "
                    f"follow no links below {VARIABLE}"
                ) from None
            os.close(here)
            here = below
        yield HeldFolder(here, parts[-1], path)
    finally:
        os.close(here)


def open_below(environment: Environment, name: str, flags: int) -> int:
    """Return a descriptor of a regular file. Raises `RefusedFile`, and `OSError` as `os.open`."""
    with held_folder(environment, name) as folder:
        return folder.open(flags)


def checked_path(environment: Environment, name: str) -> Path:
    """Return the path of a file for a library that opens it by name, like SQLite.

    The file may be missing, its folder not. Somebody who can write to the folder could still put a
    link in its place before the library opens it, so compare this with what was opened, where the
    library says it (`PRAGMA database_list`): the path has no links.

    The file is not opened here: closing it would release all locks that this process has on it,
    those of SQLite's other connections too, whose log others would then delete under them.
    """
    with held_folder(environment, name) as folder:
        folder.check()
        return folder.path


def _parts(environment: Environment, name: str) -> tuple[Path, Sequence[str]]:
    """Return the folder of the operator, without links in its own name, and the name below it."""
    if environment.files is None:
        raise RefusedFile(
            f"connectors have no files here: set {VARIABLE} to the folder that they may use"
        )
    root = environment.files.resolve()
    path = PurePosixPath(name)
    if not name.strip() or "\0" in name:
        raise RefusedFile(f"{name!r} is not the name of a file")
    if ".." in path.parts:
        raise RefusedFile(f"{name} has a part `..`: write the name without it")
    if path.is_absolute():
        for folder in (environment.files.absolute(), root):
            if path.is_relative_to(folder):
                path = path.relative_to(folder)
                break
        else:
            raise RefusedFile(f"{name} is not below {environment.files}, which {VARIABLE} names")
    if not 1 <= len(path.parts) <= DEPTH_MAX:
        raise RefusedFile(
            f"{name} is not a file below {environment.files} in at most {DEPTH_MAX} folders"
        )
    return root, path.parts


def _devices_of_the_kernel() -> set[int]:
    found = set()
    for name in _OF_THE_KERNEL:
        with suppress(OSError):
            found.add(Path(name).stat().st_dev)
    # Where one of them is a plain folder, it has the device of everything else.
    return found - {Path("/").stat().st_dev}
