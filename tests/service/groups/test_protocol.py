"""Any order of joins, leaves, silences, late and doubled heartbeats, lost answers, growing topics.

Members talk to three gateways at random, whose clocks are minutes apart and jump. Two things are
written down and compared: whatever any heartbeat ever answered, and what each member reads.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from service.groups.assignors import ASSIGNORS, TopicPartition
from service.groups.coordinator import TOPICS_AGE_MAX_S, Beat
from storage.errors import OutcomeUnknown, StoreUnavailable, UnknownMember
from tests.service.groups.cluster import GROUP, SESSION_MS, Cluster, group_of, matching, member

T = TypeVar("T")

INTERVAL_S = SESSION_MS / 1000 / 5
ROUNDS_MAX = 60
"""Rounds of heartbeats, an interval apart, until even the unluckiest gateways have looked."""

GATEWAYS = st.integers(0, 2)
CLIENTS = st.integers(0, 20)


@dataclass
class Client:
    name: str
    """The same for all lives of a static member."""
    beat: Beat
    beaten_s: float
    reads: set[TopicPartition] = field(default_factory=set)
    requests: list[tuple[int, list[TopicPartition]]] = field(default_factory=list)


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.cluster = Cluster()
        self.gateways = [self.cluster.gateway(skew) for skew in (0, 300_000, -300_000)]
        self.clients: list[Client] = []
        self.told: dict[tuple[int, TopicPartition], str] = {}
        self.counts = {"t0": 3}
        self.names = iter(range(10**6))

    def teardown(self) -> None:
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the answer; None if the stores gave none."""
        try:
            return self.loop.run_until_complete(work)
        except (OutcomeUnknown, StoreUnavailable):
            return None

    @initialize(assignor=st.sampled_from(list(ASSIGNORS)))
    def begin(self, assignor: str) -> None:
        self.assignor = assignor
        self.run(self.gateways[0].topics.create("t0", partitions=3))

    # What members do

    @rule(gateway=GATEWAYS, pattern=st.booleans())
    def join(self, gateway: int, pattern: bool) -> None:
        about = matching("t.*") if pattern else member("t0", "t1")
        beat = self.run(self.gateways[gateway].coordinator.join(GROUP, about, self.assignor))
        if beat is not None:
            self._welcome(beat, f"member {next(self.names)}")

    @rule(gateway=GATEWAYS, instance=st.sampled_from("xy"))
    def join_as_an_instance(self, gateway: int, instance: str) -> None:
        about = member("t0", "t1", instance_id=instance)
        generation = self._generation()
        was_there = any(client.name == instance for client in self.clients)
        beat = self.run(self.gateways[gateway].coordinator.join(GROUP, about, self.assignor))
        # Its former life ends when the new one begins, or may have begun.
        self.clients = [client for client in self.clients if client.name != instance]
        if beat is not None:
            if was_there and beat.generation != generation:
                assert self._ended_meanwhile(generation, beat.generation)
            self._welcome(beat, instance)

    @precondition(lambda self: self.clients)
    @rule(client=CLIENTS, gateway=GATEWAYS)
    def beat(self, client: int, gateway: int) -> None:
        self._follow(self._client(client), gateway)

    @precondition(lambda self: self.clients)
    @rule(client=CLIENTS, gateway=GATEWAYS)
    def beat_and_give_nothing_up_yet(self, client: int, gateway: int) -> None:
        self._follow(self._client(client), gateway, lazy=True)

    @precondition(lambda self: self.clients)
    @rule(client=CLIENTS, gateway=GATEWAYS, number=st.integers(0, 99))
    def an_old_beat_arrives_again(self, client: int, gateway: int, number: int) -> None:
        one = self._client(client)
        if one.requests:
            generation, owned = one.requests[number % len(one.requests)]
            work = self.gateways[gateway].coordinator.heartbeat(
                GROUP, one.beat.member_id, generation, owned
            )
            try:
                beat = self.run(work)
            except UnknownMember:
                return
            # The member has long stopped waiting for this answer.
            if beat is not None:
                one.beaten_s = self.cluster.now_s
                self._note(beat, one.name)

    @precondition(lambda self: self.clients)
    @rule(client=CLIENTS, gateway=GATEWAYS)
    def leave(self, client: int, gateway: int) -> None:
        one = self._client(client)
        self.clients.remove(one)
        try:
            self.run(self.gateways[gateway].coordinator.leave(GROUP, one.beat.member_id))
        except UnknownMember:
            assert self.cluster.now_s - one.beaten_s >= SESSION_MS / 1000

    @precondition(lambda self: self.clients)
    @rule(client=CLIENTS)
    def die(self, client: int) -> None:
        self.clients.remove(self._client(client))

    # What happens around them

    @rule(seconds=st.floats(0.1, 4))
    def time_passes(self, seconds: float) -> None:
        self.cluster.now_s += seconds

    @rule(gateway=GATEWAYS, skew_ms=st.integers(-300_000, 300_000))
    def a_clock_jumps(self, gateway: int, skew_ms: int) -> None:
        self.gateways[gateway].skew_ms = skew_ms

    @rule(gateway=GATEWAYS)
    def tick(self, gateway: int) -> None:
        self.run(self.gateways[gateway].coordinator.tick())

    @rule(gateway=GATEWAYS)
    def a_gateway_restarts(self, gateway: int) -> None:
        self.gateways[gateway] = self.cluster.gateway(self.gateways[gateway].skew_ms)

    @rule(faults=st.lists(st.sampled_from(["refused", "request lost", "reply lost"]), max_size=3))
    def stores_will_fail(self, faults: list[Any]) -> None:
        self.cluster.metadata.faults = faults

    @rule(gateway=GATEWAYS)
    def a_topic_grows(self, gateway: int) -> None:
        count = self.counts["t0"] + 1
        if count < 9 and self.run(self.gateways[gateway].topics.alter("t0", partitions=count)):
            self.counts["t0"] = count

    @precondition(lambda self: "t1" not in self.counts)
    @rule(gateway=GATEWAYS)
    def a_topic_comes(self, gateway: int) -> None:
        if self.run(self.gateways[gateway].topics.create("t1", partitions=2)):
            self.counts["t1"] = 2

    @precondition(lambda self: self.clients)
    @rule(order=st.randoms(use_true_random=False))
    def all_is_quiet_then_all_is_shared(self, order: Any) -> None:
        self.cluster.metadata.faults = []
        self._outlive_the_dead(order)
        self.cluster.now_s += TOPICS_AGE_MAX_S + 0.1
        for _ in range(2):
            order.shuffle(self.clients)
            for one in list(self.clients):
                self._follow(one, order.randrange(3))
        group = self.loop.run_until_complete(group_of(self.gateways[0]))
        if not self.clients:
            return
        assert group.state == "Stable", group
        assigned = [p for m in group.members for p in group.assignment(m)]
        existing = {
            t.name: t.partition_count for t in self.run(self.gateways[0].topics.all()) or ()
        }
        assert sorted(assigned) == [(t, p) for t in sorted(existing) for p in range(existing[t])]

    def _outlive_the_dead(self, order: Any) -> None:
        for _ in range(ROUNDS_MAX):
            group = self.loop.run_until_complete(group_of(self.gateways[0]))
            if set(group.members) <= {one.beat.member_id for one in self.clients}:
                return
            self.cluster.now_s += INTERVAL_S
            for one in list(self.clients):
                self._follow(one, order.randrange(3))
            if not self.clients:
                return
        raise AssertionError(f"sessions do not end: {group.members}")

    # Keeping account

    def _client(self, number: int) -> Client:
        return self.clients[number % len(self.clients)]

    def _generation(self) -> int:
        return self.loop.run_until_complete(group_of(self.gateways[0])).generation

    def _ended_meanwhile(self, before: int, after: int) -> bool:
        # A join also looks after the others: that is a generation of its own.
        return after == before + 1

    def _welcome(self, beat: Beat, name: str) -> None:
        client = Client(name, beat, self.cluster.now_s)
        self.clients.append(client)
        self._hear(client, beat)

    def _follow(self, one: Client, gateway: int, *, lazy: bool = False) -> None:
        """Beat as told: what is to be given up is not read any more when the call is made."""
        if not lazy:
            one.reads -= set(one.beat.revoke)
        request = (one.beat.generation, sorted(one.reads))
        one.requests.append(request)
        work = self.gateways[gateway].coordinator.heartbeat(GROUP, one.beat.member_id, *request)
        try:
            beat = self.run(work)
        except UnknownMember:
            assert self.cluster.now_s - one.beaten_s >= SESSION_MS / 1000, "ended too early"
            self.clients.remove(one)
            return
        if beat is not None:
            one.beaten_s = self.cluster.now_s
            self._hear(one, beat)

    def _hear(self, one: Client, beat: Beat) -> None:
        assert beat.generation >= one.beat.generation
        one.beat = beat
        one.reads = {*beat.assignment, *(one.reads & set(beat.revoke))}
        self._note(beat, one.name)
        members = self.loop.run_until_complete(group_of(self.gateways[0])).members
        for other in self.clients:
            if other is not one and other.beat.member_id in members:
                assert not other.reads & set(beat.assignment), "before it was given up"

    def _note(self, beat: Beat, name: str) -> None:
        for place in beat.assignment:
            assert self.told.setdefault((beat.generation, place), name) == name, place


Groups.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
TestGroups = pytest.mark.timeout(600)(Groups.TestCase)
