"""Connectors as their users see them: records once, states, restarts, several processes."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from service.connect.data.errors import RetriableFault, TaskFault
from service.connect.tasks.items import FAILED, PAUSED, RUNNING, STARTED, STOPPED, ConnectorItem
from storage import keys, leases
from storage.stores.opening import open_metadata
from tests.service.connect.tasks.toys import QUICK, Deployment, Process, running, until
from tests.storage.helpers.faults import random_faults

pytestmark = pytest.mark.anyio


def numbered(count: int, start: int = 0) -> list[str]:
    return [f"row {n}" for n in range(start, start + count)]


async def all_of(process: Process, rows: list[str], topic: str = "t") -> None:
    """Wait until the rows are in the log, and check that nothing else is."""

    async def is_done() -> bool:
        return len(await process.values(topic)) >= len(rows)

    await until(is_done)
    assert await process.values(topic) == rows


async def state_is(deployment: Deployment, state: str) -> None:
    async def is_so() -> bool:
        found = await deployment.tasks()
        return bool(found) and all(task.health.state == state for task in found)

    await until(is_so)


def targeted(state: str) -> Callable[[ConnectorItem], ConnectorItem]:
    return lambda item: msgspec.structs.replace(item, target=state)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_every_row_is_in_the_log_once_in_order(kind: str, tmp_path: Path) -> None:
    numbers = iter(range(10**9))
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'table.db'}"
    deployment = Deployment(open_metadata(url, lambda: f"v{next(numbers)}"))
    deployment.table.rows = numbered(95)
    await deployment.create()
    async with running(deployment.process()) as process:
        await all_of(process, numbered(95))
        [task] = await deployment.tasks()
        assert (task.records, task.topics, task.health.state) == (95, ("t",), RUNNING)
        assert task.gauges == {"polled": 95}
        deployment.table.rows += numbered(5, 95)
        await all_of(process, numbered(100))
        await until(lambda: deployment.table.released)
    await deployment.metadata.close()


@pytest.mark.parametrize("seed", range(4))
async def test_lost_requests_and_replies_change_nothing(seed: int) -> None:
    deployment = Deployment()
    deployment.table.rows = numbered(60)
    deployment.metadata.next_fault = random_faults(seed, 0.2)
    await deployment.create()
    async with running(deployment.process()) as process:
        await all_of(process, numbered(60))
        deployment.metadata.next_fault = lambda: "none"
    assert await process.values() == numbered(60)


async def test_tasks_that_are_paused_write_nothing_and_go_on_when_they_are_resumed() -> None:
    deployment = Deployment()
    deployment.table.rows = numbered(10)
    await deployment.create()
    async with running(deployment.process()) as process:
        await all_of(process, numbered(10))
        await deployment.change(targeted(PAUSED))
        await state_is(deployment, PAUSED)
        deployment.table.rows += numbered(10, 10)
        polls = deployment.table.polls
        await deployment.change(targeted(STARTED))
        await all_of(process, numbered(20))
        assert deployment.table.polls > polls
        await deployment.change(targeted(STOPPED))
        await until(lambda: process.runner.run_count == 0)
        assert deployment.table.stopped == len(deployment.table.started)


async def test_a_change_during_a_poll_is_obeyed_before_its_records_are_written() -> None:
    deployment = Deployment()
    deployment.table.rows = numbered(10)
    await deployment.create(topic="old")
    gate = deployment.table.gate = asyncio.Event()
    async with running(deployment.process()) as process:
        await until(lambda: deployment.table.polls)

        def moved(item: ConnectorItem) -> ConnectorItem:
            config = {**item.config, "topic": "new"}
            return msgspec.structs.replace(item, config=config, generation=item.generation + 1)

        await deployment.change(moved)
        gate.set()
        await all_of(process, numbered(10), "new")
        assert await process.values("old") == []


async def test_a_restart_begins_the_task_again() -> None:
    deployment = Deployment()
    await deployment.create()
    async with running(deployment.process()):
        await state_is(deployment, RUNNING)
        key = keys.connect_task("c", 0)
        await deployment.change_task(
            key, lambda task: msgspec.structs.replace(task, restart=task.restart + 1)
        )
        await until(lambda: deployment.table.started == [0, 0])


async def test_a_failed_task_says_why_and_restarts_itself_less_and_less_often() -> None:
    deployment = Deployment()
    deployment.table.rows = numbered(3)
    deployment.table.faults = [TaskFault("the server said hush-hush")] * 3
    await deployment.create(password="${env:SECRET}")
    traces: set[str] = set()
    async with running(deployment.process()) as process:

        async def is_seen() -> bool:
            for task in await deployment.tasks():
                if task.health.state == FAILED:
                    traces.add(task.health.trace)
                    assert task.health.due_ms > 0
                return task.health.restarts == 3 and task.records == 3
            return False

        await until(is_seen)
        assert await process.values() == numbered(3)
        [task] = await deployment.tasks()
        assert task.health.failures == 0
    assert traces == {"org.apache.kafka.connect.errors.ConnectException: the server said [hidden]"}
    assert "password" not in task.changes


async def test_what_may_succeed_later_is_polled_again_without_a_failure() -> None:
    deployment = Deployment()
    deployment.table.rows = numbered(3)
    deployment.table.faults = [RetriableFault("not now")]
    await deployment.create()
    async with running(deployment.process()) as process:
        await all_of(process, numbered(3))
        [task] = await deployment.tasks()
        assert task.health.restarts == 0


async def test_a_connector_whose_tasks_cannot_be_planned_says_why() -> None:
    deployment = Deployment()
    await deployment.create(broken="orders")
    async with running(deployment.process()):

        async def is_failed() -> bool:
            return (await deployment.connector()).health.state == FAILED

        await until(is_failed)
        health = (await deployment.connector()).health
        assert "there is no such table, orders" in health.trace
        assert health.failures == 1
        assert await deployment.tasks() == []


async def test_more_tasks_than_a_transaction_has_room_for_are_planned() -> None:
    deployment = Deployment()
    await deployment.create(tasks_max="150")
    process = deployment.process()
    await process.runner.tick()

    async def is_planned() -> bool:
        return (await deployment.connector()).planned == 1

    await until(is_planned)
    assert [task.number for task in await deployment.tasks()] == list(range(150))
    await deployment.change(
        lambda item: msgspec.structs.replace(
            item, config={**item.config, "tasks.max": "2"}, generation=2
        )
    )
    await process.runner.tick()

    async def is_planned_again() -> bool:
        return (await deployment.connector()).planned == 2

    await until(is_planned_again)
    assert len(await deployment.tasks()) == 2
    await process.runner.aclose()


async def test_two_processes_share_tasks_and_the_other_takes_over_when_one_dies() -> None:
    deployment = Deployment()
    deployment.table.rows = numbered(40)
    deployment.table.at_once = 1
    await deployment.create(tasks_max="4")
    first, second = deployment.process("first"), deployment.process("second")
    async with running(second):
        async with running(first):
            await until(lambda: first.runner.run_count + second.runner.run_count == 4)
            deployment.die(first)
        await until(lambda: second.runner.run_count == 4)
        deployment.table.rows += numbered(40, 40)

        async def is_done() -> bool:
            return len(await second.values()) >= 80

        await until(is_done)
        found = await second.values()
        assert sorted(found) == sorted(numbered(80))
        for number in range(4):
            own = [row for row in found if int(row[4:]) % 4 == number]
            assert own == numbered(80)[number::4]
        await first.bury()


@pytest.mark.parametrize("seed", range(3))
async def test_a_process_that_stands_still_past_its_lease_writes_nothing(seed: int) -> None:
    """Everything that it asks of the table is answered only when another has gone on."""
    deployment = Deployment()
    deployment.table.at_once = 3
    deployment.table.rows = numbered(20)
    await deployment.create()
    stopped = deployment.process("stopped")
    async with running(stopped):

        async def has_begun() -> bool:
            return len(await deployment.seen_by_all()) > 5 * seed

        await until(has_begun)
        resume = deployment.stop(stopped)
        # It polls these, and is about to commit them all the time.
        deployment.table.rows += numbered(280, 20)
        async with running(deployment.process("next")) as following:
            await all_of(following, numbered(300))
            item = await deployment.metadata.inner.get(keys.lease(keys.connect_task("c", 0)))
            assert item is not None
            assert leases.decode(item.value).about == "next"
            resume()
            await until(lambda: stopped.runner.run_count == 0)
            deployment.table.rows += numbered(10, 300)
            await all_of(following, numbered(310))


async def test_records_for_more_lanes_than_a_transaction_has_room_for_are_divided() -> None:
    deployment = Deployment()
    deployment.table.at_once = 300
    deployment.table.rows = numbered(300)
    process = deployment.process()
    await process.parts.gateway.topics.create("t", partitions=300, config={"lane.partitions": 1})
    await deployment.create(spread="yes")
    async with running(process):

        async def is_done() -> bool:
            return sum(task.records for task in await deployment.tasks()) == 300

        await until(is_done)
        for n in (0, 99, 299):
            assert await process.values("t", n) == [f"row {n}"]


async def test_an_idle_connector_costs_nothing_but_ticks() -> None:
    deployment = Deployment()
    deployment.table.rows = numbered(5)
    await deployment.create()
    async with running(deployment.process()) as process:
        await all_of(process, numbered(5))
        await until(lambda: deployment.table.released)
        [before] = await deployment.tasks()
        calls, polls = dict(deployment.objects.calls), deployment.table.polls
        await until(lambda: deployment.table.polls > polls + 20)
        assert dict(deployment.objects.calls) == calls
        [task] = await deployment.tasks()
        assert task.committed_ms == before.committed_ms


async def test_a_paused_connector_costs_a_look_at_the_list_and_nothing_else() -> None:
    deployment = Deployment()
    deployment.table.rows = numbered(5)
    await deployment.create()
    async with running(deployment.process()) as process:
        await all_of(process, numbered(5))
        await deployment.change(targeted(PAUSED))
        await state_is(deployment, PAUSED)
        await until(lambda: process.runner.run_count == 0)
        polls, lists = deployment.table.polls, deployment.metadata.lists
        objects, table = dict(deployment.objects.calls), dict(deployment.metadata.calls)
        await until(lambda: deployment.metadata.lists > lists + 40)
        assert deployment.table.polls == polls
        assert dict(deployment.objects.calls) == objects
        assert dict(deployment.metadata.calls) == table


async def test_a_runner_takes_over_at_once_what_a_dead_one_of_its_name_held() -> None:
    deployment = Deployment()
    deployment.table.rows = numbered(5)
    await deployment.create()
    slow = replace(QUICK, lease_s=3600.0)
    dead, following = (deployment.process(name, timing=slow, holder="h") for name in "ab")
    async with running(dead):
        await all_of(dead, numbered(5))
        deployment.die(dead)
    deployment.table.rows += numbered(5, 5)
    async with running(following):
        await all_of(following, numbered(10))
    await dead.bury()
    assert await following.values() == numbered(10)


@pytest.mark.parametrize("tolerance", ["none", "all"])
async def test_a_task_stops_at_a_bad_record_or_goes_on(tolerance: str) -> None:
    deployment = Deployment()
    deployment.table.rows = [1, 2, "bad", 4]
    await deployment.create(
        value_converter="org.apache.kafka.connect.converters.LongConverter",
        errors_tolerance=tolerance,
    )
    good = [1, 2] if tolerance == "none" else [1, 2, 4]
    async with running(deployment.process()) as process:

        async def has_ended() -> bool:
            return any(task.health.failures > 1 or task.errors for task in await deployment.tasks())

        await until(has_ended)
        assert await process.values() == [chr(0) * 7 + chr(number) for number in good]
        [task] = await deployment.tasks()
        assert task.errors == (tolerance == "all")
        assert ("Tolerance exceeded" in task.health.trace) == (tolerance == "none")
