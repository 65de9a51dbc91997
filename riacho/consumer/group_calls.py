"""The gateway calls of a consumer group member, as values.

    join ──▶ Beat(member, generation, assignment, revoke)
    heartbeat(generation, owned) ──▶ the same, as it is now
    commit(offsets, member, generation) · committed() · leave()

Nothing is retried here. Every call may be repeated after a lost reply: heartbeats and commits are
idempotent, and an unanswered join leaves a member without heartbeats, whose session expires.
`docs/groups.md` explains the protocol.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import quote

from riacho.errors import new_error
from riacho.http.gateway import Gateway, Reply
from riacho.records import TopicPartition
from storage.errors import OutcomeUnknown

Strategy: TypeAlias = Literal["sticky", "range", "roundrobin"]


class OffsetAndMetadata(NamedTuple):
    """An offset to commit, that of the next record to read, and a note for operators."""

    offset: int
    metadata: str = ""


Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]

OffsetsGiven: TypeAlias = Mapping[tuple[str, int], "int | tuple[int, str]"]
"""Offsets to commit, by (topic, partition): a number, or an `OffsetAndMetadata`."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants to read: topics by name, or all whose whole name matches a pattern."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    group_id: str
    session_timeout_ms: int
    instance_id: str | None = None
    strategy: Strategy | None = None
    client_id: str = ""


@dataclass(frozen=True, slots=True)
class Beat:
    """The group's answer to a member: its generation, what to read, what to give up."""

    member_id: str
    generation: int
    assignment: frozenset[TopicPartition]
    revoke: frozenset[TopicPartition]


class GroupClient:
    def __init__(self, gateway: Gateway, settings: MemberSettings) -> None:
        self._gateway = gateway
        self.settings = settings

    async def join(self, subscription: Subscription) -> Beat:
        """Become a member. Raises `InconsistentGroup` if the others use another strategy."""
        settings = self.settings
        body: dict[str, Any] = {
            "session_timeout_ms": settings.session_timeout_ms,
            "assignor": settings.strategy,
            "instance_id": settings.instance_id,
            "client_id": settings.client_id,
        }
        if subscription.pattern is None:
            body["topics"] = subscription.topics
        else:
            body["topics_pattern"] = subscription.pattern
        reply = await self._gateway.request("POST", self._path("members"), json=body)
        return _beat(reply, None)

    async def heartbeat(self, beat: Beat, owned: Iterable[TopicPartition] | None) -> Beat:
        """Keep the session, and report the partitions still owned; None reports nothing."""
        body: dict[str, Any] = {"generation": beat.generation}
        if owned is not None:
            body["owned"] = [{"topic": t, "partition": p} for t, p in sorted(owned)]
        path = self._path("members", beat.member_id, "heartbeat")
        reply = await self._gateway.request(
            "POST", path, json=body, timeout_s=self.settings.session_timeout_ms / 3000
        )
        return _beat(reply, beat.member_id)

    async def leave(self, member_id: str) -> None:
        await self._gateway.request("DELETE", self._path("members", member_id))

    async def holder_of_instance(self) -> str | None:
        """Return the member that has our `instance_id` now; None if there is none."""
        reply = await self._gateway.request("GET", self._path())
        for member in reply.json().get("members", ()):
            if member.get("instance_id") == self.settings.instance_id:
                return str(member["member_id"])
        return None

    async def commit(self, offsets: Offsets, beat: Beat | None) -> None:
        """Record `offsets`, all or none, as the member of `beat` or from outside the group."""
        body = offsets_document(offsets, beat)
        await self._gateway.request("POST", self._path("offsets"), json=body)

    async def committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return all that the group has committed."""
        reply = await self._gateway.request("GET", self._path("offsets"))
        return {
            TopicPartition(one["topic"], one["partition"]): OffsetAndMetadata(
                one["offset"], one.get("metadata") or ""
            )
            for one in reply.json()["offsets"]
        }

    def _path(self, *rest: str) -> str:
        return group_path(self.settings.group_id, *rest)


def group_path(group_id: str, *rest: str) -> str:
    """Return the path of a group or of something below it."""
    return "/".join(["/v1/groups", *(quote(part, safe="") for part in (group_id, *rest))])


def offsets_given(offsets: OffsetsGiven) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return `offsets` as they are committed. Raises `ValueError` for a negative one."""
    found = {
        TopicPartition(*place): OffsetAndMetadata(one)
        if isinstance(one, int)
        else OffsetAndMetadata(*one)
        for place, one in offsets.items()
    }
    for partition, one in found.items():
        if one.offset < 0:
            raise ValueError(f"an offset is not negative: {one.offset} for {partition}")
    return found


def offsets_document(offsets: Offsets, beat: Beat | None) -> dict[str, Any]:
    """Return the body of a commit, by the member of `beat`, or from outside the group."""
    document: dict[str, Any] = {
        "offsets": [
            {"topic": topic, "partition": p, "offset": offset, "metadata": metadata}
            for (topic, p), (offset, metadata) in offsets.items()
        ]
    }
    if beat is not None:
        document |= {"member_id": beat.member_id, "generation": beat.generation}
    return document


def _beat(reply: Reply, member_id: str | None) -> Beat:
    document = reply.json()
    try:
        return Beat(
            member_id or document["member_id"],
            document["generation"],
            _places(document["assignment"]),
            _places(document["revoke"]),
        )
    except (KeyError, TypeError) as error:
        detail = f"the reply of the group cannot be read: {error!r}"
        raise new_error(OutcomeUnknown, detail, retryable=False) from error


def _places(places: Iterable[Mapping[str, Any]]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(place["topic"], place["partition"]) for place in places)
