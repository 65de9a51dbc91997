"""Members that come, go, pause and die at gateways that die, over a table that loses replies.

Whatever happens: a generation has one leader, what its members are assigned was brought by that
leader in one piece, so no partition has two owners in a generation; and when the trouble ends, all
who are left meet in one generation, in which every partition has an owner.
"""

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from service.groups.classic.coordinator import ClassicGroups
from service.groups.classic.rounds import Joined
from storage.errors import RiachoError
from tests.service.groups.classic.meeting import GROUP, SESSION_MS, Client, Meeting, virtually

PARTITIONS = 12
TROUBLE_S = 300.0
CALM_S = 300.0


@dataclass
class History:
    leaders: dict[int, set[str]] = field(default_factory=dict)
    """By generation: who was told that it leads and has to assign."""
    shares: dict[int, dict[str, set[bytes]]] = field(default_factory=dict)
    """By generation and member (a static one by its instance id): what it was told to read."""
    brought: dict[int, list[dict[str, bytes]]] = field(default_factory=dict)
    """By generation: all assignments that any call brought."""

    def check(self) -> None:
        for generation, leaders in self.leaders.items():
            assert len(leaders) == 1, (generation, leaders)
        for generation, by_member in self.shares.items():
            assert all(len(told) == 1 for told in by_member.values()), (generation, by_member)
            told = {m: next(iter(shares)) for m, shares in by_member.items()}
            pieces = self.brought[generation]
            assert any(all(p.get(m, b"") == told[m] for m in told) for p in pieces), generation


class Consumer(Client):
    """A client that lives until it is cancelled, and says what it was told."""

    def __init__(self, name: str, chaos: "Chaos", instance_id: str | None) -> None:
        super().__init__(chaos.any_gateway(), name, instance_id)
        self.chaos = chaos
        self.rebalance_ms = 15_000
        self.current: tuple[int, bytes] | None = None

    async def live(self) -> None:
        while True:
            self.classic = self.chaos.any_gateway()
            try:
                async with asyncio.timeout(self.rebalance_ms / 1000 + 5):
                    await self._round()
            except TimeoutError:
                pass
            except RiachoError as error:
                if error.code == "UNKNOWN_MEMBER_ID":
                    self.member_id = ""
                await asyncio.sleep(0.1)
            self.current = None

    async def _round(self) -> None:
        reply = await self.join()
        if reply.leader == self.member_id and not reply.is_assigned:
            self.chaos.history.leaders.setdefault(reply.generation, set()).add(self.member_id)
        await self.chaos.pause()
        async with asyncio.timeout(10):
            await self._fetch(reply)
        self.current = reply.generation, self.share
        while True:
            if self.chaos.chance.random() < 0.1:
                self.classic = self.chaos.any_gateway()
            async with asyncio.timeout(5):
                await self.beat()
            await asyncio.sleep(self.chaos.chance.uniform(1.0, 2.0))

    async def _fetch(self, reply: Joined) -> None:
        names = {m: instance_id or m for m, instance_id, _ in reply.members}
        members = list(names)
        self.chaos.chance.shuffle(members)
        shares = {
            m: ",".join(map(str, range(n, PARTITIONS, len(members)))).encode()
            for n, m in enumerate(members)
        }
        history = self.chaos.history
        if shares:
            history.brought.setdefault(reply.generation, []).append(
                {names[m]: share for m, share in shares.items()}
            )
        synced = await self.classic.sync(GROUP, self.claimant(), shares)
        self.share = synced.assignment
        by_name = history.shares.setdefault(reply.generation, {})
        by_name.setdefault(self.instance_id or self.member_id, set()).add(self.share)


class Chaos:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.meeting = Meeting(3, seed=seed, initial_delay_ms=self.chance.choice([0, 0, 3_000]))
        self.history = History()
        self.consumers: dict[Consumer, asyncio.Task[None]] = {}
        self.count = 0
        self.is_calm = False

    def any_gateway(self) -> ClassicGroups:
        return self.chance.choice(self.meeting.gateways).classic

    async def pause(self) -> None:
        """Be slow once in a while, up to longer than a session."""
        if not self.is_calm and self.chance.random() < 0.1:
            await asyncio.sleep(self.chance.uniform(0, 3 * SESSION_MS / 1000))

    def come(self, instance_id: str | None = None) -> None:
        self.count += 1
        consumer = Consumer(f"c{self.count}", self, instance_id)
        self.consumers[consumer] = asyncio.create_task(consumer.live())

    def die(self, consumer: Consumer) -> None:
        self.consumers.pop(consumer).cancel()
        if consumer.instance_id is not None:
            self.come(consumer.instance_id)

    def trouble(self) -> None:
        fate = self.chance.random()
        if fate < 0.3:
            fault = self.chance.choice(["reply lost", "request lost", "refused", "late"])
            self.meeting.metadata.faults.append(fault)  # type: ignore[arg-type]
        elif fate < 0.4:
            number = self.chance.randrange(len(self.meeting.gateways))
            self.meeting.gateways[number] = self.meeting.gateway()
            for consumer in self.consumers:
                if self.chance.random() < 0.3:
                    # Its connection is cut: whatever it waited for goes on without it.
                    self.consumers[consumer].cancel()
                    self.consumers[consumer] = asyncio.create_task(consumer.live())
        elif fate < 0.7 and len(self.consumers) < 8:
            self.come()
        elif fate < 0.9 and len(self.consumers) > 2:
            self.die(self.chance.choice(list(self.consumers)))

    async def run(self) -> None:
        for instance_id in (None, None, "one"):
            self.come(instance_id)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + TROUBLE_S
        while loop.time() < until_s:
            await asyncio.sleep(self.chance.expovariate(0.3))
            self.trouble()
        self.meeting.metadata.faults.clear()
        self.is_calm = True
        until_s = loop.time() + CALM_S
        while not self.is_settled():
            assert loop.time() < until_s, [c.current for c in self.consumers]
            await asyncio.sleep(1)
        self.history.check()
        assert len(self.history.leaders) > 10

    def is_settled(self) -> bool:
        currents = [consumer.current for consumer in self.consumers]
        if None in currents or len({c[0] for c in currents if c}) != 1:
            return False
        owned = sorted(int(p) for c in currents if c for p in c[1].split(b",") if p)
        return owned == list(range(PARTITIONS))


Consumer.__hash__ = object.__hash__  # type: ignore[assignment]


@pytest.mark.parametrize("seed", range(8))
def test_one_owner_in_each_generation_and_peace_in_the_end(seed: int) -> None:
    async def run() -> None:
        await Chaos(seed).run()

    virtually(run())
