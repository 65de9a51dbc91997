"""What a server says is in the log once, whatever dies, and whatever the server repeats."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest

from service.connect.connectors.catalog import plugin_of
from service.connect.data.errors import TaskFault
from service.world.clock import real_world
from tests.service.connect.connectors.harness import SourceCrash, SourceTrial, environment
from tests.service.connect.connectors.http_server import Answer, Asked, LocalServer, local_server

pytestmark = pytest.mark.anyio

ITEMS = [{"id": n, "at": f"2026-01-{n // 3 + 1:02}", "data": {"n": n}} for n in range(40)]


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with local_server() as started:
        yield started


def trial_of(server: LocalServer, query: str = "", **config: str) -> SourceTrial:
    """Return a trial for which time passes as fast as it sleeps."""
    now_s = [0.0]

    async def sleep(seconds: float) -> None:
        now_s[0] += seconds
        await asyncio.sleep(0)

    plugin = plugin_of("HttpSource")
    assert plugin is not None
    keys = {key.replace("_", "."): text for key, text in config.items()}
    world = replace(real_world(), sleep=sleep, monotonic_s=lambda: now_s[0])
    return SourceTrial(
        plugin,
        {"http.request.url": server.url + "/items" + query, "kafka.topic": "t", **keys},
        environment(private_addresses=True, world=world),
    )


def by_id(server: LocalServer, *, inclusive: bool) -> SourceTrial:
    def answer(asked: Asked) -> Answer:
        after = int(parse_qs(urlsplit(asked.path).query)["after"][0])
        rest = [each for each in ITEMS if each["id"] >= after + (not inclusive)]  # type: ignore[operator]
        return Answer(body=json.dumps({"page": {"items": rest[:7]}}).encode())

    server.answer = answer
    return trial_of(
        server,
        "?after=${offset}",
        http_offset_initial="-1",
        http_response_list_pointer="/page/items",
        http_response_record_offset_pointer="/id",
        http_response_record_key_pointer="/id",
        http_response_record_pointer="/data",
    )


@pytest.mark.parametrize("crash", SourceCrash)
@pytest.mark.parametrize("inclusive", [True, False])
async def test_each_record_once_by_offset(
    server: LocalServer, crash: SourceCrash, inclusive: bool
) -> None:
    trial = by_id(server, inclusive=inclusive)

    for n in range(1, 5):
        await trial.run(lambda: False, crash=crash, crash_at=n, records_max=2)
    await trial.run(lambda: len(trial.records) >= 40, records_max=3)
    before = trial.polls
    await trial.run(lambda: trial.polls > before + 2)

    assert trial.values == [{"n": n} for n in range(40)]
    assert [record.key for record in trial.records] == list(range(40))


@pytest.mark.parametrize("crash", SourceCrash)
async def test_records_of_one_offset_are_told_apart_by_their_number(
    server: LocalServer, crash: SourceCrash
) -> None:
    def answer(asked: Asked) -> Answer:
        since = parse_qs(urlsplit(asked.path).query).get("since", [""])[0]
        return Answer(body=json.dumps([e for e in ITEMS if e["at"] >= since][:7]).encode())  # type: ignore[operator]

    server.answer = answer
    trial = trial_of(server, "?since=${offset}", http_response_record_offset_pointer="/at")

    for n in range(1, 5):
        await trial.run(lambda: False, crash=crash, crash_at=n, records_max=2)
    await trial.run(lambda: len(trial.records) >= 40, records_max=2)

    assert trial.values == ITEMS


@pytest.mark.parametrize("crash", SourceCrash)
async def test_a_document_is_read_once_each_time_it_changes(
    server: LocalServer, crash: SourceCrash
) -> None:
    document = {"version": 1, "items": [1, 2, 3, 4]}

    def answer(asked: Asked) -> Answer:
        tag = f'"{document["version"]}"'
        if asked.headers.get("if-none-match") == tag:
            return Answer(304, headers={"ETag": tag})
        return Answer(body=json.dumps(document["items"]).encode(), headers={"ETag": tag})

    server.answer = answer
    trial = trial_of(server)
    await trial.run(lambda: False, crash=crash, crash_at=2, records_max=1)
    await trial.run(lambda: len(trial.records) >= 4, records_max=1)
    before = len(server.asked)
    await trial.run(lambda: len(server.asked) > before)
    assert trial.values == [1, 2, 3, 4]
    assert server.asked[-1].headers["if-none-match"] == '"1"'

    document.update(version=2, items=[1, 5])
    await trial.run(lambda: len(trial.records) >= 6)
    assert trial.values == [1, 2, 3, 4, 1, 5]


async def test_it_waits_between_requests(server: LocalServer) -> None:
    server.answer = lambda _: Answer(body=b"[]")
    trial = trial_of(server, http_timer_interval_millis="10000")

    await trial.run(lambda: trial.polls >= 25, wait_s=1)

    assert len(server.asked) == 3


async def test_a_server_in_trouble_is_asked_again(server: LocalServer) -> None:
    replies = iter([Answer(503), Answer(429, headers={"Retry-After": "3"}), Answer(body=b'["a"]')])
    server.answer = lambda _: next(replies)
    trial = trial_of(server, max_retries="2")
    await trial.run(lambda: bool(trial.records), wait_s=1)
    assert trial.values == ["a"]

    server.answer = lambda _: Answer(500, b"broken")
    with pytest.raises(TaskFault, match=r"500: broken.*3 attempts"):
        await trial.run(lambda: False, wait_s=60)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Answer(404, b"nowhere"), "404: nowhere"),
        (Answer(200, b"<html>"), "not JSON"),
        (Answer(200, b'{"a": 1}'), "nothing at /data"),
        (Answer(200, b"[" * 100_000), "not JSON"),
        (Answer(200, b"1" * (8 * 1024 * 1024 + 1)), "more than"),
    ],
)
async def test_replies_that_cannot_be_read_say_why(
    server: LocalServer, reply: Answer, words: str
) -> None:
    server.answer = lambda _: reply
    trial = trial_of(server, http_response_list_pointer="/data")

    with pytest.raises(TaskFault, match=words):
        await trial.run(lambda: False)


async def test_a_record_without_its_offset_or_key_is_reported(server: LocalServer) -> None:
    server.answer = lambda _: Answer(
        body=b'[{"id": 1, "k": 1}, {"k": 2}, {"id": 3}, {"id":4,"k":4}]'
    )
    trial = trial_of(
        server,
        http_response_record_offset_pointer="/id",
        http_response_record_key_pointer="/k",
    )

    await trial.run(lambda: len(trial.records) >= 2)

    assert [record.key for record in trial.records] == [1, 4]
    assert [record.value for record, _ in trial.reports.given_up] == [{"k": 2}, {"id": 3}]


async def test_a_request_with_a_body(server: LocalServer) -> None:
    server.answer = lambda asked: Answer(
        body=b'[{"id": "x\\"y"}]' if b"first" in asked.body else b"[]"
    )
    trial = trial_of(
        server,
        http_request_method="POST",
        http_request_body='{"after": "${offset}"}',
        http_offset_initial="first",
        http_response_record_offset_pointer="/id",
    )

    await trial.run(lambda: len(server.asked) >= 2)

    assert [asked.method for asked in server.asked] == ["POST", "POST"]
    assert json.loads(server.asked[1].body) == {"after": 'x"y'}
