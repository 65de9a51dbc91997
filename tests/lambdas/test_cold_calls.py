"""Produce, fetch, groups and transactions through functions, each call in a process of its own."""

import json

import pytest

from tests.integration.processes import ARROW, Api, arrow_records
from tests.lambdas.conftest import through
from tests.lambdas.runtime import FreshEnvironments

pytestmark = [pytest.mark.aws, pytest.mark.slow]


def posted(api: Api, path: str, body: object) -> dict[str, object]:
    response = api.http.post(path, json=body)
    assert response.status_code in {200, 201}, response.text
    found: dict[str, object] = response.json()
    return found


def test_every_call_may_come_to_another_process(cold: FreshEnvironments) -> None:
    with through(cold) as api:
        topic = api.topic(partitions=2, name="cold")
        # Produce, and fetch what somebody else wrote.
        assert api.produce(topic, [{"value": "a"}, {"value": "b"}], 0)[0]["base_offset"] == 0
        assert api.produce(topic, [{"value": "c"}], 0)[0]["base_offset"] == 2
        assert [r["value"] for r in api.fetch(topic, 0, offset=0)["records"]] == ["a", "b", "c"]
        # A group.
        group = "/v1/groups/readers"
        member = posted(api, f"{group}/members", {"topics": [topic]})
        poll = {"generation": member["generation"], "owned": member["assignment"]}
        polled = posted(api, f"{group}/members/{member['member_id']}/poll", poll)
        found = {p["partition"]: p["next_offset"] for p in polled["partitions"]}  # type: ignore[attr-defined]
        assert found == {0: 3, 1: 0}
        offsets = [{"topic": topic, "partition": 0, "offset": 3}]
        by = {"member_id": member["member_id"], "generation": member["generation"]}
        # A transaction that copies, with the offsets of what it has read.
        begun = posted(api, "/v1/transactions", {"transactional_id": "copier"})
        name = str(begun["transaction_id"])
        sent = api.send(
            topic,
            json.dumps({"records": [{"value": "A"}]}),
            partition=1,
            headers={"riacho-transaction": name},
        )
        assert sent.status_code == 200, sent.text
        read = {"group": "readers", "offsets": offsets, **by}
        posted(api, f"/v1/transactions/{name}/commit", {"offsets": read})
        body = api.get(topic, 1, accept=ARROW, offset=0).content
        assert [record["value"] for record in arrow_records(body)] == [b"A"]
        committed = api.http.get(f"{group}/offsets").json()["offsets"]
        assert [(o["partition"], o["offset"]) for o in committed] == [(0, 3)]
        assert len(cold.used) == 11


def test_a_schema_that_one_process_registered_is_read_by_another(cold: FreshEnvironments) -> None:
    schema = '{"type":"record","name":"Cold","fields":[]}'
    with through(cold) as api:
        made = posted(api, "/subjects/cold-value/versions", {"schema": schema})
        assert posted(api, "/subjects/other/versions", {"schema": schema})["id"] == made["id"]
        assert api.http.get(f"/schemas/ids/{made['id']}").json()["schema"] == schema
        assert len(cold.used) == 3


def test_a_connector_that_one_process_created_is_known_to_another(cold: FreshEnvironments) -> None:
    config = {"connector.class": "Datagen", "kafka.topic": "cold", "quickstart": "orders"}
    sink = {"connector.class": "HttpSink", "topics": "cold", "http.api.url": "https://example.com/"}
    with through(cold) as api:
        posted(api, "/connectors", {"name": "cold", "config": config})
        assert api.http.get("/connectors").json() == ["cold"]
        validate = "/connector-plugins/HttpSink/config/validate"
        found = api.http.put(validate, json={"name": "sink", **sink}).json()
        assert found["error_count"] == 0, found
        assert len(cold.used) == 3
