"""Clients of all three kinds, each of which reads what it was told, and notes it."""

import struct
from collections.abc import Sequence
from typing import Protocol

from service.groups.assignors import TopicPartition
from service.groups.classic import consumers
from service.groups.classic.coordinator import IdRequired, Leaving
from service.groups.classic.rounds import Claimant, Joining
from service.groups.consumers.members import LEAVES, Said
from service.groups.coordinator import Beat
from storage.errors import IllegalGeneration, RebalanceInProgress, UnknownMember
from tests.service.groups.cluster import GROUP, SESSION_MS, TOPIC, Gateway, member


class Client(Protocol):
    reads: set[TopicPartition]

    async def step(self, gateway: Gateway) -> None:
        """Do what the client does next: join, beat, give up, read."""

    async def leave(self, gateway: Gateway) -> None: ...


class HttpClient:
    def __init__(self) -> None:
        self.reads: set[TopicPartition] = set()
        self.beat: Beat | None = None

    async def step(self, gateway: Gateway) -> None:
        if self.beat is None:
            self.beat = await gateway.coordinator.join(GROUP, member(), None)
        else:
            self.reads -= set(self.beat.revoke)
            try:
                self.beat = await gateway.coordinator.heartbeat(
                    GROUP, self.beat.member_id, self.beat.generation, sorted(self.reads)
                )
            except UnknownMember:
                self.beat, self.reads = None, set()
                return
        self.reads = {*self.beat.assignment, *(self.reads & set(self.beat.revoke))}

    async def leave(self, gateway: Gateway) -> None:
        self.reads = set()
        if self.beat is not None:
            await gateway.coordinator.leave(GROUP, self.beat.member_id)


class ConsumerClient:
    """Of KIP-848: it stops and starts reading between heartbeats, and tells what has changed."""

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.reads: set[TopicPartition] = set()
        self.target: set[TopicPartition] = set()
        self.epoch = 0
        self.is_news = True

    async def step(self, gateway: Gateway) -> None:
        if self.reads != self.target:
            # Its application takes its time: first it stops, and starts in a step of its own.
            self.reads = self.reads & self.target if self.reads - self.target else self.target
            self.is_news = True
        is_joining = self.epoch == 0
        said = Said(
            member_id=self.member_id,
            epoch=self.epoch,
            topics=(TOPIC,) if is_joining else None,
            rebalance_timeout_ms=600_000 if is_joining else None,
            owned=sorted(self.reads) if self.is_news and not is_joining else None,
            session_timeout_ms=SESSION_MS,
        )
        self.is_news = False
        try:
            group = await gateway.coordinator.consumers.heed(GROUP, said)
        except UnknownMember:
            self.epoch, self.reads, self.target = 0, set(), set()
            return
        target = set(group.assignment(self.member_id))
        self.is_news = is_joining or target != self.target
        self.epoch, self.target = group.generation, target

    async def leave(self, gateway: Gateway) -> None:
        self.reads = set()
        if self.epoch:
            said = Said(member_id=self.member_id, epoch=LEAVES, session_timeout_ms=SESSION_MS)
            await gateway.coordinator.consumers.heed(GROUP, said)


def subscription(owned: Sequence[TopicPartition]) -> bytes:
    """Return the metadata of a consumer of the topic, in version 1."""
    name = TOPIC.encode()
    data = struct.pack(">hi", 1, 1) + struct.pack(">h", len(name)) + name + struct.pack(">i", -1)
    numbers = [int(partition) for _, partition in owned]
    if not numbers:
        return data + struct.pack(">i", 0)
    data += struct.pack(">i", 1) + struct.pack(">h", len(name)) + name
    return data + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)


class ClassicClient:
    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self.reads: set[TopicPartition] = set()
        self.member_id = ""
        self.generation = -1
        self.must_join = True

    async def step(self, gateway: Gateway) -> None:
        if self.must_join:
            await self._join(gateway)
            return
        claimant = Claimant(member_id=self.member_id, generation=self.generation)
        try:
            await gateway.coordinator.classic_calls.heartbeat(GROUP, claimant)
        except RebalanceInProgress:
            self.must_join = True
        except (UnknownMember, IllegalGeneration):
            self._forget()

    async def _join(self, gateway: Gateway) -> None:
        calls = gateway.coordinator.classic_calls
        is_cooperative = self.protocol == "cooperative-sticky"
        if not is_cooperative:
            self.reads = set()
        metadata = subscription(sorted(self.reads))
        joining = Joining(
            member_id=self.member_id,
            is_new=not self.member_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=600_000,
            protocol_type=consumers.PROTOCOL_TYPE,
            protocols=((self.protocol, metadata),),
        )
        try:
            joined = await calls.join(GROUP, joining)
        except UnknownMember:
            self._forget()
            return
        self.member_id = joined.member_id
        if isinstance(joined, IdRequired):
            return
        self.generation = joined.generation
        claimant = Claimant(member_id=self.member_id, generation=self.generation)
        try:
            synced = await calls.sync(GROUP, claimant, {}, protocol=joined.protocol)
        except (UnknownMember, IllegalGeneration):
            self._forget()
            return
        given = set(consumers.assigned(synced.assignment))
        # Who must give something up joins again without it, at once.
        self.must_join = bool(self.reads - given)
        self.reads = given

    def _forget(self) -> None:
        self.member_id, self.generation, self.reads, self.must_join = "", -1, set(), True

    async def leave(self, gateway: Gateway) -> None:
        self.reads = set()
        if self.member_id:
            await gateway.coordinator.classic_calls.leave(GROUP, [Leaving(self.member_id)])
