"""Our error codes for wrong requests are those that Apache Kafka 4.3.1 gave."""

import json
from pathlib import Path
from typing import Any

import pytest

from service.kafka.protocol.apis import APIS, Api
from service.kafka.protocol.codec import (
    MalformedFrame,
    decode_request,
    decode_response,
    encode,
    encode_response,
)
from tests.service.kafka.cluster import KafkaGateway, kafka_gateway
from tests.service.kafka.recorded.asked import CLOSED, Ask, Numbered, codes
from tests.service.kafka.recorded.cases import CASES, NEW_ID, RAW, steps
from tests.service.kafka.recorded.differences import DIFFERENT

pytestmark = pytest.mark.anyio

ANSWERS: dict[str, Any] = json.loads((Path(__file__).parent / "answers.json").read_text())


async def asked(gateway: KafkaGateway, ask: Ask | Numbered) -> Any:
    """Return the codes of the answer."""
    if isinstance(ask, Numbered):
        producer_id = (await answer(gateway, NEW_ID)).producer_id
        return [await asked(gateway, each) for each in steps(ask, producer_id)][-1]
    return codes(await answer(gateway, ask))


async def answer(gateway: KafkaGateway, ask: Ask) -> Any:
    """Return the answer, which goes through the codec in both directions, as does the request."""
    key = ask.request.KEY
    request = decode_request(key, ask.version, b"".join(encode(ask.request, ask.version)))
    made = await gateway.call(ask.version, request)
    frame = b"".join(encode_response(key, ask.version, 1, made))
    return decode_response(key, ask.version, frame[4:])[1]


def key_of(ask: Ask | Numbered) -> int:
    return Api.PRODUCE if isinstance(ask, Numbered) else ask.request.KEY


async def test_wrong_requests_get_the_codes_that_kafka_gave() -> None:
    found: dict[str, Any] = {}
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t", partitions=2)
        await gateway.gateway.topics.create("compacted", config={"cleanup.policy": "compact"})
        for name, ask in CASES.items():
            if gateway.serves(key_of(ask)):
                found[name] = await asked(gateway, ask)

    expected = {name: ANSWERS[name] for name in found} | {
        name: ours for name, (ours, _) in DIFFERENT.items() if name in found
    }
    assert found == expected


def test_every_difference_is_one() -> None:
    for name, (ours, reason) in DIFFERENT.items():
        assert ANSWERS[name] != ours, name
        assert reason


@pytest.mark.parametrize("name", RAW)
def test_frames_that_end_a_connection_of_kafka_are_refused(name: str) -> None:
    raw = RAW[name]
    assert ANSWERS[name] == CLOSED
    api = APIS.get(raw.key)  # type: ignore[call-overload]
    if api is not None and api.speaks(raw.version):
        with pytest.raises(MalformedFrame):
            decode_request(raw.key, raw.version, raw.body)


def test_everything_was_recorded() -> None:
    assert ANSWERS.keys() == CASES.keys() | RAW.keys()
