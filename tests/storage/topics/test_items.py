"""Partitions of a topic and of its lanes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import UnknownTopicOrPartition
from storage.topics.config import TopicConfig
from storage.topics.items import Topic
from tests.examples import some


def topic_of(partition_count: int, lane_partitions: int) -> Topic:
    return Topic(
        name="t",
        topic_id=bytes(16),
        partition_count=partition_count,
        replication_factor=1,
        config=TopicConfig({}),
        created_ms=0,
        version="",
        lane_partitions=lane_partitions,
    )


@some
@given(st.integers(1, 200), st.integers(1, 64))
def test_every_partition_has_one_place_in_one_lane(count: int, width: int) -> None:
    topic = topic_of(count, width)

    places = [topic.lane_of(partition) for partition in topic.partitions]

    assert [topic.partition_of(*place) for place in places] == list(range(count))
    assert all(local < width for _, local in places)
    assert [p for lane in topic.lanes for p in topic.partitions_of(lane)] == topic.partitions
    assert all(
        topic.lane_of(p)[0] == lane for lane in topic.lanes for p in topic.partitions_of(lane)
    )


def test_a_partition_that_the_topic_does_not_have_is_refused() -> None:
    topic = topic_of(5, 2)

    assert (topic.lane_of(4), topic.partitions_of(2)) == ((2, 0), [4])
    with pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 4, not 5"):
        topic.lane_of(5)
    with pytest.raises(UnknownTopicOrPartition):
        topic.lane_of(-1)
