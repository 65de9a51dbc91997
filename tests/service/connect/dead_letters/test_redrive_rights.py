"""Who may send dead letters where, and what a tenant sees of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from httpx import AsyncClient

from service.connect.tasks.items import ConnectorItem, encode_connector
from storage import keys
from storage.stores.metadata import Put
from tests.security.secured import Secured

pytestmark = pytest.mark.anyio

LETTER = {
    "value": "v",
    "headers": {
        "__connect.errors.topic": "t",
        "__connect.errors.partition": "0",
        "__connect.errors.offset": "3",
    },
}


@asynccontextmanager
async def deployed(*acls: tuple[str, str, str]) -> AsyncIterator[tuple[AsyncClient, AsyncClient]]:
    """Give clients of root and of a tenant, who has these rights and one dead letter."""
    secured = Secured()
    try:
        _, key = await secured.key("User:ana", name_prefix="acme.")
        root, ana = await secured.root(), secured.client(key)
        for name in ("acme.t", "acme.dead"):
            await root.post("/v1/topics", json={"name": name})
        await root.post("/v1/topics/acme.dead/records", json={"records": [LETTER]})
        config = {"topics": "t", "errors.deadletterqueue.topic.name": "dead"}
        item = ConnectorItem("acme.c", config, "User:ana", 1, name_prefix="acme.")
        await secured.table.transact([Put(keys.connector("acme.c"), encode_connector(item), None)])
        for kind, name, operation in (("TOPIC", "acme.dead", "READ"), *acls):
            await secured.allow("User:ana", kind, operation, name=name)
        secured.pass_time()
        yield root, ana
    finally:
        await secured.aclose()


async def test_a_tenant_sees_and_sends_its_letters_by_its_own_names() -> None:
    async with deployed(("TOPIC", "acme.t", "WRITE")) as (root, ana):
        listed = (await ana.get("/v1/dlq")).json()
        sent = (await ana.post("/v1/dlq/dead/redrive", json={"to": "origin"})).json()

        assert [(each["topic"], each["connectors"]) for each in listed["topics"]] == [
            ("dead", ["c"])
        ]
        assert sent["destinations"] == {"t": 1}
        found = (await root.get("/v1/topics/acme.t/partitions/0/records")).json()
        assert len(found["records"]) == 1


async def test_root_sends_letters_of_a_tenant_to_the_tenants_topic() -> None:
    async with deployed() as (root, _):
        sent = (await root.post("/v1/dlq/acme.dead/redrive", json={"to": "origin"})).json()

        assert sent["destinations"] == {"acme.t": 1}


@pytest.mark.parametrize(
    ("to", "code"),
    [
        ("origin", "TOPIC_AUTHORIZATION_FAILED"),
        ("topic:t", "TOPIC_AUTHORIZATION_FAILED"),
        ("sink:c", "CONNECTOR_AUTHORIZATION_FAILED"),
    ],
)
async def test_reading_letters_is_no_right_to_send_them(to: str, code: str) -> None:
    async with deployed() as (_, ana):
        answer = await ana.post("/v1/dlq/dead/redrive", json={"to": to})

        assert (answer.status_code, answer.json()["code"]) == (403, code)


async def test_who_may_alter_a_sink_may_send_it_letters() -> None:
    async with deployed(("CONNECTOR", "acme.c", "ALTER")) as (root, ana):
        sent = (await ana.post("/v1/dlq/dead/redrive", json={"to": "sink:c"})).json()

        assert sent["destinations"] == {"__connect-redrive-c": 1}
        assert (await root.get("/v1/topics/acme.__connect-redrive-c")).status_code == 200
