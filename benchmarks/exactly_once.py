"""What exactly once costs: idempotent produce against plain, many producers, a transaction.

    python -m benchmarks.exactly_once [seconds]

First over HTTP on the embedded default, plain and idempotent taking turns. Then in memory, where
requests can be counted: thousands of producers on one partition, and 1,000 records over ten
partitions of one lane in one transaction.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import httpx

from benchmarks.harness import Connection, Server, gateway, request, show
from benchmarks.http import JSON, VALUES, json_body
from benchmarks.index_growth import CountingMetadata, CountingObjects
from benchmarks.lanes import batch
from service.app import App
from service.controller.live_gateways import LiveGateways
from service.http.metrics import Metrics
from service.log.gateway import Gateway
from service.log.lane_buffers import Claims
from service.settings import Settings
from service.world.clock import real_world
from storage.head import head as heads
from storage.head.producers import Claim
from storage.zones.zones import Zones

ROUNDS = 5
PRODUCERS = (1, 100, 10_000)
APPENDS = 20_000
TOGETHER = 50
"""Appends of different producers that arrive together, and so share a flush."""

Next = Callable[[], bytes]
"""Returns the next request of a connection."""


def main(seconds: float) -> None:
    with gateway() as server:
        rows = over_http(server, seconds)
    show(
        "Over HTTP, embedded, acks=all, one partition; plain and idempotent in turns",
        ["what", "plain records/s", "idempotent", "ratio", "spread"],
        rows,
    )
    rows = [asyncio.run(producers(number)) for number in PRODUCERS]
    show(
        f"Producers of one partition, in memory, {TOGETHER} appends at a time",
        [
            "producers",
            "largest head, bytes",
            "table KiB / commit",
            "PUTs / commit",
            "CPU µs / append",
        ],
        rows,
    )
    show(
        "1,000 records over ten partitions of one lane",
        ["call", "PUTs", "metadata writes", "metadata reads"],
        asyncio.run(transactions()),
    )


def over_http(server: Server, seconds: float) -> list[list[str]]:
    connection = Connection(server.port)
    body = json.dumps({"name": "t"}).encode()
    status, _ = connection.call(request("POST", "/v1/topics", body, content_type=JSON))
    assert status == 201, status
    thousand = json_body(1000, keyed=False)
    single = b'{"records":[{"value":"%s"}]}' % VALUES[0].encode()
    return [
        in_turns(server, "JSON 1,000, 4 connections", thousand, 1000, 4, seconds),
        in_turns(server, "JSON 1, 32 connections", single, 1, 32, seconds),
    ]


def in_turns(
    server: Server, name: str, body: bytes, records: int, connections: int, seconds: float
) -> list[str]:
    plain, idempotent, ratios = [], [], []
    for _ in range(ROUNDS):
        before = run(server, [plain_sender(body)] * connections, seconds / ROUNDS)
        after = run(
            server,
            [idempotent_sender(server, body, records) for _ in range(connections)],
            seconds / ROUNDS,
        )
        plain.append(before * records)
        idempotent.append(after * records)
        ratios.append(after / before)
    return [
        name,
        f"{statistics.median(plain):,.0f}",
        f"{statistics.median(idempotent):,.0f}",
        f"{statistics.median(ratios):.2f}",
        f"{min(ratios):.2f} to {max(ratios):.2f}",
    ]


PATH = "/v1/topics/t/partitions/0/records"


def plain_sender(body: bytes, path: str = PATH, media_type: str = JSON) -> Next:
    whole = request("POST", path, body, content_type=media_type)
    return lambda: whole


def idempotent_sender(server: Server, body: bytes, records: int) -> Next:
    connection = Connection(server.port)
    _, answer = connection.call(request("POST", "/v1/producers", b"{}", content_type=JSON))
    connection.close()
    producer_id = json.loads(answer)["producer_id"]
    numbers = count(0, records)
    return lambda: request(
        "POST",
        PATH,
        body,
        content_type=JSON,
        riacho_producer_id=str(producer_id),
        riacho_producer_epoch="0",
        riacho_sequence=str(next(numbers)),
    )


def run(server: Server, senders: list[Next], seconds: float) -> float:
    """Return calls a second, each sender over its own connection."""
    began = time.perf_counter()

    def work(sender: Next) -> int:
        connection = Connection(server.port)
        calls = 0
        while time.perf_counter() - began < seconds:
            status, body = connection.call(sender())
            assert status == 200, (status, body[:300])
            calls += 1
        connection.close()
        return calls

    with ThreadPoolExecutor(len(senders)) as pool:
        calls = sum(pool.map(work, senders))
    return calls / (time.perf_counter() - began)


async def producers(number: int) -> list[str]:
    """Append round robin for this many producers."""
    world = real_world()
    objects, metadata = CountingObjects(), CountingMetadata(world.new_version)
    gateway = Gateway(Settings(), Zones({"a": objects}), metadata, world)
    topic = await gateway.topics.create("t", partitions=1)
    lane = gateway.lanes.lane(topic.topic_id, 0)
    one = batch(1)
    sequences = [0] * number
    largest = commits = 0
    writes, written, puts = metadata.writes, metadata.written_bytes, objects.puts
    cpu = time.process_time()
    for start in range(0, APPENDS, TOGETHER):
        appends = []
        for turn in range(start, start + TOGETHER):
            producer = turn % number
            claim = Claim(0, 2 * producer + 2, 0, sequences[producer], 1)
            sequences[producer] += 1
            claims = Claims(by_partition={0: claim})
            appends.append(gateway.batcher.append(topic, {0: one}, 100, claims))
        await asyncio.gather(*appends)
        commits += 1
        largest = max(largest, len(heads.encode((await lane.view(60)).head)))
    cpu = time.process_time() - cpu
    view = await lane.view(0)
    assert view.head.next_offsets[0] == APPENDS, "a record was lost or doubled"
    row = [
        f"{number:,}",
        f"{largest:,}",
        f"{(metadata.written_bytes - written) / (metadata.writes - writes) / 1024:.1f}",
        f"{(objects.puts - puts) / commits:.2f}",
        f"{cpu / APPENDS * 1e6:.0f}",
    ]
    await gateway.aclose()
    return row


async def transactions() -> list[list[str]]:
    """Count the requests of one transaction to the stores: in one call, and in several."""
    world = real_world()
    objects, metadata = CountingObjects(), CountingMetadata(world.new_version)
    gateway = Gateway(Settings(), Zones({"a": objects}), metadata, world)
    app = App(gateway, LiveGateways(gateway.settings, metadata, world), Metrics())
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://bench") as client:

        async def call(path: str, body: object, **headers: str) -> dict[str, int]:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            reply = await client.post(f"/v1/{path}", json=body, headers=named)
            reply.raise_for_status()
            answer: dict[str, int] = reply.json()
            return answer

        await call("topics", {"name": "t", "partitions": 10})
        records = [{"partition": n % 10, "value": VALUES[n]} for n in range(1000)]
        atomic = {"records": [{"topic": "t", **record} for record in records]}
        who = await call("producers", {"transactional_id": "bench"})

        async def at_once() -> None:
            answer = await call(
                "atomic",
                atomic,
                riacho_producer_id=str(who["producer_id"]),
                riacho_producer_epoch=str(who["epoch"]),
            )
            who.update(epoch=answer["epoch"])

        async def in_steps() -> None:
            begun = await call("transactions", {"transactional_id": "bench", **who})
            path = f"transactions/{begun['transaction_id']}/commit"
            staged = {"riacho_transaction": str(begun["transaction_id"])}
            await call("topics/t/records", {"records": records}, **staged)
            who.update(epoch=(await call(path, {}))["epoch"])

        rows = []
        for name, work in (("POST /v1/atomic", at_once), ("begin, produce, commit", in_steps)):
            await work()  # A warm-up, for reads that happen once per process.
            before = objects.puts, metadata.writes, metadata.reads
            await work()
            after = objects.puts, metadata.writes, metadata.reads
            rows.append([name, *(str(b - a) for a, b in zip(before, after, strict=True))])
    await gateway.aclose()
    return rows


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
