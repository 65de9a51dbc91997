"""A handler answers whatever a client may send: any request of any version that can be read."""

from random import Random
from typing import Any

import pytest

from service.kafka.protocol.apis import APIS, Api
from tests.fuzz.cases import ASKED
from tests.service.kafka.cluster import kafka_gateway
from tests.service.kafka.protocol.instances import instance

pytestmark = pytest.mark.anyio

WAIT = {Api.JOIN_GROUP, Api.SYNC_GROUP}
"""They wait for other members, for as long as the request says."""

REQUESTS = ASKED // 10 or 3
"""Of each version."""


async def test_every_request_is_answered_and_the_answer_can_be_written() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("orders", partitions=2)
        for api in APIS.values():
            if api.key in WAIT or not gateway.serves(api.key):
                continue
            for version in api.request.VERSIONS:
                random = Random(f"{api.key} {version}")
                for _ in range(REQUESTS):
                    request = _at_once(instance(api.request, version, random))
                    assert await gateway.call(version, request) is not None, request


def _at_once(request: Any) -> Any:
    """Return the request, which waits for nothing and wants an answer."""
    match type(request).KEY:
        case Api.PRODUCE:
            request.acks = -1
        case Api.FETCH:
            request.max_wait_ms = request.min_bytes = 0
    return request
