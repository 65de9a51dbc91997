"""Idempotent producers and transactions over a network that doubles, delays, reorders and loses."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from riacho.transactions import held
from tests.gateway import GatewayProcess
from tests.integration.backends import on_one_backend
from tests.integration.cheated import (
    PARTITIONS,
    Book,
    Ledger,
    Numbered,
    Transactor,
    cheating,
    logs,
    new_topic,
    post_ok,
    produce,
    records,
    stage,
)
from tests.integration.processes import TIMEOUT_S, Api, Deployment
from tests.torture.sizes import FULL

SEEDS = 5 if FULL else 1

pytestmark = [pytest.mark.anyio, on_one_backend]

seeds = pytest.mark.parametrize("seed", range(1, 1 + SEEDS))


@pytest.fixture(scope="module")
def gateways(deployment: Deployment) -> Iterator[list[GatewayProcess]]:
    with deployment.start() as one, deployment.start() as other:
        yield [one, other]


@pytest.fixture
def api(gateways: list[GatewayProcess]) -> Iterator[Api]:
    with Api(gateways[0].url) as api:
        yield api


# Idempotent producers


@seeds
async def test_the_sdk_writes_everything_once_and_in_order(
    gateways: list[GatewayProcess], api: Api, seed: int
) -> None:
    topic = new_topic(api)
    books = [Book(f"p{number}") for number in range(3)]
    async with cheating(gateways, seed) as proxy:
        await asyncio.gather(*(produce(book, proxy.url, topic, 240, seed) for book in books))
    log = logs(gateways, topic)
    for book in books:
        assert not book.unknown | book.refused
        book.check(log)
    assert sum(map(len, log)) == 3 * 240


@seeds
async def test_what_the_sdk_gives_up_is_written_once_at_most(
    gateways: list[GatewayProcess], api: Api, seed: int
) -> None:
    topic = new_topic(api)
    books = [Book(f"p{number}") for number in range(3)]
    async with cheating(gateways, seed) as proxy:
        await asyncio.gather(
            *(produce(book, proxy.url, topic, 400, seed, delivery_timeout_ms=250) for book in books)
        )
    log = logs(gateways, topic)
    for book in books:
        book.check(log)


@seeds
async def test_a_client_that_numbers_its_batches_writes_them_once_and_in_order(
    gateways: list[GatewayProcess], api: Api, seed: int
) -> None:
    topic = new_topic(api)
    books = [Book(f"p{number}") for number in range(2)]
    async with (
        cheating(gateways, seed) as proxy,
        httpx.AsyncClient(base_url=proxy.url, timeout=TIMEOUT_S) as http,
        asyncio.TaskGroup() as group,
    ):
        for book in books:
            producer_id = (await post_ok(http, "/v1/producers", {}))["producer_id"]
            for partition in range(PARTITIONS):
                client = Numbered(http, book, topic, partition)
                group.create_task(client.run(producer_id, batches=25))
    log = logs(gateways, topic)
    for book in books:
        assert len(book.acked) == sum(map(len, book.sent))
        book.check(log)
    assert sum(map(len, log)) == sum(len(book.acked) for book in books)


# Transactions


@pytest.mark.parametrize("is_staged", [False, True])
@pytest.mark.parametrize("delivery_timeout_ms", [120_000, 150])
async def test_transactions_of_the_sdk_happen_once_or_not_at_all(
    gateways: list[GatewayProcess],
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
    is_staged: bool,
    delivery_timeout_ms: float,
) -> None:
    if is_staged:
        # So little fits into one call that nearly every record is staged by itself.
        monkeypatch.setattr(held, "CALL_BYTES_MAX", 150)
    topic = new_topic(api)
    names = [f"{topic}-{number}" for number in range(2)]
    async with cheating(gateways, int(delivery_timeout_ms)) as proxy:
        transactors = [Transactor(proxy.url, name, delivery_timeout_ms) for name in names]
        count = 20 if is_staged else 40
        await asyncio.gather(*(each.run(topic, count) for each in transactors))
    log = logs(gateways, topic)
    for name, ledger in [(each.name, each.ledger) for each in transactors]:
        assert len(ledger.committed) > 5
        ledger.check(name, log)
        offsets = api.http.get(f"/v1/groups/{name}/offsets").json()["offsets"]
        assert [one["offset"] for one in offsets] == [ledger.committed[-1]]


async def test_gateways_may_die_behind_the_network(
    deployment: Deployment, gateways: list[GatewayProcess], api: Api
) -> None:
    topic = new_topic(api)
    book = Book("p")
    victim = deployment.start()
    try:
        async with cheating([gateways[0], victim], 7) as proxy, asyncio.TaskGroup() as group:
            transactor = Transactor(proxy.url, topic, 120_000)
            tasks = [
                group.create_task(produce(book, proxy.url, topic, 300, 7)),
                group.create_task(transactor.run(topic, 60)),
            ]
            while sum(proxy.cheats.values()) < 60:
                await asyncio.sleep(0.01)
            assert not any(task.done() for task in tasks)
            await asyncio.to_thread(victim.kill)
            victim = await asyncio.to_thread(deployment.start, port=victim.port)
        log = logs([*gateways, victim], topic)
    finally:
        victim.kill()
    assert not book.unknown | book.refused
    book.check(log)
    assert len(transactor.ledger.committed) > 5
    transactor.ledger.check(topic, log)


async def test_transactions_by_hand_happen_once(gateways: list[GatewayProcess], api: Api) -> None:
    topic = new_topic(api)
    # The one call that must not come late: it would make another instance the newest.
    instance = api.http.post("/v1/producers", json={"transactional_id": topic}).json()
    ledger = Ledger()
    async with (
        cheating(gateways, 5) as proxy,
        httpx.AsyncClient(base_url=proxy.url, timeout=TIMEOUT_S) as http,
    ):
        for number in range(1, 31):
            begun = await post_ok(http, "/v1/transactions", {"transactional_id": topic, **instance})
            path = f"/v1/transactions/{begun['transaction_id']}"
            await stage(http, topic, records(topic, number), begun["transaction_id"])
            end = "abort" if number % 4 == 0 else "commit"
            ended = await post_ok(http, f"{path}/{end}", {})
            instance = {"producer_id": ended["producer_id"], "epoch": ended["epoch"]}
            if end == "commit":
                ledger.committed.append(number)
    ledger.check(topic, logs(gateways, topic))


@pytest.mark.parametrize("guard", ["key", "sequence", "transaction"])
async def test_atomic_calls_happen_once(
    gateways: list[GatewayProcess], api: Api, guard: str
) -> None:
    topic = new_topic(api)
    body = {} if guard != "transaction" else {"transactional_id": topic}
    instance = api.http.post("/v1/producers", json=body).json()
    sequence = 0
    ledger = Ledger()
    async with (
        cheating(gateways, 6) as proxy,
        httpx.AsyncClient(base_url=proxy.url, timeout=TIMEOUT_S) as http,
    ):
        for number in range(1, 31):
            headers = {
                "riacho-producer-id": str(instance["producer_id"]),
                "riacho-producer-epoch": str(instance["epoch"]),
            }
            if guard == "sequence":
                headers["riacho-sequence"] = str(sequence)
            if guard == "key":
                headers = {"idempotency-key": f"{topic}.{number}"}
            written = [
                {"topic": topic, "partition": partition, "value": value}
                for partition, values in enumerate(records(topic, number))
                for value in values
            ]
            done = await post_ok(http, "/v1/atomic", {"records": written}, headers)
            sequence += len(written)
            instance = {**instance, **{name: done[name] for name in instance if name in done}}
            ledger.committed.append(number)
    ledger.check(topic, logs(gateways, topic))
