"""CreateTopics, DeleteTopics and CreatePartitions.

A replication factor beyond the number of zones becomes that number: scripts ask for 3 as they would
of any cluster, and here one zone is durable by itself. The response says what was used.
`min.insync.replicas` stays as it was given, and means all replicas if there are fewer. Assignments
of replicas to brokers are checked for sense; which zones hold a topic is not theirs to say.
"""

from collections.abc import Mapping, Sequence

from service.kafka.call import KafkaCall
from service.kafka.handlers.admin.answers import Judged, KafkaRefusal, repeated
from service.kafka.handlers.admin.config_entries import topic_entries
from service.kafka.parts import Parts
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from service.kafka.protocol.notation import NO_UUID
from service.security.acls import Operation, ResourceType
from service.security.administering import alter_topic, create_topic, delete_topic
from service.security.caller import Caller
from storage.tasks import in_turns
from storage.topics.items import parse_topic_name
from storage.topics.topics import Topic


class TopicAdmin:
    def __init__(self, parts: Parts) -> None:
        self._gateway = parts.gateway

    async def create_topics(
        self, call: KafkaCall, request: CreateTopicsRequest
    ) -> CreateTopicsResponse:
        twice = repeated(topic.name for topic in request.topics)
        response = CreateTopicsResponse()
        for name in sorted(twice):
            text = "the request names this topic twice"
            response.topics.append(_not_created(name, ErrorCode.INVALID_REQUEST, text))
        async for new in in_turns(request.topics):
            if new.name in twice:
                continue
            with Judged(call.caller) as judged:
                topic = await self._create(call.caller, new, dry_run=request.validate_only)
                response.topics.append(
                    _created(call.caller, new.name, topic, dry_run=request.validate_only)
                )
            if not judged.is_done:
                response.topics.append(_not_created(new.name, judged.code, judged.text))
                response.throttle_time_ms = max(response.throttle_time_ms, judged.throttle_ms)
        return response

    async def _create(self, caller: Caller, new: CreatableTopic, *, dry_run: bool) -> Topic:
        parse_topic_name(new.name)
        partitions, wanted = self._shape(new)
        factor = min(wanted, len(self._gateway.zones.names))
        return await create_topic(
            self._gateway,
            caller,
            caller.inner_name(new.name),
            partitions=partitions,
            replication_factor=factor,
            config=_config(new),
            dry_run=dry_run,
            caps_in_sync_min=True,
        )

    def _shape(self, new: CreatableTopic) -> tuple[int, int]:
        """Return how many partitions and replicas are wanted, by default those of the settings."""
        settings = self._gateway.settings
        partitions, factor = new.num_partitions, new.replication_factor
        if new.assignments:
            if (partitions, factor) != (-1, -1):
                raise KafkaRefusal(
                    ErrorCode.INVALID_REQUEST,
                    "give the assignments, or the numbers of partitions and of replicas, not both",
                )
            brokers = {each.partition_index: each.broker_ids for each in new.assignments}
            if sorted(brokers) != list(range(len(new.assignments))):
                raise KafkaRefusal(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    "assignments are for the partitions from 0 on, each once",
                )
            return len(brokers), _replica_count(list(brokers.values()))
        if partitions < 1 and partitions != -1:
            raise KafkaRefusal(
                ErrorCode.INVALID_PARTITIONS, "a topic has one partition or more; -1: the default"
            )
        if factor < 1 and factor != -1:
            raise KafkaRefusal(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "a topic has one replica or more; -1: the default",
            )
        return (
            settings.kafka_num_partitions if partitions == -1 else partitions,
            settings.kafka_replication_factor if factor == -1 else factor,
        )

    async def delete_topics(
        self, call: KafkaCall, request: DeleteTopicsRequest
    ) -> DeleteTopicsResponse:
        wanted = [DeleteTopicState(name=name) for name in request.topic_names] + request.topics
        twice = repeated((each.name, each.topic_id) for each in wanted)
        by_id: Mapping[bytes, Topic] = {}
        if any(each.name is None for each in wanted):
            by_id = {topic.topic_id: topic for topic in await self._gateway.topics.all()}
        response = DeleteTopicsResponse()
        done = set[tuple[str | None, bytes]]()
        async for each in in_turns(wanted):
            key = each.name, bytes(each.topic_id)
            if key in done:
                continue
            done.add(key)
            result = DeletableTopicResult(name=each.name, topic_id=key[1])
            with Judged(call.caller) as judged:
                if key in twice:
                    raise KafkaRefusal(
                        ErrorCode.INVALID_REQUEST, "the request names this topic twice"
                    )
                await self._delete(call.caller, each.name, key[1], by_id, result)
            result.error_code, result.error_message = judged.code, judged.text
            response.throttle_time_ms = max(response.throttle_time_ms, judged.throttle_ms)
            response.responses.append(result)
        return response

    async def _delete(
        self,
        caller: Caller,
        name: str | None,
        topic_id: bytes,
        by_id: Mapping[bytes, Topic],
        result: DeletableTopicResult,
    ) -> None:
        if (name is None) == (topic_id == NO_UUID):
            raise KafkaRefusal(ErrorCode.INVALID_REQUEST, "give the name or the id of the topic")
        only_id: bytes | None = None
        if name is not None:
            full = caller.inner_name(name)
        else:
            topic = by_id.get(topic_id)
            if topic is None or not topic.name.startswith(caller.name_prefix):
                raise KafkaRefusal(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
            full, only_id = topic.name, topic_id
            if caller.allows(Operation.DESCRIBE, ResourceType.TOPIC, full):
                # Others must not learn the name.
                result.name = caller.outer_name(full)
        decision = caller.decide(Operation.DELETE, ResourceType.TOPIC, full)
        if not decision.allowed:
            called = None if result.name is not None else "with this id"
            raise caller.refusal(Operation.DELETE, ResourceType.TOPIC, full, decision, called)
        deleted = await delete_topic(self._gateway, caller, full, only_id=only_id)
        result.topic_id = deleted.topic_id

    async def create_partitions(
        self, call: KafkaCall, request: CreatePartitionsRequest
    ) -> CreatePartitionsResponse:
        twice = repeated(topic.name for topic in request.topics)
        response = CreatePartitionsResponse()
        async for name, more in in_turns({each.name: each for each in request.topics}.items()):
            with Judged(call.caller) as judged:
                if name in twice:
                    raise KafkaRefusal(
                        ErrorCode.INVALID_REQUEST, "the request names this topic twice"
                    )
                await self._add_partitions(call.caller, more, dry_run=request.validate_only)
            response.results.append(
                CreatePartitionsTopicResult(
                    name=name, error_code=judged.code, error_message=judged.text
                )
            )
            response.throttle_time_ms = max(response.throttle_time_ms, judged.throttle_ms)
        return response

    async def _add_partitions(
        self, caller: Caller, more: CreatePartitionsTopic, *, dry_run: bool
    ) -> None:
        name = caller.inner_name(more.name)
        caller.require(Operation.ALTER, ResourceType.TOPIC, name)
        topic = await self._gateway.topics.read(name)
        added = more.count - topic.partition_count
        if added <= 0:
            raise KafkaRefusal(
                ErrorCode.INVALID_PARTITIONS,
                f"the topic has {topic.partition_count} partitions already, and {more.count} is"
                " not more",
            )
        if more.assignments is not None:
            if len(more.assignments) != added:
                raise KafkaRefusal(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"there are assignments for {len(more.assignments)} partitions, and {added}"
                    " are to be added",
                )
            _replica_count([each.broker_ids for each in more.assignments])
        await alter_topic(self._gateway, caller, name, partitions=more.count, dry_run=dry_run)


def _replica_count(assigned: Sequence[Sequence[int]]) -> int:
    """Return how many replicas assignments give to each partition."""
    [count, *others] = {len(brokers) for brokers in assigned}
    if not count or others or any(repeated(brokers) for brokers in assigned):
        raise KafkaRefusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "every partition gets the same number of brokers, one or more, each once",
        )
    return count


def _config(new: CreatableTopic) -> dict[str, object]:
    config: dict[str, object] = {}
    for each in new.configs:
        if each.value is None:
            raise KafkaRefusal(ErrorCode.INVALID_CONFIG, f"config: {each.name} has no value")
        config[each.name] = each.value
    return config


def _created(caller: Caller, name: str, topic: Topic, *, dry_run: bool) -> CreatableTopicResult:
    result = CreatableTopicResult(
        name=name, topic_id=NO_UUID if dry_run else topic.topic_id, error_message=None
    )
    if not caller.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result
    result.num_partitions = topic.partition_count
    result.replication_factor = topic.replication_factor
    result.configs = [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
        )
        for entry in topic_entries(topic.config)
    ]
    return result


def _not_created(name: str, code: ErrorCode, text: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=text, configs=[])
