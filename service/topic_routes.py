"""Routes about topics. A route translates; it does not decide."""

import base64
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request, Response
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
)

from service.gateway import Gateway, PartitionInfo
from service.openapi import OFFSET, PLACE, TOPIC_NAME, parameter, problem_response
from service.record_limits import PARTITION_MAX
from service.requests import OFFSET_MAX, Query, parse_partition, parse_place
from storage import keys
from storage.entries import Kind
from storage.errors import InvalidRequest
from storage.replication import read_names
from storage.slices import SCHEMA_MESSAGE
from storage.topic_config import SETTINGS
from storage.topics import PARTITIONS_MAX, Topic

SCHEMA_BASE64: Final = base64.b64encode(SCHEMA_MESSAGE).decode()

TopicName = Annotated[
    str,
    Path(description="letters, digits, dots, underscores, hyphens", json_schema_extra=TOPIC_NAME),
]
PartitionNumber = Annotated[
    int,
    BeforeValidator(parse_partition),
    Path(json_schema_extra={"minimum": 0, "maximum": PARTITION_MAX}),
]
_SETTING_NAMES: Final[dict[str, Any]] = {"propertyNames": {"enum": list(SETTINGS)}}
ConfigValue = StrictStr | StrictInt | StrictFloat


class NewTopic(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Annotated[StrictStr, Field(json_schema_extra=TOPIC_NAME)]
    partitions: Annotated[
        StrictInt, Field(json_schema_extra={"minimum": 1, "maximum": PARTITIONS_MAX})
    ] = 1
    replication_factor: Annotated[
        StrictInt,
        Field(description="zones that hold each partition", json_schema_extra={"minimum": 1}),
    ] = 1
    config: dict[str, ConfigValue] = Field(default_factory=dict, json_schema_extra=_SETTING_NAMES)


class TopicChange(BaseModel):
    model_config = ConfigDict(extra="forbid")

    partitions: StrictInt | None = None
    replication_factor: StrictInt | None = Field(
        default=None, description="zones that shall hold each partition; what is there is copied"
    )
    replicas: list[StrictStr] | None = Field(
        default=None,
        description="names of the zones that shall hold the topic; what is there is copied",
    )
    config: dict[str, ConfigValue | None] = Field(
        default_factory=dict,
        description="null returns a setting to its default",
        json_schema_extra=_SETTING_NAMES,
    )


class TopicInfo(BaseModel):
    name: str
    id: str
    partitions: int
    replication_factor: int
    config: dict[str, str]
    created_ms: int


class TopicList(BaseModel):
    topics: list[TopicInfo]


class PartitionList(BaseModel):
    partitions: list[PartitionInfo]


class OffsetInfo(BaseModel):
    offset: int
    timestamp: int = Field(description="of the record at the offset; -1 if there is none")


class StoredRange(BaseModel):
    base_offset: int
    end_offset: int
    count: int
    format: str = Field(description="arrow: one Arrow IPC record-batch message")
    url: str
    start: int = Field(description="first byte of the range")
    end: int = Field(description="byte behind the range")
    crc32c: int
    min_timestamp: int
    max_timestamp: int


class StoredRanges(BaseModel):
    segments: list[StoredRange]
    arrow_schema_base64: str = Field(description="message to put in front of the ranges")
    next_offset: int
    high_watermark: int
    log_start_offset: int


def router(gateway: Gateway) -> APIRouter:
    """Return the routes under `/v1/topics` that are not hot."""
    routes = APIRouter(prefix="/v1/topics", tags=["topics"])

    @routes.post("", status_code=HTTPStatus.CREATED)
    async def create_topic(new: NewTopic, request: Request) -> TopicInfo:
        """Create a topic."""
        Query(request, ())
        topic = await gateway.topics.create(
            new.name,
            partitions=new.partitions,
            replication_factor=new.replication_factor,
            config=new.config,
        )
        return _topic_info(topic)

    @routes.get("")
    async def list_topics(request: Request) -> TopicList:
        """List all topics, by name."""
        Query(request, ())
        return TopicList(topics=[_topic_info(topic) for topic in await gateway.topics.all()])

    @routes.get("/{topic}")
    async def describe_topic(topic: TopicName, request: Request) -> TopicInfo:
        """Return a topic and its whole configuration, defaults included."""
        Query(request, ())
        return _topic_info(await gateway.topics.read(topic))

    @routes.patch("/{topic}")
    async def alter_topic(topic: TopicName, change: TopicChange, request: Request) -> TopicInfo:
        """Add partitions, change configuration, move replicas to other zones."""
        Query(request, ())
        altered = await gateway.topics.alter(
            topic,
            partitions=change.partitions,
            config=change.config,
            replication_factor=change.replication_factor,
            replicas=change.replicas,
        )
        return _topic_info(altered)

    @routes.delete("/{topic}", status_code=HTTPStatus.NO_CONTENT)
    async def delete_topic(topic: TopicName, request: Request) -> Response:
        """Delete a topic and everything in it."""
        Query(request, ())
        deleted = await gateway.topics.delete(topic)
        gateway.forget(deleted.topic_id)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    @routes.get("/{topic}/partitions")
    async def list_partitions(topic: TopicName, request: Request) -> PartitionList:
        """Return where every partition begins, ends and lives."""
        Query(request, ())
        return PartitionList(partitions=await gateway.partitions(topic))

    @routes.get(
        "/{topic}/partitions/{partition}/offsets",
        openapi_extra={
            "parameters": [
                {
                    **parameter("query", "at", PLACE, "earliest, latest, or a timestamp in ms"),
                    "required": True,
                }
            ]
        },
    )
    async def find_offset(
        topic: TopicName, partition: PartitionNumber, request: Request
    ) -> OffsetInfo:
        """Return the offset of the first record at a moment or later."""
        at = Query(request, ["at"]).text("at")
        if at is None:
            raise InvalidRequest("query: at is missing; give earliest, latest or a timestamp")
        offset, timestamp = await gateway.offset_at(topic, partition, parse_place(at))
        return OffsetInfo(offset=offset, timestamp=timestamp)

    @routes.get(
        "/{topic}/partitions/{partition}/segments",
        responses={416: problem_response("The offset is outside the log")},
        openapi_extra={
            "parameters": [
                parameter("query", "offset", OFFSET, "first offset; default: the log start"),
                parameter("query", "end", OFFSET, "offset to stop before"),
            ]
        },
    )
    async def locate_records(
        topic: TopicName, partition: PartitionNumber, request: Request
    ) -> StoredRanges:
        """Return where records are stored, with URLs to read them past this gateway."""
        query = Query(request, ["offset", "end"])
        offset = query.integer("offset", 0, OFFSET_MAX)
        end = query.integer("end", 0, OFFSET_MAX)
        return await _locate(gateway, topic, partition, offset, end)

    return routes


async def _locate(
    gateway: Gateway, topic: str, partition: int, offset: int | None, end: int | None
) -> StoredRanges:
    entries, view, local = await gateway.locate(topic, partition, offset, end)
    urls: dict[bytes, str] = {}
    ranges = []
    for entry in entries:
        if entry.object_id not in urls:
            names = read_names(view.head, entry.zones, entry.partition)
            name = min(names, key=gateway.zones.is_avoided)
            urls[entry.object_id] = await gateway.zones.store(name).presign(
                keys.hot_segment(entry.object_id), gateway.settings.presign_expires_s
            )
        ranges.append(
            StoredRange(
                base_offset=entry.base_offset,
                end_offset=entry.end_offset,
                count=entry.record_count,
                format=Kind(entry.kind).name.lower(),
                url=urls[entry.object_id],
                start=entry.position,
                end=entry.position + entry.length,
                crc32c=entry.crc,
                min_timestamp=entry.min_ms,
                max_timestamp=entry.max_ms,
            )
        )
    start = view.head.log_starts[local] if offset is None else offset
    return StoredRanges(
        segments=ranges,
        arrow_schema_base64=SCHEMA_BASE64,
        next_offset=entries[-1].end_offset if entries else start,
        high_watermark=view.head.next_offsets[local],
        log_start_offset=view.head.log_starts[local],
    )


def _topic_info(topic: Topic) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        id=topic.topic_id.hex(),
        partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        config=topic.config.all(),
        created_ms=topic.created_ms,
    )
