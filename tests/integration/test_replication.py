"""Zones that fail, one after the other, under load: nothing that was acknowledged is lost.

Directories fail in four ways. With `make proof` they fail in all ways, and so do buckets, whose
failures differ in nothing but the stores.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.gateway import GatewayProcess
from tests.integration.processes import JSON, Api
from tests.integration.zoned import (
    FAILURES,
    LAG_S,
    PARTITIONS,
    ZONES,
    Book,
    Failure,
    Zoned,
    load,
    make_topic,
    until_in_sync,
)
from tests.integration.zoned_s3 import Buckets
from tests.torture.sizes import some

log = logging.getLogger(__name__)

WAYS: Sequence[Failure] = some(FAILURES, *FAILURES[:4])

SLACK_S = 60.0
"""What a busy machine may add to any wait. Without failover it would be minutes."""

SLOW = [pytest.mark.aws, pytest.mark.slow]

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(params=some(["directories", pytest.param("buckets", marks=SLOW)], "directories"))
def zoned(request: pytest.FixtureRequest, tmp_path: Path) -> Zoned:
    if request.param == "directories":
        return Zoned(tmp_path)
    return Buckets(tmp_path, aws=request.getfixturevalue("local_aws"))


@pytest.fixture
def pair(zoned: Zoned) -> Iterator[list[GatewayProcess]]:
    with zoned.start() as one, zoned.start() as other:
        yield [one, other]


@pytest.fixture
def api(pair: list[GatewayProcess]) -> Iterator[Api]:
    with Api(pair[0].url) as api:
        yield api


def test_zones_fail_one_after_the_other(zoned: Zoned, pair: list[GatewayProcess], api: Api) -> None:
    book = Book(make_topic(api))
    with load(book, [gateway.url for gateway in pair]):
        book.wait_for_more(50)
        for number, how in enumerate(WAYS):
            name = ZONES[number % len(ZONES)]
            rest = ZONES.replace(name, "")
            book.waited_s = 0.0
            zoned.fail(name, how)
            until_in_sync(api, book.topic, rest, f"{name} {how} leaves")
            book.wait_for_more(50)
            assert book.waited_s < LAG_S + SLACK_S
            log.info("%s %s: waited %.1f s", name, how, book.waited_s)
            zoned.heal(name)
            until_in_sync(api, book.topic, ZONES, f"{name} is back after {how}")
        two_are_down(zoned, api, book)
        book.wait_for_more(50)
    check_everything(zoned, pair, book)


def two_are_down(zoned: Zoned, api: Api, book: Book) -> None:
    """The readers of the load go on, and say so if they cannot."""
    for name in "bc":
        zoned.fail(name, "denied")
    until_in_sync(api, book.topic, "a", "two leave")
    for partition in range(2):
        reply = api.send(book.topic, '{"records": [{"value": "x"}]}', JSON, partition)
        assert reply.status_code == 503, reply.text
        problem = reply.json()
        assert problem["code"] == "NOT_ENOUGH_REPLICAS"
        assert (problem["retryable"], problem["may_have_applied"]) == (True, False)
    reply = api.send(book.topic, '{"records": [{"value": "one"}]}', JSON, 0, acks="1")
    assert reply.status_code == 200, reply.text
    with book.lock:
        book.acked[0, reply.json()["results"][0]["base_offset"]] = "one"
    counted = api.http.get("/v1/cluster").json()["partitions"]
    assert counted["under_min_isr"] == counted["count"]
    for name in "bc":
        zoned.heal(name)
    until_in_sync(api, book.topic, ZONES, "both are back")


def check_everything(zoned: Zoned, pair: list[GatewayProcess], book: Book) -> None:
    for gateway in pair:
        with Api(gateway.url) as api:
            book.check(api)
    with Api(pair[0].url) as api:
        [first, *_, last] = segments(api, book.topic)
    code, said = zoned.fsck()
    assert code == 0, said[-3000:]
    zoned.spoil(first, last)
    code, said = zoned.fsck()
    assert code == 1
    for key in (first, last):
        assert key.rpartition("/")[2] in said


def segments(api: Api, topic: str) -> list[str]:
    """Return the keys of the segments that the log refers to; there are orphans besides."""
    keys: set[str] = set()
    for partition in range(PARTITIONS):
        offset, end = 0, 1
        while offset < end:
            path = f"/v1/topics/{topic}/partitions/{partition}/segments"
            page = api.http.get(path, params={"offset": offset}).json()
            offset, end = page["next_offset"], page["high_watermark"]
            urls = (each["url"].partition("?")[0] for each in page["segments"])
            keys |= {"/".join(url.split("/")[-3:]) for url in urls if url.endswith(".seg")}
    return sorted(keys)
