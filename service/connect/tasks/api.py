"""The contract between what commits for a task and the loops of sources and sinks.

Topics are named here as the configuration names them; what commits knows of tenants' prefixes.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from service.connect.connectors.api import TopicPartition
from service.connect.data.errors import TaskFault
from service.connect.data.log_records import LogRecord
from storage.leases import LeaseLost

NO_POSITIONS: Final[Mapping[bytes, bytes | None]] = MappingProxyType({})
NO_OFFSETS: Final[Mapping[TopicPartition, int]] = MappingProxyType({})


class RunOver(LeaseLost):
    """The run must end, and that is no failure: its connector was changed, paused, deleted."""


class TooWide(TaskFault):
    """Too many lanes and items for one commit; nothing was written. Less at once may pass."""


class RecordsRefused(TaskFault):
    """The log refuses at least one of the records, for what it is; nothing was written."""


class TaskCommits(Protocol):
    waiting: str
    """Why the task does not go on, as its status shows it; empty: it does."""

    async def commit(
        self,
        *,
        records: Sequence[LogRecord] = (),
        positions: Mapping[bytes, bytes | None] = NO_POSITIONS,
        group: Mapping[TopicPartition, int] = NO_OFFSETS,
        read: int = 0,
        errors: int = 0,
    ) -> None:
        """Commit in one metadata transaction, all or nothing, what a task has done.

        Appends `records`; writes `positions` of a source, canonical JSON to JSON (None: deleted);
        commits the offsets of the group `connect-<name>`; counts `read` and `errors` in the item
        of the task. Nothing happens unless the task is leased to us and its connector unchanged.

        Raises `LeaseLost`: end the run. `RetriableFault`: nothing was written, repeat it.
        `TooWide`: nothing was written, commit less at once. `RecordsRefused`: nothing was
        written, find the record by committing fewer. `TaskFault`.
        """
