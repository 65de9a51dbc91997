"""The contract between what commits for a task and the loops of sources and sinks."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from service.connect.connectors.api import TopicPartition
from service.connect.data.log_records import LogRecord

_NO_POSITIONS: Final[Mapping[bytes, bytes | None]] = MappingProxyType({})
_NO_OFFSETS: Final[Mapping[TopicPartition, int]] = MappingProxyType({})


class TaskCommits(Protocol):
    async def commit(
        self,
        *,
        records: Sequence[LogRecord] = (),
        positions: Mapping[bytes, bytes | None] = _NO_POSITIONS,
        group: Mapping[TopicPartition, int] = _NO_OFFSETS,
        read: int = 0,
        errors: int = 0,
    ) -> None:
        """Commit in one metadata transaction, all or nothing, what a task has done.

        Appends `records`; writes `positions` of a source, canonical JSON to JSON (None: deleted);
        commits the offsets of the group `connect-<name>`; counts `read` and `errors` in the item
        of the task. Nothing happens unless the task is leased to us and its connector unchanged.
        Raises `LeaseLost`, `TaskFault`, `RetriableFault`.
        """
