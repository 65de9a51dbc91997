"""The log as a task may use it besides its records: as the principal of its connector."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from service.connect.access.parts import Parts
from service.connect.access.rights import caller_of
from service.connect.connectors.api import TopicPartition
from service.connect.data.errors import RetriableFault, TaskFault
from service.connect.tasks.items import ConnectorItem
from service.groups.offsets import Commit
from service.log.gateway import Gateway
from service.security.acls import Operation
from service.security.administering import alter_topic, create_topic
from service.security.caller import Caller
from storage.errors import (
    InvalidConfig,
    OutcomeUnknown,
    RiachoError,
    TopicExists,
    Unavailable,
    UnknownMember,
    UnknownTopicOrPartition,
)
from storage.formats.partitions import PartitionNumber
from storage.topics.config import TopicConfig, parse_config
from storage.topics.topics import Topic

REPLICAS: Final = "replication.factor"


class ConnectorLog:
    """Implements `LogAccess`."""

    def __init__(self, parts: Parts, connector: ConnectorItem) -> None:
        self._parts = parts
        self._connector = connector
        self._prefix = connector.name_prefix

    @property
    def _gateway(self) -> Gateway:
        return self._parts.gateway

    @asynccontextmanager
    async def _as_connector(self) -> AsyncIterator[Caller]:
        try:
            yield await caller_of(self._parts, self._connector)
        except (Unavailable, OutcomeUnknown) as error:
            raise RetriableFault(f"the log: {error}") from error
        except RiachoError as error:
            raise TaskFault(f"the log: {error} ({error.code})") from error

    async def _topic(self, caller: Caller, operation: Operation, topic: str) -> Topic | None:
        name = self._prefix + topic
        caller.require_topic(operation, name)
        try:
            return await self._gateway.topics.get(name)
        except UnknownTopicOrPartition:
            return None

    async def partition_count(self, topic: str) -> int | None:
        async with self._as_connector() as caller:
            found = await self._topic(caller, Operation.DESCRIBE, topic)
            return None if found is None else found.partition_count

    async def create_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        async with self._as_connector() as caller:
            name = self._prefix + topic
            try:
                found = await self._gateway.topics.read(name)
            except UnknownTopicOrPartition:
                try:
                    await create_topic(
                        self._gateway,
                        caller,
                        name,
                        partitions=partitions,
                        replication_factor=self._replicas(config),
                        config=understood(config),
                        caps_in_sync_min=True,
                    )
                    return
                except TopicExists:
                    found = await self._gateway.topics.read(name)
            if found.partition_count < partitions:
                caller.require_topic(Operation.ALTER, name)
                await alter_topic(self._gateway, caller, name, partitions=partitions)

    def _replicas(self, config: Mapping[str, str]) -> int:
        given = config.get(REPLICAS, "")
        wanted = int(given) if given.isdigit() else self._gateway.settings.kafka_replication_factor
        return max(1, min(wanted, len(self._gateway.zones.names)))

    async def end_offset(self, at: TopicPartition) -> int:
        async with self._as_connector() as caller:
            found = await self._topic(caller, Operation.DESCRIBE, at.topic)
            if found is None:
                raise TaskFault(f"topic {at.topic!r} does not exist")
            info = await self._gateway.partition(found.name, PartitionNumber(at.partition))
            return info.high_watermark

    async def group_offsets(self, group: str) -> Mapping[TopicPartition, int]:
        async with self._as_connector() as caller:
            caller.require_group(Operation.DESCRIBE, self._prefix + group)
            return {
                TopicPartition(one.topic.removeprefix(self._prefix), one.partition): one.offset
                for one in await self._parts.offsets.read(self._prefix + group)
            }

    async def commit_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> bool:
        async with self._as_connector() as caller:
            caller.require_group(Operation.READ, self._prefix + group)
            for topic in {place.topic for place in offsets}:
                caller.require_topic(Operation.READ, self._prefix + topic)
            commits = [
                Commit(
                    topic=self._prefix + place.topic,
                    partition=PartitionNumber(place.partition),
                    offset=offset,
                )
                for place, offset in offsets.items()
            ]
            try:
                await self._parts.offsets.commit(self._prefix + group, commits, None)
            except UnknownMember:
                return False
            return True


def understood(config: Mapping[str, str]) -> dict[str, str]:
    """Return those settings of a topic that topics have here, with values that they may have."""
    kept: dict[str, str] = {}
    for key, text in config.items():
        try:
            TopicConfig(parse_config({key: text}))
        except InvalidConfig:
            continue
        kept[key] = text
    return kept
