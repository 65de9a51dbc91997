"""Gateways that share a table, and members of Kafka's kind, on a clock that never waits."""

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from service.groups.classic.coordinator import ClassicGroups, ClassicLimits, IdRequired
from service.groups.classic.rounds import Claimant, Joined
from service.groups.coordinator import Coordinator
from service.world.clock import World
from storage.errors import RebalanceInProgress
from storage.stores.metadata import MetadataStore
from storage.topics.topics import Topics
from tests.service.groups.classic.makers import again, joining
from tests.service.groups.cluster import CountingMetadata
from tests.simulation.virtual_loop import VirtualLoop
from tests.storage.helpers.faults import FaultyMetadata
from tests.storage.helpers.worlds import new_ids, new_metadata

T = TypeVar("T")

GROUP = "g"
SESSION_MS = 6_000
REBALANCE_MS = 20_000
BEAT_S = 2.0


def virtually(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns, however long it waits: its clock moves by itself."""
    loop = VirtualLoop()
    try:
        # Whoever sleeps for days is no deadlock.
        loop.call_later(10**7, lambda: None)
        return loop.run_until_complete(work)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0, None))
        loop.close()


class Slow(FaultyMetadata):
    """A table whose calls take a few milliseconds."""

    def __init__(self, inner: MetadataStore, chance: random.Random) -> None:
        super().__init__(inner)
        self.chance = chance

    async def get(self, key: str) -> Any:
        await asyncio.sleep(self.chance.uniform(0.001, 0.01))
        return await super().get(key)

    async def get_many(self, keys: Any) -> Any:
        await asyncio.sleep(self.chance.uniform(0.001, 0.01))
        return await super().get_many(keys)

    async def transact(self, ops: Any) -> Any:
        await asyncio.sleep(self.chance.uniform(0.001, 0.01))
        try:
            return await super().transact(ops)
        finally:
            await asyncio.sleep(self.chance.uniform(0.001, 0.01))


class Meeting:
    """Some gateways and one table."""

    def __init__(self, gateways: int = 1, *, seed: int = 0, **limits: int) -> None:
        self.chance = random.Random(seed)
        self.counts = CountingMetadata(new_metadata())
        self.metadata = Slow(self.counts, self.chance)
        self.limits = ClassicLimits(**limits)
        self.gateways = [self.gateway() for _ in range(gateways)]

    def gateway(self) -> Coordinator:
        """Return another gateway, which has seen nothing yet."""
        loop = asyncio.get_running_loop()
        chance = random.Random(self.chance.random())
        world = World(
            now_ms=lambda: 10**12 + int(loop.time() * 1000),
            monotonic_s=loop.time,
            sleep=asyncio.sleep,
            random=chance.random,
            random_bytes=chance.randbytes,
        )
        topics = Topics(self.metadata, ["a"], new_ids(1), world.now_ms, world.monotonic_s)
        return Coordinator(self.metadata, topics, world, self.limits)

    @property
    def classic(self) -> ClassicGroups:
        return self.gateways[0].classic


@dataclass
class Client:
    """A member as Kafka's clients make one."""

    classic: ClassicGroups
    name: str = "c"
    instance_id: str | None = None
    session_ms: int = SESSION_MS
    rebalance_ms: int = REBALANCE_MS
    member_id: str = ""
    last: Joined | None = None
    share: bytes = b""
    protocols: tuple[str, ...] = field(default=("range",))

    async def join(self) -> Joined:
        while True:
            fields: dict[str, Any] = {
                "instance_id": self.instance_id,
                "session_ms": self.session_ms,
                "rebalance_ms": self.rebalance_ms,
                "metadata": self.name.encode(),
            }
            about = (again if self.member_id else joining)(
                self.member_id, *self.protocols, **fields
            )
            reply = await self.classic.join(GROUP, about)
            self.member_id = reply.member_id
            if isinstance(reply, IdRequired):
                continue
            self.last = reply
            return reply

    def claimant(self) -> Claimant:
        assert self.last is not None
        return Claimant(
            member_id=self.member_id,
            instance_id=self.instance_id,
            generation=self.last.generation,
        )

    async def sync(self) -> bytes:
        """Fetch the share; as the leader, bring everyone's: each is assigned its own name."""
        assert self.last is not None
        shares = {m: data.split()[0] for m, _, data in self.last.members}
        reply = await self.classic.sync(GROUP, self.claimant(), shares)
        self.share = reply.assignment
        return self.share

    async def settle(self) -> bytes:
        await self.join()
        return await self.sync()

    async def beat(self) -> None:
        await self.classic.heartbeat(GROUP, self.claimant())

    async def beat_until(self, error: type[Exception]) -> None:
        """Send heartbeats until one meets this error, whatever they say about a round."""
        while True:
            try:
                await self.beat()
            except RebalanceInProgress:
                if error is RebalanceInProgress:
                    return
            except error:
                return
            await asyncio.sleep(BEAT_S)
