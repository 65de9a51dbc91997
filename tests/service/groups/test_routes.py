"""Groups over HTTP: the real app, in this process, on real in-memory stores."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from service.app import App
from service.controller.live_gateways import LiveGateways
from service.http.metrics import Metrics
from service.log.gateway import Gateway
from service.settings import Settings
from service.world.clock import real_world
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.zones.zones import Zones

pytestmark = pytest.mark.anyio

Json = Any


class Api:
    def __init__(self, app: App) -> None:
        transport = httpx.ASGITransport(app=app)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://gateway")

    async def call(self, method: str, path: str, body: Json = None, status: int = 200) -> Json:
        reply = await self.http.request(method, f"/v1{path}", json=body)
        assert reply.status_code == status, reply.text
        return reply.json() if reply.content else None

    async def refused(self, method: str, path: str, body: Json = None) -> Json:
        reply = await self.http.request(method, f"/v1{path}", json=body)
        assert reply.status_code >= 400, reply.text
        return reply.json()

    async def topic(self, partitions: int = 1, name: str = "t") -> None:
        await self.call("POST", "/topics", {"name": name, "partitions": partitions}, 201)

    async def produce(self, partition: int, *values: str, topic: str = "t") -> None:
        records = [{"value": value} for value in values]
        path = f"/topics/{topic}/partitions/{partition}/records"
        await self.call("POST", path, {"records": records})

    async def join(self, **fields: Json) -> Json:
        return await self.call("POST", "/groups/g/members", {"topics": ["t"], **fields})

    async def poll(self, joined: Json, **fields: Json) -> Json:
        path = f"/groups/g/members/{joined['member_id']}/poll"
        return await self.call("POST", path, {"generation": joined["generation"], **fields})


@asynccontextmanager
async def running(count: int = 1, **settings: Json) -> AsyncIterator[list[Api]]:
    """Yield so many gateways over the same stores."""
    world = real_world()
    metadata, objects = MemoryMetadata(world.new_version), MemoryObjects()
    given = Settings.model_validate({"gateway_heartbeat_s": 0, **settings})
    gateways = [Gateway(given, Zones({"a": objects}), metadata, world) for _ in range(count)]
    apps = [App(g, LiveGateways(given, metadata, world), Metrics()) for g in gateways]
    yield [Api(app) for app in apps]
    for gateway in gateways:
        await gateway.aclose()


def values(polled: Json) -> list[str]:
    return sorted(record["value"] for each in polled["partitions"] for record in each["records"])


def spots(polled: Json) -> list[Json]:
    return [
        {"topic": each["topic"], "partition": each["partition"], "offset": each["next_offset"]}
        for each in polled["partitions"]
    ]


async def test_poll_goes_on_from_where_the_caller_is_or_what_is_committed() -> None:
    async with running(2) as [here, there]:
        await here.topic(2)
        await here.produce(0, "a", "b")
        await here.produce(1, "c")
        joined = await here.join()
        first = await here.poll(joined)
        lost = await there.poll(joined)
        assert values(first) == values(lost) == ["a", "b", "c"]

        assert values(await there.poll(joined, positions=spots(first))) == []
        await there.call(
            "POST",
            "/groups/g/offsets",
            {
                "member_id": joined["member_id"],
                "generation": joined["generation"],
                "offsets": [{"topic": "t", "partition": 0, "offset": 1, "metadata": "half"}],
            },
        )
        assert values(await here.poll(joined)) == ["b", "c"]
        [found] = (await here.call("GET", "/groups/g/offsets?topic=t"))["offsets"]
        assert (found["offset"], found["metadata"]) == (1, "half")
        assert (await here.call("GET", "/groups/g/offsets?topic=u"))["offsets"] == []


async def test_poll_waits_for_any_of_its_partitions() -> None:
    async with running(2, head_poll_ms=5) as [here, there]:
        await here.topic(3)
        joined = await here.join()
        waiting = asyncio.create_task(here.poll(joined, max_wait_ms=15_000))
        await asyncio.sleep(0.05)
        await there.produce(2, "late")
        assert values(await waiting) == ["late"]


@pytest.mark.parametrize(("reset", "found"), [("earliest", ["a", "b"]), ("latest", [])])
async def test_a_committed_offset_that_is_not_in_the_log_is_reset(
    reset: str, found: list[str]
) -> None:
    async with running() as [api]:
        await api.topic()
        await api.produce(0, "a", "b")
        await api.call(
            "POST", "/groups/g/offsets", {"offsets": [{"topic": "t", "partition": 0, "offset": 99}]}
        )
        joined = await api.join()
        polled = await api.poll(joined, auto_offset_reset=reset)
        assert values(polled) == found
        assert polled["partitions"][0]["next_offset"] == 2

        # What the caller gives is the caller's to correct, and so is everything if it says so.
        given = [{"topic": "t", "partition": 0, "offset": 99}]
        for fields in ({"positions": given}, {"auto_offset_reset": "none"}):
            [partition] = (await api.poll(joined, **fields))["partitions"]
            assert partition["error"]["code"] == "OFFSET_OUT_OF_RANGE"


async def test_without_a_position_and_a_reset_poll_says_what_to_give() -> None:
    async with running() as [api]:
        await api.topic()
        joined = await api.join()
        path = f"/groups/g/members/{joined['member_id']}/poll"
        error = await api.refused("POST", path, {"generation": 1, "auto_offset_reset": "none"})
        assert error["code"] == "INVALID_REQUEST"
        assert error["detail"].endswith("auto_offset_reset is none: give its position")
        error = await api.refused("POST", path, {"generation": 1, "max_wait_ms": 10**9})
        assert error["detail"] == "max_wait_ms: must be from 0 to 60000"


async def test_no_partition_starves_behind_one_that_is_always_full() -> None:
    async with running() as [api]:
        await api.topic(4)
        for partition in range(4):
            await api.produce(partition, *(str(partition) for _ in range(50)))
        joined = await api.join()
        served: set[str] = set()
        for _ in range(60):
            served |= set(values(await api.poll(joined, max_records=5)))
        assert served == {"0", "1", "2", "3"}


async def test_a_topic_deleted_meanwhile_does_not_stop_the_others() -> None:
    async with running() as [api]:
        await api.topic()
        await api.topic(name="u")
        await api.produce(0, "a")
        joined = await api.join(topics=["t", "u"])
        await api.call("DELETE", "/topics/u", status=204)
        polled = await api.poll(joined)
        by_topic = {each["topic"]: each for each in polled["partitions"]}
        assert by_topic["t"]["records"][0]["value"] == "a"
        assert by_topic["u"]["error"]["code"] == "UNKNOWN_TOPIC_OR_PARTITION"
        assert [each["topic"] for each in (await api.call("GET", "/groups/g/lag"))["partitions"]]


async def test_a_stale_poll_is_refused_with_what_to_do() -> None:
    async with running() as [api]:
        await api.topic(2)
        first = await api.join()
        await api.join()
        path = f"/groups/g/members/{first['member_id']}"
        error = await api.refused("POST", f"{path}/poll", {"generation": 1})
        assert (error["status"], error["code"]) == (409, "ILLEGAL_GENERATION")
        assert error["detail"].endswith("send a heartbeat to learn what is yours now")

        told = await api.call("POST", f"{path}/heartbeat", {"generation": 1})
        assert (told["generation"], len(told["revoke"])) == (2, 1)
        await api.call("DELETE", path, status=204)
        for call in ("heartbeat", "poll"):
            error = await api.refused("POST", f"{path}/{call}", {"generation": 2})
            assert (error["status"], error["code"]) == (404, "UNKNOWN_MEMBER_ID")
            assert error["detail"].endswith("join again")


async def test_who_has_nothing_to_read_is_answered_slowly() -> None:
    async with running() as [api]:
        await api.topic()
        await api.join()
        second = await api.join()
        began_s = asyncio.get_running_loop().time()
        polled = await api.poll(second, max_wait_ms=200)
        assert polled["partitions"] == []
        assert asyncio.get_running_loop().time() - began_s >= 0.19


async def test_a_group_is_described() -> None:
    async with running() as [api]:
        await api.topic(2)
        joined = await api.join(client_id="c", instance_id="i", assignor="range")
        await api.join(topics=[], topics_pattern="t.*")
        [summary] = (await api.call("GET", "/groups"))["groups"]
        group = await api.call("GET", "/groups/g")

        assert summary == {k: group[k] for k in summary}
        assert (group["kind"], group["protocols"]) == ("native", ["http"])
        assert (group["protocol_type"], group["assignor"]) == ("consumer", "range")
        assert (group["state"], group["generation"]) == ("PreparingRebalance", 2)
        [one] = [m for m in group["members"] if m["member_id"] == joined["member_id"]]
        assert (one["client_id"], one["instance_id"], one["topics"]) == ("c", "i", ["t"])
        assert len(one["assignment"]) == len(one["revoke"]) == 1
        for path in ("/groups/none", "/groups/none/lag"):
            assert (await api.refused("GET", path))["code"] == "GROUP_ID_NOT_FOUND"


async def test_lag_counts_records_and_seconds() -> None:
    async with running() as [api]:
        await api.topic(3)
        await api.produce(0, "a", "b", "c")
        await api.produce(1, "d")
        committed = [
            {"topic": "t", "partition": 0, "offset": 1},
            {"topic": "t", "partition": 1, "offset": 1},
        ]
        await api.call("POST", "/groups/g/offsets", {"offsets": committed})
        await asyncio.sleep(0.01)
        lag = await api.call("GET", "/groups/g/lag")
        assert [each["lag"] for each in lag["partitions"]] == [2, 0]
        assert lag["total_lag"] == 2
        assert lag["partitions"][0]["lag_seconds"] >= 0.01
        assert lag["partitions"][1]["lag_seconds"] == 0

        joined = await api.join()
        lag = await api.call("GET", "/groups/g/lag")
        assert {each["member_id"] for each in lag["partitions"]} == {joined["member_id"]}
        assert lag["partitions"][2]["committed_offset"] == -1


@pytest.mark.parametrize(
    ("body", "after"),
    [
        ({"to": "earliest"}, 0),
        ({"to": "latest"}, 4),
        ({"to": "offset", "offset": 3}, 3),
        ({"to": "offset", "offset": 99}, 4),
        ({"to": "shift", "shift": -1}, 1),
        ({"to": "shift", "shift": -(2**70)}, 0),
        ({"to": "shift", "shift": 99}, 4),
        ({"to": "timestamp", "timestamp": 1500}, 1),
        ({"to": "timestamp", "timestamp": 10**12}, 4),
    ],
)
async def test_a_reset_moves_what_is_committed(body: Json, after: int) -> None:
    async with running() as [api]:
        await api.topic()
        stamped = [{"value": str(n), "timestamp": 1000 * (n + 1)} for n in range(4)]
        await api.call("POST", "/topics/t/partitions/0/records", {"records": stamped})
        committed = [{"topic": "t", "partition": 0, "offset": 2}]
        await api.call("POST", "/groups/g/offsets", {"offsets": committed})
        moved = {"topic": "t", "partition": 0, "before": 2, "after": after}
        for dry_run in (True, False):
            reply = await api.call("POST", "/groups/g/reset", {**body, "dry_run": dry_run})
            assert reply == {"dry_run": dry_run, "offsets": [moved]}
            [found] = (await api.call("GET", "/groups/g/offsets"))["offsets"]
            assert found["offset"] == (2 if dry_run else after)


async def test_a_reset_may_name_topics_or_partitions_and_begins_a_group() -> None:
    async with running() as [api]:
        await api.topic(3)
        await api.produce(1, "a", "b")
        error = await api.refused("POST", "/groups/g/reset", {"to": "latest"})
        assert error["detail"].endswith("name topics or partitions to set")
        error = await api.refused("POST", "/groups/g/reset", {"to": "offset"})
        assert error["detail"] == "offset: is missing, and to says 'offset'"
        one = [{"topic": "t", "partition": 1}]
        await api.call("POST", "/groups/g/reset", {"to": "latest", "partitions": one})
        await api.call("POST", "/groups/h/reset", {"to": "latest", "topics": ["t"]})
        [found] = (await api.call("GET", "/groups/g/offsets"))["offsets"]
        assert (found["partition"], found["offset"]) == (1, 2)
        assert len((await api.call("GET", "/groups/h/offsets"))["offsets"]) == 3

        await api.join()
        error = await api.refused("POST", "/groups/g/reset", {"to": "earliest"})
        assert (error["status"], error["code"]) == (409, "NON_EMPTY_GROUP")
        await api.call("POST", "/groups/g/reset", {"to": "earliest", "dry_run": True})


async def test_a_group_is_deleted_with_what_it_has_committed() -> None:
    async with running() as [api]:
        await api.topic()
        joined = await api.join()
        assert (await api.refused("DELETE", "/groups/g"))["code"] == "NON_EMPTY_GROUP"
        await api.call("DELETE", f"/groups/g/members/{joined['member_id']}", status=204)
        committed = [{"topic": "t", "partition": 0, "offset": 0}]
        await api.call("POST", "/groups/g/offsets", {"offsets": committed})
        await api.call("DELETE", "/groups/g", status=204)
        assert (await api.call("GET", "/groups"))["groups"] == []
        assert (await api.call("GET", "/groups/g/offsets"))["offsets"] == []
        assert (await api.refused("DELETE", "/groups/g"))["code"] == "GROUP_ID_NOT_FOUND"


async def test_commits_say_both_who_and_when_or_neither() -> None:
    async with running() as [api]:
        await api.topic()
        body = {"offsets": [{"topic": "t", "partition": 0, "offset": 0}], "generation": 1}
        error = await api.refused("POST", "/groups/g/offsets", body)
        assert error["detail"] == "give generation and member_id together, or neither"


async def test_a_hundred_members_share_two_hundred_partitions() -> None:
    async with running(2, head_poll_ms=1000) as apis:
        await apis[0].topic(200)

        async def follow(number: int, told: Json) -> Json:
            path = f"/groups/g/members/{told['member_id']}/heartbeat"
            body = {"generation": told["generation"], "owned": told["assignment"]}
            return {**told, **await apis[number % 2].call("POST", path, body)}

        told = list(await asyncio.gather(*(apis[n % 2].join() for n in range(100))))
        for _ in range(3):
            told = list(await asyncio.gather(*(follow(n, each) for n, each in enumerate(told))))
        group = await apis[0].call("GET", "/groups/g")
        assert (group["state"], group["generation"]) == ("Stable", 100)
        assert [len(each["assignment"]) for each in told] == [2] * 100
        assert len({p["partition"] for each in told for p in each["assignment"]}) == 200
