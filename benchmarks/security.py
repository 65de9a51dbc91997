"""What do keys and ACLs cost on the hot paths?

    python -m benchmarks.security [--seconds 0.5] [--rounds 12] [--acls 1000]

Two gateways of their own, one with `RIACHO_SECURITY=on`: a principal that is no super user, its
key, and as many ACLs, of which a few are about it. One connection each sends the same requests in
turns, each as short as `--seconds`, in the order off, on, on, off. A ratio is of the median of
calls in a turn (rate), and of CPU of the gateway for a call, which a busy machine changes less.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from benchmarks.harness import Connection, Server, gateway, request, show
from benchmarks.http import ARROW, JSON
from service.security.api_keys.credentials import ApiKeys, NewKey
from service.world.clock import real_world
from storage.stores.opening import open_metadata

VALUE = "x" * 1024
BULK = 1000
ACLS_AT_ONCE = 90

RECORDS = "/v1/topics/t/partitions/0/records"


@dataclass
class Side:
    """One of both gateways, as one client sees it."""

    server: Server
    headers: dict[str, str]
    connection: Connection = field(init=False)
    calls: list[float] = field(default_factory=list)
    """Calls a second in each turn."""
    cpu_s: float = 0.0
    count: int = 0

    def __post_init__(self) -> None:
        self.connection = Connection(self.server.port)

    def call(self, method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
        status, found = self.connection.call(
            request(method, path, body, **{"content_type": JSON, **self.headers, **headers})
        )
        assert status in {200, 201}, (status, found[:300])
        return found

    def turn(self, sent: bytes, seconds: float) -> None:
        cpu_s, began, count = self.server.cpu_s(), time.perf_counter(), 0
        while (took := time.perf_counter() - began) < seconds:
            status, body = self.connection.call(sent)
            assert status == 200, (status, body[:300])
            count += 1
        self.calls.append(count / took)
        self.cpu_s += self.server.cpu_s() - cpu_s
        self.count += count

    def forget(self) -> None:
        self.calls, self.cpu_s, self.count = [], 0.0, 0


@contextmanager
def sides(acls: int) -> Iterator[tuple[Side, Side]]:
    with ExitStack() as stack:
        off = Side(stack.enter_context(gateway(RIACHO_SECURITY="off")), {})
        closed = stack.enter_context(gateway(RIACHO_SECURITY="on", RIACHO_AUDIT="off"))
        root, ana = asyncio.run(made_keys(closed))
        administrator = Side(closed, {"authorization": f"Bearer {root}"})
        for start in range(0, acls, ACLS_AT_ONCE):
            some = [acl(number) for number in range(start, min(acls, start + ACLS_AT_ONCE))]
            administrator.call("POST", "/v1/acls", json.dumps({"acls": some}).encode())
        on = Side(closed, {"authorization": f"Bearer {ana}"})
        for side in (off, administrator):
            for name in ("t", "single"):
                side.call("POST", "/v1/topics", json.dumps({"name": name}).encode())
        yield off, on


async def made_keys(server: Server) -> tuple[str, str]:
    """Return the texts of a super user's key and of another one."""
    world = real_world()
    table = open_metadata(f"sqlite:///{server.data / 'metadata.db'}", world.new_version)
    keys = ApiKeys(table, world)
    _, root = await keys.create(NewKey(principal="User:root", is_super=True))
    _, ana = await keys.create(NewKey(principal="User:ana"))
    await table.close()
    return root, ana


def acl(number: int) -> dict[str, str]:
    """Return one of many ACLs; every hundredth is about the caller or everybody."""
    principal = "User:ana" if number % 100 == 0 else f"User:{number}"
    operation = ("READ", "WRITE")[number // 100 % 2]
    name = f"topic-{number % 200}" if number % 100 else "*"
    return {
        "resource_type": "TOPIC",
        "resource_name": name,
        "principal": principal,
        "pattern_type": "PREFIXED" if number % 3 and number % 100 else "LITERAL",
        "operation": operation,
    }


def produced(count: int) -> bytes:
    return json.dumps({"records": [{"key": str(n), "value": VALUE} for n in range(count)]}).encode()


def compared(
    off: Side, on: Side, what: tuple[str, Sequence[bytes]], rounds: int, seconds: float
) -> list[str]:
    name, (for_off, for_on) = what
    off.forget()
    on.forget()
    for _ in range(rounds):
        for side, sent in ((off, for_off), (on, for_on), (on, for_on), (off, for_off)):
            side.turn(sent, seconds)
    rates = [statistics.median(side.calls) for side in (off, on)]
    costs = [side.cpu_s / side.count * 1e6 for side in (off, on)]
    return [
        name,
        *(f"{rate:,.0f}" for rate in rates),
        f"{rates[1] / rates[0]:.2f}",
        *(f"{cost:,.0f}" for cost in costs),
        f"{costs[0] / costs[1]:.2f}",
    ]


def main(seconds: float, rounds: int, acls: int) -> None:
    with sides(acls) as (off, on):
        for side in (off, on):
            for _ in range(20):
                side.call("POST", RECORDS, produced(BULK))

        def both(method: str, path: str, body: bytes = b"", **headers: str) -> list[bytes]:
            return [
                request(method, path, body, **{"content_type": JSON, **side.headers, **headers})
                for side in (off, on)
            ]

        single = "/v1/topics/single/partitions/0/records"
        questions = (
            ("produce 1", both("POST", single, produced(1))),
            (f"produce {BULK}", both("POST", single, produced(BULK))),
            ("fetch 1", both("GET", f"{RECORDS}?offset=700&max_records=1", accept=JSON)),
            (f"fetch {BULK}", both("GET", f"{RECORDS}?offset=0&max_records={BULK}", accept=JSON)),
            (f"fetch {BULK}, Arrow", both("GET", f"{RECORDS}?max_records={BULK}", accept=ARROW)),
        )
        for what in questions:
            compared(off, on, what, 1, seconds)  # Warms both up.
        rows = [compared(off, on, what, rounds, seconds) for what in questions]
    columns = ["1 KiB records", "off/s", "on/s", "ratio", "CPU µs off", "on", "ratio"]
    show(f"Keys and {acls:,} ACLs, one connection", columns, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--acls", type=int, default=1000)
    given = parser.parse_args()
    main(given.seconds, given.rounds, given.acls)
