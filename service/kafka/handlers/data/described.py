"""Topics as Metadata and DescribeTopicPartitions look them up, with the codes of those it cannot.

A topic that may not be described is named with TOPIC_AUTHORIZATION_FAILED if it was asked for by
name, whether it exists or not, and left out of "all topics".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from service.kafka.call import KafkaCall
from service.kafka.failures import code_of
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.topic_ids import TopicIds
from service.log.gateway import Gateway
from service.security.acls import Operation, ResourceType
from service.security.administering import create_topic
from service.security.caller import Caller
from storage.errors import RiachoError, TopicExists, UnknownTopicOrPartition
from storage.tasks import gathered
from storage.topics.topics import Topic, parse_topic_name


@dataclass(frozen=True, slots=True)
class Described:
    """A topic that was asked for, or why it is not shown."""

    name: str | None
    """As the caller calls it; None: it asked by id, and there is none."""
    topic: Topic | None = None
    code: ErrorCode = ErrorCode.NONE
    topic_id: bytes = bytes(16)


class TopicLookup:
    """Looks topics up for one kind of call after the other."""

    def __init__(self, gateway: Gateway, ids: TopicIds) -> None:
        self._gateway = gateway
        self._ids = ids

    async def all(self, call: KafkaCall) -> list[Described]:
        """Return the topics that the caller may describe, by name."""
        found = [
            self._shown(call.caller, topic)
            for topic in await self._gateway.topics.all()
            if call.caller.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
        return sorted(found, key=lambda each: each.name or "")

    async def named(
        self, call: KafkaCall, names: Sequence[str], *, may_create: bool = False
    ) -> list[Described]:
        """Return what each name stands for, in order; create what is missing if `may_create`."""
        return await gathered(names, partial(self._named, call, may_create=may_create))

    async def by_id(self, call: KafkaCall, topic_id: bytes) -> Described:
        """Return the topic with this id, if the caller may know that there is one."""
        unknown = Described(None, None, ErrorCode.UNKNOWN_TOPIC_ID, topic_id)
        try:
            topic = await self._ids.topic(topic_id)
        except RiachoError as error:
            return Described(None, None, code_of(error), topic_id)
        if topic is None:
            return unknown
        if not call.caller.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            return unknown
        return self._shown(call.caller, topic)

    async def _named(self, call: KafkaCall, outer: str, may_create: bool) -> Described:
        name = call.caller.inner_name(outer)
        try:
            call.caller.require_topic(Operation.DESCRIBE, name)
            topic = await self._found(call.caller, name, may_create)
        except RiachoError as error:
            return Described(outer, None, code_of(error))
        return self._shown(call.caller, topic)

    async def _found(self, caller: Caller, name: str, may_create: bool) -> Topic:
        parse_topic_name(name)
        try:
            return await self._gateway.topics.get(name)
        except UnknownTopicOrPartition:
            if not (may_create and self._gateway.settings.kafka_auto_create):
                raise
        return await self._created(caller, name)

    async def _created(self, caller: Caller, name: str) -> Topic:
        settings = self._gateway.settings
        try:
            return await create_topic(
                self._gateway,
                caller,
                name,
                partitions=settings.kafka_num_partitions,
                replication_factor=min(
                    settings.kafka_replication_factor, len(self._gateway.zones.names)
                ),
            )
        except TopicExists:
            # Another client asked for it at the same moment.
            return await self._gateway.topics.read(name)

    def _shown(self, caller: Caller, topic: Topic) -> Described:
        self._ids.know(topic)
        return Described(caller.outer_name(topic.name), topic, topic_id=topic.topic_id)
