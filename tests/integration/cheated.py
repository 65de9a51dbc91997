"""Clients that live with a network that cheats, and what they know of what they have written."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

from riacho import (
    AlreadyCommitted,
    AsyncProducer,
    InvalidProducerEpoch,
    OutcomeUnknown,
    RiachoError,
    TransactionAborted,
)
from riacho.errors import new_error
from tests.gateway import GatewayProcess
from tests.integration.cheating_proxy import Cheat, CheatingProxy
from tests.integration.processes import Api, Json, records_path

PARTITIONS = 3
IN_FLIGHT_MAX = 5


@asynccontextmanager
async def cheating(gateways: list[GatewayProcess], seed: int) -> AsyncIterator[CheatingProxy]:
    """A proxy that has cheated in every way, and delivered everything, when the block ends."""
    urls = [gateway.url for gateway in gateways]
    async with CheatingProxy(urls[0], urls=urls, seed=seed) as proxy:
        yield proxy
        await proxy.rest()
    assert set(proxy.cheats) == set(Cheat)


def new_topic(api: Api) -> str:
    return api.topic(PARTITIONS, config={"lane.partitions": 2})


def logs(gateways: list[GatewayProcess], topic: str) -> list[list[str]]:
    """Return the values of each partition, which all gateways must agree on."""
    found = []
    for gateway in gateways:
        with Api(gateway.url) as api:
            records = [api.read_all(topic, partition) for partition in range(PARTITIONS)]
            found.append([[record["value"] for record in each] for each in records])
    assert all(each == found[0] for each in found)
    return found[0]


@dataclass
class Book:
    """What was sent to each partition by one producer, in order, and what came of it."""

    name: str
    sent: list[list[str]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    acked: dict[tuple[int, int], str] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)

    def next(self, partition: int) -> str:
        value = f"{self.name}.{partition}.{len(self.sent[partition])}"
        self.sent[partition].append(value)
        return value

    def check(self, log: list[list[str]]) -> None:
        """What was acknowledged is there once, at its offset; nothing is twice, or out of order."""
        for (partition, offset), value in self.acked.items():
            assert log[partition][offset] == value
        for partition, sent in enumerate(self.sent):
            mine = [value for value in log[partition] if value.startswith(f"{self.name}.")]
            expected = {value for (p, _), value in self.acked.items() if p == partition}
            written = set(mine)
            assert mine == [value for value in sent if value in written]
            assert expected <= written <= expected | self.unknown
            assert not written & self.refused


async def produce(
    book: Book, url: str, topic: str, count: int, seed: int, delivery_timeout_ms: float = 120_000
) -> None:
    """Send so many records to random partitions, five batches of each in flight."""
    chance = random.Random(f"{book.name}.{seed}")
    waiting = []
    async with AsyncProducer(
        url,
        linger_ms=1,
        batch_size=300,
        max_in_flight=IN_FLIGHT_MAX * PARTITIONS,
        retry_backoff_ms=10,
        retry_backoff_max_ms=100,
        delivery_timeout_ms=delivery_timeout_ms,
    ) as producer:
        for _ in range(count):
            partition = chance.randrange(PARTITIONS)
            value = book.next(partition)
            waiting.append((value, await producer.send(topic, value, partition=partition)))
            if chance.random() < 0.1:
                await asyncio.wait([future for _, future in waiting[-3:]])
        for value, future in waiting:
            try:
                metadata = await future
            except RiachoError as error:
                (book.unknown if error.may_have_applied else book.refused).add(value)
            else:
                assert metadata.offset >= 0
                book.acked[metadata.partition, metadata.offset] = value


class Numbered:
    """A producer of one partition without a library: it numbers, and repeats until answered."""

    def __init__(self, http: httpx.AsyncClient, book: Book, topic: str, partition: int) -> None:
        self._http = http
        self._book = book
        self._path = records_path(topic, partition)
        self._partition = partition
        self._sequence = 0
        self._answered: list[asyncio.Event] = []

    async def run(self, producer_id: int, batches: int) -> None:
        chance = random.Random(producer_id)
        async with asyncio.TaskGroup() as group:
            for number in range(batches):
                # The gateway remembers five: the sixth may go when the first has its answer.
                for answered in self._answered[: max(number - IN_FLIGHT_MAX + 1, 0)]:
                    await answered.wait()
                values = [self._book.next(self._partition) for _ in range(chance.randint(1, 4))]
                headers = {
                    "riacho-producer-id": str(producer_id),
                    "riacho-producer-epoch": "0",
                    "riacho-sequence": str(self._sequence),
                }
                self._sequence += len(values)
                self._answered.append(asyncio.Event())
                group.create_task(self._send(number, values, headers))

    async def _send(self, number: int, values: list[str], headers: dict[str, str]) -> None:
        body = {"records": [{"value": value} for value in values]}
        while True:
            reply = await post(self._http, self._path, body, headers)
            if reply.status_code == 200:
                break
            assert reply.json()["code"] == "OUT_OF_ORDER_SEQUENCE_NUMBER", reply.text
            assert number > 0, reply.text
            for answered in self._answered[:number]:
                await answered.wait()
        [result] = reply.json()["results"]
        for offset, value in enumerate(values, result["base_offset"]):
            self._book.acked[self._partition, offset] = value
        self._answered[number].set()


async def post(
    http: httpx.AsyncClient, path: str, body: Json, headers: dict[str, str] | None = None
) -> httpx.Response:
    """Ask until there is an answer that does not say to ask again."""
    while True:
        try:
            reply = await http.post(path, json=body, headers=headers)
        except httpx.TransportError:
            continue
        if reply.status_code == 200 or not reply.json()["retryable"]:
            return reply


async def post_ok(
    http: httpx.AsyncClient, path: str, body: Json, headers: dict[str, str] | None = None
) -> Json:
    reply = await post(http, path, body, headers)
    assert reply.status_code == 200, reply.text
    return reply.json()


@dataclass
class Ledger:
    """Transactions that happened."""

    committed: list[int] = field(default_factory=list)

    def check(self, name: str, log: list[list[str]]) -> None:
        """All records of each transaction that happened, once and in order; of others none."""
        for partition, values in enumerate(log):
            mine = [value for value in values if value.startswith(f"{name}.")]
            assert mine == [
                v for number in self.committed for v in records(name, number)[partition]
            ]


def records(name: str, number: int) -> list[list[str]]:
    """Return what a transaction writes to each partition."""
    counts = [(number + partition) % 4 for partition in range(PARTITIONS)]
    return [[f"{name}.{number}.{n}" for n in range(count)] for count in counts]


class Transactor:
    """Does transactions one after the other, and notes which of them happened."""

    def __init__(self, url: str, name: str, delivery_timeout_ms: float) -> None:
        self._url = url
        self.name = name
        self._delivery_timeout_ms = delivery_timeout_ms
        self._doubtful: int | None = None
        self._producer = self._new_producer()
        self.ledger = Ledger()
        self.met: Counter[str] = Counter()

    async def run(self, topic: str, count: int) -> None:
        for number in range(1, count + 1):
            await self._begin()
            try:
                await self._write(topic, number)
                await self._producer.commit_transaction()
                self.ledger.committed.append(number)
            except OutcomeUnknown:
                self._doubtful = number
            except InvalidProducerEpoch:
                await self._renew()
            except RiachoError as error:
                self.met[f"{error.code} {error.may_have_applied}"] += 1
        await self._begin()
        await self._producer.close()

    async def _write(self, topic: str, number: int) -> None:
        try:
            for partition, values in enumerate(records(self.name, number)):
                for value in values:
                    await self._producer.send(topic, value, partition=partition)
            self._producer.send_offsets(group=self.name, offsets={(topic, 0): number})
            if number % 5 == 0:
                raise new_error(TransactionAborted, "by the program")
        except RiachoError:
            await self._producer.abort_transaction()
            raise

    async def _begin(self) -> None:
        """Begin the next transaction; what became of the last one is known then."""
        while True:
            doubtful, self._doubtful = self._doubtful, None
            try:
                return await self._producer.begin_transaction()
            except AlreadyCommitted:
                assert doubtful is not None
                self.ledger.committed.append(doubtful)
                self.met["committed in doubt"] += 1
            except InvalidProducerEpoch:
                await self._renew()

    async def _renew(self) -> None:
        """Go on as a new instance: a late copy of the call that made this one has made another."""
        self.met["fenced"] += 1
        await self._producer.close()
        self._producer = self._new_producer()

    def _new_producer(self) -> AsyncProducer:
        return AsyncProducer(
            self._url,
            transactional_id=self.name,
            retry_backoff_ms=10,
            retry_backoff_max_ms=100,
            delivery_timeout_ms=self._delivery_timeout_ms,
        )


async def stage(
    http: httpx.AsyncClient, topic: str, values: list[list[str]], transaction_id: str
) -> None:
    """Stage each record by itself, all at once."""

    async def send(partition: int, sequence: int, value: str) -> None:
        headers = {"riacho-transaction": transaction_id, "riacho-sequence": str(sequence)}
        body = {"records": [{"value": value}]}
        while True:
            reply = await post(http, records_path(topic, partition), body, headers)
            if reply.status_code == 200:
                return
            assert reply.json()["code"] == "OUT_OF_ORDER_SEQUENCE_NUMBER", reply.text

    async with asyncio.TaskGroup() as group:
        for partition, of_partition in enumerate(values):
            for sequence, value in enumerate(of_partition):
                group.create_task(send(partition, sequence, value))
