"""What members of native groups that speak Kafka's protocols may commit. Pure."""

from collections.abc import Sequence

from service.groups.assignors import TopicPartition
from service.groups.beats import unknown_member
from service.groups.classic.rounds import Claimant
from service.groups.state import Group, static_member
from storage.errors import IllegalGeneration, InstanceFenced, RebalanceInProgress, StaleMemberEpoch


def check_commit(
    group_id: str,
    group: Group,
    claimant: Claimant,
    places: Sequence[TopicPartition],
) -> None:
    """Raise unless the member may commit all these partitions in the epoch that it names.

    Kafka changes the epoch of a member only when it answers it. Here the generation moves on
    without asking, so an older epoch is as good for what the member has had ever since: nobody
    else can have committed that meanwhile.
    """
    member_id, epoch = claimant.member_id, claimant.generation
    member = group.members.get(member_id)
    holder = static_member(group, claimant.instance_id)
    if holder not in {None, member_id}:
        raise InstanceFenced(
            f"{holder!r} is now the member of group {group_id!r} with the instance id"
            f" {claimant.instance_id!r}"
        )
    if member is None or member.protocol == "http":
        raise unknown_member(group_id, member_id)
    if member.protocol == "classic" and epoch != member.joined:
        raise IllegalGeneration(f"{member_id!r} has joined generation {member.joined}, not {epoch}")
    if epoch > group.generation or epoch < 0:
        raise StaleMemberEpoch(f"group {group_id!r} has no epoch {epoch}; it is {group.generation}")
    mine = group.may_commit(member_id)
    for place in places:
        if place in mine:
            is_allowed = group.has_had(member_id, place, epoch)
        else:
            # What no member reads is not in dispute.
            is_allowed = epoch == group.generation and place[0] not in group.counts
        if not is_allowed and member.protocol == "classic":
            raise RebalanceInProgress(
                f"{place[0]}/{place[1]} is not that of {member_id!r} any more; join again"
            )
        if not is_allowed:
            raise StaleMemberEpoch(
                f"{place[0]}/{place[1]} is not that of {member_id!r} in epoch {epoch} of group"
                f" {group_id!r}; send a heartbeat to learn what is"
            )
