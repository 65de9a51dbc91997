"""The sweep as a job: who does it, what it is told, and what it tells."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from service.jobs.progress import size
from service.jobs.runners.choice import How, Runners
from service.jobs.runners.runners import Runner
from service.jobs.stores import Stores
from service.jobs.sweep.sweep import Unsafe
from service.jobs.sweep.sweep import sweep as sweep_job
from service.jobs.work import JobContext, JobOutcome
from storage import keys
from storage.maintenance import sweep
from storage.reading.table_batches import TableBatches
from tests.service.jobs.held import TestHeld
from tests.service.jobs.sweep.test_sweep import HOUR_S, keys_in, stores_of
from tests.service.transactions.cluster import Cluster, with_topic

pytestmark = pytest.mark.anyio

ORPHAN = b"xyz"


class Heard:
    """A meter that remembers what it heard."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, str]] = []

    def planned(self, steps: int) -> None: ...

    def done(self, steps: int, text: str = "") -> None:
        self.steps.append((steps, text))

    def say(self, text: str) -> None: ...


class Threads(Runners):
    """Runners of threads only, which know how often they were asked for, and used."""

    def __init__(self, stores: Stores, heard: Heard) -> None:
        super().__init__(How(spark=False, concurrency=2), self._opened, heard)  # type: ignore[arg-type]
        self._stores = stores
        self.asked = 0
        self.opened = 0

    async def for_bytes(self, size_bytes: int) -> Runner:
        assert size_bytes > 2**50, "more than any limit"
        self.asked += 1
        return await super().for_bytes(size_bytes)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Stores]:
        self.opened += 1
        yield self._stores


class Job:
    """A deployment with garbage in it, of an hour ago, and what became of its sweep."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.heard = Heard()
        self.asked = 0
        self.opened = 0

    async def littered(self, count: int) -> "Job":
        await with_topic(self.cluster)
        chance = random.Random(3)
        for _ in range(count):
            key = keys.hot_segment(bytes(6) + chance.randbytes(10))
            await self.cluster.objects.put(key, [ORPHAN])
        self.cluster.now_s += HOUR_S
        return self

    async def swept(self, *, dry_run: bool = False, **told: int | bool | None) -> JobOutcome:
        stores = stores_of(self.cluster)
        held = None if dry_run else await TestHeld(stores).take()
        async with Threads(stores, self.heard) as runners:
            work = JobContext(stores, runners, self.heard, held)  # type: ignore[arg-type]
            try:
                return await sweep_job(work, **told)  # type: ignore[arg-type]
            finally:
                self.asked, self.opened = runners.asked, runners.opened
                if held is not None:
                    await held.lease.release()


async def test_it_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "REMOVED_AT_ONCE", 2)
    job = await Job().littered(3)

    outcome = await job.swept()

    assert job.heard.steps == [
        (2, f"2 objects removed, {size(6)}"),
        (1, f"3 objects removed, {size(9)}"),
    ]
    assert (outcome.ok, outcome.document["dry_run"]) == (True, False)
    assert (outcome.document["objects_removed"], outcome.document["bytes_removed"]) == (3, 9)


async def test_without_the_lease_it_tells_what_it_would_do() -> None:
    job = await Job().littered(3)

    outcome = await job.swept(dry_run=True)

    assert (outcome.document["dry_run"], outcome.document["objects_removed"]) == (True, 0)
    assert outcome.lines[-1] == f"3 objects would be removed, {size(9)}"
    assert len(await keys_in(job.cluster)) == 3


async def test_it_does_as_it_is_told() -> None:
    job = await Job().littered(3)

    young = await job.swept(min_age_ms=2 * 10**9)
    some = await job.swept(limit=1)
    rest = await job.swept()

    assert [each.document["objects_removed"] for each in (young, some, rest)] == [0, 1, 2]


async def test_what_was_written_just_now_goes_if_that_is_asked_for() -> None:
    cluster = Cluster()
    object_id = int(cluster.now_s * 1000).to_bytes(6) + bytes(10)
    await TableBatches(cluster.metadata).write(object_id, b"never read")
    job = Job()
    job.cluster = cluster

    with pytest.raises(Unsafe):
        await job.swept(min_age_ms=0)
    outcome = await job.swept(min_age_ms=0, is_unsafe=True)

    assert outcome.document["batches_removed"] == 1


async def test_clocks_may_differ_unless_nobody_else_writes() -> None:
    job = await Job().littered(0)
    object_id = int((job.cluster.now_s - HOUR_S) * 1000).to_bytes(6) + bytes(10)
    await TableBatches(job.cluster.metadata).write(object_id, b"never read")

    assert (await job.swept()).document["batches_removed"] == 0
    assert (await job.swept(is_unsafe=True)).document["batches_removed"] == 1


@pytest.mark.parametrize(
    ("spark", "is_submitted", "is_asked"),
    [
        (None, False, False),
        (None, True, True),
        (False, False, False),
        (False, True, False),
        (True, False, True),
    ],
)
async def test_workers_do_it_if_they_are_asked_for(
    spark: bool | None, is_submitted: bool, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_submitted:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    job = await Job().littered(3)

    outcome = await job.swept(spark=spark)

    assert outcome.document["objects_removed"] == 3
    assert (job.asked, bool(job.opened)) == (int(is_asked), is_asked)


@pytest.mark.parametrize(("spark", "asked"), [(None, 1), (False, 0)])
async def test_too_many_are_for_workers_if_there_are_any_but_threads(
    spark: bool | None, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "CANDIDATES_MAX", 10)
    job = await Job().littered(40)

    outcome = await job.swept(spark=spark)

    assert (outcome.document["objects_removed"], outcome.document["complete"]) == (40, True)
    # Threads would hold all names at once.
    assert (job.asked, job.opened) == (asked, 0)
