"""Which partitions a task of a sink reads.

A partition belongs to one task for as long as there are as many tasks: it follows from its topic's
name and its number, not from which others there are. So topics and partitions that come later
move none from one task to another, and two tasks never read the same one.
"""

from contextlib import suppress
from typing import Final
from zlib import crc32

from service.connect.access.parts import ConnectParts
from service.connect.access.rights import caller_of
from service.connect.config.common import DLQ_TOPIC
from service.connect.config.keys import Config
from service.connect.connectors.api import TopicPartition
from service.connect.tasks.items import ConnectorItem
from service.connect.tasks.queues import queue_of
from service.groups.patterns import check_pattern, matching
from service.log.gateway import Gateway
from service.security.acls import Operation, ResourceType
from storage.errors import InvalidTopic, UnknownTopicOrPartition
from storage.topics.topics import Topic

INTERNAL: Final = "__"
"""Topics that begin so are read only if they are named: a pattern never means them.

Its own queue of letters that are sent again is read by every sink (`queues.py`)."""


def owner_of(place: TopicPartition, task_count: int) -> int:
    """Return the task that reads a partition. Those of one topic are spread evenly."""
    return (crc32(place.topic.encode()) + place.partition) % max(1, task_count)


async def owned_partitions(
    parts: ConnectParts, connector: ConnectorItem, config: Config, number: int
) -> list[TopicPartition]:
    """Return the partitions of the task, of all topics that exist now.

    Raises what the log raises if the connector may not read a topic that it names.
    """
    found = await _topics(parts, connector, config)
    places = [
        TopicPartition(topic.name.removeprefix(connector.name_prefix), partition)
        for topic in found
        for partition in topic.partitions
    ]
    return [place for place in places if owner_of(place, connector.task_count) == number]


async def places_of(gateway: Gateway, connector: ConnectorItem) -> list[TopicPartition]:
    """Return every partition that there is now and the sink may have read."""
    config, prefix = connector.config, connector.name_prefix
    names = {name.strip() for name in config.get("topics", "").split(",")} - {""}
    names.add(queue_of(connector.name.removeprefix(prefix)))
    found = [
        (topic.name.removeprefix(prefix), topic)
        for topic in await gateway.topics.all()
        if topic.name.startswith(prefix)
    ]
    if pattern := config.get("topics.regex", ""):
        check_pattern(pattern)
        names.update(matching(pattern, [name for name, _ in found]))
    return [
        TopicPartition(name, partition)
        for name, topic in found
        if name in names
        for partition in topic.partitions
    ]


async def _topics(parts: ConnectParts, connector: ConnectorItem, config: Config) -> list[Topic]:
    gateway, prefix = parts.gateway, connector.name_prefix
    caller = await caller_of(parts, connector)
    names = sorted({name.strip() for name in config.get("topics", "").split(",")} - {""})
    found: list[Topic] = []
    for name in names:
        caller.require_topic(Operation.READ, prefix + name)
        try:
            found.append(await gateway.topics.get(prefix + name))
        except (UnknownTopicOrPartition, InvalidTopic):
            continue  # It may be created later.
    with suppress(UnknownTopicOrPartition, InvalidTopic):
        queue = queue_of(connector.name.removeprefix(prefix))
        found.append(await gateway.topics.get(prefix + queue))
    pattern = config.get("topics.regex", "")
    if not pattern or names:
        return found
    check_pattern(pattern)
    own = config.get(DLQ_TOPIC)
    by_name = {
        topic.name.removeprefix(prefix): topic
        for topic in await gateway.topics.all()
        if topic.name.startswith(prefix)
    }
    # Its own dead letters would come back for ever.
    names = [n for n in matching(pattern, by_name) if n != own and not n.startswith(INTERNAL)]
    return found + [
        by_name[name]
        for name in sorted(names)
        if caller.allows(Operation.READ, ResourceType.TOPIC, prefix + name)
    ]
