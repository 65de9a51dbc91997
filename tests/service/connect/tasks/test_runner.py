"""Connectors as their users see them: records once, states, restarts, other processes."""

import pytest

from tests.service.connect.tasks.toys import Deployment, running, until

pytestmark = pytest.mark.anyio


def numbered(count: int) -> list[str]:
    return [f"row {n}" for n in range(count)]


async def test_every_row_is_in_the_log_once_in_order() -> None:
    deployment = Deployment()
    deployment.table.rows = numbered(95)
    await deployment.create()
    async with running(deployment.process()) as process:

        async def is_done() -> bool:
            return len(await process.values()) == 95

        await until(is_done)
        assert await process.values() == numbered(95)
        [task] = await deployment.tasks()
        assert (task.records, task.topics, task.health.state) == (95, ("t",), "RUNNING")
