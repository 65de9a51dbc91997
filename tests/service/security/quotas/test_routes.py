"""Quotas over HTTP: set, listed and obeyed by every way to write and read, over two gateways."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest

from tests.service.security.quotas.deployment import Deployment

pytestmark = pytest.mark.anyio

MB = 1_000_000
RECORDS = "/v1/topics/t/partitions/0/records"
BODY = json.dumps({"records": [{"value": "x" * 49_000}]})
HEADERS = {"content-type": "application/json"}


@pytest.fixture
async def two() -> AsyncIterator[Deployment]:
    deployment = Deployment(2)
    yield deployment
    await deployment.aclose()


async def produce(client: httpx.AsyncClient, body: str = BODY, **params: str) -> httpx.Response:
    return await client.post(RECORDS, content=body, headers=HEADERS, params=params)


async def average(
    deployment: Deployment, calls: list[Callable[[], Awaitable[httpx.Response]]], size: int
) -> float:
    """Return the bytes a second that `calls`, in turn, got through in a minute."""
    clock = deployment.clock
    begin_s, sent = clock.now_s + 3, 0
    turn = 0
    while clock.now_s < begin_s + 60:
        answer = await calls[turn % len(calls)]()
        turn += 1
        if answer.status_code == 429:
            clock.now_s += int(answer.headers["retry-after"]) + 0.05
            continue
        assert answer.status_code in (200, 202), answer.text
        if clock.now_s >= begin_s:
            sent += size or len(answer.content)
        clock.now_s += 0.01
    return sent / 60


@pytest.mark.parametrize("acks", ["all", "0"])
async def test_what_is_produced_through_two_gateways_is_the_quota(
    two: Deployment, acks: str
) -> None:
    clients = await two.ana(producer_byte_rate=MB)
    await clients[0].post("/v1/topics", json={"name": "t"})
    calls = [lambda client=client: produce(client, acks=acks) for client in clients]

    assert await average(two, calls, len(BODY)) == pytest.approx(MB, rel=0.1)


async def test_what_is_fetched_in_every_way_is_the_quota(two: Deployment) -> None:
    clients = await two.ana(consumer_byte_rate=MB)
    await clients[0].post("/v1/topics", json={"name": "t"})
    for _ in range(30):
        assert (await produce(clients[0])).status_code == 200
    several = {"partitions": [{"topic": "t", "partition": 0, "offset": 0}]}
    calls = [
        lambda: clients[0].get(RECORDS),
        lambda: clients[1].get(RECORDS, headers={"accept": "application/x-ndjson"}),
        lambda: clients[0].post("/v1/fetch", json=several),
        lambda: clients[1].get(RECORDS, headers={"accept": "application/vnd.apache.arrow.stream"}),
    ]

    assert await average(two, calls, 0) == pytest.approx(MB, rel=0.1)


async def test_a_refused_produce_has_written_nothing_and_says_when_to_come_back(
    two: Deployment,
) -> None:
    client = (await two.ana(producer_byte_rate=50_000))[0]
    await client.post("/v1/topics", json={"name": "t"})
    answers = [await produce(client) for _ in range(5)]

    refused = answers[-1]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429, 429]
    problem = refused.json()
    assert problem["code"] == "THROTTLING_QUOTA_EXCEEDED"
    assert problem["retryable"] is True
    assert problem["may_have_applied"] is False
    assert 0 < problem["throttle_time_ms"] <= 1000
    assert refused.headers["retry-after"] == "1"
    assert (await client.get(RECORDS)).json()["next_offset"] == 2
    two.clock.now_s += problem["throttle_time_ms"] / 1000
    assert (await produce(client)).status_code == 200


async def test_atomic_calls_and_staged_records_count(two: Deployment) -> None:
    client = (await two.ana(producer_byte_rate=1000))[0]
    await client.post("/v1/topics", json={"name": "t"})
    records = [{"topic": "t", "partition": 0, "value": "x" * 3000}]
    statuses = [
        (await client.post("/v1/atomic", json={"records": records})).status_code for _ in range(2)
    ]

    assert statuses == [200, 429]


async def test_a_poll_that_is_refused_keeps_the_session(two: Deployment) -> None:
    client = (await two.ana(consumer_byte_rate=1000))[0]
    await client.post("/v1/topics", json={"name": "t"})
    await produce(client)
    join = await client.post("/v1/groups/g/members", json={"topics": ["t"]})
    member, generation = join.json()["member_id"], join.json()["generation"]
    poll = {"generation": generation}
    path = f"/v1/groups/g/members/{member}/poll"
    first, second = [await client.post(path, json=poll) for _ in range(2)]

    assert first.status_code == 200, first.text
    assert len(first.json()["partitions"]) == 1
    assert second.status_code == 429
    # Refused for half a minute and more, and alive in between.
    for _ in range(10):
        two.clock.now_s += 20
        answer = await client.post(path, json=poll)
        assert answer.status_code in (200, 429), answer.text


async def test_partitions_that_are_created_added_and_deleted_count(two: Deployment) -> None:
    client = (await two.ana(controller_mutation_rate=1))[0]
    made = await client.post("/v1/topics", json={"name": "a", "partitions": 6})
    added = await client.patch("/v1/topics/a", json={"partitions": 10})
    refused = await client.post("/v1/topics", json={"name": "b"})
    two.clock.now_s += 6
    deleted = await client.delete("/v1/topics/a")
    refused_too = await client.delete("/v1/topics/none")

    assert (made.status_code, added.status_code, refused.status_code) == (201, 200, 429)
    assert (deleted.status_code, refused_too.status_code) == (204, 404)
    assert (await client.get("/v1/topics")).json() == {"topics": []}


async def test_a_tail_is_slowed_down_and_not_refused(two: Deployment) -> None:
    client = (await two.ana(consumer_byte_rate=1000))[0]
    await client.post("/v1/topics", json={"name": "t"})
    for _ in range(3):
        await client.post(RECORDS, json={"records": [{"value": "x" * 1500}]})

    async def move_time() -> None:
        while True:
            two.clock.now_s += 0.1
            await asyncio.sleep(0.001)

    began_s = two.clock.now_s
    moving = asyncio.create_task(move_time())
    text = (
        await client.get(
            RECORDS,
            params={"max_records": 3, "max_bytes": 1},
            headers={"accept": "text/event-stream"},
        )
    ).text
    moving.cancel()

    assert text.count('\ndata: {"offset"') == 3
    assert ": throttled" in text
    assert two.clock.now_s - began_s > 1.5


async def test_open_tails_and_waiting_fetches_of_a_principal_are_limited() -> None:
    deployment = Deployment(tails_per_principal_max=1, waits_per_principal_max=1)
    [client] = await deployment.ana()
    [other] = await deployment.clients("User:root", is_super=True)
    await client.post("/v1/topics", json={"name": "t"})
    quotas = deployment.apps[0]._security.door._quotas
    accept = {"accept": "text/event-stream"}
    wait = {"max_wait_ms": "60000", "offset": "0"}

    tail = asyncio.create_task(client.get(RECORDS, headers=accept))
    waiting = asyncio.create_task(client.get(RECORDS, params=wait))
    async with asyncio.timeout(60):
        while not (quotas._tails.principals and quotas._waits.principals):
            await asyncio.sleep(0.001)
    refused = await client.get(RECORDS, headers=accept)
    refused_wait = await client.get(RECORDS, params=wait)
    many = {"partitions": [{"topic": "t", "partition": 0}], "max_wait_ms": 1000}
    refused_many = await client.post("/v1/fetch", json=many)
    allowed = await client.get(RECORDS)

    assert (refused.status_code, refused_wait.status_code) == (429, 429)
    assert refused_many.status_code == 429
    assert refused.headers["retry-after"] == "1"
    assert allowed.status_code == 200
    await produce(other)
    assert (await waiting).status_code == 200
    for gateway in deployment.gateways:
        gateway.drain()
    await tail
    assert quotas._tails.principals == quotas._waits.principals == 0
    await deployment.aclose()


async def test_quotas_are_set_listed_and_removed(two: Deployment) -> None:
    root = await two.root()
    for body in (
        {"user": "User:ana", "producer_byte_rate": 1000, "request_percentage": 50},
        {"user": "<default>", "client_id": "etl", "consumer_byte_rate": 5.5},
        {"client_id": "<default>", "controller_mutation_rate": 2},
    ):
        assert (await root.put("/v1/quotas", json=body)).status_code == 200
    answer = await root.put("/v1/quotas", json={"user": "ana", "request_percentage": None})

    ana = {
        "user": "ana",
        "client_id": None,
        "producer_byte_rate": 1000.0,
        "consumer_byte_rate": None,
        "request_percentage": None,
        "controller_mutation_rate": None,
    }
    assert answer.json() == ana
    everything = (await root.get("/v1/quotas")).json()["quotas"]
    assert [(each["user"], each["client_id"]) for each in everything] == [
        (None, "<default>"),
        ("<default>", "etl"),
        ("ana", None),
    ]
    assert (await root.get("/v1/quotas", params={"user": "ana"})).json() == {"quotas": [ana]}
    some = await root.get("/v1/quotas", params={"client_id": "etl"})
    assert [each["user"] for each in some.json()["quotas"]] == ["<default>"]
    await root.put("/v1/quotas", json={"user": "ana", "producer_byte_rate": None})
    assert (await root.get("/v1/quotas", params={"user": "ana"})).json() == {"quotas": []}


@pytest.mark.parametrize(
    "body",
    [
        {"producer_byte_rate": 1},
        {"user": "ana"},
        {"user": "", "producer_byte_rate": 1},
        {"user": "ana", "producer_byte_rate": 0},
        {"user": "ana", "producer_byte_rate": -1},
        {"user": "ana", "producer_byte_rate": "1"},
        {"user": "ana", "bytes": 1},
        {"user": "x" * 501, "producer_byte_rate": 1},
    ],
)
async def test_a_quota_that_makes_no_sense_is_refused(two: Deployment, body: object) -> None:
    answer = await (await two.root()).put("/v1/quotas", json=body)

    assert answer.status_code == 400, answer.text


async def test_changing_a_quota_needs_a_right_and_is_in_the_audit_log(
    two: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    [bob, _] = await two.clients("User:bob")
    root = await two.root()
    body = {"user": "ana", "producer_byte_rate": 12345}
    with caplog.at_level(logging.INFO, "riacho.audit"):
        refused = [await bob.get("/v1/quotas"), await bob.put("/v1/quotas", json=body)]
        assert (await root.put("/v1/quotas", json=body)).status_code == 200

    assert [answer.status_code for answer in refused] == [403, 403]
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert [(line["event"], line["principal"], line["operation"]) for line in lines] == [
        ("refused", "User:bob", "DESCRIBE_CONFIGS"),
        ("refused", "User:bob", "ALTER_CONFIGS"),
        ("changed", "User:root", "ALTER_CONFIGS"),
    ]
    assert "producer_byte_rate=12345" in lines[-1]["resource"]


async def test_a_client_has_a_quota_of_its_own(two: Deployment) -> None:
    client = (await two.ana())[0]
    root = await two.root()
    await client.post("/v1/topics", json={"name": "t"})
    body = {"user": "ana", "client_id": "etl", "producer_byte_rate": 1000}
    await root.put("/v1/quotas", json=body)
    etl = {"riacho-client-id": "etl", **HEADERS}
    statuses = [
        (await client.post(RECORDS, content=BODY, headers=headers)).status_code
        for headers in (etl, etl, HEADERS, HEADERS)
    ]

    assert statuses == [200, 429, 200, 200]


async def test_time_is_limited_at_the_door(two: Deployment) -> None:
    client = (await two.ana(request_percentage=1))[0]
    assert (await client.get("/v1/topics")).status_code == 200
    # On this clock a request takes no time, so charge for one.
    two.apps[0]._security.door._quotas.charge_time(_Ana(), 0.5)

    # The next request pays for it, since the bucket was full; the one after that has to wait.
    assert (await client.get("/v1/topics")).status_code == 200
    refused = await client.get("/v1/topics")
    assert refused.status_code == 429, refused.text
    assert int(refused.headers["retry-after"]) > 30
    two.clock.now_s += int(refused.headers["retry-after"])
    assert (await client.get("/v1/topics")).status_code == 200


class _Ana:
    principal = "User:ana"
    client_id = ""
