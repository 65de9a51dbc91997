"""Gateways without HTTP that share their stores and a clock that the test moves."""

import asyncio
import itertools
import random
from dataclasses import dataclass

from service.groups.coordinator import Coordinator
from service.groups.offsets import Commit, Committer, Offsets
from service.log.gateway import Gateway, Position, Wait
from service.settings import Settings
from service.transactions import state
from service.transactions.atomic import Atomic
from service.transactions.commit import GroupCommit
from service.transactions.fences import Fences
from service.transactions.ids import ProducerIds
from service.transactions.items import TransactionItems
from service.transactions.staging import Staging
from service.transactions.state import Transaction
from service.transactions.transactions import Transactions
from service.transactions.upkeep import TransactionUpkeep
from service.transactions.views import View
from service.world.clock import World
from storage import keys
from storage.reading.reader import Budget
from storage.zones.zones import Zones
from tests.storage.helpers.faults import FaultyMetadata, TestObjects
from tests.storage.helpers.logs import batch_of
from tests.storage.helpers.worlds import new_metadata

TXN = "copier"
TOPIC = "t"
ALL = Budget(records_max=10**6, bytes_max=10**9)


@dataclass
class Process:
    """One gateway and what it knows of transactions."""

    gateway: Gateway
    coordinator: Coordinator
    offsets: Offsets
    ids: ProducerIds
    items: TransactionItems
    staging: Staging
    fences: Fences
    transactions: Transactions
    atomic: Atomic
    upkeep: TransactionUpkeep
    staged: str | None = None
    """What the last request that was staged is called."""

    async def stage(
        self,
        view: View,
        *values: str,
        partition: int = 0,
        sequence: int | None = None,
        topic: str = TOPIC,
    ) -> dict[int, int]:
        batch = batch_of(*[value.encode() for value in values])
        receipt = await self.staging.stage(
            str(view.ref), topic, batch, batch.nbytes, partition, None, sequence
        )
        self.staged = receipt.name
        return receipt.counts

    async def begin(self, name: str = TXN, timeout_ms: int = 60_000) -> View:
        return await self.transactions.begin(name, timeout_ms, None)

    async def read(self, partition: int = 0, topic: str = TOPIC) -> list[str]:
        """Return the values that are in the log."""
        values: list[str] = []
        while True:
            position = Position(offset=len(values))
            found = await self.gateway.fetch(topic, partition, position, ALL, Wait())
            for _, batch in found.fetched.batches(10**9):
                values += [value.decode() for value in batch.column(2).to_pylist()]
            if len(values) == found.high_watermark:
                return values

    async def offset(self, group: str, partition: int = 0, topic: str = TOPIC) -> int | None:
        found = await self.offsets.read_some(group, [(topic, partition)])
        return found.get((topic, partition))

    async def txn(self, name: str = TXN) -> Transaction:
        item = await self.gateway.metadata.get(keys.transaction(name))
        assert item is not None
        return state.decode(item.value)


class Cluster:
    def __init__(self, zones: str = "a") -> None:
        self.metadata = FaultyMetadata(new_metadata())
        self.zones = {name: TestObjects() for name in zones}
        self.objects = self.zones["a"]
        self.now_s = 1_000_000.0
        self._seeds = itertools.count()

    def process(self, **settings: object) -> Process:
        chance = random.Random(next(self._seeds))
        world = World(
            now_ms=lambda: int(self.now_s * 1000),
            monotonic_s=lambda: self.now_s,
            sleep=self._sleep,
            random=chance.random,
            random_bytes=chance.randbytes,
        )
        given = Settings.model_validate({"linger_max_ms": 3_600_000, **settings})
        gateway = Gateway(given, Zones(self.zones), self.metadata, world)
        coordinator = Coordinator(gateway.metadata, gateway.topics, world)
        offsets = Offsets(gateway.metadata, gateway.topics, coordinator, world)
        ids = ProducerIds(gateway.metadata, world)
        items = TransactionItems(gateway.metadata, ids, world)
        return Process(
            gateway=gateway,
            coordinator=coordinator,
            offsets=offsets,
            ids=ids,
            items=items,
            staging=Staging(gateway, items),
            fences=Fences(ids, items),
            transactions=Transactions(gateway, offsets, ids, items),
            atomic=Atomic(gateway, offsets),
            upkeep=TransactionUpkeep(gateway.metadata, items, given, world),
        )

    async def _sleep(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0)


async def with_topic(
    cluster: Cluster, partitions: int = 4, name: str = TOPIC, **config: object
) -> Process:
    """Return a process of the cluster, which now has a topic."""
    process = cluster.process()
    await process.gateway.topics.create(name, partitions=partitions, config=config)
    return process


def offsets_of(group: str, offset: int, partition: int = 0, topic: str = TOPIC) -> GroupCommit:
    commit = Commit(topic=topic, partition=partition, offset=offset)
    return GroupCommit(group_id=group, commits=[commit], committer=None)


def by(member_id: str, generation: int) -> Committer:
    return Committer(member_id=member_id, generation=generation)
