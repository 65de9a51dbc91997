"""The report of a sweep, as text and as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.jobs.progress import size
from service.jobs.work import JobOutcome
from storage.keys import OBJECT_KINDS
from storage.maintenance.sweep import Count, ZoneTally


@dataclass(slots=True, kw_only=True)
class SweepReport:
    zones: dict[str, ZoneTally] = field(default_factory=dict)
    heads_removed: int = 0
    """Heads of deleted topics that interrupted calls left behind."""
    batches: Count = field(default_factory=Count)
    """Batches in the table that no head refers to."""
    batches_removed: Count = field(default_factory=Count)
    is_complete: bool = True
    """False: the limit was reached first, or a zone could not be swept."""

    @property
    def problems(self) -> dict[str, str]:
        return {name: zone.problem for name, zone in self.zones.items() if zone.problem}

    @property
    def removed(self) -> Count:
        total = Count()
        for zone in self.zones.values():
            total.add(zone.removed.objects, zone.removed.size_bytes)
        return total

    def add(self, tallies: Mapping[str, ZoneTally]) -> None:
        for name, tally in tallies.items():
            mine = self.zones.setdefault(name, ZoneTally())
            mine.seen.add(tally.seen.objects, tally.seen.size_bytes)
            mine.unknown.add(tally.unknown.objects, tally.unknown.size_bytes)
            mine.removed.add(tally.removed.objects, tally.removed.size_bytes)
            for kind, count in tally.orphans.items():
                mine.orphans.setdefault(kind, Count()).add(count.objects, count.size_bytes)
            mine.problem = mine.problem or tally.problem


def outcome(report: SweepReport, *, is_dry: bool) -> JobOutcome:
    """Return the report as the outcome of a job."""
    document: dict[str, Any] = {
        "ok": not report.problems,
        "dry_run": is_dry,
        "complete": report.is_complete,
        "objects_removed": report.removed.objects,
        "bytes_removed": report.removed.size_bytes,
        "heads_removed": report.heads_removed,
        "batches_removed": report.batches_removed.objects,
        "zones": {name: _zone_document(zone) for name, zone in sorted(report.zones.items())},
    }
    lines = [line for name, zone in sorted(report.zones.items()) for line in _lines(name, zone)]
    if is_dry:
        found = Count()
        for zone in report.zones.values():
            found.add(zone.orphan_count, sum(each.size_bytes for each in zone.orphans.values()))
        lines.append(f"{found.objects} objects would be removed, {size(found.size_bytes)}")
        if report.batches.objects:
            lines.append(f"{report.batches.objects} batches of the table would be removed")
    else:
        removed = report.removed
        lines.append(f"removed {removed.objects} objects, {size(removed.size_bytes)}")
        if report.batches_removed.objects:
            lines.append(f"removed {report.batches_removed.objects} batches of the table")
        if report.heads_removed:
            lines.append(f"removed {report.heads_removed} heads of topics that are gone")
        if not report.is_complete and not report.problems:
            lines.append("there is more: run it again")
    return JobOutcome(ok=not report.problems, document=document, lines=lines)


def _zone_document(zone: ZoneTally) -> dict[str, Any]:
    return {
        "objects": zone.seen.objects,
        "bytes": zone.seen.size_bytes,
        "orphans": {
            kind: {"objects": zone.orphans[kind].objects, "bytes": zone.orphans[kind].size_bytes}
            for kind in OBJECT_KINDS
            if kind in zone.orphans
        },
        "unknown": {"objects": zone.unknown.objects, "bytes": zone.unknown.size_bytes},
        "objects_removed": zone.removed.objects,
        "bytes_removed": zone.removed.size_bytes,
        "problem": zone.problem or None,
    }


def _lines(name: str, zone: ZoneTally) -> list[str]:
    if zone.problem:
        return [f"zone {name} was not swept to the end: {zone.problem}"]
    lines = [f"zone {name} has {zone.seen.objects} objects, {size(zone.seen.size_bytes)}"]
    for kind in OBJECT_KINDS:
        if kind in zone.orphans:
            count = zone.orphans[kind]
            lines.append(f"  {kind}: {count.objects} without use, {size(count.size_bytes)}")
    if zone.unknown.objects:
        lines.append(f"  {zone.unknown.objects} have names that are not ours and are left alone")
    return lines
