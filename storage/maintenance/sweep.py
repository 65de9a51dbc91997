"""Sweeping: finding and removing unreferenced objects.

An object is garbage if it is older than anything in flight, and nothing references it. It will
never be referenced again: objects are committed within minutes of being written (`FLIGHT_MAX_S`),
compactors hold a lease that a sweeper must have, and names are never used twice. So it does not
matter how long a sweep takes, which processes write meanwhile, or whether it ends in the middle.
It keeps no state; running it again continues. It must look in this order:

    1. list objects whose age is above the limit when the sweep began
    2. read transactions: only they reference staged objects, until they commit
    3. read topics, heads, and their references, which include everything committed meanwhile

If the references of a lane cannot be read, no zone that may hold its objects is swept. Keys in an
unknown format are never touched, and neither are the markers of zones.

Memory is bounded by the number of candidates, not by references, which are streamed. Too many
candidates are divided by the last digits of their names, and the sweep is done for each part.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from storage import keys
from storage.errors import Corrupt, RiachoError, StoreUnavailable
from storage.head.head import Head
from storage.keys import ObjectKey, ObjectKind, objects_ending_with, parse_key
from storage.resync import inventory
from storage.stores.objects import ObjectInfo, ObjectStore
from storage.zones.zones import Zones

CANDIDATES_MAX: Final = 500_000
"""Maximum number of objects examined together, about 150 MB; more are divided."""

DIGITS_MAX: Final = 3
"""Maximum number of digits to divide by. 4096 times the number above is a job for Spark."""

LANES_AT_ONCE: Final = 16

REMOVED_AT_ONCE: Final = 1000
"""Maximum number of objects that a bucket deletes with one request."""


def age_of(info: ObjectInfo, key: ObjectKey) -> int:
    """Return the time of the object in ms: the later one of its name's and the store's."""
    return max(key.named_ms, info.modified_ms)


async def clock_of(store: ObjectStore, probe: str) -> int | None:
    """Return the time of the store's clock, in ms; None if the store does not report it.

    `probe` is an unused identifier.
    """
    key = keys.zone_probe(probe)
    await store.put(key, [probe.encode()])
    try:
        async for batch in store.list(key):
            for info in batch:
                return info.modified_ms or None
        return None
    finally:
        await store.delete([key])


@dataclass(slots=True)
class Count:
    objects: int = 0
    size_bytes: int = 0

    def add(self, objects: int, size_bytes: int) -> None:
        self.objects += objects
        self.size_bytes += size_bytes


@dataclass(slots=True)
class ZoneTally:
    """What the sweep found in a zone."""

    seen: Count = field(default_factory=Count)
    """All objects, ours or not."""
    orphans: dict[ObjectKind, Count] = field(default_factory=dict)
    """Unreferenced objects."""
    removed: Count = field(default_factory=Count)
    unknown: Count = field(default_factory=Count)
    """Keys in an unknown format."""
    problem: str = ""
    """Why the zone was not swept, or not completely."""

    @property
    def orphan_count(self) -> int:
        return sum(count.objects for count in self.orphans.values())


@dataclass(frozen=True, slots=True)
class Candidate:
    """An object that is old enough to be removed if it is unreferenced."""

    key: str
    kind: ObjectKind
    size_bytes: int


class TooMany(Exception):
    """More candidates than may be examined together."""


async def candidates(
    store: ObjectStore, prefix: str, suffix: str, cutoff_ms: int, tally: ZoneTally
) -> AsyncIterator[list[Candidate]]:
    """Yield the objects below `prefix` that are not younger than `cutoff_ms`.

    Only objects whose identifier ends with `suffix` are yielded and counted. Keys in an unknown
    format are counted for a single suffix of each prefix, so that none is counted twice.
    """
    counts_unknown = not suffix[:-1].strip("0")
    async for batch in store.list(prefix):
        found = []
        for info in batch:
            key = parse_key(info.key)
            if key is None:
                if counts_unknown:
                    tally.seen.add(1, info.size_bytes)
                    tally.unknown.add(1, info.size_bytes)
            elif key.object_id.endswith(suffix):
                tally.seen.add(1, info.size_bytes)
                if key.kind != "marker" and age_of(info, key) <= cutoff_ms:
                    found.append(Candidate(info.key, key.kind, info.size_bytes))
        yield found


async def references(zones: Zones, head: Head) -> AsyncIterator[list[str]]:
    """Yield the keys of all objects that the lane references.

    Raises `StoreUnavailable` or `Corrupt` if some of them cannot be read.
    """
    async for shelf in inventory.walk(zones, head):
        yield [reference.key for reference in shelf.references]


Staged = Callable[[], Awaitable[Iterable[str]]]
"""Reads the keys that open transactions reference."""

Heads = Callable[[], AsyncIterator[Head]]
"""Reads the heads of all topics."""


@dataclass(slots=True)
class Found:
    """What one pass over some or all objects found, by zone."""

    tallies: dict[str, ZoneTally]
    orphans: dict[str, list[Candidate]]


async def find(
    zones: Zones,
    names: Iterable[str],
    suffix: str,
    cutoff_ms: int,
    staged: Staged,
    heads: Heads,
) -> Found:
    """Return the garbage of the named zones among objects whose identifier ends with `suffix`.

    A zone that cannot be swept has a problem and no orphans. Raises `TooMany`, and the errors of
    reading transactions and heads.
    """
    tallies = {name: ZoneTally() for name in names}
    left: dict[str, dict[str, Candidate]] = {}
    for name, tally in tallies.items():
        room = CANDIDATES_MAX - sum(map(len, left.values()))
        try:
            left[name] = await _listed(zones.store(name), suffix, cutoff_ms, tally, room)
        except StoreUnavailable as error:
            tally.problem = str(error)
    _drop(left, await staged())

    async def spare(head: Head) -> None:
        try:
            async for keys in references(zones, head):
                _drop(left, keys)
        except (StoreUnavailable, Corrupt) as error:
            # Only these zones can hold objects of the lane.
            for name in head.zones:
                if left.pop(name, None) is not None:
                    tallies[name].problem = f"what a lane refers to cannot be read: {error}"

    waiting: list[Head] = []
    async for head in heads():
        waiting.append(head)
        if len(waiting) == LANES_AT_ONCE:
            await asyncio.gather(*map(spare, waiting))
            waiting.clear()
    await asyncio.gather(*map(spare, waiting))
    return Found(tallies, {name: _counted(tallies[name], found) for name, found in left.items()})


async def _listed(
    store: ObjectStore, suffix: str, cutoff_ms: int, tally: ZoneTally, room: int
) -> dict[str, Candidate]:
    found: dict[str, Candidate] = {}
    prefix = objects_ending_with(suffix)
    async for batch in candidates(store, prefix, suffix, cutoff_ms, tally):
        found.update({each.key: each for each in batch})
        if len(found) > room and len(suffix) < DIGITS_MAX:
            raise TooMany
    return found


def _drop(left: Mapping[str, dict[str, Candidate]], keys: Iterable[str]) -> None:
    for key in keys:
        for found in left.values():
            found.pop(key, None)


def _counted(tally: ZoneTally, found: Mapping[str, Candidate]) -> list[Candidate]:
    for each in found.values():
        tally.orphans.setdefault(each.kind, Count()).add(1, each.size_bytes)
    return list(found.values())


async def remove(
    store: ObjectStore,
    orphans: Sequence[Candidate],
    tally: ZoneTally,
    check: Callable[[], Awaitable[None]],
    removed: Callable[[int, int], None] = lambda _objects, _bytes: None,
) -> None:
    """Remove garbage in batches; before each, `check` raises if it is no longer allowed.

    A failure of the store is recorded in `tally.problem`; the next sweep removes the rest.
    """
    for start in range(0, len(orphans), REMOVED_AT_ONCE):
        batch = orphans[start : start + REMOVED_AT_ONCE]
        await check()
        try:
            await store.delete([each.key for each in batch])
        except RiachoError as error:
            tally.problem = str(error)
            return
        size_bytes = sum(each.size_bytes for each in batch)
        tally.removed.add(len(batch), size_bytes)
        removed(len(batch), size_bytes)
