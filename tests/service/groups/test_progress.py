"""How far groups are: every partition once, and how long the next record has been waiting."""

import pytest

from service.groups import progress
from service.groups.offsets import Commit
from service.groups.progress import Progress
from service.transactions.atomic import TopicRecords
from service.transactions.guards import Unguarded
from tests.service.transactions.cluster import Cluster, Process, with_topic
from tests.storage.helpers.logs import batch_of

pytestmark = pytest.mark.anyio


def progress_of(process: Process) -> Progress:
    return Progress(process.gateway, process.coordinator, process.offsets)


async def commit(process: Process, offset: int, *partitions: int) -> None:
    commits = [Commit(topic="t", partition=p, offset=offset) for p in partitions]
    await process.offsets.commit("g", commits, None)


async def write(process: Process, *ages_ms: int) -> None:
    """Write records that are so old by now."""
    now_ms = process.gateway.world.now_ms()
    batch = batch_of(*[b"v"] * len(ages_ms), stamps=[now_ms - age_ms for age_ms in ages_ms])
    rows = list(range(len(ages_ms)))
    records = TopicRecords(topic="t", batch=batch, wanted=[0] * len(rows), rows=rows)
    await process.atomic.write([records], batch.nbytes, None, Unguarded())


async def test_every_partition_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOOKUPS_AT_ONCE", 2)
    process = await with_topic(Cluster(), 5)
    await commit(process, 0, *range(5))

    lags = await progress_of(process).lag("g")

    assert [(lag.topic, lag.partition) for lag in lags] == [("t", p) for p in range(5)]


@pytest.mark.parametrize(
    ("committed", "waiting_s"), [(0, 9.0), (1, 5.5), (2, 0.0), (3, 0.25), (4, 0.0)]
)
async def test_the_first_record_that_was_not_read_tells_how_long_it_waits(
    committed: int, waiting_s: float
) -> None:
    process = await with_topic(Cluster(), 1)
    await write(process, 9000, 5500, -3000, 250)  # The third is from the future.
    await commit(process, committed, 0)

    [lag] = await progress_of(process).lag("g")

    assert (lag.lag, lag.lag_seconds) == (4 - committed, waiting_s)


async def test_nothing_waits_where_nothing_is_any_more() -> None:
    process = await with_topic(Cluster(), 1)
    await write(process, 9000)
    found = progress_of(process)

    assert await found._waiting_s("t", 0, 1) == 0.0
    assert await found._waiting_s("t", 0, 99) == 0.0
    assert await found._waiting_s("gone", 0, 0) == 0.0
