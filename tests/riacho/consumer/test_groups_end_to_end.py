"""Groups on a real gateway of two processes: each call may reach the other process."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from riacho import (
    Admin,
    AsyncConsumer,
    CommitFailed,
    Consumer,
    Producer,
    Record,
    TopicPartition,
)
from tests.gateway import GatewayProcess, start_gateway

PARTITIONS = 4
QUICK = {
    "auto_offset_reset": "earliest",
    "heartbeat_interval_ms": 100,
    "session_timeout_ms": 2000,
    "fetch_max_wait_ms": 100,
}
_numbers = count()

MEMBER = """
import contextlib, sys
from riacho import CommitFailed, Consumer
url, topic, group = sys.argv[1:]
with Consumer(url, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
              heartbeat_interval_ms=100, session_timeout_ms=2000, max_poll_records=10) as consumer:
    consumer.subscribe(topic)
    while True:
        for record in consumer.poll(1000):
            print(record.partition, record.offset, flush=True)
        with contextlib.suppress(CommitFailed):
            consumer.commit()
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    path: Path = tmp_path_factory.mktemp("gateway")
    with start_gateway(path, "--workers", "2", "--log-level", "warning") as process:
        yield process


@pytest.fixture
def topic(gateway: GatewayProcess) -> str:
    with Admin(gateway.url) as admin:
        return admin.create_topic(f"topic-{next(_numbers)}", partitions=PARTITIONS).name


def write(gateway: GatewayProcess, topic: str, each: int) -> set[tuple[int, int]]:
    """Write `each` records to every partition; return their partitions and offsets."""
    with Producer(gateway.url) as producer:
        futures = [
            producer.send(topic, str(n), partition=partition)
            for partition in range(PARTITIONS)
            for n in range(each)
        ]
    return {(f.result(120).partition, f.result(120).offset) for f in futures}


def member(gateway: GatewayProcess, topic: str, **settings: object) -> Consumer:
    consumer = Consumer(gateway.url, group_id=f"g-{topic}", **QUICK | settings)  # type: ignore[arg-type]
    consumer.subscribe(topic)
    return consumer


def until(condition: Callable[[], bool], *consumers: Consumer, timeout_s: float = 20) -> None:
    give_up_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up_s, [c.assignment() for c in consumers]
        for consumer in consumers:
            consumer.poll(20)
        if not consumers:
            time.sleep(0.02)


def generation(gateway: GatewayProcess, topic: str) -> int:
    with Admin(gateway.url) as admin:
        return admin.describe_group(f"g-{topic}").generation


class Ledger:
    """The owner of each partition, from the members' callbacks; and the records read."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[int, int]] = Counter()
        self.mistakes: list[str] = []
        self._owners: dict[TopicPartition, int] = {}
        self._lock = threading.Lock()

    def take(self, number: int, partitions: list[TopicPartition]) -> None:
        with self._lock:
            for place in partitions:
                if self._owners.setdefault(place, number) != number:
                    self.mistakes.append(f"{place} has two owners")

    def give(self, number: int, partitions: list[TopicPartition]) -> None:
        with self._lock:
            gone = [self._owners.pop(place, None) for place in partitions]
            if set(gone) - {number}:
                self.mistakes.append(f"{partitions} were not all of {number}")

    def read(self, number: int, record: Record) -> None:
        with self._lock:
            self.seen[record.partition, record.offset] += 1
            if self._owners.get(TopicPartition(record.topic, record.partition)) != number:
                self.mistakes.append(f"{record.partition} was read by a stranger")

    def work(self, url: str, topic: str, number: int, stop: threading.Event) -> None:
        settings = QUICK | {"auto_commit_interval_ms": 50, "max_poll_records": 7}
        with Consumer(url, group_id=f"g-{topic}", **settings) as consumer:  # type: ignore[arg-type]
            consumer.subscribe(
                topic, on_assigned=partial(self.take, number), on_revoked=partial(self.give, number)
            )
            while not stop.is_set():
                for record in consumer.poll(20):
                    self.read(number, record)


def test_consumers_share_partitions_while_members_join_and_leave(
    gateway: GatewayProcess, topic: str
) -> None:
    ledger = Ledger()
    written: set[tuple[int, int]] = set()
    stops = [threading.Event() for _ in range(3)]
    threads = [
        threading.Thread(target=ledger.work, args=(gateway.url, topic, number, stop))
        for number, stop in enumerate(stops)
    ]
    for number, thread in enumerate(threads):
        thread.start()
        written |= write(gateway, topic, 50)
        time.sleep(0.3)
        if number == 1:
            stops[0].set()
    until(lambda: len(ledger.seen) >= len(written))
    for stop, thread in zip(stops, threads, strict=True):
        stop.set()
        thread.join(120)

    assert ledger.mistakes == []
    # All members left cleanly, so nothing was read twice.
    assert ledger.seen == Counter(dict.fromkeys(written, 1))


def start_member(gateway: GatewayProcess, topic: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MEMBER, gateway.url, topic, f"g-{topic}"],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_another_consumer_takes_over_after_a_kill(gateway: GatewayProcess, topic: str) -> None:
    written = write(gateway, topic, 50)
    victim = start_member(gateway, topic)
    assert victim.stdout is not None
    lines = [victim.stdout.readline() for _ in range(25)]
    victim.send_signal(signal.SIGKILL)
    lines += victim.stdout.read().splitlines()
    victim.wait(60)
    victim.stdout.close()
    seen = Counter(tuple(map(int, line.split())) for line in lines if len(line.split()) == 2)
    with member(gateway, topic, enable_auto_commit=False) as heir:
        give_up_s = time.monotonic() + 120
        while seen.keys() != written:
            assert time.monotonic() < give_up_s
            seen.update((r.partition, r.offset) for r in heir.poll(200))

    # Nothing is lost; records printed but not yet committed came twice: at most one poll of ten.
    assert sum(seen.values()) - len(written) <= 10


def test_a_resumed_consumer_does_not_return_its_prefetched_records(
    gateway: GatewayProcess, topic: str
) -> None:
    write(gateway, topic, 500)
    sleeper = start_member(gateway, topic)
    assert sleeper.stdout is not None
    assert sleeper.stdout.readline()
    os.kill(sleeper.pid, signal.SIGSTOP)
    try:
        with member(gateway, topic) as heir:
            until(lambda: len(heir.assignment()) == PARTITIONS, heir)
            until(lambda: sum(heir.position(*p) for p in heir.assignment()) == 2000, heir)
            os.kill(sleeper.pid, signal.SIGCONT)
            until(lambda: len(heir.assignment()) == PARTITIONS // 2, heir)
    finally:
        os.kill(sleeper.pid, signal.SIGCONT)
        sleeper.kill()
    printed = len(sleeper.stdout.read().splitlines())
    sleeper.stdout.close()
    sleeper.wait(60)

    # At most the poll that was interrupted; its prefetched records would be many more.
    assert printed <= 20


def test_a_static_member_restarts_without_a_rebalance(gateway: GatewayProcess, topic: str) -> None:
    write(gateway, topic, 5)
    with member(gateway, topic) as other:
        first = member(gateway, topic, group_instance_id="one")
        until(lambda: len(first.assignment()) == 2, other, first)
        kept, before = first.assignment(), generation(gateway, topic)
        first.close()
        with member(gateway, topic, group_instance_id="one") as second:
            until(lambda: second.assignment() == kept, other, second)

            assert generation(gateway, topic) == before
            assert len(other.assignment()) == 2


def test_commits_in_callbacks_succeed_and_commits_after_revocation_fail(
    gateway: GatewayProcess, topic: str
) -> None:
    write(gateway, topic, 5)
    revoked: list[TopicPartition] = []
    with Consumer(
        gateway.url,
        group_id=f"g-{topic}",
        enable_auto_commit=False,
        **QUICK,  # type: ignore[arg-type]
    ) as one:

        def give(partitions: list[TopicPartition]) -> None:
            one.commit(dict.fromkeys(partitions, 3))
            revoked.extend(partitions)

        one.subscribe(topic, on_revoked=give)
        until(lambda: len(one.assignment()) == PARTITIONS, one)
        with member(gateway, topic, enable_auto_commit=False) as two:
            until(lambda: len(two.assignment()) == 2, one, two)
            with pytest.raises(CommitFailed):
                one.commit({revoked[0]: 5})
            assert one.committed(*revoked) == dict.fromkeys(revoked, 3)
            told: list[object] = []
            two.commit_async(dict.fromkeys(two.assignment(), 4), lambda *t: told.append(t))
            until(lambda: bool(told))
            assert two.committed() == dict.fromkeys(two.assignment(), 4)


def test_iterating_seeking_and_pausing_work_without_an_event_loop(
    gateway: GatewayProcess, topic: str
) -> None:
    written = write(gateway, topic, 5)
    with member(gateway, topic) as consumer:
        seen = set()
        for record in consumer:
            seen.add((record.partition, record.offset))
            if len(seen) == len(written):
                break
        consumer.pause((topic, 0))
        consumer.seek_to_beginning()
        again = []
        while len(again) < 15:
            again += consumer.poll(5000)
        assert {record.partition for record in again} == {1, 2, 3}
        consumer.resume((topic, 0))
        assert [r.partition for r in consumer.poll(5000)] == [0] * 5
        consumer.seek(topic, 0, 4)
        assert consumer.position(topic, 0) == 4

    assert seen == written
    with member(gateway, topic) as consumer:
        # Closing committed the positions, one of which was moved back by the seek.
        assert [(r.partition, r.offset) for r in consumer.poll(5000)] == [(0, 4)]


def test_asynchronous_and_synchronous_members_share_a_group(
    gateway: GatewayProcess, topic: str
) -> None:
    written = write(gateway, topic, 20)

    async def main() -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []
        settings: dict[str, object] = {"group_id": f"g-{topic}", **QUICK}
        async with AsyncConsumer(gateway.url, **settings) as one:  # type: ignore[arg-type]
            one.subscribe(pattern=f"{topic}")
            with Consumer(gateway.url, **settings) as two:  # type: ignore[arg-type]
                two.subscribe(topic)
                async with asyncio.timeout(120):
                    while len(one.assignment()) != 2 or len(two.assignment()) != 2:
                        seen += [(r.partition, r.offset) for r in await one.poll(20)]
                        polled = await asyncio.to_thread(two.poll, 20)
                        seen += [(r.partition, r.offset) for r in polled]
                    while len(seen) < len(written):
                        seen += [(r.partition, r.offset) for r in await one.poll(20)]
                        polled = await asyncio.to_thread(two.poll, 20)
                        seen += [(r.partition, r.offset) for r in polled]
        return seen

    assert Counter(asyncio.run(main())) == Counter(dict.fromkeys(written, 1))


def test_a_group_survives_a_restart_of_the_gateway(tmp_path: Path) -> None:
    args = ("--workers", "2", "--log-level", "warning")
    first = start_gateway(tmp_path, *args)
    with Admin(first.url) as admin:
        admin.create_topic("t", PARTITIONS)
    write(first, "t", 5)
    lost: list[object] = []
    with Consumer(first.url, group_id="g", **QUICK | {"session_timeout_ms": 20_000}) as consumer:  # type: ignore[arg-type]
        consumer.subscribe("t", on_lost=lost.append)
        seen = []
        while len(seen) < 20:
            seen += consumer.poll(5000)
        first.kill()
        assert consumer.poll(300) == []
        with start_gateway(tmp_path, *args, port=first.port) as second:
            write(second, "t", 1)
            while len(seen) < 24:
                seen += consumer.poll(5000)
            consumer.commit()
            assert set(consumer.committed().values()) == {6}

    assert lost == []
