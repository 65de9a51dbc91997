"""Bodies that inflate, and bodies that are large: the gateway answers others, and stays small."""

import base64
import gzip
import json
import multiprocessing
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from tests.gateway import GatewayProcess
from tests.integration.processes import ARROW, JSON, TIMEOUT_S, Api, records_path
from tests.integration.test_overload import peak_bytes
from tests.torture.deployment import deployment
from tests.torture.sizes import (
    BOMBS,
    FULL,
    HEALTHY_MS_MAX,
    LARGE_BODIES,
    MIB,
    PEAK_BYTES_MAX,
)
from tests.torture.summary import report

pytestmark = pytest.mark.slow

BOMB_BYTES = 2 * MIB
BODY_BYTES = 16 * MIB - 1024
LARGE_FETCHES = 16 if FULL else 4


def bomb(encoding: str) -> bytes:
    """Return two megabytes that inflate to gigabytes."""
    blank = b" " * MIB
    is_gzip = encoding == "gzip"
    piece = gzip.compress(blank) if is_gzip else pa.compress(blank, "zstd", asbytes=True)
    return piece * (BOMB_BYTES // len(piece))


def throw(port: int, topic: str, count: int) -> Counter[tuple[int, str]]:
    """Send bombs whose last bytes all arrive at once; return the answers."""
    bodies = {encoding: bomb(encoding) for encoding in ("gzip", "zstd")}
    with ExitStack() as stack:
        connections = []
        for number in range(count):
            encoding = ("gzip", "zstd")[number % 2]
            each = HTTPConnection("127.0.0.1", port, timeout=10 * TIMEOUT_S)
            stack.callback(each.close)
            each.putrequest("POST", records_path(topic))
            each.putheader("content-type", JSON)
            each.putheader("content-encoding", encoding)
            each.putheader("content-length", str(len(bodies[encoding])))
            each.endheaders()
            connections.append((each, bodies[encoding]))
        # A gateway that holds enough refuses before it has read all; the answer is there then.
        for each, body in connections:
            with suppress(ConnectionError):
                each.send(body[:-1])
        for each, body in connections:
            with suppress(ConnectionError):
                each.send(body[-1:])
        return Counter(_answer(each) for each, _ in connections)


def _answer(connection: HTTPConnection) -> tuple[int, str]:
    try:
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())["code"]
    except ConnectionError:
        return 503, "THROTTLING_QUOTA_EXCEEDED"  # Said while it was still being sent to.


def watch_health(url: str, pipe: Connection) -> None:
    """Ask /healthy until told to stop; tell how long the longest answer took, and how many."""
    longest_s, count = 0.0, 0
    with httpx.Client(base_url=url, timeout=TIMEOUT_S) as client:
        client.get("/healthy")
        pipe.send("ready")
        while not pipe.poll():
            began_s = time.perf_counter()
            assert client.get("/healthy").status_code == 200
            longest_s = max(longest_s, time.perf_counter() - began_s)
            count += 1
            time.sleep(0.002)
    pipe.send((longest_s * 1000, count))


@pytest.mark.timeout(600)
def test_bombs_are_refused_and_health_is_reported_meanwhile(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    with deployment(tmp_path).start() as gateway, Api(gateway.url) as api:
        topic = api.topic()
        # Processes of their own: neither shares this one's interpreter with the others.
        ours, theirs = spawn.Pipe()
        watcher = spawn.Process(target=watch_health, args=(gateway.url, theirs), daemon=True)
        watcher.start()
        try:
            assert ours.recv() == "ready"
            answers = throw(gateway.port, topic, BOMBS)
            ours.send("stop")
            longest_ms, count = ours.recv()
        finally:
            watcher.kill()
            watcher.join()
        report(f"/healthy under {BOMBS} bombs, longest of {count}", f"{longest_ms:.0f} ms")
        check_refusals(answers)
        [result] = api.produce(topic, [{"value": "after", "partition": 0}])
        assert result["base_offset"] == 0
    if FULL:
        assert longest_ms <= HEALTHY_MS_MAX


def check_refusals(answers: Counter[tuple[int, str]]) -> None:
    """Too large, or too many at once; nothing else."""
    allowed = {(413, "REQUEST_TOO_LARGE"), (503, "THROTTLING_QUOTA_EXCEEDED")}
    assert set(answers) <= allowed, answers


def large_body(seed: int) -> bytes:
    """Return a body of the largest size, of text that hardly compresses."""
    values = []
    size = 0
    rng = random.Random(seed)
    while size < BODY_BYTES - 820_000:
        values.append({"value": base64.b64encode(rng.randbytes(600_000)).decode(), "partition": 0})
        size += 800_100
    return json.dumps({"records": values}).encode()


@pytest.mark.timeout(900)
def test_memory_stays_bounded_under_large_bodies_bombs_and_fetches(tmp_path: Path) -> None:
    with deployment(tmp_path).start() as gateway, Api(gateway.url) as api:
        topic = api.topic()
        bodies = [large_body(seed) for seed in range(4)]
        taken: dict[int, int] = {}
        lock = threading.Lock()

        def produce(number: int) -> int:
            body = bodies[number % len(bodies)]
            headers = {"content-type": JSON}
            reply = httpx.post(
                gateway.url + records_path(topic), content=body, headers=headers, timeout=600
            )
            if reply.status_code == 200:
                with lock:
                    taken[reply.json()["results"][0]["base_offset"]] = number % len(bodies)
            return reply.status_code

        with ThreadPoolExecutor(LARGE_BODIES + 1) as pool:
            thrown = pool.submit(throw, gateway.port, topic, BOMBS)
            statuses = Counter(pool.map(produce, range(LARGE_BODIES)))
            check_refusals(thrown.result())
        assert set(statuses) <= {200, 503}, statuses
        # The bombs may have held all the memory there was. A body that comes alone is admitted.
        while (status := produce(0)) != 200:
            assert status == 503
        read_largely(gateway, topic)
        peak = peak_bytes(gateway.process.pid)
        report(
            f"peak memory under {LARGE_BODIES} bodies of 16 MiB, {BOMBS} bombs, large fetches",
            f"{peak // MIB} MiB of 512",
        )
        check_what_was_taken(api, topic, taken, bodies)
    if FULL:
        assert peak < PEAK_BYTES_MAX, peak // MIB


def read_largely(gateway: GatewayProcess, topic: str) -> None:
    """Fetch as much as is allowed, many times at once, in every format."""

    def fetch(number: int) -> None:
        reply = httpx.get(
            gateway.url + records_path(topic, 0),
            params={"offset": 0, "max_bytes": 64 * MIB},
            headers={"accept": (JSON, ARROW)[number % 2]},
            timeout=600,
        )
        assert reply.status_code in {200, 503}, reply.text[:500]

    with ThreadPoolExecutor(LARGE_FETCHES) as pool:
        list(pool.map(fetch, range(LARGE_FETCHES)))


def check_what_was_taken(api: Api, topic: str, taken: dict[int, int], bodies: list[bytes]) -> None:
    """Compare the log with what was acknowledged: every record at its offset, and no other."""
    values = [[record["value"] for record in json.loads(body)["records"]] for body in bodies]
    expected: dict[int, str] = {}
    for base, number in taken.items():
        expected.update(enumerate(values[number], base))
    offset, end = 0, api.high_watermark(topic)
    assert sorted(expected) == list(range(end))
    while offset < end:
        page = api.fetch(topic, offset=offset, max_bytes=4 * MIB)
        for record in page["records"]:
            assert record["value"] == expected[record["offset"]]
        offset = page["next_offset"]
