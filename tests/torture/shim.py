"""A disk that fails as it is told, under real processes: `shim.c`, loaded with LD_PRELOAD.

    disk = Disk(tmp_path, shim)
    with embedded(tmp_path, disk).start() as gateway:
        disk.fail(Call.SYNC, Part.LOG, errno.EIO, every=3)
        ...
        disk.heal()
        gateway.kill()
        disk.cut_power(random.Random(1))

Any number of processes may share a disk; a change is seen by all of them with their next call.
"""

import errno
import mmap
import random
import shutil
import struct
import subprocess
from collections.abc import Mapping
from enum import IntFlag
from pathlib import Path
from typing import Final

from tests.torture import power

SOURCE: Final = Path(__file__).with_name("shim.c")

_MET_AT: Final = 24
_FAILED_AT: Final = 32
_SLEEP_AT: Final = 40


class Call(IntFlag):
    """What fails. `OPEN` is only what opens a file to write."""

    READ = 1
    WRITE = 2
    SYNC = 4
    OPEN = 8
    LINK = 16
    UNLINK = 32
    TRUNCATE = 64


class Part(IntFlag):
    """Whose calls fail: those on objects, on the SQLite file, on its write-ahead log."""

    OBJECTS = 1
    DATABASE = 2
    LOG = 4
    TABLE = 6
    ALL = 7


def build(folder: Path) -> Path | str:
    """Compile the shim into `folder`; return where it is, or why there is none."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return "there is no C compiler (cc, gcc or clang)"
    library = folder / "shim.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", str(library), str(SOURCE)]
    done = subprocess.run([*command, "-ldl"], capture_output=True, text=True)
    if done.returncode:
        return f"{compiler} does not compile the shim: {done.stderr[:500]}"
    return library


class Disk:
    """The disk under `folder / "data"`, which is well until it is told otherwise."""

    def __init__(self, folder: Path, library: Path, *, has_journal: bool = False) -> None:
        self.data = folder.resolve() / "data"
        self._library = library
        self._control_path = folder / "disk.control"
        self._control_path.write_bytes(bytes(4096))
        with self._control_path.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), 4096)
        self._journal = folder / "disk.journal" if has_journal else None
        if self._journal is not None:
            self._journal.touch()

    @property
    def env(self) -> Mapping[str, str]:
        """What a process needs to use this disk."""
        env = {
            "LD_PRELOAD": str(self._library),
            "SHIM_ROOT": str(self.data),
            "SHIM_CONTROL": str(self._control_path),
        }
        if self._journal is not None:
            env["SHIM_JOURNAL"] = str(self._journal)
        return env

    def fail(
        self,
        calls: Call,
        parts: Part = Part.ALL,
        error: int = errno.EIO,
        *,
        every: int = 1,
        loses: bool = False,
    ) -> None:
        """From now on one of `every` such calls fails.

        `loses`: a flush that fails loses what it should have flushed, though it can still be
        read until the power goes, and the next flush succeeds. Linux does that.
        """
        self.heal()
        struct.pack_into("=IiII", self._control, 4, parts, error, every, loses)
        self._control[_MET_AT : _FAILED_AT + 8] = bytes(16)
        struct.pack_into("=I", self._control, 0, calls)

    def heal(self) -> None:
        """From now on nothing fails."""
        struct.pack_into("=I", self._control, 0, 0)

    def slow_down(self, seconds: float) -> None:
        """Let every flush take so much longer."""
        struct.pack_into("=Q", self._control, _SLEEP_AT, round(seconds * 1e6))

    @property
    def failed(self) -> int:
        """How many calls failed since `fail` was called."""
        count: int = struct.unpack_from("=Q", self._control, _FAILED_AT)[0]
        return count

    def cut_power(self, rng: random.Random) -> power.Cut:
        """Take away what was never flushed, as a power cut would. No process may be left."""
        assert self._journal is not None, "this disk was made without a journal"
        cut = power.cut(self._journal, self.data, rng)
        self._journal.write_bytes(b"")
        return cut


def shifted_clock(library: Path, shift_s: int) -> Mapping[str, str]:
    """What a process needs whose wall clock is wrong by `shift_s`."""
    return {"LD_PRELOAD": str(library), "SHIM_SHIFT_S": str(shift_s)}
