"""The two numbers of a partition, as types that cannot be swapped.

A lane is up to 64 consecutive partitions of a topic, so that a partition has a number in its topic
and another one in its lane. Callers, keys and footers use the first, heads and the index the
second; `Topic.lane_of` and `Topic.partition_of` convert them (storage/topics/items.py).
"""

from typing import Final, NewType

PartitionNumber = NewType("PartitionNumber", int)
"""A partition by its number within its topic."""

LanePartition = NewType("LanePartition", int)
"""A partition by its number within its lane."""

FIRST: Final = LanePartition(0)
"""The first partition of a lane, for what concerns the lane as a whole."""
