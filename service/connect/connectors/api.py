"""The contract of connectors: how they say what they are, and what their tasks do.

A **source** task gives records with the position behind each. The runner converts and transforms
them and appends them in one metadata transaction with the last position of each source partition,
so they are in the log once, whatever dies. Then, and only then, it calls `committed`.

A **sink** task gets records in the order of the log. The runner commits the offsets of what was
put after `flush` has returned: at least once. A sink whose target can hold the offsets itself
returns them from `positions`, and reads on from there: exactly once. A sink that fills files over
several flushes says how far the group may be committed: see `FillingSinkTask`.

A task is one object for one run: the runner makes it, calls `start`, then the others one at a
time, and `stop` in the end, whatever was raised. It may be run for 50 seconds in a function, or for
months in a process, so everything that it must remember is its position. It does no blocking work
on the event loop: drivers without `async` are called in a thread (`asyncio.to_thread`).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from service.connect.config.keys import Config, Key
from service.connect.data.errors import ConnectFault
from service.connect.data.records import ConnectRecord
from service.world.clock import World

Position: TypeAlias = Mapping[str, Any]
"""A JSON object: the partition of a source, or an offset in it."""


class PluginKind(Enum):
    SOURCE = "source"
    SINK = "sink"


class SourceOffsets(Protocol):
    async def read(self, partitions: Sequence[Position]) -> list[Position | None]:
        """Return the committed offset of each; None: nothing was read of it yet."""

    async def all(self) -> list[tuple[Position, Position]]:
        """Return all committed partitions and their offsets."""


class Reporter(Protocol):
    async def __call__(self, record: ConnectRecord, error: ConnectFault) -> None:
        """Give up on a record: it is dead-lettered or logged, as `errors.*` says.

        Raises a `TaskFault` because of `error` if the connector tolerates none: let it pass.
        """


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What this machine lets connectors do."""

    world: World
    files: Path | None = None
    """RIACHO_CONNECT_FILES: connectors read and write files below it, and nowhere else."""
    private_addresses: bool = False
    """RIACHO_CONNECT_PRIVATE_ADDRESSES: HTTP connectors may reach addresses of private networks."""


@dataclass(frozen=True, slots=True)
class TopicPartition:
    topic: str
    partition: int


class LogAccess(Protocol):
    """What a task may do with the log besides its records, as the principal of the connector.

    Everything raises `RetriableFault` if the log cannot be reached, and `TaskFault` if the
    principal may not do it.
    """

    async def partition_count(self, topic: str) -> int | None:
        """Return how many partitions the topic has; None: there is no such topic."""

    async def create_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create the topic, or give it more partitions if it has fewer. Repeating it is harmless.

        Of `config`, keys and values that topics do not have here are left out.
        """

    async def end_offset(self, at: TopicPartition) -> int:
        """Return the offset that the next record of the partition gets."""

    async def group_offsets(self, group: str) -> Mapping[TopicPartition, int]:
        """Return the committed offsets of a consumer group; empty if there is none."""

    async def commit_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit for a group that has no members; False, and no change, if it has some."""


@dataclass(frozen=True, kw_only=True)
class TaskContext:
    connector: str
    task: int
    config: Config
    """Of this task, with secrets resolved. Never log or store it."""
    environment: Environment
    offsets: SourceOffsets
    """Of sources. A sink has none."""
    report: Reporter
    metric: Callable[[str, float], None]
    """Sets a gauge of this task that its status shows, like `slot_lag_bytes`."""
    log: LogAccess | None = None
    """None where a task is tried without a log."""


class SourceTask(Protocol):
    async def start(self) -> None: ...

    async def poll(self, wait_s: float, records_max: int) -> Sequence[ConnectRecord]:
        """Return the next records, at most about `records_max`; wait at most `wait_s` for any.

        Every record has its `FromSource`. Without new records the list is empty. Raises
        `RetriableFault`, `TaskFault`; a record that cannot be made goes to `report`.
        """

    async def committed(self) -> None:
        """All records of earlier polls are in the log, with their positions: release them."""

    async def stop(self) -> None: ...


@runtime_checkable
class SinkTask(Protocol):
    async def start(self) -> None: ...

    async def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the next offset of each partition that the target itself holds.

        Called with the partitions that this task owns now, whenever they change; what was put of
        others is flushed before. An empty answer: read on from the group's offsets.
        """

    async def put(self, records: Sequence[ConnectRecord]) -> None:
        """Take these records. Raises `RetriableFault` if none was taken, and `TaskFault`."""

    async def flush(self) -> None:
        """Make durable all that was put; of a `FillingSinkTask`, all that is `committable`."""

    async def stop(self) -> None: ...


@runtime_checkable
class FillingSinkTask(SinkTask, Protocol):
    """A sink task that keeps what was put until, say, a file is full.

    The runner asks with `isinstance`. It calls `flush` as often as that of others, and `put` with
    no records when there are none, so that files are finished in time.
    """

    def committable(self) -> Mapping[TopicPartition, int]:
        """Return, per partition, before which offset all records are durable.

        The runner commits these offsets after each `flush`, and no others: a partition that is
        missing has nothing to commit. What is kept when the task stops is read again by the next.
        """


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A connector that can be configured. `make` imports its libraries, and nothing does before."""

    kind: PluginKind
    class_name: str
    """Ours, as answers show it."""
    aliases: Sequence[str] = ()
    """Class names of others whose configurations are understood, Java's short names too."""
    version: str
    about: str
    keys: Sequence[Key]
    prefixes: Sequence[str] = ()
    """Keys that begin so are the connector's too, like `driver.`."""
    ignored: Mapping[str, str] = field(default_factory=dict)
    """Keys of the originals that have no effect here, and why; they are accepted."""
    check: Callable[[Config, Environment], Mapping[str, str]] = lambda _config, _environment: {}
    """Returns problems by key that a single key's check cannot see."""
    tasks: Callable[[Config, int, Environment], Awaitable[list[Config]]]
    """Returns the configurations of at most so many tasks, at least one."""
    make: Callable[[TaskContext], SourceTask | SinkTask]
    records_max: int = 500
    """Of a sink: how many records it is given at once, unless its configuration says."""
    replan_s: float = 0.0
    """How often the tasks are planned again, since the source may have more to read by now; 0:
    when the configuration changes. What a task does not differ in goes on."""
    promises: str
    """What holds after crashes, in one sentence for documents and answers."""


async def single_task(config: Config, _: int, __: Environment) -> list[Config]:
    """`Plugin.tasks` of a connector whose work cannot be divided."""
    return [config]


async def same_tasks(config: Config, tasks_max: int, _: Environment) -> list[Config]:
    """`Plugin.tasks` of a sink: every task is the same, and the group divides the partitions."""
    return [config] * tasks_max
