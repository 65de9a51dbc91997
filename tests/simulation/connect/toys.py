"""Connectors of the simulation: a source of numbered records, and sinks of three kinds."""

import asyncio
from collections.abc import Mapping, Sequence

from service.connect.config.keys import Config
from service.connect.connectors.api import (
    Environment,
    Plugin,
    PluginKind,
    TaskContext,
    TopicPartition,
)
from service.connect.data.errors import RetriableFault
from service.connect.data.records import ConnectRecord, FromLog, FromSource
from tests.checker.connect_history import BAD_FOR_SINK, BAD_FOR_SOURCE
from tests.simulation.connect.far import SIMULATED, Far, Held

FILLED_RECORDS = 5
FILLED_S = 3.0
"""A file of a sink that fills them is finished when it has so many records, or is so old."""

REPLAN_S = 6.0


class ToySource:
    """Reads the partitions that its configuration names, one after the other."""

    def __init__(self, far: Far, context: TaskContext) -> None:
        self._far = far
        self._context = context
        self._name = context.connector
        self._partitions = [int(each) for each in context.config["partitions"].split(",") if each]
        self._next: dict[int, int] = {}

    async def start(self) -> None:
        asked = [{"partition": number} for number in self._partitions]
        offsets = await self._context.offsets.read(asked)
        for number, offset in zip(self._partitions, offsets, strict=True):
            self._next[number] = 0 if offset is None else offset["number"] + 1

    async def poll(self, wait_s: float, records_max: int) -> Sequence[ConnectRecord]:
        found = await self._far.call(self._new)
        if not found:
            await asyncio.sleep(wait_s)
        for record in found:
            assert isinstance(record.origin, FromSource)
            self._next[record.origin.partition["partition"]] = record.origin.offset["number"] + 1
        return found[:records_max]

    def _new(self) -> list[ConnectRecord]:
        at_once, found = self._far.plan.at_once, list[ConnectRecord]()
        for partition in self._partitions:
            rows, start = self._far.rows_now(self._name, partition), self._next[partition]
            for number in range(start, min(len(rows), start + at_once - len(found))):
                found.append(self._record(partition, number, rows[number]))
        return found

    def _record(self, partition: int, number: int, row: str) -> ConnectRecord:
        is_json = not row.endswith((BAD_FOR_SINK, BAD_FOR_SOURCE))
        return ConnectRecord(
            self._context.config["topic"],
            partition % self._far.plan.topic_partitions,
            # The converter of keys takes whole numbers, and nothing else.
            row if row.endswith(BAD_FOR_SOURCE) else number,
            f'"{row}"' if is_json else row,
            origin=FromSource({"partition": partition}, {"number": number}),
        )

    async def committed(self) -> None:
        await asyncio.sleep(0)

    async def stop(self) -> None:
        pass


class PlainSink:
    """Keeps what is put until it is flushed."""

    def __init__(self, far: Far, context: TaskContext) -> None:
        self._far = far
        self._name = context.connector
        self._kept: list[tuple[TopicPartition, int, str]] = []

    async def start(self) -> None:
        pass

    async def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        del partitions
        return {}

    async def put(self, records: Sequence[ConnectRecord]) -> None:
        far = self._far
        if not far.is_calm and far.chance.random() < far.plan.faults:
            raise RetriableFault(f"{SIMULATED}: the target takes nothing now")
        await asyncio.sleep(0)
        for record in records:
            origin = record.origin
            assert isinstance(origin, FromLog)
            place = TopicPartition(origin.topic, origin.partition)
            self._kept.append((place, origin.offset, record.value))

    async def flush(self) -> None:
        kept = list(self._kept)
        if kept:
            await self._far.call(lambda: self._far.take(self._name, kept))
            del self._kept[: len(kept)]

    async def stop(self) -> None:
        pass


class HoldingSink(PlainSink):
    """Writes the positions together with the records, if they are as it has read them."""

    def __init__(self, far: Far, context: TaskContext) -> None:
        super().__init__(far, context)
        self._known: Held = {}

    async def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        held = await self._far.call(lambda: dict(self._far.held.get(self._name, {})))
        self._known = {place: held[place] for place in partitions if place in held}
        return self._known

    async def flush(self) -> None:
        kept, before = list(self._kept), dict(self._known)
        if kept:
            after = {place: offset + 1 for place, offset, _ in kept}
            await self._far.call(lambda: self._far.take_from(self._name, kept, before, after))
            self._known |= after
            del self._kept[: len(kept)]


class FillingSink(PlainSink):
    """Writes when it has many records, or has had them for long."""

    def __init__(self, far: Far, context: TaskContext) -> None:
        super().__init__(far, context)
        self._since_s = 0.0
        self._durable: Held = {}

    async def put(self, records: Sequence[ConnectRecord]) -> None:
        if records and not self._kept:
            self._since_s = self._far.loop.time()
        await super().put(records)

    async def flush(self) -> None:
        is_old = self._far.loop.time() - self._since_s >= FILLED_S
        if len(self._kept) >= FILLED_RECORDS or is_old:
            kept = list(self._kept)
            await super().flush()
            self._durable |= {place: offset + 1 for place, offset, _ in kept}

    def committable(self) -> Held:
        return dict(self._durable)


SINKS = {"plain": PlainSink, "holding": HoldingSink, "filling": FillingSink}


def plugin_of(far: Far, class_name: str) -> Plugin | None:
    """Return the plugin with this name: `source`, or a kind of sink."""

    async def tasks(config: Config, tasks_max: int, _: Environment) -> list[Config]:
        if class_name != "source":
            return [config] * tasks_max
        count = await far.call(far.partitions_now)
        dealt = [[n for n in range(count) if n % tasks_max == each] for each in range(tasks_max)]
        return [{**config, "partitions": ",".join(map(str, each))} for each in dealt]

    if class_name != "source" and class_name not in SINKS:
        return None
    return Plugin(
        kind=PluginKind.SOURCE if class_name == "source" else PluginKind.SINK,
        class_name=class_name,
        version="1",
        about="",
        keys=(),
        tasks=tasks,
        make=lambda context: SINKS.get(class_name, ToySource)(far, context),
        replan_s=REPLAN_S if class_name == "source" and far.plan.replans else 0.0,
        promises="",
    )
