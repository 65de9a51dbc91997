"""Wrong requests of members, to groups that have one."""

from collections.abc import Callable, Generator
from typing import Any

from service.kafka.protocol.messages.classic_groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
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
from service.kafka.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from service.kafka.protocol.messages.group_admin import DeleteGroupsRequest
from tests.service.kafka.recorded.asked import Ask, Talk

SUBSCRIPTION = b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff"
"""Of a consumer of t, version 0."""

Last = Callable[[str, str, int], Ask]
"""Makes a request of a group, a member and its generation or epoch."""


def join(
    group: str,
    member: str = "",
    *,
    kind: str = "consumer",
    protocol: str = "range",
    instance: str | None = None,
    version: int = 3,
) -> Ask:
    protocols = [JoinGroupRequestProtocol(name=protocol, metadata=SUBSCRIPTION)]
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member,
        group_instance_id=instance,
        protocol_type=kind,
        protocols=protocols,
    )
    return Ask(version, request)


def sync(group: str, member: str, generation: int, protocol: str = "range") -> Ask:
    request = SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        protocol_type="consumer",
        protocol_name=protocol,
        assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"\0\0")],
    )
    return Ask(5, request)


def beat(group: str, member: str, generation: int, instance: str | None = None) -> Ask:
    request = HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
    )
    return Ask(4, request)


def commit(group: str, member: str, generation: int) -> Ask:
    place = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=generation,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[place])],
    )
    return Ask(9, request)


def committed(group: str, member: str, epoch: int) -> Ask:
    wanted = OffsetFetchRequestGroup(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])],
    )
    return Ask(9, OffsetFetchRequest(groups=[wanted]))


def leave(group: str, member: str) -> Ask:
    return Ask(4, LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)]))


def delete_offsets(group: str) -> Ask:
    places = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=places)]
    return Ask(0, OffsetDeleteRequest(group_id=group, topics=topics))


def delete(group: str) -> Ask:
    return Ask(2, DeleteGroupsRequest(groups_names=[group]))


def consume(group: str, member: str, epoch: int, topics: list[str] | None = None) -> Ask:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=30_000 if epoch == 0 else -1,
        subscribed_topic_names=topics,
        topic_partitions=[] if epoch == 0 else None,
    )
    return Ask(1, request)


def classic(name: str, last: Last, *, synced: bool = True) -> Talk:
    """Return what the only member of a group says last."""

    def talk() -> Generator[Ask, Any, None]:
        joined = yield join(name)
        if synced:
            yield sync(name, joined.member_id, joined.generation_id)
        yield last(name, joined.member_id, joined.generation_id)

    return talk


def native(name: str, last: Last) -> Talk:
    """Return what the only member of a group of KIP-848 says last."""

    def talk() -> Generator[Ask, Any, None]:
        joined = yield consume(name, "m", 0, ["t"])
        yield last(name, "m", joined.member_epoch)

    return talk


def left(group: str) -> Talk:
    def talk() -> Generator[Ask, Any, None]:
        joined = yield join(group)
        yield leave(group, joined.member_id)
        yield beat(group, joined.member_id, joined.generation_id)

    return talk


def twice(group: str) -> Talk:
    """Return what the first of two says that have the same instance id."""

    def talk() -> Generator[Ask, Any, None]:
        first = yield join(group, instance="i", version=5)
        yield sync(group, first.member_id, first.generation_id)
        yield join(group, instance="i", version=5)
        yield beat(group, first.member_id, first.generation_id, instance="i")

    return talk


MEMBERS: dict[str, Talk] = {
    "member, heartbeat": classic("c1", beat),
    "member, heartbeat before the assignment": classic("c2", beat, synced=False),
    "member, heartbeat of another generation": classic("c3", lambda g, m, n: beat(g, m, n + 1)),
    "member, heartbeat of another member": classic("c4", lambda g, m, n: beat(g, "other", n)),
    "member, heartbeat with an unknown instance": classic(
        "c5", lambda g, m, n: beat(g, m, n, instance="i")
    ),
    "member, sync of another generation": classic("c6", lambda g, m, n: sync(g, m, n + 1)),
    "member, sync of another protocol": classic(
        "c7", lambda g, m, n: sync(g, m, n, "roundrobin"), synced=False
    ),
    "member, sync again": classic("c8", sync),
    "member, commit": classic("c9", commit),
    "member, commit before the assignment": classic("c10", commit, synced=False),
    "member, commit of another generation": classic("c11", lambda g, m, n: commit(g, m, n + 1)),
    "member, commit of another member": classic("c12", lambda g, m, n: commit(g, "other", n)),
    "member, commit from outside": classic("c13", lambda g, m, n: commit(g, "", -1)),
    "member, another protocol type": classic("c14", lambda g, m, n: join(g, kind="connect")),
    "member, another protocol": classic("c15", lambda g, m, n: join(g, protocol="other")),
    "member, the group is deleted": classic("c16", lambda g, m, n: delete(g)),
    "member, subscribed offsets are deleted": classic("c17", lambda g, m, n: delete_offsets(g)),
    "member, another one leaves": classic("c18", lambda g, m, n: leave(g, "other")),
    "member, heartbeat after it left": left("c19"),
    "member, its instance joined again": twice("c20"),
    "member, heartbeat of a consumer with an epoch": classic(
        "c21", lambda g, m, n: consume(g, m, 5)
    ),
    "consumer, another epoch": native("n1", lambda g, m, e: consume(g, m, e + 5)),
    "consumer, another member": native("n2", lambda g, m, e: consume(g, "other", e)),
    "consumer, commit": native("n3", commit),
    "consumer, commit of a later epoch": native("n4", lambda g, m, e: commit(g, m, e + 5)),
    "consumer, commit of an earlier epoch": native("n5", lambda g, m, e: commit(g, m, e - 1)),
    "consumer, commit of another member": native("n6", lambda g, m, e: commit(g, "other", e)),
    "consumer, commit from outside": native("n7", lambda g, m, e: commit(g, "", -1)),
    "consumer, committed, a later epoch": native("n8", lambda g, m, e: committed(g, m, e + 5)),
    "consumer, committed, another member": native("n9", lambda g, m, e: committed(g, "other", e)),
    "consumer, the group is deleted": native("n10", lambda g, m, e: delete(g)),
    "consumer, subscribed offsets are deleted": native("n11", lambda g, m, e: delete_offsets(g)),
    "consumer, a classic heartbeat": native("n12", beat),
}
