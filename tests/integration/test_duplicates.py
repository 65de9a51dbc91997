"""A batch that is sent again gets its first offset, whoever is asked and whatever came between."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx
import pytest

from tests.gateway import GatewayProcess
from tests.integration.backends import on_one_backend
from tests.integration.processes import Api, Deployment, records_path

REMEMBERED = 5
pytestmark = on_one_backend

PARTITIONS = 2
COMMITS_TO_ROLL = 250
"""A head lists about ninety commits before they go to the index."""

PRODUCERS_TO_SPILL = 300
"""More than a head remembers: the others are in pages of their own."""


@pytest.fixture(scope="module")
def gateways(deployment: Deployment) -> Iterator[list[GatewayProcess]]:
    with deployment.start() as one, deployment.start() as other:
        yield [one, other]


@pytest.fixture(scope="module")
def api(gateways: list[GatewayProcess]) -> Iterator[Api]:
    with Api(gateways[0].url) as api:
        yield api


@pytest.fixture(scope="module")
def other(gateways: list[GatewayProcess]) -> Iterator[Api]:
    with Api(gateways[1].url) as api:
        yield api


@dataclass
class Numbered:
    """A producer, and the batches it has written to each partition."""

    topic: str
    producer_id: int
    sizes: list[list[int]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    offsets: list[list[int]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])

    def send(self, api: Api, partition: int, number: int, count: int) -> httpx.Response:
        """Send the batch with this number, whether or not it was sent before."""
        sequence = sum(self.sizes[partition][:number])
        values = [f"{self.producer_id}.{sequence + n}" for n in range(count)]
        return api.http.post(
            records_path(self.topic, partition),
            json={"records": [{"value": value} for value in values]},
            headers={
                "riacho-producer-id": str(self.producer_id),
                "riacho-producer-epoch": "0",
                "riacho-sequence": str(sequence),
            },
        )

    def write(self, api: Api, batches: int = 1) -> None:
        """Write new batches, of several sizes, to all partitions."""
        for _ in range(batches):
            for partition, sizes in enumerate(self.sizes):
                count = 1 + (len(sizes) + partition) % 3
                reply = self.send(api, partition, len(sizes), count)
                assert reply.status_code == 200, reply.text
                sizes.append(count)
                self.offsets[partition].append(reply.json()["results"][0]["base_offset"])

    def repeat(self, api: Api) -> None:
        """Send again all that was ever sent, newest first; nothing of it is written."""
        ends = [api.high_watermark(self.topic, partition) for partition in range(PARTITIONS)]
        for partition, sizes in enumerate(self.sizes):
            first_remembered = len(sizes) - REMEMBERED
            for number in reversed(range(len(sizes))):
                reply = self.send(api, partition, number, sizes[number])
                if number >= first_remembered:
                    assert reply.status_code == 200, reply.text
                    [result] = reply.json()["results"]
                    assert result["base_offset"] == self.offsets[partition][number]
                    assert result["count"] == sizes[number]
                else:
                    assert reply.status_code == 409, reply.text
                    assert reply.json()["code"] == "DUPLICATE_SEQUENCE_NUMBER"
        assert ends == [
            api.high_watermark(self.topic, partition) for partition in range(PARTITIONS)
        ]

    def check(self, *apis: Api) -> None:
        """Nothing is forgotten, a gap is a gap, and the numbering goes on."""
        for api in apis:
            self.repeat(api)
        self.write(apis[0])
        self.sizes[0].append(1)  # One that is never sent.
        gap = self.send(apis[-1], 0, len(self.sizes[0]), 1)
        self.sizes[0].pop()
        assert gap.status_code == 409, gap.text
        assert gap.json()["code"] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        self.repeat(apis[-1])
        log = [record["value"] for record in apis[0].read_all(self.topic, 0)]
        mine = [value for value in log if value.startswith(f"{self.producer_id}.")]
        assert mine == [f"{self.producer_id}.{n}" for n in range(sum(self.sizes[0]))]


def new_producer(api: Api, topic: str) -> Numbered:
    return Numbered(topic, api.http.post("/v1/producers").json()["producer_id"])


def commit_often(api: Api, topic: str) -> None:
    for n in range(COMMITS_TO_ROLL):
        api.produce(topic, [{"value": f"other.{n}"}], 0)


def let_write(count: int) -> Callable[[Api, str], None]:
    """Return what lets so many other producers write."""

    def write(api: Api, topic: str) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: new_producer(api, topic).write(api), range(count)))

    return write


@pytest.mark.parametrize(
    "happen",
    [
        pytest.param(let_write(7), id="seven-other-producers"),
        pytest.param(let_write(PRODUCERS_TO_SPILL), id="hundreds-of-other-producers"),
        pytest.param(commit_often, id="a-roll-of-the-index"),
    ],
)
def test_what_came_between_makes_no_difference(
    api: Api, other: Api, happen: Callable[[Api, str], None]
) -> None:
    topic = api.topic(PARTITIONS)
    producer = new_producer(api, topic)
    producer.write(api, REMEMBERED + 2)
    happen(api, topic)
    producer.check(api, other)


def test_a_gateway_that_was_killed_knows_what_it_has_written(
    deployment: Deployment, api: Api
) -> None:
    topic = api.topic(PARTITIONS)
    doomed = deployment.start()
    try:
        with Api(doomed.url) as dying:
            producer = new_producer(dying, topic)
            producer.write(dying, REMEMBERED + 1)
            let_write(PRODUCERS_TO_SPILL)(dying, topic)
            commit_often(dying, topic)
    finally:
        doomed.kill()
    with deployment.start(port=doomed.port) as again, Api(again.url) as risen:
        producer.check(risen, api)


def test_batches_may_be_written_in_turns_through_all_gateways(api: Api, other: Api) -> None:
    topic = api.topic(PARTITIONS)
    producers = [new_producer(each, topic) for each in (api, other, api)]
    for n in range(2 * REMEMBERED):
        for producer in producers:
            producer.write((api, other)[n % 2])
            producer.repeat((other, api)[n % 2])
    for producer in producers:
        producer.check(other, api)
