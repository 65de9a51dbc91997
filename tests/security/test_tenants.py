"""A tenant's whole life: it finds its own names again, and nothing tells it of anybody else's."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.integration.processes import ARROW, SSE
from tests.security.secured import Secured

pytestmark = pytest.mark.anyio

PREFIX, OTHER = "acme-corp.", "globex_inc."
RECORDS = {"records": [{"key": "k", "value": "of acme"}]}


@dataclass
class Tenant:
    """A client that looks for `hidden` in everything that it gets."""

    client: httpx.AsyncClient
    hidden: tuple[str, ...]
    seen: list[httpx.Response] = field(default_factory=list)

    async def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        answer = await self.client.request(method, path, **request)
        told = answer.text + str(answer.headers.multi_items())
        for text in self.hidden:
            assert text not in told, (method, path, told)
        self.seen.append(answer)
        return answer

    async def done(self, method: str, path: str, **request: Any) -> Any:
        answer = await self.ask(method, path, **request)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def refused(self, status: int, method: str, path: str, **request: Any) -> Any:
        answer = await self.ask(method, path, **request)
        assert answer.status_code == status, answer.text
        return answer.json()


@pytest.fixture
async def deployed() -> AsyncIterator[Secured]:
    made = Secured(sse_heartbeat_s=0.01)
    for kind in ("TOPIC", "GROUP", "TRANSACTIONAL_ID", "CLUSTER"):
        await made.allow("User:tenant", kind, "ALL")
    yield made
    await made.aclose()


async def tenant(deployed: Secured, prefix: str) -> Tenant:
    """Return a tenant whose principal may do everything: only its prefix keeps it apart."""
    _, text = await deployed.key("User:tenant", name_prefix=prefix)
    return Tenant(deployed.client(text), (PREFIX, OTHER))


@pytest.fixture
async def acme(deployed: Secured) -> Tenant:
    return await tenant(deployed, PREFIX)


@pytest.fixture
async def globex(deployed: Secured) -> Tenant:
    """Another tenant, with the same names."""
    other = await tenant(deployed, OTHER)
    await other.done("POST", "/v1/topics", json={"name": "orders", "partitions": 3})
    await other.done("POST", "/v1/topics", json={"name": "secret"})
    value = {"records": [{"key": "k", "value": "of globex"}]}
    await other.done("POST", "/v1/topics/orders/records", json=value)
    await other.done("POST", "/v1/groups/readers/members", json={"topics_pattern": ".*"})
    await other.done("POST", "/v1/transactions", json={"transactional_id": "payments"})
    return other


def arrow() -> bytes:
    batch = pa.record_batch({"key": pa.array([b"k"]), "value": pa.array([b"of acme"])})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


async def test_topics_and_records(deployed: Secured, acme: Tenant, globex: Tenant) -> None:
    assert (await acme.done("GET", "/v1/topics"))["topics"] == []
    made = await acme.done("POST", "/v1/topics", json={"name": "orders", "partitions": 2})
    assert made["name"] == "orders"
    await acme.refused(409, "POST", "/v1/topics", json={"name": "orders"})
    await acme.refused(404, "GET", "/v1/topics/secret")
    await acme.refused(400, "GET", "/v1/topics/" + "x" * 240)
    await acme.refused(400, "POST", "/v1/topics", json={"name": "x" * 240})
    for path in ("/v1/topics/orders/records", "/v1/topics/orders/partitions/0/records"):
        await acme.done("POST", path, json=RECORDS)
        await acme.done(
            "POST",
            path,
            content=b'{"value": "of acme"}\n',
            headers={"content-type": "application/x-ndjson"},
        )
        await acme.done("POST", path, content=arrow(), headers={"content-type": ARROW})
        await acme.refused(400, "POST", path, json={"records": [{"vaule": 1}]})
    await acme.refused(404, "POST", "/v1/topics/secret/records", json=RECORDS)

    records = "/v1/topics/orders/partitions/0/records"
    for accept in ("application/json", "application/x-ndjson", ARROW):
        answer = await acme.ask("GET", records, headers={"accept": accept})
        assert b"of acme" in answer.content
        assert b"globex" not in answer.content
    await acme.ask("GET", records, headers={"accept": SSE}, params={"max_records": 1})
    await acme.refused(416, "GET", records, params={"offset": 99})
    await acme.refused(404, "GET", "/v1/topics/orders/partitions/7/records")
    wanted = [{"topic": name, "partition": 0} for name in ("orders", "secret", "nothing")]
    parts = (await acme.done("POST", "/v1/fetch", json={"partitions": wanted}))["partitions"]
    assert [part["topic"] for part in parts] == ["orders", "secret", "nothing"]
    assert [part.get("error", {}).get("code") for part in parts] == [
        None,
        *2 * ["UNKNOWN_TOPIC_OR_PARTITION"],
    ]
    for what in ("partitions", "partitions/0/offsets?at=latest", "partitions/0/segments"):
        await acme.ask("GET", f"/v1/topics/orders/{what}")
    changed = await acme.done("PATCH", "/v1/topics/orders", json={"partitions": 4})
    assert (changed["name"], changed["partitions"]) == ("orders", 4)
    await acme.done("DELETE", records, params={"before_offset": 1})
    await acme.refused(404, "DELETE", "/v1/topics/secret")
    assert [t["name"] for t in (await acme.done("GET", "/v1/topics"))["topics"]] == ["orders"]
    await acme.done("DELETE", "/v1/topics/orders")
    left = (await globex.done("GET", "/v1/topics"))["topics"]
    assert [(each["name"], each["partitions"]) for each in left] == [("orders", 3), ("secret", 1)]
    root = await deployed.root()
    names = {each["name"] for each in (await root.get("/v1/topics")).json()["topics"]}
    assert names == {f"{OTHER}orders", f"{OTHER}secret"}


@pytest.mark.parametrize(
    "subscription",
    [
        {"topics": ["orders"]},
        {"topics_pattern": "ord.*"},
        {"topics_pattern": "^orders$|nothing"},
        {"topics_pattern": "(?i)ORDERS"},
    ],
)
async def test_groups(acme: Tenant, globex: Tenant, subscription: dict[str, Any]) -> None:
    await acme.done("POST", "/v1/topics", json={"name": "orders"})
    await acme.done("POST", "/v1/topics/orders/records", json=RECORDS)
    group = "/v1/groups/readers"
    joined = await acme.done("POST", f"{group}/members", json=subscription)
    assert joined["assignment"] == [{"topic": "orders", "partition": 0}]
    member = {"generation": joined["generation"], "member_id": joined["member_id"]}
    me, generation = f"{group}/members/{joined['member_id']}", {"generation": joined["generation"]}
    await acme.done("POST", f"{me}/heartbeat", json={**generation, "owned": joined["assignment"]})
    polled = await acme.done("POST", f"{me}/poll", json=generation)
    [part] = polled["partitions"]
    assert (part["topic"], part["records"][0]["value"]) == ("orders", "of acme")
    offsets = {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]}
    told = await acme.done("POST", f"{group}/offsets", json={**offsets, **member})
    assert told["offsets"][0]["topic"] == "orders"
    for params in ({}, {"topic": "orders"}):
        [one] = (await acme.done("GET", f"{group}/offsets", params=params))["offsets"]
        assert (one["topic"], one["offset"]) == ("orders", 1)
    lag = await acme.done("GET", f"{group}/lag")
    assert (lag["group"], lag["partitions"][0]["topic"]) == ("readers", "orders")
    about = await acme.done("GET", group)
    assert about["group"] == "readers"
    [seen] = about["members"]
    assert seen["topics_pattern"] == subscription.get("topics_pattern")
    assert seen["topics"] == subscription.get("topics", [])
    assert [g["group"] for g in (await acme.done("GET", "/v1/groups"))["groups"]] == ["readers"]
    reset = {"to": "earliest", "dry_run": True}
    [moved] = (await acme.done("POST", f"{group}/reset", json=reset))["offsets"]
    assert moved["topic"] == "orders"
    await acme.refused(404, "GET", "/v1/groups/nothing")
    await acme.refused(409, "DELETE", group)
    await acme.done("DELETE", me)
    await acme.done("POST", f"{group}/reset", json={"to": "latest", "topics": ["orders"]})
    await acme.done("DELETE", group)
    assert len((await globex.done("GET", "/v1/groups/readers"))["members"]) == 1


@pytest.mark.parametrize("pattern", ["a)|(?:.*", ".*)|(.*", "x|.*", ".*", r"(?s).*", r"\Q"])
async def test_no_pattern_leaves_the_prefix(acme: Tenant, globex: Tenant, pattern: str) -> None:
    await acme.done("POST", "/v1/topics", json={"name": "orders"})
    body = {"topics_pattern": pattern}
    answer = await acme.ask("POST", "/v1/groups/spies/members", json=body)
    if answer.status_code == 400:
        return
    joined = answer.json()
    assert {each["topic"] for each in joined["assignment"]} <= {"orders"}
    me = f"/v1/groups/spies/members/{joined['member_id']}"
    polled = await acme.done("POST", f"{me}/poll", json={"generation": joined["generation"]})
    assert {each["topic"] for each in polled["partitions"]} <= {"orders"}


async def test_transactions(acme: Tenant, globex: Tenant) -> None:
    await acme.done("POST", "/v1/topics", json={"name": "orders"})
    begun = await acme.done("POST", "/v1/transactions", json={"transactional_id": "payments"})
    name = begun["transaction_id"]
    assert name.startswith("payments.")
    headers = {"riacho-transaction": name}
    await acme.done("POST", "/v1/topics/orders/records", json=RECORDS, headers=headers)
    about = await acme.done("GET", f"/v1/transactions/{name}")
    assert about["transactional_id"] == "payments"
    assert about["partitions"] == [{"topic": "orders", "partition": 0}]
    [listed] = (await acme.done("GET", "/v1/transactions"))["transactions"]
    assert listed["transaction_id"] == name
    offsets = [{"topic": "orders", "partition": 0, "offset": 0}]
    commit = {"offsets": {"group": "readers", "offsets": offsets}}
    ended = await acme.done("POST", f"/v1/transactions/{name}/commit", json=commit)
    assert ended["transaction_id"] == name
    assert ended["results"][0]["topic"] == "orders"
    [one] = (await acme.done("GET", "/v1/groups/readers/offsets"))["offsets"]
    assert one["topic"] == "orders"
    # Ended, unknown, and of another: what is wrong is said in its own words.
    await acme.refused(409, "POST", f"/v1/transactions/{name}/abort", json={})
    await acme.ask("POST", "/v1/topics/orders/records", json=RECORDS, headers=headers)
    await acme.refused(404, "GET", "/v1/transactions/nothing.1.0")
    [theirs] = (await globex.done("GET", "/v1/transactions"))["transactions"]
    await acme.ask("POST", f"/v1/transactions/{theirs['transaction_id']}/commit", json={})
    assert (await globex.done("GET", "/v1/transactions"))["transactions"] == [theirs]


async def test_producers_of_others_have_no_names(acme: Tenant, globex: Tenant) -> None:
    await acme.done("POST", "/v1/topics", json={"name": "orders"})
    theirs = await globex.done("POST", "/v1/producers", json={"transactional_id": "payments"})
    for epoch in (theirs["epoch"], theirs["epoch"] + 7):
        headers = {"riacho-producer-id": str(theirs["producer_id"])}
        headers |= {"riacho-producer-epoch": str(epoch)}
        body = {"records": [{"topic": "orders", "value": "v"}]}
        told = await acme.refused(403, "POST", "/v1/atomic", json=body, headers=headers)
        assert told["code"] == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
        assert "payments" not in told["detail"]
        headers["riacho-sequence"] = "0"
        answer = await acme.ask("POST", "/v1/topics/orders/records", json=RECORDS, headers=headers)
        assert "payments" not in answer.text


async def test_atomic_calls_and_their_keys(deployed: Secured, acme: Tenant, globex: Tenant) -> None:
    await acme.done("POST", "/v1/topics", json={"name": "orders", "partitions": 3})
    body = {
        "records": [{"topic": "orders", "partition": 2, "value": "v"}],
        "offsets": {
            "group": "readers-2",
            "offsets": [{"topic": "orders", "partition": 0, "offset": 0}],
        },
    }
    # The end of this tenant's prefix is not the beginning of its keys.
    cut = await tenant(deployed, PREFIX[:-2])
    cut.hidden = ()
    await cut.done("POST", "/v1/topics", json={"name": "orders", "partitions": 3})
    for one, key in ((acme, "key"), (globex, "key"), (cut, PREFIX[-2:] + "key"), (cut, "key")):
        answer = await one.ask("POST", "/v1/atomic", json=body, headers={"idempotency-key": key})
        assert answer.status_code == 200, answer.text
        assert "idempotency-replayed" not in answer.headers
        assert answer.json()["results"][0]["topic"] == "orders"
        again = await one.ask("POST", "/v1/atomic", json=body, headers={"idempotency-key": key})
        assert again.headers["idempotency-replayed"] == "true"
        assert again.json() == answer.json()
    records = [{"topic": "secret", "value": "v"}]
    await acme.refused(404, "POST", "/v1/atomic", json={"records": records})


async def test_keys_of_a_tenant(deployed: Secured, acme: Tenant) -> None:
    own = (await acme.client.get("/v1/whoami")).json()
    assert (own["principal"], own["name_prefix"]) == ("User:tenant", PREFIX)
    await acme.refused(403, "POST", "/v1/keys", json={"principal": "User:root"})
    await acme.refused(403, "POST", "/v1/keys", json={"super": True})
    made = await acme.done(
        "POST",
        "/v1/keys",
        json={"name_prefix": "eu.", "scope": {"topics": [{"prefix": "eu."}, {"exact": "eu.x"}]}},
    )
    assert made["name_prefix"] == "eu."
    assert made["scope"]["topics"] == [{"prefix": "eu."}, {"exact": "eu.x"}]
    found = (await acme.done("GET", "/v1/keys"))["keys"]
    assert {key["id"] for key in found} == {own["credential"], made["id"]}
    inner = Tenant(deployed.client(made["key"]), (PREFIX, OTHER))
    await inner.done("POST", "/v1/topics", json={"name": "orders"})
    [topic] = (await acme.done("GET", "/v1/topics"))["topics"]
    assert topic["name"] == "eu.orders"
    about = (await inner.client.get("/v1/whoami")).json()
    assert about["name_prefix"] == f"{PREFIX}eu."
    await acme.done("POST", f"/v1/keys/{made['id']}/rotate", json={})
    await acme.done("DELETE", f"/v1/keys/{made['id']}")
    for path in ("/v1/acls", "/v1/quotas", "/v1/cluster", "/metrics", "/openapi.json"):
        await acme.refused(403, "GET", path)


async def test_a_pattern_of_a_member_tells_no_names_and_polls_read_what_may_be_read(
    deployed: Secured,
) -> None:
    """Without a prefix, too: ACLs say what it may know, and what it may read."""
    root = await deployed.root()
    for name in ("open", "known", "hidden"):
        await root.post("/v1/topics", json={"name": name})
        await root.post(f"/v1/topics/{name}/records", json=RECORDS)
    await deployed.allow("User:ana", "GROUP", "READ")
    await deployed.allow("User:ana", "TOPIC", "READ", name="open")
    await deployed.allow("User:ana", "TOPIC", "DESCRIBE", name="known")
    _, text = await deployed.key("User:ana")
    ana = Tenant(deployed.client(text), ("hidden",))
    joined = await ana.done("POST", "/v1/groups/g/members", json={"topics_pattern": ".*"})
    assert {each["topic"] for each in joined["assignment"]} == {"open", "known"}
    me, body = f"/v1/groups/g/members/{joined['member_id']}", {"generation": joined["generation"]}
    owned = {"owned": joined["assignment"]}
    await ana.done("POST", f"{me}/heartbeat", json={**body, **owned})
    for more in ({}, owned, {"max_wait_ms": 1}):
        polled = await ana.done("POST", f"{me}/poll", json={**body, **more})
        parts = {part["topic"]: part for part in polled["partitions"]}
        assert parts.keys() == {"open", "known"}
        assert len(parts["open"]["records"]) == 1
        assert parts["known"]["error"]["code"] == "TOPIC_AUTHORIZATION_FAILED"
    await ana.done("GET", "/v1/groups/g")
    await ana.done("GET", "/v1/groups/g/lag")
    # Somebody else has committed for all; a reset of all needs the right, and gives no name away.
    await ana.done("DELETE", me)
    offsets = [{"topic": name, "partition": 0, "offset": 1} for name in ("open", "hidden")]
    answer = await root.post("/v1/groups/g/offsets", json={"offsets": offsets})
    assert answer.is_success, answer.text
    assert len((await ana.done("GET", "/v1/groups/g/offsets"))["offsets"]) == 1
    told = await ana.refused(403, "POST", "/v1/groups/g/reset", json={"to": "earliest"})
    assert told["code"] == "TOPIC_AUTHORIZATION_FAILED"
    assert json.dumps(told).count("hidden") == 0
