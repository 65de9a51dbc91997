"""The whole gateway under a constant rate, as functions or as containers, on a virtual clock.

Calls arrive at random times with a constant rate. A function answers one at a time: a call takes
the most recently used one that is free, or a new one; so every call is a separate flush, and the
time that its answer waits is billed. A container batches concurrent calls. Readers follow, with a
fetch for each partition and second. All of it is the real application, driven as ASGI; stores are
in memory, count requests, and take as long as those of AWS.
"""

import asyncio
import contextvars
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, fields
from http import HTTPStatus
from typing import Any

import pyarrow as pa

from benchmarks import virtual_time
from benchmarks.cost_model import GIB, MIB, PUT_S, TABLE_S, CountedObjects, CountedTable
from service.app import App
from service.controller.live_gateways import LiveGateways
from service.http.metrics import Metrics
from service.log.gateway import Gateway
from service.serverless.settings import GATEWAY
from service.settings import Settings
from storage.stores.metadata import Op, Versioned
from storage.stores.objects import Body
from storage.zones.zones import Zones

GET_S = 0.030
RECORD_BYTES = 1024
FETCH_EVERY_S = 1.0

BYTES_MAX = 192 * MIB
CALLS_MIN, CALLS_MAX = 100, 1500

ARROW = b"application/vnd.apache.arrow.stream"
TOPIC = "/v1/topics/t"

_place: contextvars.ContextVar["Place"] = contextvars.ContextVar("place")


@dataclass(frozen=True)
class Load:
    """What clients do."""

    call_bytes: int
    calls_per_s: float
    partitions: int
    partitions_per_lane: int = 1
    calls_max: int = CALLS_MAX
    calls_before: int = 0
    """What happens before it counts, until heads are as large as they stay."""

    @property
    def calls(self) -> int:
        return max(CALLS_MIN, min(self.calls_max, BYTES_MAX // self.call_bytes))


@dataclass
class Usage:
    """The requests and times that AWS bills."""

    produced_bytes: float = 0
    produces: float = 0
    refused: float = 0
    fetches: float = 0
    segment_puts: float = 0
    index_puts: float = 0
    gets: float = 0
    writes: float = 0
    write_units: float = 0
    read_units: float = 0
    produce_s: float = 0
    """Of functions, waiting for stores."""
    fetch_s: float = 0
    cpu_s: float = 0

    def per_gib(self) -> "Usage":
        scale = GIB / self.produced_bytes
        return Usage(**{f.name: getattr(self, f.name) * scale for f in fields(self)})

    def since(self, before: "Usage") -> "Usage":
        names = [f.name for f in fields(self)]
        return Usage(**{name: getattr(self, name) - getattr(before, name) for name in names})


class SlowObjects(CountedObjects):
    async def put(self, key: str, body: Body) -> None:
        await asyncio.sleep(PUT_S)
        await super().put(key, body)

    async def get(self, key: str) -> bytes:
        await asyncio.sleep(GET_S)
        return await super().get(key)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        await asyncio.sleep(GET_S)
        return await super().get_ranges(key, ranges)


class SlowTable(CountedTable):
    async def get(self, key: str) -> Versioned | None:
        await asyncio.sleep(TABLE_S)
        return await super().get(key)

    async def get_many(self, keys: Sequence[str]) -> dict[str, Versioned]:
        await asyncio.sleep(TABLE_S)
        return await super().get_many(keys)

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        await asyncio.sleep(TABLE_S)
        return await super().transact(ops)


class Place:
    """Where a gateway runs, and the tasks that it has begun."""

    def __init__(self, settings: Settings, objects: SlowObjects, table: SlowTable, seed: int):
        world = virtual_time.world(seed)
        gateway = Gateway(settings, Zones({"a": objects}), table, world)
        self.app = App(gateway, LiveGateways(settings, table, world), Metrics())
        self.tasks: set[asyncio.Task[Any]] = set()

    async def call(
        self, method: str, path: str, body: bytes = b"", query: str = "", kind: bytes = ARROW
    ) -> dict[str, str] | None:
        """Answer a request; return the headers, or None if it was refused for now."""
        token = _place.set(self)
        answer: dict[str, Any] = {}

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Mapping[str, Any]) -> None:
            answer.update(message)

        headers = [(b"content-type", kind), (b"accept", ARROW)]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": headers,
            "client": ("10.0.0.1", 1),
            "server": ("10.0.0.2", 80),
        }
        await self.app(scope, receive, send)
        _place.reset(token)
        if answer["status"] == HTTPStatus.SERVICE_UNAVAILABLE:
            return None
        assert answer["status"] < HTTPStatus.MULTIPLE_CHOICES, answer
        return {name.decode(): value.decode() for name, value in answer["headers"]}

    async def settle(self) -> None:
        """Wait for all that was begun, as a function does before it answers."""
        this = asyncio.current_task()
        while begun := {task for task in self.tasks if task is not this and not task.done()}:
            await asyncio.wait(begun)
        self.tasks.clear()


def _task_factory(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    context = options.get("context")
    place = context.get(_place, None) if context else _place.get(None)
    task = asyncio.Task(coroutine, loop=loop, **options)
    if place is not None:
        place.tasks.add(task)
    return task


class Simulation:
    """One deployment. `functions`: each call has a place to itself; else they share `count`."""

    def __init__(self, settings: Settings, *, functions: bool, count: int = 1) -> None:
        self._settings = settings
        self._functions = functions
        self.objects = SlowObjects(keep=True)
        self.table = SlowTable(virtual_time.world(0).new_version)
        self._made = 0
        self._free: deque[Place] = deque()
        if not functions:
            self._free.extend(self._new_place() for _ in range(count))
        self._usage = Usage()

    def _new_place(self) -> Place:
        self._made += 1
        return Place(self._settings, self.objects, self.table, self._made)

    async def _answer(
        self, method: str, path: str, body: bytes = b"", query: str = "", kind: bytes = ARROW
    ) -> tuple[dict[str, str] | None, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        if not self._functions:
            self._free.rotate(1)
            headers = await self._free[0].call(method, path, body, query, kind)
            return headers, loop.time() - began
        place = self._free.pop() if self._free else self._new_place()
        headers = await place.call(method, path, body, query, kind)
        await place.settle()
        self._free.append(place)
        return headers, loop.time() - began

    async def _produce(self, partition: int, body: bytes, size_bytes: int) -> None:
        path = f"{TOPIC}/partitions/{partition}/records"
        headers, took_s = await self._answer("POST", path, body)
        self._usage.produces += 1
        self._usage.refused += headers is None
        self._usage.produced_bytes += size_bytes if headers is not None else 0
        self._usage.produce_s += took_s

    async def _read(self, partition: int) -> None:
        """Follow the partition until cancelled."""
        path, offset = f"{TOPIC}/partitions/{partition}/records", 0
        await asyncio.sleep(FETCH_EVERY_S * random.Random(partition).random())
        while True:
            headers, took_s = await self._answer("GET", path, query=f"offset={offset}")
            self._usage.fetches += 1
            self._usage.fetch_s += took_s
            assert headers is not None
            offset = int(headers["riacho-next-offset"])
            if offset >= int(headers["riacho-high-watermark"]):
                await asyncio.sleep(FETCH_EVERY_S)

    def _used(self) -> Usage:
        objects, table, usage = self.objects, self.table, self._usage
        usage.segment_puts, usage.index_puts = objects.segment_puts, objects.index_puts
        usage.gets = objects.segment_gets + objects.index_gets
        usage.writes = table.writes
        usage.write_units, usage.read_units = table.write_units, table.read_units
        usage.cpu_s = time.process_time()
        return Usage(**vars(usage))

    async def run(self, load: Load) -> Usage:
        asyncio.get_running_loop().set_task_factory(_task_factory)  # type: ignore[arg-type]
        created = (
            f'{{"name": "t", "partitions": {load.partitions}, '
            f'"config": {{"lane.partitions": "{load.partitions_per_lane}"}}}}'
        )
        await self._answer("POST", "/v1/topics", created.encode(), kind=b"application/json")
        readers = [asyncio.create_task(self._read(n)) for n in range(load.partitions)]
        body, size_bytes = _body(load.call_bytes)
        chance = random.Random(load.call_bytes)
        calls: list[asyncio.Task[None]] = []
        before = Usage()
        for number in range(load.calls_before + load.calls):
            if number == load.calls_before:
                before = self._used()
            partition = chance.randrange(load.partitions)
            calls.append(asyncio.create_task(self._produce(partition, body, size_bytes)))
            await asyncio.sleep(chance.expovariate(load.calls_per_s))
        await asyncio.gather(*calls)
        used = self._used().since(before)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        return used


def _body(size_bytes: int) -> tuple[bytes, int]:
    """Return an Arrow body of records that do not compress, and the bytes in their values."""
    count = max(1, size_bytes // RECORD_BYTES)
    width = size_bytes // count
    blob = random.Random(size_bytes).randbytes(width * count)
    values = [blob[start : start + width] for start in range(0, len(blob), width)]
    table = pa.table({"value": pa.array(values, pa.binary())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes(), width * count


def functions(load: Load, *, table_batch_bytes_max: int) -> Usage:
    """Return what `load` takes as functions."""
    given = {**GATEWAY, "table_batch_bytes_max": table_batch_bytes_max}
    return _simulated(load, lambda: Simulation(Settings(**given), functions=True))


def containers(load: Load, count: int, *, linger_min_ms: float = 0) -> Usage:
    """Return what `load` takes with `count` gateways that are always there."""
    settings = Settings(linger_min_ms=linger_min_ms)
    return _simulated(load, lambda: Simulation(settings, functions=False, count=count))


def _simulated(load: Load, new: Callable[[], Simulation]) -> Usage:
    async def main() -> Usage:
        return await new().run(load)

    return virtual_time.run(main())
