"""OffsetFetch: what groups have committed, of some topics or of all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from service.groups.assignors import TopicPartition
from service.groups.offsets import Committed
from service.kafka.call import KafkaCall
from service.kafka.failures import Asked, code_of
from service.kafka.handlers.groups.offset_commit import BY_ID
from service.kafka.handlers.groups.resources import by_topic, ids_of, may, may_topic, names_of
from service.kafka.parts import Parts
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.committed_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from service.security.acls import Operation
from service.security.caller import Caller
from storage.errors import RiachoError
from storage.formats.partitions import PartitionNumber
from storage.tasks import in_turns

SEVERAL: Final = 8
"""The version from which a request asks for several groups."""

NONE_COMMITTED: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A topic that a client asks for."""

    called: str
    """By the client."""
    topic_id: bytes
    name: str
    """In full; empty if there is none."""
    partitions: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundOffset:
    """The reply about one partition."""

    partition: int
    code: ErrorCode = ErrorCode.NONE
    committed: Committed | None = None

    @property
    def offset(self) -> int:
        return NONE_COMMITTED if self.committed is None else self.committed.offset

    @property
    def leader_epoch(self) -> int:
        return -1 if self.committed is None else self.committed.leader_epoch

    @property
    def metadata(self) -> str:
        return "" if self.committed is None else self.committed.metadata


class OffsetFetches:
    def __init__(self, parts: Parts) -> None:
        self._coordinator = parts.coordinator
        self._offsets = parts.offsets

    async def answer(self, call: KafkaCall, request: OffsetFetchRequest) -> OffsetFetchResponse:
        if call.version >= SEVERAL:
            groups = [await self._several(call, group) async for group in in_turns(request.groups)]
            return OffsetFetchResponse(groups=groups)
        asked: list[Asking] | None = None
        if request.topics is not None:
            asked = [
                Asking(
                    called=one.name,
                    topic_id=b"",
                    name=call.caller.inner_name(one.name),
                    partitions=one.partition_indexes,
                )
                for one in request.topics
            ]
        code, found = await self._found(call, request.group_id, asked)
        if code is not ErrorCode.NONE and call.version < 2:
            # There is no place for the error of a group but in its partitions.
            found = [(one, _all(one, code)) for one in asked or ()]
        return OffsetFetchResponse(
            error_code=code,
            topics=[
                OffsetFetchResponseTopic(
                    name=one.called,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=each.partition,
                            committed_offset=each.offset,
                            committed_leader_epoch=each.leader_epoch,
                            metadata=each.metadata,
                            error_code=each.code,
                        )
                        for each in partitions
                    ],
                )
                for one, partitions in found
            ],
        )

    async def _several(
        self, call: KafkaCall, group: OffsetFetchRequestGroup
    ) -> OffsetFetchResponseGroup:
        asked = await self._asked(call, group)
        code = await self._member_code(call, group)
        found: list[tuple[Asking, list[FoundOffset]]] = []
        if code is ErrorCode.NONE:
            code, found = await self._found(call, group.group_id, asked)
        return OffsetFetchResponseGroup(
            group_id=group.group_id,
            error_code=code,
            topics=[
                OffsetFetchResponseTopics(
                    name=one.called,
                    topic_id=one.topic_id,
                    partitions=[
                        OffsetFetchResponsePartitions(
                            partition_index=each.partition,
                            committed_offset=each.offset,
                            committed_leader_epoch=each.leader_epoch,
                            metadata=each.metadata,
                            error_code=each.code,
                        )
                        for each in partitions
                    ],
                )
                for one, partitions in found
            ],
        )

    async def _asked(self, call: KafkaCall, group: OffsetFetchRequestGroup) -> list[Asking] | None:
        """Return what is asked for; None: everything."""
        if group.topics is None:
            return None
        known: Mapping[bytes, str] = {}
        if call.version >= BY_ID:
            known = await names_of(self._coordinator, [one.topic_id for one in group.topics])
        return [
            Asking(
                called=one.name,
                topic_id=bytes(one.topic_id),
                name=known.get(bytes(one.topic_id), "")
                if call.version >= BY_ID
                else call.caller.inner_name(one.name),
                partitions=one.partition_indexes,
            )
            for one in group.topics
        ]

    async def _member_code(self, call: KafkaCall, group: OffsetFetchRequestGroup) -> ErrorCode:
        """Return what is wrong with the member that asks, if it says that it is one."""
        if group.member_id is None or group.member_epoch < 0:
            return ErrorCode.NONE
        group_id = call.caller.inner_name(group.group_id)
        if not may(call.caller, Operation.DESCRIBE, group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        try:
            known = await self._coordinator.read(group_id)
            if known.group.classic is not None:
                return ErrorCode.NONE
            if group.member_id not in known.group.members:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if group.member_epoch > known.group.generation:
                return ErrorCode.STALE_MEMBER_EPOCH
        except RiachoError as error:
            return code_of(error, Asked.COORDINATOR)
        return ErrorCode.NONE

    async def _found(
        self, call: KafkaCall, group: str, asked: Sequence[Asking] | None
    ) -> tuple[ErrorCode, list[tuple[Asking, list[FoundOffset]]]]:
        caller, group_id = call.caller, call.caller.inner_name(group)
        if not may(caller, Operation.DESCRIBE, group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED, []
        try:
            if asked is None:
                return ErrorCode.NONE, await self._everything(caller, group_id)
            places: list[TopicPartition] = [
                (one.name, PartitionNumber(partition))
                for one in asked
                for partition in one.partitions
                if one.name and may_topic(caller, Operation.DESCRIBE, one.name) and partition >= 0
            ]
            committed = await self._offsets.read_these(group_id, places)
        except RiachoError as error:
            return code_of(error, Asked.COORDINATOR), []
        return ErrorCode.NONE, [(one, _of_topic(caller, one, committed)) for one in asked]

    async def _everything(
        self, caller: Caller, group_id: str
    ) -> list[tuple[Asking, list[FoundOffset]]]:
        committed = {
            (one.topic, one.partition): one
            for one in await self._offsets.read(group_id)
            if may_topic(caller, Operation.DESCRIBE, one.topic)
        }
        # Offsets are of topics that exist, also if the last list was made before they did.
        ids = await ids_of(self._coordinator, {topic for topic, _ in committed}, age_max_s=0)
        asked = [
            Asking(
                called=caller.outer_name(topic),
                topic_id=ids[topic],
                name=topic,
                partitions=partitions,
            )
            for topic, partitions in by_topic(committed).items()
            if topic in ids
        ]
        return [(one, _of_topic(caller, one, committed)) for one in asked]


def _of_topic(
    caller: Caller, one: Asking, committed: Mapping[TopicPartition, Committed]
) -> list[FoundOffset]:
    if not one.name:
        return _all(one, ErrorCode.UNKNOWN_TOPIC_ID)
    if not may_topic(caller, Operation.DESCRIBE, one.name):
        return _all(one, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return [
        FoundOffset(partition=p, committed=committed.get((one.name, PartitionNumber(p))))
        for p in one.partitions
    ]


def _all(one: Asking, code: ErrorCode) -> list[FoundOffset]:
    return [FoundOffset(partition=partition, code=code) for partition in one.partitions]
