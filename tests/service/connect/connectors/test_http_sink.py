"""Records arrive at a server at least once, in order, with keys by which it knows them again."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from service.connect.connectors.catalog import plugin_of
from service.connect.data.errors import ConfigFault, RetriableFault, TaskFault
from service.connect.data.schema import INT32, STRING, struct
from service.world.clock import real_world
from tests.service.connect.connectors.harness import (
    SinkCrash,
    SinkTrial,
    environment,
)
from tests.service.connect.connectors.http_server import Answer, Asked, LocalServer, local_server

pytestmark = pytest.mark.anyio


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with local_server() as started:
        yield started


def trial_of(
    server: LocalServer,
    slept: list[float] | None = None,
    *,
    name: str = "io.confluent.connect.http.HttpSinkConnector",
    path: str = "/in",
    **config: str,
) -> SinkTrial:
    """Return a trial for which time passes as fast as it sleeps, and that notes for how long."""
    naps = slept if slept is not None else []

    async def sleep(seconds: float) -> None:
        naps.append(seconds)
        await asyncio.sleep(0)

    plugin = plugin_of(name)
    assert plugin is not None
    url = {"http.url" if "aiven" in name else "http.api.url": server.url + path}
    keys = {key.replace("_", "."): text for key, text in config.items()}
    world = replace(real_world(), sleep=sleep, monotonic_s=lambda: sum(naps))
    return SinkTrial(plugin, {**url, **keys}, environment(private_addresses=True, world=world))


def keys_of(server: LocalServer) -> list[str]:
    return [asked.headers["idempotency-key"] for asked in server.asked]


async def test_one_record_a_request(server: LocalServer) -> None:
    trial = trial_of(
        server,
        path="/in/${topic}/${key}?at=${partition}:${offset}",
        request_method="PUT",
        headers="X-One: 1|X-Two: a:b",
        auth_type="basic",
        connection_user="me",
        connection_password="geheim",
    )
    trial.give("t", 0, "text", {"a": 1.5}, b"\xff", keys=["k /", 7, None])
    trial.give("t", 1, {"id": 1, "s": "x"}, schema=struct([("id", INT32), ("s", STRING)]))

    await trial.run()

    assert [(asked.method, asked.path, asked.body) for asked in server.asked] == [
        ("PUT", "/in/t/k%20%2F?at=0:0", b"text"),
        ("PUT", "/in/t/7?at=0:1", b'{"a":1.5}'),
        ("PUT", "/in/t/null?at=0:2", b"\xff"),
        ("PUT", "/in/t/null?at=1:0", b'{"id":1,"s":"x"}'),
    ]
    assert keys_of(server) == ["t-0-0", "t-0-1", "t-0-2", "t-1-0"]
    headers = server.asked[0].headers
    assert headers["authorization"] == "Basic bWU6Z2VoZWlt"
    assert (headers["x-one"], headers["x-two"]) == ("1", "a:b")


async def test_batches(server: LocalServer) -> None:
    trial = trial_of(
        server, batch_max_size="2", batch_json_as_array="true", auth_type="bearer", bearer_token="x"
    )
    trial.give("t", 0, "a", 1, {"b": None})
    trial.give("t", 1, "c")
    await trial.run()
    assert [json.loads(asked.body) for asked in server.asked] == [["a", 1], [{"b": None}], ["c"]]
    assert keys_of(server) == ["t-0-0-1", "t-0-2", "t-1-0"]
    assert server.asked[0].headers["authorization"] == "Bearer x"
    assert server.asked[0].headers["content-type"] == "application/json"

    server.asked.clear()
    lines = trial_of(server, batch_max_size="9", batch_separator="\\n", batch_suffix="\n")
    lines.give("t", 0, "a", "b", {"c": 1})
    await lines.run()
    assert [asked.body for asked in server.asked] == [b'a\nb\n{"c":1}\n']


async def test_configurations_of_aiven(server: LocalServer) -> None:
    aiven = "io.aiven.kafka.connect.http.HttpSinkConnector"
    trial = trial_of(
        server,
        name=aiven,
        http_authorization_type="static",
        http_headers_authorization="Token x",
        http_headers_additional="a:1,b:2",
    )
    trial.give("t", 0, "x", "y")
    await trial.run()
    assert [asked.body for asked in server.asked] == [b"x", b"y"]
    headers = server.asked[0].headers
    assert (headers["authorization"], headers["a"], headers["b"]) == ("Token x", "1", "2")

    server.asked.clear()
    batches = trial_of(server, name=aiven, batching_enabled="true")
    batches.give("t", 0, "x", "y")
    await batches.run()
    assert [asked.body for asked in server.asked] == [b"x\ny\n"]


async def test_what_may_succeed_later_is_retried(server: LocalServer) -> None:
    replies = iter([503, 429, 500, 200, 200])

    def answer(_: Asked) -> Answer:
        status = next(replies)
        return Answer(status, headers={"Retry-After": "7"} if status == 429 else {})

    server.answer = answer
    slept: list[float] = []
    trial = trial_of(server, slept, retry_backoff_ms="1000")
    trial.give("t", 0, "a", "b")
    await trial.run()

    assert keys_of(server) == ["t-0-0"] * 4 + ["t-0-1"]
    [first, asked, third] = slept
    assert asked == pytest.approx(7)
    assert 0.5 <= first <= 1
    assert 2 <= third <= 4
    assert trial.reports.given_up == []


async def test_a_long_wait_that_the_server_asks_for_is_divided(server: LocalServer) -> None:
    replies = iter([Answer(429, headers={"Retry-After": "50"}), Answer(200)])
    server.answer = lambda _: next(replies)
    slept: list[float] = []
    trial = trial_of(server, slept)
    trial.give("t", 0, "a")
    await trial.run()

    assert slept == pytest.approx([20, 20, 10])
    assert keys_of(server) == ["t-0-0"] * 2


async def test_a_put_that_failed_half_way_repeats_only_the_rest(server: LocalServer) -> None:
    failing = iter([True] * 4)

    def answer(asked: Asked) -> Answer:
        return Answer(503 if asked.body == b"b" and next(failing, False) else 200)

    server.answer = answer
    trial = trial_of(server)
    trial.give("t", 0, "a", "b", "c")
    await trial.run()

    assert [asked.body for asked in server.asked] == [b"a", *[b"b"] * 5, b"c"]


async def test_giving_up_a_record_forgets_none_before_it(server: LocalServer) -> None:
    replies = iter([Answer(503), Answer(200), Answer(200)])
    server.answer = lambda _: next(replies)
    trial = trial_of(server, batch_max_size="9", behavior_on_null_values="fail")
    trial.give("t", 0, "a", None, "b")
    await trial.run()

    assert [asked.body for asked in server.asked] == [b"a", b"a", b"b"]
    assert len(trial.reports.given_up) == 1


async def test_it_gives_up_in_the_end(server: LocalServer) -> None:
    server.answer = lambda _: Answer(503, b"not now")
    trial = trial_of(server, max_retries="2")
    trial.give("t", 0, "a")

    with pytest.raises(TaskFault, match=r"503: not now.*3 attempts"):
        await trial.run()

    assert len(server.asked) == 3
    assert trial.committed == {}


async def test_what_the_server_refuses_is_reported(server: LocalServer) -> None:
    server.answer = lambda asked: Answer(422 if b"bad" in asked.body else 204, b"no\nsuch thing")
    trial = trial_of(server)
    trial.give("t", 0, "a", "bad", "b")
    await trial.run()
    [(record, fault)] = trial.reports.given_up
    assert record.value == "bad"
    assert "422: no such thing" in str(fault)

    ignoring = trial_of(server, behavior_on_error="ignore", batch_max_size="2")
    ignoring.reports.tolerates = False
    ignoring.give("t", 0, "a", "bad", "b")
    await ignoring.run()
    assert ignoring.reports.given_up == []

    server.answer = lambda _: Answer(401)
    ignoring.give("t", 0, "c")
    with pytest.raises(TaskFault, match=r"auth\.type"):
        await ignoring.run()


async def test_nulls(server: LocalServer) -> None:
    for behavior, methods, given_up in [
        ("ignore", ["POST"], 0),
        ("log", ["POST"], 0),
        ("fail", ["POST"], 1),
        ("delete", ["DELETE", "POST"], 0),
    ]:
        server.asked.clear()
        trial = trial_of(server, behavior_on_null_values=behavior, path="/${key}")
        trial.give("t", 0, None, "x", keys=["a", "b"])
        await trial.run()
        assert [asked.method for asked in server.asked] == methods
        assert len(trial.reports.given_up) == given_up
        assert all(not asked.body for asked in server.asked if asked.method == "DELETE")


@pytest.mark.parametrize("crash", SinkCrash)
async def test_each_record_at_least_once_and_known_again(
    server: LocalServer, crash: SinkCrash
) -> None:
    trial = trial_of(server)
    trial.give("t", 0, *(str(n) for n in range(20)))

    await trial.run(crash=crash, records_max=5)
    await trial.run(records_max=5)

    once = dict(zip(keys_of(server), (asked.body for asked in server.asked), strict=True))
    assert once == {f"t-0-{n}": str(n).encode() for n in range(20)}
    assert list(once) == [f"t-0-{n}" for n in range(20)]


async def test_a_server_that_cannot_be_reached(server: LocalServer) -> None:
    trial = trial_of(server)
    trial.config = {**trial.config, "http.api.url": "http://127.0.0.1:1/?token=geheim"}
    trial.give("t", 0, "a")
    trial.retries_max = 0

    with pytest.raises(RetriableFault) as raised:
        await trial.run()
    assert "http://127.0.0.1:1/" in str(raised.value)
    assert "geheim" not in str(raised.value)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("http_api_url", "ftp://a.test"),
        ("http_api_url", "http://${topic}.test/"),
        ("headers", "no colon"),
        ("headers", "Host: x"),
        ("headers", "X: a\r\nY: b"),
        ("auth_type", "basic"),
        ("retry_on_status_codes", "200-"),
        ("retry_on_status_codes", "5xx"),
        ("batch_max_size", "0"),
    ],
)
async def test_a_wrong_configuration_is_refused(server: LocalServer, key: str, text: str) -> None:
    with pytest.raises(ConfigFault):
        trial_of(server, **{key: text}).check()
