"""Toy sinks over lists, and single runs of a sink task over real stores in memory."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from service.connect.access.log_access import ConnectorLog
from service.connect.access.parts import ConnectParts
from service.connect.connectors.api import SinkTask, TopicPartition
from service.connect.connectors.environment import environment_of
from service.connect.data.records import ConnectRecord, FromLog
from service.connect.tasks.committing import RunCommits
from service.connect.tasks.errors import ErrorPolicy
from service.connect.tasks.holding import Holding
from service.connect.tasks.items import (
    ConnectorItem,
    TaskItem,
    decode_task,
    encode_connector,
    encode_task,
)
from service.connect.tasks.pipeline import sink_pipeline
from service.connect.tasks.sink import SinkLoop
from service.groups.coordinator import Coordinator
from service.groups.offsets import Offsets
from service.log.gateway import Gateway, Position, Wait
from service.process.references.references import SecretReferences
from service.settings import Settings
from service.world.clock import real_world
from storage import keys
from storage.errors import TopicExists
from storage.formats.partitions import PartitionNumber
from storage.formats.records import record_batch
from storage.leases import Lease
from storage.reading.reader import Budget
from storage.stores.metadata import Put
from storage.zones.zones import Zones
from tests.storage.helpers.faults import FaultyMetadata, TestObjects
from tests.storage.helpers.worlds import new_metadata

PATIENCE_S = 60.0
ALL = Budget(records_max=10**6, bytes_max=10**9)


@dataclass
class Target:
    """What a sink writes to: it survives the sink's death."""

    values: list[Any] = field(default_factory=list)
    """Durable."""
    held: dict[TopicPartition, int] = field(default_factory=dict)
    """Offsets that the target holds itself."""
    holds_offsets: bool = False
    bad: Callable[[Any], Exception | None] = lambda value: None
    """What a put of a value raises, if it is one that is refused as a whole."""
    reported: Callable[[Any], Exception | None] = lambda value: None
    """Why the sink gives up on a value."""
    after_flush: Callable[[], None] = lambda: None
    flushes: int = 0


class ListSink:
    """Keeps what is put until it is flushed."""

    def __init__(self, target: Target, policy: ErrorPolicy) -> None:
        self._target = target
        self._policy = policy
        self._kept: list[ConnectRecord] = []
        self.batches: list[int] = []

    async def start(self) -> None:
        pass

    async def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        held = self._target.held
        return {place: held[place] for place in partitions if place in held}

    async def put(self, records: Sequence[ConnectRecord]) -> None:
        for record in records:
            error = self._target.bad(record.value)
            if error is not None:
                raise error
        self.batches.append(len(records))
        for record in records:
            error = self._target.reported(record.value)
            if error is None:
                self._kept.append(record)
            else:
                await self._policy.report_put(record, error)  # type: ignore[arg-type]

    async def flush(self) -> None:
        self._target.flushes += 1
        for record in self._kept:
            self._target.values.append(record.value)
            origin = record.origin
            assert isinstance(origin, FromLog)
            if self._target.holds_offsets:
                place = TopicPartition(origin.topic, origin.partition)
                self._target.held[place] = origin.offset + 1
        self._kept.clear()
        self._target.after_flush()

    async def stop(self) -> None:
        pass


class FillingSink(ListSink):
    """Makes durable only whole files of ten."""

    async def flush(self) -> None:
        while len(self._kept) >= 10:
            file, self._kept = self._kept[:10], self._kept[10:]
            self._target.values.append([record.value for record in file])
            origin = file[-1].origin
            assert isinstance(origin, FromLog)
            self._target.held[TopicPartition(origin.topic, origin.partition)] = origin.offset + 1

    def committable(self) -> Mapping[TopicPartition, int]:
        return self._target.held


class Rig:
    """Stores, a gateway, and one connector whose tasks are run one at a time."""

    def __init__(self, prefix: str = "", task_count: int = 1, **config: str) -> None:
        self.metadata = FaultyMetadata(new_metadata())
        world = real_world()
        self.gateway = Gateway(
            Settings.model_validate({"linger_max_ms": 20, "head_poll_ms": 20}),
            Zones({"a": TestObjects()}),
            self.metadata,
            world,
        )
        coordinator = Coordinator(self.metadata, self.gateway.topics, world)
        self.offsets = Offsets(self.metadata, self.gateway.topics, coordinator, world)
        self.parts = ConnectParts(
            gateway=self.gateway,
            offsets=self.offsets,
            environment=environment_of(self.gateway.settings, world),
            references=SecretReferences(environment={}),
        )
        self.config = {
            "name": "c",
            "connector.class": "ListSink",
            "topics": "t",
            "key.converter": "StringConverter",
            **{name.replace("__", "."): text for name, text in config.items()},
        }
        self.connector = ConnectorItem(
            f"{prefix}c",
            self.config,
            "User:ANONYMOUS",
            1,
            planned=1,
            task_count=task_count,
            name_prefix=prefix,
        )
        self.runs = 0

    async def create(self) -> None:
        puts = [Put(keys.connector(self.connector.name), encode_connector(self.connector), None)]
        for number in range(self.connector.task_count):
            item = TaskItem(self.connector.name, number, 1)
            key = keys.connect_task(self.connector.name, number)
            puts.append(Put(key, encode_task(item), None))
        await self.metadata.transact(puts)

    async def produce(self, values: Sequence[str], topic: str = "t", partition: int = 0) -> None:
        with suppress(TopicExists):
            await self.gateway.topics.create(topic, partitions=partition + 1, replication_factor=1)
        keys_of = [f"k{n}" for n in range(len(values))]
        batch = record_batch([7] * len(values), keys_of, list(values))
        await self.gateway.produce(topic, batch, batch.nbytes, partition)

    async def run(
        self,
        target: Target,
        done: Callable[[], object],
        *,
        number: int = 0,
        make: Callable[[Target, ErrorPolicy], SinkTask] = ListSink,
        flush_s: float = 0.05,
    ) -> None:
        """Run a task until `done`, then let it end; whatever it raises is raised."""
        self.runs += 1
        world = self.gateway.world
        lease = Lease(
            self.metadata,
            keys.connect_task(self.connector.name, number),
            holder=f"w{self.runs}",
            lease_s=30.0,
            monotonic_s=world.monotonic_s,
            now_ms=world.now_ms,
        )
        assert await lease.keep()
        holding = Holding(self.metadata, world, self.connector, number, lease, f"w{self.runs}")
        await holding.begin("RUNNING")
        policy = ErrorPolicy("c", number, self.config, world)
        await policy.prepare(ConnectorLog(self.parts, self.connector))
        loop = SinkLoop(
            self.parts,
            self.connector,
            number,
            self.config,
            make(target, policy),
            sink_pipeline(self.config, None, policy),
            policy,
            RunCommits(self.parts, holding, self.config),
            records_max=500,
            flush_s=flush_s,
        )
        running = asyncio.create_task(loop.run())
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not running.done():
                    found = done()
                    if asyncio.iscoroutine(found):
                        found = await found
                    if found:
                        break
                    await asyncio.sleep(0.01)
                loop.is_stopping = True
                await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await holding.lease.release()

    async def committed(self, group: str = "connect-c") -> dict[str, int]:
        found = await self.offsets.read(group)
        return {f"{one.topic}-{one.partition}": one.offset for one in found}

    async def task(self, number: int = 0) -> TaskItem:
        item = await self.metadata.get(keys.connect_task(self.connector.name, number))
        assert item is not None
        return decode_task(item.value)

    async def stored(self, topic: str) -> list[tuple[bytes, dict[str, bytes]]]:
        """Return values and headers of all records of a topic's first partition."""
        found = await self.gateway.fetch(
            topic, PartitionNumber(0), Position(at="earliest"), ALL, Wait()
        )
        return [
            (value, {each["key"]: each["value"] for each in headers or ()})
            for _, batch in found.fetched.batches(10**9)
            for value, headers in zip(
                batch.column(2).to_pylist(), batch.column(3).to_pylist(), strict=True
            )
        ]

    async def aclose(self) -> None:
        await self.gateway.aclose()
