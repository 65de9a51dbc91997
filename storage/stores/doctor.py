"""Checks that a store keeps the promises that everything else relies on.

Some stores accept a conditional write and ignore the condition. On such a store two gateways
would silently overwrite each other's records. So before a bucket or a table is trusted,
`riacho doctor` races writers for the same key and checks which won, reads back at once, repeats
a write as after a lost reply, and lists what it wrote.

Everything is written under separate names, and removed afterwards whatever happens.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from storage import keys
from storage.errors import (
    Corrupt,
    MetadataConflict,
    ObjectExists,
    ObjectMissing,
    RiachoError,
    Unavailable,
)
from storage.stores.metadata import Check, Delete, MetadataStore, Op, Put
from storage.stores.objects import ObjectStore

WRITERS: Final = 8
ROUNDS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What one check found: `detail` says what was seen, and when not `ok` what it means."""

    name: str
    ok: bool
    detail: str
    took_ms: float


Probe: TypeAlias = Callable[[], Awaitable[str]]
"""Returns what it saw, or raises `_Broken`."""


class _Broken(Exception):
    """A promise that did not hold. The message says which, and what that would mean."""


async def check_objects(store: ObjectStore) -> list[Diagnosis]:
    """Return what was found, one entry per promise; a store out of reach ends the list."""
    probes = _ObjectProbes(store)
    try:
        return await _run(
            {
                "conditional write": probes.conditional_write,
                "racing writers": probes.racing_writers,
                "repeated write": probes.repeated_write,
                "read after write": probes.read_after_write,
                "range reads": probes.range_reads,
                "list after write": probes.list_after_write,
                "delete": probes.delete,
            }
        )
    finally:
        with suppress(RiachoError):
            await store.delete(sorted(probes.keys))


async def check_metadata(store: MetadataStore) -> list[Diagnosis]:
    """Return what was found, one entry per promise; a store out of reach ends the list."""
    probes = _MetadataProbes(store)
    try:
        return await _run(
            {
                "conditional write": probes.conditional_write,
                "racing writers": probes.racing_writers,
                "transactions": probes.transactions,
                "racing transactions": probes.racing_transactions,
                "read after write": probes.read_after_write,
                "list after write": probes.list_after_write,
            }
        )
    finally:
        with suppress(RiachoError):
            await probes.clean_up()


async def _run(probes: Mapping[str, Probe]) -> list[Diagnosis]:
    findings: list[Diagnosis] = []
    for name, probe in probes.items():
        began_s = time.perf_counter()
        ok, reachable = True, True
        try:
            detail = await probe()
        except (_Broken, RiachoError) as error:
            ok, reachable, detail = False, not isinstance(error, Unavailable), str(error)
        took_ms = (time.perf_counter() - began_s) * 1000
        findings.append(Diagnosis(name=name, ok=ok, detail=detail, took_ms=took_ms))
        if not reachable:  # The others would only time out as well.
            break
    return findings


class _ObjectProbes:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._folder = keys.doctor_folder(secrets.token_hex(8))
        self.keys: set[str] = set()

    async def conditional_write(self) -> str:
        key = self._key("conditional")
        await self._store.put(key, [b"first"])
        refused = not await self._wins(key, b"second")
        if await self._store.get(key) != b"first":
            raise _Broken("a second put replaced the object: records would be lost; do not use it")
        if not refused:
            raise _Broken("a second put with other bytes was not refused; do not use it")
        return "a second put with other bytes is refused and changes nothing"

    async def racing_writers(self) -> str:
        for number in range(ROUNDS):
            key = self._key(f"race-{number}")
            bodies = [b"writer %d" % writer for writer in range(WRITERS)]
            won = await asyncio.gather(*(self._wins(key, body) for body in bodies))
            winners = [body for body, wins in zip(bodies, won, strict=True) if wins]
            if len(winners) != 1:
                raise _Broken(f"{len(winners)} of {WRITERS} racing puts won; do not use this store")
            if await self._store.get(key) != winners[0]:
                raise _Broken("a put that was refused replaced the winner's; do not use this store")
        return f"{ROUNDS} races of {WRITERS} puts had one winner each"

    async def repeated_write(self) -> str:
        key = self._key("repeated")
        await self._store.put(key, [b"sa", b"me"])
        if not await self._wins(key, b"same"):
            raise _Broken("the same put again is refused: a lost reply could not be repaired")
        return "the same put again succeeds"

    async def read_after_write(self) -> str:
        for number in range(ROUNDS):
            key = self._key(f"read-{number}")
            with suppress(ObjectMissing):
                await self._store.get(key)
                raise _Broken(f"{key} could be read before it was written")
            await self._store.put(key, [b"%d" % number])
            try:
                await self._store.get(key)
            except ObjectMissing:
                raise _Broken("an object could not be read right after its put") from None
        return f"{ROUNDS} objects were read right after their put"

    async def range_reads(self) -> str:
        key, body = self._key("ranges"), bytes(range(256)) * 1024
        await self._store.put(key, [body])
        ranges = [(0, 10), (200_000, 200_100), (5, 300), (len(body) - 1, len(body))]
        if await self._store.get_ranges(key, ranges) != [body[start:end] for start, end in ranges]:
            raise _Broken("a range read returned other bytes than were written")
        with suppress(Corrupt):
            await self._store.get_ranges(key, [(0, len(body) + 1)])
            raise _Broken("a range beyond the end was answered as if it were whole")
        return f"{len(ranges)} ranges returned what was written"

    async def list_after_write(self) -> str:
        keys = {self._key(f"list/{number}") for number in range(ROUNDS)}
        for key in keys:
            await self._store.put(key, [b"x"])
        batches = [batch async for batch in self._store.list(f"{self._folder}/list/")]
        found = {info.key for batch in batches for info in batch}
        if found != keys:
            raise _Broken(f"{len(keys & found)} of {len(keys)} objects were listed after their put")
        return f"{len(keys)} objects were listed right after their put"

    async def delete(self) -> str:
        key = self._key("deleted")
        await self._store.put(key, [b"x"])
        await self._store.delete([key])
        await self._store.delete([key])
        with suppress(ObjectMissing):
            await self._store.get(key)
            raise _Broken("a deleted object can still be read")
        return "a deleted object is gone, and deleting it again is fine"

    def _key(self, name: str) -> str:
        key = f"{self._folder}/{name}"
        self.keys.add(key)
        return key

    async def _wins(self, key: str, body: bytes) -> bool:
        try:
            await self._store.put(key, [body])
        except ObjectExists:
            return False
        return True


class _MetadataProbes:
    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._folder = keys.doctor_folder(secrets.token_hex(8))

    async def conditional_write(self) -> str:
        key = f"{self._folder}/conditional"
        version = (await self._store.transact([Put(key, b"first", None)]))[key]
        for stale in (None, "stale"):
            if await self._wins([Put(key, b"second", stale)]):
                raise _Broken("a write was accepted against its condition; do not use this table")
        if not await self._wins([Put(key, b"second", version)]):
            raise _Broken("a write was refused although its condition held")
        return "writes are accepted and refused as their conditions demand"

    async def racing_writers(self) -> str:
        key = f"{self._folder}/race"
        version: str | None = None
        for _ in range(ROUNDS):
            ops = [[Put(key, b"%d" % writer, version)] for writer in range(WRITERS)]
            await self._race(ops)
            version = await self._version(key)
        return f"{ROUNDS} races of {WRITERS} writers had one winner each"

    async def transactions(self) -> str:
        one, two = f"{self._folder}/one", f"{self._folder}/two"
        if await self._wins([Put(one, b"", None), Check(two, "missing")]):
            raise _Broken("a transaction was accepted against one of its conditions")
        if await self._store.get(one) is not None:
            raise _Broken("a refused transaction was applied in part; do not use this table")
        await self._store.transact([Put(one, b"", None), Put(two, b"", None)])
        if len(await self._store.get_many([one, two])) != 2:
            raise _Broken("an accepted transaction was applied in part; do not use this table")
        return "transactions are applied as a whole or not at all"

    async def racing_transactions(self) -> str:
        keys = [f"{self._folder}/left", f"{self._folder}/right"]
        versions: list[str | None] = [None, None]
        for _ in range(ROUNDS):
            await self._race(
                [
                    [Put(key, b"%d" % w, old) for key, old in zip(keys, versions, strict=True)]
                    for w in range(WRITERS)
                ]
            )
            values = {item.value for item in (await self._store.get_many(keys)).values()}
            if len(values) != 1:
                raise _Broken("racing transactions were mixed; do not use this table")
            versions = [await self._version(key) for key in keys]
        return f"{ROUNDS} races of {WRITERS} transactions had one winner each"

    async def read_after_write(self) -> str:
        for number in range(ROUNDS):
            key = f"{self._folder}/read-{number}"
            version = (await self._store.transact([Put(key, b"", None)]))[key]
            if await self._version(key) != version:
                raise _Broken("an item could not be read right after it was written")
        return f"{ROUNDS} items were read right after they were written"

    async def list_after_write(self) -> str:
        keys = [f"{self._folder}/list-{number}" for number in range(ROUNDS)]
        await self._store.transact([Put(key, b"", None) for key in reversed(keys)])
        found = [key for key, _ in await self._store.list(f"{self._folder}/list-")]
        if found != keys:
            raise _Broken(f"listed {found} after {keys} were written")
        return f"{len(keys)} items were listed in order right after they were written"

    async def clean_up(self) -> None:
        for key, item in await self._store.list(f"{self._folder}/"):
            await self._store.transact([Delete(key, item.version)])

    async def _race(self, transactions: Sequence[Sequence[Op]]) -> None:
        won = sum(await asyncio.gather(*(self._wins(ops) for ops in transactions)))
        if won != 1:
            raise _Broken(f"{won} of {WRITERS} racing writers won; do not use this table")

    async def _wins(self, ops: Sequence[Op]) -> bool:
        try:
            await self._store.transact(ops)
        except MetadataConflict:
            return False
        return True

    async def _version(self, key: str) -> str | None:
        item = await self._store.get(key)
        return None if item is None else item.version
