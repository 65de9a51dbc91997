"""Transactions over HTTP: the real app, in this process, on real in-memory stores."""

import gzip
from typing import Any

import httpx
import msgspec
import pytest

from tests.service.groups.test_routes import Api, running

pytestmark = pytest.mark.anyio

Json = Any


async def stage(api: Api, begun: Json, *values: str, **headers: str) -> httpx.Response:
    return await api.http.post(
        "/v1/topics/t/partitions/0/records",
        json={"records": [{"value": value} for value in values]},
        headers={"riacho-transaction": begun["transaction_id"], **headers},
    )


async def atomic(api: Api, body: Json, **headers: object) -> httpx.Response:
    sent = {name.replace("_", "-"): str(value) for name, value in headers.items()}
    return await api.http.post("/v1/atomic", json=body, headers=sent)


async def values(api: Api, partition: int = 0, topic: str = "t") -> list[str]:
    path = f"/topics/{topic}/partitions/{partition}/records"
    return [each["value"] for each in (await api.call("GET", path))["records"]]


def producer(given: Json, **more: object) -> dict[str, object]:
    return {
        "riacho_producer_id": given["producer_id"],
        "riacho_producer_epoch": given["epoch"],
        **more,
    }


RECORD = {"topic": "t", "partition": 0, "value": "a"}
OFFSETS = {"group": "g", "offsets": [{"topic": "t", "partition": 0, "offset": 3}]}


async def test_a_transaction_from_its_beginning_to_its_end() -> None:
    async with running(2) as [api, other]:
        await api.topic(2)
        instance = await api.call("POST", "/producers", {"transactional_id": "copier-1"})
        assert instance == {"producer_id": instance["producer_id"], "epoch": 0}
        begun = await api.call(
            "POST", "/transactions", {"transactional_id": "copier-1", **instance}
        )
        transaction_id = f"copier-1.{instance['producer_id']}.0"
        assert begun == {**instance, "transaction_id": transaction_id, "timeout_ms": 60_000}
        reply = await stage(api, begun, "a", "b", **{"riacho-sequence": "0"})
        assert reply.json() == {"results": [{"partition": 0, "base_offset": -1, "count": 2}]}
        again = await stage(other, begun, "a", "b", **{"riacho-sequence": "0"})
        assert again.json() == reply.json()
        [listed] = (await other.call("GET", "/transactions"))["transactions"]
        assert listed == await api.call("GET", f"/transactions/{transaction_id}")
        assert listed["state"] == "ongoing"
        assert listed["partitions"] == [{"topic": "t", "partition": 0}]
        assert await values(api) == []

        path = f"/transactions/{transaction_id}"
        ended = await other.call("POST", f"{path}/commit", {"offsets": OFFSETS})
        assert ended == {
            "transaction_id": transaction_id,
            "state": "committed",
            "producer_id": instance["producer_id"],
            "epoch": 1,
            "results": [{"topic": "t", "partition": 0, "base_offset": 0, "count": 2}],
        }
        assert await api.call("POST", f"{path}/commit") == ended
        assert await values(api) == ["a", "b"]
        [committed] = (await api.call("GET", "/groups/g/offsets"))["offsets"]
        assert committed["offset"] == 3
        refused = await api.refused("POST", f"{path}/abort")
        assert (refused["status"], refused["code"]) == (409, "INVALID_TXN_STATE")


async def test_an_aborted_transaction_says_so_again() -> None:
    async with running() as [api]:
        await api.topic()
        begun = await api.call("POST", "/transactions", {"transactional_id": "x"})
        await stage(api, begun, "a")
        path = f"/transactions/{begun['transaction_id']}"
        ended = await api.call("POST", f"{path}/abort", {})
        assert (ended["state"], ended["results"], ended["epoch"]) == ("aborted", [], 1)
        assert await api.call("POST", f"{path}/abort") == ended
        assert (await api.call("GET", path))["state"] == "aborted"
        assert await values(api) == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "words"),
    [
        ("POST", "/producers", {"transactional_id": "a b"}, 400, "INVALID_REQUEST", "use 1 to 249"),
        ("POST", "/producers", {"id": 1}, 400, "INVALID_REQUEST", "unknown field"),
        ("POST", "/transactions", {}, 400, "INVALID_REQUEST", "transactional_id"),
        (
            "POST",
            "/transactions",
            {"transactional_id": "x", "timeout_ms": 900_001},
            400,
            "INVALID_TRANSACTION_TIMEOUT",
            "from 1 to 900000",
        ),
        (
            "POST",
            "/transactions",
            {"transactional_id": "x", "epoch": 1},
            400,
            "INVALID_REQUEST",
            "give producer_id and epoch together",
        ),
        (
            "POST",
            "/transactions",
            {"transactional_id": "x", "producer_id": 5, "epoch": 1},
            409,
            "INVALID_PRODUCER_EPOCH",
            "there is no transactional id",
        ),
        ("POST", "/transactions/x.1.1/commit", {}, 404, "TRANSACTIONAL_ID_NOT_FOUND", "no trans"),
        ("POST", "/transactions/x/abort", {}, 404, "TRANSACTIONAL_ID_NOT_FOUND", "no transaction"),
        ("GET", "/transactions/%2F.1.1", None, 404, "", ""),
        ("GET", "/transactions/é.1.1", None, 404, "TRANSACTIONAL_ID_NOT_FOUND", "no trans"),
        (
            "POST",
            "/transactions/x.1.1/commit",
            {"offsets": {"group": "g", "offsets": [], "generation": 1}},
            400,
            "INVALID_REQUEST",
            "generation and member_id together",
        ),
    ],
)
async def test_what_is_wrong_is_said(
    method: str, path: str, body: Json, status: int, code: str, words: str
) -> None:
    async with running() as [api]:
        refused = await api.refused(method, path, body)
        assert refused["status"] == status
        assert refused["code"] == code or not code
        assert words in refused["detail"]


async def test_producing_into_a_transaction_that_is_not_there_is_refused() -> None:
    async with running() as [api]:
        await api.topic()
        reply = await stage(api, {"transaction_id": "x.1.1"}, "a")
        assert (reply.status_code, reply.json()["code"]) == (404, "TRANSACTIONAL_ID_NOT_FOUND")


async def test_atomic_in_one_call_with_every_kind_of_value() -> None:
    async with running() as [api]:
        await api.topic(2)
        await api.topic(1, "u")
        body = {
            "records": [
                {"topic": "t", "partition": 1, "value": {"a": 1}, "headers": {"h": "1"}},
                {"topic": "u", "key": "k", "value": "text", "timestamp": 5},
                {"topic": "t", "partition": 1, "value_base64": "Yg=="},
            ],
            "offsets": OFFSETS,
        }
        reply = await atomic(api, body)
        assert reply.json() == {
            "results": [
                {"topic": "t", "partition": 1, "base_offset": 0, "count": 2},
                {"topic": "u", "partition": 0, "base_offset": 0, "count": 1},
            ]
        }
        assert await values(api, 1) == ['{"a":1}', "b"]
        assert await values(api, topic="u") == ["text"]
        [committed] = (await api.call("GET", "/groups/g/offsets"))["offsets"]
        assert committed["offset"] == 3
        assert (await atomic(api, {"offsets": OFFSETS})).json() == {"results": []}

        packed = gzip.compress(msgspec.json.encode({"records": [RECORD]}))
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        sent = await api.http.post("/v1/atomic", content=packed, headers=headers)
        assert sent.status_code == 200, sent.text


async def test_atomic_by_a_key() -> None:
    async with running(2) as [api, other]:
        await api.topic()
        body = {"records": [RECORD], "offsets": OFFSETS}
        first = await atomic(api, body, idempotency_key="order 17")
        again = await atomic(other, body, idempotency_key="order 17")
        assert again.json() == first.json()
        assert "idempotency-replayed" not in first.headers
        assert again.headers["idempotency-replayed"] == "true"
        assert await values(api) == ["a"]
        reused = await atomic(api, {"records": [RECORD]}, idempotency_key="order 17")
        assert (reused.status_code, reused.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


async def test_atomic_by_a_sequence() -> None:
    async with running(2) as [api, other]:
        await api.topic()
        given = await api.call("POST", "/producers")
        for number in range(2):
            body = {"records": [{**RECORD, "value": str(number)}]}
            first = await atomic(api, body, **producer(given, riacho_sequence=number))
            again = await atomic(other, body, **producer(given, riacho_sequence=number))
            assert again.json() == first.json()
            assert first.json()["results"][0]["base_offset"] == number
        gap = await atomic(api, {"records": [RECORD]}, **producer(given, riacho_sequence=5))
        assert (gap.status_code, gap.json()["code"]) == (409, "OUT_OF_ORDER_SEQUENCE_NUMBER")
        assert await values(api) == ["0", "1"]


async def test_atomic_by_a_transactional_id() -> None:
    async with running(2) as [api, other]:
        await api.topic()
        given = await api.call("POST", "/producers", {"transactional_id": "x"})
        body = {"records": [RECORD], "offsets": OFFSETS}
        first = await atomic(api, body, **producer(given))
        assert first.json()["epoch"] == 1
        assert (await atomic(other, body, **producer(given))).json() == first.json()
        second = await atomic(other, body, **producer(first.json()))
        assert second.json()["epoch"] == 2
        await other.call("POST", "/producers", {"transactional_id": "x"})
        fenced = await atomic(api, body, **producer(second.json()))
        assert (fenced.status_code, fenced.json()["code"]) == (409, "INVALID_PRODUCER_EPOCH")
        assert await values(api) == ["a", "a"]


@pytest.mark.parametrize(
    ("body", "headers", "words"),
    [
        ({}, {}, "there are neither records nor offsets"),
        ({"records": [{"value": "a"}]}, {}, 'records[0]: the field "topic" is missing; a record'),
        (
            {"records": [RECORD, {"topic": 5}]},
            {},
            "records[1].topic: expected `str`, got `int`",
        ),
        ({"records": [{**RECORD, "vlaue": 1}]}, {}, 'records[0]: unknown field "vlaue"; a record'),
        ({"recodrs": []}, {}, 'unknown field "recodrs"; the body is {"records": [{"topic": ...'),
        (
            {"offsets": {"group": "g", "offsets": [{"topic": "t"}]}},
            {},
            'offsets.offsets[0]: the field "partition" is missing; offsets are {group',
        ),
        ({"records": [RECORD]}, {"riacho_transaction": "x.1.1"}, "is a transaction by itself"),
        ({"records": [RECORD]}, {"riacho_producer_id": 2}, "belong together"),
        (
            {"records": [RECORD]},
            {"riacho_producer_id": 2, "riacho_producer_epoch": 0},
            "need riacho-sequence with one number",
        ),
        (
            {"records": [RECORD]},
            {"riacho_producer_id": 1, "riacho_producer_epoch": 0, "riacho_sequence": 1},
            "whose epoch tells one call from the next",
        ),
        (
            {"records": [RECORD]},
            {"riacho_producer_id": 1, "riacho_producer_epoch": 0, "idempotency_key": "k"},
            "or Idempotency-Key, not both",
        ),
        ({"records": [RECORD]}, {"idempotency_key": "x" * 256}, "must be 1 to 255 printable"),
        ({"records": [RECORD]}, {"idempotency_key": ""}, "must be 1 to 255 printable"),
    ],
)
async def test_a_wrong_atomic_call_is_refused_with_the_place(
    body: Json, headers: dict[str, object], words: str
) -> None:
    async with running() as [api]:
        await api.topic()
        reply = await atomic(api, body, **headers)
        assert reply.status_code == 400, reply.text
        assert words in reply.json()["detail"]


async def test_an_atomic_call_of_nobody_known_or_without_records_to_count_is_refused() -> None:
    async with running() as [api]:
        await api.topic()
        unknown = {"producer_id": 4, "epoch": 0}
        reply = await atomic(api, {"records": [RECORD]}, **producer(unknown, riacho_sequence=0))
        assert (reply.status_code, reply.json()["code"]) == (404, "UNKNOWN_PRODUCER_ID")
        given = await api.call("POST", "/producers")
        reply = await atomic(api, {"offsets": OFFSETS}, **producer(given, riacho_sequence=0))
        assert "counts records, and there are none" in reply.json()["detail"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the body is empty; the body is"),
        (b"{", "not valid JSON"),
        (b'{"records": [{"topic": "t", "value": ["\xff"]}]}', "not valid UTF-8"),
    ],
)
async def test_an_atomic_body_that_is_no_json_is_refused(content: bytes, words: str) -> None:
    async with running() as [api]:
        reply = await api.http.post("/v1/atomic", content=content)
        assert reply.status_code == 400
        assert words in reply.json()["detail"]
        other = await api.http.post(
            "/v1/atomic", content=content, headers={"content-type": "application/x-ndjson"}
        )
        assert other.status_code == 415
