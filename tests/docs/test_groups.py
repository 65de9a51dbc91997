"""The group clients under docs/examples share a topic: two in JavaScript, one in Python."""

import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from riacho import Admin, Producer
from tests.docs.running import environment
from tests.docs.test_examples import command
from tests.gateway import GatewayProcess, start_gateway

PARTITIONS = 6
SESSION_MS = "2000"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    with start_gateway(tmp_path, "--workers", "2") as started:
        with Admin(started.url) as admin:
            admin.create_topic("payments", PARTITIONS)
        yield started


class Member:
    """A process of the group, and what it has printed."""

    def __init__(self, command: list[str], gateway: GatewayProcess) -> None:
        self.seen: list[tuple[int, int]] = []
        self.process = subprocess.Popen(
            command,
            env=environment(gateway),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._errors: list[str] = []
        self._threads = [
            threading.Thread(target=work) for work in (self._listen, self._listen_to_errors)
        ]
        for thread in self._threads:
            thread.start()

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        for thread in self._threads:
            thread.join(120)
        assert self.process.wait(120) == (-9 if number == signal.SIGKILL else 0), self._errors

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                partition, offset, *_ = line.split()
                self.seen.append((int(partition), int(offset)))

    def _listen_to_errors(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            self._errors += lines


_numbers = count()


def write(gateway: GatewayProcess, each: int) -> set[tuple[int, int]]:
    with Producer(gateway.url) as producer:
        sent = [
            producer.send("payments", {"amount": next(_numbers)}, key="k", partition=partition)
            for partition in range(PARTITIONS)
            for _ in range(each)
        ]
    return {(s.result(120).partition, s.result(120).offset) for s in sent}


def until(condition: Callable[[], bool], timeout_s: float = 40) -> None:
    give_up_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up_s
        time.sleep(0.05)


def shares(gateway: GatewayProcess) -> list[int]:
    with Admin(gateway.url) as admin:
        members = admin.describe_group("accounting").members
    return sorted(len(m.assignment) for m in members if not m.revoke)


def lag(gateway: GatewayProcess) -> int:
    with Admin(gateway.url) as admin:
        return sum(one.lag for one in admin.group_lag("accounting"))


@pytest.mark.slow
def test_members_in_two_languages_share_and_take_over(gateway: GatewayProcess) -> None:
    javascript = [*command("javascript", "group"), "accounting", SESSION_MS]
    written = write(gateway, 20)
    members = [Member(javascript, gateway), Member(javascript, gateway)]
    members.append(Member(command("python", "group"), gateway))

    def seen() -> Counter[tuple[int, int]]:
        return Counter(place for member in members for place in member.seen)

    try:
        until(lambda: seen().keys() == written and shares(gateway) == [2, 2, 2])
        written |= write(gateway, 20)
        until(lambda: seen().keys() == written)
        assert all(member.seen for member in members)

        until(lambda: lag(gateway) == 0)  # What is committed is not read twice.
        members[0].end(signal.SIGKILL)
        written |= write(gateway, 20)
        until(lambda: seen().keys() == written and shares(gateway) == [3, 3])
        assert set(seen().values()) == {1}
    finally:
        for member in members[1:]:
            member.end(signal.SIGTERM)
    with Admin(gateway.url) as admin:
        assert admin.describe_group("accounting").members == []
    assert lag(gateway) == 0
