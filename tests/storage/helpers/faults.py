"""Stores that misbehave on purpose. Each wraps a real one and keeps its promises otherwise."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal

from storage.errors import OutcomeUnknown, StoreUnavailable
from storage.stores.memory import MemoryObjects
from storage.stores.metadata import MetadataStore, Op, Versioned
from storage.stores.objects import Body

Fault = Literal["none", "refused", "request lost", "reply lost", "late"]
"""The outcome of a write: refused for certain; not done and not answered; done and not
answered; not answered, and done later unless another write came first."""

FAULTS: Sequence[Fault] = ("none", "refused", "request lost", "reply lost", "late")


class FaultyMetadata:
    """A `MetadataStore` whose next transactions meet `faults`, then what `next_fault` says."""

    def __init__(
        self, inner: MetadataStore, next_fault: Callable[[], Fault] = lambda: "none"
    ) -> None:
        self.inner = inner
        self.faults: list[Fault] = []
        self.next_fault = next_fault
        self.before_unknown: Callable[[], Awaitable[None]] | None = None
        """Called once, after an unanswered write and before its error is raised."""
        self.failing_gets = 0
        self.lost: list[Sequence[Op]] = []
        """The transactions that were not done and not answered."""
        self.calls: Counter[str] = Counter()
        """All but lists, which are in `lists`."""
        self.lists = 0
        self._late: set[asyncio.Task[None]] = set()

    async def get(self, key: str) -> Versioned | None:
        self.calls["get"] += 1
        await asyncio.sleep(0)
        if self.failing_gets:
            self.failing_gets -= 1
            raise StoreUnavailable("no connection to the table")
        return await self.inner.get(key)

    async def get_many(self, keys: Sequence[str]) -> dict[str, Versioned]:
        self.calls["get_many"] += 1
        await asyncio.sleep(0)
        return await self.inner.get_many(keys)

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int = 1000
    ) -> list[tuple[str, Versioned]]:
        self.lists += 1
        return await self.inner.list(prefix, after=after, limit=limit)

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        self.calls["transact"] += 1
        await asyncio.sleep(0)
        fault = self.faults.pop(0) if self.faults else self.next_fault()
        if fault == "refused":
            raise StoreUnavailable("throttled")
        if fault == "none":
            versions = await self.inner.transact(ops)
            await asyncio.sleep(0)
            return versions
        if fault == "late":
            task = asyncio.create_task(self._do_late(ops))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
        if fault == "request lost":
            self.lost.append(ops)
        if fault == "reply lost":
            await self.inner.transact(ops)
        if self.before_unknown is not None:
            hook, self.before_unknown = self.before_unknown, None
            await hook()
        raise OutcomeUnknown("no answer")

    async def _do_late(self, ops: Sequence[Op]) -> None:
        for _ in range(len(self.calls) + sum(self.calls.values()) % 7):
            await asyncio.sleep(0)
        try:
            await self.inner.transact(ops)
        except Exception:  # noqa: BLE001
            return  # Another write came first.

    async def close(self) -> None:
        await self.inner.close()


def random_faults(seed: int, share: float = 0.5) -> Callable[[], Fault]:
    chance = random.Random(seed)
    return lambda: chance.choice(FAULTS[1:]) if chance.random() < share else "none"


class TestObjects(MemoryObjects):
    """An `ObjectStore` that counts calls, delays puts and reads, and fails on demand."""

    __test__ = False

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.failing_puts = 0
        self.failing_reads = 0
        self.hold_puts = False
        self.held: list[asyncio.Event] = []
        """Set the event of a put, by its number, to let it continue."""
        self.read_gate: asyncio.Event | None = None

    async def put(self, key: str, body: Body) -> None:
        self.calls["put"] += 1
        if self.hold_puts:
            gate = asyncio.Event()
            self.held.append(gate)
            await gate.wait()
        await asyncio.sleep(0)
        if self.failing_puts:
            self.failing_puts -= 1
            raise StoreUnavailable("the bucket is full of rocks")
        await super().put(key, body)

    async def get(self, key: str) -> bytes:
        self.calls["get"] += 1
        await self._read()
        return await super().get(key)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.calls["get_ranges"] += 1
        await self._read()
        self.calls["get"] -= 1  # MemoryObjects reads the whole object.
        gate, self.read_gate = self.read_gate, None
        try:
            return await super().get_ranges(key, ranges)
        finally:
            self.read_gate = gate

    async def _read(self) -> None:
        if self.read_gate is not None:
            await self.read_gate.wait()
        await asyncio.sleep(0)
        if self.failing_reads:
            self.failing_reads -= 1
            raise StoreUnavailable("the bucket does not answer")

    def names(self, ending: str = "") -> list[str]:
        return [key for key in self._bodies if key.endswith(ending)]

    def damage(self, key: str, position: int) -> None:
        body, modified_ms = self._bodies[key]
        broken = bytearray(body)
        broken[position] ^= 1
        self._bodies[key] = bytes(broken), modified_ms

    async def lose(self, key: str) -> None:
        await self.delete([key])
