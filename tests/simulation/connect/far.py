"""What sources read and sinks write to: shared by all runners, and reached through faults.

A call takes its time, and may fail before or after it took effect. One that was sent is not undone
by the death of its sender, nor by a pause.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from service.connect.connectors.api import TopicPartition
from service.connect.data.errors import RetriableFault, TaskFault
from tests.checker.connect_history import BAD_FOR_SINK, BAD_FOR_SOURCE, ConnectHistory, Taken
from tests.simulation.connect.plan import ConnectPlan
from tests.simulation.virtual_loop import VirtualLoop

T = TypeVar("T")

SIMULATED = "simulated"
"""In the texts of all errors that are raised on purpose."""

APPEARS_EVERY_S = 8.0
"""When another partition of a source appears."""

Held = dict[TopicPartition, int]


@dataclass
class Far:
    loop: VirtualLoop
    plan: ConnectPlan
    chance: random.Random
    history: ConnectHistory
    is_calm: bool = False
    held: dict[str, Held] = field(default_factory=dict)
    """By sink: the next offsets that a target holds itself."""
    _rows: dict[tuple[str, int], list[str]] = field(default_factory=dict)

    async def call(self, work: Callable[[], T]) -> T:
        """Do `work` far away. Raises a fault, though it may have happened."""
        answer: asyncio.Future[T] = self.loop.create_future()
        self.loop.outside_after(self._time_s(), self._arrive, work, answer)
        return await answer

    def _time_s(self) -> float:
        return self.chance.expovariate(1 / (0.001 if self.is_calm else self.plan.slow_s))

    def _fails(self) -> bool:
        return not self.is_calm and self.chance.random() < self.plan.faults

    def _arrive(self, work: Callable[[], Any], answer: "asyncio.Future[Any]") -> None:
        if self._fails():
            self.loop.outside_after(self._time_s(), _fail, answer, self._fault("did not arrive"))
            return
        try:
            result = work()
        except TaskFault as error:
            self.loop.outside_after(self._time_s(), _fail, answer, error)
            return
        if self._fails():
            self.loop.outside_after(self._time_s(), _fail, answer, self._fault("had no answer"))
        else:
            self.loop.outside_after(self._time_s(), _return, answer, result)

    def _fault(self, what: str) -> Exception:
        kind = TaskFault if self.chance.random() < 0.2 else RetriableFault
        return kind(f"{SIMULATED}: the call {what}")

    # Sources

    def rows(self, source: str, partition: int) -> list[str]:
        """Return all records that a partition will ever have."""
        key = source, partition
        if key not in self._rows:
            chance = random.Random(f"{key} {self.plan.numbers} {self.plan.bad}")
            self._rows[key] = [
                f"{source}/{partition}:{number}{self._mark(chance)}"
                for number in range(chance.randint(self.plan.numbers // 2, self.plan.numbers))
            ]
        return self._rows[key]

    def _mark(self, chance: random.Random) -> str:
        fate = chance.random()
        if fate < self.plan.bad:
            return BAD_FOR_SOURCE
        return BAD_FOR_SINK if fate < 2 * self.plan.bad else ""

    def rows_now(self, source: str, partition: int) -> list[str]:
        """Return the records that are there by now."""
        rows, pace_s = self.rows(source, partition), self.plan.pace_s
        if self.is_calm or not pace_s:
            return rows
        return rows[: int(self.loop.now_s / pace_s)]

    def partitions_now(self) -> int:
        count = self.plan.partitions
        if self.plan.replans and not self.is_calm:
            return min(count, 1 + int(self.loop.now_s / APPEARS_EVERY_S))
        return count

    # Targets

    def take(self, sink: str, records: list[tuple[TopicPartition, int, str]]) -> None:
        at_s = self.loop.now_s
        self.history.taken += [
            Taken(sink, place.topic, place.partition, offset, value, at_s)
            for place, offset, value in records
        ]

    def take_from(
        self, sink: str, records: list[tuple[TopicPartition, int, str]], before: Held, after: Held
    ) -> None:
        """Take records and positions, unless others have moved the positions meanwhile."""
        held = self.held.setdefault(sink, {})
        if all(held.get(place) == offset for place, offset in after.items()):
            return  # This very call has happened, and its answer was lost.
        if any(held.get(place, -1) != before.get(place, -1) for place in after):
            raise TaskFault(f"{SIMULATED}: somebody else has written to the target")
        held |= after
        self.take(sink, records)


def _return(answer: "asyncio.Future[Any]", result: Any) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: "asyncio.Future[Any]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # Marks it as retrieved: a dead caller does not retrieve it.
