"""The users of a gateway during a soak, each at a steady pace in its own thread.

An actor is a function that is called again and again, and returns when it has done one thing.
An unexpected answer ends the soak, and is reported at the end.
"""

import base64
import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, cycle

import httpx

from benchmarks.harness import Connection, request

Act = Callable[[], None]

EVENTS = "events"
"""Much, of which retention keeps little."""
KEYED = "keyed"
"""Compacted."""
LEDGER = "ledger"
"""Written by transactions."""
PARTITIONS = 6
GROUP = "workers"

JSON = "application/json"
RENEW_EVERY = 500
"""Calls after which a connection is closed and another one opened."""


class Crew:
    def __init__(self, port: int, rate: float) -> None:
        self.problems: list[str] = []
        self.took: dict[str, list[tuple[float, float]]] = defaultdict(list)
        """Of the calls that are timed: when, and how many milliseconds."""
        self._port = port
        self._rate = rate
        self._stop = threading.Event()
        self._visits = count()
        self._clients: list[httpx.Client | Connection] = []
        self._chance = random.Random(1)
        self._values = [base64.b64encode(self._chance.randbytes(750)).decode() for _ in range(200)]
        self._began_s = time.monotonic()

    def prepare(self) -> None:
        """Make the topics that stay."""
        with self._client() as http:
            for name, config in (
                (EVENTS, {"retention.bytes": 1024 * 1024}),
                (KEYED, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.2}),
                (LEDGER, {"retention.bytes": 1024 * 1024}),
            ):
                body = {"name": name, "partitions": PARTITIONS, "config": config}
                http.post("/v1/topics", json=body).raise_for_status()

    @contextmanager
    def working(self) -> Iterator[threading.Event]:
        """Run all actors until the block ends; yield an event that is set if one fails."""
        self._stop = threading.Event()
        self.took.clear()
        producers = 4
        pace_s = producers / self._rate
        actors: list[tuple[Act, float]] = [(self.producer(), pace_s) for _ in range(producers)]
        actors += [(self.fetcher(), pace_s) for _ in range(2)]
        actors += [(self.member(), 0.2) for _ in range(3)]
        actors += [(self.numbered(), 0.2), (self.transactor(), 0.5), (self.keyed(), 0.5)]
        actors += [(self.tail, 2.0), (self.topics(), 5.0), (self.newcomer, 2.0)]
        threads = [threading.Thread(target=self._repeat, args=actor) for actor in actors]
        self._began_s = time.monotonic()
        for thread in threads:
            thread.start()
        try:
            yield self._stop
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(60)
            for client in self._clients:
                client.close()
            self._clients.clear()

    def _repeat(self, act: Act, pace_s: float) -> None:
        due_s = time.monotonic() + random.random() * pace_s
        while not self._stop.wait(max(0.0, due_s - time.monotonic())):
            # A late actor does not catch up: a pause of the machine must not cause a burst.
            due_s = max(due_s + pace_s, time.monotonic())
            try:
                act()
            except Exception as error:  # noqa: BLE001 (Whatever it is, it is what we look for.)
                self.problems.append(f"{getattr(act, '__qualname__', act)}: {error!r}")
                self._stop.set()

    def _client(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self._port}", timeout=30)

    def _lasting_client(self) -> httpx.Client:
        """Return one that is closed when all go home."""
        client = self._client()
        self._clients.append(client)
        return client

    def _timed(self, name: str, began_s: float) -> None:
        now_s = time.monotonic()
        self.took[name].append((began_s - self._began_s, (now_s - began_s) * 1000))

    def _value(self) -> str:
        return self._chance.choice(self._values)

    # Records

    def producer(self) -> Act:
        connections = self._connections()

        def act() -> None:
            records = [{"value": self._value()} for _ in range(self._chance.choice([1, 1, 1, 10]))]
            body = json.dumps({"records": records}).encode()
            call = request("POST", f"/v1/topics/{EVENTS}/records", body, content_type=JSON)
            began_s = time.monotonic()
            expect(next(connections).call(call), 200)
            self._timed("produce", began_s)

        return act

    def fetcher(self) -> Act:
        """Follows one partition after the other, and sometimes looks far back."""
        connections = self._connections()
        partitions = cycle(range(PARTITIONS))
        offsets = dict.fromkeys(range(PARTITIONS), "at=earliest")

        def act() -> None:
            partition = next(partitions)
            where = "at=earliest" if self._chance.random() < 0.02 else offsets[partition]
            path = f"/v1/topics/{EVENTS}/partitions/{partition}/records?max_records=500&{where}"
            began_s = time.monotonic()
            status, body = next(connections).call(request("GET", path))
            self._timed("fetch", began_s)
            if status == 416:  # Retention was faster.
                offsets[partition] = "at=earliest"
                return
            expect((status, body), 200)
            offsets[partition] = f"offset={json.loads(body)['next_offset']}"

        return act

    def keyed(self) -> Act:
        connections = self._connections()

        def act() -> None:
            records = [
                {"key": f"key-{self._chance.randrange(2000)}", "value": self._value()}
                for _ in range(20)
            ]
            body = json.dumps({"records": records}).encode()
            call = request("POST", f"/v1/topics/{KEYED}/records", body, content_type=JSON)
            expect(next(connections).call(call), 200)

        return act

    def tail(self) -> None:
        """Listens for a moment and hangs up."""
        path = f"/v1/topics/{EVENTS}/partitions/{self._chance.randrange(PARTITIONS)}/records"
        headers = {"accept": "text/event-stream"}
        with (
            self._client() as http,
            http.stream("GET", path, headers=headers, params={"at": "latest"}) as reply,
        ):
            for number, _ in enumerate(reply.iter_lines()):
                if number == 20 or self._stop.is_set():
                    return

    def _connections(self) -> Iterator[Connection]:
        while True:
            connection = Connection(self._port)
            self._clients.append(connection)
            for _ in range(RENEW_EVERY):
                yield connection
            self._clients.remove(connection)
            connection.close()

    # Producers and transactions

    def numbered(self) -> Act:
        http = self._lasting_client()
        producer_id = http.post("/v1/producers", json={}).json()["producer_id"]
        sequences = count()

        def act() -> None:
            headers = {
                "riacho-producer-id": str(producer_id),
                "riacho-producer-epoch": "0",
                "riacho-sequence": str(next(sequences)),
            }
            body = {"records": [{"value": self._value()}]}
            path = f"/v1/topics/{LEDGER}/partitions/0/records"
            http.post(path, json=body, headers=headers).raise_for_status()

        return act

    def newcomer(self) -> None:
        """A producer that writes once and is not heard of again."""
        with self._client() as http:
            producer_id = http.post("/v1/producers", json={}).json()["producer_id"]
            headers = {
                "riacho-producer-id": str(producer_id),
                "riacho-producer-epoch": "0",
                "riacho-sequence": "0",
            }
            body = {"records": [{"value": self._value()}]}
            path = f"/v1/topics/{LEDGER}/partitions/1/records"
            http.post(path, json=body, headers=headers).raise_for_status()

    def transactor(self) -> Act:
        http = self._lasting_client()
        name = "transactor"
        instance = http.post("/v1/producers", json={"transactional_id": name}).json()
        turns = count()

        def act() -> None:
            nonlocal instance
            began_s = time.monotonic()
            begun = posted(http, "/v1/transactions", {"transactional_id": name, **instance})
            headers = {"riacho-transaction": str(begun["transaction_id"])}
            for partition in (2, 3, 4):
                path = f"/v1/topics/{LEDGER}/partitions/{partition}/records"
                body = {"records": [{"value": self._value()}]}
                http.post(path, json=body, headers=headers).raise_for_status()
            end = "abort" if next(turns) % 5 == 4 else "commit"
            ended = posted(http, f"/v1/transactions/{begun['transaction_id']}/{end}", {})
            instance = {"producer_id": ended["producer_id"], "epoch": ended["epoch"]}
            self._timed("transaction", began_s)

        return act

    # Groups and topics

    def member(self) -> Act:
        """Polls and commits, and every half a minute or so leaves and comes back."""
        http = self._lasting_client()
        told: dict[str, object] = {}

        def act() -> None:
            if not told:
                told.update(posted(http, f"/v1/groups/{GROUP}/members", {"topics": [EVENTS]}))
            path = f"/v1/groups/{GROUP}/members/{told['member_id']}"
            if self._chance.random() < 0.005:
                http.delete(path).raise_for_status()
                told.clear()
                return
            body = {"generation": told["generation"], "owned": told["assignment"]}
            began_s = time.monotonic()
            reply = http.post(f"{path}/poll", json={**body, "max_records": 500})
            self._timed("poll", began_s)
            if reply.status_code == 409:
                told.update(posted(http, f"{path}/heartbeat", body))
                return
            reply.raise_for_status()
            told.update(reply.json())
            offsets = [
                {name: each[name] for name in ("topic", "partition")}
                | {"offset": each["next_offset"]}
                for each in reply.json()["partitions"]
                if "error" not in each
            ]
            if offsets:
                commit = {"member_id": told["member_id"], "generation": told["generation"]}
                path = f"/v1/groups/{GROUP}/offsets"
                reply = http.post(path, json={**commit, "offsets": offsets})
                assert reply.status_code in {200, 409}, reply.text

        return act

    def topics(self) -> Act:
        """Makes a topic and a group for it, uses them, and deletes both."""
        numbers, visit = count(), next(self._visits)

        def act() -> None:
            name = f"passing-{visit}-{next(numbers)}"
            with self._client() as http:
                posted(http, "/v1/topics", {"name": name, "partitions": 3})
                posted(http, f"/v1/topics/{name}/records", {"records": [{"value": self._value()}]})
                told = posted(http, f"/v1/groups/{name}/members", {"topics": [name]})
                path = f"/v1/groups/{name}/members/{told['member_id']}"
                posted(http, f"{path}/poll", {"generation": told["generation"]})
                http.delete(path).raise_for_status()
                http.delete(f"/v1/groups/{name}").raise_for_status()
                http.delete(f"/v1/topics/{name}").raise_for_status()

        return act


def posted(http: httpx.Client, path: str, body: object) -> dict[str, object]:
    reply = http.post(path, json=body)
    assert reply.status_code in {200, 201}, (path, reply.status_code, reply.text)
    answer: dict[str, object] = reply.json()
    return answer


def expect(reply: tuple[int, bytes], status: int) -> None:
    assert reply[0] == status, (reply[0], reply[1][:300])
