"""FindCoordinator: which gateway, for which keys, and for whom."""

import pytest

from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.classic_groups import FindCoordinatorRequest
from storage.stores.memory import MemoryMetadata
from tests.service.kafka.callers import ALLOW, caller_with
from tests.service.kafka.cluster import kafka_gateway

pytestmark = pytest.mark.anyio

TYPES = (0, 1)


@pytest.mark.parametrize("version", range(7))
async def test_the_coordinator_is_a_broker(version: int) -> None:
    async with kafka_gateway(port=19092) as gateway:
        reply = await gateway.call(
            version, FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=["g", "h"])
        )
        found = reply.coordinators if version >= 4 else [reply]
        assert [(f.error_code, f.node_id, f.host, f.port) for f in found] == [
            (0, 1, "127.0.0.1", 19092)
        ] * (2 if version >= 4 else 1)
        if version >= 4:
            assert [f.key for f in found] == ["g", "h"]


async def test_all_gateways_name_the_same_one() -> None:
    metadata = MemoryMetadata(iter(map(str, range(10**6))).__next__)
    async with kafka_gateway(metadata, port=1) as one, kafka_gateway(metadata, port=2) as two:
        names = [f"g{number}" for number in range(50)]
        one.brokers._read_s = two.brokers._read_s = None
        found = []
        for gateway in (one, two):
            request = FindCoordinatorRequest(coordinator_keys=names)
            found.append([f.port for f in (await gateway.call(6, request)).coordinators])
        assert found[0] == found[1]
        assert set(found[0]) == {1, 2}


async def test_what_is_refused() -> None:
    async with kafka_gateway() as gateway:
        for key_type, key, code in (
            (0, "", ErrorCode.INVALID_GROUP_ID),
            (1, "", ErrorCode.INVALID_REQUEST),
            (2, "g:topic:0", ErrorCode.INVALID_REQUEST),
            (9, "g", ErrorCode.INVALID_REQUEST),
        ):
            request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
            reply = await gateway.call(3, request)
            assert (reply.error_code, reply.node_id, reply.port) == (code, -1, -1)
            [found] = (await gateway.call(6, request)).coordinators
            assert (found.key, found.error_code, found.host) == (key, code, "")
            assert found.error_message


async def test_who_may_ask() -> None:
    caller = caller_with(
        ALLOW("READ", "GROUP", "g"), ALLOW("WRITE", "TRANSACTIONAL_ID", "t"), name_prefix=""
    )
    async with kafka_gateway() as gateway:
        for key_type, keys, codes in ((0, ["g", "h"], [0, 30]), (1, ["t", "u"], [0, 53])):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
            reply = await gateway.call(4, request, caller=caller)
            assert [f.error_code for f in reply.coordinators] == codes
        tenant = caller_with(ALLOW("READ", "GROUP", "acme.g"), name_prefix="acme.")
        request = FindCoordinatorRequest(coordinator_keys=["g"])
        [found] = (await gateway.call(4, request, caller=tenant)).coordinators
        assert (found.key, found.error_code) == ("g", 0)
