"""Members of a group as plain HTTP clients in threads, and a book of what they were told."""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

from tests.integration.processes import TIMEOUT_S, Json

GROUP = "g"


@dataclass
class Book:
    """What all members together were told and given."""

    topic: str
    session_ms: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """By generation and partition; a static member stays the same when it restarts."""
    delivered: dict[int, set[int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    rejoined: int = 0
    """How often a session had ended though its member lived."""

    def told(self, name: str, answer: Json) -> None:
        with self.lock:
            for place in answer["assignment"]:
                key = answer["generation"], place["partition"]
                owner = self.owners.setdefault(key, name)
                if owner != name:
                    self.problems.append(f"{key} belongs to {owner} and to {name}")

    def given(self, name: str, answer: Json) -> None:
        with self.lock:
            for each in answer["partitions"]:
                if "error" in each:
                    if each["error"]["status"] < 500:
                        self.problems.append(f"{name}: {each}")
                    continue
                offsets = {record["offset"] for record in each["records"]}
                self.delivered.setdefault(each["partition"], set()).update(offsets)
                key = answer["generation"], each["partition"]
                if offsets and self.owners.get(key) != name:
                    self.problems.append(f"{key} was given to {name}, who does not own it")


class Member(threading.Thread):
    """Polls any of `urls`, and commits what it got with the next turn."""

    def __init__(self, book: Book, urls: Sequence[str], name: str, instance: str | None) -> None:
        super().__init__(name=name)
        self.book = book
        self.urls = urls
        self.instance = instance
        self.stopping = threading.Event()
        self.killed = threading.Event()
        self.resume = threading.Event()
        self.resume.set()
        self.asleep_s = 0.0
        self.lives = 0
        self.told: Json = None
        self.assignment: list[Json] = []
        self._chance = random.Random(name)
        self._http = httpx.Client(timeout=TIMEOUT_S)

    @property
    def identity(self) -> str:
        return self.instance or str(self.told["member_id"])

    def run(self) -> None:
        with self._http:
            while not (self.stopping.is_set() or self.killed.is_set()):
                self._join()
                while self._turn():
                    pass
            if self.told is not None and not self.killed.is_set():
                self._call("DELETE", f"/members/{self.told['member_id']}")

    def _join(self) -> None:
        body = {
            "topics": [self.book.topic],
            "session_timeout_ms": self.book.session_ms,
            "instance_id": self.instance,
            "client_id": self.name,
        }
        answer = self._call("POST", "/members", body)
        if answer.status_code != 200:
            time.sleep(0.05)
            return
        self.lives += 1
        if self.lives > 1:
            with self.book.lock:
                self.book.rejoined += 1
        self.positions: dict[int, int] = {}
        self.owned: set[int] = set()
        self.told = answer.json()
        self._hear(self.told)

    def _hear(self, answer: Json) -> None:
        self.told = {**self.told, **answer}
        self.book.told(self.identity, answer)
        self.assignment = answer["assignment"]
        assigned = {place["partition"] for place in answer["assignment"]}
        # What is to be given up is not read any more from here on.
        self.owned = assigned
        self.positions = {p: o for p, o in self.positions.items() if p in assigned}

    def _turn(self) -> bool:
        """Poll and commit once; return whether the session goes on."""
        self.resume.wait()
        if self.stopping.is_set() or self.killed.is_set() or self.told is None:
            return False
        path = f"/members/{self.told['member_id']}"
        body = {
            "generation": self.told["generation"],
            "owned": [{"topic": self.book.topic, "partition": p} for p in sorted(self.owned)],
        }
        spots = [
            {"topic": self.book.topic, "partition": p, "offset": o}
            for p, o in self.positions.items()
        ]
        answer = self._call("POST", f"{path}/poll", {**body, "positions": spots, "max_wait_ms": 50})
        if answer.status_code == 409:
            answer = self._call("POST", f"{path}/heartbeat", body)
        if answer.status_code != 200:
            return self._survives(answer)
        told = answer.json()
        self._hear(told)
        if "partitions" in told:
            self.book.given(self.identity, told)
            self.positions |= {
                each["partition"]: each["next_offset"]
                for each in told["partitions"]
                if "error" not in each
            }
        return self._commit()

    def _commit(self) -> bool:
        if not self.positions:
            return True
        body = {
            "member_id": self.told["member_id"],
            "generation": self.told["generation"],
            "offsets": [
                {"topic": self.book.topic, "partition": p, "offset": o}
                for p, o in self.positions.items()
            ],
        }
        answer = self._call("POST", "/offsets", body)
        return answer.status_code in {200, 409} or self._survives(answer)

    def _survives(self, answer: httpx.Response) -> bool:
        if answer.json()["code"] == "UNKNOWN_MEMBER_ID":
            self.told = None
            return False
        if answer.status_code < 500:
            self.book.problems.append(f"{self.name}: {answer.text}")
        time.sleep(0.05)
        return True

    def _call(self, method: str, path: str, body: Json = None) -> httpx.Response:
        url = f"{self._chance.choice(self.urls)}/v1/groups/{GROUP}{path}"
        for _ in range(100):
            try:
                return self._http.request(method, url, json=body)
            except httpx.TransportError:
                time.sleep(0.05)  # The gateway is away: ask another one.
                url = f"{self._chance.choice(self.urls)}/v1/groups/{GROUP}{path}"
        raise AssertionError("no gateway answers")


@dataclass
class Crowd:
    """Members that come and go."""

    book: Book
    urls: Sequence[str]
    members: list[Member] = field(default_factory=list)
    started: int = 0

    def add(self, instance: str | None = None) -> Member:
        self.started += 1
        name = f"{instance or 'member'}-{self.started}"
        member = Member(self.book, self.urls, name, instance)
        self.members.append(member)
        member.start()
        return member

    def sleep(self, member: Member) -> None:
        member.asleep_s = time.monotonic()
        member.resume.clear()

    def wake(self, slept_s: float) -> None:
        """Let those go on who have slept for so long."""
        for member in self.members:
            if time.monotonic() - member.asleep_s >= slept_s:
                member.resume.set()

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        member.stopping.set()
        member.resume.set()
        member.join(TIMEOUT_S)

    def kill(self, member: Member) -> None:
        """Say nothing to anyone, as a crash would."""
        self.members.remove(member)
        member.killed.set()
        member.resume.set()
        member.join(TIMEOUT_S)


@contextmanager
def crowd(book: Book, urls: Sequence[str]) -> Iterator[Crowd]:
    all_of_them = Crowd(book, urls)
    try:
        yield all_of_them
    finally:
        for member in list(all_of_them.members):
            all_of_them.leave(member)
