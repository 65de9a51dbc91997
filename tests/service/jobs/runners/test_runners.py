"""What both runners promise: threads of this process, and real workers of Spark."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from service.jobs.runners.runners import (
    Cancelled,
    Gather,
    Regroup,
    Runner,
    Spread,
    TaskFailed,
    ThreadRunner,
    results,
)
from service.jobs.stores import Shipped, ship
from service.settings import Settings
from storage.errors import OffsetOutOfRange, StoreUnavailable
from tests.service.jobs.runners import tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.anyio


@pytest.fixture
def shipped(tmp_path: Path) -> Shipped:
    return ship(Settings(data=tmp_path / "data"))


@pytest.fixture(params=["threads", pytest.param("spark", marks=pytest.mark.slow)])
def runner(request: pytest.FixtureRequest, shipped: Shipped) -> Iterator[Runner]:
    if request.param == "threads":
        with ThreadRunner(shipped, 2) as threads:
            yield threads
    else:
        yield spark_runner(request.getfixturevalue("spark"), shipped)


def spark_runner(spark: "SparkSession", shipped: Shipped) -> Runner:
    from service.jobs.runners.spark_runner import SparkRunner

    return SparkRunner(spark, shipped)


def test_every_payload_has_its_result(runner: Runner) -> None:
    payloads = [f"{n};".encode() for n in range(200)]

    found = list(runner.indexed(tasks.doubled, payloads))

    assert sorted(found) == [(n, payload * 2) for n, payload in enumerate(payloads)]
    assert Counter(runner.run(tasks.doubled, payloads)) == Counter(p * 2 for p in payloads)


def test_nothing_to_do_is_done_at_once(runner: Runner) -> None:
    first, last = Spread(tasks.keys_of, tasks.KEYS), Gather(tasks.kept)

    assert list(runner.run(tasks.doubled, [])) == []
    assert list(runner.shuffle(first, [], last=last)) == []
    assert list(runner.shuffle(first, [b"[]"], last=last)) == []


def test_a_worker_opens_its_stores_once(runner: Runner, shipped: Shipped) -> None:
    found = [
        tuple(json.loads(result))
        for start in (0, 50)
        for result in runner.run(tasks.written, [f"{n}".encode() for n in range(start, start + 50)])
    ]

    assert len(found) == 100
    by_worker = {(pid, thread): stores for pid, thread, stores in found}
    assert set(found) == {(*worker, stores) for worker, stores in by_worker.items()}
    assert len(by_worker) <= 2 * runner.parallelism
    assert len([p for p in shipped.settings.data.rglob("*") if p.parent.name == "x"]) == 100


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (tasks.unavailable, StoreUnavailable),
        (tasks.mistaken, TaskFailed),
    ],
)
def test_an_error_of_a_task_is_raised(
    runner: Runner, function: Callable[..., Awaitable[bytes]], expected: type[Exception]
) -> None:
    with pytest.raises(expected, match=r"the store is away|ZeroDivisionError"):
        list(runner.run(function, [b"good", b"bad", b"good"]))

    assert list(runner.run(tasks.doubled, [b"a"])) == [b"aa"]


def test_an_error_that_cannot_travel_is_reported_all_the_same(runner: Runner) -> None:
    with pytest.raises((OffsetOutOfRange, TaskFailed), match="offset 7 is outside the log"):
        list(runner.run(tasks.out_of_range, [b"bad"]))


def test_who_wants_no_more_ends_what_runs(runner: Runner, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("short", "one", "two", "three")]

    found = runner.run(tasks.endless, [str(path).encode() for path in paths])
    assert next(found) == str(paths[0]).encode()
    found.close()  # type: ignore[attr-defined]

    assert list(runner.run(tasks.doubled, [b"a"])) == [b"aa"]


async def test_cancelling_ends_what_runs(runner: Runner, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("short", "one", "two")]
    payloads = [str(path).encode() for path in paths]

    async with aclosing(results(runner, tasks.endless, payloads)) as found:
        async for _ in found:
            break

    with pytest.raises(Cancelled):
        await cancelled(runner, payloads)
    assert list(runner.run(tasks.doubled, [b"a"])) == [b"aa"]


async def cancelled(runner: Runner, payloads: list[bytes]) -> None:
    async for _ in results(runner, tasks.endless, payloads):
        runner.cancel()


def records(count: int) -> list[tuple[int, str]]:
    return [(offset, "k" * (1 + offset * 7 % 11)) for offset in range(count)]


def test_rows_meet_by_group_and_meet_again(runner: Runner) -> None:
    history = records(95)
    ranges = [history[start : start + 10] for start in range(0, 95, 10)]
    last = {key: offset for offset, key in history}

    found = runner.shuffle(
        Spread(tasks.keys_of, tasks.KEYS),
        [json.dumps(each).encode() for each in ranges],
        Regroup(tasks.last_of, tasks.OFFSETS, sort_by=("offset",)),
        last=Gather(tasks.kept, sort_by=("offset",)),
    )

    offsets = {}
    for group, result in found:
        told, offsets[group] = json.loads(result)
        assert told == group
    assert all(each == sorted(each) for each in offsets.values())
    assert sorted(chain.from_iterable(offsets.values())) == sorted(last.values())
    assert all(offset // tasks.RANGE == group for group in offsets for offset in offsets[group])


async def refuses(_: object, group: int, table: object) -> bytes:
    raise StoreUnavailable(f"group {group} is away")


def test_an_error_after_a_shuffle_is_raised(runner: Runner) -> None:
    first = Spread(tasks.keys_of, tasks.KEYS)

    with pytest.raises(StoreUnavailable, match="group 1 is away"):
        list(runner.shuffle(first, [b'[[0, "k"]]'], last=Gather(partial(refuses))))


@pytest.mark.slow
def test_a_worker_that_dies_is_reported(spark: "SparkSession", shipped: Shipped) -> None:
    runner = spark_runner(spark, shipped)

    with pytest.raises(TaskFailed, match="Spark gave up"):
        list(runner.run(tasks.killed, [b"good", b"bad"]))

    assert list(runner.run(tasks.doubled, [b"a"])) == [b"aa"]


async def test_a_loop_goes_on_while_tasks_run(shipped: Shipped) -> None:
    steps = 0

    async def step() -> None:
        nonlocal steps
        while True:
            steps += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(step())
    with ThreadRunner(shipped, 2) as runner:
        found = [each async for each in results(runner, tasks.doubled, [b"a", b"b"])]
    beside.cancel()

    assert sorted(found) == [(0, b"aa"), (1, b"bb")]
    assert steps > 1
