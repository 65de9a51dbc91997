"""Deployments with zones that a test can break and heal, and load that goes on meanwhile."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import httpx

from riacho import Consumer, Producer, RecordMetadata, RiachoError
from tests.commands import exit_code
from tests.gateway import GatewayProcess, start_gateway
from tests.integration.failing_gateway import FAULTS, SETTLE_S, SLOW_S
from tests.integration.processes import TIMEOUT_S, Api, Json, records_path

ZONES: Final = "abc"
LAG_S: Final = 1.5
"""A zone that takes longer is not in sync any more."""

PAUSE_S: Final = 0.02
PARTITIONS: Final = 3
LANE_PARTITIONS: Final = 2
"""Two lanes, so that some requests need two commits."""

Failure = Literal["denied", "full", "hanging", "slow", "wiped", "unplugged"]
FAILURES: Final[tuple[Failure, ...]] = (
    "denied",
    "hanging",
    "wiped",
    "unplugged",
    "slow",
    "full",
)
"""In this order, so that a short run has the nastiest."""


def until(holds: Callable[[], bool], what: str, timeout_s: float = 10 * TIMEOUT_S) -> None:
    """Return as soon as it is so."""
    give_up_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < give_up_s, what
        time.sleep(0.05)


@dataclass
class Zoned:
    """Where the data is, and how its zones are."""

    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.faults = self.folder / "faults"
        self.faults.mkdir(exist_ok=True)
        self._trash = itertools.count()

    def start(self, port: int | None = None) -> GatewayProcess:
        """Start a gateway that notices soon what happens to the zones."""
        settings = {
            "RIACHO_LOG_LEVEL": "info",
            "RIACHO_ZONES": ",".join(ZONES),
            "RIACHO_GATEWAY_HEARTBEAT_S": "0.5",
            "RIACHO_CONTROLLER_INTERVAL_S": "0.4",
            "RIACHO_CONTROLLER_LEASE_S": "4",
            "RIACHO_CONTROLLER_STEP_S": "1",
            "RIACHO_CONTROLLER_PROBE_TIMEOUT_S": "2",
            "RIACHO_CONTROLLER_SCAN_S": "1",
            FAULTS: str(self.faults),
            SLOW_S: str(2 * LAG_S),
            SETTLE_S: "6",
            **self.env,
        }
        module = "tests.integration.failing_gateway"
        return start_gateway(self.folder, env=settings, port=port, module=module)

    def zone(self, name: str) -> Path:
        return self.folder / "data" / "zones" / name

    def fail(self, name: str, how: Failure) -> None:
        if how in ("wiped", "unplugged"):
            # At once, as a disk that is replaced: nothing that was there is seen again.
            self.zone(name).rename(self.folder / f"was-{name}-{next(self._trash)}")
        if how == "unplugged":
            self._block(name)
        elif how == "wiped":
            self.zone(name).mkdir(exist_ok=True)
        else:
            told = self.faults / f".{name}"
            told.write_text(how)
            told.rename(self.faults / name)

    def _block(self, name: str) -> None:
        """Put a file where the disk was, whoever makes a directory there meanwhile."""
        while True:
            try:
                self.zone(name).write_text("a disk that is not there")
            except IsADirectoryError:
                self.zone(name).rename(self.folder / f"made-{name}-{next(self._trash)}")
            else:
                return

    def heal(self, name: str) -> None:
        (self.faults / name).unlink(missing_ok=True)
        if self.zone(name).is_file():
            self.zone(name).unlink()
            newest = max(self.folder.glob(f"was-{name}-*"), key=lambda p: int(p.name[6:]))
            newest.rename(self.zone(name))

    def spoil(self, gone_key: str, damaged_key: str) -> None:
        """Remove an object of zone b and damage one of c by hand."""
        (self.zone("b") / gone_key).unlink()
        damaged = self.zone("c") / damaged_key
        body = bytearray(damaged.read_bytes())
        body[20] ^= 1
        damaged.write_bytes(body)

    def fsck(self) -> tuple[int, str]:
        """Run `riacho fsck` over everything; return its exit code, and what it said."""
        data = {"RIACHO_DATA": str(self.folder / "data"), "RIACHO_ZONES": ",".join(ZONES)}
        code, said = exit_code("fsck", "-o", "json", env={**data, **self.env})
        return code, (said.stdout + said.stderr).decode()


def make_topic(api: Api, name: str = "t", **config: Json) -> str:
    settings = {
        "lane.partitions": LANE_PARTITIONS,
        "min.insync.replicas": 2,
        "replica.lag.time.max.ms": int(LAG_S * 1000),
        **config,
    }
    return api.topic(PARTITIONS, name, replication_factor=len(ZONES), config=settings)


def in_sync(api: Api, topic: str) -> set[str]:
    """Return the ISR of every partition, as `abc`."""
    reply = api.http.get(f"/v1/topics/{topic}/partitions")
    assert reply.status_code == 200, reply.text
    return {"".join(sorted(each["isr"])) for each in reply.json()["partitions"]}


def until_in_sync(api: Api, topic: str, names: str, why: str) -> None:
    """Return when exactly these zones are in sync with every partition."""
    until(lambda: in_sync(api, topic) == {names}, why)


@dataclass
class Book:
    """What was sent, and what is known of it."""

    topic: str
    acked: dict[tuple[int, int], str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    together: list[list[str]] = field(default_factory=list)
    """Values of one transaction: in the log are all of them, or none."""
    waited_s: float = 0.0
    """The longest that any producer waited for an answer since this was reset."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self) -> int:
        return len(self.acked)

    def wait_for_more(self, count: int) -> None:
        enough = self.count() + count
        until(lambda: self.count() >= enough, f"{count} more acknowledgements: {self.problems[:3]}")

    def answered(self, value: str, done: RecordMetadata | None, error: Exception | None) -> None:
        with self.lock:
            if done is not None:
                place = done.partition, done.offset
                if place in self.acked:
                    self.problems.append(f"{place} was given twice")
                self.acked[place] = value
            elif isinstance(error, RiachoError) and error.may_have_applied:
                self.unknown.add(value)
            else:
                self.refused.add(value)

    def check(self, api: Api) -> None:
        """Compare the log with the book."""
        assert not self.problems, self.problems[:3]
        log = {p: [r["value"] for r in api.read_all(self.topic, p)] for p in range(PARTITIONS)}
        for (partition, offset), value in self.acked.items():
            assert log[partition][offset : offset + 1] == [value], (partition, offset, value)
        stored = [value for values in log.values() for value in values]
        assert len(stored) == len(set(stored)), "a record is in the log twice"
        assert not self.refused & set(stored), "refused, and yet written"
        for values in self.together:
            assert len(set(values) & set(stored)) in (0, len(values)), values
        assert set(stored) <= set(self.acked.values()) | self.unknown


@contextmanager
def load(book: Book, urls: list[str], *, name: str = "") -> Iterator[None]:
    """Produce and read through every gateway until the block ends."""
    stop = threading.Event()
    works: list[threading.Thread] = []
    for number, url in enumerate(urls):
        for kind, work in (
            ("idempotent", _produce),
            ("plain", _produce_plainly),
            ("transactional", _transact),
            ("consumer", _consume),
            ("reader", _read_here_and_there),
        ):
            args = (stop, book, url, f"{name}{kind}-{number}")
            works.append(threading.Thread(target=_guarded, args=(work, *args)))
    for thread in works:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in works:
            thread.join(3 * TIMEOUT_S)
    assert not any(thread.is_alive() for thread in works)
    assert not book.problems, book.problems[:3]


def _guarded(
    work: Callable[[threading.Event, Book, str, str], None],
    stop: threading.Event,
    book: Book,
    url: str,
    name: str,
) -> None:
    try:
        work(stop, book, url, name)
    except Exception as error:  # noqa: BLE001
        book.problems.append(f"{name}: {error!r}")


def _produce(stop: threading.Event, book: Book, url: str, name: str) -> None:
    """Send with numbers, again and again until it is there: nothing may be refused."""
    with Producer(url, linger_ms=2) as producer:
        _send_until(stop, book, producer, name)
    ours = {value for value in book.refused | book.unknown if value.startswith(name)}
    if ours:
        book.problems.append(f"{name}: {len(ours)} were given up")


def _produce_plainly(stop: threading.Event, book: Book, url: str, name: str) -> None:
    """Send once: what fails may be lost, or may be there if that was not known."""
    with Producer(url, linger_ms=2, enable_idempotence=False, retries=0) as producer:
        _send_until(stop, book, producer, name)


def _transact(stop: threading.Event, book: Book, url: str, name: str) -> None:
    """Write to all partitions at once; what fails is either there as a whole or not at all."""
    with Producer(url, transactional_id=name) as producer:
        for turn in itertools.count():
            if stop.wait(5 * PAUSE_S):
                return
            values = [f"{name}.{turn}.{number}" for number in range(PARTITIONS)]
            with book.lock:
                book.together.append(values)
            try:
                with producer.transaction():
                    sent = [
                        producer.send(book.topic, value, partition=number)
                        for number, value in enumerate(values)
                    ]
            except RiachoError as error:
                for value in values:
                    book.answered(value, None, error)
            else:
                for value, future in zip(values, sent, strict=True):
                    book.answered(value, future.result(), None)


def _send_until(stop: threading.Event, book: Book, producer: Producer, name: str) -> None:
    for turn in itertools.count():
        if stop.wait(PAUSE_S):
            return
        began_s = time.monotonic()
        for number in range(6):
            value = f"{name}.{turn}.{number}"

            def told(
                done: RecordMetadata | None, error: Exception | None, value: str = value
            ) -> None:
                book.answered(value, done, error)

            producer.send(book.topic, value, partition=number % PARTITIONS, callback=told)
        producer.flush()
        with book.lock:
            book.waited_s = max(book.waited_s, time.monotonic() - began_s)


def _consume(stop: threading.Event, book: Book, url: str, name: str) -> None:
    """Read everything from the beginning on, in order and without a gap."""
    reached = [0] * PARTITIONS
    with Consumer(url, auto_offset_reset="earliest") as consumer:
        consumer.assign([(book.topic, partition) for partition in range(PARTITIONS)])
        while not stop.is_set():
            for record in consumer.poll(200):
                if record.offset != reached[record.partition]:
                    book.problems.append(f"{name}: {record.offset}, not {reached}")
                reached[record.partition] = record.offset + 1


def _read_here_and_there(stop: threading.Event, book: Book, url: str, name: str) -> None:
    """Read what was acknowledged: it is there, whatever happens to a zone or two."""
    with httpx.Client(base_url=url, timeout=TIMEOUT_S) as http:
        for turn in itertools.count():
            if stop.wait(PAUSE_S):
                return
            with book.lock:
                known = list(book.acked)
                place = known[turn * 7919 % len(known)] if known else None
                value = None if place is None else book.acked[place]
            if place is None:
                continue
            params = {"offset": place[1], "max_records": 1}
            reply = http.get(records_path(book.topic, place[0]), params=params)
            if reply.status_code != 200 or reply.json()["records"][0]["value"] != value:
                book.problems.append(f"{name}: {place}: {reply.status_code} {reply.text[:300]}")
