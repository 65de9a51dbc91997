"""A network between gateways and AWS, and an AWS, that fail at random in all the ways they have.

    weather = Weather(seed=1)
    with behind_faults(local_aws, weather) as aws:
        ...  # What is started with `aws.env` meets faults,
        weather.is_calm = True  # and now none any more.
    assert weather.counts[Kind.PUT, Fault.LOST_REPLY]

Faults are dealt from decks, one for each kind of request, each shuffled anew when it is used up:
so `rate` is exact and no fault is long in coming. A storm does one thing to everything that is
asked of a service, for as long as it lasts: what repetitions get over singly becomes an outage.
"""

import asyncio
import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from tests.local_aws import LocalAws
from tests.storage.helpers.lossy_proxy import LossyProxy, Request, answer


class Kind(StrEnum):
    """What is asked for: of S3 the first four, of DynamoDB the others."""

    PUT = "PUT"
    GET = "GET"
    LIST = "LIST"
    DELETE = "DELETE"
    READ_ITEM = "read item"
    WRITE_ITEM = "write item"
    TRANSACT = "transact"


S3: Final = frozenset({Kind.PUT, Kind.GET, Kind.LIST, Kind.DELETE})
DYNAMODB: Final = frozenset(Kind) - S3


class Fault(StrEnum):
    NONE = "none"
    RESET = "reset"
    """The connection is cut before the request arrives."""
    LOST_REPLY = "lost reply"
    """Done, and the connection is cut instead of an answer."""
    LATE = "late"
    """The connection is cut, and the request arrives all the same, when it was long repeated."""
    SLOW = "slow"
    FAILED = "500"
    FAILED_AFTER = "500 though it was done"
    SLOW_DOWN = "503 SlowDown"
    CONFLICT = "409 ConditionalRequestConflict"
    THROTTLED = "throttled"
    TRANSACTION_CONFLICT = "TransactionConflict"
    CUT = "cut"
    """The answer ends in the middle, before the length that it announced."""
    SHORTENED = "shortened"
    """The answer ends in the middle, and says that this is all of it."""
    CORRUPTED = "corrupted"
    """A bit of the answer is another one."""


_ANYWHERE: Final = (
    Fault.RESET,
    Fault.LOST_REPLY,
    Fault.LATE,
    Fault.SLOW,
    Fault.FAILED,
    Fault.FAILED_AFTER,
)
_READING: Final = (Fault.RESET, Fault.SLOW, Fault.FAILED, Fault.CUT, Fault.SHORTENED)
FAULTS: Final[Mapping[Kind, tuple[Fault, ...]]] = {
    Kind.PUT: (*_ANYWHERE, Fault.SLOW_DOWN, Fault.CONFLICT),
    Kind.GET: (*_READING, Fault.SLOW_DOWN, Fault.CORRUPTED),
    Kind.LIST: (*_READING, Fault.SLOW_DOWN),
    Kind.DELETE: (*_ANYWHERE, Fault.SLOW_DOWN),
    Kind.READ_ITEM: (*_READING, Fault.THROTTLED),
    Kind.WRITE_ITEM: (
        *_ANYWHERE,
        Fault.THROTTLED,
        Fault.TRANSACTION_CONFLICT,
        Fault.CUT,
        Fault.SHORTENED,
    ),
    Kind.TRANSACT: (
        *_ANYWHERE,
        Fault.THROTTLED,
        Fault.TRANSACTION_CONFLICT,
        Fault.CUT,
        Fault.SHORTENED,
    ),
}
_DAMAGE: Final = frozenset({Fault.SHORTENED, Fault.CORRUPTED})
SLOW_S: Final = 0.4
BENT_EVERY_S: Final = 5.0
LATE_S: Final = 1.5


@dataclass
class Weather:
    seed: int
    rate: float = 0.15
    is_calm: bool = False
    storms: dict[Kind, Fault] = field(default_factory=dict)
    """What happens to everything of a kind, for now."""
    refused_buckets: set[str] = field(default_factory=set)
    """Zones that refuse everything."""
    counts: Counter[tuple[Kind, Fault]] = field(default_factory=Counter)
    """What was really done to whom; also how many refused for their bucket, as resets."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self._decks: dict[Kind, list[Fault]] = {kind: [] for kind in Kind}
        self._dealt: set[Kind] = set()
        self._bent_s: dict[str, float] = {}

    def next(self, kind: Kind, request: Request) -> Fault:
        """Return what shall happen to a request."""
        if self.is_calm:
            return Fault.NONE
        if bucket_of(request) in self.refused_buckets:
            return Fault.RESET
        fault = self.storms.get(kind) or self._deal(kind)
        if fault in _DAMAGE and kind in S3:
            # What is damaged each time it is read is damaged for good, and no fault of the wire.
            now_s = time.monotonic()
            if now_s < self._bent_s.get(request.line, 0) + BENT_EVERY_S:
                return Fault.NONE
            self._bent_s[request.line] = now_s
        return fault

    def _deal(self, kind: Kind) -> Fault:
        if not self._decks[kind]:
            faults = FAULTS[kind]
            # The first deck is half faults, so that also a short run meets each of them.
            rate = self.rate if kind in self._dealt else max(self.rate, 0.5)
            without = round(len(faults) / rate) - len(faults)
            self._decks[kind] = [*faults, *[Fault.NONE] * without]
            self.chance.shuffle(self._decks[kind])
            self._dealt.add(kind)
        return self._decks[kind].pop()

    def totals(self) -> Counter[Fault]:
        """Return how often each fault happened, to whatever kind."""
        totals: Counter[Fault] = Counter()
        for (_, fault), count in self.counts.items():
            totals[fault] += count
        return totals


@dataclass
class FaultProxy(LossyProxy):
    weather: Weather = field(default_factory=lambda: Weather(0))

    def __post_init__(self) -> None:
        self._late: set[asyncio.Task[bytes]] = set()

    async def rest(self) -> None:
        """Return when nothing is under way any more that the client has given up."""
        while self._late:
            await asyncio.wait(self._late)

    async def _handle(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        kind = kind_of(request)
        fault = self.weather.next(kind, request)
        reply = await self._reply(kind, fault, request)
        if fault in _BENT:
            reply, is_bent = _BENT[fault](reply, self.weather.chance)
            fault = fault if is_bent else Fault.NONE
        self.weather.counts[kind, fault] += 1
        if reply is None:
            return False
        writer.write(reply)
        await writer.drain()
        return fault is not Fault.CUT

    async def _reply(self, kind: Kind, fault: Fault, request: Request) -> bytes | None:
        """Return what to answer; None: nothing."""
        if fault is Fault.RESET:
            return None
        if fault is Fault.LATE:
            task = asyncio.create_task(self._later(request))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
            return None
        if fault is Fault.SLOW:
            await asyncio.sleep(SLOW_S * self.weather.chance.random())
        if fault in _INSTEAD:
            return _instead(kind, fault, request)
        reply = await self._forward(request)
        if fault is Fault.LOST_REPLY:
            return None
        return _instead(kind, fault, request) if fault is Fault.FAILED_AFTER else reply

    async def _later(self, request: Request) -> bytes:
        await asyncio.sleep(LATE_S * self.weather.chance.random())
        return await self._forward(request)


def kind_of(request: Request) -> Kind:
    target = re.search(rb"(?i)^x-amz-target: *DynamoDB_\d+\.(\w+)", request.head, re.MULTILINE)
    if target:
        operation = target[1].decode()
        if operation in {"GetItem", "BatchGetItem", "Query"}:
            return Kind.READ_ITEM
        return Kind.TRANSACT if operation == "TransactWriteItems" else Kind.WRITE_ITEM
    method, path, _ = request.line.split(" ", 2)
    if "list-type=" in path:
        return Kind.LIST
    if method == "DELETE" or (method == "POST" and path.endswith("?delete")):
        return Kind.DELETE
    return Kind.GET if method in {"GET", "HEAD"} else Kind.PUT


def bucket_of(request: Request) -> str:
    return request.line.split(" ", 2)[1].split("/", 2)[1].partition("?")[0]


# Answers that AWS did not give

_INSTEAD: Final = frozenset(
    {
        Fault.FAILED,
        Fault.SLOW_DOWN,
        Fault.CONFLICT,
        Fault.THROTTLED,
        Fault.TRANSACTION_CONFLICT,
    }
)


def _instead(kind: Kind, fault: Fault, request: Request) -> bytes:
    if kind in DYNAMODB:
        return _dynamodb_error(kind, fault, request)
    status, code = {
        Fault.SLOW_DOWN: (503, "SlowDown"),
        Fault.CONFLICT: (409, "ConditionalRequestConflict"),
    }.get(fault, (500, "InternalError"))
    return answer(status, f"<Error><Code>{code}</Code><Message>Injected.</Message></Error>")


def _dynamodb_error(kind: Kind, fault: Fault, request: Request) -> bytes:
    status, code, more = 500, "InternalServerError", {}
    if fault is Fault.THROTTLED:
        # Old and new tables say it differently.
        is_old = len(request.body) % 2
        status = 400
        code = "ProvisionedThroughputExceededException" if is_old else "ThrottlingException"
    elif fault is Fault.TRANSACTION_CONFLICT and kind is Kind.TRANSACT:
        items = len(json.loads(request.body)["TransactItems"])
        reasons = [{"Code": "TransactionConflict"}, *[{"Code": "None"}] * (items - 1)]
        status, code, more = 400, "TransactionCanceledException", {"CancellationReasons": reasons}
    elif fault is Fault.TRANSACTION_CONFLICT:
        status, code = 400, "TransactionConflictException"
    name = f"com.amazonaws.dynamodb.v20120810#{code}"
    body = json.dumps({"__type": name, "message": "Injected.", **more})
    return answer(status, body, "application/x-amz-json-1.0")


# Answers that did not arrive as they were given

_LENGTH: Final = re.compile(rb"(?i)(\r\ncontent-length: *)(\d+)")
Bent = tuple[bytes | None, bool]


def _cut(reply: bytes | None, chance: random.Random) -> Bent:
    head, body = _parts(reply)
    if not body:
        return reply, False
    return head + body[: chance.randrange(len(body))], True


def _shortened(reply: bytes | None, chance: random.Random) -> Bent:
    head, body = _parts(reply)
    if not body:
        return reply, False
    left = body[: chance.randrange(len(body))]
    return _LENGTH.sub(rb"\g<1>%d" % len(left), head) + left, True


def _corrupted(reply: bytes | None, chance: random.Random) -> Bent:
    head, body = _parts(reply)
    if not body:
        return reply, False
    bent = bytearray(body)
    bent[chance.randrange(len(bent))] ^= 1 << chance.randrange(8)
    return head + bytes(bent), True


def _parts(reply: bytes | None) -> tuple[bytes, bytes]:
    """Return head and body of an answer that holds something; else no body."""
    head, end, body = (reply or b"").partition(b"\r\n\r\n")
    is_good = head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 206")) and _LENGTH.search(head)
    return head + end, body if is_good else b""


_BENT: Final = {Fault.CUT: _cut, Fault.SHORTENED: _shortened, Fault.CORRUPTED: _corrupted}


@contextmanager
def behind_faults(aws: LocalAws, weather: Weather) -> Iterator[LocalAws]:
    """Yield where AWS is reached through the weather. In the end all that is late has arrived."""
    ready = threading.Event()
    stop = asyncio.Event()
    where: list[str] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            proxies = [
                await stack.enter_async_context(FaultProxy(url, weather=weather))
                for url in (aws.s3, aws.dynamodb)
            ]
            where.extend(proxy.url for proxy in proxies)
            loops.append(asyncio.get_running_loop())
            ready.set()
            await stop.wait()
            for proxy in proxies:
                await proxy.rest()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="faults")
    thread.start()
    assert ready.wait(120)
    try:
        yield LocalAws(*where)
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(120)
