"""Members of a group as actors: they join, poll through any gateway, commit, leave, pause, die.

They use the whole service, HTTP routes included, and record the answers that they get.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.checker.group_rules import (
    Assigned,
    Committing,
    Delivered,
    GroupHistory,
    Read,
    Seen,
)
from tests.simulation.hosts import Host
from tests.simulation.http import Refused, call, passes

TOPIC = "t"
GROUP = "g"
CALL_TIMEOUT_S = 10.0
DRAIN_TIMEOUT_S = 300.0
LOOK_EVERY_S = 0.7


@dataclass
class GroupPlan:
    members: int
    session_s: float
    assignor: str
    pattern: bool
    grows: bool
    restless_s: float
    """How long members join and leave after the last record was produced."""

    @classmethod
    def of(cls, chance: random.Random) -> "GroupPlan":
        return cls(
            members=chance.choice([0, 1, 2, 3, 5]),
            session_s=chance.choice([2.0, 6.0]),
            assignor=chance.choice(["sticky", "sticky", "range", "roundrobin"]),
            pattern=chance.random() < 0.3,
            grows=chance.random() < 0.3,
            restless_s=chance.uniform(5, 20),
        )


@dataclass
class Life:
    """The state of a member, from joining to the end of its session."""

    member_id: str
    name: str
    generation: int = 0
    assignment: set[int] = field(default_factory=set)
    revoke: set[int] = field(default_factory=set)
    positions: dict[int, int] = field(default_factory=dict)
    reads: dict[int, float] = field(default_factory=dict)
    """When it began to read each partition."""
    beaten_s: float = 0.0


class Members:
    def __init__(
        self,
        plan: GroupPlan,
        chance: random.Random,
        hosts: Callable[[], list[Host]],
        now_s: Callable[[], float],
        trace: list[str],
    ) -> None:
        self.plan = plan
        self.history = GroupHistory(session_s=plan.session_s)
        self.is_calm = False
        self._chance = chance
        self._hosts = hosts
        self.now_s = now_s
        self._trace = trace

    async def live(self, number: int) -> None:
        """Run one member after the other, until cancelled."""
        lives = 0
        while True:
            lives += 1
            is_static = number % 3 == 2
            name = f"static-{number}" if is_static else f"member-{number}.{lives}"
            life = await self._join(name, f"static-{number}" if is_static else None)
            if life is not None:
                await self._read_on(life)
            await self._pause(self._chance.uniform(0.1, 2))

    async def look(self) -> None:
        """Read the committed offsets repeatedly."""
        while True:
            await self._pause(LOOK_EVERY_S)
            await self._look()

    async def drain(self, ends: Callable[[], Any]) -> None:
        """Wait until everything is read and committed."""
        self.is_calm = True
        give_up_s = self.now_s() + DRAIN_TIMEOUT_S
        while self.now_s() < give_up_s:
            if await self._look() and self.history.seen[-1].offsets == await ends():
                self.history.is_drained = True
                return
            await self._pause(LOOK_EVERY_S)
        self.history.is_drained = False

    # Calls

    async def _call(self, what: str, method: str, path: str, body: Any = None) -> Any:
        """Return the answer; None if there was none, or only a temporary error."""
        host = self._chance.choice(self._hosts())
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                answer = await call(host, method, f"/v1/groups/{GROUP}{path}", body)
        except TimeoutError:
            self.note(f"{what} timed out")
            return None
        except Refused as error:
            self.note(f"{what} {error}")
            if error.passes:
                await self._pause(0.05)
                return None
            raise
        self.note(what)
        return answer

    async def _look(self) -> bool:
        began_s = self.now_s()
        answer = await self._call("look", "GET", "/offsets")
        if answer is None:
            return False
        offsets = {one["partition"]: one["offset"] for one in answer["offsets"] if one["offset"]}
        self.history.seen.append(Seen(self.now_s(), offsets, began_s))
        return True

    async def _join(self, name: str, instance_id: str | None) -> Life | None:
        began_s = self.now_s()
        subscription = {"topics_pattern": "t.*"} if self.plan.pattern else {"topics": [TOPIC]}
        body = {
            **subscription,
            "session_timeout_ms": int(self.plan.session_s * 1000),
            "assignor": self.plan.assignor,
            "client_id": name,
            "instance_id": instance_id,
        }
        try:
            answer = await self._call(f"join {name}", "POST", "/members", body)
        except Refused as error:
            # Classic members of Kafka's were first: the group is theirs until all have left.
            if error.code != "INCONSISTENT_GROUP_PROTOCOL":
                raise
            return None
        if answer is None:
            return None
        life = Life(answer["member_id"], name)
        self._hear(life, answer, began_s)
        return life

    async def _read_on(self, life: Life) -> None:
        """Poll and commit until the session ends for any reason."""
        try:
            while True:
                fate = 1.0 if self.is_calm else self._chance.random()
                if fate < 0.015:
                    self.note(f"{life.name} dies")
                    return
                if fate < 0.03:
                    await self._leave(life)
                    return
                if fate < 0.06:
                    self.note(f"{life.name} pauses")
                    await self._pause(self._chance.uniform(0.5, 2.5) * self.plan.session_s)
                await self._poll(life)
                if self.is_calm or self._chance.random() < 0.6:
                    await self._commit(life)
                await self._pause(self._chance.expovariate(4 if self.is_calm else 8))
        except Refused as error:
            if error.code != "UNKNOWN_MEMBER_ID":
                self.history.errors.append(f"{life.name} at {self.now_s():.3f}: {error}")
        finally:
            for partition in list(life.reads):
                self.stop(life, partition)

    async def _poll(self, life: Life) -> None:
        self._give_up(life)
        began_s = self.now_s()
        body = {
            "generation": life.generation,
            "owned": _places(life.reads),
            "positions": [
                {"topic": TOPIC, "partition": p, "offset": o} for p, o in life.positions.items()
            ],
            "max_records": self._chance.choice([3, 50, 1000]),
            "max_wait_ms": self._chance.choice([0, 300, 2000]),
        }
        path = f"/members/{life.member_id}"
        try:
            answer = await self._call(f"poll {life.name}", "POST", f"{path}/poll", body)
        except Refused as error:
            if error.code != "ILLEGAL_GENERATION":
                raise
            beat = {"generation": life.generation, "owned": _places(life.reads)}
            answer = await self._call(f"beat {life.name}", "POST", f"{path}/heartbeat", beat)
        if answer is None:
            return
        self._hear(life, answer, began_s)
        for each in answer.get("partitions", ()):
            self._receive(life, each, began_s)

    def _receive(self, life: Life, each: Any, began_s: float) -> None:
        partition = each["partition"]
        if "error" in each:
            if not passes(each["error"]["status"], each["error"]["code"]):
                self.history.errors.append(f"{life.name}: {partition}: {each['error']}")
            return
        offsets = [record["offset"] for record in each["records"]]
        life.positions[partition] = each["next_offset"]
        if offsets:
            if offsets != list(range(offsets[0], offsets[-1] + 1)):
                self.history.errors.append(f"{life.name}: {partition}: {offsets}")
            span = range(offsets[0], offsets[-1] + 1)
            self.history.delivered.append(
                Delivered(life.name, life.generation, partition, span, began_s, self.now_s())
            )
            self.note(f"{life.name} got {partition} {span}")

    async def _commit(self, life: Life) -> None:
        if not life.positions:
            return
        began_s = self.now_s()
        body = {
            "member_id": life.member_id,
            "generation": life.generation,
            "offsets": [
                {"topic": TOPIC, "partition": p, "offset": o} for p, o in life.positions.items()
            ],
        }
        try:
            answer = await self._call(f"commit {life.name}", "POST", "/offsets", body)
        except Refused as error:
            if error.code != "ILLEGAL_GENERATION":
                raise
            return
        ended_s = self.now_s()
        self.history.commits += [
            Committing(life.name, life.generation, p, o, began_s, answer is not None, ended_s)
            for p, o in life.positions.items()
        ]

    async def _leave(self, life: Life) -> None:
        for partition in list(life.reads):
            self.stop(life, partition)
        await self._call(f"leave {life.name}", "DELETE", f"/members/{life.member_id}")

    # Recording

    def _hear(self, life: Life, answer: Any, began_s: float) -> None:
        life.generation = answer["generation"]
        life.assignment = {place["partition"] for place in answer["assignment"]}
        life.revoke = {place["partition"] for place in answer["revoke"]}
        life.beaten_s = began_s
        at_s = self.now_s()
        told = Assigned(life.name, life.generation, tuple(sorted(life.assignment)), began_s, at_s)
        self.history.told.append(told)
        self.note(f"told {told} revoke {sorted(life.revoke)}")
        for partition in life.assignment:
            life.reads.setdefault(partition, at_s)
        for partition in life.reads.keys() - life.assignment - life.revoke:
            self.stop(life, partition)

    def _give_up(self, life: Life) -> None:
        """Stop reading partitions that must be given up, mostly at once."""
        if self._chance.random() < 0.8:
            for partition in life.revoke & life.reads.keys():
                self.stop(life, partition)

    def stop(self, life: Life, partition: int) -> None:
        began_s = life.reads.pop(partition)
        life.positions.pop(partition, None)
        self.history.reads.append(Read(life.name, partition, began_s, self.now_s(), life.beaten_s))

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def note(self, what: str) -> None:
        self._trace.append(f"{self.now_s():.6f} {what}")


def _places(partitions: Any) -> list[Any]:
    return [{"topic": TOPIC, "partition": p} for p in sorted(partitions)]
