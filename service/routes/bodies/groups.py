"""Bodies of the calls about consumer groups: what is sent, and what is answered."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from service.groups.assignors import TopicPartition
from service.groups.coordinator import SESSION_TIMEOUT_MS_DEFAULT
from service.groups.offsets import Commit, Committer
from service.groups.progress import Lag, Moved, ResetTo
from service.http.bodies.fields import (
    Count,
    Generation,
    Offset,
    Partition,
)
from service.http.bodies.json_fetch import ValueFormat
from service.routes.multi_fetch import FetchedPartition
from storage.errors import InvalidRequest


class Place(Partition, forbid_unknown_fields=True):
    def pair(self) -> TopicPartition:
        return self.topic, self.partition


class Spot(Partition, forbid_unknown_fields=True):
    offset: Offset


class JoinBody(msgspec.Struct, forbid_unknown_fields=True):
    topics: list[str] = []
    topics_pattern: str | None = None
    session_timeout_ms: int = SESSION_TIMEOUT_MS_DEFAULT
    assignor: str | None = None
    instance_id: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    client_id: Annotated[str, Meta(max_length=200)] = ""


class BeatBody(msgspec.Struct, forbid_unknown_fields=True):
    generation: Generation
    owned: list[Place] | None = None


class PollBody(msgspec.Struct, forbid_unknown_fields=True):
    generation: Generation
    owned: list[Place] | None = None
    positions: list[Spot] = []
    auto_offset_reset: Literal["earliest", "latest", "none"] = "earliest"
    max_records: Count | None = None
    max_bytes: Count | None = None
    min_bytes: Offset = 1
    max_wait_ms: Offset = 0
    value_format: ValueFormat = "text"


class PartitionOffset(Partition):
    offset: Offset
    metadata: str | None = None


class CommitOffset(PartitionOffset, forbid_unknown_fields=True):
    pass


class OffsetsBody(msgspec.Struct, forbid_unknown_fields=True):
    offsets: list[CommitOffset]
    generation: Generation | None = None
    member_id: str | None = None

    def commits(self, place: str = "") -> tuple[list[Commit], Committer | None]:
        """Return what to commit and the committer, or raise `InvalidRequest` about `place`."""
        committer = None
        if self.member_id is not None or self.generation is not None:
            if self.member_id is None or self.generation is None:
                raise InvalidRequest(f"{place}give generation and member_id together, or neither")
            committer = Committer(member_id=self.member_id, generation=self.generation)
        commits = [
            Commit(
                topic=one.topic,
                partition=one.partition,
                offset=one.offset,
                metadata=one.metadata or "",
            )
            for one in self.offsets
        ]
        return commits, committer


class ResetBody(msgspec.Struct, forbid_unknown_fields=True):
    to: ResetTo
    timestamp: Offset | None = None
    offset: Offset | None = None
    shift: int | None = None
    topics: list[str] = []
    partitions: list[Place] = []
    dry_run: bool = False


class BeatAnswer(msgspec.Struct):
    generation: int
    assignment: list[Partition]
    revoke: list[Partition]


class JoinAnswer(msgspec.Struct):
    member_id: str
    generation: int
    assignment: list[Partition]
    revoke: list[Partition]


class PollAnswer(BeatAnswer):
    partitions: list[FetchedPartition]


class GroupSummary(msgspec.Struct):
    group: str
    state: Annotated[
        str,
        Meta(
            extra_json_schema={
                "enum": ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable"]
            }
        ),
    ]
    kind: Annotated[
        Literal["native", "classic"],
        Meta(description="classic: its members assign among themselves, by Kafka's older protocol"),
    ]
    protocols: Annotated[
        list[Literal["http", "consumer", "classic"]],
        Meta(description="what its members speak; consumer is Kafka's protocol of KIP-848"),
    ]
    protocol_type: Annotated[
        str, Meta(description="what its members are: consumer, connect or another name")
    ]
    generation: int
    assignor: Annotated[
        str, Meta(description="of a classic group: that on which its members have agreed, or empty")
    ]
    member_count: int


class GroupList(msgspec.Struct):
    groups: list[GroupSummary]


class MemberInfo(msgspec.Struct):
    member_id: str
    instance_id: str | None
    client_id: str
    protocol: Literal["http", "consumer", "classic"]
    topics: list[str]
    topics_pattern: str | None
    session_timeout_ms: int
    assignment: list[Partition]
    revoke: list[Partition]


class GroupInfo(GroupSummary):
    members: list[MemberInfo]


class CommitAnswer(msgspec.Struct):
    offsets: Sequence[PartitionOffset]


class CommittedOffset(Partition):
    offset: Offset
    metadata: str
    committed_ms: int


class CommittedOffsets(msgspec.Struct):
    offsets: list[CommittedOffset]


class GroupLag(msgspec.Struct):
    group: str
    total_lag: int
    partitions: list[Lag]


class ResetAnswer(msgspec.Struct):
    dry_run: bool
    offsets: list[Moved]
