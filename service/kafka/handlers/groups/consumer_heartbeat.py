"""ConsumerGroupHeartbeat (KIP-848): join, stay in and leave a group, by one call."""

import base64
from typing import Final

from service.groups.assignors import TopicPartition
from service.groups.consumers.members import ASSIGNORS, JOINS, LEAVES, STEPS_ASIDE, Said
from service.groups.patterns import check_pattern
from service.groups.state import Group
from service.kafka.call import KafkaCall
from service.kafka.failures import Asked, code_of
from service.kafka.handlers.groups.resources import by_topic, ids_of, may, may_topic, names_of
from service.kafka.parts import Parts
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from service.security.acls import Operation
from service.security.caller import Caller
from storage.errors import InvalidRequest, RiachoError
from storage.formats.partitions import PartitionNumber
from storage.topics.items import NAME_CHARS_MAX

WAITING_SHARE: Final = 5
"""A member that waits for what others hold beats this many times as often."""


class Refusal(Exception):
    """The request is refused before the group is read."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class ConsumerHeartbeat:
    def __init__(self, parts: Parts) -> None:
        self._coordinator = parts.coordinator
        self._world = parts.gateway.world
        self._settings = parts.gateway.settings

    async def answer(
        self, call: KafkaCall, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        group_id = call.caller.inner_name(request.group_id)
        try:
            _check(call, request)
            said = await self._said(call, request)
            group = await self._coordinator.consumers.heed(group_id, said)
        except Refusal as refusal:
            return _refused(call.caller, refusal.code, refusal)
        except RiachoError as error:
            return _refused(call.caller, code_of(error, Asked.COORDINATOR), error)
        if said.epoch < JOINS:
            return ConsumerGroupHeartbeatResponse(member_id=said.member_id, member_epoch=said.epoch)
        return await self._told(call.caller, group, said.member_id)

    async def _said(self, call: KafkaCall, request: ConsumerGroupHeartbeatRequest) -> Said:
        """Return what the request says in our words, or raise `Refusal`."""
        caller = call.caller
        named = request.subscribed_topic_names
        topics = None if named is None else tuple(dict.fromkeys(map(caller.inner_name, named)))
        pattern = request.subscribed_topic_regex
        if request.member_epoch == JOINS:
            # A member that joins says everything: what it leaves out it does not want.
            topics, pattern = topics or (), pattern or ""
        if not all(may_topic(caller, Operation.DESCRIBE, topic) for topic in topics or ()):
            raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "it may not read all of these")
        timeout_ms = request.rebalance_timeout_ms
        assignor = request.server_assignor
        return Said(
            member_id=request.member_id or self._new_id(),
            epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack=request.rack_id,
            rebalance_timeout_ms=None if timeout_ms == -1 else timeout_ms,
            topics=topics,
            pattern=pattern,
            assignor=None if assignor is None else ASSIGNORS[assignor],
            owned=await self._owned(request),
            session_timeout_ms=self._settings.group_consumer_session_timeout_ms,
            client=call.client_id,
            host=call.peer.host,
            name_prefix=caller.name_prefix,
        )

    async def _owned(self, request: ConsumerGroupHeartbeatRequest) -> list[TopicPartition] | None:
        if request.topic_partitions is None or request.member_epoch == JOINS:
            return None
        names = await names_of(
            self._coordinator, [one.topic_id for one in request.topic_partitions]
        )
        return [
            (names[bytes(one.topic_id)], PartitionNumber(partition))
            for one in request.topic_partitions
            if bytes(one.topic_id) in names
            for partition in one.partitions
        ]

    async def _told(
        self, caller: Caller, group: Group, member_id: str
    ) -> ConsumerGroupHeartbeatResponse:
        assignment = group.assignment(member_id)
        visible = {
            topic: partitions
            for topic, partitions in by_topic(assignment).items()
            # A pattern matches any topic, also those that the caller may not know of.
            if may_topic(caller, Operation.DESCRIBE, topic)
        }
        ids = await ids_of(self._coordinator, visible)
        waits = sum(map(len, group.target.get(member_id, {}).values())) > len(assignment)
        interval_ms = self._settings.group_consumer_heartbeat_interval_ms
        return ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=group.generation,
            heartbeat_interval_ms=interval_ms // (WAITING_SHARE if waits else 1),
            assignment=ConsumerGroupHeartbeatAssignment(
                topic_partitions=[
                    ConsumerGroupHeartbeatTopicPartitions(
                        topic_id=ids[topic], partitions=partitions
                    )
                    for topic, partitions in visible.items()
                    if topic in ids
                ]
            ),
        )

    def _new_id(self) -> str:
        """Return an id as clients make it: 128 random bits in 22 characters."""
        return base64.urlsafe_b64encode(self._world.random_bytes(16)).decode().rstrip("=")


def _refused(caller: Caller, code: ErrorCode, error: Exception) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=caller.outer_text(str(error))
    )


def _check(call: KafkaCall, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raise `Refusal` unless the fields fit together, as Kafka checks them."""
    _check_names(call, request)
    epoch = request.member_epoch
    if epoch < STEPS_ASIDE:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"MemberEpoch {epoch} is invalid")
    if not request.member_id and (call.version >= 1 or epoch != JOINS):
        raise Refusal(ErrorCode.INVALID_REQUEST, "MemberId can't be empty")
    if epoch == STEPS_ASIDE and request.instance_id is None:
        raise Refusal(ErrorCode.INVALID_REQUEST, "InstanceId can't be null")
    if epoch == JOINS:
        _check_join(request)
    elif request.rebalance_timeout_ms < -1:
        raise Refusal(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must not be negative")
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        raise Refusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors:"
            f" {', '.join(ASSIGNORS)}",
        )
    if request.subscribed_topic_regex and epoch not in {LEAVES, STEPS_ASIDE}:
        try:
            check_pattern(request.subscribed_topic_regex)
        except InvalidRequest as error:
            raise Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None


def _check_names(call: KafkaCall, request: ConsumerGroupHeartbeatRequest) -> None:
    given = {
        "GroupId": request.group_id,
        "InstanceId": request.instance_id,
        "RackId": request.rack_id,
    }
    for field, text in given.items():
        if text is not None and not text.strip():
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{field} can't be empty")
    for field, text in {**given, "MemberId": request.member_id}.items():
        if text and (len(text.encode(errors="replace")) > NAME_CHARS_MAX):
            raise Refusal(
                ErrorCode.INVALID_REQUEST, f"{field} has more than {NAME_CHARS_MAX} bytes"
            )
    if not may(call.caller, Operation.READ, call.caller.inner_name(request.group_id)):
        raise Refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, "it may not read this group")


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms <= 0:
        raise Refusal(
            ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request"
        )
    if request.topic_partitions is None or request.topic_partitions:
        raise Refusal(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when"
            " (re-)joining",
        )
