"""What the table holds of connectors: each change of it, at the moment of its transaction."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from service.connect.tasks.items import FAILED, decode_connector, decode_offset, decode_task
from storage import keys, leases
from storage.formats import frames
from tests.checker.connect_history import ConnectHistory, PositionChange, TaskChange
from tests.simulation.cloud import WatchedMetadata
from tests.simulation.connect.far import SIMULATED

FAULTS_OF_THE_LOG: Final = "RetriableException: the log: "
"""What the trace of a task says that has waited for the log in vain."""

_OFFSETS: Final = "offset/connect-"


class ConnectWatch:
    def __init__(
        self, metadata: WatchedMetadata, history: ConnectHistory, now_s: Callable[[], float]
    ) -> None:
        self._metadata = metadata
        self._history = history
        self._now_s = now_s
        self.positions: dict[tuple[str, int], int] = {}
        """The numbers of sources and the offsets of sinks that are committed."""
        self.failures = 0
        metadata.watch_collection["connect-task/"] = self._see_task
        metadata.watch_collection["connect-offset/"] = self._see_position
        metadata.watch_collection[_OFFSETS] = self._see_offsets

    def target_of(self, connector: str) -> str:
        stored = self._metadata.now(keys.connector(connector))
        return "" if stored is None else decode_connector(stored).target

    def committed(self, connector: str) -> dict[int, int]:
        return {n: at for (name, n), at in self.positions.items() if name == connector}

    def _see_task(self, key: str, before: bytes | None, after: bytes | None) -> None:
        if after is None:
            return
        task, was = decode_task(after), None if before is None else decode_task(before)
        health = task.health
        if health.state == FAILED and (was is None or was.health != health):
            self.failures += 1
            if SIMULATED not in health.trace and FAULTS_OF_THE_LOG not in health.trace:
                self._history.errors.append(f"{task.connector}-{task.number}: {health.trace}")
        if task.commit == (b"" if was is None else was.commit):
            return
        stored = self._metadata.now(keys.lease(key))
        epoch = 0 if stored is None else leases.decode(stored).epoch
        self._history.changes.append(
            TaskChange(self._now_s(), task.connector, task.number, task.commit.hex(), epoch)
        )

    def _see_position(self, key: str, before: bytes | None, after: bytes | None) -> None:
        del key, before
        if after is not None:
            item = decode_offset(after)
            partition = msgspec.json.decode(item.partition)["partition"]
            self._moved(item.connector, partition, msgspec.json.decode(item.offset)["number"])

    def _see_offsets(self, key: str, before: bytes | None, after: bytes | None) -> None:
        """See the offsets of a sink's group, of one lane."""
        connector = key.removeprefix(_OFFSETS).partition("/")[0]
        was = {} if before is None else _offsets(before)
        for partition, offset in ({} if after is None else _offsets(after)).items():
            if was.get(partition) != offset:
                self._moved(connector, partition, offset)

    def _moved(self, connector: str, partition: int, number: int) -> None:
        self.positions[connector, partition] = number
        self._history.positions.append(PositionChange(self._now_s(), connector, partition, number))


def _offsets(value: bytes) -> dict[int, int]:
    _, partitions = msgspec.msgpack.decode(frames.unseal(b"RGO1", value), type=tuple[bytes, Any])
    return {partition: stored[0] for partition, stored in partitions.items()}
