"""What a sink's file holds of which connector, in a file beside it: `<file>.riacho`.

    {"length": 1200,                                   of the file, when nothing is pending
     "writers": {"my-sink": {"owner": "9f…", "next": [["t", 0, 17]]}},
     "pending": {"writer": "my-sink", "size": 80, "crc": 123, "next": [["t", 0, 19]]}}

A write is three steps: the ledger says what is about to be appended, the file gets it, and the next
ledger takes the pending part in. After a crash, the bytes behind `length` tell which step was the
last: all of them are there, then they count; or some, then they are cut off; or none.

Each change is made under a lock (`<file>.riacho-lock`), and only by the task that opened the ledger
last. One that was held up, and replaced, finds another owner and changes nothing.

All of this blocks: call it in a thread.
"""

import fcntl
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

import msgspec

from service.connect.connectors.api import Environment, TopicPartition
from service.connect.connectors.guarded_files import HeldFolder, held_folder
from service.connect.data.errors import RetriableFault, TaskFault

Next: TypeAlias = list[tuple[str, int, int]]
"""Topic, partition, and the offset of the record that follows."""

LEDGER: Final = ".riacho"
LOCK: Final = ".riacho-lock"
_NEW: Final = ".riacho-new"
LEDGER_BYTES_MAX: Final = 16 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024


class FileBusy(RetriableFault):
    """The lock is held: for a moment, unless its holder is paused."""


class _Writer(msgspec.Struct):
    owner: str
    next: Next = []


class _Pending(msgspec.Struct):
    writer: str
    size: int
    crc: int
    next: Next


class _Ledger(msgspec.Struct):
    length: int = 0
    writers: dict[str, _Writer] = {}
    pending: _Pending | None = None


_DECODER: Final = msgspec.json.Decoder(_Ledger)


class LineFile:
    """A file that one connector at a time appends to, each record once."""

    def __init__(self, environment: Environment, name: str, writer: str) -> None:
        self._environment = environment
        self._name = name
        self._writer = writer
        self._owner = environment.world.new_version()

    def open(self) -> Mapping[TopicPartition, int]:
        """Become the one that appends; return the next offset of each partition."""
        with self._locked() as folder:
            ledger = self._settled(folder)
            mine = ledger.writers.setdefault(self._writer, _Writer(self._owner))
            mine.owner = self._owner
            self._store(folder, ledger)
            return {TopicPartition(topic, n): offset for topic, n, offset in mine.next}

    def append(self, data: bytes, after: Mapping[TopicPartition, int]) -> None:
        """Append and make durable, with the next offset of each partition that this holds."""
        with self._locked() as folder:
            ledger = self._settled(folder)
            mine = self._mine(ledger)
            held = {(topic, n): offset for topic, n, offset in mine.next}
            held.update({(at.topic, at.partition): offset for at, offset in after.items()})
            rows = [(topic, n, offset) for (topic, n), offset in sorted(held.items())]
            ledger.pending = _Pending(self._writer, len(data), zlib.crc32(data), rows)
            self._store(folder, ledger)
            self._extend(folder, data)

    def alter(self, wanted: Mapping[TopicPartition, int | None]) -> None:
        """Change the next offset of these partitions; None: hold none."""
        with self._locked() as folder:
            ledger = self._settled(folder)
            mine = self._mine(ledger)
            held = {(topic, n): offset for topic, n, offset in mine.next}
            for at, offset in wanted.items():
                held.pop((at.topic, at.partition), None)
                if offset is not None:
                    held[at.topic, at.partition] = offset
            mine.next = [(topic, n, offset) for (topic, n), offset in sorted(held.items())]
            self._store(folder, ledger)

    def _mine(self, ledger: _Ledger) -> _Writer:
        mine = ledger.writers.get(self._writer)
        if mine is None or mine.owner != self._owner:
            raise TaskFault(f"another task of {self._writer} has taken over {self._name}")
        return mine

    def close(self) -> None:
        """Take in what is pending, so that somebody may move the file away."""
        with self._locked() as folder:
            self._store(folder, self._settled(folder))

    def _extend(self, folder: HeldFolder, data: bytes) -> None:
        file = folder.open(os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            _write(file, data)
            os.fsync(file)
        finally:
            os.close(file)
        folder.sync()

    def _settled(self, folder: HeldFolder) -> _Ledger:
        """Return the ledger with nothing pending, and cut off what is half written."""
        ledger = self._load(folder)
        size = _size(folder)
        pending, ledger.pending = ledger.pending, None
        if pending is not None:
            whole = ledger.length + pending.size
            if size >= whole and _crc(folder, ledger.length, pending.size) == pending.crc:
                ledger.writers[pending.writer].next = pending.next
            elif ledger.length < size <= whole:
                _cut(folder, ledger.length)
                size = ledger.length
            elif size > whole:
                raise TaskFault(
                    f"{folder.path} has bytes behind {ledger.length} that are not what "
                    f"{self._writer} wrote: move it and {folder.path}{LEDGER} away"
                )
        # Shorter: it was emptied or moved away since. Longer: others append to it, too.
        ledger.length = size
        return ledger

    def _load(self, folder: HeldFolder) -> _Ledger:
        try:
            opened = folder.open(os.O_RDONLY, suffix=LEDGER)
        except FileNotFoundError:
            return _Ledger(length=_size(folder))
        with os.fdopen(opened, "rb") as file:
            data = file.read(LEDGER_BYTES_MAX)
        try:
            return _DECODER.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise TaskFault(
                f"{folder.path}{LEDGER} is not the ledger of a file sink ({error}): move it away, "
                "and the sink reads on from the offsets of its group"
            ) from error

    def _store(self, folder: HeldFolder, ledger: _Ledger) -> None:
        file = folder.open(os.O_WRONLY | os.O_CREAT | os.O_TRUNC, suffix=_NEW)
        try:
            _write(file, msgspec.json.encode(ledger))
            os.fsync(file)
        finally:
            os.close(file)
        folder.rename(_NEW, LEDGER)
        folder.sync()

    @contextmanager
    def _locked(self) -> Iterator[HeldFolder]:
        with held_folder(self._environment, self._name) as folder:
            lock = folder.open(os.O_RDWR | os.O_CREAT, suffix=LOCK)
            try:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise FileBusy(f"another task is writing to {self._name}") from None
                yield folder
            finally:
                os.close(lock)


def _write(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _size(folder: HeldFolder) -> int:
    try:
        file = folder.open(os.O_RDONLY)
    except FileNotFoundError:
        return 0
    try:
        return os.fstat(file).st_size
    finally:
        os.close(file)


def _crc(folder: HeldFolder, start: int, size: int) -> int:
    crc = 0
    with os.fdopen(folder.open(os.O_RDONLY), "rb") as file:
        file.seek(start)
        while size and (chunk := file.read(min(size, _CHUNK_BYTES))):
            crc = zlib.crc32(chunk, crc)
            size -= len(chunk)
    return crc


def _cut(folder: HeldFolder, length: int) -> None:
    file = folder.open(os.O_WRONLY)
    try:
        os.ftruncate(file, length)
        os.fsync(file)
    finally:
        os.close(file)
