"""Checks a whole deployment, lane by lane, in the stores that its settings name.

A lane is checked by this process or by a worker of a runner; the worker's task is `check_one`.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import msgspec

from service.jobs import stores
from service.jobs.progress import size
from service.jobs.runners.runners import Runner, results
from service.jobs.stores import Stores
from service.jobs.work import JobOutcome
from service.settings import Settings
from service.world.clock import World
from storage import keys
from storage.errors import Corrupt, HeadMissing, MetadataDamaged
from storage.formats import frames
from storage.head import head as heads
from storage.head.head import Head
from storage.maintenance.fsck import Finding, LaneReport, Problem, ZoneReport, check_steadily
from storage.reading.table_batches import TableBatches
from storage.stores.metadata import MetadataStore
from storage.topics.all_heads import is_lost, sound_topics, strays
from storage.topics.topics import Topic
from storage.zones.zones import Zones

LANES_AT_ONCE: Final = 4
FINDINGS_SHOWN_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class CheckedLane:
    """The report of a lane; of the metadata table if `topic` is empty."""

    topic: str
    lane: int
    report: LaneReport


class DeploymentCheck:
    """A check of the given topics."""

    def __init__(self, zones: Zones, metadata: MetadataStore, topics: Sequence[Topic]) -> None:
        self._zones = zones
        self._metadata = metadata
        self._topics = topics

    @property
    def lane_count(self) -> int:
        return sum(len(topic.lanes) for topic in self._topics)

    async def run(
        self, *, sizes_only: bool = False, seen: Callable[[int], None] = lambda _: None
    ) -> AsyncIterator[CheckedLane]:
        """Yield the problems of the table, if any, and the report of every lane."""
        async for found in self._table():
            yield found
        lanes = ((topic, lane) for topic in self._topics for lane in topic.lanes)
        running: set[asyncio.Task[CheckedLane]] = set()
        try:
            while True:
                while len(running) < LANES_AT_ONCE and (one := next(lanes, None)) is not None:
                    running.add(asyncio.create_task(self._lane(*one, sizes_only, seen)))
                if not running:
                    return
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            for task in running:
                task.cancel()

    async def _table(self) -> AsyncIterator[CheckedLane]:
        """Yield one report for each damaged item of the metadata table."""
        try:
            async for key, problem in strays(self._metadata):
                yield CheckedLane("", -1, _wrong("item", key, problem))
        except MetadataDamaged as error:
            yield CheckedLane("", -1, _wrong("item", "-", error))

    async def _lane(
        self, topic: Topic, lane: int, sizes_only: bool, seen: Callable[[int], None]
    ) -> CheckedLane:
        key = keys.head(topic.topic_id, lane)
        report = await _checked(self._zones, self._metadata, topic.name, key, sizes_only, seen)
        return CheckedLane(topic.name, lane, report)

    async def run_on(
        self, runner: Runner, *, sizes_only: bool = False
    ) -> AsyncIterator[CheckedLane]:
        """Yield what `run` does, in any order; workers of `runner` check the lanes."""
        async for found in self._table():
            yield found
        lanes = [(topic, lane) for topic in self._topics for lane in topic.lanes]
        payloads = [
            msgspec.msgpack.encode((topic.name, keys.head(topic.topic_id, lane), sizes_only))
            for topic, lane in lanes
        ]
        async with aclosing(results(runner, check_one, payloads)) as reports:
            async for index, report in reports:
                topic, lane = lanes[index]
                yield CheckedLane(topic.name, lane, decode_report(report))


async def check_one(opened: Stores, payload: bytes) -> bytes:
    """Check one lane. Runs in a worker."""
    name, key, sizes_only = decode_task(payload)
    report = await _checked(opened.zones, opened.metadata, name, key, sizes_only, lambda _: None)
    return encode_report(report)


async def _checked(
    zones: Zones,
    metadata: MetadataStore,
    topic_name: str,
    key: str,
    sizes_only: bool,
    seen: Callable[[int], None],
) -> LaneReport:
    async def read() -> Head | None:
        item = await metadata.get(key)
        if item is not None:
            return heads.decode(item.value, key)
        if await is_lost(metadata, topic_name, key):
            raise HeadMissing(topic_name, key)
        return None

    batches = TableBatches(metadata)
    try:
        return await check_steadily(zones, read, batches=batches, sizes_only=sizes_only, seen=seen)
    except Corrupt as error:  # The head is damaged; other damage is in the report.
        return _wrong("head", key, error)


def _wrong(problem: Problem, key: str, error: object) -> LaneReport:
    report = LaneReport()
    report.found(Finding(problem=problem, zone=None, key=key, detail=str(error)))
    return report


class _Zone(msgspec.Struct, array_like=True):
    objects: int
    size_bytes: int
    problems: dict[str, int]


class _Report(msgspec.Struct, array_like=True):
    zones: dict[str, _Zone]
    entries: int
    problems: dict[str, int]
    findings: list[Finding]


_REPORT: Final = msgspec.msgpack.Decoder(_Report)
_TASK: Final = msgspec.msgpack.Decoder(tuple[str, str, bool])


def decode_task(payload: bytes) -> tuple[str, str, bool]:
    """Return a topic, the key of a head, and whether sizes are enough; or raise `Corrupt`."""
    return frames.decoded(payload, _TASK, "the payload of a check")


def encode_report(report: LaneReport) -> bytes:
    return msgspec.msgpack.encode(
        _Report(
            zones={
                name: _Zone(zone.objects, zone.size_bytes, dict(zone.problems))
                for name, zone in report.zones.items()
            },
            entries=report.entries,
            problems=dict(report.problems),
            findings=report.findings,
        )
    )


def decode_report(data: bytes) -> LaneReport:
    """Return the report of a task, or raise `Corrupt`."""
    found = frames.decoded(data, _REPORT, "the result of a check")
    return LaneReport(
        zones={
            name: ZoneReport(
                objects=zone.objects, size_bytes=zone.size_bytes, problems=Counter(zone.problems)
            )
            for name, zone in found.zones.items()
        },
        entries=found.entries,
        problems=Counter(found.problems),
        findings=found.findings,
    )


@asynccontextmanager
async def opened(
    settings: Settings, world: World, names: Sequence[str]
) -> AsyncIterator[DeploymentCheck]:
    """Open the stores of `settings` to check the named topics; none named: all."""
    async with stores.opened(settings, world) as each:
        topics = each.topics()
        wanted = [await topics.read(name) for name in names] or await sound_topics(each.metadata)
        yield DeploymentCheck(each.zones, each.metadata, wanted)


def document(lanes: int, total: LaneReport) -> dict[str, Any]:
    """Return the findings as a JSON document."""
    return {
        "ok": total.is_ok,
        "lanes": lanes,
        "entries": total.entries,
        "problems": dict(total.problems),
        "zones": {
            name: {
                "objects": zone.objects,
                "size_bytes": zone.size_bytes,
                "problems": dict(zone.problems),
            }
            for name, zone in sorted(total.zones.items())
        },
        "findings": [asdict(finding) for finding in total.findings],
    }


def checked(lanes: int, total: LaneReport) -> JobOutcome:
    """Return the findings as the outcome of a job."""
    lines = [
        f"zone {name}: {zone.objects} objects, {size(zone.size_bytes)}"
        + "".join(f", {count} {problem}" for problem, count in sorted(zone.problems.items()))
        for name, zone in sorted(total.zones.items())
    ]
    lines += [
        f"{each.problem} {each.zone or '-'} {each.key}: {each.detail}"
        for each in total.findings[:FINDINGS_SHOWN_MAX]
    ]
    return JobOutcome(ok=total.is_ok, document=document(lanes, total), lines=lines)
