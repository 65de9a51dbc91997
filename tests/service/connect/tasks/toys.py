"""A toy source, whose table is a list, and processes that run it on shared stores."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from service.connect.access.parts import ConnectParts
from service.connect.config.keys import Config
from service.connect.connectors.api import Plugin, PluginKind, TaskContext
from service.connect.connectors.environment import environment_of
from service.connect.data.errors import TaskFault
from service.connect.data.records import ConnectRecord, FromSource
from service.connect.rest.store import ConnectorStore
from service.connect.running.assembly import runner_of
from service.connect.running.run import Timing
from service.connect.running.runner import ConnectRunner
from service.connect.tasks.items import (
    ConnectorItem,
    TaskItem,
    decode_connector,
    decode_task,
    encode_connector,
    encode_task,
)
from service.groups.coordinator import Coordinator
from service.groups.offsets import Offsets
from service.log.gateway import Gateway, Position, Wait
from service.process.references.references import SecretReferences
from service.security.acl_items import AclItems
from service.security.acls import Acl, Operation, ResourceType
from service.security.assembly import secured
from service.settings import Settings
from service.world.clock import real_world
from storage import keys
from storage.cas import Keep, Patience, Replace, change_item
from storage.errors import UnknownTopicOrPartition
from storage.formats.partitions import PartitionNumber
from storage.reading.reader import Budget
from storage.stores.metadata import MetadataStore, Op, Put, Versioned
from storage.zones.zones import Zones
from tests.storage.helpers.faults import FaultyMetadata, TestObjects
from tests.storage.helpers.worlds import new_metadata

TOY = "test.Toy"
PATIENCE_S = 180.0
"""Ten times what was seen on a busy machine, and more."""

QUICK = Timing(
    tick_s=0.02,
    idle_tick_s=0.02,
    look_s=0.05,
    lease_s=300.0,
    stop_s_max=100.0,
    gauges_s=0.1,
    restart_s_min=0.05,
    restart_s_max=0.2,
)
FLEETING = replace(QUICK, lease_s=3.0)
"""For tests in which a lease expires."""

ALL = Budget(records_max=10**6, bytes_max=10**9)


@dataclass
class Table:
    """What the toy reads: task n reads every n-th row."""

    rows: list[Any] = field(default_factory=list)
    started: list[int] = field(default_factory=list)
    """Numbers of tasks, in the order in which they were started."""
    stopped: int = 0
    released: int = 0
    polls: int = 0
    at_once: int = 10
    faults: list[Exception] = field(default_factory=list)
    """What the next polls raise."""
    keyless: set[int] = field(default_factory=set)
    """Rows whose records have no key."""
    gate: asyncio.Event | None = None
    """Polls wait for it."""

    def plugin(self, class_name: str) -> Plugin | None:
        if class_name != TOY:
            return None
        return Plugin(
            kind=PluginKind.SOURCE,
            class_name=TOY,
            version="1",
            about="",
            keys=(),
            tasks=_numbered,
            make=lambda context: ToySource(self, context),
            promises="each row once",
        )


async def _numbered(config: Config, tasks_max: int, environment: object) -> list[Config]:
    if config.get("broken"):
        raise TaskFault(f"there is no such table, {config['broken']}")
    return [{**config, "task": str(n), "of": str(tasks_max)} for n in range(tasks_max)]


class ToySource:
    def __init__(self, table: Table, context: TaskContext) -> None:
        self._table = table
        self._context = context
        self._number, self._of = int(context.config["task"]), int(context.config["of"])
        self._next = 0
        self._polled = 0

    async def start(self) -> None:
        self._table.started.append(self._number)
        [offset] = await self._context.offsets.read([self._partition])
        self._next = self._number if offset is None else offset["row"] + self._of

    @property
    def _partition(self) -> dict[str, object]:
        return {"task": self._number}

    async def poll(self, wait_s: float, records_max: int) -> Sequence[ConnectRecord]:
        table = self._table
        table.polls += 1
        if table.faults:
            raise table.faults.pop(0)
        if table.gate is not None:
            await table.gate.wait()
        made: list[ConnectRecord] = []
        while self._next < len(table.rows) and len(made) < table.at_once:
            origin = FromSource(self._partition, {"row": self._next})
            topic = self._context.config.get("topic", "t")
            partition = self._next if "spread" in self._context.config else None
            row = table.rows[self._next]
            key = None if self._next in table.keyless else str(self._number)
            made.append(ConnectRecord(topic, partition, key, row, origin=origin))
            self._next += self._of
        if not made:
            await asyncio.sleep(min(wait_s, 0.02))
        self._context.metric("polled", self._next)
        return made

    async def committed(self) -> None:
        self._table.released += 1

    async def stop(self) -> None:
        self._table.stopped += 1


class Stoppable(FaultyMetadata):
    """The table as one process sees it, which may be stopped."""

    def __init__(self, inner: FaultyMetadata) -> None:
        super().__init__(inner, lambda: "none")
        self.going = asyncio.Event()
        self.going.set()

    async def get(self, key: str) -> Versioned | None:
        await self.going.wait()
        found = await self.inner.get(key)
        await self.going.wait()
        return found

    async def get_many(self, keys: Sequence[str]) -> dict[str, Versioned]:
        await self.going.wait()
        found = await self.inner.get_many(keys)
        await self.going.wait()
        return found

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        await self.going.wait()
        versions = await self.inner.transact(ops)
        await self.going.wait()
        return versions


class Deployment:
    """Stores that processes share."""

    def __init__(self, metadata: MetadataStore | None = None) -> None:
        self.table = Table()
        self.metadata = FaultyMetadata(metadata or new_metadata())
        self.objects = TestObjects()

    def process(
        self, worker: str = "w", *, timing: Timing = QUICK, holder: str = "", **given: Any
    ) -> "Process":
        world = real_world()
        settings = Settings.model_validate({"linger_max_ms": 100, "audit": "off", **given})
        table = Stoppable(self.metadata)
        gateway = Gateway(settings, Zones({"a": self.objects}), table, world)
        coordinator = Coordinator(gateway.metadata, gateway.topics, world)
        parts = ConnectParts(
            gateway=gateway,
            offsets=Offsets(gateway.metadata, gateway.topics, coordinator, world),
            environment=environment_of(settings, world),
            references=SecretReferences(environment={"SECRET": "hush-hush"}),
            security=secured(settings, table, world) if settings.security == "on" else None,
        )
        runner = runner_of(
            parts, plugins=self.table.plugin, timing=timing, worker=worker, holder=holder
        )
        return Process(parts, runner, table)

    def stop(self, process: "Process") -> Callable[[], None]:
        """Let nothing reach the process any more, or leave it; return what lets it go on."""
        process.table.going.clear()
        return process.table.going.set

    def die(self, process: "Process") -> None:
        """End a process without a word."""
        process.table.going.clear()
        process.is_dead = True

    async def seen_by_all(self) -> list[str]:
        return await self.process("reader").values()

    async def allow(
        self, principal: str, operation: Operation, kind: ResourceType, name: str
    ) -> None:
        acl = Acl(kind, name, principal, operation)
        await AclItems(self.metadata.inner, real_world()).add([acl])

    async def create(
        self, name: str = "c", *, principal: str = "User:ANONYMOUS", **config: str
    ) -> None:
        given = {
            "name": name,
            "connector.class": TOY,
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            **{key.replace("_", "."): text for key, text in config.items()},
        }
        item = ConnectorItem(name, given, principal, 1)
        await self.metadata.inner.transact(
            [Put(keys.connector(name), encode_connector(item), None)]
        )

    async def delete(self, name: str = "c") -> None:
        """Delete a connector, as the call does: with its tasks."""
        gateway = self.process("caller").parts.gateway
        coordinator = Coordinator(self.metadata, gateway.topics, gateway.world)
        await ConnectorStore(self.metadata, coordinator, gateway.world).delete(name)

    async def change(
        self, change: Callable[[ConnectorItem], ConnectorItem], name: str = "c"
    ) -> None:
        async def decide(item: Versioned | None) -> Keep[None] | Replace[None]:
            assert item is not None
            return Replace(encode_connector(change(decode_connector(item.value))), None)

        await change_item(self.metadata.inner, keys.connector(name), decide, Patience(100))

    async def change_task(self, key: str, change: Callable[[TaskItem], TaskItem]) -> None:
        async def decide(item: Versioned | None) -> Keep[None] | Replace[None]:
            assert item is not None
            return Replace(encode_task(change(decode_task(item.value))), None)

        await change_item(self.metadata.inner, key, decide, Patience(100))

    async def connector(self, name: str = "c") -> ConnectorItem:
        item = await self.metadata.inner.get(keys.connector(name))
        assert item is not None
        return decode_connector(item.value)

    async def tasks(self, name: str = "c") -> list[TaskItem]:
        listed = await self.metadata.inner.list(keys.connect_tasks_of(name))
        return [decode_task(item.value) for _, item in listed]


@dataclass
class Process:
    parts: ConnectParts
    runner: ConnectRunner
    table: Stoppable
    is_dead: bool = False

    async def bury(self) -> None:
        """Take back what a dead process has left in this one."""
        self.table.going.set()
        await self.runner.aclose()

    async def values(self, topic: str = "t", partition: int = 0) -> list[str]:
        """Return all that is in a partition."""
        gateway = self.parts.gateway
        values: list[str] = []
        while True:
            position = Position(offset=len(values))
            try:
                found = await gateway.fetch(
                    topic, PartitionNumber(partition), position, ALL, Wait()
                )
            except UnknownTopicOrPartition:
                return []
            for _, batch in found.fetched.batches(10**9):
                values += [value.decode() for value in batch.column(2).to_pylist()]
            if len(values) == found.high_watermark:
                return values


@asynccontextmanager
async def running(process: Process) -> AsyncIterator[Process]:
    """Run what there is to run meanwhile."""
    task = asyncio.create_task(process.runner.run())
    try:
        yield process
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not process.is_dead:
            process.table.going.set()
            await process.runner.aclose()
            await process.parts.gateway.batcher.aclose()


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait until the condition holds; it may be asynchronous."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            await asyncio.sleep(0.01)
