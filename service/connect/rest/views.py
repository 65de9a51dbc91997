"""Connectors, tasks and their states as answers show them."""

from collections.abc import Sequence
from typing import Any

from service.connect.config.validation import shown_config
from service.connect.connectors.catalog import plugin_of
from service.connect.tasks.items import (
    FAILED,
    PAUSED,
    STARTED,
    STOPPED,
    UNASSIGNED,
    ConnectorItem,
    RunHealth,
    TaskItem,
    task_config,
)
from service.security.caller import Caller


def kind_of(connector: ConnectorItem) -> str:
    plugin = plugin_of(connector.config.get("connector.class", ""))
    return "unknown" if plugin is None else plugin.kind.value


def holds_positions(connector: ConnectorItem) -> bool:
    plugin = plugin_of(connector.config.get("connector.class", ""))
    return plugin is not None and plugin.holds_positions


def config_of(connector: ConnectorItem) -> dict[str, str]:
    return shown_config(plugin_of(connector.config.get("connector.class", "")), connector.config)


def info(caller: Caller, connector: ConnectorItem) -> dict[str, Any]:
    name = caller.outer_name(connector.name)
    return {
        "name": name,
        "config": config_of(connector),
        "tasks": [{"connector": name, "task": number} for number in range(_tasks_shown(connector))],
        "type": kind_of(connector),
    }


def _tasks_shown(connector: ConnectorItem) -> int:
    """Return how many tasks there are: a stopped connector has none."""
    return 0 if connector.target == STOPPED else connector.task_count


def status(
    caller: Caller, connector: ConnectorItem, tasks: Sequence[TaskItem | None]
) -> dict[str, Any]:
    return {
        "name": caller.outer_name(connector.name),
        "connector": {
            **_health(connector, connector.health),
            "version": _version(connector),
        },
        "tasks": [
            task_status(connector, number, task)
            for number, task in enumerate(tasks[: _tasks_shown(connector)])
        ],
        "type": kind_of(connector),
    }


def _version(connector: ConnectorItem) -> str:
    plugin = plugin_of(connector.config.get("connector.class", ""))
    return "" if plugin is None else plugin.version


def _health(connector: ConnectorItem, health: RunHealth) -> dict[str, Any]:
    state = health.state
    if connector.target != STARTED:
        state = PAUSED if connector.target == PAUSED and state != FAILED else connector.target
    shown: dict[str, Any] = {"state": state, "worker_id": health.worker}
    if health.trace and state == FAILED:
        shown["trace"] = health.trace
    return shown


def task_status(connector: ConnectorItem, number: int, task: TaskItem | None) -> dict[str, Any]:
    """Return Kafka's state of a task, and what we know besides under `riacho`."""
    if task is None or task.generation != connector.generation:
        unplanned = RunHealth(state=UNASSIGNED)
        return {"id": number, **_health(connector, unplanned), "version": _version(connector)}
    health = task.health
    more: dict[str, Any] = {
        "records": task.records,
        "errors": task.errors,
        "committed_ms": task.committed_ms or None,
        "restarts": health.restarts,
    }
    if health.failures:
        more |= {"failures": health.failures, "retried_at_ms": health.due_ms or None}
    if health.trace and health.state != FAILED:
        more["last_trace"] = health.trace
    if task.waiting:
        more["waiting"] = task.waiting
    if task.gauges:
        more["gauges"] = task.gauges
    return {
        "id": number,
        **_health(connector, health),
        "version": _version(connector),
        "riacho": more,
    }


def task_info(caller: Caller, connector: ConnectorItem, task: TaskItem) -> dict[str, Any]:
    plugin = plugin_of(connector.config.get("connector.class", ""))
    return {
        "id": {"connector": caller.outer_name(connector.name), "task": task.number},
        "config": shown_config(plugin, task_config(connector, task)),
    }
