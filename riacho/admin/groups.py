"""Administration of groups: their members, their offsets and lag, and resetting them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from riacho.consumer.group_calls import OffsetAndMetadata, group_path
from riacho.http.background import Synchronous
from riacho.http.gateway import Gateway
from riacho.http.replies import parsed
from riacho.records import topic_names, topic_partitions

ResetTo: TypeAlias = Literal["earliest", "latest", "offset", "timestamp", "shift"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionName:
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    group: str
    state: str
    """As Kafka calls it: Empty, PreparingRebalance, CompletingRebalance or Stable."""
    kind: str
    """native or classic; the members of a classic group assign among themselves."""
    protocols: list[str]
    """What its members speak: some of http, consumer (Kafka's KIP-848) and classic."""
    protocol_type: str
    """What its members are: consumer, or what a classic group says, like connect."""
    generation: int
    assignor: str
    member_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    protocol: str
    """http, consumer or classic."""
    topics: list[str]
    topics_pattern: str | None
    session_timeout_ms: int
    assignment: list[PartitionName]
    revoke: list[PartitionName]
    """Partitions that it has been asked to give up, but still has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(GroupSummary):
    members: list[GroupMember]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    topic: str
    partition: int
    committed_offset: int
    """-1 if nothing is committed."""
    log_start_offset: int
    high_watermark: int
    lag: int
    """Records that are not yet read."""
    lag_seconds: float
    """How long the first of them has been waiting."""
    member_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    topic: str
    partition: int
    offset: int
    metadata: str
    committed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedOffset:
    topic: str
    partition: int
    before: int | None
    after: int


class AsyncGroupAdmin:
    _gateway: Gateway

    async def list_groups(self) -> list[GroupSummary]:
        """Return all groups, by name."""
        reply = await self._gateway.request("GET", "/v1/groups")
        return parsed(reply, list[GroupSummary], "groups")

    async def describe_group(self, group: str) -> Group:
        """Return a group and its members, or raise `UnknownGroup`."""
        return parsed(await self._gateway.request("GET", group_path(group)), Group)

    async def group_lag(self, group: str) -> list[PartitionLag]:
        """Return how far behind the group is, for every partition it reads or has committed."""
        reply = await self._gateway.request("GET", group_path(group, "lag"))
        return parsed(reply, list[PartitionLag], "partitions")

    async def group_offsets(self, group: str) -> list[CommittedOffset]:
        """Return what the group has committed."""
        reply = await self._gateway.request("GET", group_path(group, "offsets"))
        return parsed(reply, list[CommittedOffset], "offsets")

    async def commit_group_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], "int | tuple[int, str]"]
    ) -> None:
        """Set what the group has committed. Raises `UnknownMember` while it has members."""
        body = [
            {"topic": topic, "partition": partition, "offset": one.offset, "metadata": one.metadata}
            for (topic, partition), one in (
                (p, OffsetAndMetadata(o) if isinstance(o, int) else OffsetAndMetadata(*o))
                for p, o in offsets.items()
            )
        ]
        await self._gateway.request("POST", group_path(group, "offsets"), json={"offsets": body})

    async def reset_group(
        self,
        group: str,
        to: ResetTo,
        value: int | None = None,
        *,
        topics: str | Iterable[str] = (),
        partitions: Iterable[tuple[str, int]] = (),
        dry_run: bool = False,
    ) -> list[MovedOffset]:
        """Move the group's committed offsets and return the moves; `dry_run` changes nothing.

        `value` is the offset, the time in ms, or the distance for "shift". Without `topics`
        and `partitions`, moves all that the group has committed. Offsets beyond either end of
        a log are set to that end. Raises `GroupNotEmpty` while the group has members.
        """
        body: dict[str, Any] = {
            "to": to,
            "topics": topic_names(topics if isinstance(topics, str) else list(topics)),
            "partitions": [
                {"topic": topic, "partition": number}
                for topic, number in topic_partitions(partitions)
            ],
            "dry_run": dry_run,
        }
        if value is not None:
            body[to] = value
        reply = await self._gateway.request("POST", group_path(group, "reset"), json=body)
        return parsed(reply, list[MovedOffset], "offsets")

    async def delete_group(self, group: str) -> None:
        """Delete a group and all it has committed. Raises `GroupNotEmpty` if it has members."""
        await self._gateway.request("DELETE", group_path(group))


class GroupAdmin(Synchronous):
    """As `AsyncGroupAdmin`, without an event loop."""

    _admin: AsyncGroupAdmin

    def list_groups(self) -> list[GroupSummary]:
        """Return all groups, by name."""
        return self._run(self._admin.list_groups())

    def describe_group(self, group: str) -> Group:
        """Return a group and its members, or raise `UnknownGroup`."""
        return self._run(self._admin.describe_group(group))

    def group_lag(self, group: str) -> list[PartitionLag]:
        """Return how far behind the group is, for every partition it reads or has committed."""
        return self._run(self._admin.group_lag(group))

    def group_offsets(self, group: str) -> list[CommittedOffset]:
        """Return what the group has committed."""
        return self._run(self._admin.group_offsets(group))

    def commit_group_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], "int | tuple[int, str]"]
    ) -> None:
        """Set what the group has committed. Raises `UnknownMember` while it has members."""
        self._run(self._admin.commit_group_offsets(group, offsets))

    def reset_group(
        self,
        group: str,
        to: ResetTo,
        value: int | None = None,
        *,
        topics: str | Iterable[str] = (),
        partitions: Iterable[tuple[str, int]] = (),
        dry_run: bool = False,
    ) -> list[MovedOffset]:
        """Move the group's committed offsets; see `AsyncAdmin.reset_group`."""
        asked = self._admin.reset_group(
            group, to, value, topics=topics, partitions=partitions, dry_run=dry_run
        )
        return self._run(asked)

    def delete_group(self, group: str) -> None:
        """Delete a group and all it has committed. Raises `GroupNotEmpty` if it has members."""
        self._run(self._admin.delete_group(group))
