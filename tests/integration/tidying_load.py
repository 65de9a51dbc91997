"""Those who use a log while it is tidied, and what they know of it."""

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import httpx

from riacho import Consumer, Producer
from tests.integration.load import Ledger
from tests.integration.processes import TIMEOUT_S, Api, Json, records_path
from tests.torture.sizes import FULL

PAUSE_S: Final = 0.03 if FULL else 0.15
"""Between two requests. In every run of the suite the machine is left to the jobs."""

KEYS_PER_WRITER: Final = 40
END: Final = "the-end"
"""Keys that begin like this are the last of their partition."""

UNREACHABLE: Final = "STORAGE_UNAVAILABLE"
"""A local AWS is one process, and slower than those who use it."""

Work = Callable[[threading.Event], None]


class Book(Ledger):
    """Of a topic of which everything stays. Nothing may be refused because of a job."""

    is_patient = False
    """Whether stores may be too slow; then that may be a reason."""

    def answered(self, sent: Sequence[Json], response: httpx.Response) -> None:
        if response.status_code != 200 and not self.is_patient:
            with self.lock:
                self.unexpected.append(f"{response.status_code} {response.text}")
        super().answered(sent, response)

    def placed(self, value: str, partition: int, offset: int) -> None:
        with self.lock:
            if (partition, offset) in self.acked:
                self.unexpected.append(f"{partition}/{offset} was given twice")
            self.acked[partition, offset] = value

    def number(self, url: str, name: str) -> Work:
        """Send with numbers, until it is there."""

        def work(stop: threading.Event) -> None:
            with Producer(url, linger_ms=2) as producer:
                for turn in itertools.count():
                    if stop.wait(PAUSE_S):
                        return
                    values = [f"{name}.{turn}.{n}" for n in range(4)]
                    sent = [
                        producer.send(self.topic, value, partition=n % self.partitions)
                        for n, value in enumerate(values)
                    ]
                    for value, future in zip(values, sent, strict=True):
                        done = future.result()
                        self.placed(value, done.partition, done.offset)

        return work

    def transact(self, url: str, name: str) -> Work:
        """Write to all partitions at once; every third time, think better of it."""

        def work(stop: threading.Event) -> None:
            with Producer(url, transactional_id=name) as producer:
                for turn in itertools.count():
                    if stop.wait(3 * PAUSE_S):
                        return
                    values = [f"{name}.{turn}.{n}" for n in range(self.partitions)]
                    producer.begin_transaction()
                    sent = [
                        producer.send(self.topic, value, partition=n)
                        for n, value in enumerate(values)
                    ]
                    if turn % 3 == 2:
                        producer.abort_transaction()
                        with self.lock:
                            self.refused.update(values)
                        continue
                    producer.commit_transaction()
                    for value, future in zip(values, sent, strict=True):
                        done = future.result()
                        self.placed(value, done.partition, done.offset)

        return work

    def consume(self, url: str) -> Work:
        """Read everything from the beginning on, in order and without a gap."""

        def work(stop: threading.Event) -> None:
            reached = [0] * self.partitions
            with Consumer(url, auto_offset_reset="earliest") as consumer:
                consumer.assign([(self.topic, partition) for partition in range(self.partitions)])
                while not stop.is_set():
                    for record in consumer.poll(200):
                        assert record.offset == reached[record.partition], (record, reached)
                        reached[record.partition] += 1

        return work

    def look(self, urls: Sequence[str], seed: str) -> Work:
        """Read what was acknowledged, wherever that is."""
        rng = random.Random(seed)

        def once(http: httpx.Client) -> None:
            with self.lock:
                places = list(self.acked.items())
            if not places:
                return
            (partition, offset), value = rng.choice(places)
            page = fetched(http, rng.choice(urls), self.topic, partition, offset, 1)
            if page is not None:
                [record] = page["records"]
                assert (record["offset"], record["value"]) == (offset, value), page

        return _again(once)


class Placed(NamedTuple):
    partition: int
    offset: int
    value: str | None
    """None: a tombstone."""


@dataclass
class Table:
    """Of a compacted topic: a plain dictionary of what was acknowledged last.

    Every key has one writer, so this is known exactly.
    """

    topic: str
    partitions: int
    last: dict[str, Placed] = field(default_factory=dict)
    sending: set[str] = field(default_factory=set)
    """Keys of which more may be in the log than was acknowledged."""
    known: dict[tuple[int, int], tuple[str, str | None]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_finished: threading.Event = field(default_factory=threading.Event)

    def write(self, url: str, name: str) -> Work:
        rng = random.Random(name)
        keys = [f"{name}-{number}" for number in range(KEYS_PER_WRITER)]

        def work(stop: threading.Event) -> None:
            with Producer(url, linger_ms=2) as producer:
                for turn in itertools.count():
                    if stop.wait(PAUSE_S):
                        return
                    chosen = rng.sample(keys, rng.randint(1, 8))
                    self.put(
                        producer,
                        {k: None if rng.random() < 0.2 else f"{k}.{turn}" for k in chosen},
                    )

        return work

    def put(
        self, producer: Producer, values: dict[str, str | None], partition: int | None = None
    ) -> None:
        with self.lock:
            self.sending |= values.keys()
        sent = {
            key: producer.send(self.topic, value, key=key, partition=partition)
            for key, value in values.items()
        }
        for key, future in sent.items():
            done = future.result()
            with self.lock:
                self.sending.discard(key)
                self.last[key] = Placed(done.partition, done.offset, values[key])
                self._know(done.partition, done.offset, key, values[key])

    def _know(self, partition: int, offset: int, key: str, value: str | None) -> None:
        found = self.known.setdefault((partition, offset), (key, value))
        assert found == (key, value), f"{partition}/{offset} was {found} and is {key, value}"

    def finish(self, url: str) -> None:
        """Write to every partition what tells those who follow that they have all."""
        with Producer(url) as producer:
            for partition in range(self.partitions):
                self.put(producer, {f"{END}-{partition}": "."}, partition)
        self.is_finished.set()

    def follow(self, url: str) -> Work:
        """Read from the beginning to the very end: what one has then is the dictionary."""

        def work(stop: threading.Event) -> None:
            mine: dict[str, Placed] = {}
            ends, give_up_s = 0, float("inf")
            with Consumer(url, auto_offset_reset="earliest") as consumer:
                consumer.assign([(self.topic, partition) for partition in range(self.partitions)])
                while ends < self.partitions:
                    assert time.monotonic() < give_up_s, "the end does not come"
                    if stop.is_set() and give_up_s == float("inf"):
                        give_up_s = time.monotonic() + TIMEOUT_S
                    for record in consumer.poll(200):
                        key, value = _text(record.key), _text(record.value)
                        assert key is not None
                        mine[key] = Placed(record.partition, record.offset, value)
                        ends += key.startswith(END)
            values = {key: placed for key, placed in mine.items() if placed.value is not None}
            # The last record may be read before its writer has heard that it was written.
            assert self.is_finished.wait(TIMEOUT_S)
            assert values == self.values()

        return work

    def values(self) -> dict[str, Placed]:
        """Return the dictionary: keys that have a value, and where that is."""
        with self.lock:
            return {key: placed for key, placed in self.last.items() if placed.value is not None}

    def look(self, urls: Sequence[str], seed: str) -> Work:
        """Fetch from any offset, and see that only what was replaced is passed over."""
        rng = random.Random(seed)

        def once(http: httpx.Client) -> None:
            partition = rng.randrange(self.partitions)
            with self.lock:
                before = {k: p for k, p in self.last.items() if k not in self.sending}
                end = max((o for p, o in self.known if p == partition), default=0)
            asked, count = rng.randint(0, end), rng.choice([1, 10, 1000])
            page = fetched(http, rng.choice(urls), self.topic, partition, asked, count)
            if page is None:
                return
            offsets = [record["offset"] for record in page["records"]]
            assert offsets == sorted(set(offsets)), offsets
            assert all(asked <= offset < page["next_offset"] for offset in offsets), (asked, page)
            with self.lock:
                for record in page["records"]:
                    self._know(partition, record["offset"], record["key"], record["value"])
                for key, placed in before.items():
                    # One that is being replaced may be gone.
                    stays = key not in self.sending and self.last[key] == placed
                    if stays and placed.value is not None and placed.partition == partition:
                        is_due = asked <= placed.offset < page["next_offset"]
                        assert not is_due or placed.offset in offsets, (key, placed, asked, offsets)

        return _again(once)

    def check(self, api: Api) -> None:
        """After a compaction that left no tombstones, the log is the dictionary."""
        found = {
            record["key"]: Placed(partition, record["offset"], record["value"])
            for partition in range(self.partitions)
            for record in api.read_all(self.topic, partition)
        }
        assert found == self.values()
        for key, placed in found.items():
            assert self.known[placed.partition, placed.offset] == (key, placed.value)


@dataclass
class Fading:
    """Of a topic of which everything goes after a while, and nothing before."""

    topic: str
    retention_ms: int
    sent_ms: list[tuple[int, str]] = field(default_factory=list)
    """By offset: when a record was not yet sent, and its value."""

    def write(self, url: str) -> Work:
        def work(stop: threading.Event) -> None:
            with Producer(url, linger_ms=0) as producer:
                for turn in itertools.count():
                    if stop.wait(2 * PAUSE_S):
                        return
                    at_ms = time.time_ns() // 1_000_000
                    done = producer.send(self.topic, f"fades.{turn}", partition=0).result()
                    assert done.offset == turn
                    self.sent_ms.append((at_ms, f"fades.{turn}"))

        return work

    def look(self, urls: Sequence[str], seed: str) -> Work:
        """Read from where the log begins: what is young is there, and without a gap."""
        rng = random.Random(seed)

        def once(http: httpx.Client) -> None:
            sent = list(self.sent_ms)
            url = rng.choice(urls)
            page = fetched(http, url, self.topic, 0, None, 10)
            # As of now: what was young before it was asked for may have grown old meanwhile.
            young_ms = time.time_ns() // 1_000_000 - self.retention_ms
            first = next((o for o, (ms, _) in enumerate(sent) if ms > young_ms), len(sent))
            if page is not None and page["records"]:
                offsets = [record["offset"] for record in page["records"]]
                assert offsets == list(range(offsets[0], page["next_offset"])), page
                assert first >= offsets[0], f"{first} is young, and the log begins at {offsets[0]}"

        return _again(once)

    def check(self, api: Api) -> int:
        """Return where the log begins; what is behind that is all there."""
        page = api.fetch(self.topic)
        start: int = page["log_start_offset"]
        found: list[Json] = page["records"]
        while page["next_offset"] < page["high_watermark"]:
            page = api.fetch(self.topic, offset=page["next_offset"])
            found += page["records"]
        assert page["high_watermark"] == len(self.sent_ms)
        expected = [(o, value) for o, (_, value) in enumerate(self.sent_ms)]
        assert [(each["offset"], each["value"]) for each in found] == expected[start:]
        return start


def watch(urls: Sequence[str], topics: Sequence[str]) -> Work:
    """See that no partition's beginning or end ever goes back."""
    known: dict[tuple[str, int], tuple[int, int]] = {}
    turns = itertools.cycle(itertools.product(topics, urls))

    def once(http: httpx.Client) -> None:
        topic, url = next(turns)
        try:
            reply = http.get(f"{url}/v1/topics/{topic}/partitions")
        except httpx.TransportError:
            return
        answer = _answer(reply) or {"partitions": []}
        for each in answer["partitions"]:
            place = topic, each["partition"]
            old = known.get(place, (0, 0))
            new = each["log_start_offset"], each["high_watermark"]
            assert old[0] <= new[0] <= new[1] >= old[1], (place, old, new)
            known[place] = new

    return _again(once)


def fetched(
    http: httpx.Client, url: str, topic: str, partition: int, offset: int | None, count: int
) -> Json | None:
    """Return a page, of the beginning if no offset is told; None if nobody can tell just now."""
    params = {"max_records": count} if offset is None else {"offset": offset, "max_records": count}
    try:
        reply = http.get(url + records_path(topic, partition), params=params)
    except httpx.TransportError:
        return None
    return _answer(reply)


def _answer(reply: httpx.Response) -> Json | None:
    """Return the answer; None if a store gave none in time."""
    answer = reply.json()
    if reply.status_code == 503 and answer["code"] == UNREACHABLE:
        return None
    assert reply.status_code == 200, reply.text
    return answer


def _again(once: Callable[[httpx.Client], None]) -> Work:
    def work(stop: threading.Event) -> None:
        with httpx.Client(timeout=TIMEOUT_S) as http:
            while not stop.wait(PAUSE_S):
                once(http)

    return work


def _text(payload: bytes | None) -> str | None:
    return None if payload is None else payload.decode()


class Load:
    """Work that goes on in threads."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, works: Sequence[Work]) -> None:
        for work in works:
            thread = threading.Thread(target=self._guarded, args=(work,))
            self._threads.append(thread)
            thread.start()

    def _guarded(self, work: Work) -> None:
        try:
            work(self._stop)
        except Exception as error:  # noqa: BLE001
            self.problems.append(f"{work.__qualname__}: {error!r}")

    def check(self) -> None:
        assert not self.problems, self.problems[:3]

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(3 * TIMEOUT_S)
        assert not any(thread.is_alive() for thread in self._threads)


@contextmanager
def working(works: Sequence[Work]) -> Iterator[Load]:
    """Do all of it until the block ends."""
    load = Load()
    load.start(works)
    try:
        yield load
    finally:
        load.stop()
    load.check()
