"""Routes that delete records up to an offset, of one partition or of several."""

from typing import Annotated, Final, Literal

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, StrictInt

from service.http.bodies.fields import OFFSET_MAX
from service.http.requests import Query, parse_integer
from service.log.delete_records import delete_records
from service.log.gateway import Gateway
from service.process.limits.record_limits import PARTITION_MAX
from service.routes.topics import PartitionInPath, TopicInPath
from service.security.acls import Operation, ResourceType
from service.security.caller import caller_of
from storage.errors import InvalidRequest
from storage.formats.partitions import PartitionNumber
from storage.topics.topics import PARTITIONS_MAX

LATEST: Final = -1
"""Kafka's number for all current records."""


class LogStart(BaseModel):
    partition: int
    log_start_offset: int = Field(description="the first offset that can still be read")


class LogStarts(BaseModel):
    partitions: list[LogStart]


class DeletionUpTo(BaseModel):
    model_config = ConfigDict(extra="forbid")

    partition: Annotated[StrictInt, Field(ge=0, le=PARTITION_MAX)]
    before_offset: Annotated[StrictInt, Field(ge=LATEST, le=OFFSET_MAX)] | Literal["latest"] = (
        Field(description="the first offset to keep; latest, or -1: none of those that are there")
    )


class Deletions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    partitions: Annotated[list[DeletionUpTo], Field(min_length=1, max_length=PARTITIONS_MAX)]


class DeleteRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def delete_records_of_partition(
        self, topic: TopicInPath, partition: PartitionInPath, request: Request
    ) -> LogStart:
        """Delete the records before an offset, or all that are there (`latest`)."""
        text = Query(request).text("before_offset")
        starts = await delete_records(self._gateway, topic, {partition: _parse(text)})
        caller_of(request.scope).changed(Operation.DELETE, ResourceType.TOPIC, topic)
        return LogStart(partition=partition, log_start_offset=starts[partition])

    async def delete_records_of_partitions(
        self, topic: TopicInPath, deletions: Deletions, request: Request
    ) -> LogStarts:
        """Delete the records before an offset in each of several partitions."""
        Query(request)
        before: dict[PartitionNumber, int | None] = {}
        for each in deletions.partitions:
            partition = PartitionNumber(each.partition)
            if partition in before:
                raise InvalidRequest(f"partitions: {partition} is named twice")
            is_all = each.before_offset in ("latest", LATEST)
            before[partition] = None if is_all else int(each.before_offset)
        starts = await delete_records(self._gateway, topic, before)
        caller_of(request.scope).changed(Operation.DELETE, ResourceType.TOPIC, topic)
        return LogStarts(
            partitions=[LogStart(partition=p, log_start_offset=starts[p]) for p in before]
        )


def _parse(text: str | None) -> int | None:
    if text is None:
        raise InvalidRequest(
            "query: before_offset is missing; give the first offset to keep, or latest"
        )
    if text == "latest":
        return None
    offset = parse_integer("before_offset", text)
    if not LATEST <= offset <= OFFSET_MAX:
        raise InvalidRequest(
            f"query: before_offset must be from 0 to {OFFSET_MAX} or latest, not {text}"
        )
    return None if offset == LATEST else offset
