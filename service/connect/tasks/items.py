"""The items of Connect: connectors, tasks, positions of sources.

    connector/<name>                 RCC1   configuration, what it should do, as whom it runs
    connect-task/<connector>/<n>     RCT1   what is particular to a task, and how it fares
    connect-offset/<connector>/<d>   RCP1   how far a partition of a source was read

An item of a connector changes when its configuration, its target state or its offsets do, and when
its tasks are planned. Everything that a task writes is conditional on its version, so a task sees
such a change before its next commit: `holding.py` says which of them end it at once. A task's own
item is written with each of its commits.

Of a sink whose target holds the offsets, an offset item is what somebody has set by hand, and what
the target is to be told: `{"kafka_topic": …, "kafka_partition": …}` and `{"kafka_offset": …}`.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from storage.formats import frames

STARTED: Final = "STARTED"
PAUSED: Final = "PAUSED"
STOPPED: Final = "STOPPED"
DELETED: Final = "DELETED"
"""Target states of a connector. One that is deleted is no longer shown, and its items are removed;
whoever creates one of its name first removes what is left of them."""

UNASSIGNED: Final = "UNASSIGNED"
RUNNING: Final = "RUNNING"
FAILED: Final = "FAILED"
RESTARTING: Final = "RESTARTING"
"""States of a task and of a connector; besides, `PAUSED` and `STOPPED`."""

_CONNECTOR: Final = b"RCC1"
_TASK: Final = b"RCT1"
_OFFSET: Final = b"RCP1"


class RunHealth(msgspec.Struct, array_like=True, frozen=True):
    """How something that is tried again fares: a task, or the planning of tasks."""

    state: str = UNASSIGNED
    worker: str = ""
    """The process that said so."""
    trace: str = ""
    """Why it failed last; it may run again since."""
    failures: int = 0
    """In a row; a success ends it."""
    restarts: int = 0
    """By itself, since the configuration changed or somebody restarted it."""
    due_ms: int = 0
    """When it is tried again, after a failure."""
    changed_ms: int = 0


class ConnectorItem(msgspec.Struct, array_like=True, frozen=True):
    name: str
    """With the prefix of its tenant."""
    config: dict[str, str]
    """As its user wrote it, with references instead of secrets."""
    principal: str
    """Whose ACLs hold for what it reads and writes."""
    created_ms: int
    target: str = STARTED
    generation: int = 1
    """Incremented when the configuration changes."""
    planned: int = 0
    """The generation that the tasks were planned for."""
    task_count: int = 0
    health: RunHealth = RunHealth()
    """Of the connector itself: whether its tasks could be planned."""
    planned_ms: int = 0
    name_prefix: str = ""
    """Of a tenant: what its topics and its group begin with, unseen by the configuration."""
    offsets_epoch: int = 0
    """Incremented when its offsets are changed by hand: runs from before write nothing more."""


class TaskItem(msgspec.Struct, array_like=True, frozen=True):
    connector: str
    number: int
    generation: int
    """Of the configuration that it was planned for."""
    changes: dict[str, str | None] = {}
    """How its configuration differs from the connector's; None: without the key."""
    health: RunHealth = RunHealth()
    commit: bytes = b""
    """By which its last commit is recognised after a lost reply."""
    records: int = 0
    """Committed by this task; of sources: written to the log, of sinks: read from it."""
    errors: int = 0
    """Records among them that were given up."""
    committed_ms: int = 0
    topics: tuple[str, ...] = ()
    """That it has read or written since they were reset."""
    gauges: dict[str, float] = {}
    restart: int = 0
    """Incremented by who wants the task to be restarted: the run that sees it ends."""
    waiting: str = ""
    """Why the task that runs does not go on: what it tries again and again."""


class OffsetItem(msgspec.Struct, array_like=True, frozen=True):
    connector: str
    partition: bytes
    """JSON, with sorted keys."""
    offset: bytes
    """JSON; `null`: none, since it was deleted by hand or by the source."""
    committed_ms: int


def canonical(position: Mapping[str, Any]) -> bytes:
    """Return a position as JSON; equal positions give equal bytes."""
    return msgspec.json.encode(position, order="deterministic")


def digest_of(partition: bytes) -> str:
    """Return how the key of an offset names its partition."""
    return hashlib.sha256(partition).hexdigest()[:32]


def is_planned(connector: ConnectorItem) -> bool:
    """Whether its tasks may run: those that were planned for its configuration."""
    return connector.target == STARTED and connector.planned == connector.generation


def may_finish(connector: ConnectorItem) -> bool:
    """Whether tasks that run may commit what they have: also while they are paused or stopped."""
    return (
        connector.target in (STARTED, PAUSED, STOPPED) and connector.planned == connector.generation
    )


def afresh(health: RunHealth) -> RunHealth:
    """Return the health of a connector that its user starts again: what has failed is due now."""
    return RunHealth() if health.failures or health.state == FAILED else health


def group_of(connector: ConnectorItem) -> str:
    """Return the group of a sink, as it is stored."""
    prefix = connector.name_prefix
    return f"{prefix}connect-{connector.name.removeprefix(prefix)}"


def sink_partition(topic: str, partition: int) -> dict[str, Any]:
    """Return a partition as Kafka's calls name those of sinks."""
    return {"kafka_topic": topic, "kafka_partition": partition}


def task_config(connector: ConnectorItem, task: TaskItem) -> dict[str, str]:
    """Return the configuration of a task, with references instead of secrets."""
    merged = {**connector.config, **task.changes}
    return {key: text for key, text in merged.items() if text is not None}


def changes_of(connector: ConnectorItem, config: Mapping[str, str]) -> dict[str, str | None]:
    """Return how the configuration of a task differs from the connector's."""
    changes: dict[str, str | None] = dict.fromkeys(connector.config.keys() - config.keys())
    changes.update({k: v for k, v in config.items() if connector.config.get(k) != v})
    return changes


def encode_connector(item: ConnectorItem) -> bytes:
    return frames.seal(_CONNECTOR, msgspec.msgpack.encode(item))


def decode_connector(value: bytes) -> ConnectorItem:
    return frames.unpack(_CONNECTOR, value, _CONNECTORS, "a connector")


def encode_task(item: TaskItem) -> bytes:
    return frames.seal(_TASK, msgspec.msgpack.encode(item))


def decode_task(value: bytes) -> TaskItem:
    return frames.unpack(_TASK, value, _TASKS, "a task of a connector")


def encode_offset(item: OffsetItem) -> bytes:
    return frames.seal(_OFFSET, msgspec.msgpack.encode(item))


def decode_offset(value: bytes) -> OffsetItem:
    return frames.unpack(_OFFSET, value, _OFFSETS, "a position of a source")


_CONNECTORS: Final = msgspec.msgpack.Decoder(ConnectorItem)
_TASKS: Final = msgspec.msgpack.Decoder(TaskItem)
_OFFSETS: Final = msgspec.msgpack.Decoder(OffsetItem)
