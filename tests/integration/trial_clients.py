"""A client process of a trial: some of those who use gateways, and what they saw.

`main` runs in a process of its own, and listens to a pipe. It answers each word with the same
when it has done what it was told:

    calm    finish what was begun; nothing fails any more
    drain   return when the group has read and committed everything
    stop    write the history to a file, and end
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from tests.checker import operations
from tests.checker.transaction_rules import Shown
from tests.integration.processes import records_path
from tests.integration.trial_roles import (
    CALM_S,
    NET_S,
    PARTITIONS,
    Numbered,
    Readers,
    Role,
    Writers,
)
from tests.simulation.asking import Asking
from tests.simulation.atomic_writers import ATOMS, AtomicWriters
from tests.simulation.copier_plan import CopierPlan
from tests.simulation.copiers import COPIES, SOURCE, Copiers
from tests.simulation.copiers import GROUP as COPIERS
from tests.simulation.http import Net, NetPlan, Refused
from tests.simulation.members import TOPIC, GroupPlan, Members


def group_plan(seed: int) -> GroupPlan:
    """Return what all members of a trial agree on."""
    plan = GroupPlan.of(random.Random(seed))
    return replace(plan, members=2, session_s=2.0, pattern=False, grows=False)


def copier_plan(seed: int, seconds: float) -> CopierPlan:
    plan = CopierPlan.of(random.Random(seed))
    return replace(plan, copiers=2, records=int(5 + seconds), partitions=PARTITIONS)


class Group(Role):
    """Members of a group; one process also looks at what is committed."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._members = Members(
            group_plan(self.seed), self.chance, lambda: self.hosts, time.monotonic, trace=[]
        )
        self.history.group = self._members.history

    def until_the_end(self) -> list[Awaitable[None]]:
        return [self._members.live(10 * self.number + n) for n in range(2)]

    def calm_down(self) -> None:
        super().calm_down()
        self._members.is_calm = True


class WatchedGroup(Group):
    def until_the_end(self) -> list[Awaitable[None]]:
        return [*super().until_the_end(), self._members.look()]

    async def drain(self) -> None:
        await self._members.drain(self._ends)

    async def _ends(self) -> dict[int, int]:
        answer = await self.persist("GET", f"/v1/topics/{TOPIC}/partitions")
        ends = {one["partition"]: one["high_watermark"] for one in answer["partitions"]}
        return {partition: end for partition, end in ends.items() if end}


class Transacting(Role):
    """What those have in common who write to many partitions at once, and who watch them."""

    topic = ""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.history.transactions.copies_to = COPIES
        plan = replace(NetPlan.of(self.chance), timeout_s=NET_S)
        self._net = Net(plan, self.chance, lambda: self.hosts)
        self.asking = Asking(self._net, self.chance, time.monotonic, [], self.history.transactions)

    def until_the_end(self) -> list[Awaitable[None]]:
        return [self._watch()]

    def calm_down(self) -> None:
        super().calm_down()
        self.asking.is_calm = True
        self._net.calm_down()

    async def settle(self) -> None:
        await self._net.settle()

    async def _watch(self) -> None:
        offsets = dict.fromkeys(range(PARTITIONS), 0)
        while True:
            await asyncio.sleep(self.chance.expovariate(5))
            partition = self.chance.randrange(PARTITIONS)
            path = f"{records_path(self.topic, partition)}?offset={offsets[partition]}"
            began_s = time.monotonic()
            try:
                answer = await self.call("GET", f"{path}&max_records=50")
            except (Refused, TimeoutError):
                continue
            values = tuple((record["offset"], record["value"]) for record in answer["records"])
            offsets[partition], end = answer["next_offset"], answer["high_watermark"]
            is_now = offsets[partition] == end
            self.history.transactions.shown.append(
                Shown((self.topic, partition), began_s, time.monotonic(), values, end, is_now)
            )
            if is_now and self.chance.random() < 0.05:
                offsets[partition] = 0


class CopyingRole(Transacting):
    """Copiers: they read, and write copies together with the offsets behind the originals."""

    topic = COPIES

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._plan = copier_plan(self.seed, self.seconds)
        self._copiers = Copiers(
            self._plan, self.chance, time.monotonic, self.history.transactions, self.asking
        )

    def until_calm(self) -> list[Awaitable[None]]:
        return [self._until_copied()]

    def until_the_end(self) -> list[Awaitable[None]]:
        copiers = [self._copiers.keep(number) for number in range(self._plan.copiers)]
        return [*super().until_the_end(), *copiers]

    def calm_down(self) -> None:
        super().calm_down()
        self._copiers.calm_down()

    async def _until_copied(self) -> None:
        while not self.is_calm:
            await asyncio.sleep(0.1)
        give_up_s = time.monotonic() + CALM_S
        wanted = self._plan.records * self._plan.source_partitions
        copied = 0
        while copied < wanted and time.monotonic() < give_up_s:
            answer = await self.persist("GET", f"/v1/groups/{COPIERS}/offsets")
            copied = sum(one["offset"] for one in answer["offsets"] if one["topic"] == SOURCE)
            await asyncio.sleep(0.2)
        self.history.transactions.is_drained = copied == wanted
        self._copiers.stop()
        await self.settle()


class AtomicRole(Transacting):
    """Writers of atomic calls, numbered or under a key."""

    topic = ATOMS

    def until_calm(self) -> list[Awaitable[None]]:
        return [self._live(0), self._live(1)]

    async def _live(self, first: int) -> None:
        writers = AtomicWriters(
            self.chance, self.asking, self.history.transactions, PARTITIONS, calls=6
        )
        for turn in count():
            if self.is_calm:
                break
            await writers.live(first + 2 * turn)
        await self.settle()


ROLES: Final[dict[str, Callable[..., Role]]] = {
    "writers": Writers,
    "numbered": Numbered,
    "readers": Readers,
    "group": Group,
    "watched-group": WatchedGroup,
    "copiers": CopyingRole,
    "atomic": AtomicRole,
}


async def play(role: Role, pipe: Connection, file: Path) -> None:
    words: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    loop.add_reader(pipe.fileno(), lambda: words.put_nowait(pipe.recv()))
    unending = [asyncio.ensure_future(work) for work in role.until_the_end()]
    finite = [asyncio.ensure_future(work) for work in role.until_calm()]
    pipe.send("start")
    while (word := await words.get()) != "stop":
        if word == "calm":
            role.calm_down()
            await asyncio.gather(*finite)
        else:
            await role.drain()
        pipe.send(word)
    loop.remove_reader(pipe.fileno())
    for task in unending:
        task.cancel()
    for outcome in await asyncio.gather(*unending, return_exceptions=True):
        assert isinstance(outcome, asyncio.CancelledError), outcome
    operations.dump(role.finish(), file)
    pipe.send("stop")


def main(
    name: str,
    number: int,
    seed: int,
    seconds: float,
    urls: Sequence[str],
    pipe: Connection,
    file: Path,
) -> None:
    role = ROLES[name](number, seed, seconds, urls)
    asyncio.run(play(role, pipe, file))
