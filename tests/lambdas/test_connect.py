"""Connectors on a schedule: a call runs their tasks, and frees them before it ends."""

import asyncio
from pathlib import Path

import pytest

from service.serverless.connect import MARGIN_S, ScheduledConnectors
from service.settings import Settings
from storage import keys, leases
from storage.stores.opening import open_metadata
from tests.service.connect.tasks.toys import QUICK, Deployment

URL = "sqlite:///{}/table.db"


class Context:
    def __init__(self, left_s: float) -> None:
        self._left_s = left_s

    def get_remaining_time_in_millis(self) -> int:
        return int((MARGIN_S + self._left_s) * 1000)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data=tmp_path, metadata=URL.format(tmp_path), audit="off", log_level="error")


def test_calls_run_tasks_one_after_the_other_and_write_each_row_once(
    settings: Settings, tmp_path: Path
) -> None:
    numbers = iter(range(10**9))

    def deployment() -> Deployment:
        return Deployment(open_metadata(URL.format(tmp_path), lambda: f"v{next(numbers)}"))

    async def create(made: Deployment) -> None:
        await made.create()
        await made.metadata.close()

    table = deployment()
    function = ScheduledConnectors(settings, plugins=table.table.plugin, timing=QUICK)
    assert function({}, Context(5)) == {"connectors": 0, "tasks": 0}
    asyncio.run(create(table))
    for count in range(1, 3):
        table.table.rows = [f"row {n}" for n in range(count * 20)]
        assert function({}, Context(3)) == {"connectors": 1, "tasks": 1}

    async def found() -> tuple[int, str]:
        after = deployment()
        [task] = await after.tasks()
        item = await after.metadata.inner.get(keys.lease(keys.connect_task("c", 0)))
        await after.metadata.close()
        assert item is not None
        return task.records, leases.decode(item.value).holder

    assert asyncio.run(found()) == (40, "")
