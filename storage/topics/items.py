"""What a topic is, and how it is stored: its name, its shape, its settings."""

import re
from typing import Final

import msgspec

from storage.errors import Corrupt, InvalidTopic, UnknownTopicOrPartition
from storage.formats import frames
from storage.formats.partitions import LanePartition, PartitionNumber
from storage.stores.metadata import Versioned
from storage.topics.config import TopicConfig
from storage.topics.schema_rules import SchemaRule

NAME_CHARS_MAX: Final = 249
"""Maximum length of all that clients name: topics, groups, members, transactional ids."""

_MAGIC: Final = b"RTP1"
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def is_name(text: str) -> bool:
    """Whether `text` can name a group, a member or a producer; topics have one rule more."""
    return len(text) <= NAME_CHARS_MAX and _NAME.fullmatch(text) is not None


def parse_topic_name(text: str) -> str:
    """Return `text` if it is a topic name by Kafka's rules, or raise `InvalidTopic`."""
    if text in {"", ".", ".."}:
        raise InvalidTopic(f"a topic cannot be named {text!r}")
    if len(text) > NAME_CHARS_MAX:
        raise InvalidTopic(
            f"the topic name has {len(text)} characters, the limit is {NAME_CHARS_MAX}"
        )
    if _NAME.fullmatch(text) is None:
        raise InvalidTopic(
            f"{text!r} is not a topic name: use letters, digits, dots, underscores and hyphens"
        )
    return text


class StoredTopic(msgspec.Struct, array_like=True, frozen=True):
    topic_id: bytes
    partition_count: int
    replication_factor: int
    config: dict[str, str]
    created_ms: int

    @property
    def lane_count(self) -> int:
        return lane_count(self.partition_count, int(TopicConfig(self.config)["lane.partitions"]))


_DECODER: Final = msgspec.msgpack.Decoder(StoredTopic)


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    topic_id: bytes
    partition_count: int
    replication_factor: int
    config: TopicConfig
    created_ms: int
    version: str
    lane_partitions: int
    schema_rules: tuple[SchemaRule, ...] = ()
    """Which schemas its keys and values must have; empty: any, and nothing is looked at."""

    @property
    def in_sync_min(self) -> int:
        """How many zones must be in sync for acks=all: all replicas, if more are demanded."""
        return min(self.config.in_sync_min, self.replication_factor)

    def lane_of(self, partition: PartitionNumber) -> tuple[int, LanePartition]:
        """Return the lane of the partition and its number within the lane."""
        self.check_partition(partition)
        # Each append asks several times; to call `LanePartition` takes longer than to divide.
        return divmod(partition, self.lane_partitions)  # type: ignore[return-value]

    def partition_of(self, lane: int, partition: LanePartition) -> PartitionNumber:
        """Return the number of a partition of the lane: the inverse of `lane_of`."""
        return PartitionNumber(lane * self.lane_partitions + partition)

    def check_partition(self, partition: int) -> None:
        if not 0 <= partition < self.partition_count:
            raise UnknownTopicOrPartition(
                f"topic {self.name!r} has partitions 0 to {self.partition_count - 1},"
                f" not {partition}"
            )

    @property
    def partitions(self) -> list[PartitionNumber]:
        return [PartitionNumber(number) for number in range(self.partition_count)]

    def partitions_of(self, lane: int) -> list[PartitionNumber]:
        """Return the partitions of the lane, by their numbers in the topic."""
        first = lane * self.lane_partitions
        end = min(first + self.lane_partitions, self.partition_count)
        return [PartitionNumber(number) for number in range(first, end)]

    @property
    def lanes(self) -> range:
        return range(lane_count(self.partition_count, self.lane_partitions))


def lane_count(partition_count: int, lane_partitions: int) -> int:
    return -(-partition_count // lane_partitions)


def lane_width(partition_count: int, lane_partitions: int, lane: int) -> int:
    """Return how many partitions the lane has."""
    return min(lane_partitions, partition_count - lane * lane_partitions)


def encode(stored: StoredTopic) -> bytes:
    return frames.seal(_MAGIC, msgspec.msgpack.encode(stored))


def decode(name: str, item: Versioned) -> Topic:
    """Return the topic, or raise `Corrupt` if `item` is not what `encode` gave."""
    stored = frames.unpack(_MAGIC, item.value, _DECODER, f"the item of topic {name!r}")
    config = TopicConfig(stored.config)
    try:
        config.check()
    except ValueError as error:
        raise Corrupt(f"the item of topic {name!r} is not of a topic: {error}") from error
    return Topic(
        name=name,
        topic_id=stored.topic_id,
        partition_count=stored.partition_count,
        replication_factor=stored.replication_factor,
        config=config,
        created_ms=stored.created_ms,
        version=item.version,
        lane_partitions=int(config["lane.partitions"]),
        schema_rules=config.schema_rules,
    )
