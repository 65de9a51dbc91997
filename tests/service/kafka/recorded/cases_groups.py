"""Wrong requests about groups; there are none when they begin."""

from service.kafka.protocol.messages.classic_groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from service.kafka.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from service.kafka.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from service.kafka.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest
from tests.service.kafka.recorded.asked import Ask


def commit(
    group: str = "g",
    *,
    topic: str = "t",
    partition: int = 0,
    generation: int = -1,
    member: str = "",
    metadata: str = "",
) -> Ask:
    place = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=1, committed_metadata=metadata
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[place])],
    )
    return Ask(8, request)


def committed(group: str, topic: str = "t", member: str | None = None, epoch: int = -1) -> Ask:
    wanted = OffsetFetchRequestGroup(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
    )
    return Ask(9, OffsetFetchRequest(groups=[wanted]))


def join(
    group: str = "g",
    member: str = "",
    session_ms: int = 10_000,
    protocols: tuple[str, ...] = ("range",),
    kind: str = "consumer",
) -> Ask:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=10_000,
        member_id=member,
        protocol_type=kind,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=b"\0\0") for name in protocols],
    )
    return Ask(7, request)


def beat(
    group: str = "k",
    member: str = "m",
    epoch: int = 0,
    topics: list[str] | None = None,
    regex: str | None = None,
    assignor: str | None = None,
    instance: str | None = None,
    rebalance_ms: int = 10_000,
) -> Ask:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=rebalance_ms,
        subscribed_topic_names=topics,
        subscribed_topic_regex=regex,
        server_assignor=assignor,
        instance_id=instance,
        topic_partitions=[],
    )
    return Ask(1, request)


def delete_offset(group: str) -> Ask:
    places = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=places)]
    return Ask(0, OffsetDeleteRequest(group_id=group, topics=topics))


GROUPS: dict[str, Ask] = {
    "coordinator, an empty group": Ask(
        4, FindCoordinatorRequest(key_type=0, coordinator_keys=[""])
    ),
    "coordinator, an unknown type": Ask(
        4, FindCoordinatorRequest(key_type=7, coordinator_keys=["g"])
    ),
    "join, an empty group": join(""),
    "join, too short a session": join(session_ms=1),
    "join, too long a session": join(session_ms=10_000_000),
    "join, an unknown member": join(member="nobody"),
    "join, no protocols": join(protocols=()),
    "join, no protocol type": join(kind=""),
    "join, without an id": join(),
    "heartbeat, an unknown group": Ask(
        4, HeartbeatRequest(group_id="none", generation_id=1, member_id="m")
    ),
    "heartbeat, an empty group": Ask(
        4, HeartbeatRequest(group_id="", generation_id=1, member_id="m")
    ),
    "sync, an unknown group": Ask(
        4, SyncGroupRequest(group_id="none", generation_id=1, member_id="m")
    ),
    "sync, an empty group": Ask(4, SyncGroupRequest(group_id="", generation_id=1, member_id="m")),
    "leave, an unknown group": Ask(
        4, LeaveGroupRequest(group_id="none", members=[MemberIdentity(member_id="m")])
    ),
    "leave, an unknown group, one member": Ask(
        2, LeaveGroupRequest(group_id="none", member_id="m")
    ),
    "commit, an empty group": commit(""),
    "commit, no such topic": commit(topic="none"),
    "commit, no such partition": commit(partition=9),
    "commit, an unknown member": commit("none", member="m", generation=1),
    "commit, an unknown generation": commit("none", generation=3),
    "commit, too much metadata": commit(metadata="x" * 5000),
    "committed, an unknown group": committed("none"),
    "committed, an unknown topic": committed("none", topic="none"),
    "committed, an empty group": committed(""),
    "committed, an unknown member": committed("none", member="m", epoch=1),
    "describe groups, an unknown group": Ask(6, DescribeGroupsRequest(groups=["none"])),
    "describe groups, an unknown group, version 5": Ask(5, DescribeGroupsRequest(groups=["none"])),
    "delete groups, an unknown group": Ask(2, DeleteGroupsRequest(groups_names=["none"])),
    "delete offsets, an unknown group": delete_offset("none"),
    "delete offsets, an empty group": delete_offset(""),
    "consumer heartbeat, an empty group": beat("", topics=["t"]),
    "consumer heartbeat, nothing subscribed": beat(),
    "consumer heartbeat, an unknown member": beat(epoch=5),
    "consumer heartbeat, an unknown assignor": beat(topics=["t"], assignor="none"),
    "consumer heartbeat, a wrong pattern": beat(regex="("),
    "consumer heartbeat, an empty member": beat(member="", topics=["t"]),
    "consumer heartbeat, an epoch that is none": beat(epoch=-7),
    "consumer heartbeat, an empty instance": beat(topics=["t"], instance=""),
    "consumer heartbeat, no rebalance timeout": beat(topics=["t"], rebalance_ms=-1),
    "describe consumer groups, an unknown one": Ask(
        1, ConsumerGroupDescribeRequest(group_ids=["none"])
    ),
    "describe consumer groups, an empty name": Ask(1, ConsumerGroupDescribeRequest(group_ids=[""])),
}
