"""The task of the object sink: fills files, stores those that are cut, says what is committable."""

import asyncio
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from service.connect.config.values import Values
from service.connect.connectors.api import TaskContext, TopicPartition
from service.connect.connectors.objects.cutting.partition import (
    FileLayout,
    OpenFile,
    PartitionFiles,
)
from service.connect.connectors.objects.keys import KEYS
from service.connect.connectors.objects.layout import layout_of
from service.connect.connectors.objects.stores import Files, open_files
from service.connect.data.errors import DataFault, TaskFault
from service.connect.data.records import ConnectRecord, FromLog

STORES_AT_ONCE: Final = 4
"""Files of a cut that are sent at the same time."""

MEMORY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of open files together; more is written to the scratch folder of this machine."""

SPILL_BYTES_MIN: Final = 64 * 1024
"""Files with less in memory stay there."""

REPLACE_S: Final = 120.0
"""So long after it has taken up a partition, a task replaces files that have other bytes: its
predecessor may have stored them, and died before it committed, with other settings or another
version of a library. Later they are another writer's, or this task was stopped for a while."""

SPILL_EVERY: Final = 1000
"""Records between two looks at the memory."""


class ObjectSink:
    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._values = Values(KEYS, context.config)
        self._partitions: dict[TopicPartition, PartitionFiles] = {}
        self._scratch: Path | None = None
        self._layout: FileLayout | None = None
        self._files: Files | None = None
        self._stored_count = 0
        self._monotonic_s = context.environment.world.monotonic_s

    async def start(self) -> None:
        environment = self._context.environment
        self._files = await asyncio.to_thread(open_files, self._values, environment.files)
        self._scratch = Path(await asyncio.to_thread(tempfile.mkdtemp, "", "riacho-objects-"))
        self._layout = layout_of(self._values, self._scratch, environment.world.now_ms)

    async def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Drop open files of partitions that this task has lost; the group knows where to go on."""
        for gone in self._partitions.keys() - set(partitions):
            self._partitions.pop(gone).drop()
        return {}

    async def put(self, records: Sequence[ConnectRecord]) -> None:
        # Repeating this with the same records is harmless: those that were taken are known.
        await self._store_cuts()
        done = 0
        while done < len(records):
            done, fault = await asyncio.to_thread(self._take, records, done)
            if fault is not None:
                await self._give_up(records[done], fault)
                done += 1
            await self._store_cuts()
        if not records:
            await self.flush()

    async def flush(self) -> None:
        """Store all files that are cut; those that are open stay so."""
        for partition in self._partitions.values():
            partition.cut_in_time()
        await self._store_cuts()

    def committable(self) -> Mapping[TopicPartition, int]:
        found = ((at, each.committable) for at, each in self._partitions.items())
        return {at: offset for at, offset in found if offset is not None}

    async def stop(self) -> None:
        self._partitions.clear()
        if self._files is not None:
            await self._files.close()
        if self._scratch is not None:
            await asyncio.to_thread(shutil.rmtree, self._scratch, ignore_errors=True)

    def _take(self, records: Sequence[ConnectRecord], start: int) -> tuple[int, DataFault | None]:
        """Take records until something must be done first; return how far it came."""
        for number in range(start, len(records)):
            record = records[number]
            at, offset = _place(record)
            partition = self._partition(at)
            if partition.has_taken(offset):
                continue
            try:
                if record.value is None:
                    if self._values["behavior.on.null.values"].lower() == "fail":
                        return number, DataFault(f"the record at {offset} of {at} has no value")
                    partition.skip(offset)
                elif not partition.take(record, offset):
                    return number, None
            except DataFault as fault:
                return number, fault
            if partition.has_cut:
                return number + 1, None
            if number % SPILL_EVERY == 0:
                self._spill()
        return len(records), None

    async def _give_up(self, record: ConnectRecord, fault: DataFault) -> None:
        await self._context.report(record, fault)
        at, offset = _place(record)
        self._partition(at).skip(offset)

    async def _store_cuts(self) -> None:
        for partition in self._partitions.values():
            if not partition.has_cut:
                continue
            files = partition.cut_files()
            may_replace = self._monotonic_s() - partition.since_s < REPLACE_S
            free = asyncio.Semaphore(STORES_AT_ONCE)
            results = await asyncio.gather(
                *(self._store(each, free, may_replace) for each in files),
                return_exceptions=True,
            )
            for result in results:
                if isinstance(result, BaseException):
                    raise result
            partition.stored()
            self._stored_count += len(files)
            self._context.metric("files_stored", self._stored_count)

    async def _store(self, file: OpenFile, free: asyncio.Semaphore, may_replace: bool) -> None:
        assert self._files is not None, "not started"
        async with free:
            await self._files.store(file.name, file.spool, may_replace=may_replace)

    def _partition(self, at: TopicPartition) -> PartitionFiles:
        assert self._layout is not None, "not started"
        found = self._partitions.get(at)
        if found is None:
            found = self._partitions[at] = PartitionFiles(at, self._layout, self._monotonic_s())
        return found

    def _spill(self) -> None:
        spools = [spool for each in self._partitions.values() for spool in each.spools]
        if sum(spool.memory_bytes for spool in spools) <= MEMORY_BYTES_MAX:
            return
        for spool in spools:
            if spool.memory_bytes >= SPILL_BYTES_MIN:
                spool.spill()


def _place(record: ConnectRecord) -> tuple[TopicPartition, int]:
    origin = record.origin
    if not isinstance(origin, FromLog):
        raise TaskFault("an object sink takes records of the log only")
    return TopicPartition(origin.topic, origin.partition), origin.offset
