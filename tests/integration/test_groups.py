"""A group over real gateways: members come, go, crash and sleep while records are produced."""

import itertools
import random
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.gateway import GatewayProcess
from tests.integration.members import GROUP, Book, Crowd, crowd
from tests.integration.processes import TIMEOUT_S, Api, Deployment, Json
from tests.torture.sizes import FULL

PARTITIONS = 12
SESSION_MS = 2_000
SLEEP_S = 1.8 * SESSION_MS / 1000
RESTLESS_S = 60.0 if FULL else 7.0
BEATS_TO_SETTLE_MAX = 2


@pytest.fixture(scope="module")
def gateways(deployment: Deployment) -> Iterator[list[GatewayProcess]]:
    """Two addresses: two processes, and in one of them two workers where SQLite lets them."""
    workers = ["--workers", "2"] if deployment.kind == "embedded" else []
    env = {"RIACHO_GROUP_UPKEEP_S": "1"}
    with deployment.start(*workers, env=env) as one, deployment.start(env=env) as other:
        yield [one, other]


@pytest.fixture
def api(gateways: list[GatewayProcess]) -> Iterator[Api]:
    with Api(gateways[0].url) as api:
        yield api


def test_members_come_and_go_and_every_record_is_read(
    gateways: list[GatewayProcess], api: Api
) -> None:
    urls = [gateway.url for gateway in gateways]
    book = Book(api.topic(PARTITIONS, config={"lane.partitions": 4}), SESSION_MS)
    produced = 0
    with crowd(book, urls) as members:
        members.add("static")
        for _ in range(2):
            members.add()
        give_up_s = time.monotonic() + RESTLESS_S
        chance = random.Random(1)
        disturbances = itertools.cycle(["sleep", "add", "restart", "kill", "add", "leave"])
        for turn in itertools.count():
            produced += produce(api, book, chance)
            if turn % 6 == 5:
                disturb(members, chance, next(disturbances))
            members.wake(SLEEP_S)
            time.sleep(0.1)
            if time.monotonic() >= give_up_s:
                break
        settle(members, api)
        wait_until(lambda: committed(api) == ends(api, book), "not everything was committed")

        assert book.rejoined > 0, "nobody slept for too long"
        joined = members.add()
        wait_until(lambda: joined.assignment != [], "the newcomer got nothing")
        assert book.problems == []
        assert all(gateway.process.poll() is None for gateway in gateways)

    assert produced > 100
    assert {p: len(offsets) for p, offsets in book.delivered.items() if offsets} == ends(api, book)
    group = api.http.get(f"/v1/groups/{GROUP}").json()
    assert (group["state"], group["members"]) == ("Empty", [])
    lag = api.http.get(f"/v1/groups/{GROUP}/lag").json()
    assert lag["total_lag"] == 0
    assert api.http.delete(f"/v1/groups/{GROUP}").status_code == 204


def produce(api: Api, book: Book, chance: random.Random) -> int:
    records = [
        {"value": "v" * chance.randrange(200), "partition": chance.randrange(PARTITIONS)}
        for _ in range(chance.randrange(20))
    ]
    return sum(result["count"] for result in api.produce(book.topic, records)) if records else 0


def disturb(members: Crowd, chance: random.Random, what: str) -> None:
    """Let one come, go, crash, restart, or sleep for longer than its session."""
    awake = [m for m in members.members if m.resume.is_set() and m.instance is None]
    match what:
        case "add":
            members.add()
        case "leave" if len(awake) > 1:
            members.leave(chance.choice(awake))
        case "kill" if len(awake) > 1:
            members.kill(chance.choice(awake))
        case "sleep" if len(awake) > 1:
            members.sleep(chance.choice(awake))
        case "restart":
            [static] = [m for m in members.members if m.instance is not None]
            members.kill(static)
            members.add("static")


def settle(members: Crowd, api: Api) -> None:
    """Wake everyone up, and wait until all partitions are owned by those who are there."""
    members.wake(0)

    def is_settled() -> bool:
        group = api.http.get(f"/v1/groups/{GROUP}").json()
        names = {m["client_id"] for m in group["members"]}
        return group["state"] == "Stable" and names == {m.name for m in members.members}

    wait_until(is_settled, "the group did not settle")


def committed(api: Api) -> dict[int, int]:
    offsets = api.http.get(f"/v1/groups/{GROUP}/offsets").json()["offsets"]
    return {one["partition"]: one["offset"] for one in offsets if one["offset"]}


def ends(api: Api, book: Book) -> dict[int, int]:
    partitions = api.http.get(f"/v1/topics/{book.topic}/partitions").json()["partitions"]
    return {one["partition"]: one["high_watermark"] for one in partitions if one["high_watermark"]}


def wait_until(holds: Callable[[], bool], problem: str) -> None:
    give_up_s = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < give_up_s, problem
        time.sleep(0.1)


def test_a_rebalance_takes_two_heartbeats(gateways: list[GatewayProcess], api: Api) -> None:
    """Counted in heartbeats, whatever gateway each goes to."""
    topic = api.topic(PARTITIONS)
    chance = random.Random(2)

    def call(method: str, path: str, body: Json = None) -> Json:
        url = f"{chance.choice(gateways).url}/v1/groups/counted{path}"
        reply = httpx.request(method, url, json=body, timeout=TIMEOUT_S)
        assert reply.status_code in {200, 204}, reply.text
        return reply.json() if reply.content else None

    def join() -> Json:
        return call("POST", "/members", {"topics": [topic]})

    def beat(told: Json) -> Json:
        body = {"generation": told["generation"], "owned": told["assignment"]}
        return {**told, **call("POST", f"/members/{told['member_id']}/heartbeat", body)}

    members = [join() for _ in range(4)]
    for change in range(6):
        for _ in range(BEATS_TO_SETTLE_MAX):
            members = [beat(told) for told in members]
        group = call("GET", "")
        assert group["state"] == "Stable"
        owned = [p["partition"] for m in group["members"] for p in m["assignment"]]
        assert sorted(owned) == list(range(PARTITIONS))
        if change % 2:
            gone = members.pop(chance.randrange(len(members)))
            call("DELETE", f"/members/{gone['member_id']}")
        else:
            members.append(join())
