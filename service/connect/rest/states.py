"""Calls about what connectors and their tasks do: status, pause, stop, restart, topics."""

from collections.abc import Callable

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from service.connect.rest import views
from service.connect.rest.answers import ConnectQuery, answer, caller_in, connector_in, done
from service.connect.rest.errors import ConnectError, no_status, no_task
from service.connect.rest.store import ConnectorStore
from service.connect.tasks.items import (
    FAILED,
    PAUSED,
    RESTARTING,
    STARTED,
    STOPPED,
    ConnectorItem,
    RunHealth,
    TaskItem,
    afresh,
)
from service.security.acls import Operation, ResourceType


class StateCalls:
    def __init__(self, store: ConnectorStore) -> None:
        self._store = store

    async def show_status(self, request: Request) -> Response:
        """Show what a connector and its tasks do."""
        connector = await self._store.read(connector_in(request))
        tasks = await self._store.tasks(connector)
        return answer(views.status(caller_in(request), connector, tasks))

    async def pause(self, request: Request) -> Response:
        """Pause a connector: its tasks do nothing until it is resumed."""
        await self._set_target(request, PAUSED)
        return done(202)

    async def resume(self, request: Request) -> Response:
        """Resume a connector that was paused or stopped."""
        await self._set_target(request, STARTED)
        return done(202)

    async def stop(self, request: Request) -> Response:
        """Stop a connector: then its offsets can be changed."""
        await self._set_target(request, STOPPED)
        return done(204)

    async def _set_target(self, request: Request, target: str) -> None:
        name = connector_in(request)

        def changed(found: ConnectorItem) -> ConnectorItem:
            if found.target == target:
                return found
            return replace(found, target=target, health=afresh(found.health))

        await self._store.change(name, changed)
        caller_in(request).changed(Operation.ALTER, ResourceType.CONNECTOR, name)

    async def restart(self, request: Request) -> Response:
        """Restart a connector and, with includeTasks, its tasks."""
        query, caller, name = ConnectQuery(request), caller_in(request), connector_in(request)
        only_failed, with_tasks = query.flag("onlyFailed"), query.flag("includeTasks")

        def changed(found: ConnectorItem) -> ConnectorItem:
            if only_failed and found.health.state != FAILED:
                return found
            return replace(found, health=afresh(found.health))

        connector = await self._store.change(name, changed)
        if with_tasks:
            for number, task in enumerate(await self._store.tasks(connector)):
                if task is not None and not (only_failed and task.health.state != FAILED):
                    await self._restart_task(name, number)
        caller.changed(Operation.ALTER, ResourceType.CONNECTOR, name)
        if not only_failed and not with_tasks:
            return done(204)
        tasks = await self._store.tasks(connector)
        return answer(views.status(caller, connector, tasks), 202)

    async def list_tasks(self, request: Request) -> Response:
        """List the tasks of a connector, with their configurations."""
        connector = await self._store.read(connector_in(request))
        caller = caller_in(request)
        return answer(
            [views.task_info(caller, connector, task) for task in await self._planned(connector)]
        )

    async def show_task_configs(self, request: Request) -> Response:
        """Show the configurations of all tasks of a connector."""
        connector = await self._store.read(connector_in(request))
        caller = caller_in(request)
        name = caller.outer_name(connector.name)
        return answer(
            {
                f"{name}-{task.number}": views.task_info(caller, connector, task)["config"]
                for task in await self._planned(connector)
            }
        )

    async def _planned(self, connector: ConnectorItem) -> list[TaskItem]:
        if connector.target == STOPPED:
            return []
        return [task for task in await self._store.tasks(connector) if task is not None]

    async def show_task_status(self, request: Request) -> Response:
        """Show what a task does."""
        connector = await self._store.read(connector_in(request))
        number = _number(request, connector, no_status)
        tasks = await self._store.tasks(connector)
        return answer(views.task_status(connector, number, tasks[number]))

    async def restart_task(self, request: Request) -> Response:
        """Restart a task."""
        connector = await self._store.read(connector_in(request))
        number = _number(request, connector, no_task)
        if not await self._restart_task(connector.name, number):
            raise no_task(caller_in(request).outer_name(connector.name), number)
        caller_in(request).changed(Operation.ALTER, ResourceType.CONNECTOR, connector.name)
        return done(204)

    async def _restart_task(self, name: str, number: int) -> bool:
        now_ms = self._store.world.now_ms()

        def changed(task: TaskItem) -> TaskItem:
            health = RunHealth(state=RESTARTING, worker=task.health.worker, changed_ms=now_ms)
            return replace(task, restart=task.restart + 1, health=health)

        return await self._store.change_task(name, number, changed)

    async def show_topics(self, request: Request) -> Response:
        """Show the topics that a connector has used."""
        connector = await self._store.read(connector_in(request))
        tasks = await self._store.tasks(connector)
        topics = sorted({topic for task in tasks if task is not None for topic in task.topics})
        return answer({caller_in(request).outer_name(connector.name): {"topics": topics}})

    async def reset_topics(self, request: Request) -> Response:
        """Forget which topics a connector has used."""
        connector = await self._store.read(connector_in(request))
        for number in range(connector.task_count):
            await self._store.change_task(
                connector.name, number, lambda task: replace(task, topics=())
            )
        return done(202)


def _number(
    request: Request, connector: ConnectorItem, error: Callable[[str, object], ConnectError]
) -> int:
    """Return the task that the path names; raise 404 if there is none."""
    text: str = request.path_params["task"]
    is_number = text.isascii() and text.isdigit() and len(text) <= 6
    if not is_number or int(text) >= connector.task_count:
        raise error(caller_in(request).outer_name(connector.name), text[:100])
    return int(text)
