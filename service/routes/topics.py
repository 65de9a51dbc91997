"""Routes about topics. A route translates; it does not decide."""

import base64
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import Path, Request, Response
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
)

from service.http.bodies.fields import TOPIC_NAME
from service.http.requests import Query, parse_data_key, parse_partition, parse_place
from service.log.gateway import Gateway
from service.log.partition_info import PartitionInfo
from service.process.limits.record_limits import PARTITION_MAX
from service.security.acls import Operation, ResourceType
from service.security.administering import alter_topic, create_topic, delete_topic
from service.security.caller import Caller, caller_of
from storage.crypto.keyring import NUMBER_MAX
from storage.errors import InvalidRequest
from storage.formats.partitions import PartitionNumber
from storage.topics.config import SETTINGS
from storage.topics.topics import PARTITIONS_MAX, Topic

TopicInPath = Annotated[
    str,
    Path(description="letters, digits, dots, underscores, hyphens", json_schema_extra=TOPIC_NAME),
]
PartitionInPath = Annotated[
    PartitionNumber,
    BeforeValidator(parse_partition),
    Path(json_schema_extra={"minimum": 0, "maximum": PARTITION_MAX}),
]
DataKeyInPath = Annotated[
    int,
    BeforeValidator(parse_data_key),
    Path(json_schema_extra={"minimum": 1, "maximum": NUMBER_MAX}),
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
        default=None,
        description="number of zones to hold each partition; existing records are copied",
    )
    replicas: list[StrictStr] | None = Field(
        default=None,
        description="names of the zones to hold the topic; existing records are copied",
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
    config: dict[str, str] = Field(description="empty without the right DESCRIBE_CONFIGS")
    created_ms: int


class TopicList(BaseModel):
    topics: list[TopicInfo]


class PartitionList(BaseModel):
    partitions: list[PartitionInfo]


class OffsetInfo(BaseModel):
    offset: int
    timestamp: int = Field(description="of the record at the offset; -1 if there is none")


class UnwrappedKey(BaseModel):
    number: int
    algorithm: str = Field(description="nonce (12 bytes), ciphertext and tag (16 bytes)")
    topic_id: str = Field(description="that sealed bytes are bound to, besides the partition")
    key_base64: str


class TopicRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def create_topic(self, new: NewTopic, request: Request) -> TopicInfo:
        """Create a topic."""
        Query(request)
        caller = caller_of(request.scope)
        name = caller.inner_name(new.name)
        topic = await create_topic(
            self._gateway,
            caller,
            name,
            partitions=new.partitions,
            replication_factor=new.replication_factor,
            config=new.config,
        )
        return _topic_info(topic, caller)

    async def list_topics(self, request: Request) -> TopicList:
        """List the topics that the caller may describe, by name."""
        Query(request)
        caller = caller_of(request.scope)
        found = [
            _topic_info(topic, caller)
            for topic in await self._gateway.topics.all()
            if caller.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
        return TopicList(topics=found)

    async def describe_topic(self, topic: TopicInPath, request: Request) -> TopicInfo:
        """Return a topic and its whole configuration, defaults included."""
        Query(request)
        found = await self._gateway.topics.read(topic)
        return _topic_info(found, caller_of(request.scope))

    async def alter_topic(
        self, topic: TopicInPath, change: TopicChange, request: Request
    ) -> TopicInfo:
        """Add partitions, change configuration, move replicas to other zones."""
        Query(request)
        caller = caller_of(request.scope)
        for operation in _alterations(change):
            caller.require(operation, ResourceType.TOPIC, topic)
        altered = await alter_topic(
            self._gateway,
            caller,
            topic,
            partitions=change.partitions,
            config=change.config,
            replication_factor=change.replication_factor,
            replicas=change.replicas,
        )
        return _topic_info(altered, caller)

    async def delete_topic(self, topic: TopicInPath, request: Request) -> Response:
        """Delete a topic and everything in it."""
        shred = Query(request).boolean("shred")
        await delete_topic(self._gateway, caller_of(request.scope), topic, shred=shred)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def list_partitions(self, topic: TopicInPath, request: Request) -> PartitionList:
        """Return where every partition begins, ends and lives."""
        Query(request)
        return PartitionList(partitions=await self._gateway.partitions(topic))

    async def find_offset(
        self, topic: TopicInPath, partition: PartitionInPath, request: Request
    ) -> OffsetInfo:
        """Return the offset of the first record at a moment or later."""
        at = Query(request).text("at")
        if at is None:
            raise InvalidRequest("query: at is missing; give earliest, latest or a timestamp")
        offset, timestamp = await self._gateway.offset_at(topic, partition, parse_place(at))
        return OffsetInfo(offset=offset, timestamp=timestamp)

    async def unwrap_data_key(
        self, topic: TopicInPath, data_key: DataKeyInPath, request: Request, response: Response
    ) -> UnwrappedKey:
        """Return a data key of a topic, for a client that opens sealed ranges itself."""
        Query(request)
        found = await self._gateway.data_key(topic, data_key)
        # Whoever has the key can read what it sealed, for as long as that is stored.
        caller_of(request.scope).changed(Operation.READ, ResourceType.TOPIC, topic)
        response.headers["cache-control"] = "no-store"
        return UnwrappedKey(
            number=found.number,
            algorithm="AES-256-GCM",
            topic_id=found.topic_id.hex(),
            key_base64=base64.b64encode(found.secret).decode(),
        )


def _alterations(change: TopicChange) -> list[Operation]:
    """Return the operations that a change is made of; ALTER if it changes nothing."""
    is_of_config = bool(change.config)
    others = (change.partitions, change.replication_factor, change.replicas)
    is_of_shape = any(each is not None for each in others) or not is_of_config
    return [
        *([Operation.ALTER] if is_of_shape else []),
        *([Operation.ALTER_CONFIGS] if is_of_config else []),
    ]


def _topic_info(topic: Topic, caller: Caller) -> TopicInfo:
    """Return what the caller may know; the configuration needs a right of its own."""
    shows_config = caller.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name)
    return TopicInfo(
        name=caller.outer_name(topic.name),
        id=topic.topic_id.hex(),
        partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        config=topic.config.all() if shows_config else {},
        created_ms=topic.created_ms,
    )
