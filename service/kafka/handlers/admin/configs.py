"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources.

Topics have settings of their own. What brokers and groups show comes from the gateway's variables,
so it cannot be changed here.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Final

from service.kafka.call import KafkaCall
from service.kafka.handlers.admin.answers import Judged, KafkaRefusal, repeated
from service.kafka.handlers.admin.config_changes import Change, incremental, replacing
from service.kafka.handlers.admin.config_entries import (
    ConfigEntry,
    broker_entries,
    group_entries,
    topic_entries,
)
from service.kafka.parts import Parts
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.configs import (
    AlterConfigsAlterConfigsResource,
    AlterConfigsAlterConfigsResourceResponse,
    AlterConfigsRequest,
    AlterConfigsResponse,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsAlterConfigsResource,
    IncrementalAlterConfigsAlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from service.security.acls import Operation, ResourceType
from service.security.administering import alter_topic
from service.security.caller import Caller
from storage.errors import RiachoError
from storage.tasks import in_turns
from storage.topics.items import parse_topic_name
from storage.topics.topics import Topic

LISTED_MIN: Final = 10
"""From so many topics on, all are listed instead of reading each: UIs ask for all of them."""


class ConfigResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigAdmin:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._gateway = parts.gateway

    async def describe(
        self, call: KafkaCall, request: DescribeConfigsRequest
    ) -> DescribeConfigsResponse:
        response = DescribeConfigsResponse()
        topics = await self._listed(request)
        async for resource in in_turns(request.resources):
            entries: Sequence[ConfigEntry] = ()
            with Judged(call.caller) as judged:
                entries = await self._entries(call.caller, resource, topics)
            response.results.append(
                DescribeConfigsResult(
                    error_code=judged.code,
                    error_message=judged.text,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=[
                        _shown(entry, request)
                        for entry in entries
                        if not resource.configuration_keys
                        or entry.name in resource.configuration_keys
                    ],
                )
            )
        return response

    async def _listed(self, request: DescribeConfigsRequest) -> Mapping[str, Topic]:
        """Return all topics, by full name, if so many are asked for that a list costs less."""
        kinds = [each.resource_type for each in request.resources]
        if kinds.count(ConfigResourceType.TOPIC) < LISTED_MIN:
            return {}
        with suppress(RiachoError):  # Then each of them is read, and reports what fails.
            return {topic.name: topic for topic in await self._gateway.topics.all()}
        return {}

    async def _entries(
        self, caller: Caller, resource: DescribeConfigsResource, topics: Mapping[str, Topic]
    ) -> Sequence[ConfigEntry]:
        kind, name = resource.resource_type, resource.resource_name
        if kind == ConfigResourceType.TOPIC:
            full = caller.inner_name(name)
            caller.require(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, full)
            parse_topic_name(name)
            topic = topics.get(full) or await self._gateway.topics.read(full)
            return topic_entries(topic.config)
        if kind == ConfigResourceType.GROUP:
            group = caller.inner_name(name)
            caller.require(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP, group)
            if not name:
                raise KafkaRefusal(ErrorCode.INVALID_REQUEST, "a group has a name")
            return group_entries(self._gateway.settings)
        caller.require(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
        if kind == ConfigResourceType.BROKER:
            return await self._of_broker(name)
        raise KafkaRefusal(ErrorCode.INVALID_REQUEST, _unknown(kind))

    async def _of_broker(self, name: str) -> Sequence[ConfigEntry]:
        if not name:
            # Kafka keeps settings for all brokers under this name; here are none.
            return ()
        known = {str(broker.node_id): broker for broker in await self._parts.brokers.live()}
        broker = known.get(name)
        if broker is None:
            raise KafkaRefusal(
                ErrorCode.INVALID_REQUEST,
                f"there is no broker {name!r}; there are {', '.join(known)}",
            )
        return broker_entries(
            self._gateway.settings,
            node_id=broker.node_id,
            address=f"{self._parts.address.protocol}://{broker.host}:{broker.port}",
            zone_count=len(self._gateway.zones.names),
        )

    async def alter(self, call: KafkaCall, request: AlterConfigsRequest) -> AlterConfigsResponse:
        twice = repeated((each.resource_type, each.resource_name) for each in request.resources)
        response = AlterConfigsResponse()
        async for resource in in_turns(request.resources):
            with Judged(call.caller) as judged:
                _check_once(resource, twice)
                _require_alter(call.caller, resource)
                change = replacing([(each.name, each.value) for each in resource.configs])
                await self._change(call.caller, resource, change, dry_run=request.validate_only)
            response.responses.append(
                AlterConfigsAlterConfigsResourceResponse(
                    error_code=judged.code,
                    error_message=judged.text,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        return response

    async def alter_incrementally(
        self, call: KafkaCall, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        twice = repeated((each.resource_type, each.resource_name) for each in request.resources)
        response = IncrementalAlterConfigsResponse()
        async for resource in in_turns(request.resources):
            with Judged(call.caller) as judged:
                _check_once(resource, twice)
                _require_alter(call.caller, resource)
                change = incremental(
                    [(each.name, each.config_operation, each.value) for each in resource.configs]
                )
                await self._change(call.caller, resource, change, dry_run=request.validate_only)
            response.responses.append(
                IncrementalAlterConfigsAlterConfigsResourceResponse(
                    error_code=judged.code,
                    error_message=judged.text,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        return response

    async def _change(
        self,
        caller: Caller,
        resource: "AlterConfigsAlterConfigsResource | IncrementalAlterConfigsAlterConfigsResource",
        change: Change,
        *,
        dry_run: bool,
    ) -> None:
        if resource.resource_type != ConfigResourceType.TOPIC:
            raise KafkaRefusal(ErrorCode.INVALID_REQUEST, _unchangeable(resource.resource_type))
        parse_topic_name(resource.resource_name)
        full = caller.inner_name(resource.resource_name)
        await alter_topic(
            self._gateway, caller, full, config=change, dry_run=dry_run, caps_in_sync_min=True
        )

    async def list_resources(
        self, call: KafkaCall, request: ListConfigResourcesRequest
    ) -> ListConfigResourcesResponse:
        with Judged(call.caller) as judged:
            call.caller.require(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
            wanted = set(request.resource_types) or set(ConfigResourceType)
            if call.version == 0:
                wanted = {ConfigResourceType.CLIENT_METRICS}
            unknown = wanted - set(ConfigResourceType)
            if unknown:
                raise KafkaRefusal(ErrorCode.UNSUPPORTED_VERSION, _unknown(min(unknown)))
            found = await self._resources(call.caller, wanted)
            return ListConfigResourcesResponse(config_resources=found)
        return ListConfigResourcesResponse(error_code=judged.code)

    async def _resources(self, caller: Caller, wanted: set[int]) -> list[ConfigResource]:
        found: list[tuple[int, str]] = []
        if ConfigResourceType.TOPIC in wanted:
            found += [
                (ConfigResourceType.TOPIC, caller.outer_name(topic.name))
                for topic in await self._gateway.topics.all()
            ]
        if ConfigResourceType.BROKER in wanted:
            found += [
                (ConfigResourceType.BROKER, str(broker.node_id))
                for broker in await self._parts.brokers.live()
            ]
        return [ConfigResource(resource_name=name, resource_type=kind) for kind, name in found]


def _shown(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in synonyms
        ],
        config_type=entry.kind,
        documentation=entry.about if request.include_documentation else None,
    )


def _check_once(
    resource: "AlterConfigsAlterConfigsResource | IncrementalAlterConfigsAlterConfigsResource",
    twice: frozenset[tuple[int, str]],
) -> None:
    if (resource.resource_type, resource.resource_name) in twice:
        raise KafkaRefusal(ErrorCode.INVALID_REQUEST, "the request names this resource twice")


def _require_alter(
    caller: Caller,
    resource: "AlterConfigsAlterConfigsResource | IncrementalAlterConfigsAlterConfigsResource",
) -> None:
    full = caller.inner_name(resource.resource_name)
    if resource.resource_type == ConfigResourceType.TOPIC:
        caller.require(Operation.ALTER_CONFIGS, ResourceType.TOPIC, full)
    elif resource.resource_type == ConfigResourceType.GROUP:
        caller.require(Operation.ALTER_CONFIGS, ResourceType.GROUP, full)
    else:
        caller.require(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)


def _unknown(kind: int) -> str:
    if kind in set(ConfigResourceType):
        return f"there are no settings of type {ConfigResourceType(kind).name} here"
    return f"there is no type {kind} of resources"


def _unchangeable(kind: int) -> str:
    if kind == ConfigResourceType.BROKER:
        return (
            "a broker is a gateway here: its settings are variables (RIACHO_KAFKA_NUM_PARTITIONS"
            " and others) that it reads when it starts"
        )
    if kind == ConfigResourceType.GROUP:
        return "groups have no settings here: members say their own"
    return _unknown(kind)
