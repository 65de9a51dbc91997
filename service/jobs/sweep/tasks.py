"""A sweep with many workers: joins objects and references by the last digits of their names.

    list of a zone, by digit and kind of key   ─┐
    heads, by a few lanes                      ─┼─▶ rows by group ──▶ objects without a reference
    staged by transactions                     ─┘                     are removed

It is an anti join that moves only keys. Heads and transactions are read before objects are listed;
that is safe because only objects count that were old before either (maintenance/sweep.py). A task
that runs twice removes nothing twice.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from service.jobs.runners.runners import GROUP
from service.jobs.stores import Stores
from storage import keys, leases
from storage.errors import Corrupt, StoreUnavailable
from storage.formats import frames
from storage.head import head as heads
from storage.keys import ObjectKey
from storage.leases import LeaseLost
from storage.maintenance import sweep
from storage.maintenance.sweep import Candidate, Count, ZoneTally

T = TypeVar("T")

GROUPS: Final = 256
"""One per value of the last two digits: 400,000 each of a hundred million objects."""

LANES_PER_TASK: Final = 8
ROWS_MAX: Final = 16_384

ROWS: Final = pa.schema(
    [
        pa.field(GROUP, pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("zone", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("objects", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
    ]
)
REFERENCE: Final = "reference"
SEEN: Final = "seen"
UNKNOWN: Final = "not ours"
PROBLEM: Final = "problem"
"""The zone was not listed completely; `key` says why. The listed objects count."""
BLOCKED: Final = "blocked"
"""The references of a lane are unknown; `key` says why. Nothing in the zone may be removed."""


class Listing(msgspec.Struct, frozen=True, tag="list"):
    zone: str
    prefix: str
    cutoff_ms: int


class References(msgspec.Struct, frozen=True, tag="heads"):
    heads: tuple[bytes, ...]


class Keys(msgspec.Struct, frozen=True, tag="keys"):
    keys: tuple[str, ...]


_TASK: Final[frames.PayloadDecoder[Listing | References | Keys]] = msgspec.msgpack.Decoder(
    Listing | References | Keys
)
_TALLIES: Final = msgspec.msgpack.Decoder(dict[str, ZoneTally])


def payloads(
    zones: Iterable[str], cutoff_ms: int, staged: Iterable[str], encoded_heads: Iterable[bytes]
) -> list[bytes]:
    """Return the tasks of a sweep."""
    tasks: list[Listing | References | Keys] = [
        Listing(zone, prefix, cutoff_ms) for zone in zones for prefix in keys.object_prefixes()
    ]
    tasks += [References(tuple(some)) for some in _parts(encoded_heads, LANES_PER_TASK)]
    tasks += [Keys(tuple(some)) for some in _parts(staged, ROWS_MAX)]
    return [msgspec.msgpack.encode(task) for task in tasks]


async def rows(stores: Stores, payload: bytes) -> AsyncIterator[pa.RecordBatch]:
    """Yield the rows of a task: objects that are old enough, or referenced keys."""
    match decode_task(payload):
        case Listing() as task:
            found = _listed(stores, task)
        case References(encoded):
            found = _referred(stores, encoded)
        case Keys(names):
            found = _named(names)
    async for batch in found:
        yield batch


async def _listed(stores: Stores, task: Listing) -> AsyncIterator[pa.RecordBatch]:
    tally = ZoneTally()
    store = stores.zones.store(task.zone)
    last = [(0, SEEN, task.zone, "", 0, 0)]
    try:
        async for batch in sweep.candidates(store, task.prefix, "", task.cutoff_ms, tally):
            for some in _parts(batch, ROWS_MAX):
                yield _batch(
                    [
                        (_group(each.key), each.kind, task.zone, each.key, 1, each.size_bytes)
                        for each in some
                    ]
                )
    except StoreUnavailable as error:
        last = [(0, PROBLEM, task.zone, str(error), 0, 0)]
    for kind, count in ((SEEN, tally.seen), (UNKNOWN, tally.unknown)):
        last.append((0, kind, task.zone, "", count.objects, count.size_bytes))
    yield _batch(last)


async def _referred(stores: Stores, encoded: Sequence[bytes]) -> AsyncIterator[pa.RecordBatch]:
    for value in encoded:
        head = heads.decode(value)
        try:
            async for names in sweep.references(stores.zones, head):
                async for batch in _named(names):
                    yield batch
        except (StoreUnavailable, Corrupt) as error:
            reason = f"what a lane refers to cannot be read: {error}"
            for zone in head.zones:
                yield _batch([(group, BLOCKED, zone, reason, 0, 0) for group in range(GROUPS)])


async def _named(names: Sequence[str]) -> AsyncIterator[pa.RecordBatch]:
    for some in _parts(names, ROWS_MAX):
        yield _batch([(_group(key), REFERENCE, "", key, 0, 0) for key in some])


def _parts(items: Iterable[T], size_max: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while part := list(islice(iterator, size_max)):
        yield part


def _group(key: str) -> int:
    return int(_object_key(key).object_id[-2:], 16)


def _object_key(key: str) -> ObjectKey:
    parsed = keys.parse_key(key)
    assert parsed is not None, key
    return parsed


def _batch(found: Sequence[tuple[int, str, str, str, int, int]]) -> pa.RecordBatch:
    columns = zip(*found, strict=True) if found else ([] for _ in ROWS)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, ROWS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """How a worker removes what it finds. It is pickled and sent to workers."""

    holder: str = ""
    """The process that must hold the lease; empty: a dry run."""
    epoch: int = 0
    lease: str = "maintenance"
    limit: int | None = None
    """Maximum number of objects to remove, over all groups."""
    first_group: int = 0
    """First of the groups that may remove one more if the limit is not divisible; random."""

    def limit_of(self, group: int) -> int | None:
        if self.limit is None:
            return None
        each, more = divmod(self.limit, GROUPS)
        return each + ((group - self.first_group) % GROUPS < more)

    def check(self, stores: Stores) -> Callable[[], Awaitable[None]]:
        async def check() -> None:
            item = await leases.current(stores.metadata, self.lease)
            if item is None or (item.holder, item.epoch) != (self.holder, self.epoch):
                raise LeaseLost(f"the lease {self.lease!r} was taken over")

        return check


async def remove(removal: Removal, stores: Stores, group: int, table: pa.Table) -> bytes:
    """Remove the unreferenced objects of a group; return the encoded tallies by zone."""
    tallies: dict[str, ZoneTally] = {}
    kinds = table.column("kind")
    is_note = pc.is_in(kinds, pa.array([SEEN, UNKNOWN, PROBLEM, BLOCKED]))
    is_reference = pc.equal(kinds, REFERENCE)
    notes = table.filter(is_note).to_pylist()
    blocked = {note["zone"] for note in notes if _noted(tallies, note) == BLOCKED}
    referred = pc.unique(table.filter(is_reference).column("key"))
    objects = table.filter(pc.invert(pc.or_(is_note, is_reference)))
    orphans = objects.filter(pc.invert(pc.is_in(objects.column("key"), referred)))
    left = removal.limit_of(group)
    for zone, found in _by_zone(orphans).items():
        if zone in blocked:
            continue
        tally = tallies.setdefault(zone, ZoneTally())
        for each in found:
            tally.orphans.setdefault(each.kind, Count()).add(1, each.size_bytes)
        if removal.holder:
            some = found if left is None else found[:left]
            await sweep.remove(stores.zones.store(zone), some, tally, removal.check(stores))
            left = None if left is None else left - tally.removed.objects
    return msgspec.msgpack.encode(tallies)


def _noted(tallies: dict[str, ZoneTally], row: dict[str, object]) -> str:
    """Add the note of a row to the tally of its zone; return the kind of note."""
    tally = tallies.setdefault(str(row["zone"]), ZoneTally())
    kind, objects, size_bytes = str(row["kind"]), row["objects"], row["size_bytes"]
    assert isinstance(objects, int)
    assert isinstance(size_bytes, int)
    if kind == SEEN:
        tally.seen.add(objects, size_bytes)
    elif kind == UNKNOWN:
        tally.unknown.add(objects, size_bytes)
    else:
        tally.problem = str(row["key"])
    return kind


def _by_zone(orphans: pa.Table) -> dict[str, list[Candidate]]:
    found: dict[str, list[Candidate]] = {}
    for row in orphans.to_pylist():
        key, zone = row["key"], row["zone"]
        found.setdefault(zone, []).append(Candidate(key, _object_key(key).kind, row["size_bytes"]))
    return found


def decode_task(payload: bytes) -> Listing | References | Keys:
    """Return the payload of a task, or raise `Corrupt`."""
    return frames.decoded(payload, _TASK, "the payload of a sweep")


def decode(result: bytes) -> dict[str, ZoneTally]:
    """Return the result of a task, or raise `Corrupt`."""
    return frames.decoded(result, _TALLIES, "the result of a sweep")
