"""Dead letters over HTTP: counted, shown, and sent again, each once to the same destination."""

import asyncio
from typing import Any

import pytest

from service.connect.connectors.api import TopicPartition
from service.connect.data.errors import DataFault
from service.connect.tasks.queues import queue_of
from service.log.gateway import Position, Wait
from storage.reading.reader import Budget
from tests.service.connect.dead_letters.dlq import BAD, DEAD, Dlq, dlq_of, has, seven_bad
from tests.service.connect.tasks.sinks import Rig, Target

pytestmark = pytest.mark.anyio


def refuses(value: Any) -> Exception | None:
    return DataFault(f"no place for {value}") if value in BAD else None


async def test_topics_of_dead_letters_are_listed_with_what_is_in_them() -> None:
    async with seven_bad() as (dlq, _):
        assert await dlq.get("/v1/dlq") == {
            "topics": [{"topic": "dead", "connectors": ["c"], "letters": 7, "exists": True}]
        }
        found = await dlq.get("/v1/dlq/dead")

    [group] = found["groups"]
    assert (found["letters"], group["count"], group["sent"]) == (7, 7, 0)
    assert group["exception"] == "org.apache.kafka.connect.errors.DataException"
    assert (group["origin"], group["connector"]) == ("t", "c")
    assert group["stage"] == "VALUE_CONVERTER"
    assert (group["first_ms"], group["last_ms"]) == (7, 7)


async def test_letters_are_shown_with_their_context_page_by_page() -> None:
    async with seven_bad() as (dlq, _):
        first = await dlq.get("/v1/dlq/dead/letters", max=5)
        [place] = first["next"]
        rest = await dlq.get("/v1/dlq/dead/letters", offset=place["offset"])
        none = await dlq.get("/v1/dlq/dead/letters", exception="KeyError")

    assert (len(first["letters"]), len(rest["letters"]), rest["next"]) == (5, 2, [])
    assert none == {"letters": [], "next": []}
    letter = first["letters"][0]
    assert (letter["key"], letter["value"], letter["count"]) == ("k7", "{", 1)
    assert letter["context"]["offset"] == "7"
    assert letter["headers"] == {"__riacho.errors.count": "1"}
    assert not letter.get("sent")


async def test_after_a_repair_all_thousand_are_in_the_sink_and_a_second_redrive_does_nothing() -> (
    None
):
    async with dlq_of(Rig(**DEAD)) as dlq:
        await dlq.rig.produce([str(n) for n in range(1000)])
        target = Target(reported=refuses)
        await dlq.rig.run(target, has(target, 993))
        assert len(await dlq.rig.stored("dead")) == 7
        target.reported = lambda value: None

        found = await dlq.redrive()
        again = await dlq.redrive()
        await dlq.rig.run(target, has(target, 1000))

        assert sorted(target.values) == list(range(1000))
        assert (found["sent"], found["done"], found["destinations"]) == (7, True, {"t": 7})
        assert (again["sent"], again["sent_before"]) == (0, 7)
        [group] = (await dlq.get("/v1/dlq/dead"))["groups"]
        assert group["sent"] == 7


async def test_what_is_sent_is_the_record_as_it_was() -> None:
    async with dlq_of(Rig(**DEAD)) as dlq:
        await dlq.rig.produce(["{"], partition=2)
        target = Target()

        async def is_dead() -> bool:
            return bool(await dlq.rig.stored("dead"))

        await dlq.rig.run(target, is_dead)
        await dlq.redrive()

        sent = await dlq.rig.gateway.fetch("t", *_from(2, 1))
        [(_, batch)] = sent.fetched.batches(10**6)
        [record] = batch.to_pylist()
        assert (record["key"], record["value"], record["timestamp"]) == (b"k0", b"{", 7)
        assert record["headers"] == [{"key": "__riacho.errors.count", "value": b"1"}]


def _from(partition: int, offset: int) -> tuple[Any, ...]:
    budget = Budget(records_max=100, bytes_max=10**6)
    return partition, Position(offset=offset), budget, Wait()


async def test_what_fails_again_is_counted() -> None:
    async with seven_bad() as (dlq, target):
        await dlq.redrive(max=1)

        async def is_dead() -> bool:
            return len(await dlq.rig.stored("dead")) == 8

        await dlq.rig.run(target, is_dead)

        headers = (await dlq.rig.stored("dead"))[-1][1]
        assert headers["__riacho.errors.count"] == b"2"
        assert headers["__connect.errors.offset"] == b"1000"


async def test_a_dry_run_sends_nothing() -> None:
    async with seven_bad() as (dlq, _):
        found = await dlq.redrive(dry_run=True)

        assert found["sent"] == 7
        assert await dlq.end("t") == 1000
        assert (await dlq.redrive(dry_run=True))["sent_before"] == 0


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({"exception": "DataException"}, 7),
        ({"exception": "org.apache.kafka.connect.errors.DataException"}, 7),
        ({"exception": "Data"}, 0),
        ({"origin": "t", "connector": "c", "stage": "VALUE_CONVERTER"}, 7),
        ({"origin": "u"}, 0),
        ({"from_ms": 7, "to_ms": 8}, 7),
        ({"from_ms": 8}, 0),
        ({"to_ms": 7}, 0),
        ({"contains": "{"}, 7),
        ({"contains": "}"}, 0),
    ],
)
async def test_a_filter_means_letters_that_match_all_of_it(
    wanted: dict[str, Any], count: int
) -> None:
    async with seven_bad() as (dlq, _):
        found = await dlq.redrive(filter=wanted, dry_run=True)

    assert (found["looked_at"], found["matched"], found["sent"]) == (7, count, count)


async def test_calls_go_on_where_the_last_one_ended() -> None:
    async with seven_bad() as (dlq, _):
        first = await dlq.redrive(max=3)
        assert (first["sent"], first["done"]) == (3, False)

        rest = await dlq.redrive(next=first["next"])

        assert (rest["sent"], rest["sent_before"], rest["done"]) == (4, 0, True)
        assert await dlq.end("t") == 1007


async def test_a_rate_is_kept() -> None:
    async with seven_bad() as (dlq, _):
        began_s = dlq.rig.gateway.world.monotonic_s()
        found = await dlq.redrive(rate=20)

        assert found["sent"] == 7
        assert dlq.rig.gateway.world.monotonic_s() - began_s >= 7 / 20


async def test_another_topic_gets_them_once_too() -> None:
    async with seven_bad() as (dlq, _):
        await dlq.rig.gateway.topics.create("mended", partitions=1)
        await dlq.redrive()

        found = await dlq.redrive(to="topic:mended")
        again = await dlq.redrive(to="topic:mended")

        assert (found["sent"], again["sent"]) == (7, 0)
        assert [value for value, _ in await dlq.rig.stored("mended")] == [b"{"] * 7


async def test_a_transform_mends_drops_or_leaves_them() -> None:
    async with dlq_of(Rig(**DEAD)) as dlq:
        await dlq.rig.produce(["1", "2", "[1,2"])
        target = Target(reported=lambda value: DataFault("odd") if value == 1 else None)
        await dlq.rig.run(target, has(target, 1))
        await dlq.rig.gateway.topics.create("mended", partitions=1)
        hoist = {
            "value.converter": "JsonConverter",
            "value.converter.schemas.enable": "false",
            "transforms": "h",
            "transforms.h.type": "HoistField$Value",
            "transforms.h.field": "n",
        }

        found = await dlq.redrive(to="topic:mended", transform=hoist)

        assert [value for value, _ in await dlq.rig.stored("mended")] == [b'{"n":1}']
        assert (found["sent"], found["refused_count"]) == (1, 1)
        assert "the transform failed" in found["refused"][0]["reason"]

        drop = {
            "value.converter": "ByteArrayConverter",
            "transforms": "f",
            "transforms.f.type": "Filter",
        }
        found = await dlq.redrive(to="topic:mended", transform=drop)
        again = await dlq.redrive(to="topic:mended")

        assert (found["sent"], found["dropped"], found["sent_before"]) == (0, 1, 1)
        assert again["sent"] == 0


async def test_straight_to_the_sink_and_to_nobody_else() -> None:
    async with dlq_of(Rig(**DEAD)) as dlq:
        await dlq.rig.produce([str(n) for n in range(1000)])
        target = Target(reported=refuses, holds_offsets=True)
        await dlq.rig.run(target, has(target, 993))
        target.reported = lambda value: DataFault("still odd") if value == 7 else None

        found = await dlq.redrive(to="sink:c")

        async def is_dead_again() -> bool:
            return len(target.values) == 999 and len(await dlq.rig.stored("dead")) == 8

        await dlq.rig.run(target, is_dead_again)
        assert found["sent"] == 7
        assert await dlq.end("t") == 1000
        assert sorted(target.values) == [n for n in range(1000) if n != 7]
        value, headers = (await dlq.rig.stored("dead"))[-1]
        assert value == b"7"
        assert headers["__connect.errors.topic"] == b"t"
        assert headers["__connect.errors.offset"] == b"7"
        assert headers["__riacho.errors.count"] == b"2"
        assert not any(name.startswith("__riacho.redrive.") for name in headers)
        assert target.held[TopicPartition(queue_of("c"), 0)] == 7


@pytest.mark.parametrize("before", [0, 1], ids=["the first write", "the letters"])
@pytest.mark.parametrize("fault", ["reply lost", "request lost", "late"])
async def test_an_unanswered_write_sends_none_twice(fault: str, before: int) -> None:
    async with seven_bad() as (dlq, _):
        await dlq.rig.gateway.topics.read("t")
        dlq.rig.metadata.faults = ["none"] * before + [fault]  # type: ignore[list-item, assignment]

        found = await dlq.redrive()
        again = await dlq.redrive()

        assert (again["sent"], again["sent_before"]) == (0, 7)
        assert found["done"]
        assert await dlq.end("t") == 1007


async def test_a_redrive_that_is_killed_and_repeated_sends_each_once() -> None:
    async with seven_bad() as (dlq, _):
        for count in (2, 3):
            call = asyncio.create_task(dlq.redrive(max=count))
            while not call.done() and (await dlq.end("t")) == 1000:
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        await dlq.redrive()

        assert await dlq.end("t") == 1007
        assert len({record["key"] for record in await _resent(dlq)}) == 7


async def _resent(dlq: Dlq) -> list[dict[str, Any]]:
    sent = await dlq.rig.gateway.fetch("t", *_from(0, 1000))
    return [row for _, batch in sent.fetched.batches(10**6) for row in batch.to_pylist()]


async def test_redrives_at_the_same_time_send_each_once() -> None:
    async with seven_bad() as (dlq, _):
        found = await asyncio.gather(*(dlq.redrive() for _ in range(4)))

        assert sum(each["sent"] for each in found) >= 7
        assert await dlq.end("t") == 1007


async def test_letters_that_cannot_be_sent_stay_and_say_why() -> None:
    async with seven_bad() as (dlq, _):
        await dlq.rig.gateway.topics.delete("t")

        found = await dlq.redrive()

        assert (found["sent"], found["refused_count"], found["done"]) == (0, 7, True)
        assert "no topic 't'" in found["refused"][0]["reason"]


async def test_without_context_headers_there_is_no_origin() -> None:
    config = {**DEAD, "errors__deadletterqueue__context__headers__enable": "false"}
    async with dlq_of(Rig(**config)) as dlq:
        await dlq.rig.produce(["{", "1"])
        target = Target()
        await dlq.rig.run(target, has(target, 1))

        found = await dlq.redrive()

        assert "context.headers.enable" in found["refused"][0]["reason"]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"to": "nowhere"}, 400, "origin, topic:NAME, sink:CONNECTOR"),
        ({"to": "topic:absent"}, 404, "absent"),
        ({"to": "sink:absent"}, 404, "absent"),
        ({"to": "origin", "transform": {"transforms": "x"}}, 400, "transforms.x.type"),
        ({"to": "origin", "transform": {"topics": "x"}}, 400, "'topics'"),
        ({"to": "origin", "rate": 0}, 400, "rate"),
        ({"to": "origin", "filter": {"colour": "red"}}, 400, "colour"),
    ],
)
async def test_a_wrong_request_is_refused_in_words(
    body: dict[str, Any], status: int, said: str
) -> None:
    async with seven_bad() as (dlq, _):
        answer = await dlq.client.post("/v1/dlq/dead/redrive", json=body)

    assert (answer.status_code, said in answer.text) == (status, True), answer.text
