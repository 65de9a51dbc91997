"""The open files of one partition of the log, and where they are cut.

All files of a partition are cut at one offset. So before that offset everything is in the store,
and after it nothing, and whoever reads on from there opens the same files and cuts them at the same
records: the names are equal, and the bytes. Only rotation by the wall clock breaks that.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from service.connect.connectors.api import TopicPartition
from service.connect.connectors.objects.cutting.compatibility import begins_file, project
from service.connect.connectors.objects.formats.api import FileWriter, OpenWriter
from service.connect.connectors.objects.formats.spool import Spool
from service.connect.connectors.objects.placing.partitioners import Partitioner
from service.connect.connectors.objects.placing.times import Extractor
from service.connect.data.records import ConnectRecord
from service.connect.data.schema import ConnectSchema

FILES_MAX: Final = 500
"""Open files of a partition of the log: one more folder, and all are cut."""

HELD_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of values of a partition of the log that formats hold back to write them together."""


@dataclass(frozen=True, kw_only=True)
class FileLayout:
    """What a configuration says of files, as functions."""

    begin: OpenWriter
    folder: Partitioner
    time: Extractor
    name: Callable[[str, str, TopicPartition, int], str]
    """Takes the topic, the folder, the partition and the offset of the first record."""
    new_path: Callable[[], Path]
    """Returns a path in this machine's scratch folder that is not used yet."""
    now_ms: Callable[[], int]
    flush_records: int
    file_bytes_max: int
    rotate_ms: int
    """Of the time of records; 0: never."""
    is_wallclock: bool
    is_by_time: bool
    """Whether the folder follows from the time."""
    next_schedule_ms: Callable[[int], int] | None
    compatibility: str


@dataclass(kw_only=True)
class OpenFile:
    name: str
    schema: ConnectSchema | None
    spool: Spool
    writer: FileWriter
    is_finished: bool = False


@dataclass(kw_only=True)
class Fill:
    """What is in the open files since the last cut."""

    first_offset: int
    base_ms: int
    schedule_ms: int | None
    folder: tuple[str, str]
    """Of the latest record."""
    record_count: int = 0
    size_bytes: int = 0
    held_bytes: int = 0
    files: dict[tuple[str, str], OpenFile] = field(default_factory=dict)


class PartitionFiles:
    def __init__(self, at: TopicPartition, layout: FileLayout, since_s: float) -> None:
        self._at = at
        self.since_s = since_s
        """When this task took the partition up, by the monotonic clock."""
        self._layout = layout
        self._next: int | None = None
        self._open: Fill | None = None
        self._cut: Fill | None = None

    @property
    def committable(self) -> int | None:
        """The offset before which everything is in the store; None: nothing was put yet."""
        for fill in (self._cut, self._open):
            if fill is not None:
                return fill.first_offset
        return self._next

    @property
    def spools(self) -> list[Spool]:
        fills = (fill for fill in (self._cut, self._open) if fill is not None)
        return [each.spool for fill in fills for each in fill.files.values()]

    @property
    def has_cut(self) -> bool:
        """Whether files are cut and not stored: `take` must wait."""
        return self._cut is not None

    def cut_files(self) -> list[OpenFile]:
        """Return what must be stored before `stored` is called."""
        return [] if self._cut is None else list(self._cut.files.values())

    def stored(self) -> None:
        """Forget the files of the cut: all of them are in the store."""
        for spool in self.spools:
            spool.drop()
        self._cut = None

    def drop(self) -> None:
        for spool in self.spools:
            spool.drop()
        self._cut = self._open = None

    def has_taken(self, offset: int) -> bool:
        """Return whether a record was taken or skipped before."""
        return self._next is not None and offset < self._next

    def take(self, record: ConnectRecord, offset: int) -> bool:
        """Take a record; False: nothing was done, store `cut_files` and repeat the call.

        A record that was taken before is taken again without effect. Raises `DataFault` for a
        record that no file can have; `skip` it then.
        """
        assert self._cut is None, "the last cut is not stored"
        if self.has_taken(offset):
            return True
        time_ms = self._layout.time(record)
        folder = (record.topic, self._layout.folder(record))
        if self._open is not None and self._must_cut_before(self._open, record, folder, time_ms):
            self._close()
            return False
        self._append(record, offset, folder, time_ms)
        self._next = offset + 1
        fill = self._open
        if fill is not None and self._is_full(fill):
            self._close()
        return True

    def skip(self, offset: int) -> None:
        """Go on behind a record that is not stored, since it was given up."""
        self._next = max(offset + 1, self._next or 0)

    def cut_in_time(self) -> None:
        """Cut what the wall clock says is old enough, though no record has come."""
        fill, now_ms = self._open, self._layout.now_ms()
        if fill is None or self._cut is not None:
            return
        rotate_ms = self._layout.rotate_ms if self._layout.is_wallclock else 0
        is_old = rotate_ms and now_ms - fill.base_ms >= rotate_ms
        if is_old or (fill.schedule_ms is not None and now_ms >= fill.schedule_ms):
            self._close()

    def _append(
        self, record: ConnectRecord, offset: int, folder: tuple[str, str], time_ms: int
    ) -> None:
        file = None if self._open is None else self._open.files.get(folder)
        if file is None:
            file = self._begin(record, offset, folder)
        value = project(record.value_schema, file.schema, record.value)
        checked = file.writer.check(value)
        # From here nothing is refused: a file is opened only for a record that it can have.
        fill = self._open
        if fill is None:
            plan = self._layout.next_schedule_ms
            schedule_ms = None if plan is None else plan(self._layout.now_ms())
            fill = Fill(
                first_offset=offset, base_ms=time_ms, schedule_ms=schedule_ms, folder=folder
            )
            self._open = fill
        fill.files[folder] = file
        fill.folder = folder
        fill.record_count += 1
        size_bytes, held_bytes = file.spool.size_bytes, file.writer.held_bytes
        file.writer.append(checked)
        fill.size_bytes += file.spool.size_bytes - size_bytes
        fill.held_bytes += file.writer.held_bytes - held_bytes
        if fill.held_bytes >= HELD_BYTES_MAX:
            self._settle(fill)

    def _settle(self, fill: Fill) -> None:
        # Where this happens follows from the records, as the bytes of all files must.
        before_bytes = sum(each.spool.size_bytes for each in fill.files.values())
        for each in fill.files.values():
            each.writer.settle()
        fill.size_bytes += sum(each.spool.size_bytes for each in fill.files.values()) - before_bytes
        fill.held_bytes = 0

    def _begin(self, record: ConnectRecord, offset: int, folder: tuple[str, str]) -> OpenFile:
        name = self._layout.name(*folder, self._at, offset)
        spool = Spool(self._layout.new_path())
        schema = record.value_schema
        writer = self._layout.begin(spool, schema, name)
        return OpenFile(name=name, schema=schema, spool=spool, writer=writer)

    def _must_cut_before(
        self, fill: Fill, record: ConnectRecord, folder: tuple[str, str], time_ms: int
    ) -> bool:
        layout = self._layout
        if layout.rotate_ms:
            if time_ms - fill.base_ms >= layout.rotate_ms:
                return True
            if layout.is_by_time and folder != fill.folder:
                return True
        if fill.schedule_ms is not None and layout.now_ms() >= fill.schedule_ms:
            return True
        file = fill.files.get(folder)
        if file is None:
            return len(fill.files) >= FILES_MAX
        return begins_file(layout.compatibility, record.value_schema, file.schema)

    def _is_full(self, fill: Fill) -> bool:
        if fill.record_count >= self._layout.flush_records:
            return True
        return fill.size_bytes >= self._layout.file_bytes_max

    def _close(self) -> None:
        assert self._open is not None, "nothing to cut"
        self._cut, self._open = self._open, None
        for file in self._cut.files.values():
            if not file.is_finished:
                file.writer.finish()
                file.is_finished = True
