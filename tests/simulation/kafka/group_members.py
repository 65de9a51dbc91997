"""Members of a group that speak Kafka's protocol, beside those of HTTP (`members.py`).

They share the group, its history and its rules. Members of KIP-848 are told by each heartbeat what
they may read; classic ones stop reading, join again and wait for each other, or, in a group that
assigns by itself, for the gateway.
"""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from service.kafka.protocol.codec import decode, encode
from service.kafka.protocol.error_codes import ErrorCode
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
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from service.kafka.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)
from service.kafka.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from service.kafka.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from storage.errors import OffsetOutOfRange
from tests.checker.group_rules import Assigned, Committing, Delivered
from tests.simulation.kafka.connections import PASSING, Lost
from tests.simulation.kafka.log_calls import RefusedByKafka, fetch
from tests.simulation.kafka.log_clients import KafkaLogClients
from tests.simulation.members import GROUP, TOPIC, Life, Members

LIST_OFFSETS: Final = 6
EARLIEST: Final = -2
COMMIT: Final = 9
OFFSETS: Final = 8
CONSUMER_BEAT: Final = 1
JOIN: Final = 9
SYNC: Final = 5
BEAT: Final = 4
LEAVE: Final = 4
LEAVES, STEPS_ASIDE = -1, -2

REBALANCE_SESSIONS: Final = 3
"""Members have this many sessions to give partitions up and to join again: silence comes first."""

ANSWER_S: Final = 20.0
"""How long a member waits for others, beyond the time that they have."""

_GONE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        # The group was empty for a moment, and others have made it one of another kind.
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
_AGAIN: Final = PASSING | {
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.UNRELEASED_INSTANCE_ID,
}


class Gone(Exception):
    """The group does not know the member, which has to begin anew."""


class KafkaMember(ABC):
    """One member after the other, as `Members.live` has it."""

    door: str

    def __init__(
        self, members: Members, kafka: KafkaLogClients, chance: random.Random, number: int
    ) -> None:
        self.members = members
        self.kafka = kafka
        self.chance = chance
        self.client = kafka.client()
        self.number = number
        self.instance = f"static-{number}" if number % 3 == 2 else None
        self.life = Life("", "")

    async def live(self) -> None:
        lives = 0
        while True:
            lives += 1
            self.life = Life("", self.instance or f"{self.door}-{self.number}.{lives}")
            try:
                await self._live()
            except Gone:
                self.note("is gone")
            finally:
                self.stop_all()
            await asyncio.sleep(self.chance.uniform(0.1, 2))

    async def _live(self) -> None:
        is_calm = False
        self.begin()
        while True:
            is_calm = self.members.is_calm
            fate = 1.0 if is_calm else self.chance.random()
            if fate < 0.015:
                self.note("dies")
                return
            if fate < 0.03:
                self.stop_all()
                await self.leave()
                return
            if fate < 0.06:
                self.note("pauses")
                await asyncio.sleep(self.chance.uniform(0.5, 2.5) * self.members.plan.session_s)
            await self.stay()
            await self._read()
            if is_calm or self.chance.random() < 0.6:
                await self.commit()
            await asyncio.sleep(self.chance.expovariate(4 if is_calm else 8))

    @abstractmethod
    def begin(self) -> None:
        """Forget what another life has known."""

    @abstractmethod
    async def stay(self) -> None:
        """Join, or stay a member; raises `Gone`."""

    @abstractmethod
    async def leave(self) -> None:
        """Leave the group; the answer does not matter."""

    # Reading

    async def _read(self) -> None:
        await self._find_positions()
        for partition, offset in list(self.life.positions.items()):
            if self.chance.random() < 0.7:
                await self._fetch(partition, offset)

    async def _find_positions(self) -> None:
        life = self.life
        wanted = sorted(life.reads.keys() - life.positions.keys())
        if not wanted:
            return
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=wanted)]
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
        response = await self.call(OFFSETS, OffsetFetchRequest(groups=[group], require_stable=True))
        if response is None or not self.is_fine("offsets", response.groups[0].error_code):
            return
        for topic in response.groups[0].topics:
            for part in topic.partitions:
                if self.is_fine("offsets", part.error_code):
                    life.positions[part.partition_index] = max(part.committed_offset, 0)

    async def _fetch(self, partition: int, offset: int) -> None:
        life, began_s = self.life, self.members.now_s()
        size = self.chance.choice([200, 5_000, 1 << 20])
        by_id = self.kafka.by_id()
        try:
            got = await fetch(
                self.client, self.kafka.topic, partition, offset,
                bytes_max=size, wait_s=0.0, by_id=by_id,
            )  # fmt: skip
        except Lost:
            return
        except OffsetOutOfRange:
            # Records were deleted: begin with those that are left.
            life.positions[partition] = await self._start_of(partition, offset)
            return
        except RefusedByKafka as error:
            self.is_fine(f"fetch {partition}", error.code)
            return
        self.kafka.witness.reads("kafka", partition, got.found)
        life.positions[partition] = got.next_offset
        offsets = [each.offset for each in got.found]
        if not offsets:
            return
        span = range(offsets[0], offsets[-1] + 1)
        if offsets != list(span):
            self.members.history.errors.append(f"{life.name}: {partition}: {offsets}")
        self.kafka.counts[f"deliveries to {self.door} members"] += 1
        self.members.history.delivered.append(
            Delivered(
                life.name,
                life.generation,
                partition,
                span,
                began_s,
                self.members.now_s(),
                may_be_old=True,
            )
        )
        self.note(f"got {partition} {span}")

    async def _start_of(self, partition: int, offset: int) -> int:
        """Return where the partition begins now; where we were, if there is no answer."""
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=EARLIEST)
        topic = ListOffsetsTopic(name=TOPIC, partitions=[wanted])
        response = await self.call(LIST_OFFSETS, ListOffsetsRequest(replica_id=-1, topics=[topic]))
        if response is None:
            return offset
        [part] = response.topics[0].partitions
        return int(part.offset) if self.is_fine("start", part.error_code) else offset

    # Committing

    async def commit(self) -> None:
        life, began_s = self.life, self.members.now_s()
        asked = dict(life.positions)
        if not asked:
            return
        parts = [
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=""
            )
            for partition, offset in asked.items()
        ]
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=life.generation,
            member_id=life.member_id,
            group_instance_id=self.instance,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=parts)],
        )
        response = await self.call(COMMIT, request)
        codes = dict.fromkeys(asked, ErrorCode.REQUEST_TIMED_OUT)
        if response is not None:
            answered = response.topics[0].partitions
            codes = {each.partition_index: ErrorCode(each.error_code) for each in answered}
        for partition, code in codes.items():
            is_acked = code is ErrorCode.NONE
            if is_acked or code in PASSING:
                self.members.history.commits.append(
                    Committing(
                        life.name,
                        life.generation,
                        partition,
                        asked[partition],
                        began_s,
                        is_acked,
                        self.members.now_s(),
                        may_be_old=True,
                    )
                )
        for code in codes.values():
            self.is_fine("commit", code)

    # Calls and records

    async def call(self, version: int, request: Any, within_s: float | None = None) -> Any:
        """Return the reply; None: there was none."""
        try:
            connection = await self.client.connection()
            sent = connection.send(version, request)
            return await self.client.reply(connection, sent, within_s)
        except Lost:
            self.note(f"{type(request).__name__} lost")
            return None

    def is_fine(self, what: str, number: int) -> bool:
        """Whether there was no error; raises `Gone` after one that ends the membership."""
        code = ErrorCode(number)
        if code is ErrorCode.NONE:
            return True
        self.note(f"{what} {code.name}")
        if code in _GONE:
            raise Gone
        if code not in _AGAIN:
            self.members.history.errors.append(f"{self.life.name}: {what}: {code.name}")
            raise Gone
        return False

    def hear(self, generation: int, assignment: Sequence[int], began_s: float) -> None:
        """Note what the member may read from now on, and stop reading anything else."""
        life, at_s = self.life, self.members.now_s()
        life.generation, life.assignment, life.beaten_s = generation, set(assignment), began_s
        told = Assigned(life.name, generation, tuple(sorted(assignment)), began_s, at_s)
        self.members.history.told.append(told)
        self.note(f"told {told}")
        for partition in life.reads.keys() - life.assignment:
            self.members.stop(life, partition)
        for partition in sorted(life.assignment):
            life.reads.setdefault(partition, at_s)

    def stop_all(self) -> None:
        for partition in list(self.life.reads):
            self.members.stop(self.life, partition)

    def note(self, what: str) -> None:
        self.members.note(f"{self.life.name} {what}")

    @property
    def rebalance_s(self) -> float:
        return REBALANCE_SESSIONS * self.members.plan.session_s


class ConsumerMember(KafkaMember):
    """A member of KIP-848."""

    door = "consumer"

    def begin(self) -> None:
        self.life.member_id = f"{self.chance.getrandbits(64):016x}"
        self._must_report = False

    async def stay(self) -> None:
        life, began_s, before = self.life, self.members.now_s(), sorted(self.life.reads)
        response = await self.call(CONSUMER_BEAT, self._said(life.generation))
        if response is None or not self.is_fine("beat", response.error_code):
            return
        assigned = response.assignment.topic_partitions if response.assignment else []
        partitions = [partition for one in assigned for partition in one.partitions]
        self.hear(response.member_epoch, partitions, began_s)
        self._must_report = sorted(life.reads) != before

    async def leave(self) -> None:
        await self.call(CONSUMER_BEAT, self._said(STEPS_ASIDE if self.instance else LEAVES))

    def _said(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        joins = epoch == 0
        owned = [
            ConsumerGroupHeartbeatTopicPartitions(
                topic_id=self.kafka.topic.topic_id, partitions=sorted(self.life.reads)
            )
        ]
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.life.member_id,
            member_epoch=epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=int(self.rebalance_s * 1000) if joins else -1,
            subscribed_topic_names=[TOPIC] if joins else None,
            topic_partitions=[] if joins else owned if self._must_report else None,
        )


class ClassicMember(KafkaMember):
    """A member of the classic protocol with the assignor `range`."""

    door = "classic"

    def begin(self) -> None:
        self._must_join = True

    async def stay(self) -> None:
        if self._must_join:
            await self._join()
            return
        life, began_s = self.life, self.members.now_s()
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=life.generation,
            member_id=life.member_id,
            group_instance_id=self.instance,
        )
        response = await self.call(BEAT, request)
        if response is None:
            return
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS and self.chance.random() < 0.5:
            await self.commit()
        if self.is_fine("beat", response.error_code):
            life.beaten_s = began_s
        elif response.error_code not in PASSING:
            self.stop_all()
            self._must_join = True

    async def leave(self) -> None:
        identity = MemberIdentity(member_id=self.life.member_id, group_instance_id=self.instance)
        await self.call(LEAVE, LeaveGroupRequest(group_id=GROUP, members=[identity]))

    async def _join(self) -> None:
        life, patience_s = self.life, self.rebalance_s + ANSWER_S
        subscription = ConsumerProtocolSubscription(topics=[TOPIC])
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=int(self.members.plan.session_s * 1000),
            rebalance_timeout_ms=int(self.rebalance_s * 1000),
            member_id=life.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=_versioned(subscription))],
        )
        joined = await self.call(JOIN, request, patience_s)
        if joined is None:
            return
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            life.member_id = joined.member_id
        if not self.is_fine("join", joined.error_code):
            return
        life.member_id, life.generation = joined.member_id, joined.generation_id
        began_s = self.members.now_s()
        sync = SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=life.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=self._assigned(joined),
        )
        synced = await self.call(SYNC, sync, patience_s)
        if synced is None or not self.is_fine("sync", synced.error_code):
            return
        assignment = decode(ConsumerProtocolAssignment, 0, memoryview(synced.assignment)[2:])
        partitions = [p for one in assignment.assigned_partitions for p in one.partitions]
        self._must_join = False
        self.hear(joined.generation_id, partitions, began_s)

    def _assigned(self, joined: Any) -> list[SyncGroupRequestAssignment]:
        """Return what everybody is to read, if this member leads."""
        if joined.leader != self.life.member_id or joined.skip_assignment:
            return []
        names = sorted(member.member_id for member in joined.members)
        count = self.kafka.partitions
        ends = [count * n // len(names) for n in range(len(names) + 1)]
        return [
            SyncGroupRequestAssignment(
                member_id=name, assignment=_versioned(_partitions(range(start, end)))
            )
            for name, start, end in zip(names, ends, ends[1:], strict=False)
        ]


def _partitions(numbers: range) -> ConsumerProtocolAssignment:
    place = ConsumerProtocolAssignmentTopicPartition(topic=TOPIC, partitions=list(numbers))
    return ConsumerProtocolAssignment(assigned_partitions=[place] if numbers else [])


def _versioned(message: ConsumerProtocolSubscription | ConsumerProtocolAssignment) -> bytes:
    """Return the bytes of a message that begins with its version, which is 0."""
    return b"\0\0" + b"".join(bytes(piece) for piece in encode(message, 0))
