"""Gateways, jobs and clients in one process, on a virtual clock, from one seed.

The actors: gateways, each with its controller and upkeep (`hosts.py`), under faults (`trouble.py`);
clients that write, read and delete (`log_clients.py`); members of a group (`members.py`);
idempotent producers (`idempotent.py`); in many seeds some of their calls, or all, are those of
Kafka's protocol (`kafka`); transactions (`exactly_once.py`); clients of the schema registry
(`schemas`); runners of connectors, and who pauses and changes them (`connect`); compaction,
retention and sweep (`janitors.py`). At the end faults stop: everything
must make progress again, the whole log is read back, and the stores are checked. `tests/checker`
checks the history.
"""

import asyncio
import contextlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from service.controller import verification
from service.jobs.fsck import DeploymentCheck
from service.settings import Settings
from storage.errors import RiachoError
from storage.topics.topics import Topic, Topics
from storage.zones.zones import Zones
from tests.checker.history import History
from tests.simulation.cloud import Cloud, WatchedMetadata
from tests.simulation.connect.connectors import Connectors
from tests.simulation.connect.plan import ConnectPlan
from tests.simulation.cuts import (
    WHOLE,
    Cut,
    cut_connect,
    cut_janitors,
    cut_kafka,
    cut_plan,
    cut_schemas,
)
from tests.simulation.exactly_once import ExactlyOnce
from tests.simulation.hosts import Host, Hosts
from tests.simulation.idempotent import Idempotents
from tests.simulation.janitors import JanitorPlan, Janitors, short_flights
from tests.simulation.kafka.connections import FIRST_PORT, Broker
from tests.simulation.kafka.group_members import ClassicMember, ConsumerMember, KafkaMember
from tests.simulation.kafka.log_calls import KafkaTopic
from tests.simulation.kafka.log_clients import KafkaLogClients
from tests.simulation.kafka.plan import KEYS, GroupKind, KafkaPlan
from tests.simulation.log_clients import TOPIC, LogClients
from tests.simulation.members import Members
from tests.simulation.plan import Plan
from tests.simulation.reading import read_all
from tests.simulation.remembering import collecting_nothing, decoding_once
from tests.simulation.schemas.clients import SchemaClients
from tests.simulation.schemas.plan import SchemaPlan
from tests.simulation.schemas.watching import SchemaWatch
from tests.simulation.trouble import Trouble
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.world import Faults, world_of

CALM = Faults(slow_s=0.001)

RECOVERY_S = 300.0
"""After this time without faults, every partition accepts records and every zone is in sync."""

CALM_WRITES_S = 5.0
"""Producers continue this long after the last fault. More calls without faults find nothing."""

LANDING_S = 5.0
"""Calls to stores that were lost may arrive this long after they were given up."""

SETTLED_MIN = 3
"""Number of consecutive looks that must find every zone in sync: a call made before the faults
ended may be answered after it, and remove a zone from the ISR."""

SETTINGS = Settings(
    batch_bytes_max=2000,
    linger_max_ms=50,
    flights_max=3,
    head_poll_ms=1000,
    group_upkeep_s=5,
    controller_interval_s=3,
    controller_lease_s=8,
    controller_probe_timeout_s=3,
    controller_scan_s=10,
    controller_verify_every_s=15,
    controller_verify_calls=50,
    group_min_session_timeout_ms=100,
    group_initial_rebalance_delay_ms=0,
    kek_files=KEYS,
)

LAST_CLIENT = 999_999

MEMBERS: Mapping[GroupKind, Sequence[type[KafkaMember] | None]] = {
    "http": [None],
    "classic": [ClassicMember],
    "consumer": [ConsumerMember],
    "shared": [None, ConsumerMember, ClassicMember],
}
"""What the members of a group may be; None: members of HTTP."""

RETENTION_MS = 20_000
"""Retention of a log that its clients also trim."""


@dataclass
class Simulation:
    seed: int
    loop: VirtualLoop
    cut: Cut = WHOLE
    trace: list[str] = field(default_factory=list)
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.plan = Plan.of(self.chance)
        cut_plan(self.plan, self.cut)
        self.kafka_plan = cut_kafka(KafkaPlan.of(random.Random(self.seed + 7)), self.cut)
        self.table_chance = random.Random(self.seed + 6)
        store_chance = random.Random(self.seed + 1)
        self.metadata = WatchedMetadata(lambda: store_chance.randbytes(12).hex())
        self.cloud = Cloud(self.loop, self.plan.zones, self.metadata)
        self._starter = Hosts(
            self.loop, self.cloud, self.chance, self._settings, self.plan.inline_bytes_max
        )
        self.hosts: list[Host] = []
        chance = random.Random(self.seed + 11)
        self.connect = Connectors(
            cut_connect(ConnectPlan.of(chance), self.cut),
            chance,
            self.loop,
            self.metadata,
            lambda: self.hosts,
            self.trace,
        )
        self.history.connect = self.connect.history
        self.hosts += [self._start() for _ in range(self.plan.gateways)]
        self.repaired = 0
        """Copies that verification found missing in zones in sync."""
        self.out_of_sync = 0
        """Looks after the faults that found a lane with zones behind."""
        self.trouble = Trouble(
            self.plan, self.chance, self.cloud, self.hosts, self._start, self._note, self.cut
        )
        self._cast()

    def _cast(self) -> None:
        now_s, trace, seed = self.loop.time, self.trace, self.seed

        def hosts() -> list[Host]:
            return self.hosts

        self.kafka = KafkaLogClients(
            self.plan,
            self.kafka_plan,
            random.Random(seed + 8),
            hosts,
            now_s,
            trace,
            self.history,
        )
        self.log = LogClients(self.plan, self.chance, hosts, now_s, trace, self.history, self.kafka)
        self.members = Members(self.plan.group, random.Random(seed + 2), hosts, now_s, trace)
        self.history.group = self.members.history
        self.idempotents = Idempotents(
            self.plan.idempotent, random.Random(seed + 3), hosts, now_s, trace, self.kafka
        )
        self.history.idempotent = self.idempotents.history
        self.exactly_once = ExactlyOnce(
            self.plan.copiers,
            random.Random(seed + 4),
            hosts,
            now_s,
            trace,
            self.metadata,
            self.kafka_plan,
            random.Random(seed + 10),
        )
        self.history.transactions = self.exactly_once.history
        chance = random.Random(seed + 5)
        plan = cut_janitors(JanitorPlan.of(chance, self.plan.faults), self.cut)
        if self.plan.group.members:
            plan.sweeps = False  # A group has nothing to sweep, and its members would have to wait.
        self.janitors = Janitors(plan, chance, self.loop, hosts, self.cloud, trace)
        self.history.keyed = self.janitors.history
        chance = random.Random(seed + 9)
        schema_plan = cut_schemas(SchemaPlan.of(chance), self.cut)
        self.schemas = SchemaClients(schema_plan, chance, hosts, now_s, trace)
        self.history.schemas = self.schemas.history
        self.schema_watch = SchemaWatch(self.metadata, self.history.schemas, now_s)

    def _settings(self) -> Settings:
        limit = self.table_chance.choice(self.plan.table_limits)
        session_ms = int(self.plan.group.session_s * 1000)
        return SETTINGS.model_copy(
            update={
                "table_batch_bytes_max": limit,
                "group_consumer_session_timeout_ms": session_ms,
            }
        )

    def _start(self) -> Host:
        host = self._starter.start(self.plan.faults)
        if self.kafka_plan.is_on:
            host.broker = Broker(host, FIRST_PORT + len(self._starter.links))
            host.process.begin(host.broker.join())
        host.live()
        self.connect.begin(host)
        return host

    async def run(self) -> History:
        await self._create_topics()
        faults = asyncio.create_task(self._make_trouble())
        writing = [asyncio.create_task(self._produce(n)) for n in range(self.plan.producers)]
        writing += [
            asyncio.create_task(self.idempotents.live(TOPIC, self.plan.partitions))
            for _ in range(self.plan.idempotent.producers)
        ]
        writing.append(asyncio.create_task(self.janitors.write()))
        writing += self.schemas.start()
        writing += self.connect.start()
        lasting = [asyncio.create_task(self.log.read(n)) for n in range(self.plan.readers)]
        lasting += [asyncio.create_task(self.log.trim()), *self._start_group()]
        lasting += [*self.exactly_once.start(), *self.janitors.start()]
        await asyncio.gather(*writing)
        await self.idempotents.net.settle()
        if self.plan.group.members:
            await asyncio.wait([faults], timeout=self.plan.group.restless_s)
        await self.exactly_once.run()
        faults.cancel()
        self._calm_down()
        await self._move_again()
        self.history.stuck += await self.schemas.finish(self.loop.now_s + RECOVERY_S)
        self.history.stuck += await self.connect.finish(self.loop.now_s + RECOVERY_S)
        await self.exactly_once.drain()
        if self.plan.group.members:
            await self._land()
            await self.members.drain(self._ends)
        for task in lasting:
            task.cancel()
        await asyncio.gather(faults, *lasting, return_exceptions=True)
        await self._settle()
        self.history.produced += self.idempotents.produced()
        await self._close_gateways()
        await self._read_everything()
        await self._check_stores()
        return self.history

    async def _produce(self, client: int) -> None:
        clients = self.kafka if self.kafka.chosen() else self.log
        await clients.produce(client)

    def _start_group(self) -> "list[asyncio.Task[None]]":
        if not self.plan.group.members:
            return []
        tasks = [asyncio.create_task(self.members.look())]
        if self.plan.group.grows:
            tasks.append(asyncio.create_task(self._grow()))
        numbers = range(self.plan.group.members)
        return [*tasks, *(asyncio.create_task(self._member(n)) for n in numbers)]

    async def _member(self, number: int) -> None:
        """Live as a member that speaks HTTP or Kafka's protocol, for as long as the run lasts."""
        chance = random.Random(f"{self.seed} member {number}")
        kind = chance.choice(MEMBERS[self.kafka_plan.group])
        if kind is None or not self.kafka_plan.is_on:
            await self.members.live(number)
        else:
            await kind(self.members, self.kafka, chance, number).live()

    async def _grow(self) -> None:
        """Add partitions without writers; a member must own each of them."""
        for extra in (1, 3):
            await asyncio.sleep(self.chance.uniform(1, 10))
            host = self.chance.choice(self.hosts)
            count = self.plan.partitions + extra
            with contextlib.suppress(RiachoError, TimeoutError):
                async with asyncio.timeout(60):
                    await host.serve(host.gateway.topics.alter(TOPIC, partitions=count))

    async def _ends(self) -> dict[int, int] | None:
        """Return the end of every partition that has records; None: retry.

        The answer to a call made before the faults ended may still be lost.
        """
        host = self.hosts[0]
        try:
            infos = await host.serve(host.gateway.partitions(TOPIC))
        except RiachoError:
            return None
        return {info.partition: info.high_watermark for info in infos if info.high_watermark}

    async def _create_topics(self) -> None:
        host = self._starter.start(CALM)

        async def create(name: str, partitions: int, config: Mapping[str, object]) -> Topic:
            return await host.gateway.topics.create(
                name,
                partitions=partitions,
                replication_factor=self.plan.replication_factor,
                config={
                    "retention.ms": -1,
                    "min.insync.replicas": self.plan.min_insync,
                    **config,
                },
            )

        config = {"lane.partitions": self.plan.lane_partitions, **self.kafka_plan.config}
        if self.plan.trims:
            config["retention.ms"] = RETENTION_MS
        topic = await create(TOPIC, self.plan.partitions, config)
        self.kafka.topic = KafkaTopic(topic.name, topic.topic_id)
        await self.exactly_once.prepare(host.gateway, create)
        await self.janitors.prepare(create)
        await self.connect.prepare(create)

    @property
    def stops_at_calls(self) -> int:
        """How often a gateway was paused during a call to a store."""
        return sum(link.stops for link in self._starter.links)

    # Faults and their end

    async def _make_trouble(self) -> None:
        await self.trouble.make(self.plan.troubles)
        await asyncio.sleep(self.plan.quiet_after_s)
        self._calm_down()
        await asyncio.sleep(CALM_WRITES_S)
        self.log.is_over = self.idempotents.is_over = self.janitors.is_over = True
        self.kafka.is_over = True

    def _calm_down(self) -> None:
        self.trouble.end()
        self.idempotents.calm_down()
        self.kafka.calm_down()
        self.exactly_once.calm_down()
        self.schemas.calm_down()
        self.connect.calm_down()
        for host in self.hosts:
            host.link.faults = CALM

    async def _move_again(self) -> None:
        """Write to every partition; record those that still refuse after the faults."""
        give_up_s = self.loop.now_s + RECOVERY_S
        for partition in range(self.plan.partitions):
            values, tries = (f"last-{partition}",), 0
            while await self.log.produce_one(LAST_CLIENT, partition, values, 60) is None:
                tries += 1
                values = (f"last-{partition}-{tries}",)
                if self.loop.now_s > give_up_s:
                    self.history.stuck.append(f"partition {partition} takes no records")
                    break
                await asyncio.sleep(1)

    async def _land(self) -> None:
        """Wait until nothing is under way that began during the faults: it may still be committed.

        Its caller has long given up, but the group has to read it.
        """
        give_up_s = self.loop.now_s + RECOVERY_S
        while any(host.gateway.batcher._flights for host in self.hosts):
            if self.loop.now_s > give_up_s:
                self.history.stuck.append("a flush does not end")
                break
            await asyncio.sleep(1)
        await asyncio.sleep(LANDING_S)

    async def _settle(self) -> None:
        """Wait until every zone is in sync; record those that do not return."""
        give_up_s = self.loop.now_s + RECOVERY_S
        settled = 0
        while settled < SETTLED_MIN:
            behind = await self.cloud.unsettled()
            settled = 0 if behind else settled + 1
            self.out_of_sync += bool(behind)
            if behind and self.loop.now_s > give_up_s:
                self.history.stuck += behind
                break
            await asyncio.sleep(5)

    async def _close_gateways(self) -> None:
        for host in self.hosts:
            await host.serve(host.gateway.aclose())
            self.history.batches += host.gateway.batcher.batch_count
            host.process.stop()

    # Final state

    async def _read_everything(self) -> None:
        """Read the whole log through a new gateway."""
        await self.janitors.rest()
        await self.janitors.sweep_all()
        host = self._starter.start(CALM)
        for info in await host.serve(host.gateway.partitions(TOPIC)):
            start = info.log_start_offset
            records = await host.serve(
                read_all(host.gateway, TOPIC, info.partition, start, self.kafka.witness)
            )
            if self.kafka_plan.is_on:
                await self._read_again(host, info.partition, start, records)
            if start or info.partition < self.plan.partitions:
                self.history.log_starts[info.partition] = start
                self.history.final[info.partition] = records
        await self.exactly_once.read_everything(host.gateway)
        await self.schema_watch.read_everything()
        await self.connect.read_everything(host.gateway)
        await self.janitors.finish(host)

    async def _read_again(
        self, host: Host, partition: int, start: int, records: list[tuple[int, str]]
    ) -> None:
        """Read a partition by Kafka's protocol, too."""
        host.broker = Broker(host, FIRST_PORT)
        await host.serve(host.broker.join())
        self.hosts[:] = [host]
        if await self.kafka.read_all(partition, start) != records:
            self.history.doors.errors.append(f"{partition} differs when it is read by Kafka")

    async def _check_stores(self) -> None:
        """Check that every zone holds all objects that the table lists for it."""
        zones = Zones(self.cloud.objects)
        world = world_of(self.loop, self.chance)
        topics = Topics(self.metadata, zones.names, world.new_id, world.now_ms, world.monotonic_s)
        check = DeploymentCheck(zones, self.metadata, await topics.all())
        verified = await verification.current(self.metadata)
        self.repaired = 0 if verified is None else verified.repaired
        has_lost = self.trouble.counts["wipe"] or self.trouble.counts["lose"]
        if verified is not None and not has_lost and (verified.repaired or verified.lost):
            # The zone is complete again, but no fault had removed objects from a zone in sync.
            self.history.damage.append(
                f"zones in sync lacked {verified.repaired} objects, {verified.lost} were lost"
            )
        async for lane in check.run():
            self.history.damage += [
                f"{lane.topic}/{lane.lane}: {finding.problem} {finding.zone} {finding.key}:"
                f" {finding.detail}"
                for finding in lane.report.findings
            ]

    def _note(self, what: str) -> None:
        self.trace.append(f"{self.loop.now_s:.6f} {what}")


def simulate(seed: int) -> tuple[History, list[str]]:
    """Return the history and the trace of one seed."""
    simulation = run(seed)
    return simulation.history, simulation.trace


def run(seed: int, cut: Cut = WHOLE) -> Simulation:
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        simulation = Simulation(seed, loop, cut)
        with short_flights(), decoding_once(), collecting_nothing():
            loop.run_until_complete(simulation.run())
        return simulation
    finally:
        # Tasks of killed processes still wait. Nothing handles their outcome.
        loop.set_exception_handler(lambda *_: None)
        loop.resume_all()
        while left := asyncio.all_tasks(loop):
            # In a fixed order: what is recorded now must not depend on earlier runs.
            for task in sorted(left, key=hash):
                task.cancel()
            loop.run_until_complete(asyncio.wait(left, timeout=1))
        asyncio.set_event_loop(None)
        loop.close()
