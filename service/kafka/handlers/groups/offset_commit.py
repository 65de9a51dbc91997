"""OffsetCommit and OffsetDelete: what a group has read."""

from collections.abc import Sequence
from typing import Final

from service.groups.offsets import METADATA_CHARS_MAX, Commit, Committer
from service.kafka.call import KafkaCall
from service.kafka.failures import Asked, code_of
from service.kafka.handlers.groups.resources import may, may_topic, names_of
from service.kafka.parts import Parts
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from service.security.acls import Operation
from storage.errors import GroupNotEmpty, RiachoError, UnknownGroup, UnknownTopicOrPartition
from storage.formats.partitions import PartitionNumber
from storage.stores.metadata import TRANSACT_OPS_MAX
from storage.tasks import in_turns

BY_ID: Final = 10
"""The version from which OffsetCommit and OffsetFetch name topics by id."""

COMMITS_AT_ONCE: Final = TRANSACT_OPS_MAX - 2
"""Partitions in one transaction: at worst each is in a lane of its own."""

NO_GROUP: Final = 9
"""The version from which a commit into a group that does not exist says so."""


class OffsetCommits:
    def __init__(self, parts: Parts) -> None:
        self._gateway = parts.gateway
        self._coordinator = parts.coordinator
        self._offsets = parts.offsets

    async def commit(self, call: KafkaCall, request: OffsetCommitRequest) -> OffsetCommitResponse:
        """Record what can be recorded; the rest gets a code for each partition."""
        caller = call.caller
        group_id = caller.inner_name(request.group_id)
        names = await self._names(call, request)
        codes: dict[tuple[int, int], ErrorCode] = {}
        wanted: dict[tuple[int, int], Commit] = {}
        group_code = ErrorCode.NONE
        if not may(caller, Operation.READ, group_id):
            group_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        async for number, topic in in_turns(enumerate(request.topics)):
            code = group_code or self._topic_code(call, names[number])
            async for each in in_turns(topic.partitions):
                place = number, each.partition_index
                codes[place] = code or await self._code(names[number], each)
                if codes[place] is ErrorCode.NONE:
                    wanted[place] = _commit(names[number], each)
        if wanted:
            code = await self._record(group_id, list(wanted.values()), call, request)
            codes |= dict.fromkeys(wanted, code)
        return _committed(request, codes)

    async def _names(self, call: KafkaCall, request: OffsetCommitRequest) -> list[str]:
        """Return the full name of each topic; an empty one if there is none with the id."""
        if call.version < BY_ID:
            return [call.caller.inner_name(topic.name) for topic in request.topics]
        ids = [bytes(topic.topic_id) for topic in request.topics]
        known = await names_of(self._coordinator, ids)
        return [known.get(one, "") for one in ids]

    def _topic_code(self, call: KafkaCall, name: str) -> ErrorCode:
        if not name:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not may_topic(call.caller, Operation.READ, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.NONE

    async def _code(self, name: str, each: OffsetCommitRequestPartition) -> ErrorCode:
        """Return what is wrong with one partition, if anything."""
        if len(each.committed_metadata or "") > METADATA_CHARS_MAX:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if each.committed_offset < 0:
            return ErrorCode.INVALID_REQUEST
        try:
            await self._offsets.check_place(name, PartitionNumber(each.partition_index))
        except RiachoError as error:
            return code_of(error, Asked.COORDINATOR)
        return ErrorCode.NONE

    async def _record(
        self,
        group_id: str,
        commits: Sequence[Commit],
        call: KafkaCall,
        request: OffsetCommitRequest,
    ) -> ErrorCode:
        # The last one counts if a partition is named twice.
        unique = list({(one.topic, one.partition): one for one in commits}.values())
        committer = committer_of(
            request.member_id, request.generation_id_or_member_epoch, request.group_instance_id
        )
        try:
            for start in range(0, len(unique), COMMITS_AT_ONCE):
                some = unique[start : start + COMMITS_AT_ONCE]
                await self._offsets.commit(group_id, some, committer)
        except UnknownGroup:
            is_new = call.version >= NO_GROUP
            return ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION
        except RiachoError as error:
            return code_of(error, Asked.COORDINATOR)
        return ErrorCode.NONE

    async def delete(self, call: KafkaCall, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """Delete offsets of topics that no member reads."""
        group_id = call.caller.inner_name(request.group_id)
        if not may(call.caller, Operation.DELETE, group_id):
            return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        try:
            known = await self._coordinator.read(group_id)
            if known.version is None:
                return OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
            classic = known.group.classic
            if known.group.members and classic and classic.protocol_type != "consumer":
                return OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
            topics = [
                await self._deleted(call, group_id, topic)
                async for topic in in_turns(request.topics)
            ]
        except RiachoError as error:
            return OffsetDeleteResponse(error_code=code_of(error, Asked.COORDINATOR))
        return OffsetDeleteResponse(topics=topics)

    async def _deleted(
        self, call: KafkaCall, group_id: str, topic: OffsetDeleteRequestTopic
    ) -> OffsetDeleteResponseTopic:
        name = call.caller.inner_name(topic.name)
        codes: dict[int, ErrorCode] = {}
        async for each in in_turns(topic.partitions):
            place = name, PartitionNumber(each.partition_index)
            code = self._topic_code(call, name)
            try:
                if code is ErrorCode.NONE:
                    await self._offsets.check_place(*place)
                    await self._offsets.forget(group_id, [place])
            except GroupNotEmpty:
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            except UnknownTopicOrPartition:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            codes[each.partition_index] = code
        return OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(partition_index=index, error_code=code)
                for index, code in codes.items()
            ],
        )


def committer_of(member_id: str, generation: int, instance_id: str | None) -> Committer | None:
    """Return who commits; None: no member of the group."""
    if generation < 0 and not member_id and instance_id is None:
        return None
    return Committer(
        member_id=member_id, generation=generation, instance_id=instance_id, is_kafka=True
    )


def _commit(name: str, each: OffsetCommitRequestPartition) -> Commit:
    return Commit(
        topic=name,
        partition=PartitionNumber(each.partition_index),
        offset=each.committed_offset,
        metadata=each.committed_metadata or "",
        leader_epoch=each.committed_leader_epoch,
    )


def _committed(
    request: OffsetCommitRequest, codes: dict[tuple[int, int], ErrorCode]
) -> OffsetCommitResponse:
    def topic_of(number: int, topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
        return OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetCommitResponsePartition(
                    partition_index=each.partition_index,
                    error_code=codes[number, each.partition_index],
                )
                for each in topic.partitions
            ],
        )

    return OffsetCommitResponse(
        topics=[topic_of(number, topic) for number, topic in enumerate(request.topics)]
    )
