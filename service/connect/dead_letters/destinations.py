"""Where dead letters are sent to.

    origin           the topic and partition that each was read from, or was meant for
    topic:NAME       a topic, by key
    sink:CONNECTOR   straight to a sink, so that other readers of its topics see nothing twice

A sink gets its letters through a topic of its own, `__connect-redrive-<connector>`, which it reads
besides the others. Its records say in headers where they come from, and are given to converters,
transforms and the sink as if they came from there. So what holds for every record of a sink holds
for these, too: order, retries, dead letters, and exactly once where the target holds the offsets.
"""

from typing import Protocol

from msgspec.structs import replace

from service.connect.data.log_records import LogRecord
from service.connect.dead_letters.reading import Letter
from service.connect.tasks.queues import queue_of, queued
from service.log.gateway import Gateway
from service.security.acls import Operation
from service.security.caller import Caller
from storage.errors import InvalidTopic, TopicExists, UnknownTopicOrPartition


class Unsendable(Exception):
    """A letter cannot be sent, and why."""


class Destination(Protocol):
    name: str
    """By which what was sent there is remembered."""

    async def address(self, letter: Letter, record: LogRecord) -> tuple[str, LogRecord]:
        """Return the topic, by its full name, and the record with its partition.

        Raises `Unsendable`, and `TopicUnauthorized` if the caller may not write there.
        """

    async def check(self, topic: str) -> None:
        """Raise as `address` does, for a topic that a transform has chosen."""


class _Topics:
    """What is common to destinations that are topics of users."""

    def __init__(self, gateway: Gateway, caller: Caller) -> None:
        self._gateway = gateway
        self._caller = caller

    async def check(self, topic: str) -> None:
        await self._partition_count(topic)

    async def _partition_count(self, topic: str) -> int:
        self._caller.require_topic(Operation.WRITE, topic)
        try:
            return (await self._gateway.topics.get(topic)).partition_count
        except (UnknownTopicOrPartition, InvalidTopic):
            name = self._caller.outer_name(topic)
            raise Unsendable(f"there is no topic {name!r} any more") from None


class ToOrigin(_Topics):
    name = "origin"

    def __init__(self, gateway: Gateway, caller: Caller, prefix: str) -> None:
        """`prefix` is that of the tenant whose connectors have written the letters."""
        super().__init__(gateway, caller)
        self._prefix = prefix

    async def address(self, letter: Letter, record: LogRecord) -> tuple[str, LogRecord]:
        if not letter.origin:
            raise Unsendable(
                "it does not say where it comes from: its connector has"
                " errors.deadletterqueue.context.headers.enable=false; use topic:NAME"
            )
        topic = self._prefix + letter.origin
        count = await self._partition_count(topic)
        partition = letter.origin_partition
        if partition is not None and partition < count:
            record = replace(record, partition=partition)
        return topic, record


class ToTopic(_Topics):
    def __init__(self, gateway: Gateway, caller: Caller, topic: str) -> None:
        super().__init__(gateway, caller)
        self._topic = topic
        self.name = f"topic:{topic}"

    async def address(self, letter: Letter, record: LogRecord) -> tuple[str, LogRecord]:
        del letter
        await self._partition_count(self._topic)
        return self._topic, record


class ToSink:
    """The queue of a sink; who may alter the connector may fill it."""

    def __init__(self, gateway: Gateway, connector: str, prefix: str) -> None:
        """`connector` is its full name."""
        self._gateway = gateway
        self._topic = prefix + queue_of(connector.removeprefix(prefix))
        self.name = f"sink:{connector}"
        self._is_there = False

    async def address(self, letter: Letter, record: LogRecord) -> tuple[str, LogRecord]:
        if not letter.origin:
            raise Unsendable(
                "it does not say where it comes from: its connector has"
                " errors.deadletterqueue.context.headers.enable=false; use topic:NAME"
            )
        return self._topic, queued(record, letter.context)

    async def check(self, topic: str) -> None:
        if topic != self._topic:
            raise Unsendable("the transform has changed the topic, and a sink has one queue")

    async def prepare(self) -> None:
        """Create the queue, unless it is there."""
        try:
            await self._gateway.topics.get(self._topic)
        except UnknownTopicOrPartition:
            settings = self._gateway.settings
            factor = min(settings.kafka_replication_factor, len(self._gateway.zones.names))
            try:
                await self._gateway.topics.create(
                    self._topic, replication_factor=factor, caps_in_sync_min=True
                )
            except TopicExists:
                return
