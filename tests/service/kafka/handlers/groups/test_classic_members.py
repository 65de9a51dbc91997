"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: versions, codes, rights."""

import asyncio
from typing import Any

import pytest

from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.classic_groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from service.security.caller import Caller
from tests.service.kafka.callers import ALLOW, caller_with
from tests.service.kafka.cluster import KafkaGateway, kafka_gateway

pytestmark = pytest.mark.anyio

GROUP = "g"


def joining(member_id: str = "", *protocols: str, **fields: Any) -> JoinGroupRequest:
    names = protocols or ("range",)
    given: dict[str, Any] = {
        "group_id": GROUP,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [
            JoinGroupRequestProtocol(name=name, metadata=memoryview(name.encode()))
            for name in names
        ],
    }
    return JoinGroupRequest(**(given | fields))


async def join(
    gateway: KafkaGateway, request: JoinGroupRequest, version: int = 9, **how: Any
) -> Any:
    """Return the reply to a member that joins again with its id, if it is told to."""
    reply = await gateway.call(version, request, **how)
    if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request.member_id = reply.member_id
        reply = await gateway.call(version, request, **how)
    return reply


async def sync(
    gateway: KafkaGateway, member_id: str, generation: int, version: int = 5, **fields: Any
) -> Any:
    request = SyncGroupRequest(
        group_id=GROUP, generation_id=generation, member_id=member_id, **fields
    )
    return await gateway.call(version, request)


async def beat(
    gateway: KafkaGateway, member_id: str, generation: int, version: int = 4, **fields: Any
) -> ErrorCode:
    request = HeartbeatRequest(
        group_id=GROUP, generation_id=generation, member_id=member_id, **fields
    )
    return ErrorCode((await gateway.call(version, request)).error_code)


async def stable(gateway: KafkaGateway, version: int = 9, **fields: Any) -> str:
    """Return the member of a group of one, which has its assignment."""
    reply = await join(gateway, joining(**fields), version)
    shares = [SyncGroupRequestAssignment(member_id=reply.member_id, assignment=memoryview(b"x"))]
    await sync(gateway, reply.member_id, reply.generation_id, assignments=shares)
    member_id: str = reply.member_id
    return member_id


@pytest.mark.parametrize("version", range(10))
async def test_a_member_joins_and_is_assigned_in_every_version(version: int) -> None:
    async with kafka_gateway() as gateway:
        first = await gateway.call(version, joining())
        is_told = first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert is_told is (version >= 4)
        reply = await gateway.call(version, joining(first.member_id)) if is_told else first

        assert (reply.error_code, reply.generation_id, reply.protocol_name) == (0, 1, "range")
        assert reply.leader == reply.member_id == first.member_id
        assert [(m.member_id, bytes(m.metadata)) for m in reply.members] == [
            (reply.member_id, b"range")
        ]
        shares = [
            SyncGroupRequestAssignment(member_id=reply.member_id, assignment=memoryview(b"mine"))
        ]
        synced = await sync(gateway, reply.member_id, 1, min(version, 5), assignments=shares)
        assert (synced.error_code, synced.assignment) == (0, b"mine")
        assert await beat(gateway, reply.member_id, 1, min(version, 4)) == ErrorCode.NONE


async def test_two_members_meet_and_the_leader_assigns() -> None:
    async with kafka_gateway() as gateway:
        one = await stable(gateway)
        coming = asyncio.create_task(join(gateway, joining(protocol_type="consumer")))
        while await beat(gateway, one, 1) != ErrorCode.REBALANCE_IN_PROGRESS:
            await asyncio.sleep(0.01)

        leading, other = await asyncio.gather(join(gateway, joining(one)), coming)

        assert (leading.leader, other.leader) == (one, one)
        assert {m.member_id for m in leading.members} == {one, other.member_id}
        assert other.members == []
        waiting = asyncio.create_task(sync(gateway, other.member_id, 2))
        shares = [
            SyncGroupRequestAssignment(member_id=m, assignment=m.encode())
            for m in (one, other.member_id)
        ]
        assert (await sync(gateway, one, 2, assignments=shares)).assignment == one.encode()
        found = await waiting
        assert (found.assignment, found.protocol_type) == (other.member_id.encode(), "consumer")


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (joining(group_id=""), ErrorCode.INVALID_GROUP_ID),
        (joining(session_timeout_ms=5_999), ErrorCode.INVALID_SESSION_TIMEOUT),
        (joining(session_timeout_ms=1_800_001), ErrorCode.INVALID_SESSION_TIMEOUT),
        (joining("nobody"), ErrorCode.UNKNOWN_MEMBER_ID),
        (joining(protocol_type=""), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (joining(protocols=[]), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (joining("", "other"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (joining(protocol_type="connect"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (joining("x", group_instance_id="i"), ErrorCode.UNKNOWN_MEMBER_ID),
        (joining("", group_instance_id=""), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_a_join_is_refused_for(request_: JoinGroupRequest, code: ErrorCode) -> None:
    async with kafka_gateway() as gateway:
        await stable(gateway)
        for version in (5, 9):
            reply = await gateway.call(version, request_)
            assert reply.error_code == code
            assert (reply.generation_id, reply.member_id) == (-1, request_.member_id)
            assert reply.protocol_name == (None if version >= 7 else "")


async def test_a_group_that_would_be_too_large() -> None:
    async with kafka_gateway() as gateway:
        large = gateway.gateway.world.random_bytes(500_000)
        protocols = [JoinGroupRequestProtocol(name="range", metadata=large)]
        reply = await gateway.call(3, joining(protocols=protocols))
        assert reply.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


async def test_what_the_other_calls_are_refused_for() -> None:
    async with kafka_gateway() as gateway:
        one = await stable(gateway)
        assert await beat(gateway, one, 7) == ErrorCode.ILLEGAL_GENERATION
        assert await beat(gateway, "nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await beat(gateway, one, 1, group_instance_id="i") == ErrorCode.UNKNOWN_MEMBER_ID
        for fields, code in (
            ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"protocol_name": "other"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ):
            assert (await sync(gateway, one, 1, **fields)).error_code == code
        assert (await sync(gateway, one, 0)).error_code == ErrorCode.ILLEGAL_GENERATION
        assert (await sync(gateway, "nobody", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_static_member_comes_back() -> None:
    async with kafka_gateway() as gateway:
        old = await stable(gateway, group_instance_id="i")
        new = await gateway.call(9, joining(group_instance_id="i"))
        assert (new.error_code, new.generation_id) == (0, 1)
        assert (new.skip_assignment, new.leader) == (True, new.member_id)
        assert [m.group_instance_id for m in new.members] == ["i"]
        assert (await sync(gateway, new.member_id, 1)).assignment == b"x"
        fenced = ErrorCode.FENCED_INSTANCE_ID
        assert await beat(gateway, old, 1, group_instance_id="i") == fenced
        assert (await gateway.call(9, joining(old, group_instance_id="i"))).error_code == fenced
        assert (
            await sync(gateway, old, 1, group_instance_id="i")
        ).error_code == ErrorCode.FENCED_INSTANCE_ID

        older_client = await gateway.call(8, joining(group_instance_id="i"))

        # It is not told that it leads, so it does not assign.
        assert (older_client.leader, older_client.members) == ("", [])
        assert (await sync(gateway, older_client.member_id, 1)).assignment == b"x"


async def leave(gateway: KafkaGateway, version: int, **fields: Any) -> Any:
    return await gateway.call(version, LeaveGroupRequest(group_id=GROUP, **fields))


async def test_members_leave() -> None:
    async with kafka_gateway() as gateway:
        one = await stable(gateway)
        assert (await leave(gateway, 2, member_id="nobody")).error_code == 25
        assert (await leave(gateway, 2, member_id=one)).error_code == 0
        assert (await leave(gateway, 2, member_id=one)).error_code == 25
        static = await stable(gateway, group_instance_id="i")
        identities = [
            MemberIdentity(member_id=one),
            MemberIdentity(member_id="other", group_instance_id="i"),
            MemberIdentity(member_id="", group_instance_id="i"),
        ]

        reply = await leave(gateway, 5, members=identities)

        assert reply.error_code == 0
        codes = [(m.member_id, m.group_instance_id, m.error_code) for m in reply.members]
        assert codes == [(one, None, 25), ("other", "i", 82), ("", "i", 0)]
        assert await beat(gateway, static, 3) == ErrorCode.UNKNOWN_MEMBER_ID
        described = (await gateway.parts.coordinator.read(GROUP)).group
        assert (described.state, described.kind) == ("Empty", "classic")


async def calls(gateway: KafkaGateway, caller: Caller) -> list[int]:
    """Return the codes of all four calls."""
    requests = [
        (9, joining()),
        (5, SyncGroupRequest(group_id=GROUP, member_id="m", generation_id=1)),
        (4, HeartbeatRequest(group_id=GROUP, member_id="m", generation_id=1)),
        (5, LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id="m")])),
    ]
    replies = [await gateway.call(v, request, caller=caller) for v, request in requests]
    return [reply.error_code for reply in replies]


async def test_a_member_needs_to_read_the_group() -> None:
    async with kafka_gateway() as gateway:
        assert await calls(gateway, caller_with(ALLOW("DESCRIBE", "GROUP", GROUP))) == [30] * 4
        may = caller_with(ALLOW("READ", "GROUP", GROUP))
        assert await calls(gateway, may) == [79, 25, 25, 0]


async def test_a_tenant_has_groups_of_its_own() -> None:
    async with kafka_gateway() as gateway:
        await stable(gateway)
        tenant = caller_with(is_super=True, name_prefix="acme.")
        reply = await join(gateway, joining("", "other"), caller=tenant)
        assert (reply.error_code, reply.generation_id) == (0, 1)
        assert set(await gateway.parts.coordinator.all()) == {GROUP, f"acme.{GROUP}"}


async def test_a_gateway_that_stops_sends_waiting_members_to_another_one() -> None:
    async with kafka_gateway() as gateway:
        await stable(gateway)
        waiting = asyncio.create_task(join(gateway, joining()))
        while (await gateway.parts.coordinator.read(GROUP)).group.state == "Stable":
            await asyncio.sleep(0.01)

        gateway.gateway.drain()

        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR


async def test_nobody_waits_for_a_client_that_has_gone() -> None:
    async with kafka_gateway() as gateway:
        await stable(gateway)
        waiting = asyncio.create_task(join(gateway, joining()))
        while (await gateway.parts.coordinator.read(GROUP)).group.state == "Stable":
            await asyncio.sleep(0.01)

        gateway.peer.is_gone = True

        assert (await waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
