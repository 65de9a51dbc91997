"""Reads the lines of a file, and waits for more at its end.

The position is Kafka's, `{"filename": …}` -> `{"position": …}` in bytes, with what the file began
with when it was read: `head_bytes` of it have the digest `head`. If they have another one now, or
the file is shorter than the position, it is another file under the same name, and it is read from
its beginning. So nothing is read twice because the file was moved to another disk.

The file is opened by each poll: one that is removed and made again is found again.
"""

import asyncio
import hashlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from service.connect.config.values import Values
from service.connect.connectors.api import TaskContext
from service.connect.connectors.file_stream.lines import whole_lines
from service.connect.connectors.guarded_files import open_below
from service.connect.data.errors import DataFault, RetriableFault, TaskFault
from service.connect.data.records import ConnectRecord, FromSource
from service.connect.data.schema import BYTES, STRING

log = logging.getLogger("riacho")

LINE_BYTES_MAX: Final = 1024 * 1024
"""A longer line is given up. The log takes no larger records unless it is told to."""

READ_BYTES: Final = 4 * LINE_BYTES_MAX
"""Of one poll at most, which is always enough for a line."""

HEAD_BYTES_MAX: Final = 1024
WAIT_S: Final = 0.5
"""Between two looks at a file that has nothing new."""

AS_BYTES: Final = "bytes"
ENCODINGS: Final = ("UTF-8", "ISO-8859-1", "US-ASCII", "windows-1252", AS_BYTES)
"""All with the line ends of ASCII."""


@dataclass(frozen=True, slots=True)
class _Window:
    """Bytes of the file from `start`, and by what to recognise the file."""

    data: bytes = b""
    start: int = 0
    head: bytes = b""

    def offset(self, position: int) -> dict[str, Any]:
        head = self.head[:position]
        return {"position": position, "head": _digest(head), "head_bytes": len(head)}


class FileSource:
    def __init__(self, context: TaskContext, values: Values) -> None:
        self._context = context
        self._file: str = values["file"]
        self._topic: str = values["topic"]
        self._batch_size: int = values["batch.size"]
        self._encoding: str = values["encoding"]
        self._partition = {"filename": self._file}
        self._offset: Mapping[str, Any] = {}
        self._window = _Window()
        self._in_long_line = False

    async def start(self) -> None:
        [offset] = await self._context.offsets.read([self._partition])
        self._offset = offset or {}
        position = self._offset.get("position", 0)
        if type(position) is not int or position < 0:
            raise TaskFault(f"the position of {self._file} is {position!r}, not a count of bytes")

    async def poll(self, wait_s: float, records_max: int) -> Sequence[ConnectRecord]:
        records: list[ConnectRecord] = []
        lines_max = min(records_max, self._batch_size)
        lines = self._lines(lines_max)
        if not lines:
            await self._read_on()
            lines = self._lines(lines_max)
        for line, end in lines:
            await self._add(records, line, self._window.offset(self._window.start + end))
        if lines:
            return records
        if len(self._window.data) > LINE_BYTES_MAX:
            await self._give_up()
        else:
            # Nobody but time can tell that there is more.
            await self._context.environment.world.sleep(min(wait_s, WAIT_S))
        return records

    async def committed(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def _add(
        self, records: list[ConnectRecord], line: bytes, offset: Mapping[str, Any]
    ) -> None:
        self._offset = offset
        if self._in_long_line:
            self._in_long_line = False
            return
        raw = self._record(line, offset, BYTES)
        if len(line) > LINE_BYTES_MAX:
            await self._context.report(raw, self._too_long(offset))
        elif self._encoding == AS_BYTES:
            records.append(raw)
        else:
            try:
                records.append(self._record(line.decode(self._encoding), offset, STRING))
            except UnicodeDecodeError as error:
                fault = DataFault(
                    f"the line of {self._file} that ends at byte {offset['position']} is not "
                    f"{self._encoding}: {error.reason} at byte {error.start} of the line"
                )
                await self._context.report(raw, fault)

    async def _give_up(self) -> None:
        """Step over the part of a long line that was read; the rest follows with the next polls."""
        window = self._window
        # A carriage return at the end may be half of the line's end.
        offset = window.offset(window.start + len(window.data) - 1)
        if not self._in_long_line:
            first = self._record(window.data[:HEAD_BYTES_MAX], offset, BYTES)
            await self._context.report(first, self._too_long(offset))
        # Only here: what is committed stays at the start of the line, so it is found long again.
        self._in_long_line, self._offset = True, offset

    def _too_long(self, offset: Mapping[str, Any]) -> DataFault:
        return DataFault(
            f"the line of {self._file} before byte {offset['position']} has more than "
            f"{LINE_BYTES_MAX} bytes"
        )

    def _record(self, value: Any, offset: Mapping[str, Any], schema: Any) -> ConnectRecord:
        return ConnectRecord(
            topic=self._topic,
            partition=None,
            key=None,
            value=value,
            value_schema=schema,
            timestamp_ms=self._context.environment.world.now_ms(),
            origin=FromSource(self._partition, offset),
        )

    def _lines(self, lines_max: int) -> list[tuple[bytes, int]]:
        """Return the next lines that have been read from the file."""
        return whole_lines(self._window.data, self._position - self._window.start, lines_max)

    @property
    def _position(self) -> int:
        return int(self._offset.get("position", 0))

    async def _read_on(self) -> None:
        try:
            self._window = await asyncio.to_thread(self._look)
        except FileNotFoundError:
            self._window = _Window(start=self._position)
        except PermissionError as error:
            raise TaskFault(f"{self._file} may not be read by this process: {error}") from error
        except OSError as error:
            raise RetriableFault(f"{self._file} cannot be read: {error}") from error

    def _look(self) -> _Window:
        with _opened(open_below(self._context.environment, self._file, os.O_RDONLY)) as file:
            size = os.fstat(file).st_size
            if self._position > size or not self._is_the_same(file):
                log.info(
                    "a file was replaced or truncated, and is read from its beginning",
                    extra={"file": self._file, "position": self._position, "size_bytes": size},
                )
                self._offset, self._in_long_line = {}, False
            head = os.pread(file, HEAD_BYTES_MAX, 0)
            return _Window(os.pread(file, READ_BYTES, self._position), self._position, head)

    def _is_the_same(self, file: int) -> bool:
        head_bytes = int(self._offset.get("head_bytes", 0))
        if not 0 < head_bytes <= HEAD_BYTES_MAX:
            # A position that somebody set by hand is of the file that is there.
            return True
        return _digest(os.pread(file, head_bytes, 0)) == self._offset.get("head")


def _digest(head: bytes) -> str:
    return hashlib.sha256(head).hexdigest()[:32]


@contextmanager
def _opened(file: int) -> Iterator[int]:
    try:
        yield file
    finally:
        os.close(file)
