"""What the head of a lane says about one partition."""

from dataclasses import dataclass

from storage.errors import Contended
from storage.formats import zone_sets
from storage.formats.partitions import LanePartition, PartitionNumber
from storage.head import replication
from storage.head.head import Head


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    partition: PartitionNumber
    leader: str | None
    leader_epoch: int
    replicas: list[str]
    isr: list[str]
    log_start_offset: int
    high_watermark: int
    size_bytes: int


def partition_info(partition: PartitionNumber, local: LanePartition, head: Head) -> PartitionInfo:
    """Return the state of `partition`, which is `local` in its lane."""
    order = replication.turned(head, local)
    in_sync = [number for number in order if zone_sets.has(head.isr, number)]
    return PartitionInfo(
        partition=partition,
        leader=head.zones[in_sync[0]] if in_sync else None,
        leader_epoch=head.leader_epoch,
        replicas=[head.zones[number] for number in order],
        isr=[head.zones[number] for number in in_sync],
        log_start_offset=head.log_starts[local],
        high_watermark=head.next_offsets[local],
        size_bytes=head.sizes[local],
    )


def check_width(head: Head, local: LanePartition) -> None:
    """Raise `Contended` if the head has no place yet for a partition that the topic has."""
    if local >= head.partition_count:
        raise Contended("the partition is just being added; send it again")
