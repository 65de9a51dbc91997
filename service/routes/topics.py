"""Routes about topics. A route translates; it does not decide."""

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

from service.http.requests import JSON, OFFSET_MAX, Query, parse_partition, parse_place
from service.limits.record_limits import PARTITION_MAX
from service.log.gateway import Gateway
from service.log.partition_info import PartitionInfo
from service.routes.openapi.document import OFFSET, PLACE, TOPIC_NAME, parameter
from service.routes.segments import RANGES, RANGES_MAX, StoredRanges, located_ranges
from storage.errors import InvalidRequest
from storage.topics.config import SETTINGS
from storage.topics.topics import PARTITIONS_MAX, Topic

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


def router(gateway: Gateway) -> APIRouter:
    """Return the routes under `/v1/topics` that FastAPI serves."""
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
        response_model=StoredRanges,
        openapi_extra={
            "parameters": [
                parameter("query", "offset", OFFSET, "first offset; default: the log start"),
                parameter("query", "end", OFFSET, "offset to stop before"),
                parameter(
                    "query",
                    "limit",
                    {"type": "integer", "minimum": 1, "maximum": RANGES_MAX, "default": RANGES},
                    "as many ranges at most; next_offset says where to ask on",
                ),
            ]
        },
    )
    async def locate_records(
        topic: TopicName, partition: PartitionNumber, request: Request
    ) -> Response:
        """Return where records are stored, with URLs to read them past this gateway."""
        query = Query(request, ["offset", "end", "limit"])
        offset = query.integer("offset", 0, OFFSET_MAX)
        end = query.integer("end", 0, OFFSET_MAX)
        limit = query.integer("limit", 1, RANGES_MAX)
        body = await located_ranges(gateway, (topic, partition), offset, end, limit or RANGES)
        return Response(body, media_type=JSON)

    return routes


def _topic_info(topic: Topic) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        id=topic.topic_id.hex(),
        partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        config=topic.config.all(),
        created_ms=topic.created_ms,
    )
