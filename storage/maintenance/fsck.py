"""Checks that every zone that should hold an object of a lane holds it intact.

`check_lane` is the unit: one head, its zones, and a report. Lanes share nothing, so any number of
them may be checked concurrently, anywhere.

- Zones in sync must hold everything. Replicas that catch up may lack objects: that is reported,
  and is not an error.
- Every object has the same size in all zones and, unless only sizes are checked, every stretch
  that the index references has its checksum.
- Slices in the metadata table exist, and have their checksums, too.
- A compacted segment matches its list, and so does each of its row groups, which cover it without
  gaps. They are read some at a time, so memory is bounded whatever the segment's size.
- Offsets are dense: each slice begins where the one before ended, up to the head's end. The first
  begins where the root says that slices begin. Before that are compacted segments, in order; gaps
  between them were compacted away.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from storage import keys
from storage.errors import Corrupt, ObjectMissing, RiachoError, StoreUnavailable
from storage.formats import compacted
from storage.formats.entries import Entry
from storage.formats.partitions import LanePartition
from storage.head.head import Head
from storage.head.replication import replica_zones, zone_names
from storage.reading.table_batches import TableBatches
from storage.resync import inventory
from storage.resync.inventory import Reference, Shelf
from storage.zones.zones import Zones

FINDINGS_MAX: Final = 1000
"""Maximum number of findings listed in a report; all are counted."""

READS_AT_ONCE: Final = 16
READ_BYTES: Final = 4 * 1024 * 1024
"""Approximate size of one read of a compacted segment."""

CALL_S_MAX: Final = 60.0
"""A zone that takes longer to answer is unreachable."""

_CHUNK: Final = 64

Problem = Literal[
    "missing", "size", "checksum", "unreachable", "index", "offsets", "behind", "head", "item"
]
"""`head`: the head of a lane is damaged, or missing though its topic exists; `item`: an item of the
metadata table is not what was written under its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem; `behind` is only informational."""

    problem: Problem
    zone: str | None
    key: str
    detail: str


@dataclass(slots=True, kw_only=True)
class ZoneReport:
    objects: int = 0
    size_bytes: int = 0
    """As far as sizes were read."""
    problems: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class LaneReport:
    zones: dict[str, ZoneReport] = field(default_factory=dict)
    entries: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_ok(self) -> bool:
        return not any(count for name, count in self.problems.items() if name != "behind")

    def found(self, finding: Finding) -> None:
        self.problems[finding.problem] += 1
        if finding.zone is not None:
            self.zones[finding.zone].problems[finding.problem] += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)

    def add(self, other: "LaneReport") -> None:
        """Add the report of another lane to this one."""
        self.entries += other.entries
        self.problems += other.problems
        self.findings += other.findings[: FINDINGS_MAX - len(self.findings)]
        for name, zone in other.zones.items():
            mine = self.zones.setdefault(name, ZoneReport())
            mine.objects += zone.objects
            mine.size_bytes += zone.size_bytes
            mine.problems += zone.problems


async def check_lane(
    zones: Zones,
    head: Head,
    *,
    batches: TableBatches | None = None,
    sizes_only: bool = False,
    seen: Callable[[int], None] = lambda _: None,
) -> LaneReport:
    """Return the findings; `seen` is called after every few objects with their number.

    Without `batches`, slices in the table are assumed to be intact.
    """
    check = _LaneCheck(zones, head, sizes_only)
    try:
        async for shelf in inventory.walk(zones, head, broken=check.broken):
            check.offsets(shelf)
            await check.objects(shelf, seen)
            if batches is not None:
                await check.table(shelf, batches)
    except StoreUnavailable as error:
        check.unreachable(error)
    else:
        check.ends()
    return check.report


class _LaneCheck:
    def __init__(self, zones: Zones, head: Head, sizes_only: bool) -> None:
        self._zones = zones
        self._head = head
        self._sizes_only = sizes_only
        self._gate = asyncio.Semaphore(READS_AT_ONCE)
        self._name = f"{head.topic_id.hex()}/{head.lane}"
        self._reached = list(head.log_starts)
        self._has_begun = [False] * head.partition_count
        self._covers: Sequence[int] = (0,) * head.partition_count
        self._in_sync = set(zone_names(head, head.isr))
        self._replicas = zone_names(head, head.isr | replica_zones(head))
        self.report = LaneReport(zones={name: ZoneReport() for name in self._replicas})

    def broken(self, key: str, error: Corrupt) -> None:
        detail = f"no zone holds it whole: {error}"
        self.report.found(Finding(problem="index", zone=None, key=key, detail=detail))

    def unreachable(self, error: StoreUnavailable) -> None:
        detail = f"the index cannot be read: {error}"
        self.report.found(Finding(problem="unreachable", zone=None, key=self._name, detail=detail))

    def offsets(self, shelf: Shelf) -> None:
        if shelf.covers:
            self._covers = shelf.covers
            self._reached = list(map(max, self._reached, shelf.covers))
        self._segments(shelf)
        for entry in shelf.entries:
            self.report.entries += 1
            partition, reached = entry.partition, self._reached[entry.partition]
            # The first entry may begin before the log start, but not in the compacted range.
            begins = entry.base_offset
            may_overlap = not self._has_begun[partition] and reached > self._covers[partition]
            is_dense = begins == reached or (may_overlap and begins < reached)
            if entry.end_offset <= reached or not is_dense:
                detail = f"expected {reached}, found {begins} to {entry.end_offset}"
                self._offsets_wrong(partition, detail)
            self._has_begun[partition] = True
            self._reached[partition] = max(reached, entry.end_offset)

    def _segments(self, shelf: Shelf) -> None:
        reached = 0
        for segment in shelf.segments:
            self.report.entries += 1
            start, end = segment.start_offset, segment.end_offset
            has_room = start <= segment.first_offset < end
            has_room = has_room and 0 < segment.record_count <= end - segment.first_offset
            if start < reached or not has_room or end > self._covers[shelf.partition]:
                detail = f"expected at least {reached}, found a segment from {start} to {end}"
                self._offsets_wrong(shelf.partition, f"{detail}: {segment}")
            reached = max(reached, end)

    def ends(self) -> None:
        for partition in self._head.partitions:
            reached, end = self._reached[partition], self._head.next_offsets[partition]
            if reached != end:
                self._offsets_wrong(partition, f"entries end at {reached}, the log at {end}")

    def _offsets_wrong(self, partition: LanePartition, detail: str) -> None:
        key = f"{self._name} partition {partition}"
        self.report.found(Finding(problem="offsets", zone=None, key=key, detail=detail))

    async def objects(self, shelf: Shelf, seen: Callable[[int], None]) -> None:
        for start in range(0, len(shelf.references), _CHUNK):
            chunk = shelf.references[start : start + _CHUNK]
            await asyncio.gather(*(self._object(ref) for ref in chunk))
            seen(len(chunk))

    async def table(self, shelf: Shelf, batches: TableBatches) -> None:
        """Check the slices in the metadata table."""
        entries = [entry for entry in shelf.entries if entry.is_in_table]
        for start in range(0, len(entries), _CHUNK):
            try:
                await batches.read(entries[start : start + _CHUNK])
            except Corrupt:
                for entry in entries[start : start + _CHUNK]:
                    await self._batch(entry, batches)

    async def _batch(self, entry: Entry, batches: TableBatches) -> None:
        key = keys.table_batch(entry.object_id)
        try:
            await batches.read([entry])
        except ObjectMissing as error:
            found = Finding(problem="missing", zone=None, key=key, detail=str(error))
            self.report.found(found)
        except Corrupt as error:
            found = Finding(problem="checksum", zone=None, key=key, detail=str(error))
            self.report.found(found)

    async def _object(self, ref: Reference) -> None:
        sizes = dict(
            zip(
                self._replicas,
                await asyncio.gather(*(self._size(ref, name) for name in self._replicas)),
                strict=True,
            )
        )
        expected = ref.size_bytes
        if expected is None:
            # All copies should be the same. If not, assume that the majority is right.
            counts = Counter(size for size in sizes.values() if size is not None)
            expected = max(counts, key=lambda size: (counts[size], size), default=0)
        await asyncio.gather(
            *(
                self._copy(ref, name, size, expected)
                for name, size in sizes.items()
                if size is not None
            )
        )

    async def _size(self, ref: Reference, name: str) -> int | None:
        try:
            async with self._gate, asyncio.timeout(CALL_S_MAX):
                return await self._zones.store(name).size(ref.key)
        except ObjectMissing:
            problem: Problem = "missing" if name in self._in_sync else "behind"
            self._wrong(problem, name, ref, "the zone does not hold it")
        except (StoreUnavailable, TimeoutError) as error:
            problem = "unreachable" if name in self._in_sync else "behind"
            self._wrong(problem, name, ref, str(error) or "no answer")
        return None

    async def _copy(self, ref: Reference, name: str, size: int, expected: int) -> None:
        zone = self.report.zones[name]
        zone.objects += 1
        zone.size_bytes += size
        if size != expected or size < ref.end:
            self._wrong("size", name, ref, f"{size} bytes instead of {max(expected, ref.end)}")
            return
        if self._sizes_only:
            return
        try:
            await self._bytes(ref, name)
        except Corrupt as error:
            self._wrong("checksum", name, ref, str(error))
        except (StoreUnavailable, TimeoutError) as error:
            self._wrong("unreachable", name, ref, str(error) or "no answer")

    async def _bytes(self, ref: Reference, name: str) -> None:
        ranges = [(each.position, each.position + each.length) for each in ref.stretches]
        pieces = await self._read(ref, name, ranges)
        inventory.check(ref, pieces)
        if ref.compacted is None:
            return
        footer = compacted.footer_of(ref.compacted, self._head.topic_id, pieces[0])
        for span in compacted.spans(footer, READ_BYTES):
            ranges = [(group.position, group.end) for group in span]
            for group, piece in zip(span, await self._read(ref, name, ranges), strict=True):
                compacted.check_row_group(group, piece)

    async def _read(
        self, ref: Reference, name: str, ranges: Sequence[tuple[int, int]]
    ) -> list[bytes]:
        async with self._gate, asyncio.timeout(CALL_S_MAX):
            return await self._zones.store(name).get_ranges(ref.key, ranges)

    def _wrong(self, problem: Problem, name: str, ref: Reference, detail: str) -> None:
        self.report.found(Finding(problem=problem, zone=name, key=ref.key, detail=detail))


async def check_steadily(
    zones: Zones,
    read: Callable[[], Awaitable[Head | None]],
    *,
    batches: TableBatches | None = None,
    sizes_only: bool = False,
    seen: Callable[[int], None] = lambda _: None,
    attempts: int = 3,
) -> LaneReport:
    """Return the report of a lane in use; empty if it is deleted. Raises the errors of `read`.

    Objects of a head read earlier may have been replaced and swept since. So if there is a problem
    and the head has changed, the new head is checked instead.
    """
    report = LaneReport()
    head = await read()
    for _ in range(attempts):
        if head is None:
            return LaneReport()
        try:
            report = await check_lane(
                zones, head, batches=batches, sizes_only=sizes_only, seen=seen
            )
        except RiachoError as error:
            report = LaneReport()
            key = f"{head.topic_id.hex()}/{head.lane}"
            report.found(Finding(problem="index", zone=None, key=key, detail=str(error)))
        now = await read()
        if report.is_ok or now == head:
            return report
        head = now
    return report
