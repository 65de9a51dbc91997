"""Load on a log, and the book kept of it.

Every value is sent once and never again, so the book knows of each whether it must be in the
log (acknowledged, and where), must not be (refused), or may be (no answer). `Ledger.check` reads
the log and compares.
"""

import itertools
import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

from tests.gateway import GatewayProcess
from tests.integration.processes import (
    ARROW,
    JSON,
    TIMEOUT_S,
    Api,
    Json,
    arrow_stream,
    records_path,
)

PARTITIONS = 3

PAUSE_S = 0.02
"""Between attempts to reach a gateway that is not there."""


@dataclass
class Ledger:
    topic: str
    partitions: int
    acked: dict[tuple[int, int], str] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    unexpected: list[str] = field(default_factory=list)
    transport_errors: set[str] = field(default_factory=set)
    """Values of requests that broke off; they are unknown too."""
    seen: dict[int, list[str]] = field(default_factory=dict)
    """The log as it was when it was last checked."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answered(self, sent: Sequence[Json], response: httpx.Response) -> None:
        """Note what came of one request."""
        values = [record["value"] for record in sent]
        with self.lock:
            if response.status_code == 200:
                self._acknowledge(sent, response.json()["results"])
            elif response.headers.get("content-type") == "application/problem+json":
                problem = response.json()
                clean = response.status_code == 503 and problem["retryable"]
                if not clean and response.status_code != 504:
                    self.unexpected.append(response.text)
                (self.unknown if problem["may_have_applied"] else self.refused).update(values)
            else:
                self.unexpected.append(f"{response.status_code} {response.text}")

    def _acknowledge(self, sent: Sequence[Json], results: Sequence[Json]) -> None:
        for result in results:
            partition, base = result["partition"], result["base_offset"]
            values = [record["value"] for record in sent if record["partition"] == partition]
            assert len(values) == result["count"]
            for offset, value in enumerate(values, base):
                twice = self.acked.get((partition, offset))
                if twice is not None:
                    self.unexpected.append(f"{partition}/{offset} was given twice: {twice} {value}")
                self.acked[partition, offset] = value

    def broke_off(self, sent: Sequence[Json]) -> None:
        with self.lock:
            values = {record["value"] for record in sent}
            self.unknown |= values
            self.transport_errors |= values

    def check(self, api: Api) -> None:
        """Read the whole log, twice, and compare it with the book."""
        assert not self.unexpected, self.unexpected[:3]
        log = {partition: self._read(api, partition) for partition in range(self.partitions)}
        stored = [value for values in log.values() for value in values]
        assert len(stored) == len(set(stored)), "a value is in the log twice"
        assert not self.refused & set(stored), "refused, and yet written"
        for (partition, offset), value in self.acked.items():
            assert log[partition][offset : offset + 1] == [value], (partition, offset, value)
        assert set(stored) <= set(self.acked.values()) | self.unknown
        for partition, before in self.seen.items():
            assert log[partition][: len(before)] == before, "what was read has changed"
        self.seen = log

    def _read(self, api: Api, partition: int) -> list[str]:
        as_json = api.read_all(self.topic, partition)
        as_arrow = api.read_all_arrow(self.topic, partition)
        assert [record["offset"] for record in as_json] == list(range(len(as_json)))
        assert [record["offset"] for record in as_arrow] == list(range(len(as_arrow)))
        values = [record["value"] for record in as_json]
        assert [record["value"].decode() for record in as_arrow] == values
        assert api.high_watermark(self.topic, partition) == len(values)
        return values


@contextmanager
def load(ledger: Ledger, urls: Sequence[str], threads: int = 6, seed: int = 0) -> Iterator[None]:
    """Produce from several threads, spread over `urls`, until the block ends."""
    stop = threading.Event()
    workers = [
        threading.Thread(
            target=_produce_until,
            args=(stop, ledger, urls[number % len(urls)], number, f"{seed}.{number}"),
        )
        for number in range(threads)
    ]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join(TIMEOUT_S)
        assert not any(worker.is_alive() for worker in workers)


def _produce_until(stop: threading.Event, ledger: Ledger, url: str, number: int, name: str) -> None:
    rng = random.Random(name)
    with httpx.Client(base_url=url, timeout=TIMEOUT_S) as client:
        for turn in itertools.count():
            if stop.is_set():
                return
            sent = _records(rng, ledger.partitions, f"{name}.{turn}")
            try:
                ledger.answered(sent, _send(client, ledger.topic, sent, as_arrow=number % 3 == 2))
            except httpx.ConnectError:
                # It never left, so it was not written; but nothing more is known of the gateway.
                with ledger.lock:
                    ledger.refused.update(record["value"] for record in sent)
                time.sleep(PAUSE_S)
            except httpx.TransportError:
                ledger.broke_off(sent)


def _records(rng: random.Random, partitions: int, name: str) -> list[Json]:
    """Return one record, or several of one partition, or several of all."""
    count = rng.choice([1, 1, 10])
    one = rng.randrange(partitions)
    spread = rng.random() < 0.3
    padding = "x" * rng.choice([0, 100, 2000])
    return [
        {
            "value": f"{name}.{n}.{padding}",
            "partition": rng.randrange(partitions) if spread else one,
        }
        for n in range(count)
    ]


def _send(
    client: httpx.Client, topic: str, sent: Sequence[Json], *, as_arrow: bool
) -> httpx.Response:
    if as_arrow:
        columns = {name: [record[name] for record in sent] for name in ("value", "partition")}
        content, media_type = arrow_stream(columns), ARROW
    else:
        content, media_type = json.dumps({"records": sent}).encode(), JSON
    return client.post(records_path(topic), content=content, headers={"content-type": media_type})


@contextmanager
def watch(ledger: Ledger, urls: Sequence[str]) -> Iterator[None]:
    """Ask one gateway after the other how far the log goes: never less than before."""
    stop = threading.Event()
    failures: list[str] = []

    def ask() -> None:
        known = [0] * ledger.partitions
        for url in itertools.cycle(urls):
            if stop.wait(PAUSE_S):
                return
            try:
                reply = httpx.get(f"{url}/v1/topics/{ledger.topic}/partitions", timeout=TIMEOUT_S)
            except httpx.TransportError:
                continue
            if reply.status_code != 200:
                continue
            now = [each["high_watermark"] for each in reply.json()["partitions"]]
            if any(new < old for new, old in zip(now, known, strict=True)):
                failures.append(f"from {known} to {now}, says {url}")
            known = now

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(TIMEOUT_S)
    assert not failures, failures


def new_ledger(gateway: GatewayProcess) -> Ledger:
    with Api(gateway.url) as api:
        # Two lanes, so that some requests need two commits.
        topic = api.topic(PARTITIONS, config={"lane.partitions": 2})
    return Ledger(topic, PARTITIONS)


def check_through(ledger: Ledger, gateway: GatewayProcess) -> None:
    """Compare the book with the log as `gateway` shows it."""
    with Api(gateway.url) as api:
        ledger.check(api)


def wait_for_acks(ledger: Ledger, count: int) -> None:
    """Return when `count` more records were acknowledged: the load is under way."""
    enough = len(ledger.acked) + count
    give_up_s = time.monotonic() + TIMEOUT_S
    while len(ledger.acked) < enough:
        assert time.monotonic() < give_up_s, "no progress"
        time.sleep(0.01)
