"""DeleteRecords: moves the start of partitions."""

from service.kafka.call import KafkaCall
from service.kafka.failures import Asked
from service.kafka.handlers.admin.answers import Judged, KafkaRefusal
from service.kafka.parts import Parts
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.topics import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from service.log.delete_records import delete_records
from service.security.acls import Operation, ResourceType
from service.security.caller import Caller
from storage.errors import RiachoError
from storage.formats.partitions import PartitionNumber
from storage.tasks import in_turns
from storage.topics.items import parse_topic_name

LATEST = -1
"""Kafka's number for all current records."""


class RecordAdmin:
    def __init__(self, parts: Parts) -> None:
        self._gateway = parts.gateway

    async def delete_records(
        self, call: KafkaCall, request: DeleteRecordsRequest
    ) -> DeleteRecordsResponse:
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name=topic.name, partitions=await self._of_topic(call.caller, topic)
                )
                async for topic in in_turns(request.topics)
            ]
        )

    async def _of_topic(
        self, caller: Caller, topic: DeleteRecordsTopic
    ) -> list[DeleteRecordsPartitionResult]:
        before = {PartitionNumber(p.partition_index): p.offset for p in topic.partitions}
        name = caller.inner_name(topic.name)
        starts: dict[PartitionNumber, int] = {}
        failures: dict[PartitionNumber, ErrorCode] = {}
        with Judged(caller, Asked.PARTITION) as judged:
            caller.require(Operation.DELETE, ResourceType.TOPIC, name)
            parse_topic_name(topic.name)
            try:
                starts = await self._delete(name, before)
            except (RiachoError, KafkaRefusal):
                # One partition fails all of them; Kafka answers for each.
                if len(before) == 1:
                    raise
                for partition, offset in before.items():
                    with Judged(caller, Asked.PARTITION) as alone:
                        starts |= await self._delete(name, {partition: offset})
                    failures[partition] = alone.code
        if starts:
            caller.changed(Operation.DELETE, ResourceType.TOPIC, name)
        return [
            DeleteRecordsPartitionResult(
                partition_index=partition,
                low_watermark=starts.get(partition, -1),
                error_code=failures.get(partition, judged.code),
            )
            for partition in before
        ]

    async def _delete(
        self, name: str, before: dict[PartitionNumber, int]
    ) -> dict[PartitionNumber, int]:
        if min(before.values(), default=0) < LATEST:
            raise KafkaRefusal(
                ErrorCode.OFFSET_OUT_OF_RANGE, "an offset is 0 or more, or -1 for all records"
            )
        wanted = {p: None if offset == LATEST else offset for p, offset in before.items()}
        return await delete_records(self._gateway, name, wanted)
