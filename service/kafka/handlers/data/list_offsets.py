"""ListOffsets and OffsetForLeaderEpoch: where partitions begin, end, and were at a moment."""

from functools import partial
from typing import Final

from service.kafka.brokers.brokers import LEADER_EPOCH
from service.kafka.call import KafkaCall
from service.kafka.failures import code_of
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochEpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from service.log.gateway import Gateway
from service.security.acls import Operation
from storage.errors import RiachoError
from storage.formats.partitions import PartitionNumber
from storage.tasks import gathered, in_turns

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

FIRST_VERSION: Final = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""In which version clients may ask for these."""

NOWHERE: Final = (-1, -1)

AHEAD_MS: Final = 24 * 3600 * 1000
"""Timestamps are usually not further in the future."""

TIMESTAMP_MAX: Final = 2**63 - 1


class OffsetLookup:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def list_offsets(
        self, call: KafkaCall, request: ListOffsetsRequest
    ) -> ListOffsetsResponse:
        answers = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=await gathered(
                    topic.partitions, partial(self._offset, call, topic.name)
                ),
            )
            async for topic in in_turns(request.topics)
        ]
        return ListOffsetsResponse(topics=answers)

    async def _offset(
        self, call: KafkaCall, outer: str, wanted: ListOffsetsPartition
    ) -> ListOffsetsPartitionResponse:
        answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
        name = call.caller.inner_name(outer)
        try:
            call.caller.require_topic(Operation.DESCRIBE, name)
            if wanted.current_leader_epoch > LEADER_EPOCH:
                await self._end(name, wanted.partition_index)
                answer.error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
                return answer
            if call.version < FIRST_VERSION.get(wanted.timestamp, 0):
                answer.error_code = ErrorCode.UNSUPPORTED_VERSION
                return answer
            offset, timestamp = await self._find(name, wanted)
        except RiachoError as error:
            answer.error_code = code_of(error)
            return answer
        answer.offset, answer.timestamp = offset, timestamp
        if offset >= 0:
            answer.leader_epoch = LEADER_EPOCH
        return answer

    async def _find(self, name: str, wanted: ListOffsetsPartition) -> tuple[int, int]:
        """Return an offset, and the timestamp of its record if it was looked for."""
        partition = _number(wanted.partition_index)
        match wanted.timestamp:
            case -1:
                return await self._gateway.offset_at(name, partition, "latest")
            case -2 | -4:
                return await self._gateway.offset_at(name, partition, "earliest")
            case -3:
                return await self._latest_stamped(name, partition)
            case -5 | -6:
                await self._end(name, partition)
                return NOWHERE
            case timestamp if timestamp < 0:
                await self._end(name, partition)
                return NOWHERE
            case timestamp:
                return await self._since(name, partition, timestamp)

    async def _since(
        self, name: str, partition: PartitionNumber, timestamp: int
    ) -> tuple[int, int]:
        """Return the first record that is stamped then or later."""
        offset, found = await self._gateway.offset_at(name, partition, timestamp)
        # Behind the last record there is an offset, but none that this could mean.
        return NOWHERE if found == -1 else (offset, found)

    async def _latest_stamped(self, name: str, partition: PartitionNumber) -> tuple[int, int]:
        """Return the first record with the largest timestamp, by halving the time it can have."""
        best = await self._since(name, partition, 0)
        if best == NOWHERE:
            return best
        end = self._gateway.world.now_ms() + AHEAD_MS
        if end > best[1] and (later := await self._since(name, partition, end)) != NOWHERE:
            best, end = later, TIMESTAMP_MAX
        # Nothing is stamped `end` or later, and `best` is stamped its time.
        while best[1] + 1 < end:
            middle = best[1] + 1 + (end - best[1] - 1) // 2
            found = await self._since(name, partition, middle)
            if found == NOWHERE:
                end = middle
            else:
                best = found
        return best

    async def _end(self, name: str, partition: int) -> int:
        """Return the end of a partition; raise if there is none of this number."""
        offset, _ = await self._gateway.offset_at(name, _number(partition), "latest")
        return offset

    async def epoch_ends(
        self, call: KafkaCall, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        """Return the end of the only epoch there ever is."""
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=await gathered(
                        topic.partitions, partial(self._epoch_end, call, topic.topic)
                    ),
                )
                async for topic in in_turns(request.topics)
            ]
        )

    async def _epoch_end(
        self, call: KafkaCall, outer: str, wanted: OffsetForLeaderPartition
    ) -> OffsetForLeaderEpochEpochEndOffset:
        answer = OffsetForLeaderEpochEpochEndOffset(partition=wanted.partition)
        name = call.caller.inner_name(outer)
        try:
            call.caller.require_topic(Operation.DESCRIBE, name)
            end = await self._end(name, wanted.partition)
        except RiachoError as error:
            answer.error_code = code_of(error)
            return answer
        if wanted.current_leader_epoch > LEADER_EPOCH:
            answer.error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
        elif wanted.leader_epoch == LEADER_EPOCH:
            answer.leader_epoch, answer.end_offset = LEADER_EPOCH, end
        return answer


def _number(partition: int) -> PartitionNumber:
    return PartitionNumber(partition)
