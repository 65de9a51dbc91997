"""Environments that answer many calls, stand still in between, and die without a word."""

import json

import pytest

from tests.integration.processes import ARROW, Api, arrow_records
from tests.lambdas.conftest import GATEWAY, through
from tests.lambdas.runtime import Environment, FunctionError, environment

pytestmark = [pytest.mark.aws, pytest.mark.slow]

CALLS = 70
"""Enough for a head to be rolled."""


def test_nothing_is_lost_with_the_environment_that_wrote_it(
    api: Api, stores: dict[str, str]
) -> None:
    topic = api.topic(name="mortal")
    with environment(GATEWAY, stores) as writer, through(writer) as other:
        for number in range(CALLS):
            acks = ("0", "1", "all")[number % 3]
            body = json.dumps({"records": [{"value": f"{number:04}" * 20}]})
            answer = other.send(topic, body, acks=acks)
            assert answer.status_code == (202 if acks == "0" else 200), answer.text
        # It is frozen now, and will not wake up again.
    values = [record["value"] for record in api.read_all(topic)]
    assert values == [f"{number:04}" * 20 for number in range(CALLS)]


def test_as_much_as_lambda_takes_comes_back_in_pieces(api: Api) -> None:
    topic = api.topic(name="large")
    values = ["é" * 300_000 + str(number) for number in range(6)]
    for value in values:
        api.produce(topic, [{"value": value}])
    assert [record["value"] for record in api.read_all(topic, max_bytes=64 << 20)] == values
    records, offset = [], 0
    while offset < len(values):
        answer = api.get(topic, accept=ARROW, offset=offset, max_bytes=64 << 20)
        records += arrow_records(answer.content)
        offset = int(answer.headers["riacho-next-offset"])
    assert [record["value"].decode() for record in records] == values


def test_a_wait_ends_before_the_function_does(stores: dict[str, str], api: Api) -> None:
    topic = api.topic(name="awaited")
    with environment(GATEWAY, stores, timeout_s=8) as hurried, through(hurried) as other:
        assert other.fetch(topic, at="latest", max_wait_ms=60_000)["records"] == []


def test_idempotent_producers_and_groups_go_from_one_to_the_other(
    api: Api, stores: dict[str, str]
) -> None:
    topic = api.topic(name="numbered")
    producer = api.http.post("/v1/producers", json={}).json()
    with environment(GATEWAY, stores) as second, through(second) as other:
        for number in range(6):
            headers = {
                "riacho-producer-id": str(producer["producer_id"]),
                "riacho-producer-epoch": str(producer["epoch"]),
                "riacho-sequence": str(number),
            }
            body = json.dumps({"records": [{"value": str(number)}]})
            places = [
                each.send(topic, body, partition=0, headers=headers).json()["results"]
                for each in (api, other)
            ]
            assert places[0] == places[1]
        member = other.http.post("/v1/groups/pair/members", json={"topics": [topic]}).json()
        beat = {"generation": member["generation"], "owned": member["assignment"]}
        poll = api.http.post(f"/v1/groups/pair/members/{member['member_id']}/poll", json=beat)
        [part] = poll.json()["partitions"]
        assert [record["value"] for record in part["records"]] == [str(n) for n in range(6)]


def test_a_function_that_is_set_up_wrongly_says_so(stores: dict[str, str]) -> None:
    wrong = {**stores, "RIACHO_ZONES": "a=ftp://nowhere"}
    with environment(GATEWAY, wrong) as function, pytest.raises(FunctionError, match="ftp"):
        function.wait_until_ready()


def test_lines_of_the_log_are_written_before_the_answer(warm: Environment, api: Api) -> None:
    api.http.get("/v1/groups", headers={"x-request-id": "look-for-me"})
    assert '"request_id":"look-for-me"' in warm.output()
