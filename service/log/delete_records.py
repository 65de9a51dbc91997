"""Delete records up to an offset by moving the log start. Any gateway can do this."""

from collections.abc import Mapping

from service.log.gateway import Gateway
from storage import keys
from storage.errors import Contended, HeadGone, HeadMissing, OffsetOutOfRange, PolicyViolation
from storage.formats.partitions import LanePartition, PartitionNumber
from storage.maintenance import trimming
from storage.maintenance.trimming import Trimming
from storage.topics.topics import Topic


async def delete_records(
    gateway: Gateway, topic_name: str, before: Mapping[PartitionNumber, int | None]
) -> dict[PartitionNumber, int]:
    """Hide the records before an offset, by partition; None: all current records.

    Return the new log start of each partition, which may be later already. Raises
    `OffsetOutOfRange`, and does nothing, if a partition ends before its offset; `PolicyViolation`
    if the topic is only compacted: its records are replaced by newer ones of their keys.
    """
    topic = await gateway.topics.read(topic_name)
    if not topic.config.is_deleted:
        raise PolicyViolation(
            f"topic {topic_name!r} has cleanup.policy=compact: a record goes when there is a newer"
            " one of its key; to delete records, set cleanup.policy to compact,delete first"
        )
    by_lane: dict[int, dict[LanePartition, int | None]] = {}
    for partition, offset in before.items():
        lane, local = topic.lane_of(partition)
        by_lane.setdefault(lane, {})[local] = offset
    # Check all lanes before changing any: all or nothing, unless a lane changes in between.
    try:
        for lane, wanted in by_lane.items():
            await _check(gateway, topic, lane, wanted)
        for lane, wanted in by_lane.items():
            await _delete(gateway, topic, lane, wanted)
    except HeadGone as error:
        if (await gateway.topics.read(topic_name)).topic_id == topic.topic_id:
            raise HeadMissing(topic_name, error.key) from error
        raise
    starts: dict[PartitionNumber, int] = {}
    for partition in before:
        starts[partition] = (await gateway.partition(topic_name, partition)).log_start_offset
    return starts


async def _check(
    gateway: Gateway, topic: Topic, number: int, wanted: Mapping[LanePartition, int | None]
) -> None:
    head = (await gateway.lanes.lane(topic.topic_id, number).view(0)).head
    for local, offset in wanted.items():
        if local >= head.partition_count:
            raise Contended("the partition is just being added; send it again")
        start, end = head.log_starts[local], head.next_offsets[local]
        if offset is not None and offset > end:
            raise OffsetOutOfRange(offset, start, end)


async def _delete(
    gateway: Gateway, topic: Topic, number: int, wanted: Mapping[LanePartition, int | None]
) -> None:
    plan = Trimming(gateway.catalog).deleting(wanted)
    key = keys.head(topic.topic_id, number)
    if await trimming.trim(gateway.metadata, key, plan) is None:
        raise HeadGone(key)
    # Later requests to this gateway see the new log start.
    await gateway.lanes.lane(topic.topic_id, number).view(0)
