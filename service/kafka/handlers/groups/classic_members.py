"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: members that assign among themselves."""

from collections.abc import Callable
from typing import Final

from service.groups.classic.coordinator import IdRequired, Leaving
from service.groups.classic.rounds import Claimant, Joined, Joining
from service.kafka.call import KafkaCall
from service.kafka.failures import Asked, code_of
from service.kafka.parts import Parts
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.classic_groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from service.security.acls import Operation
from service.security.caller import Caller
from storage.errors import InvalidRequest, RebalanceInProgress, RiachoError, ShuttingDown
from storage.topics.items import NAME_CHARS_MAX

ID_REQUIRED_FROM: Final = 4
"""The first version of JoinGroup whose clients join again with the id that they are told."""

SKIPS_FROM: Final = 9
"""The first version of JoinGroup whose leader can be told that it has nothing to assign."""

IDENTITIES_FROM: Final = 3
"""The first version of LeaveGroup that names several members."""


class ClassicMembers:
    def __init__(self, parts: Parts) -> None:
        self._groups = parts.coordinator.classic_calls
        self._draining = parts.gateway.draining

    async def join(self, call: KafkaCall, request: JoinGroupRequest) -> JoinGroupResponse:
        """Answer when all members have joined, or the time to join is over."""
        try:
            group_id = _readable(call.caller, request.group_id)
            joining = _joining(call, request)
            reply = await self._groups.join(
                group_id,
                joining,
                needs_id=call.version >= ID_REQUIRED_FROM,
                stop=self._stop(call),
            )
        except RiachoError as error:
            code = code_of(error, Asked.COORDINATOR)
            return _not_joined(call.version, code, request.member_id)
        if isinstance(reply, IdRequired):
            return _not_joined(call.version, ErrorCode.MEMBER_ID_REQUIRED, reply.member_id)
        return _joined(call.version, reply)

    async def sync(self, call: KafkaCall, request: SyncGroupRequest) -> SyncGroupResponse:
        """Answer when the leader has assigned."""
        try:
            reply = await self._groups.sync(
                _readable(call.caller, request.group_id),
                Claimant(
                    member_id=request.member_id,
                    instance_id=request.group_instance_id,
                    generation=request.generation_id,
                ),
                {one.member_id: bytes(one.assignment) for one in request.assignments},
                protocol_type=request.protocol_type,
                protocol=request.protocol_name,
                stop=self._stop(call),
            )
        except RiachoError as error:
            return SyncGroupResponse(error_code=code_of(error, Asked.COORDINATOR))
        return SyncGroupResponse(
            protocol_type=reply.protocol_type,
            protocol_name=reply.protocol,
            assignment=reply.assignment,
        )

    async def heartbeat(self, call: KafkaCall, request: HeartbeatRequest) -> HeartbeatResponse:
        try:
            await self._groups.heartbeat(
                _readable(call.caller, request.group_id),
                Claimant(
                    member_id=request.member_id,
                    instance_id=request.group_instance_id,
                    generation=request.generation_id,
                ),
            )
        except RiachoError as error:
            return HeartbeatResponse(error_code=code_of(error, Asked.COORDINATOR))
        return HeartbeatResponse()

    async def leave(self, call: KafkaCall, request: LeaveGroupRequest) -> LeaveGroupResponse:
        members = request.members
        if call.version < IDENTITIES_FROM:
            members = [MemberIdentity(member_id=request.member_id)]
        try:
            left = await self._groups.leave(
                _readable(call.caller, request.group_id),
                [Leaving(one.member_id, one.group_instance_id) for one in members],
            )
        except RiachoError as error:
            return LeaveGroupResponse(error_code=code_of(error, Asked.COORDINATOR))
        codes = [_code(error) for _, error in left]
        if call.version < IDENTITIES_FROM:
            return LeaveGroupResponse(error_code=codes[0])
        return LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id=one.member_id, group_instance_id=one.instance_id, error_code=code
                )
                for (one, _), code in zip(left, codes, strict=True)
            ]
        )

    def _stop(self, call: KafkaCall) -> Callable[[], None]:
        """Return what ends the wait of a call that nobody waits for, or of a gateway that stops."""

        def stop() -> None:
            if self._draining.is_set():
                raise ShuttingDown("the gateway stops; ask another one")
            if call.peer.is_gone:
                raise RebalanceInProgress("the client has gone")

        return stop


def _readable(caller: Caller, group_id: str) -> str:
    """Return the full name of the group, or raise if the caller may not be a member of it."""
    full = caller.inner_name(group_id) if group_id else group_id
    caller.require_group(Operation.READ, full)
    return full


def _joining(call: KafkaCall, request: JoinGroupRequest) -> Joining:
    instance_id = request.group_instance_id
    if instance_id is not None and not 0 < len(instance_id) <= NAME_CHARS_MAX:
        raise InvalidRequest(f"group.instance.id: use 1 to {NAME_CHARS_MAX} characters")
    rebalance_ms = request.rebalance_timeout_ms
    return Joining(
        member_id=request.member_id,
        is_new=not request.member_id,
        instance_id=instance_id,
        client=call.client_id[:NAME_CHARS_MAX],
        host=call.peer.host,
        name_prefix=call.caller.name_prefix,
        session_timeout_ms=request.session_timeout_ms,
        # Version 0 has one time for both.
        rebalance_timeout_ms=rebalance_ms if rebalance_ms > 0 else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple({one.name: bytes(one.metadata) for one in request.protocols}.items()),
    )


def _joined(version: int, reply: Joined) -> JoinGroupResponse:
    members, leader = reply.members, reply.leader
    skips = reply.is_assigned and leader == reply.member_id
    if skips and version < SKIPS_FROM:
        # It must not assign: the others would never hear of it. So it is not told that it leads.
        members, leader = (), ""
    return JoinGroupResponse(
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        leader=leader,
        skip_assignment=skips,
        member_id=reply.member_id,
        members=[
            JoinGroupResponseMember(member_id=m, group_instance_id=instance_id, metadata=metadata)
            for m, instance_id, metadata in members
        ],
    )


def _not_joined(version: int, code: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code, protocol_name=None if version >= 7 else "", member_id=member_id
    )


def _code(error: RiachoError | None) -> ErrorCode:
    return ErrorCode.NONE if error is None else code_of(error, Asked.COORDINATOR)
