"""A power cut: what was never flushed is gone, and so is what a failed flush has lost.

The shim writes a journal of what processes did to the files of a disk:

    N  a new file                       K  a file got a name
    W  a page will change: its old bytes, and the size of the file
    B  a flush begins, S  it succeeded, F  it failed, L  it failed and lost what it should flush

From it follows what would be on the disk. A page that was written and not flushed since may be
there or not: `rng` chooses, page by page. A page that a failed flush has lost is not there, until
it is written and flushed again; the flushes of other pages do not bring it back. A file that was
never flushed since it got its name has none.
"""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

_ENTRY: Final = struct.Struct("=IIQQqqQ")
_PAGE: Final = 4096

Inode: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Cut:
    """What a power cut took."""

    pages: int
    names: int


@dataclass(slots=True)
class _Entry:
    kind: str
    inode: Inode
    position: int
    size: int
    call: int
    data: bytes


@dataclass(slots=True)
class _File:
    old: dict[int, bytes] = field(default_factory=dict)
    """What the disk holds of pages that differ from what a process would read."""
    dirty: dict[int, int] = field(default_factory=dict)
    """Pages that the next flush writes, and when they were last written to."""
    size: int | None = None
    """What the disk takes for the size; None: the size it has."""
    written_at: int = 0
    begun: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Flushes under way: when they began, and the size then."""

    def happened(self, entry: _Entry, at: int) -> None:
        match entry.kind:
            case "W":
                self._written(entry, at)
            case "B":
                self.begun[entry.call] = (at, entry.size)
            case "S":
                self._flushed(*self.begun.pop(entry.call))
            case "L":
                began_at, _ = self.begun.pop(entry.call)
                self.dirty = {page: at for page, at in self.dirty.items() if at > began_at}
            case "F":
                del self.begun[entry.call]

    def _written(self, entry: _Entry, at: int) -> None:
        page = entry.position // _PAGE
        self.old.setdefault(page, entry.data)
        self.dirty[page] = self.written_at = at
        if self.size is None:
            self.size = entry.size

    def _flushed(self, began_at: int, size: int) -> None:
        for page in [page for page, at in self.dirty.items() if at < began_at]:
            del self.dirty[page], self.old[page]
        self.size = None if self.written_at < began_at else size


def cut(journal: Path, data: Path, rng: random.Random) -> Cut:
    """Make of the files below `data` what a power cut would have left of them."""
    files: dict[Inode, _File] = {}
    names: dict[Path, tuple[Inode, Inode]] = {}
    for at, entry in enumerate(_entries(journal.read_bytes()), 1):
        if entry.kind == "N":  # The inode may have been another file's.
            files.pop(entry.inode, None)
        elif entry.kind == "K":
            path = Path(entry.data.decode())
            names[path] = (entry.inode, _inode(path.parent))
        elif entry.kind == "S":
            names = {path: ids for path, ids in names.items() if entry.inode not in ids}
        files.setdefault(entry.inode, _File()).happened(entry, at)
    nameless = [path for path in names if path.exists()]
    for path in [*nameless, *data.glob("*-shm")]:
        path.unlink()
    pages = sum(
        _restore(path, files[_inode(path)], rng)
        for path in sorted(data.rglob("*"))
        if path.is_file() and _inode(path) in files
    )
    return Cut(pages=pages, names=len(nameless))


def _entries(journal: bytes) -> Iterator[_Entry]:
    at = 0
    while at + _ENTRY.size <= len(journal):
        kind, length, device, inode, position, size, call = _ENTRY.unpack_from(journal, at)
        at += _ENTRY.size
        yield _Entry(chr(kind), (device, inode), position, size, call, journal[at : at + length])
        at += length


def _restore(path: Path, file: _File, rng: random.Random) -> int:
    lost = [page for page in file.old if page not in file.dirty or rng.random() < 0.5]
    size = path.stat().st_size
    with path.open("r+b") as sink:
        for page in lost:
            sink.seek(page * _PAGE)
            room = max(0, size - page * _PAGE)
            sink.write(file.old[page].ljust(_PAGE, b"\0")[:room])
        if file.size is not None and rng.random() < 0.5:
            sink.truncate(file.size)
    return len(lost)


def _inode(path: Path) -> Inode:
    status = path.stat()
    return status.st_dev, status.st_ino
