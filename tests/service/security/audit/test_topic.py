"""The audit log as a topic: everything gets there, nobody waits for it, and it is bounded."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from service.http.hosting import hosting
from service.security.audit.lines import Actor
from service.security.audit.topic import QUEUED_MAX, RETENTION_MS, AuditTopic
from tests.service.security.quotas.deployment import Deployment

pytestmark = pytest.mark.anyio

ANA = Actor(principal="User:ana")
RECORDS = "/v1/topics/_audit/partitions/0/records"


class Audited(Deployment):
    """A gateway that writes its audit log to a topic."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self.topic = AuditTopic(self.gateways[0], "_audit")
        self.audit = self.apps[0]._security.audit
        self.audit.also_to(self.topic)

    async def written(self, client: httpx.AsyncClient) -> list[dict]:
        """Return all lines, once everything that is queued was written."""
        async with asyncio.timeout(60):
            while self.topic._queue:
                await asyncio.sleep(0.001)
        answer = await client.get(RECORDS)
        assert answer.status_code == 200, answer.text
        return [json.loads(record["value"]) for record in answer.json()["records"]]


@pytest.fixture
async def one() -> AsyncIterator[Audited]:
    deployment = Audited()
    yield deployment
    await deployment.audit.aclose()
    await deployment.aclose()


async def test_refusals_and_changes_become_records(one: Audited) -> None:
    root = await one.root()
    [bob] = await one.clients("User:bob")
    await bob.post("/v1/topics", json={"name": "orders"})
    await root.post("/v1/topics", json={"name": "orders"})

    lines = await one.written(root)

    seen = [(line["event"], line["principal"], line["resource"]) for line in lines]
    assert seen == [("refused", "User:bob", "orders"), ("changed", "User:root", "orders")]
    config = (await root.get("/v1/topics/_audit")).json()["config"]
    assert config["retention.ms"] == str(RETENTION_MS)


async def test_others_need_a_right_for_the_topic(one: Audited) -> None:
    root = await one.root()
    one.audit.changed(ANA, operation="CREATE")
    assert len(await one.written(root)) == 1
    [bob] = await one.clients("User:bob")

    forged = await bob.post(RECORDS, json={"records": [{"value": "forged"}]})

    assert forged.status_code == 403
    assert (await bob.get(RECORDS)).status_code == 403


async def test_a_topic_that_is_there_keeps_its_settings(one: Audited) -> None:
    root = await one.root()
    body = {"name": "_audit", "partitions": 2, "config": {"retention.ms": 1000}}
    await root.post("/v1/topics", json=body)

    await one.written(root)

    assert (await root.get("/v1/topics/_audit")).json()["config"]["retention.ms"] == "1000"


async def test_a_topic_that_is_deleted_is_created_again(one: Audited) -> None:
    root = await one.root()
    one.audit.changed(ANA, operation="CREATE")
    await one.written(root)
    await root.delete("/v1/topics/_audit")

    operations = [line["operation"] for line in await one.written(root)]

    assert operations == ["DELETE"]


async def test_a_queue_that_is_full_leaves_lines_out_and_says_so(
    one: Audited, caplog: pytest.LogCaptureFixture
) -> None:
    root = await one.root()
    for _ in range(QUEUED_MAX + 7):
        one.audit.changed(ANA, operation="CREATE")
    assert len(one.topic._queue) == QUEUED_MAX

    await one.written(root)

    assert "7 audit lines did not fit" in caplog.text
    partitions = (await root.get("/v1/topics/_audit/partitions")).json()["partitions"]
    assert partitions[0]["high_watermark"] == QUEUED_MAX


async def test_the_end_of_the_process_waits_for_what_is_queued(one: Audited) -> None:
    root = await one.root()
    for _ in range(5):
        one.audit.changed(ANA, operation="CREATE")

    await one.audit.aclose()

    assert len(await one.written(root)) == 5


async def test_where_the_host_freezes_the_answer_waits_for_its_lines() -> None:
    deployment = Audited(freezes=True)
    app = deployment.apps[0]
    frozen = hosting(deployment.gateways[0].settings, deployment.world).wrap(app)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(frozen), base_url="http://gateway"
    ) as stranger:
        answer = await stranger.get("/v1/topics")

    assert answer.status_code == 401
    assert not deployment.topic._queue
    lines = await deployment.written(await deployment.root())
    assert lines[0]["verdict"] == "SASL_AUTHENTICATION_FAILED"
    await deployment.aclose()
