"""What the item of a group says of a classic group. Pure.

A classic group is what Kafka's JoinGroup and SyncGroup make: members meet, one of them leads, the
leader tells everyone its share, and Riacho understands neither what they offer nor what they get.

    phase      all members                 ends
    joining    join, or are waited for     when all have joined, or the time to join is over
    syncing    fetch their assignments     when the leader has brought them
    stable     read                        when a member joins, leaves or is silent for too long

A round is the time in `joining` and what follows, up to the next `joining`. The end of `joining`
makes the next generation, so a round is known by the generation that it makes. Members, with
their sessions, are in the group itself, as those of a native group are.
"""

from enum import StrEnum

import msgspec


class Phase(StrEnum):
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


class ClassicMember(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a classic group knows of a member besides its session."""

    protocols: tuple[tuple[str, bytes], ...] = ()
    """What it can do, best first: the name of a protocol, and its metadata."""
    joined: int = 0
    """The last generation that it has joined; the one in the making counts."""
    assignment: bytes = b""

    def metadata(self, protocol: str) -> bytes:
        return next((data for name, data in self.protocols if name == protocol), b"")


class Classic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a group that only a classic one has."""

    protocol_type: str = ""
    """What kind of program its members are: consumer, connect, sr, or any other."""
    protocol: str = ""
    """Chosen when joining ended, among those that all members offer."""
    leader: str = ""
    """A member id; empty without members."""
    phase: Phase = Phase.STABLE
    is_first: bool = False
    """Whether the group was empty when this round began: then it waits for more to come."""
    members: dict[str, ClassicMember] = msgspec.field(default_factory=dict)
    gone: tuple[str, ...] = ()
    """Members that left or were removed lately, the last one at the end: none of them can come
    back under its old id."""
