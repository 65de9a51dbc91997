"""Two gateways over the same stores: each may die, sleep, and write where the other writes."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.gateway import GatewayProcess, free_port
from tests.integration.load import Ledger, check_through, load, new_ledger, wait_for_acks, watch
from tests.integration.processes import SSE, TIMEOUT_S, Api, Deployment, events, records_path

Pair = tuple[GatewayProcess, GatewayProcess]


@pytest.fixture(scope="module")
def pair(deployment: Deployment) -> Iterator[Pair]:
    """Two gateways, for all the tests that leave them alive."""
    with deployment.start() as one, deployment.start() as other:
        yield one, other


@pytest.fixture
def here(pair: Pair) -> Iterator[Api]:
    with Api(pair[0].url) as api:
        yield api


@pytest.fixture
def there(pair: Pair) -> Iterator[Api]:
    with Api(pair[1].url) as api:
        yield api


def test_one_is_killed_and_comes_back(deployment: Deployment, pair: Pair) -> None:
    survivor, _ = pair
    port = free_port()
    victim = deployment.start(port=port)
    try:
        ledger = new_ledger(survivor)
        urls = [survivor.url, victim.url]
        with watch(ledger, urls), load(ledger, urls):
            wait_for_acks(ledger, 50)
            victim.kill()
            wait_for_acks(ledger, 50)
            victim = deployment.start(port=port)
            wait_for_acks(ledger, 50)
        check_through(ledger, survivor)
        check_through(ledger, victim)
    finally:
        victim.kill()


def test_one_that_was_asleep_does_no_harm_when_it_wakes(deployment: Deployment, pair: Pair) -> None:
    awake, sleeper = pair
    ledger = new_ledger(awake)
    with load(ledger, [awake.url, sleeper.url]):
        for _ in range(2):
            wait_for_acks(ledger, 50)
            os.kill(sleeper.process.pid, signal.SIGSTOP)
            try:
                time.sleep(1)
                if deployment.kind == "cloud":
                    # The embedded one may be asleep with the lock of the SQLite file in hand.
                    wait_for_acks(ledger, 20)
            finally:
                os.kill(sleeper.process.pid, signal.SIGCONT)
        wait_for_acks(ledger, 50)
    check_through(ledger, sleeper)
    check_through(ledger, awake)
    # Nothing broke: it only took longer.
    assert not ledger.transport_errors


def test_both_write_the_same_partition(pair: Pair, here: Api) -> None:
    one, other = pair
    ledger = Ledger(here.topic(), 1)
    urls = [one.url, other.url]
    with watch(ledger, urls), load(ledger, urls, threads=8):
        wait_for_acks(ledger, 300)
    check_through(ledger, one)
    check_through(ledger, other)
    assert not ledger.unknown
    assert not ledger.refused


def test_what_one_acknowledged_the_other_reads_at_once(here: Api, there: Api) -> None:
    topic = here.topic()
    writer, reader = here, there
    for n in range(40):
        [result] = writer.produce(topic, [{"value": str(n)}])
        [record] = reader.fetch(topic, offset=result["base_offset"])["records"]
        assert record["value"] == str(n)
        assert reader.high_watermark(topic) == n + 1
        # The end that a fetch tells is not that of its cache.
        assert writer.fetch(topic, offset=0)["high_watermark"] == n + 1
        assert len(reader.read_all(topic)) == n + 1
        writer, reader = reader, writer


def test_a_tail_of_one_sees_what_comes_through_the_other(here: Api, there: Api) -> None:
    topic = here.topic()
    url = there.url + records_path(topic, 0)
    with httpx.stream("GET", url, headers={"accept": SSE}, timeout=TIMEOUT_S) as response:
        tail = (event for event in events(response.iter_lines()) if "id" in event)
        for n in range(20):
            here.produce(topic, [{"value": str(n)}])
            assert next(tail)["id"] == str(n)


def test_a_waiting_fetch_of_one_is_woken_by_the_other(here: Api, there: Api) -> None:
    topic = here.topic()
    url = there.url + records_path(topic, 0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(httpx.get, url, params={"max_wait_ms": 50_000}, timeout=TIMEOUT_S)
        time.sleep(0.3)
        began_s = time.monotonic()
        here.produce(topic, [{"value": "v"}])
        assert len(waiting.result().json()["records"]) == 1
    assert time.monotonic() - began_s < 25


def test_a_topic_deleted_through_one_is_gone_for_the_other(here: Api, there: Api) -> None:
    topic = here.topic()
    there.produce(topic, [{"value": "old"}])
    assert here.fetch(topic)["records"][0]["value"] == "old"
    here.http.delete(f"/v1/topics/{topic}")
    # Nothing can be added to it any more, whoever still remembers it.
    assert there.send(topic, '{"records": [{"value": "late"}]}').status_code == 404
    here.topic(2, topic)
    there.produce(topic, [{"value": "new"}], partition=1)
    there.produce(topic, [{"value": "new"}], partition=0)
    for api in (here, there):
        assert [record["value"] for record in api.read_all(topic)] == ["new"]


def test_partitions_added_through_one_are_used_by_the_other_at_once(here: Api, there: Api) -> None:
    topic = here.topic(2, config={"lane.partitions": 2})
    there.produce(topic, [{"value": "before"}], partition=0)
    assert there.fetch(topic, 1)["records"] == []
    assert here.http.patch(f"/v1/topics/{topic}", json={"partitions": 5}).status_code == 200
    for partition in range(5):
        there.produce(topic, [{"value": "after"}], partition=partition)
        assert here.read_all(topic, partition)[-1]["value"] == "after"
    results = there.produce(topic, [{"value": "spread", "partition": p} for p in range(5)])
    assert sorted(result["partition"] for result in results) == list(range(5))


def test_the_cluster_names_both(pair: Pair, here: Api) -> None:
    give_up_s = time.monotonic() + TIMEOUT_S
    while True:
        cluster = here.http.get("/v1/cluster").json()
        if {each["url"] for each in cluster["gateways"]} >= {gateway.url for gateway in pair}:
            return
        assert time.monotonic() < give_up_s, cluster
        time.sleep(0.05)
