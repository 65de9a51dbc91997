"""A consumer group as a value, and its transitions. Pure.

The group item holds the members, the partitions that each member must get (`target`), and the
partitions that previous owners have not yet given up (`held`). A change of members, subscriptions
or topics makes a new generation with a new target. From then on

    assignment of a member  =  its target, less what another member still holds
    to revoke               =  what it holds and must give up

A member that has stopped reading a partition it had to revoke leaves it out of `owned` in a
heartbeat of the current generation. Only then is the partition removed from `held` and added to
the assignment of its new owner. Within one generation, no partition is ever assigned to two
members: the old owner sees the new generation only with the partition taken away. In a stable
group `held` is empty and nothing writes the group item.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeVar

import msgspec
import pyarrow as pa

from service.groups.assignors import ASSIGNORS, Shares, TopicPartition
from service.groups.classic import consumers
from service.groups.classic.shape import Classic, Phase
from service.groups.patterns import matching
from storage.errors import Corrupt, GroupFull
from storage.formats import frames
from storage.formats.partitions import PartitionNumber

T = TypeVar("T")

_MAGIC: Final = b"RGP1"
_CLASSIC_MAGIC: Final = b"RGP2"
_LENGTH: Final = struct.Struct("<I")

CLASSIC_BYTES_MAX: Final = 8 * 1024 * 1024
"""Maximum size of a classic group before compression: what every write and read of it costs."""

Kind = Literal["native", "classic"]

Places = dict[str, tuple[PartitionNumber, ...]]
"""Partitions by topic."""

Protocol = Literal["http", "consumer", "classic"]
"""How a member of a native group speaks: by HTTP, or by one of Kafka's two group protocols."""


class Member(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """A regular expression that whole topic names must match, instead of `topics`."""
    instance_id: str | None = None
    session_timeout_ms: int
    client: str = ""
    host: str = ""
    """The address that it joined from; known of Kafka's clients."""
    rebalance_timeout_ms: int = 0
    """How long a rebalance may wait for it; 0: it did not say."""
    name_prefix: str = ""
    """Of a tenant: `pattern` matches what follows after it, and no name without it."""
    protocol: Protocol = "http"
    rack: str = ""
    given: dict[str, tuple[PartitionNumber, ...]] = msgspec.field(default_factory=dict)
    """Of a classic consumer in a native group: what it was told to read when it joined."""
    joined: int = 0
    """The generation that it has joined."""
    is_away: bool = False
    """Whether a static member has left for a short while: its session goes on without it."""

    def wants(self, existing: Mapping[str, int]) -> list[str]:
        named = [topic for topic in self.topics if topic in existing]
        if self.pattern is None:
            return named
        prefix = self.name_prefix
        inside = [name.removeprefix(prefix) for name in existing if name.startswith(prefix)]
        found = [prefix + name for name in matching(self.pattern, inside)]
        return list(dict.fromkeys([*named, *found]))

    def reads_as(self, other: "Member") -> bool:
        """Whether both subscribe to the same."""
        return (set(self.topics), self.pattern) == (set(other.topics), other.pattern)


class Gain(msgspec.Struct, frozen=True, array_like=True):
    """What a member of Kafka's protocols was given last.

    What it had before it may commit although it does not know the newest generation yet.
    """

    generation: int
    places: Places
    """Given in `generation`; everything else of the member in `floor` or earlier."""
    floor: int


class Group(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    generation: int = 0
    assignor: str = "sticky"
    members: dict[str, Member] = msgspec.field(default_factory=dict)
    target: dict[str, Places] = msgspec.field(default_factory=dict)
    held: dict[str, Places] = msgspec.field(default_factory=dict)
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    """Partition count of every topic that a member subscribes to, as of this generation."""
    since: dict[str, int] = msgspec.field(default_factory=dict)
    """By member that holds what it must give up: the generation that last took something away."""
    gained: dict[str, Gain] = msgspec.field(default_factory=dict)
    """By member of Kafka's protocols."""
    classic: Classic | None = None
    """Of a classic group, whose members assign partitions, or whatever it is, among themselves:
    then `assignor`, `target`, `held` and `counts` say nothing. None: the group is native."""

    @property
    def kind(self) -> Kind:
        return "native" if self.classic is None else "classic"

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.classic is not None:
            return _STATES[self.classic.phase]
        return "PreparingRebalance" if self.held else "Stable"

    @property
    def protocol_type(self) -> str:
        """Kafka's word for what the members are: `consumer`, unless a classic group says else."""
        return consumers.PROTOCOL_TYPE if self.classic is None else self.classic.protocol_type

    @property
    def agreed_assignor(self) -> str:
        """The assignor; of a classic group the one its members have agreed on, or empty."""
        return self.assignor if self.classic is None else self.classic.protocol

    def protocol_of(self, member_id: str) -> Protocol:
        return "classic" if self.classic is not None else self.members[member_id].protocol

    def assignment(self, member_id: str) -> list[TopicPartition]:
        """Return what the member reads; of classic members, what consumers among them do."""
        if self.classic is not None:
            return self._classic_assignment(self.classic, member_id)
        others = {
            place
            for other, places in self.held.items()
            if other != member_id
            for place in flat(places)
        }
        return [p for p in flat(self.target.get(member_id, {})) if p not in others]

    def revocations(self, member_id: str) -> list[TopicPartition]:
        """Return the partitions that the member holds and must give up."""
        return flat(self.held.get(member_id, {}))

    def is_subscribed(self, member_id: str, topic: str) -> bool:
        """Whether the member reads the topic, by its name or by a pattern."""
        if self.classic is not None:
            return topic in self.subscription(member_id)
        return bool(self.members[member_id].wants({topic: 1}))

    def told(self, member_id: str) -> int:
        """Return the generation from which on the member knows all that it must give up."""
        return self.since.get(member_id, self.generation)

    def may_commit(self, member_id: str) -> set[TopicPartition]:
        """Return the partitions whose offsets a native member may commit."""
        return {*self.assignment(member_id), *self.revocations(member_id)}

    def has_had(self, member_id: str, place: TopicPartition, generation: int) -> bool:
        """Whether the member has had a partition that it has now ever since `generation`.

        False where that is not known.
        """
        gain = self.gained.get(member_id)
        if gain is None:
            return generation == self.generation
        is_new = place[1] in gain.places.get(place[0], ())
        return generation >= (gain.generation if is_new else gain.floor)

    def subscription(self, member_id: str) -> list[str]:
        """Return the topics that the member names; of classic members, if it is a consumer."""
        member = self.members[member_id]
        if self.classic is None or self.classic.protocol_type != consumers.PROTOCOL_TYPE:
            return list(member.topics)
        known = self.classic.members[member_id]
        named = {topic for _, data in known.protocols for topic in consumers.subscribed(data)}
        return [member.name_prefix + topic for topic in sorted(named)]

    def _classic_assignment(self, classic: Classic, member_id: str) -> list[TopicPartition]:
        known = classic.members.get(member_id)
        if known is None or classic.protocol_type != consumers.PROTOCOL_TYPE:
            return []
        prefix = self.members[member_id].name_prefix
        return [(prefix + topic, number) for topic, number in consumers.assigned(known.assignment)]


_STATES: Final = {
    Phase.JOINING: "PreparingRebalance",
    Phase.SYNCING: "CompletingRebalance",
    Phase.STABLE: "Stable",
}
"""Kafka's names of the phases."""


def join(group: Group, member_id: str, member: Member, existing: Mapping[str, int]) -> Group:
    """Return the group with the member; a static member replaces its previous instance."""
    before = static_member(group, member.instance_id)
    if before is not None:
        same = group.members[before]
        moved = _renamed(group, before, member_id, member)
        if same.reads_as(member):
            # The same instance, restarted: it keeps its partitions, and no rebalance is needed.
            return moved
        return rebalance(moved, existing)
    members = {**group.members, member_id: member}
    return rebalance(msgspec.structs.replace(group, members=members), existing)


def leave(group: Group, gone: Sequence[str], existing: Mapping[str, int]) -> Group:
    """Return the group without the members `gone`; their partitions are no longer held."""
    members = {m: member for m, member in group.members.items() if m not in gone}
    held = {m: places for m, places in group.held.items() if m not in gone}
    target = {m: places for m, places in group.target.items() if m not in gone}
    smaller = msgspec.structs.replace(group, members=members, held=held, target=target)
    return rebalance(smaller, existing)


def rebalance(group: Group, existing: Mapping[str, int]) -> Group:
    """Return the next generation of the group."""
    wants = {m: member.wants(existing) for m, member in group.members.items()}
    counts = {t: existing[t] for topics in wants.values() for t in topics}
    # The members that may be reading now: a partition's holder, else its assigned member.
    readers = {m: _reads(group, m) for m in group.members}
    shares = ASSIGNORS[group.assignor](wants, counts, readers)
    held: dict[str, Places] = {}
    since: dict[str, int] = {}
    for m, places in readers.items():
        share = set(shares[m])
        kept = [place for place in places if place not in share]
        if kept:
            held[m] = nested(kept)
            takes_more = not set(kept) <= set(group.revocations(m))
            since[m] = group.generation + 1 if takes_more else group.told(m)
    return msgspec.structs.replace(
        group,
        generation=group.generation + 1,
        counts=counts,
        target={m: nested(places) for m, places in shares.items()},
        held=held,
        since=since,
        gained=_gained(group, shares),
    )


def _reads(group: Group, member_id: str) -> list[TopicPartition]:
    """Return all that the member may be reading now."""
    member = group.members[member_id]
    places = [*group.assignment(member_id), *group.revocations(member_id)]
    if member.protocol != "classic":
        return places
    # It reads nothing that it was not given when it joined, although that may be free by now.
    given = set(flat(member.given))
    return [place for place in places if place in given]


def _gained(group: Group, shares: Shares) -> dict[str, Gain]:
    """Return what members of Kafka's protocols have gained last, after they got `shares`."""
    gained: dict[str, Gain] = {}
    for m, member in group.members.items():
        if member.protocol == "http":
            continue
        had = {*flat(group.target.get(m, {})), *group.revocations(m)}
        new = [place for place in shares[m] if place not in had]
        before = group.gained.get(m) or Gain(group.generation, {}, group.generation)
        if not had:
            gained[m] = Gain(group.generation + 1, {}, group.generation + 1)
        elif new:
            gained[m] = Gain(group.generation + 1, nested(new), before.generation)
        else:
            gained[m] = before
    return gained


def release(
    group: Group, member_id: str, owned: Sequence[TopicPartition], generation: int
) -> Group:
    """Return the group after the member reported `owned`; the same object if nothing changes.

    A heartbeat of a generation older than the one that took partitions away says nothing about
    them: the member did not know yet that it must give them up. What was taken before, and has
    not been given back since, it may report with any later generation.
    """
    holding = group.revocations(member_id)
    kept = [place for place in holding if place in set(owned)]
    if len(kept) == len(holding) or generation < group.told(member_id):
        return group
    held = {m: places for m, places in group.held.items() if m != member_id}
    since = {m: told for m, told in group.since.items() if m != member_id}
    if kept:
        held[member_id] = nested(kept)
        since[member_id] = group.told(member_id)
    return msgspec.structs.replace(group, held=held, since=since)


def update(group: Group, member_id: str, member: Member, existing: Mapping[str, int]) -> Group:
    """Return the group with what its member has become; a new generation if it reads other topics.

    The same object if nothing changes.
    """
    before = group.members[member_id]
    if member == before:
        return group
    members = {**group.members, member_id: member}
    new = msgspec.structs.replace(group, members=members)
    return new if member.reads_as(before) else rebalance(new, existing)


def set_aside(group: Group, member_id: str) -> Group:
    """Return the group after a static member left for a short while.

    It keeps its share until its session ends, but reads nothing: what it had to give up is free.
    """
    away = msgspec.structs.replace(group.members[member_id], is_away=True)
    released = release(group, member_id, [], group.generation)
    members = {**released.members, member_id: away}
    return msgspec.structs.replace(released, members=members)


def is_outdated(group: Group, existing: Mapping[str, int]) -> bool:
    """Whether topics or partitions were added or removed since this generation was made."""
    wanted = {t for member in group.members.values() for t in member.wants(existing)}
    return {topic: existing[topic] for topic in wanted} != group.counts


def static_member(group: Group, instance_id: str | None) -> str | None:
    """Return the id of the current member with this instance id, if any."""
    if instance_id is None:
        return None
    return next(
        (m for m, member in group.members.items() if member.instance_id == instance_id), None
    )


def _renamed(group: Group, before: str, after: str, member: Member) -> Group:
    def rename(by_member: Mapping[str, T]) -> dict[str, T]:
        return {after if m == before else m: of for m, of in by_member.items()}

    members = {m: known for m, known in group.members.items() if m != before}
    return msgspec.structs.replace(
        group,
        members={**members, after: member},
        target=rename(group.target),
        held=rename(group.held),
        since=rename(group.since),
        gained=rename(group.gained),
    )


def flat(places: Mapping[str, Sequence[PartitionNumber]]) -> list[TopicPartition]:
    return [(topic, partition) for topic in sorted(places) for partition in places[topic]]


def nested(places: Sequence[TopicPartition]) -> Places:
    by_topic: dict[str, list[PartitionNumber]] = {}
    for topic, partition in sorted(places):
        by_topic.setdefault(topic, []).append(partition)
    return {topic: tuple(partitions) for topic, partitions in by_topic.items()}


_DECODER: Final = msgspec.msgpack.Decoder(Group)


def encode(group: Group) -> bytes:
    """Return the item of a group.

        native    RGP1  msgpack
        classic   RGP2  length (u32, little-endian)  zstd(msgpack)

    The length is that of the msgpack.
    A gateway that does not know classic groups reads an error then, not an empty group.
    """
    packed = msgspec.msgpack.encode(group)
    if group.classic is None:
        return frames.seal(_MAGIC, packed)
    if len(packed) > CLASSIC_BYTES_MAX:
        raise GroupFull(
            f"the group would take {len(packed)} bytes, the limit is {CLASSIC_BYTES_MAX}"
        )
    pressed = pa.compress(packed, codec="zstd", asbytes=True)
    return frames.seal(_CLASSIC_MAGIC, _LENGTH.pack(len(packed)) + pressed)


def decode(value: bytes) -> Group:
    """Return the group that an item holds, or raise `Corrupt`."""
    if value[:4] != _CLASSIC_MAGIC:
        return frames.unpack(_MAGIC, value, _DECODER, "the item of a group")
    payload = frames.unseal(_CLASSIC_MAGIC, value)
    try:
        [length] = _LENGTH.unpack_from(payload)
        if length > CLASSIC_BYTES_MAX:
            raise ValueError(f"it says that it has {length} bytes")
        packed = pa.decompress(payload[_LENGTH.size :], length, "zstd", asbytes=True)
    except (struct.error, pa.ArrowException, OSError, ValueError) as error:
        raise Corrupt(f"the item of a classic group cannot be decoded: {error}") from error
    return frames.decoded(packed, _DECODER, "the item of a classic group")
