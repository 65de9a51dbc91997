"""Connectors in one simulation: who creates, pauses, stops and changes them, and what is left."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import msgspec

from service.connect.rest.errors import ConnectError
from service.connect.rest.store import ConnectorStore
from service.connect.tasks.items import ConnectorItem, RunHealth
from service.groups.coordinator import Coordinator
from service.log.gateway import Gateway
from storage.errors import RiachoError
from tests.checker.connect_history import (
    LETTERS,
    ConnectHistory,
    ConnectorKind,
    StateCall,
    StoredConnector,
)
from tests.simulation.cloud import WatchedMetadata
from tests.simulation.connect.far import Far
from tests.simulation.connect.plan import ConnectPlan
from tests.simulation.connect.running import Runners
from tests.simulation.connect.watching import ConnectWatch
from tests.simulation.hosts import Create, Host
from tests.simulation.http import Net, exchange
from tests.simulation.reading import read_all
from tests.simulation.virtual_loop import VirtualLoop

TOPIC: Final = "numbers"

CALLS: Final = {
    "pause": ("PUT", "pause"),
    "stop": ("PUT", "stop"),
    "resume": ("PUT", "resume"),
    "restart": ("POST", "restart?includeTasks=true"),
}
DONE, GONE, EXISTS = 0, 404, 409
DOUBTFUL: Final = range(500, 600)
BROKEN: Final = 500

PLAIN: Final = "org.apache.kafka.connect."
COMMON: Final = {
    "key.converter": f"{PLAIN}converters.IntegerConverter",
    "errors.tolerance": "all",
}


class Connectors:
    def __init__(
        self,
        plan: ConnectPlan,
        chance: random.Random,
        loop: VirtualLoop,
        metadata: WatchedMetadata,
        hosts: Callable[[], list[Host]],
        trace: list[str],
    ) -> None:
        self.plan = plan
        self.history = ConnectHistory()
        self.is_over = False
        self._chance = chance
        self._hosts = hosts
        self._now_s = loop.time
        self._trace = trace
        self._net = Net(plan.net, chance, hosts)
        self._far = Far(loop, plan, chance, self.history)
        self._runners = Runners(self._far, chance, self.history)
        self.kinds: dict[str, ConnectorKind] = {}
        if plan.is_on:
            self.watch = ConnectWatch(metadata, self.history, self._now_s)
            self.kinds = {f"source{n}": "source" for n in range(plan.sources)}
            self.kinds |= {f"{kind}{n}": kind for n, kind in enumerate(plan.sinks)}

    @property
    def names(self) -> list[str]:
        return list(self.kinds)

    def begin(self, host: Host) -> None:
        if self.plan.is_on:
            self._runners.begin(host)

    async def prepare(self, create: Create) -> None:
        if self.plan.is_on:
            await create(TOPIC, self.plan.topic_partitions, {})
            for name in self.names:
                await create(LETTERS + name, 1, {})

    def start(self) -> "Iterator[asyncio.Task[None]]":
        for name in self.names:
            yield asyncio.create_task(self._create(name))
        if self.plan.is_on:
            for client in range(1, 1 + self.plan.clients):
                yield asyncio.create_task(self._live(client))

    def calm_down(self) -> None:
        self.is_over = self._far.is_calm = True
        self._net.calm_down()

    # Clients

    async def _create(self, name: str) -> None:
        await asyncio.sleep(self._chance.expovariate(1))
        while await self._sent(0, name, "create") not in (DONE, EXISTS):
            await asyncio.sleep(self._chance.expovariate(1))

    async def _live(self, client: int) -> None:
        chance = self._chance
        for _ in range(self.plan.calls):
            await asyncio.sleep(chance.expovariate(0.3))
            if self.is_over:
                return
            does = chance.choice(["pause", "stop", "resume", "resume", "restart", "change"])
            await self._sent(client, chance.choice(self.names), does)

    async def _sent(self, client: int, name: str, does: str) -> int | None:
        """Send a call; return its code, None if that is not known."""
        try:
            return await self._net.send(lambda host: self._copy(host, client, name, does))
        except TimeoutError:
            return None

    async def _copy(self, host: Host, client: int, name: str, does: str) -> int | None:
        began_s, code = self._now_s(), None
        try:
            code = await self._done(host, name, does)
            return code
        finally:
            ended_s = self._now_s()
            self._trace.append(f"{ended_s:.6f} {does} {name}: {code}")
            self.history.calls.append(StateCall(client, name, does, began_s, ended_s, code))

    async def _done(self, host: Host, name: str, does: str) -> int | None:
        if does in CALLS:
            method, path = CALLS[does]
            status, answer = await exchange(host, method, f"/connectors/{name}/{path}")
            if status == BROKEN or (400 <= status < BROKEN and status != GONE):
                self.history.errors.append(f"{does} {name}: {status} {answer}")
            return DONE if status < 400 else None if status in DOUBTFUL else status
        # A gateway knows none of these connectors, so its calls would refuse the configuration.
        work = self._put if does == "create" else self._change
        try:
            await host.serve(work(host.gateway, name))
        except ConnectError as error:
            return error.status
        except RiachoError:
            return None
        return DONE

    async def _put(self, gateway: Gateway, name: str) -> None:
        config = self._config(name, self.plan.tasks_max)
        now_ms = gateway.world.now_ms()
        await _store(gateway).create(ConnectorItem(name, config, "User:ANONYMOUS", now_ms))

    async def _change(self, gateway: Gateway, name: str) -> None:
        """Give the connector another number of tasks."""
        config = self._config(name, self._chance.randint(1, 3))

        def changed(item: ConnectorItem) -> ConnectorItem:
            return msgspec.structs.replace(
                item, config=config, generation=item.generation + 1, health=RunHealth()
            )

        await _store(gateway).change(name, changed)

    def _config(self, name: str, tasks_max: int) -> dict[str, str]:
        kind, text = self.kinds[name], f"{PLAIN}storage.StringConverter"
        converter = text if kind == "source" else f"{PLAIN}json.JsonConverter"
        return {
            **COMMON,
            "name": name,
            "connector.class": kind,
            "tasks.max": str(tasks_max),
            "topic" if kind == "source" else "topics": TOPIC,
            "value.converter": converter,
            "value.converter.schemas.enable": "false",
            "errors.deadletterqueue.topic.name": LETTERS + name,
            "consumer.override.max.poll.records": str(self.plan.batch),
        }

    # The end

    async def finish(self, give_up_s: float) -> list[str]:
        """Without faults: leave some at rest, start the others, and wait until all is through."""
        if not self.plan.is_on:
            return []
        await self._net.settle()
        started = []
        for name in self.names:
            is_left = self._chance.random() < 0.25
            does = "pause" if is_left else "resume"
            while await self._sent(0, name, does) != DONE:
                if self._now_s() > give_up_s:
                    return [f"{name} takes no calls"]
                await asyncio.sleep(1)
            started += [] if is_left else [name]
        await self._net.settle()
        stuck = await self._until(give_up_s, lambda: self._unread(started))
        if not stuck:
            stuck = await self._until(give_up_s, lambda: self._untaken(started))
        await self._runners.close()
        return stuck

    async def _until(self, give_up_s: float, left: Callable[[], Awaitable[list[str]]]) -> list[str]:
        while found := await left():
            if self._now_s() > give_up_s:
                return found
            await asyncio.sleep(1)
        return []

    async def _unread(self, started: list[str]) -> list[str]:
        return [
            f"{name} has not read all of {partition}"
            for name in started
            if self.kinds[name] == "source"
            for partition in range(self.plan.partitions)
            if self.watch.positions.get((name, partition), -1)
            < len(self._far.rows(name, partition)) - 1
        ]

    async def _untaken(self, started: list[str]) -> list[str]:
        sinks = [name for name in started if self.kinds[name] != "source"]
        if not sinks:
            return []
        host = self._hosts()[0]
        try:
            infos = await host.serve(host.gateway.partitions(TOPIC))
        except RiachoError as error:
            return [f"there are no ends of {TOPIC}: {error}"]
        return [
            f"{name} has not committed all of {info.partition}"
            for name in sinks
            for info in infos
            if self.watch.positions.get((name, info.partition), 0) < info.high_watermark
        ]

    async def read_everything(self, gateway: Gateway) -> None:
        if not self.plan.is_on:
            return
        places = [(TOPIC, n) for n in range(self.plan.topic_partitions)]
        for place in [*places, *((LETTERS + name, 0) for name in self.names)]:
            records = await read_all(gateway, *place)
            self.history.final[place] = [(at, value.strip('"')) for at, value in records]
        for name, kind in self.kinds.items():
            is_source = kind == "source"
            rows = range(self.plan.partitions) if is_source else ()
            self.history.connectors.append(
                StoredConnector(
                    name,
                    kind,
                    self.watch.target_of(name),
                    tuple(len(self._far.rows(name, number)) for number in rows),
                    TOPIC,
                    {} if is_source else self.watch.committed(name),
                )
            )


def _store(gateway: Gateway) -> ConnectorStore:
    coordinator = Coordinator(gateway.metadata, gateway.topics, gateway.world)
    return ConnectorStore(gateway.metadata, coordinator, gateway.world)
