"""Planning: from a connector's configuration to the items of its tasks.

The plugin says what each task is to do, and one metadata transaction writes that with the item of
the connector. Where there are too many for one, the connector is not planned until the last has
been written, and tasks run only for a connector that is. Any process may plan: the first one wins.

A plugin sees secrets. What is stored is how a task differs from the connector, which has
references, so a plugin that copied a secret into another key would be refused.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from service.connect.access.parts import ConnectParts
from service.connect.access.rights import references_of
from service.connect.config.keys import Config
from service.connect.connectors.api import Plugin
from service.connect.data.errors import ConfigFault, TaskFault
from service.connect.running.traces import trace_of
from service.connect.tasks.items import (
    FAILED,
    RUNNING,
    STARTED,
    ConnectorItem,
    RunHealth,
    TaskItem,
    decode_connector,
    decode_task,
    encode_connector,
    encode_task,
    is_planned,
)
from service.process.references.references import Resolved
from storage import keys
from storage.errors import MetadataConflict, RiachoError
from storage.stores.metadata import TRANSACT_OPS_MAX, Check, Delete, Op, Put, Versioned, pages

log: Final = logging.getLogger("riacho.connect")

PLAN_S_MAX: Final = 60.0
"""A plugin that has not answered by then has failed."""

RETRY_S_MIN: Final = 2.0
RETRY_S_MAX: Final = 300.0

Plugins = Callable[[str], Plugin | None]


def is_due(connector: ConnectorItem, plugins: Plugins, now_ms: int) -> bool:
    """Whether the tasks of the connector are to be planned now."""
    if connector.target != STARTED or now_ms < connector.health.due_ms:
        return False
    if not is_planned(connector):
        return True
    plugin = plugins(connector.config.get("connector.class", ""))
    every_s = 0.0 if plugin is None else plugin.replan_s
    return every_s > 0 and now_ms >= connector.planned_ms + every_s * 1000


class Planner:
    def __init__(self, parts: ConnectParts, plugins: Plugins, worker: str) -> None:
        self._parts = parts
        self._plugins = plugins
        self._worker = worker
        self._metadata = parts.gateway.metadata
        self._world = parts.gateway.world

    async def plan(self, name: str) -> None:
        """Plan the tasks of a connector if that is due; never raises what the plugin raises."""
        stored = await self._metadata.get(keys.connector(name))
        if stored is None:
            return
        connector = decode_connector(stored.value)
        if not is_due(connector, self._plugins, self._world.now_ms()):
            return
        resolved = Resolved(connector.config, frozenset())
        try:
            resolved = await references_of(self._parts, connector).resolved(connector.config)
            changes = await self._changes(connector, resolved)
        except Exception as error:  # noqa: BLE001 - Whatever a connector raises.
            trace = resolved.hide(trace_of(error))
            log.warning("tasks of connector %s could not be planned: %s", name, trace)
            await self._put(stored, self._failed(connector, trace))
            return
        try:
            await self._write(stored, connector, changes)
        except MetadataConflict:
            log.info("connector %s has changed while it was planned", name)

    async def _changes(
        self, connector: ConnectorItem, resolved: Resolved
    ) -> list[dict[str, str | None]]:
        class_name = connector.config.get("connector.class", "")
        plugin = self._plugins(class_name)
        if plugin is None:
            raise ConfigFault({"connector.class": f"there is no connector {class_name!r} here"})
        tasks_max = _tasks_max(connector.config)
        async with asyncio.timeout(PLAN_S_MAX):
            configs = await plugin.tasks(resolved.config, tasks_max, self._parts.environment)
        if not 1 <= len(configs) <= tasks_max:
            raise TaskFault(f"{plugin.class_name} made {len(configs)} tasks of {tasks_max}")
        return [_changes_of(resolved, config) for config in configs]

    async def _write(
        self,
        stored: Versioned,
        connector: ConnectorItem,
        changes: Sequence[Mapping[str, str | None]],
    ) -> None:
        now_ms = self._world.now_ms()
        planned = msgspec.structs.replace(
            connector,
            planned=connector.generation,
            task_count=len(changes),
            planned_ms=now_ms,
            health=RunHealth(state=RUNNING, worker=self._worker, changed_ms=now_ms),
        )
        ops = await self._task_ops(connector, changes)
        if len(ops) > TRANSACT_OPS_MAX - 1 and is_planned(connector):
            # Its tasks end first. The next look plans it.
            await self._put(stored, msgspec.structs.replace(connector, planned=0))
            return
        key, room = keys.connector(connector.name), TRANSACT_OPS_MAX - 1
        while len(ops) > room:
            first, ops = ops[:room], ops[room:]
            await self._metadata.transact([Check(key, stored.version), *first])
        await self._metadata.transact([Put(key, encode_connector(planned), stored.version), *ops])

    async def _task_ops(
        self, connector: ConnectorItem, changes: Sequence[Mapping[str, str | None]]
    ) -> list[Op]:
        prefix = keys.connect_tasks_of(connector.name)
        found = {key: item async for page in pages(self._metadata, prefix) for key, item in page}
        ops: list[Op] = []
        for number, each in enumerate(changes):
            key = keys.connect_task(connector.name, number)
            item = found.pop(key, None)
            old = None if item is None else decode_task(item.value)
            new = _planned_task(connector, number, dict(each), old)
            if new != old:
                ops.append(Put(key, encode_task(new), None if item is None else item.version))
        return [*ops, *(Delete(key, item.version) for key, item in found.items())]

    def _failed(self, connector: ConnectorItem, trace: str) -> ConnectorItem:
        failures = connector.health.failures + 1
        pause_s = min(RETRY_S_MAX, RETRY_S_MIN * 2 ** min(failures - 1, 20))
        now_ms = self._world.now_ms()
        return msgspec.structs.replace(
            connector,
            health=RunHealth(
                # Tasks that were planned before go on.
                state=RUNNING if is_planned(connector) else FAILED,
                worker=self._worker,
                trace=trace,
                failures=failures,
                restarts=connector.health.restarts + 1,
                due_ms=now_ms + round(pause_s * 1000),
                changed_ms=now_ms,
            ),
        )

    async def _put(self, stored: Versioned, new: ConnectorItem) -> None:
        op = Put(keys.connector(new.name), encode_connector(new), stored.version)
        try:
            await self._metadata.transact([op])
        except (MetadataConflict, RiachoError) as error:
            log.info("connector %s has changed, or the table failed: %s", new.name, error)


def _tasks_max(config: Config) -> int:
    text = config.get("tasks.max", "1")
    try:
        return max(1, int(text))
    except ValueError:
        raise ConfigFault({"tasks.max": f"{text!r} is not a whole number"}) from None


def _changes_of(resolved: Resolved, config: Config) -> dict[str, str | None]:
    """Return how a task's configuration differs from the connector's, without secrets."""
    base = resolved.config
    changes: dict[str, str | None] = dict.fromkeys(base.keys() - config.keys())
    for key, text in config.items():
        if base.get(key) != text:
            if resolved.hide(text) != text:
                raise TaskFault(f"the plan of a task has a secret in its key {key}")
            changes[key] = text
    return changes


def _planned_task(
    connector: ConnectorItem, number: int, changes: dict[str, str | None], old: TaskItem | None
) -> TaskItem:
    if old is None:
        return TaskItem(connector.name, number, connector.generation, changes)
    if (old.generation, old.changes) == (connector.generation, changes):
        return old
    return msgspec.structs.replace(
        old, generation=connector.generation, changes=changes, health=RunHealth(), gauges={}
    )
