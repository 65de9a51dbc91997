"""Makes records up. The one with a number is the same whenever it is made, so each is there once.

The position is `{"task.id": …}` -> `{"current.iteration": n, "random.seed": s}`: records below `n`
are in the log. Without a seed in the configuration the first run draws one, and the position holds
it from the first commit on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from service.connect.connectors.api import TaskContext
from service.connect.connectors.datagen.makers import Maker
from service.connect.data.errors import TaskFault
from service.connect.data.records import ConnectRecord, FromSource
from service.connect.data.schema import ConnectSchema

CATCH_UP_S: Final = 1.0
"""A task that was held up makes the records of this long at once, and leaves out the pause."""

REST_S: Final = 10.0
"""Between two polls of a task that has made all its records."""


@dataclass(frozen=True, kw_only=True)
class DatagenSettings:
    topic: str
    maker: Maker
    key_field: str
    """Empty: no key."""
    interval_s_max: float
    iterations: int | None
    seed: int | None


class DatagenSource:
    def __init__(self, context: TaskContext, settings: DatagenSettings) -> None:
        self._context = context
        self._settings = settings
        self._partition = {"task.id": context.task}
        self._next = 0
        self._seed = 0
        self._due_s = 0.0
        self._key_schema: ConnectSchema | None = None
        if settings.key_field:
            self._key_schema = settings.maker.schema.by_name[settings.key_field].schema

    async def start(self) -> None:
        world = self._context.environment.world
        [position] = await self._context.offsets.read([self._partition])
        position = position or {}
        seed = self._settings.seed
        if seed is None:
            seed = position.get("random.seed", int.from_bytes(world.random_bytes(6)))
        number = position.get("current.iteration", 0)
        if type(number) is not int or number < 0 or type(seed) is not int:
            raise TaskFault(f"{position!r} is not a position of this connector")
        self._next, self._seed = number, seed
        self._due_s = world.monotonic_s()

    async def poll(self, wait_s: float, records_max: int) -> Sequence[ConnectRecord]:
        world, iterations = self._context.environment.world, self._settings.iterations
        if iterations is not None:
            records_max = min(records_max, iterations - self._next)
            if records_max <= 0:
                await world.sleep(min(wait_s, REST_S))
                return []
        left_s = self._due_s - world.monotonic_s()
        if left_s > 0:
            await world.sleep(min(left_s, wait_s))
        now_s = world.monotonic_s()
        self._due_s = max(self._due_s, now_s - CATCH_UP_S)
        records: list[ConnectRecord] = []
        while len(records) < records_max and self._due_s <= now_s:
            random = Random(f"{self._seed} {self._context.task} {self._next}")  # noqa: S311
            records.append(self._record(random))
            self._due_s += random.random() * self._settings.interval_s_max
        return records

    async def committed(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def _record(self, random: Random) -> ConnectRecord:
        settings = self._settings
        value: dict[str, Any] = settings.maker.make(random, self._next)
        self._next += 1
        return ConnectRecord(
            topic=settings.topic,
            partition=None,
            key=value[settings.key_field] if settings.key_field else None,
            value=value,
            key_schema=self._key_schema,
            value_schema=settings.maker.schema,
            timestamp_ms=self._context.environment.world.now_ms(),
            origin=FromSource(
                self._partition, {"current.iteration": self._next, "random.seed": self._seed}
            ),
        )
