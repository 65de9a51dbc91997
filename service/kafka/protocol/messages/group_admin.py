"""DescribeGroups, ListGroups and DeleteGroups."""

from service.kafka.protocol.notation import Bool, Bytes, Int16, Int32, Message, Str, Struct, field


class DescribeGroupsRequest(Message, key=15, versions="0-6", flexible="5+"):
    groups: list[Str] = field("0+")
    include_authorized_operations: Bool = field("3+")


class DescribedGroupMember(Struct):
    member_id: Str = field("0+")
    group_instance_id: Str | None = field("4+", nullable="4+", default=None)
    client_id: Str = field("0+")
    client_host: Str = field("0+")
    member_metadata: Bytes = field("0+")
    member_assignment: Bytes = field("0+")


class DescribeGroupsDescribedGroup(Struct):
    error_code: Int16 = field("0+")
    error_message: Str | None = field("6+", nullable="6+", default=None)
    group_id: Str = field("0+")
    group_state: Str = field("0+")
    protocol_type: Str = field("0+")
    protocol_data: Str = field("0+")
    members: list[DescribedGroupMember] = field("0+")
    authorized_operations: Int32 = field("3+", default=-(2**31))


class DescribeGroupsResponse(Message, key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: Int32 = field("1+")
    groups: list[DescribeGroupsDescribedGroup] = field("0+")


class ListGroupsRequest(Message, key=16, versions="0-5", flexible="3+"):
    states_filter: list[Str] = field("4+")
    types_filter: list[Str] = field("5+")


class ListedGroup(Struct):
    group_id: Str = field("0+")
    protocol_type: Str = field("0+")
    group_state: Str = field("4+")
    group_type: Str = field("5+")


class ListGroupsResponse(Message, key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field("1+")
    error_code: Int16 = field("0+")
    groups: list[ListedGroup] = field("0+")


class DeleteGroupsRequest(Message, key=42, versions="0-2", flexible="2+"):
    groups_names: list[Str] = field("0+")


class DeletableGroupResult(Struct):
    group_id: Str = field("0+")
    error_code: Int16 = field("0+")


class DeleteGroupsResponse(Message, key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    results: list[DeletableGroupResult] = field("0+")
