"""Faults of gateways, zones and the table, one after the other, until they end."""

import asyncio
import random
from collections.abc import Callable
from functools import partial

from storage.errors import RiachoError
from tests.simulation.cloud import Cloud
from tests.simulation.cuts import Cut
from tests.simulation.hosts import Host
from tests.simulation.plan import Plan
from tests.simulation.world import STOPPED_S

AWAY_S = 60.0
THROTTLED_S = 10.0

BLINK_S = 6.0
MOVE_S = 30.0
SETTLING_S = 40.0
"""Maximum wait, before a zone is wiped, until other zones hold everything."""

KINDS = ("kill", "stop", "away", "hang", "throttle", "blink", "move", "wipe", "lose")
"""Every kind of event."""


class Trouble:
    def __init__(
        self,
        plan: Plan,
        chance: random.Random,
        cloud: Cloud,
        hosts: list[Host],
        start: Callable[[], Host],
        note: Callable[[str], None],
        cut: Cut,
    ) -> None:
        self._plan = plan
        self._chance = chance
        self._cloud = cloud
        self._hosts = hosts
        self._start = start
        self._note = note
        self._cut = cut
        self.counts = dict.fromkeys(KINDS, 0)
        self._lasting: list[asyncio.Task[None]] = []

    async def make(self, count: int) -> None:
        """Cause `count` faults; lasting ones overlap with the next."""
        lasting_kinds = {
            "stop": self._stop,
            "blink": self._blink,
            "move": self._move,
            "wipe": partial(self._take, "wipe", self._cloud.wipe),
            "lose": partial(self._take, "lose", self._cloud.lose),
        }
        for number in range(1, count + 1):
            await asyncio.sleep(self._chance.uniform(0.05, 2))
            kind = self._chance.choice(self._kinds())
            if kind in self._cut.without or number in self._cut.skipped:
                continue
            self.counts[kind] += kind not in ("wipe", "lose")
            if kind == "kill":
                self._kill(self._chance.randrange(len(self._hosts)))
            elif kind in lasting_kinds:
                self._lasting.append(asyncio.create_task(lasting_kinds[kind]()))
            else:
                self._lasting.append(asyncio.create_task(self._spoil(kind)))
        await asyncio.gather(*self._lasting)

    def _kinds(self) -> list[str]:
        kinds = ["kill", "kill", "stop", "stop", "throttle"]
        if len(self._cloud.weather) == 1:
            return kinds
        if self._plan.wipes:
            # No other faults of zones: two failed zones at a time could lose records.
            return [*kinds, "wipe", "wipe", "lose", "lose"]
        return [*kinds, "away", "away", "hang", "blink", "blink", "move", "move"]

    def end(self) -> None:
        """End every fault except deaths, and start no new one."""
        for task in self._lasting:
            task.cancel()
        self._cloud.clear_up()
        for host in self._hosts:
            host.process.resume()

    def _kill(self, number: int) -> None:
        self._note(f"kill {number}")
        self._hosts[number].process.kill()
        self._hosts[number] = self._start()

    async def _stop(self) -> None:
        number = self._chance.randrange(len(self._hosts))
        host = self._hosts[number]
        seconds = self._chance.uniform(0.1, STOPPED_S)
        self._note(f"stop {number} for {seconds:.3f}")
        host.process.stop()
        await asyncio.sleep(seconds)
        if host in self._hosts:
            host.process.resume()
            self._note(f"{number} goes on")

    async def _blink(self) -> None:
        """Make a zone unreachable briefly, several times: it leaves and enters the ISR."""
        name = self._chance.choice(sorted(self._cloud.weather))
        for _ in range(self._chance.randint(2, 4)):
            seconds = self._chance.uniform(0.2, BLINK_S)
            self._note(f"blink {name} for {seconds:.3f}")
            self._cloud.weather[name].is_away = True
            await asyncio.sleep(seconds)
            self._cloud.weather[name].is_away = False
            await asyncio.sleep(self._chance.uniform(1, 3 * BLINK_S))

    async def _move(self) -> None:
        """Move topics to other zones, or to more or fewer of them."""
        host = self._chance.choice(self._hosts)
        names = sorted(self._cloud.weather)
        count = self._chance.randint(max(2, self._plan.min_insync), len(names))
        zones = self._chance.sample(names, count)
        outcome = "done"
        try:
            async with asyncio.timeout(MOVE_S):
                for topic in await host.serve(host.gateway.topics.all()):
                    altering = host.gateway.topics.alter(topic.name, replicas=zones)
                    await host.serve(altering)
        except (RiachoError, TimeoutError) as error:
            outcome = type(error).__name__
        self._note(f"move to {zones}: {outcome}")

    async def _take(self, kind: str, take: Callable[[str, random.Random], None]) -> None:
        """Remove objects of a zone, as soon as other zones are known to hold them."""
        name = self._chance.choice(sorted(self._cloud.weather))
        for _ in range(int(SETTLING_S)):
            if await self._cloud.can_do_without(name):
                self._note(f"{kind} {name}")
                self.counts[kind] += 1
                take(name, self._chance)
                return
            await asyncio.sleep(1)

    async def _spoil(self, kind: str) -> None:
        if kind == "throttle":
            name, weather, longest_s = "table", self._cloud.table_weather, THROTTLED_S
        else:
            name = self._chance.choice(sorted(self._cloud.weather))
            weather, longest_s = self._cloud.weather[name], AWAY_S
        seconds = self._chance.uniform(1, longest_s)
        self._note(f"{kind} {name} for {seconds:.3f}")
        attribute = {"throttle": "is_throttled", "away": "is_away", "hang": "hangs"}[kind]
        setattr(weather, attribute, True)
        await asyncio.sleep(seconds)
        setattr(weather, attribute, False)
        self._note(f"{kind} {name} is over")
