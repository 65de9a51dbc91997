"""What deleted connectors and topics leave in the table is removed, and nothing else."""

import pytest

from service.connect.dead_letters.sent import SentLetters, encode_sent
from service.connect.running.left_behind import LeftBehind
from service.connect.tasks.items import TaskItem, encode_task
from storage import keys
from storage.errors import StoreUnavailable
from storage.leases import LeaseItem, encode
from storage.stores.metadata import Put
from tests.service.connect.tasks.toys import Deployment, running, until

pytestmark = pytest.mark.anyio


async def test_leases_of_a_deleted_connector_are_removed_when_its_runs_have_ended() -> None:
    deployment = Deployment()
    await deployment.create(tasks_max="3")
    await deployment.create("other")
    table = deployment.metadata.inner
    async with running(deployment.process()) as process:
        await until(lambda: process.runner.run_count == 4)
        await deployment.delete()

        async def leased() -> list[str]:
            return [key for key, _ in await table.list(keys.lease(keys.CONNECT_TASKS))]

        async def is_clean() -> bool:
            return await leased() == [keys.lease(keys.connect_task("other", 0))]

        await until(is_clean)
        assert process.runner.run_count == 1


async def test_a_lease_that_is_held_without_a_task_is_removed_when_it_stands_still() -> None:
    deployment = Deployment()
    process, table = deployment.process(), deployment.metadata
    found = LeftBehind(table, process.parts.gateway.topics)
    key, kept = (keys.lease(keys.connect_task("c", n)) for n in range(2))
    task = encode_task(TaskItem("c", 1, 1))
    held = encode(LeaseItem("dead", 3))
    await table.transact(
        [Put(key, held, None), Put(kept, held, None), Put(keys.connect_task("c", 1), task, None)]
    )
    assert await found.remove() == 0
    version = (await table.get_many([key]))[key].version
    await table.transact([Put(key, encode(LeaseItem("dead", 3, beats=1)), version)])
    assert await found.remove() == 0
    assert await found.remove() == 1
    assert [each for each, _ in await table.list(keys.lease(keys.CONNECT_TASKS))] == [kept]


@pytest.mark.parametrize("died_after", range(4))
async def test_what_was_sent_again_of_a_deleted_topic_is_removed(died_after: int) -> None:
    deployment = Deployment()
    process, table = deployment.process(), deployment.metadata
    topics = process.parts.gateway.topics
    here = (await topics.create("here", partitions=1)).topic_id
    gone = (await topics.create("gone", partitions=1)).topic_id
    item = encode_sent(SentLetters("x"))
    for topic_id in (here, gone):
        await table.transact([Put(keys.redriven(topic_id), item, None)])
        for n in range(130):
            await table.transact([Put(keys.redrive(topic_id, n, "x"), item, None)])
    await topics.delete("gone")
    found = LeftBehind(table, topics)
    inner, calls = table.inner.transact, 0

    async def dies(ops: object) -> object:
        nonlocal calls
        calls += 1
        if calls > died_after:
            raise StoreUnavailable("killed")
        return await inner(ops)  # type: ignore[arg-type]

    table.inner.transact = dies  # type: ignore[assignment, method-assign]
    if died_after < 3:
        with pytest.raises(StoreUnavailable):
            await found.remove()
    else:
        assert await found.remove() == 131
    table.inner.transact = inner  # type: ignore[method-assign]
    await found.remove()
    assert await table.list(keys.redrives_of(gone)) == []
    assert [key for key, _ in await table.list(keys.REDRIVEN)] == [keys.redriven(here)]
    assert len(await table.list(keys.redrives_of(here))) == 130
