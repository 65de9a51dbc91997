"""Deleting records over HTTP and with the client, and what readers see of it."""

import httpx
import pytest

from riacho import AsyncAdmin, OffsetOutOfRange, PolicyViolation
from tests.service.groups.test_routes import Api, Json, running

pytestmark = pytest.mark.anyio

RECORDS = "/topics/t/partitions/0/records"


async def delete(api: Api, query: str, status: int = 200) -> Json:
    return await api.call("DELETE", f"{RECORDS}?{query}", status=status)


async def fetch(api: Api, query: str = "at=earliest") -> Json:
    return await api.call("GET", f"{RECORDS}?{query}")


async def test_what_is_before_the_offset_is_gone_at_once() -> None:
    async with running() as [api]:
        await api.topic()
        for batch in ("ab", "cde", "f"):
            await api.produce(0, *batch)
        assert await delete(api, "before_offset=3") == {"partition": 0, "log_start_offset": 3}

        fetched = await fetch(api)
        assert [record["value"] for record in fetched["records"]] == ["d", "e", "f"]
        assert (fetched["log_start_offset"], fetched["records"][0]["offset"]) == (3, 3)
        refused = await api.refused("GET", f"{RECORDS}?offset=2")
        assert (refused["status"], refused["code"]) == (416, "OFFSET_OUT_OF_RANGE")
        offsets = await api.call("GET", "/topics/t/partitions/0/offsets?at=earliest")
        assert offsets["offset"] == 3
        # The same again, and less than that, change nothing.
        for offset in (3, 0):
            again = await delete(api, f"before_offset={offset}")
            assert again == {"partition": 0, "log_start_offset": 3}


@pytest.mark.parametrize("latest", ["latest", "-1"])
async def test_all_that_is_there_goes_and_the_next_record_has_the_next_offset(latest: str) -> None:
    async with running() as [api]:
        await api.topic()
        await api.produce(0, "a", "b")
        assert (await delete(api, f"before_offset={latest}"))["log_start_offset"] == 2
        assert (await fetch(api))["records"] == []
        await api.produce(0, "c")
        [record] = (await fetch(api))["records"]
        assert (record["offset"], record["value"]) == (2, "c")
        [info] = (await api.call("GET", "/topics/t/partitions"))["partitions"]
        assert info["log_start_offset"] == 2
        assert info["size_bytes"] > 0


async def test_other_gateways_see_it_when_they_look() -> None:
    async with running(2) as [one, other]:
        await one.topic()
        await one.produce(0, "a", "b", "c")
        assert len((await fetch(other))["records"]) == 3
        await delete(one, "before_offset=2")
        assert [r["value"] for r in (await fetch(other))["records"]] == ["c"]
        await delete(other, "before_offset=3")
        assert (await fetch(one))["log_start_offset"] == 3


async def test_several_partitions_go_together() -> None:
    async with running() as [api]:
        await api.topic(3)
        for partition in range(3):
            await api.produce(partition, "a", "b")
        wanted = [{"partition": 2, "before_offset": 1}, {"partition": 0, "before_offset": "latest"}]
        found = await api.call("POST", "/topics/t/delete-records", {"partitions": wanted})
        assert found == {
            "partitions": [
                {"partition": 2, "log_start_offset": 1},
                {"partition": 0, "log_start_offset": 2},
            ]
        }
        infos = (await api.call("GET", "/topics/t/partitions"))["partitions"]
        assert [info["log_start_offset"] for info in infos] == [2, 0, 1]

        # Nothing happens if one of them cannot be.
        wanted = [{"partition": 1, "before_offset": 1}, {"partition": 2, "before_offset": 3}]
        refused = await api.refused("POST", "/topics/t/delete-records", {"partitions": wanted})
        assert refused["status"] == 416
        infos = (await api.call("GET", "/topics/t/partitions"))["partitions"]
        assert [info["log_start_offset"] for info in infos] == [2, 0, 1]


async def test_impossible_questions_are_refused() -> None:
    async with running() as [api]:
        await api.topic()
        await api.produce(0, "a")
        for query, word in (
            ("", "before_offset"),
            ("before_offset=", "whole number"),
            ("before_offset=-2", "from 0"),
            ("before_offset=x", "whole number"),
            ("before_offset=9999999999999999999", "from 0"),
            ("before_offset=1&before_offset=1", "twice"),
            ("before=1", "no parameter"),
        ):
            refused = await api.refused("DELETE", f"{RECORDS}?{query}")
            assert (refused["status"], refused["code"]) == (400, "INVALID_REQUEST")
            assert word in refused["detail"]
        assert (await api.refused("DELETE", f"{RECORDS}?before_offset=2"))["status"] == 416
        for path in ("/topics/u/partitions/0/records", "/topics/t/partitions/1/records"):
            assert (await api.refused("DELETE", f"{path}?before_offset=0"))["status"] == 404
        for body in (
            {},
            {"partitions": []},
            {"partitions": [{"partition": 0}]},
            {"partitions": [{"partition": 0, "before_offset": "earliest"}]},
            {"partitions": [{"partition": 0, "before_offset": -2}]},
            {"partitions": [{"partition": 0, "before_offset": True}]},
            {"partitions": [{"partition": 0, "before_offset": 1}] * 2},
        ):
            refused = await api.refused("POST", "/topics/t/delete-records", body)
            assert refused["status"] == 400
        assert len((await fetch(api))["records"]) == 1


async def test_a_topic_that_is_only_compacted_keeps_its_records() -> None:
    async with running() as [api]:
        config = {"cleanup.policy": "compact"}
        await api.call("POST", "/topics", {"name": "t", "config": config}, 201)
        refused = await api.refused("DELETE", f"{RECORDS}?before_offset=latest")
        assert (refused["status"], refused["code"]) == (400, "POLICY_VIOLATION")
        assert "compact,delete" in refused["detail"]
        await api.call("PATCH", "/topics/t", {"config": {"cleanup.policy": "compact,delete"}})
        assert (await delete(api, "before_offset=latest"))["log_start_offset"] == 0


async def test_groups_are_behind_only_what_is_still_there() -> None:
    async with running() as [api]:
        await api.topic()
        await api.produce(0, *"abcdef")
        offsets = [{"topic": "t", "partition": 0, "offset": 1}]
        await api.call("POST", "/groups/g/offsets", {"offsets": offsets})
        await delete(api, "before_offset=4")
        [lag] = (await api.call("GET", "/groups/g/lag"))["partitions"]
        assert (lag["committed_offset"], lag["log_start_offset"], lag["lag"]) == (1, 4, 2)


async def test_the_client_does_it_too() -> None:
    async with running() as [api]:
        await api.topic(2)
        await api.produce(0, "a", "b")
        transport: httpx.AsyncBaseTransport = api.http._transport
        async with AsyncAdmin("http://gateway", transport=transport) as admin:
            assert await admin.delete_records("t", {0: 1, 1: "latest"}) == {0: 1, 1: 0}
            with pytest.raises(OffsetOutOfRange):
                await admin.delete_records("t", {0: 3})
            await admin.alter_topic("t", config={"cleanup.policy": "compact"})
            with pytest.raises(PolicyViolation):
                await admin.delete_records("t", {0: 2})
