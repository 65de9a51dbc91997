"""Transactions as a person with curl sees them: embedded, and on S3 and DynamoDB."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.gateway import GatewayProcess
from tests.integration.processes import TIMEOUT_S, Api, Deployment, Json, records_path

_numbers = iter(range(10**6))


@pytest.fixture(scope="module")
def gateway(deployment: Deployment) -> Iterator[GatewayProcess]:
    with deployment.start(env={"RIACHO_GROUP_UPKEEP_S": "0.2"}) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def second(deployment: Deployment, gateway: GatewayProcess) -> Iterator[Api]:
    """Another gateway on the same data."""
    with deployment.start() as other, Api(other.url) as api:
        yield api


def name() -> str:
    return f"copier-{next(_numbers)}"


def post(api: Api, path: str, body: Json = None, **headers: object) -> httpx.Response:
    sent = {key.replace("_", "-"): str(value) for key, value in headers.items()}
    return api.http.post(f"/v1{path}", json=body, headers=sent)


def done(reply: httpx.Response) -> Json:
    assert reply.status_code == 200, reply.text
    return reply.json()


def code(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["code"]


def begin(api: Api, **fields: Json) -> str:
    body = {"transactional_id": name(), **fields}
    transaction_id: str = done(post(api, "/transactions", body))["transaction_id"]
    return transaction_id


def stage(
    api: Api, transaction_id: str, topic: str, *values: str, partition: int = 0, **headers: object
) -> httpx.Response:
    return api.http.post(
        records_path(topic, partition),
        json={"records": [{"value": value} for value in values]},
        headers={"riacho-transaction": transaction_id}
        | {key.replace("_", "-"): str(value) for key, value in headers.items()},
    )


def values(api: Api, topic: str, partition: int = 0) -> list[str]:
    return [record["value"] for record in api.read_all(topic, partition)]


def offsets(topic: str, offset: int, **fields: Json) -> Json:
    wanted = [{"topic": topic, "partition": 0, "offset": offset}]
    return {"group": "g", "offsets": wanted, **fields}


def committed(api: Api, topic: str) -> int | None:
    found = api.http.get("/v1/groups/g/offsets", params={"topic": topic}).json()["offsets"]
    return found[0]["offset"] if found else None


def test_all_of_it_becomes_visible_with_the_commit(api: Api, second: Api) -> None:
    topic, other = api.topic(3), api.topic()
    transaction_id = begin(api)
    done(stage(api, transaction_id, topic, "a"))
    done(stage(second, transaction_id, topic, "b", "c"))
    done(stage(second, transaction_id, topic, "x", partition=2))
    done(stage(api, transaction_id, other, "y"))
    for each in (api, second):
        assert values(each, topic) == values(each, topic, 2) == values(each, other) == []

    path = f"/transactions/{transaction_id}/commit"
    ended = done(post(second, path, {"offsets": offsets(topic, 5)}))
    found = {(r["topic"], r["partition"]): (r["base_offset"], r["count"]) for r in ended["results"]}
    assert found == {(topic, 0): (0, 3), (topic, 2): (0, 1), (other, 0): (0, 1)}
    for each in (api, second):
        assert values(each, topic) == ["a", "b", "c"]
        assert values(each, topic, 2) == ["x"]
        assert values(each, other) == ["y"]
        assert committed(each, topic) == 5
        assert done(post(each, path)) == ended


def test_nothing_of_it_becomes_visible_with_an_abort(api: Api, second: Api) -> None:
    topic = api.topic()
    transaction_id = begin(api)
    done(stage(api, transaction_id, topic, "a"))
    ended = done(post(second, f"/transactions/{transaction_id}/abort"))
    assert ended["state"] == "aborted"
    assert done(post(api, f"/transactions/{transaction_id}/abort")) == ended
    late = post(api, f"/transactions/{transaction_id}/commit", {"offsets": offsets(topic, 1)})
    assert code(late) == (409, "INVALID_TXN_STATE")
    assert code(stage(api, transaction_id, topic, "b")) == (409, "INVALID_TXN_STATE")
    assert values(api, topic) == []
    assert committed(api, topic) is None


def test_plain_records_and_transactions_share_a_partition(api: Api, second: Api) -> None:
    topic = api.topic()
    api.produce(topic, [{"value": "1"}], 0)
    transaction_id = begin(api)
    done(stage(api, transaction_id, topic, "2"))
    second.produce(topic, [{"value": "3"}], 0)
    ended = done(post(api, f"/transactions/{transaction_id}/commit"))
    second.produce(topic, [{"value": "4"}], 0)
    assert ended["results"][0]["base_offset"] == 2
    assert values(second, topic) == ["1", "3", "2", "4"]


def test_a_newer_instance_fences_the_older_one(api: Api, second: Api) -> None:
    topic, transactional_id = api.topic(), name()
    old = begin(api, transactional_id=transactional_id)
    done(stage(api, old, topic, "a"))
    given = done(post(second, "/producers", {"transactional_id": transactional_id}))
    for late in (
        stage(api, old, topic, "b"),
        post(api, f"/transactions/{old}/commit"),
        post(api, f"/transactions/{old}/abort"),
    ):
        assert code(late) == (409, "INVALID_PRODUCER_EPOCH")
    new = begin(second, transactional_id=transactional_id, **given)
    done(stage(second, new, topic, "c"))
    done(post(second, f"/transactions/{new}/commit"))
    assert values(api, topic) == ["c"]


def test_a_forgotten_transaction_is_aborted_by_the_gateway(api: Api) -> None:
    topic = api.topic()
    transaction_id = begin(api, timeout_ms=300)
    done(stage(api, transaction_id, topic, "a"))

    def state() -> str:
        listed = api.http.get("/v1/transactions").json()["transactions"]
        return next(str(t["state"]) for t in listed if t["transaction_id"] == transaction_id)

    give_up_s = time.monotonic() + TIMEOUT_S
    # The list only looks on: it is the upkeep that ends it.
    while state() != "aborted":
        assert time.monotonic() < give_up_s
    late = post(api, f"/transactions/{transaction_id}/commit")
    assert code(late) == (409, "INVALID_TXN_STATE")
    assert "timed out" in late.json()["detail"]
    assert values(api, topic) == []


def test_a_repeated_request_is_staged_once_and_a_gap_is_refused(api: Api, second: Api) -> None:
    topic = api.topic()
    transaction_id = begin(api)
    for each in (api, second, api):
        done(stage(each, transaction_id, topic, "a", "b", riacho_sequence=0))
    gap = stage(second, transaction_id, topic, "d", riacho_sequence=3)
    assert code(gap) == (409, "OUT_OF_ORDER_SEQUENCE_NUMBER")
    done(stage(second, transaction_id, topic, "c", riacho_sequence=2))
    done(post(api, f"/transactions/{transaction_id}/commit"))
    assert values(api, topic) == ["a", "b", "c"]


def test_offsets_of_another_generation_stop_the_commit(api: Api) -> None:
    topic = api.topic()
    joined = done(post(api, "/groups/members-of-g/members", {"topics": [topic]}))
    member = {"member_id": joined["member_id"], "group": "members-of-g"}
    transaction_id = begin(api)
    done(stage(api, transaction_id, topic, "a"))
    path = f"/transactions/{transaction_id}/commit"
    wrong = offsets(topic, 1, **member, generation=joined["generation"] + 1)
    assert code(post(api, path, {"offsets": wrong})) == (409, "ILLEGAL_GENERATION")
    assert values(api, topic) == []
    right = offsets(topic, 1, **member, generation=joined["generation"])
    done(post(api, path, {"offsets": right}))
    assert values(api, topic) == ["a"]


def test_too_many_lanes_are_refused_with_their_number(api: Api) -> None:
    topic = api.topic(120, config={"lane.partitions": 1})
    transaction_id = begin(api)
    records = [{"partition": number, "value": "a"} for number in range(120)]
    reply = api.http.post(
        records_path(topic),
        json={"records": records},
        headers={"riacho-transaction": transaction_id},
    )
    assert code(reply) == (413, "TRANSACTION_TOO_LARGE")
    assert "would write to 120 lanes, and can to 90" in reply.json()["detail"]
    many = [{"topic": topic, **record} for record in records]
    assert code(post(api, "/atomic", {"records": many})) == (413, "TRANSACTION_TOO_LARGE")
    body = {"records": many[:90], "offsets": offsets(topic, 1)}
    assert len(done(post(api, "/atomic", body))["results"]) == 90
    assert api.high_watermark(topic, 89) == 1

    for start in range(0, 90, 30):
        part = {"records": records[start : start + 30]}
        headers = {"riacho-transaction": transaction_id}
        done(api.http.post(records_path(topic), json=part, headers=headers))
    assert len(done(post(api, f"/transactions/{transaction_id}/commit"))["results"]) == 90
    assert api.high_watermark(topic, 89) == 2


def test_atomic_calls_happen_once_however_they_are_guarded(api: Api, second: Api) -> None:
    topic, other = api.topic(), api.topic()
    record = {"topic": topic, "value": "a"}
    body = {"records": [record, {**record, "topic": other}], "offsets": offsets(topic, 4)}
    plain = done(post(api, "/producers"))
    instance = done(post(api, "/producers", {"transactional_id": name()}))
    guards: list[dict[str, object]] = [
        {"idempotency_key": name()},
        {
            "riacho_producer_id": plain["producer_id"],
            "riacho_producer_epoch": 0,
            "riacho_sequence": 0,
        },
        {"riacho_producer_id": instance["producer_id"], "riacho_producer_epoch": 0},
    ]
    for number, headers in enumerate(guards):
        with ThreadPoolExecutor(6) as pool:
            calls = [
                pool.submit(post, each, "/atomic", body, **headers) for each in (api, second) * 3
            ]
            answers = [done(call.result()) for call in calls]
        assert all(answer == answers[0] for answer in answers)
        assert {r["base_offset"] for r in answers[0]["results"]} == {number}
    assert values(api, topic) == values(second, other) == ["a"] * 3
    assert committed(api, topic) == 4


def test_of_many_who_end_a_transaction_all_hear_the_same(api: Api, second: Api) -> None:
    topic = api.topic()
    for _ in range(5):
        transaction_id = begin(api)
        done(stage(api, transaction_id, topic, transaction_id))
        barrier = threading.Barrier(4)

        def end(each: Api, how: str, at: threading.Barrier, of: str) -> tuple[str, int]:
            at.wait()
            return how, post(each, f"/transactions/{of}/{how}").status_code

        with ThreadPoolExecutor(4) as pool:
            calls = [
                pool.submit(end, each, how, barrier, transaction_id)
                for each in (api, second)
                for how in ("commit", "abort")
            ]
            answers = {call.result() for call in calls}
        won = {how for how, status in answers if status == 200}
        assert len(won) == 1, answers
        assert answers - {(how, 200) for how in won} <= {("commit", 409), ("abort", 409)}
        assert (transaction_id in values(second, topic)) == (won == {"commit"})


def test_a_copier_that_dies_leaves_nothing_and_its_successor_goes_on(
    deployment: Deployment, api: Api
) -> None:
    topic, transactional_id = api.topic(), name()
    with deployment.start() as doomed, Api(doomed.url) as dying:
        lost = begin(dying, transactional_id=transactional_id)
        done(stage(dying, lost, topic, "lost"))
        kept = begin(dying)
        done(stage(dying, kept, topic, "kept"))
        doomed.kill()
    # A transaction belongs to no gateway: another one commits what was staged at the first.
    done(post(api, f"/transactions/{kept}/commit"))
    new = begin(api, transactional_id=transactional_id)
    done(stage(api, new, topic, "new"))
    done(post(api, f"/transactions/{new}/commit"))
    assert values(api, topic) == ["kept", "new"]
