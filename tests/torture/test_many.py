"""Very many partitions, and very many readers who wait."""

import asyncio
import json
import random
import resource
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.gateway import GatewayProcess, free_port
from tests.integration.processes import JSON, TIMEOUT_S, Api, records_path
from tests.integration.test_overload import peak_bytes
from tests.integration.zoned import until
from tests.torture.deployment import deployment, fsck
from tests.torture.sizes import FULL, MIB, PARTITIONS, POLLS, POLLS_SLOW_DOWN_MAX
from tests.torture.summary import report

pytestmark = pytest.mark.slow

TOPIC_PARTITIONS = 10_000 if FULL else 1_000
TOUCHED = 2_000 if FULL else 100
PRODUCES = 200 if FULL else 40


@pytest.mark.timeout(3600 if FULL else 300)
def test_very_many_partitions(tmp_path: Path) -> None:
    here, port = deployment(tmp_path), free_port()
    rng = random.Random(1)
    gateway = here.start(port=port)
    try:
        with Api(gateway.url) as api:
            api.http.timeout = 600
            began_s = time.monotonic()
            count = PARTITIONS // TOPIC_PARTITIONS
            topics = [api.topic(TOPIC_PARTITIONS, name=f"many-{n}") for n in range(count)]
            report(f"{PARTITIONS} partitions made", f"{time.monotonic() - began_s:.1f} s")
            written: dict[tuple[str, int], list[str]] = {}
            took_s = []
            for n in range(TOUCHED):
                topic, partition = rng.choice(topics), rng.randrange(TOPIC_PARTITIONS)
                began_s = time.monotonic()
                [result] = api.produce(topic, [{"value": f"v{n}"}], partition)
                took_s.append(time.monotonic() - began_s)
                known = written.setdefault((topic, partition), [])
                assert result["base_offset"] == len(known)
                known.append(f"v{n}")
            report(
                f"produce among {PARTITIONS} partitions, p50",
                f"{statistics.median(took_s) * 1000:.1f} ms",
            )
            cluster = api.http.get("/v1/cluster").json()
            assert cluster["partitions"]["count"] == PARTITIONS
        report("peak memory", f"{peak_bytes(gateway.process.pid) // MIB} MiB")
        gateway.kill()
        began_s = time.monotonic()
        gateway = here.start(port=port)
        report("started again in", f"{time.monotonic() - began_s:.1f} s")
        with Api(gateway.url) as api:
            for (topic, partition), values in written.items():
                records = api.read_all(topic, partition)
                assert [record["value"] for record in records] == values
                assert [record["offset"] for record in records] == [*range(len(values))]
            empty = api.fetch(topics[0], next(iter(untouched(topics[0], written))))
            assert empty["high_watermark"] == 0
        assert fsck(tmp_path)["ok"]
    finally:
        gateway.kill()


def untouched(topic: str, written: dict[tuple[str, int], list[str]]) -> Iterator[int]:
    return (n for n in range(TOPIC_PARTITIONS) if (topic, n) not in written)


@contextmanager
def many_descriptors(count: int) -> Iterator[None]:
    """Let this process, and the gateway that it starts, have so many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, count + 500)
    if hard not in (-1, resource.RLIM_INFINITY) and wanted > hard:
        pytest.skip(f"{wanted} descriptors are needed, and {hard} allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.timeout(600)
def test_waiting_readers_do_not_slow_down_writers_and_all_get_what_comes(tmp_path: Path) -> None:
    with many_descriptors(POLLS), deployment(tmp_path).start() as gateway, Api(gateway.url) as api:
        # Two partitions of one lane: readers wait for one, and the other one is written.
        topic = api.topic(3, config={"lane.partitions": 3})
        asyncio.run(polls_and_produces(gateway, topic, api))


async def polls_and_produces(gateway: GatewayProcess, topic: str, api: Api) -> None:
    alone_ms = await asyncio.to_thread(produce_p50_ms, api, topic, 0)
    tasks = [asyncio.create_task(poll(gateway.port, topic, 1)) for _ in range(POLLS)]
    waiting = f"{records_path(topic, 1)}"
    await asyncio.to_thread(until, lambda: polls_of(gateway) >= POLLS, f"polls of {waiting}")
    beside_ms = await asyncio.to_thread(produce_p50_ms, api, topic, 0)
    ratio = beside_ms / alone_ms
    report(
        f"produce p50 alone, beside {POLLS} polls of its lane",
        f"{alone_ms:.2f} ms, {beside_ms:.2f} ms: {ratio:.2f} x",
    )
    assert not any(task.done() for task in tasks), "a poll was answered before there was a record"
    [result] = await asyncio.to_thread(api.produce, topic, [{"value": "here"}], 1)
    assert result["base_offset"] == 0
    async with asyncio.timeout(10 * TIMEOUT_S):
        answers = await asyncio.gather(*tasks)
    for answer in answers:
        assert [(r["offset"], r["value"]) for r in answer["records"]] == [(0, "here")]
        assert answer["high_watermark"] == 1
    if FULL:
        assert ratio <= POLLS_SLOW_DOWN_MAX


def produce_p50_ms(api: Api, topic: str, partition: int) -> float:
    body = json.dumps({"records": [{"value": "v" * 100}]})
    took_s = []
    for _ in range(PRODUCES):
        began_s = time.perf_counter()
        reply = api.send(topic, body, partition=partition)
        took_s.append(time.perf_counter() - began_s)
        assert reply.status_code == 200, reply.text
    return statistics.median(took_s) * 1000


def polls_of(gateway: GatewayProcess) -> int:
    """Return how many connections the gateway has that wait: none of them has bytes to read."""
    lines = Path(f"/proc/{gateway.process.pid}/net/tcp").read_text().splitlines()[1:]
    here = f":{gateway.port:04X}"
    fields = [line.split() for line in lines]
    return sum(
        each[1].endswith(here) and each[3] == "01" and each[4] == "00000000:00000000"
        for each in fields
    )


async def poll(port: int, topic: str, partition: int) -> dict[str, list[dict[str, object]]]:
    """Wait for a record, again and again as a consumer does, and return the answer."""
    path = f"{records_path(topic, partition)}?offset=0&max_wait_ms=60000"
    request = f"GET {path} HTTP/1.1\r\nhost: gateway\r\naccept: {JSON}\r\n\r\n".encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while True:
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            assert head.startswith("http/1.1 200"), head
            [length] = [line for line in head.splitlines() if line.startswith("content-length:")]
            body = await reader.readexactly(int(length.split(":")[1]))
            answer: dict[str, list[dict[str, object]]] = json.loads(body)
            if answer["records"]:
                return answer
    finally:
        writer.close()
