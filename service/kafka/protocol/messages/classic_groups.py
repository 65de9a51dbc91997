"""FindCoordinator, and the classic group protocol: join, heartbeat, leave, sync."""

from service.kafka.protocol.notation import (
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Message,
    Str,
    Struct,
    field,
)


class FindCoordinatorRequest(Message, key=10, versions="0-6", flexible="3+"):
    key: Str = field("0-3")
    key_type: Int8 = field("1+")
    coordinator_keys: list[Str] = field("4+")


class FindCoordinatorCoordinator(Struct):
    key: Str = field("4+")
    node_id: Int32 = field("4+")
    host: Str = field("4+")
    port: Int32 = field("4+")
    error_code: Int16 = field("4+")
    error_message: Str | None = field("4+", nullable="4+")


class FindCoordinatorResponse(Message, key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: Int32 = field("1+")
    error_code: Int16 = field("0-3")
    error_message: Str | None = field("1-3", nullable="1-3")
    node_id: Int32 = field("0-3")
    host: Str = field("0-3")
    port: Int32 = field("0-3")
    coordinators: list[FindCoordinatorCoordinator] = field("4+")


class JoinGroupRequestProtocol(Struct):
    name: Str = field("0+")
    metadata: Bytes = field("0+")


class JoinGroupRequest(Message, key=11, versions="0-9", flexible="6+"):
    group_id: Str = field("0+")
    session_timeout_ms: Int32 = field("0+")
    rebalance_timeout_ms: Int32 = field("1+", default=-1)
    member_id: Str = field("0+")
    group_instance_id: Str | None = field("5+", nullable="5+", default=None)
    protocol_type: Str = field("0+")
    protocols: list[JoinGroupRequestProtocol] = field("0+")
    reason: Str | None = field("8+", nullable="8+", default=None)


class JoinGroupResponseMember(Struct):
    member_id: Str = field("0+")
    group_instance_id: Str | None = field("5+", nullable="5+", default=None)
    metadata: Bytes = field("0+")


class JoinGroupResponse(Message, key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: Int32 = field("2+")
    error_code: Int16 = field("0+")
    generation_id: Int32 = field("0+", default=-1)
    protocol_type: Str | None = field("7+", nullable="7+", default=None)
    protocol_name: Str | None = field("0+", nullable="7+")
    leader: Str = field("0+")
    skip_assignment: Bool = field("9+")
    member_id: Str = field("0+")
    members: list[JoinGroupResponseMember] = field("0+")


class HeartbeatRequest(Message, key=12, versions="0-4", flexible="4+"):
    group_id: Str = field("0+")
    generation_id: Int32 = field("0+")
    member_id: Str = field("0+")
    group_instance_id: Str | None = field("3+", nullable="3+", default=None)


class HeartbeatResponse(Message, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = field("1+")
    error_code: Int16 = field("0+")


class MemberIdentity(Struct):
    member_id: Str = field("3+")
    group_instance_id: Str | None = field("3+", nullable="3+", default=None)
    reason: Str | None = field("5+", nullable="5+", default=None)


class LeaveGroupRequest(Message, key=13, versions="0-5", flexible="4+"):
    group_id: Str = field("0+")
    member_id: Str = field("0-2")
    members: list[MemberIdentity] = field("3+")


class MemberResponse(Struct):
    member_id: Str = field("3+")
    group_instance_id: Str | None = field("3+", nullable="3+")
    error_code: Int16 = field("3+")


class LeaveGroupResponse(Message, key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = field("1+")
    error_code: Int16 = field("0+")
    members: list[MemberResponse] = field("3+")


class SyncGroupRequestAssignment(Struct):
    member_id: Str = field("0+")
    assignment: Bytes = field("0+")


class SyncGroupRequest(Message, key=14, versions="0-5", flexible="4+"):
    group_id: Str = field("0+")
    generation_id: Int32 = field("0+")
    member_id: Str = field("0+")
    group_instance_id: Str | None = field("3+", nullable="3+", default=None)
    protocol_type: Str | None = field("5+", nullable="5+", default=None)
    protocol_name: Str | None = field("5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = field("0+")


class SyncGroupResponse(Message, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = field("1+")
    error_code: Int16 = field("0+")
    protocol_type: Str | None = field("5+", nullable="5+", default=None)
    protocol_name: Str | None = field("5+", nullable="5+", default=None)
    assignment: Bytes = field("0+")
