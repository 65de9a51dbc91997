"""Our error codes for wrong requests are those that Apache Kafka 4.3.1 gave."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from service.kafka.protocol.apis import APIS
from service.kafka.protocol.codec import (
    MalformedFrame,
    decode_request,
    decode_response,
    encode,
    encode_response,
)
from tests.service.kafka.cluster import KafkaGateway, kafka_gateway
from tests.service.kafka.recorded.asked import CLOSED, Ask, Talk, codes
from tests.service.kafka.recorded.cases import CASES, RAW
from tests.service.kafka.recorded.differences import DIFFERENT

pytestmark = pytest.mark.anyio

ANSWERS: dict[str, Any] = json.loads((Path(__file__).parent / "answers.json").read_text())


async def asked(gateway: KafkaGateway, ask: Ask | Talk) -> Any:
    """Return the codes of the answer, or of the last one."""
    if isinstance(ask, Ask):
        return codes(await answer(gateway, ask))
    talk, last = ask(), None
    with suppress(StopIteration):
        while True:
            last = await answer(gateway, talk.send(last))
    assert last is not None
    return codes(last)


async def answer(gateway: KafkaGateway, ask: Ask) -> Any:
    """Return the answer, which goes through the codec in both directions, as does the request."""
    key = ask.request.KEY
    request = decode_request(key, ask.version, b"".join(encode(ask.request, ask.version)))
    made = await gateway.call(ask.version, request)
    frame = b"".join(encode_response(key, ask.version, 1, made))
    return decode_response(key, ask.version, frame[4:])[1]


async def test_wrong_requests_get_the_codes_that_kafka_gave() -> None:
    found: dict[str, Any] = {}
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t", partitions=2)
        await gateway.gateway.topics.create("compacted", config={"cleanup.policy": "compact"})
        for name, ask in CASES.items():
            found[name] = await asked(gateway, ask)

    ours = {name: codes for name, (codes, _) in DIFFERENT.items()}
    assert found == {name: ours.get(name, ANSWERS[name]) for name in CASES}


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
