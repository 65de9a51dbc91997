"""ConsumerGroupDescribe and DescribeGroups: groups and their members.

A native group is told in both ways: by the first as what it is, by the second as a classic group
of consumers, so that tools that know only the older call show it too (Kafka says of such groups
that there are none). A classic group is told by the second only; the first refuses it, and tools
ask again.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from service.groups.assignors import TopicPartition
from service.groups.beats import decode_beat
from service.groups.classic import consumers
from service.groups.items import Known
from service.groups.state import Group, Member, flat
from service.kafka.call import KafkaCall
from service.kafka.failures import Asked, code_of
from service.kafka.handlers.groups.resources import (
    authorized_operations,
    by_topic,
    ids_of,
    may,
    may_topic,
)
from service.kafka.parts import Parts
from service.kafka.protocol.codec import encode
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeTopicPartitions,
)
from service.kafka.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from service.kafka.protocol.messages.group_admin import (
    DescribedGroupMember,
    DescribeGroupsDescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from service.security.acls import Operation
from service.security.caller import Caller
from storage import keys
from storage.errors import RiachoError
from storage.tasks import in_turns

MEMBER_TYPES: Final = {"http": 1, "consumer": 1, "classic": 0}
"""Kafka's numbers: 0 for members of the classic protocol, 1 for others."""

ASSIGNORS: Final = {"sticky": "uniform"}
"""Kafka's name of what it calls otherwise."""

NOT_FOUND_SINCE: Final = 6
"""The version of DescribeGroups from which an unknown group is an error."""


def state_of(group: Group) -> str:
    """Return the state of a group by Kafka's name."""
    if group.classic is None and group.members:
        return "Reconciling" if group.held else "Stable"
    return group.state


class Descriptions:
    def __init__(self, parts: Parts) -> None:
        self._coordinator = parts.coordinator
        self._metadata = parts.gateway.metadata

    async def consumer(
        self, call: KafkaCall, request: ConsumerGroupDescribeRequest
    ) -> ConsumerGroupDescribeResponse:
        """Describe native groups."""
        groups = []
        async for called in in_turns(request.group_ids):
            code, message, known = await self._known(call, called)
            if known is not None and known.group.classic is not None:
                code = ErrorCode.GROUP_ID_NOT_FOUND
                message = f"Group {called} is not a consumer group."
            if known is None or code is not ErrorCode.NONE:
                groups.append(
                    ConsumerGroupDescribeDescribedGroup(
                        group_id=called, error_code=code, error_message=message
                    )
                )
                continue
            is_asked = request.include_authorized_operations
            groups.append(await self._consumer(call.caller, called, known.group, is_asked))
        return ConsumerGroupDescribeResponse(groups=groups)

    async def _known(
        self, call: KafkaCall, called: str
    ) -> tuple[ErrorCode, str | None, Known | None]:
        group_id = call.caller.inner_name(called)
        if not may(call.caller, Operation.DESCRIBE, group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED, None, None
        try:
            known = await self._coordinator.read(group_id)
        except RiachoError as error:
            return code_of(error, Asked.COORDINATOR), call.caller.outer_text(str(error)), None
        if known.version is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, f"Group {called} not found.", None
        return ErrorCode.NONE, None, known

    async def _consumer(
        self, caller: Caller, called: str, group: Group, is_asked: bool
    ) -> ConsumerGroupDescribeDescribedGroup:
        group_id = caller.inner_name(called)
        planned = {
            topic for member_id in group.members for topic in group.target.get(member_id, {})
        }
        ids = await ids_of(self._coordinator, planned)
        epochs = await self._epochs(group_id, group)
        return ConsumerGroupDescribeDescribedGroup(
            group_id=called,
            group_state=state_of(group),
            group_epoch=group.generation,
            assignment_epoch=group.generation,
            assignor_name=ASSIGNORS.get(group.assignor, group.assignor),
            members=[
                ConsumerGroupDescribeMember(
                    member_id=member_id,
                    instance_id=member.instance_id,
                    rack_id=member.rack or None,
                    member_epoch=epochs.get(member_id, group.generation),
                    client_id=member.client,
                    client_host=_host(member),
                    subscribed_topic_names=_outer(caller, member.topics),
                    subscribed_topic_regex=member.pattern,
                    assignment=_assignment(caller, group.may_commit(member_id), ids),
                    target_assignment=_assignment(
                        caller, flat(group.target.get(member_id, {})), ids
                    ),
                    member_type=MEMBER_TYPES[member.protocol],
                )
                for member_id, member in sorted(group.members.items())
            ],
            authorized_operations=authorized_operations(caller, group_id, is_asked=is_asked),
        )

    async def _epochs(self, group_id: str, group: Group) -> Mapping[str, int]:
        """Return the newest generation that each member has named, where it is known."""
        by_key = {keys.member(group_id, member_id): member_id for member_id in group.members}
        items = await self._metadata.get_many(list(by_key))
        named = {by_key[key]: decode_beat(item.value).generation for key, item in items.items()}
        return {m: generation for m, generation in named.items() if generation > 0}

    async def classic(
        self, call: KafkaCall, request: DescribeGroupsRequest
    ) -> DescribeGroupsResponse:
        """Describe groups of any kind as classic ones."""
        groups = []
        async for called in in_turns(request.groups):
            code, message, known = await self._known(call, called)
            if known is not None:
                is_asked = request.include_authorized_operations
                groups.append(_classic(call.caller, called, known.group, is_asked))
                continue
            is_old = call.version < NOT_FOUND_SINCE
            is_dead = code is ErrorCode.GROUP_ID_NOT_FOUND
            groups.append(
                DescribeGroupsDescribedGroup(
                    error_code=ErrorCode.NONE if is_dead and is_old else code,
                    error_message=message,
                    group_id=called,
                    group_state="Dead" if is_dead else "",
                )
            )
        return DescribeGroupsResponse(groups=groups)


def _classic(
    caller: Caller, called: str, group: Group, is_asked: bool
) -> DescribeGroupsDescribedGroup:
    classic = group.classic
    operations = authorized_operations(caller, caller.inner_name(called), is_asked=is_asked)
    if classic is None:
        is_used = bool(group.members)
        return DescribeGroupsDescribedGroup(
            group_id=called,
            group_state=group.state,
            protocol_type=consumers.PROTOCOL_TYPE if group.generation else "",
            protocol_data=group.assignor if is_used else "",
            members=[_native_member(caller, group, m) for m in sorted(group.members)],
            authorized_operations=operations,
        )
    # While a round is joined, nothing is agreed on, and Kafka shows nothing of it.
    is_stable = group.state == "Stable"
    return DescribeGroupsDescribedGroup(
        group_id=called,
        group_state=group.state,
        protocol_type=classic.protocol_type,
        protocol_data=classic.protocol if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member_id,
                group_instance_id=member.instance_id,
                client_id=member.client,
                client_host=_host(member),
                member_metadata=classic.members[member_id].metadata(classic.protocol)
                if is_stable
                else b"",
                member_assignment=classic.members[member_id].assignment if is_stable else b"",
            )
            for member_id, member in group.members.items()
        ],
        authorized_operations=operations,
    )


def _native_member(caller: Caller, group: Group, member_id: str) -> DescribedGroupMember:
    member = group.members[member_id]
    places = by_topic(group.assignment(member_id))
    subscription = ConsumerProtocolSubscription(topics=_outer(caller, member.topics))
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(
                topic=caller.outer_name(topic), partitions=partitions
            )
            for topic, partitions in places.items()
            if may_topic(caller, Operation.DESCRIBE, topic)
        ]
    )
    return DescribedGroupMember(
        member_id=member_id,
        group_instance_id=member.instance_id,
        client_id=member.client,
        client_host=_host(member),
        member_metadata=_versioned(subscription),
        member_assignment=_versioned(assignment),
    )


def _versioned(message: ConsumerProtocolSubscription | ConsumerProtocolAssignment) -> bytes:
    """Return the bytes of a message that begins with its version, which is 0."""
    return b"\0\0" + b"".join(bytes(piece) for piece in encode(message, 0))


def _host(member: Member) -> str:
    return f"/{member.host}" if member.host else ""


def _outer(caller: Caller, topics: Iterable[str]) -> list[str]:
    return [
        caller.outer_name(topic) for topic in topics if may_topic(caller, Operation.DESCRIBE, topic)
    ]


def _assignment(
    caller: Caller, places: Iterable[TopicPartition], ids: Mapping[str, bytes]
) -> ConsumerGroupDescribeAssignment:
    return ConsumerGroupDescribeAssignment(
        topic_partitions=[
            ConsumerGroupDescribeTopicPartitions(
                topic_id=ids[topic], topic_name=caller.outer_name(topic), partitions=partitions
            )
            for topic, partitions in by_topic(places).items()
            if topic in ids and may_topic(caller, Operation.DESCRIBE, topic)
        ]
    )
