"""What copies in several zones cost: throughput against one zone, and which zone acks wait for.

    python -m benchmarks.replication [seconds]

First over HTTP on the embedded default with three directories, one copy and three in turns; they
share one disk here, which three real zones do not. Then in memory, with zones that take 20, 60
and 200 ms for a write and a table of 5 ms: `acks=1` should take what the leader takes, `acks=all`
what the slowest zone takes.
"""

import asyncio
import json
import statistics
import sys
import time

from benchmarks.exactly_once import ROUNDS, plain_sender, run
from benchmarks.harness import Connection, Server, gateway, request, show
from benchmarks.http import ARROW, JSON, arrow_body, json_body
from benchmarks.lanes import batch
from benchmarks.slow_store import TABLE_S, SlowTable
from service.log.gateway import Gateway
from service.settings import Settings
from service.world.clock import real_world
from storage.stores.memory import MemoryObjects
from storage.stores.objects import Body
from storage.topics.topics import Topic
from storage.zones.zones import Zones

ZONES_MS = {"a": 20, "b": 60, "c": 200}
CALLS = 40


class SlowZone(MemoryObjects):
    def __init__(self, put_ms: int) -> None:
        super().__init__()
        self._put_s = put_ms / 1000

    async def put(self, key: str, body: Body) -> None:
        await asyncio.sleep(self._put_s)
        await super().put(key, body)


def main(seconds: float) -> None:
    with gateway(RIACHO_ZONES="a,b,c") as server:
        rows = throughput(server, seconds)
    show(
        "Over HTTP, three directories on one disk, acks=all, one partition",
        ["what", "one copy, records/s", "three copies", "ratio", "spread"],
        rows,
    )
    show(
        f"One client, zones of {', '.join(f'{ms}' for ms in ZONES_MS.values())} ms,"
        f" table of {TABLE_S * 1000:.0f} ms",
        ["acks", "p50 ms", "p99 ms", "waits for", "p50 / that"],
        asyncio.run(latencies()),
    )


def throughput(server: Server, seconds: float) -> list[list[str]]:
    connection = Connection(server.port)
    for name, copies in (("one", 1), ("three", 3)):
        config = {"min.insync.replicas": min(2, copies)}
        body = json.dumps({"name": name, "replication_factor": copies, "config": config}).encode()
        status, text = connection.call(request("POST", "/v1/topics", body, content_type=JSON))
        assert status == 201, text
    connection.close()
    rows = []
    for what, body, kind, records in (
        ("JSON 1,000, 4 connections", json_body(1000, keyed=False), JSON, 1000),
        ("Arrow 10,000, 4 connections", arrow_body(10_000), ARROW, 10_000),
    ):
        one, three, ratios = [], [], []
        for _ in range(ROUNDS):
            senders = {
                topic: plain_sender(body, f"/v1/topics/{topic}/partitions/0/records", kind)
                for topic in ("one", "three")
            }
            one.append(run(server, [senders["one"]] * 4, seconds / ROUNDS) * records)
            three.append(run(server, [senders["three"]] * 4, seconds / ROUNDS) * records)
            ratios.append(three[-1] / one[-1])
        rows.append(
            [
                what,
                f"{statistics.median(one):,.0f}",
                f"{statistics.median(three):,.0f}",
                f"{statistics.median(ratios):.2f}",
                f"{min(ratios):.2f} to {max(ratios):.2f}",
            ]
        )
    return rows


async def led_by(gateway: Gateway, zone: str) -> Topic:
    """Return a topic whose leader is in `zone`: which one it is depends on the topic's id."""
    for number in range(100):
        topic = await gateway.topics.create(f"t{number}", partitions=1, replication_factor=3)
        if (await gateway.partition(topic.name, 0)).leader == zone:
            return topic
    raise RuntimeError(f"no topic is led by {zone}")


async def latencies() -> list[list[str]]:
    world = real_world()
    zones = Zones({name: SlowZone(ms) for name, ms in ZONES_MS.items()})
    gateway = Gateway(Settings(), zones, SlowTable(world.new_version), world)
    quickest, *_, slowest = sorted(ZONES_MS, key=lambda zone: ZONES_MS[zone])
    topic = await led_by(gateway, quickest)
    rows = []
    for acks, zone in (("1", quickest), ("all", slowest)):
        took = []
        for _ in range(CALLS):
            began = time.perf_counter()
            await gateway.batcher.append(topic, {0: batch(1)}, 100, waits_for_all=acks == "all")
            took.append((time.perf_counter() - began) * 1000)
        cuts = statistics.quantiles(took, n=100)
        floor_ms = ZONES_MS[zone] + TABLE_S * 1000
        rows.append(
            [
                acks,
                f"{cuts[49]:.1f}",
                f"{cuts[98]:.1f}",
                f"zone {zone}, {floor_ms:.0f} ms",
                f"{cuts[49] / floor_ms:.2f}",
            ]
        )
    await gateway.aclose()
    return rows


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
