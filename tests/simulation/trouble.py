"""What befalls gateways, zones and the table, one thing after the other, until it is quiet."""

import asyncio
import random
from collections.abc import Callable

from tests.simulation.cuts import Cut
from tests.simulation.hosts import Cloud, Host

STOPPED_S = 15.0
"""A process stands still for so long at most: longer than any session or lease, and shorter than
what an object may lie about before it is committed or swept."""

AWAY_S = 60.0
THROTTLED_S = 10.0

KINDS = ("kill", "stop", "away", "hang", "throttle")
"""Every kind of event."""


class Trouble:
    def __init__(
        self,
        chance: random.Random,
        cloud: Cloud,
        hosts: list[Host],
        start: Callable[[], Host],
        note: Callable[[str], None],
        cut: Cut,
    ) -> None:
        self._chance = chance
        self._cloud = cloud
        self._hosts = hosts
        self._start = start
        self._note = note
        self._cut = cut
        self.counts = dict.fromkeys(KINDS, 0)

    async def make(self, count: int) -> None:
        """Let `count` things go wrong; those that last go on beside the next."""
        lasting = []
        for number in range(1, count + 1):
            await asyncio.sleep(self._chance.uniform(0.1, 5))
            kinds = ["kill", "kill", "stop", "stop", "throttle"]
            if len(self._cloud.weather) > 1:
                kinds += ["away", "away", "hang"]
            kind = self._chance.choice(kinds)
            if kind in self._cut.without or number in self._cut.skipped:
                continue
            self.counts[kind] += 1
            if kind == "kill":
                self._kill(self._chance.randrange(len(self._hosts)))
            elif kind == "stop":
                lasting.append(asyncio.create_task(self._stop()))
            else:
                lasting.append(asyncio.create_task(self._spoil(kind)))
        await asyncio.gather(*lasting)

    def end(self) -> None:
        """Let everything be well that is not dead."""
        self._cloud.clear_up()
        for host in self._hosts:
            host.process.resume()

    def _kill(self, number: int) -> None:
        self._note(f"kill {number}")
        self._hosts[number].process.stop()
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
