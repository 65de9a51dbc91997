"""What a consumer group costs: heartbeats, settling, and polls.

    python -m benchmarks.groups

In memory. First, quiet heartbeats of groups of different sizes over 200 partitions: what the
table is asked for and the CPU of the gateway. Second, how long a crowd takes to share them, with a
table that takes 5 ms a call and gateways that race. Third, how fast members poll over HTTP.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence

from benchmarks.harness import Connection, gateway, request, show
from benchmarks.index_growth import CountingMetadata
from service.groups.coordinator import Beat, Coordinator
from service.groups.state import Member
from service.world.clock import World, real_world
from storage.errors import Unavailable
from storage.stores.metadata import MetadataStore, Op, Versioned
from storage.topics.topics import Topics

PARTITIONS = 200
ROUNDS = 20
TABLE_S = 0.005
POLL_S = 4.0
MEMBER = Member(topics=("t",), session_timeout_ms=45_000)


class Table(CountingMetadata):
    """A table in memory that also counts reads, with an optional delay."""

    reads = lists = read_bytes = 0
    call_s = 0.0

    async def get(self, key: str) -> Versioned | None:
        return (await self.get_many([key])).get(key)

    async def get_many(self, keys: Sequence[str]) -> dict[str, Versioned]:
        await self._work()
        self.reads += 1
        items = await super().get_many(keys)
        self.read_bytes += sum(len(item.value) for item in items.values())
        return items

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int = 1000
    ) -> list[tuple[str, Versioned]]:
        await self._work()
        self.lists += 1
        page = await super().list(prefix, after=after, limit=limit)
        self.read_bytes += sum(len(item.value) for _, item in page)
        return page

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        await self._work()
        return await super().transact(ops)

    async def _work(self) -> None:
        if self.call_s:
            await asyncio.sleep(self.call_s)


def coordinator(table: MetadataStore, world: World) -> Coordinator:
    topics = Topics(table, ["a"], world.new_id, world.now_ms, world.monotonic_s)
    return Coordinator(table, topics, world)


async def create_topic(table: MetadataStore, world: World) -> None:
    topics = Topics(table, ["a"], world.new_id, world.now_ms, world.monotonic_s)
    await topics.create("t", partitions=PARTITIONS)


async def beat(groups: Coordinator, told: Beat) -> Beat:
    """Beat until it is answered, as a client would."""
    while True:
        try:
            return await groups.heartbeat("g", told.member_id, told.generation, told.assignment)
        except Unavailable:
            await asyncio.sleep(0.05)


async def heartbeats(members: int) -> list[str]:
    world = real_world()
    table = Table(world.new_version)
    await create_topic(table, world)
    groups = coordinator(table, world)
    told = [await groups.join("g", MEMBER, None) for _ in range(members)]
    for _ in range(3):
        told = [await beat(groups, each) for each in told]
    reads, read, writes, written = table.reads, table.read_bytes, table.writes, table.written_bytes
    lists = table.lists
    rounds = max(ROUNDS, 1000 // members)
    began = time.process_time()
    for _ in range(rounds):
        told = [await beat(groups, each) for each in told]
    cpu = time.process_time() - began
    count = rounds * members
    return [
        f"{members}",
        f"{(table.reads - reads) / count:.3f}",
        f"{(table.lists - lists) / count:.3f}",
        f"{(table.writes - writes) / count:.3f}",
        f"{(table.read_bytes - read) / count:,.0f}",
        f"{(table.written_bytes - written) / count:.1f}",
        f"{cpu / count * 1e6:.0f}",
    ]


async def settle(members: int, gateways: int) -> list[str]:
    world = real_world()
    table = Table(world.new_version)
    await create_topic(table, world)
    table.call_s = TABLE_S
    crowd = [coordinator(table, world) for _ in range(gateways)]
    refused = 0

    async def join(groups: Coordinator) -> Beat:
        nonlocal refused
        while True:
            try:
                return await groups.join("g", MEMBER, None)
            except Unavailable:
                refused += 1
                await asyncio.sleep(0.05)

    async def beat_all(told: Sequence[Beat]) -> list[Beat]:
        return list(
            await asyncio.gather(*(beat(crowd[n % gateways], each) for n, each in enumerate(told)))
        )

    began = time.monotonic()
    told = list(await asyncio.gather(*(join(crowd[n % gateways]) for n in range(members))))
    joined = time.monotonic()
    rounds = 0
    while {(each.generation, len(each.assignment)) for each in told} != {
        (members, PARTITIONS // members)
    }:
        told = await beat_all(told)
        rounds += 1
    ended = time.monotonic()
    return [
        f"{members} members, {gateways} gateways",
        f"{joined - began:.2f}",
        f"{ended - joined:.2f}",
        f"{rounds}",
        f"{refused}",
        f"{table.writes / members:.1f}",
    ]


def polls(records: int) -> list[str]:
    """Poll over HTTP from one connection, from the beginning each time."""
    with gateway() as server:
        connection = Connection(server.port)

        def call(method: str, path: str, body: object) -> bytes:
            status, answer = connection.call(
                request(method, path, json.dumps(body).encode(), content_type="application/json")
            )
            assert status in {200, 201}, answer
            return answer

        call("POST", "/v1/topics", {"name": "t", "partitions": 12})
        value = "x" * 1000
        batch = [{"value": value, "partition": n % 12} for n in range(max(12, records))]
        call("POST", "/v1/topics/t/records", {"records": batch})
        told = json.loads(call("POST", "/v1/groups/g/members", {"topics": ["t"]}))
        start = [{"topic": "t", "partition": p, "offset": 0} for p in range(12)]
        poll = {"generation": told["generation"], "positions": start, "max_records": records}
        path = f"/v1/groups/g/members/{told['member_id']}/poll"
        data = request("POST", path, json.dumps(poll).encode(), content_type="application/json")
        count, cpu, began = 0, server.cpu_s(), time.perf_counter()
        while time.perf_counter() - began < POLL_S:
            status, answer = connection.call(data)
            assert status == 200, answer
            count += 1
        took, cpu = time.perf_counter() - began, server.cpu_s() - cpu
        connection.close()
    return [
        f"{records:,} records of 1 KB",
        f"{count / took:,.0f}",
        f"{count * records / took:,.0f}",
        f"{cpu / count * 1e6:,.0f}",
    ]


async def main() -> None:
    show(
        f"A quiet heartbeat, group over {PARTITIONS} partitions",
        ["members", "reads", "lists", "writes", "bytes read", "bytes written", "CPU µs"],
        [await heartbeats(members) for members in (1, 10, 100)],
    )
    show(
        f"All join at once, table of {TABLE_S * 1000:.0f} ms",
        ["crowd", "joined s", "settled s", "rounds", "refused", "writes / member"],
        [await settle(10, 2), await settle(100, 1), await settle(100, 2), await settle(100, 8)],
    )


if __name__ == "__main__":
    asyncio.run(main())
    show(
        "Polls over HTTP, one member of 12 partitions, SQLite",
        ["poll", "polls/s", "records/s", "CPU µs / poll"],
        [polls(1), polls(1000)],
    )
