"""A gateway within the limits of its host: time, size, and standing still between answers."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from service.app import create_app
from service.http.deadlines import set_deadline
from service.http.hosted import InTime, Settled
from service.process.thawing import ThawingClock
from service.settings import Settings
from service.world.clock import World, real_world
from storage.errors import OutcomeUnknown, StoreUnavailable
from storage.tasks import begin, detached
from tests.integration.processes import ARROW, SSE, arrow_records
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.world import world_of

pytestmark = pytest.mark.anyio

LIMIT_BYTES = 20_000
Start = Callable[[Coroutine[Any, Any, None]], object]
MEMORY = {"zones": "a=memory://", "metadata": "memory://", "log_level": "warning"}


@asynccontextmanager
async def gateway(
    world: World | None = None, **settings: object
) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(**{**MEMORY, **settings}), world)  # type: ignore[arg-type]
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://riacho") as client:
        yield client
    await app.gateway.aclose()


async def filled(client: httpx.AsyncClient, values: list[str], partitions: int = 1) -> None:
    await client.post("/v1/topics", json={"name": "t", "partitions": partitions})
    for partition in range(partitions):
        records = {"records": [{"value": value} for value in values]}
        path = f"/v1/topics/t/partitions/{partition}/records"
        assert (await client.post(path, json=records)).status_code == 200


RECORDS = "/v1/topics/t/partitions/0/records"

VALUES = {
    "plain": ["x" * 200] * 300,
    "small": [str(n) for n in range(1000)],
    "grows in JSON": ["\x01" * 100] * 300,
    "very different": ["s"] * 50 + ["x" * 15_000] * 4 + ["s"] * 50,
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson", ARROW])
async def test_answers_fit_and_readers_get_everything(values: list[str], accept: str) -> None:
    async with gateway(answer_bytes_max=LIMIT_BYTES) as client:
        await filled(client, values)
        found: list[str] = []
        offset = 0
        while offset < len(values):
            headers = {"accept": accept}
            answer = await client.get(RECORDS, params={"offset": offset}, headers=headers)
            assert answer.status_code == 200, answer.text
            assert len(answer.content) <= LIMIT_BYTES
            if accept == ARROW:
                found += [record["value"].decode() for record in arrow_records(answer.content)]
            elif accept == "application/json":
                found += [record["value"] for record in answer.json()["records"]]
            else:
                found += [json.loads(line)["value"] for line in answer.text.splitlines()]
            assert int(answer.headers["riacho-next-offset"]) == len(found)
            offset = len(found)
        assert found == values


async def test_several_partitions_fit_together() -> None:
    values = ["x" * 4_000] * 4
    async with gateway(answer_bytes_max=LIMIT_BYTES) as client:
        await filled(client, values, partitions=3)
        offsets = dict.fromkeys(range(3), 0)
        while any(offset < len(values) for offset in offsets.values()):
            wanted = [
                {"topic": "t", "partition": partition, "offset": offset}
                for partition, offset in offsets.items()
            ]
            answer = await client.post("/v1/fetch", json={"partitions": wanted})
            assert len(answer.content) <= LIMIT_BYTES
            before = dict(offsets)
            for part in answer.json()["partitions"]:
                offsets[part["partition"]] += len(part["records"])
                assert part["next_offset"] == offsets[part["partition"]]
            assert offsets != before


async def test_a_record_that_no_answer_can_hold_is_named() -> None:
    async with gateway(answer_bytes_max=LIMIT_BYTES) as client:
        await filled(client, ["s", "x" * LIMIT_BYTES])
        assert (await client.get(RECORDS)).json()["next_offset"] == 1
        for answer in (
            await client.get(RECORDS, params={"offset": 1}),
            await client.get(RECORDS, params={"offset": 1}, headers={"accept": ARROW}),
        ):
            assert answer.status_code == 413
            assert answer.json()["code"] == "MESSAGE_TOO_LARGE"
            assert "/v1/topics/t/partitions/0/segments?offset=1" in answer.json()["detail"]
        wanted = {"partitions": [{"topic": "t", "partition": 0, "offset": 1}]}
        [part] = (await client.post("/v1/fetch", json=wanted)).json()["partitions"]
        assert part["error"]["code"] == "MESSAGE_TOO_LARGE"
        tail = await client.get(RECORDS, params={"offset": 1}, headers={"accept": SSE})
        assert "event: error" in tail.text
        assert "segments" in tail.text


async def test_ranges_fit_too(tmp_path: Path) -> None:
    async with gateway(answer_bytes_max=2_000, zones=f"a={tmp_path.as_uri()}") as client:
        await filled(client, ["s"])
        for _ in range(20):
            await client.post(RECORDS, json={"records": [{"value": "s"}]})
        answer = await client.get("/v1/topics/t/partitions/0/segments")
        assert len(answer.content) <= 2_000
        assert 0 < answer.json()["next_offset"] < 21


async def test_a_tail_ends_with_what_there_is_and_goes_on_from_its_last_id() -> None:
    values = [f"{n:04}" * 100 for n in range(100)]
    async with gateway(answer_bytes_max=LIMIT_BYTES) as client:
        await filled(client, values)
        found: list[str] = []
        headers = {"accept": SSE}
        while len(found) < len(values):
            answer = await client.get(RECORDS, params={"at": "earliest"}, headers=headers)
            assert len(answer.content) <= LIMIT_BYTES
            lines = answer.text.splitlines()
            assert lines[0].startswith("retry: ")
            found += [json.loads(line[6:])["value"] for line in lines if line.startswith("data: ")]
            headers["last-event-id"] = [line[4:] for line in lines if line.startswith("id: ")][-1]
        assert found == values


def test_a_wait_is_cut_and_a_tail_ends_in_time() -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(_waits_are_cut())


async def _waits_are_cut() -> None:
    world = world_of(cast(VirtualLoop, asyncio.get_running_loop()), random.Random(1))
    async with gateway(world, answer_bytes_max=LIMIT_BYTES, answer_s_max=28) as client:
        await filled(client, ["s"])
        began_s = world.monotonic_s()
        latest: dict[str, str | int] = {"at": "latest", "max_wait_ms": 60_000}
        assert (await client.get(RECORDS, params=latest)).json()["records"] == []
        wanted = {"partitions": [{"topic": "t", "partition": 0, "at": "latest"}]}
        answer = await client.post("/v1/fetch", json={**wanted, "max_wait_ms": 60_000})
        assert answer.json()["partitions"][0]["records"] == []
        tail = await client.get(RECORDS, params={"at": "latest"}, headers={"accept": SSE})
        assert "event: heartbeat" in tail.text
        joining = {"topics": ["t"], "session_timeout_ms": 300_000}
        member = (await client.post("/v1/groups/g/members", json=joining)).json()
        poll = {"generation": member["generation"], "owned": member["assignment"]}
        poll |= {"auto_offset_reset": "latest", "max_wait_ms": 60_000}
        answer = await client.post(f"/v1/groups/g/members/{member['member_id']}/poll", json=poll)
        assert answer.json()["partitions"][0]["records"] == []
        # Four waits, in time that passes only where somebody waits.
        assert 4 * 20 < world.monotonic_s() - began_s < 4 * 28


async def test_a_host_that_freezes_gets_no_answer_before_everything_is_done() -> None:
    before = asyncio.all_tasks()
    async with gateway(freezes=True) as client:
        await filled(client, ["s"])
        for number in range(30):
            answer = await client.post(
                RECORDS, params={"acks": "0"}, json={"records": [{"value": "n"}]}
            )
            assert answer.status_code == 202
            # Nothing is left to run: what this process has begun, it has done.
            assert asyncio.all_tasks() == before
            page = (await client.get(RECORDS, params={"offset": 0})).json()
            assert page["high_watermark"] == number + 2


async def hangs(_scope: Scope, _receive: Receive, _send: Send) -> None:
    await asyncio.get_running_loop().create_future()


async def never() -> None:
    raise AssertionError("nobody asks for the body, nor sends anything")


@pytest.mark.parametrize(("method", "error"), [("GET", StoreUnavailable), ("POST", OutcomeUnknown)])
async def test_what_takes_too_long_is_answered_for(method: str, error: type[Exception]) -> None:
    app = InTime(hangs, answer_s_max=0.01, monotonic_s=real_world().monotonic_s)
    with pytest.raises(error):
        await app({"type": "http", "method": method}, never, lambda _: never())  # type: ignore[arg-type]


async def answered(work: Coroutine[Any, Any, None], start: Start, deadline_s: float) -> list[str]:
    """Return what is sent for a request that starts `work` and does not wait for it."""
    sent: list[str] = []

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        start(work)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async def send(message: Message) -> None:
        sent.append(message["type"])

    async with asyncio.timeout(120):
        now_s = real_world().monotonic_s
        scope: Scope = {"type": "http", "method": "GET"}
        set_deadline(scope, now_s(), deadline_s)
        await Settled(app, monotonic_s=now_s)(scope, never, send)
    return sent


SENT = ["http.response.start", "http.response.body"]


async def test_an_answer_waits_for_tasks_begun_and_for_those_that_they_begin() -> None:
    done = []

    async def first() -> None:
        await asyncio.sleep(0)
        begin(second())

    async def second() -> None:
        await asyncio.sleep(0.01)
        done.append("second")

    assert await answered(first(), begin, 60) == SENT
    assert done == ["second"]


async def test_an_answer_waits_neither_beyond_its_deadline_nor_for_a_poller() -> None:
    ends = asyncio.Event()

    async def work() -> None:
        await ends.wait()

    for start, deadline_s in ((begin, 0.01), (detached, 60.0)):
        assert await answered(work(), start, deadline_s) == SENT
    ends.set()


def test_a_clock_that_stood_still_catches_up() -> None:
    seconds = {"monotonic": 100.0, "wall": 5_000.0}
    clock = ThawingClock(lambda: seconds["monotonic"], lambda: int(seconds["wall"] * 1000))
    world = replace(real_world(), monotonic_s=clock.monotonic_s)
    assert world.monotonic_s() == 100.0
    seconds["monotonic"], seconds["wall"] = 101.0, 5_001.0
    assert world.monotonic_s() == 101.0
    # Frozen for an hour: only the wall clock has gone on.
    seconds["wall"] += 3600
    assert world.monotonic_s() == 3701.0
    # Set back: time does not.
    seconds["wall"] -= 1000
    assert world.monotonic_s() == 3701.0
    seconds["monotonic"], seconds["wall"] = 102.0, seconds["wall"] + 1
    assert world.monotonic_s() == 3702.0
