"""Appends records to a file, a line each, once: the file's ledger holds how far it has come."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from service.connect.config.values import Values
from service.connect.connectors.api import TaskContext, TopicPartition
from service.connect.connectors.file_stream.ledger import FileBusy, LineFile
from service.connect.data.errors import ConnectFault, DataFault, RetriableFault, TaskFault
from service.connect.data.java_text import java_text
from service.connect.data.records import ConnectRecord, FromLog

BUFFER_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of lines that wait for a flush; more are written at once."""

BUSY_ATTEMPTS_MAX: Final = 100
BUSY_S: Final = 0.05

_T = TypeVar("_T")


class FileSink:
    def __init__(self, context: TaskContext, values: Values) -> None:
        self._context = context
        self._file: str = values["file"]
        self._lines = LineFile(context.environment, self._file, context.connector)
        self._opened = False
        self._next: dict[TopicPartition, int] = {}
        self._buffer = bytearray()
        self._buffered: dict[TopicPartition, int] = {}

    async def start(self) -> None:
        self._next = dict(await self._call(self._lines.open))
        self._opened = True

    async def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {each: self._next[each] for each in partitions if each in self._next}

    async def set_positions(self, positions: Mapping[TopicPartition, int | None]) -> None:
        await self._call(lambda: self._lines.alter(positions))
        for at, offset in positions.items():
            self._next.pop(at, None)
            if offset is not None:
                self._next[at] = offset

    async def put(self, records: Sequence[ConnectRecord]) -> None:
        lines: list[bytes] = []
        after: dict[TopicPartition, int] = {}
        for record in records:
            try:
                lines.append(line_of(record))
            except DataFault as error:
                await self._context.report(record, error)
            if isinstance(record.origin, FromLog):
                at = TopicPartition(record.origin.topic, record.origin.partition)
                after[at] = record.origin.offset + 1
        data = b"".join(lines)
        if self._buffered and len(self._buffer) + len(data) > BUFFER_BYTES_MAX:
            # Before these are taken: if it fails, none of them was.
            await self.flush()
        self._buffer += data
        self._buffered |= after

    async def flush(self) -> None:
        if not self._buffered:
            return
        data, after = bytes(self._buffer), dict(self._buffered)
        await self._call(lambda: self._lines.append(data, after))
        self._next |= after
        self._buffer.clear()
        self._buffered.clear()

    async def stop(self) -> None:
        # What was not flushed is forgotten, and put again by another run.
        if self._opened:
            self._opened = False
            # Only a courtesy to those who move the file: the next run does the same.
            with suppress(ConnectFault):
                await self._call(self._lines.close)

    async def _call(self, call: Callable[[], _T]) -> _T:
        for attempt in range(1, BUSY_ATTEMPTS_MAX + 1):
            try:
                return await asyncio.to_thread(call)
            except FileBusy:
                if attempt == BUSY_ATTEMPTS_MAX:
                    raise
                await self._context.environment.world.sleep(BUSY_S)
            except FileNotFoundError as error:
                raise TaskFault(f"{self._file} is in a folder that is missing: make it") from error
            except PermissionError as error:
                raise TaskFault(f"{self._file} may not be written here: {error}") from error
            except OSError as error:
                raise RetriableFault(f"{self._file} cannot be written: {error}") from error
        raise AssertionError("every attempt returns or raises")


def line_of(record: ConnectRecord) -> bytes:
    """Return the value as Java's `println` writes it; bytes as they are."""
    value: Any = record.value
    if isinstance(value, bytes):
        return value + b"\n"
    text = java_text(record.value_schema, value)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError as error:
        raise DataFault(f"the value is not text that UTF-8 can store: {error.reason}") from error
