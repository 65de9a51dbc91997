"""Jobs that compact and sweep while clients work, and a topic with the policy `compact`.

Each run of a job is a process of its own, with a failing link. It may be killed at any call, or be
so slow that it loses its lease without noticing. Jobs also merge and sweep the topic that all
other actors use: those must not notice anything.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from service.jobs import lease
from service.jobs.lease import HeldLease
from service.jobs.retention import retain
from service.jobs.stores import Stores
from service.jobs.sweep.sweep import Sweep, SweepOptions
from service.log.gateway import Position, Wait
from service.process.stores import open_keyring
from service.settings import Settings
from service.transactions import atomic, staging
from storage.errors import RiachoError
from storage.formats.records import record_batch
from storage.lanes import commits, rolls
from storage.lanes import lane as lanes
from storage.leases import LeaseLost
from storage.maintenance.compaction import job, tasks
from storage.maintenance.compaction.plan import CompactionOptions
from storage.maintenance.compaction.swap import Swapper
from storage.reading.catalog import Catalog
from storage.reading.fetched import Budget
from storage.reading.table_batches import TableBatches
from storage.tasks import drop_error
from tests.checker.keyed_rules import KeyedHistory, Look, Record, Written
from tests.simulation.cloud import Cloud
from tests.simulation.hosts import Create, Host
from tests.simulation.kafka.plan import KEYS
from tests.simulation.reading import Patience
from tests.simulation.virtual_loop import Process, VirtualLoop
from tests.simulation.world import Faults, FaultyLink, world_of

KEYED = "keyed"
LEASE_S = 6.0
FLIGHT_S = 40.0
"""Maximum time between the put of an object and its commit, instead of `FLIGHT_MAX_S`."""

MIN_AGE_MS = 80_000
"""Minimum age of swept objects. It covers differing clocks and the time of an attempt."""

CLOCKS_DIFFER_MS = 310_000
"""Clocks of gateways are wrong by at most five minutes, those of jobs by ten seconds."""

BREAK_S = 110.0
"""Length of a pause of all writers in mid-run, so that some objects get old enough to be swept."""

LONG_AFTER_S = 1000.0
"""After this time every orphan is old enough to be swept, by any clock."""

PATIENCE_S = 3600.0
CALLS_MIN = 4

SLOWER = 10.0
"""Factor by which jobs and readers pause longer then: there is nothing new to find."""

IDLE_MAX = 8.0
"""Jobs that find nothing to do pause longer each time, at most by this factor."""

CALM = Faults(slow_s=0.001)

SETTINGS = Settings(kek_files=KEYS)


@dataclass
class JanitorPlan:
    janitors: int
    writers: int
    calls: int
    keys: int
    partitions: int
    faults: Faults
    tombstone_s: float
    """How long tombstones are kept."""
    sweeps: bool

    @classmethod
    def of(cls, chance: random.Random, faults: Faults) -> "JanitorPlan":
        plan = cls(
            janitors=chance.choice([0, 1, 1, 2]),
            writers=chance.randint(1, 3),
            calls=chance.randint(6, 24),
            # With few keys each is written often, with many only once.
            keys=chance.choice([1, 2, 3, 5, 8, 30, 60, 60]),
            partitions=chance.randint(1, 3),
            # A job makes many calls, and gives up at the first permanent failure.
            faults=replace(faults, before=faults.before / 8, late=faults.late / 4),
            tombstone_s=chance.choice([0, 5, 10_000]),
            sweeps=chance.random() < 0.5,
        )
        if not plan.janitors:
            plan.writers = 0
        return plan


@contextlib.contextmanager
def short_flights() -> Iterator[None]:
    """Shorten the time after which an object is too old to be committed."""
    modules = (atomic, commits, lanes, rolls, staging)
    before = rolls.FLIGHT_MAX_S
    try:
        for module in modules:
            assert before == module.FLIGHT_MAX_S
            module.FLIGHT_MAX_S = FLIGHT_S
        yield
    finally:
        for module in modules:
            module.FLIGHT_MAX_S = before


class _Alone:
    """Runs tasks in the janitor itself, one after the other."""

    parallelism = 1

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def run(self, payloads: Sequence[bytes]) -> AsyncIterator[tuple[int, bytes]]:
        for number, payload in enumerate(payloads):
            yield number, await tasks.run(self._stores, payload)

    def shuffle(self, payloads: Sequence[bytes]) -> AsyncIterator[tuple[int, bytes]]:
        raise AssertionError("nothing is that large here")


class Janitors:
    def __init__(
        self,
        plan: JanitorPlan,
        chance: random.Random,
        loop: VirtualLoop,
        hosts: Callable[[], list[Host]],
        cloud: Cloud,
        trace: list[str],
    ) -> None:
        self.plan = plan
        self.history = KeyedHistory(tombstone_s=plan.tombstone_s)
        self._chance = chance
        self._loop = loop
        self._hosts = hosts
        self._cloud = cloud
        self._trace = trace
        self._numbers = iter(range(10**9))
        self._pause_factor = 1.0
        self.is_over = False
        """Whether writers stop after `CALLS_MIN` calls."""
        self._runs: dict[asyncio.Task[None], Process] = {}

    async def prepare(self, create: Create) -> None:
        if self.plan.janitors:
            config = {
                "cleanup.policy": "compact",
                "delete.retention.ms": int(self.plan.tombstone_s * 1000),
                "segment.bytes": 1024 * 1024,
            }
            await create(KEYED, self.plan.partitions, config)

    def start(self) -> "list[asyncio.Task[None]]":
        """Start all tasks that run until they are cancelled."""
        if not self.plan.janitors:
            return []
        works = [self._live() for _ in range(self.plan.janitors)]
        works += [self._read(), self._read()]
        return [asyncio.create_task(work) for work in works]

    async def write(self) -> None:
        """Write to the topic; with a long break if there are sweeps."""
        for turn in range(2 if self.plan.sweeps else 1):
            if turn and self.plan.janitors:
                self._pause_factor = SLOWER
                await asyncio.sleep(BREAK_S)
                self._pause_factor = 1.0
            await asyncio.gather(*(self._write() for _ in range(self.plan.writers)))

    async def rest(self) -> None:
        """Wait for running jobs that were not killed."""
        for run, process in self._runs.items():
            if not process.is_stopped:
                await self._wait(run)

    async def sweep_all(self) -> None:
        """Long after the end, remove all orphans: what is read afterwards was still needed."""
        if not (self.plan.janitors and self.plan.sweeps):
            return
        await asyncio.sleep(LONG_AFTER_S)
        stores = self._stores(FaultyLink(self._loop, self._chance, CALM))
        async with lease.held(
            stores.metadata, stores.world, "last", wait_s=PATIENCE_S, lease_s=LEASE_S
        ) as held:
            await self._sweep(stores, held)

    async def finish(self, host: Host) -> None:
        """Compact once more without faults, and read what is left."""
        if not self.plan.janitors:
            return
        await self._clean(self._stores(FaultyLink(self._loop, self._chance, CALM)), "last")
        for partition in range(self.plan.partitions):
            records: list[Record] = []
            offset = 0
            while True:
                look = await self._look(host, partition, offset, 10**6)
                records += look.records
                if look.next_offset == offset:
                    break
                offset = look.next_offset
            self.history.final[partition] = records

    # Jobs

    async def _live(self) -> None:
        """Run jobs one after the other, each as a process that may be killed or paused."""
        idle, compacted = 1.0, 0
        while True:
            idle = 1.0 if self.history.compacted > compacted else min(IDLE_MAX, idle * 1.5)
            compacted = self.history.compacted
            await asyncio.sleep(self._chance.expovariate(0.5) * max(idle, self._pause_factor))
            run, process = self._begin()
            fate = self._chance.random()
            if fate < 0.5:
                await self._wait(run)
                continue
            await asyncio.sleep(self._chance.expovariate(1))
            if run.done():
                continue
            process.stop()
            if fate < 0.75:
                # Others consider it dead, and may take over, before it continues.
                await asyncio.sleep(self._chance.uniform(0.5, 2.5) * LEASE_S)
                if self._chance.random() < 0.5:
                    other, _ = self._begin()
                    await self._wait(other)
                process.resume()
                await self._wait(run)
            else:
                self.history.killed += 1
                self._trace.append(f"{self._loop.now_s:.6f} janitor killed")

    def _begin(self) -> "tuple[asyncio.Task[None], Process]":
        """Start a job as a process of its own."""
        process = Process(self._loop)
        stores = self._stores(FaultyLink(self._loop, self._chance, self.plan.faults))
        run = process.begin(self._clean(stores, "job"))
        run.add_done_callback(drop_error)
        self._runs[run] = process
        return run, process

    async def _wait(self, run: "asyncio.Task[None]") -> None:
        await asyncio.wait([run], timeout=300)

    def _stores(self, link: FaultyLink) -> Stores:
        world = world_of(self._loop, self._chance, self._chance.randint(-10_000, 10_000))
        metadata = self._cloud.table(link)
        return Stores(
            zones=self._cloud.zones(link),
            metadata=metadata,
            world=world,
            keyring=open_keyring(SETTINGS, metadata, world),
        )

    async def _clean(self, stores: Stores, name: str) -> None:
        # An earlier job may still be running.
        wait_s = PATIENCE_S if name == "last" else 0.0
        try:
            async with lease.held(
                stores.metadata, stores.world, name, wait_s=wait_s, lease_s=LEASE_S
            ) as held:
                await retain(stores, await stores.topics().all(), transact=held.transact)
                await self._compact(stores, held)
                if self.plan.sweeps and name != "last":
                    await self._sweep(stores, held)
        except LeaseLost:
            self.history.lost_leases += 1
            self._trace.append(f"{self._loop.now_s:.6f} janitor lost its lease")

    async def _compact(self, stores: Stores, held: HeldLease) -> None:
        world = stores.world
        catalog = Catalog(stores.zones, world.new_id, 1 << 20, TableBatches(stores.metadata))
        swapper = Swapper(
            catalog, stores.zones, stores.metadata, held.transact, world.sleep, world.random
        )

        async def alone(_: int) -> _Alone:
            return _Alone(stores)

        summary = await job.compact(
            swapper,
            await stores.topics().all(),
            alone,
            CompactionOptions(now_ms=world.now_ms(), force=True),
            monotonic_s=world.monotonic_s,
        )
        self.history.compacted += len(summary.compacted)
        self._trace.append(
            f"{self._loop.now_s:.6f} compacted {len(summary.compacted)},"
            f" {summary.records_in} to {summary.records_out}, failed {len(summary.failed)}"
        )

    async def _sweep(self, stores: Stores, held: HeldLease) -> None:
        options = SweepOptions(
            min_age_ms=MIN_AGE_MS, is_unsafe=True, clocks_differ_ms=CLOCKS_DIFFER_MS
        )
        report = await Sweep(stores, held, options).run()
        self.history.swept += report.removed.objects
        self.history.swept_batches += report.batches_removed.objects
        self._trace.append(
            f"{self._loop.now_s:.6f} swept {report.removed.objects},"
            f" {report.batches_removed.objects} of the table"
        )

    # Clients of the topic

    async def _write(self) -> None:
        for call in range(self.plan.calls):
            if self.is_over and call >= CALLS_MIN:
                break
            await self._write_one()
            if self._chance.random() < 0.5:
                await asyncio.sleep(self._chance.expovariate(3))

    async def _write_one(self) -> None:
        host = self._chance.choice(self._hosts())
        partition = self._chance.randrange(self.plan.partitions)
        key = f"k{self._chance.randrange(self.plan.keys)}"
        value = None if self._chance.random() < 0.2 else f"v{next(self._numbers)}"
        batch = record_batch([0], [key.encode()], [value if value is None else value.encode()])
        began_s = self._loop.now_s
        offset: int | None = None
        maybe = True
        try:
            async with asyncio.timeout(60):
                placed = await host.serve(host.gateway.produce(KEYED, batch, 100, partition))
            offset, maybe = placed[partition][0], False
        except RiachoError as error:
            maybe = error.may_have_applied
        except TimeoutError:
            pass
        self.history.written.append(
            Written(partition, key, value, began_s, self._loop.now_s, offset, maybe)
        )
        self._trace.append(f"{self._loop.now_s:.6f} wrote {key} {value} {offset} {maybe}")

    async def _read(self) -> None:
        offsets = dict.fromkeys(range(self.plan.partitions), 0)
        patience = Patience()
        while True:
            pause_s = self._chance.expovariate(5) * max(patience.factor, self._pause_factor)
            await asyncio.sleep(pause_s)
            partition = self._chance.randrange(self.plan.partitions)
            if self._chance.random() < 0.1:
                # A reader starts again at a random offset.
                offsets[partition] = self._chance.randint(0, offsets[partition])
            host = self._chance.choice(self._hosts())
            with contextlib.suppress(RiachoError, TimeoutError):
                async with asyncio.timeout(60):
                    count = self._chance.choice([1, 3, 1000])
                    look = await self._look(host, partition, offsets[partition], count)
                    patience.saw(bool(look.records))
                    offsets[partition] = look.next_offset

    async def _look(self, host: Host, partition: int, offset: int, count: int) -> Look:
        began_s = self._loop.now_s
        budget = Budget(records_max=count, bytes_max=10**6)
        position = Position(offset=offset)
        result = await host.serve(host.gateway.fetch(KEYED, partition, position, budget, Wait()))
        batches = result.fetched.batches(10**6)
        records = tuple(
            Record(number, key.decode(), None if value is None else value.decode())
            for offsets, batch in batches
            for number, key, value in zip(
                offsets, batch.column(1).to_pylist(), batch.column(2).to_pylist(), strict=True
            )
        )
        look = Look(partition, offset, began_s, records, result.fetched.end_of(batches))
        self.history.looks.append(look)
        return look
