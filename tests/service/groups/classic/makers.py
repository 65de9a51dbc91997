"""Members and rounds of classic groups, made in one line."""

from service.groups.classic import rounds
from service.groups.classic.rounds import Claimant, Joining
from service.groups.classic.shape import Classic
from service.groups.state import Group


def joining(
    member_id: str,
    *protocols: str,
    is_new: bool = True,
    instance_id: str | None = None,
    protocol_type: str = "consumer",
    metadata: bytes = b"",
    session_ms: int = 10_000,
    rebalance_ms: int = 60_000,
) -> Joining:
    """Return what a member says; its metadata of a protocol begins with its own name."""
    names = protocols or ("range",)
    return Joining(
        member_id=member_id,
        is_new=is_new,
        instance_id=instance_id,
        client=member_id,
        host="127.0.0.1",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        protocol_type=protocol_type,
        protocols=tuple(
            (name, (metadata or member_id.encode()) + b" " + name.encode()) for name in names
        ),
    )


def again(member_id: str, *protocols: str, **fields: object) -> Joining:
    return joining(member_id, *protocols, is_new=False, **fields)  # type: ignore[arg-type]


def met(*member_ids: str) -> Group:
    """Return a group of these members, whose leader, the first one, has not assigned yet."""
    group = Group()
    for member_id in member_ids:
        group = rounds.join(group, joining(member_id), waits=True)
    return rounds.complete(group, group.generation + 1)


def stable(*member_ids: str) -> Group:
    """Return a group of these members, each of which is assigned its own name."""
    return assign(met(*member_ids))


def assign(group: Group) -> Group:
    """Return the group after its leader has assigned everyone its own name."""
    leader = classic(group).leader
    shares = {m: m.encode() for m in group.members}
    return rounds.sync(group, me(group, leader), None, None, shares)


def me(group: Group, member_id: str, instance_id: str | None = None) -> Claimant:
    """Return who a member says that it is if it knows the current generation."""
    return Claimant(member_id=member_id, instance_id=instance_id, generation=group.generation)


def classic(group: Group) -> Classic:
    assert group.classic is not None
    return group.classic
