"""What handlers about groups ask of a caller, and what they call topics."""

from collections.abc import Iterable, Mapping
from typing import Final

from service.groups.assignors import TopicPartition
from service.groups.coordinator import Coordinator
from service.security.acls import Operation, ResourceType
from service.security.caller import Caller

NOT_ASKED: Final = -(2**31)
"""What a client reads that did not ask for its authorized operations."""

OPERATION_CODES: Final = {
    Operation.READ: 3,
    Operation.DELETE: 6,
    Operation.DESCRIBE: 8,
    Operation.DESCRIBE_CONFIGS: 10,
    Operation.ALTER_CONFIGS: 11,
}
"""Kafka's numbers of what can be done with a group."""

LISTED_AGE_MAX_S: Final = 1.0
"""Minimum time between two lists of all topics that look for an unknown topic."""


def may(caller: Caller, operation: Operation, group_id: str) -> bool:
    """Whether the caller may do this with the group of this full name."""
    return caller.allows(operation, ResourceType.GROUP, group_id)


def may_topic(caller: Caller, operation: Operation, topic: str) -> bool:
    return caller.allows(operation, ResourceType.TOPIC, topic)


def authorized_operations(caller: Caller, group_id: str, *, is_asked: bool) -> int:
    """Return the operations on the group that the caller may do, a bit for each."""
    if not is_asked:
        return NOT_ASKED
    return sum(1 << code for op, code in OPERATION_CODES.items() if may(caller, op, group_id))


async def names_of(coordinator: Coordinator, topic_ids: Iterable[bytes]) -> Mapping[bytes, str]:
    """Return full names of topics by id: of all that are known, with these if they exist."""
    topics = await coordinator.topics()
    if all(bytes(one) in topics.names for one in topic_ids):
        return topics.names
    return (await coordinator.topics(LISTED_AGE_MAX_S)).names


async def ids_of(
    coordinator: Coordinator, topics: Iterable[str], age_max_s: float = LISTED_AGE_MAX_S
) -> Mapping[str, bytes]:
    """Return ids of topics by full name: of all that are known, with these if they exist.

    Topics that are not known are looked for in a list that is at most `age_max_s` old.
    """
    known = await coordinator.topics()
    if all(topic in known.ids for topic in topics):
        return known.ids
    return (await coordinator.topics(age_max_s)).ids


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partitions of each topic, in order."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        found.setdefault(topic, []).append(int(partition))
    return found
