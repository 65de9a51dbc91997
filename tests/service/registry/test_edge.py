"""Schemas at the edge: what they cost the table, and who may use which."""

import base64
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest

from storage.stores.memory import MemoryMetadata
from storage.stores.metadata import Versioned
from tests.fuzz.deployment import Deployment, deployment
from tests.security.secured import Secured

pytestmark = pytest.mark.anyio

ORDER = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
PROTO = 'syntax = "proto3"; message M { int32 a = 1; }'


class WatchedTable(MemoryMetadata):
    """Remembers which items of the registry were read."""

    reads: Sequence[str] = ()

    async def get(self, key: str) -> Versioned | None:
        self._note(key)
        return await super().get(key)

    async def get_many(self, keys: Sequence[str]) -> dict[str, Versioned]:
        for key in keys:
            self._note(key)
        return await super().get_many(keys)

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int = 1000
    ) -> list[tuple[str, Versioned]]:
        self._note(prefix)
        return await super().list(prefix, after=after, limit=limit)

    def _note(self, key: str) -> None:
        if key.startswith(("schema", "subject")):
            self.reads = [*self.reads, key]


@pytest.fixture
async def deployed() -> AsyncIterator[Deployment]:
    async with deployment() as found:
        yield found


async def produce(http: httpx.AsyncClient, topic: str, **body: Any) -> httpx.Response:
    body.setdefault("records", [{"value": {"a": 1}}])
    return await http.post(f"/v1/topics/{topic}/records", json=body)


async def fetch(http: httpx.AsyncClient, topic: str, value_format: str = "json") -> list[Any]:
    path = f"/v1/topics/{topic}/partitions/0/records"
    answer = await http.get(path, params={"value_format": value_format})
    assert answer.is_success, answer.text
    found: list[Any] = answer.json()["records"]
    return found


async def test_a_cached_schema_costs_no_read_of_the_table(deployed: Deployment) -> None:
    http = deployed.http
    for number, (kind, text) in enumerate([("AVRO", ORDER), ("PROTOBUF", PROTO)]):
        topic = f"t{number}"
        await http.post("/v1/topics", json={"name": topic})
        done = await produce(http, topic, value_schema=text, value_schema_type=kind)
        schema_id = done.json()["value_schema_id"]
        guid = (await http.get(f"/schemas/ids/{schema_id}")).json()["guid"]
        header = base64.b64encode(b"\x01" + bytes.fromhex(guid.replace("-", ""))).decode()
        body = {"value": "", "headers": [{"key": "__value_schema_id", "value_base64": header}]}
        await http.post(f"/v1/topics/{topic}/records", json={"records": [body]})
        await fetch(http, topic)

        watched = WatchedTable(deployed.world.new_version)
        watched.__dict__.update({**deployed.table.inner.__dict__, "reads": ()})
        deployed.table.inner = watched
        assert (await produce(http, topic, value_schema_id=schema_id)).is_success
        records = await fetch(http, topic)
        assert [each.get("value_schema_id") for each in records] == [schema_id] * 3
        assert watched.reads == ()


async def test_a_text_is_registered_under_the_subject_that_the_topic_says(
    deployed: Deployment,
) -> None:
    http = deployed.http
    strategies = "io.confluent.kafka.serializers.subject"
    name = "confluent.value.subject.name.strategy"
    for topic, config, subject in [
        ("plain", {}, "plain-value"),
        ("named", {"value.schema.subject": "sales"}, "sales"),
        ("records", {name: f"{strategies}.RecordNameStrategy"}, "R"),
        ("both", {name: f"{strategies}.TopicRecordNameStrategy"}, "both-R"),
    ]:
        await http.post("/v1/topics", json={"name": topic, "config": config})
        assert (await produce(http, topic, value_schema=ORDER)).is_success
        assert subject in (await http.get("/subjects")).json()
    unnamed = await produce(http, "records", value_schema='"int"', records=[{"value": 1}])
    assert unnamed.json()["code"] == "INVALID_SCHEMA"


async def test_who_may_use_which_schema() -> None:
    secured = Secured()
    await secured.allow("User:writer", "TOPIC", "WRITE", "READ")
    await secured.allow("User:writer", "SUBJECT", "WRITE", "READ", name="orders-value")
    await secured.allow("User:reader", "TOPIC", "WRITE", "READ")
    secured.pass_time()
    root = await secured.root()
    await root.post("/v1/topics", json={"name": "orders"})
    writer = secured.client((await secured.key("User:writer"))[1])
    reader = secured.client((await secured.key("User:reader"))[1])

    refused = await produce(reader, "orders", value_schema=ORDER)
    assert (refused.status_code, refused.json()["code"]) == (403, "SUBJECT_AUTHORIZATION_FAILED")
    done = (await produce(writer, "orders", value_schema=ORDER)).json()
    schema_id = done["value_schema_id"]
    other = await produce(writer, "orders", value_schema=ORDER, value_subject="another")
    assert other.status_code == 403

    # What the caller may not read looks as if it did not exist.
    for chosen in ({"value_schema_id": schema_id}, {"value_subject": "orders-value"}):
        hidden = (await produce(reader, "orders", **chosen)).json()
        assert hidden["code"] == "UNKNOWN_SCHEMA"
        assert (await produce(writer, "orders", **chosen)).is_success
    absent = (await produce(reader, "orders", value_schema_id=99)).json()
    hidden = (await produce(reader, "orders", value_schema_id=schema_id)).json()
    assert absent["detail"].replace("99", str(schema_id)) == hidden["detail"]

    for _ in range(2):
        shown = {"value": {"a": 1}, "value_schema_id": schema_id}
        for each in await fetch(writer, "orders"):
            assert shown.items() <= each.items()
        for each in await fetch(reader, "orders"):
            assert each["value_error"] == f"Schema {schema_id} not found"
            assert base64.b64decode(each["value_base64"])[0] == 0
            assert "value" not in each

    await secured.allow("User:reader", "SUBJECT", "READ", name="orders-value")
    secured.pass_time()
    assert (await fetch(reader, "orders"))[0]["value"] == {"a": 1}
    await secured.aclose()


async def test_a_tenant_knows_subjects_by_its_own_names() -> None:
    secured = Secured()
    prefix = {"name_prefix": "acme."}
    tenant = secured.client((await secured.key("User:t", is_super=True, **prefix))[1])
    assert (await tenant.post("/v1/topics", json={"name": "orders"})).is_success

    assert (await produce(tenant, "orders", value_schema=ORDER)).is_success
    assert (await produce(tenant, "orders", value_subject="orders-value")).is_success
    missing = (await produce(tenant, "orders", value_subject="other")).json()
    assert missing["detail"].endswith("Subject 'other' not found.")
    root = await secured.root()
    assert (await root.get("/subjects")).json() == ["acme.orders-value"]
    assert [each["value"] for each in await fetch(tenant, "orders")] == [{"a": 1}] * 2
    await secured.aclose()


async def test_bytes_that_only_look_like_ids_are_looked_up_a_bounded_number_of_times(
    deployed: Deployment,
) -> None:
    http = deployed.http
    await http.post("/v1/topics", json={"name": "chance"})
    values = [base64.b64encode(b"\x00" + n.to_bytes(4) + b"x").decode() for n in range(1, 400)]
    await http.post(
        "/v1/topics/chance/records", json={"records": [{"value_base64": v} for v in values]}
    )
    watched = WatchedTable(deployed.world.new_version)
    watched.__dict__.update({**deployed.table.inner.__dict__, "reads": ()})
    deployed.table.inner = watched

    found = await fetch(http, "chance")

    assert [each["value_base64"] for each in found] == values
    assert all(each["value_error"] for each in found)
    assert 0 < len(watched.reads) <= 100
    watched.reads = ()
    await fetch(http, "chance")
    assert watched.reads == ()


def test_a_gateway_without_schemas_imports_nothing_for_them() -> None:
    program = """
import asyncio, sys
from tests.fuzz.deployment import deployment
async def main():
    async with deployment() as deployed:
        await deployed.http.post("/v1/topics", json={"name": "t"})
        await deployed.http.post("/v1/topics/t/records", json={"records": [{"value": {"a": 1}}]})
        path = "/v1/topics/t/partitions/0/records?value_format=json"
        print((await deployed.http.get(path)).json()["records"][0]["value"])
asyncio.run(main())
late = ("jsonschema_rs", "google.protobuf", "fastavro", "avro")
print([name for name in (*late, "storage.schemas.avro.codec") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.stdout.splitlines() == ["{'a': 1}", "[]"], done.stderr
