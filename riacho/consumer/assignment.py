"""A consumer's state: positions, fetched records that wait, seeks and pauses.

Pure state behind one lock, because a synchronous consumer takes records in its own thread
while fetches arrive in another. Two rules:

- A *position* is the offset of the next record to hand out. It moves only when records are
  handed out, so a lost or unused reply loses no records.
- Every seek begins a new *epoch* of the partition, as does revoking and reassigning it. What was
  fetched for an older epoch is dropped on arrival.
"""

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from riacho.records import Record, TopicPartition

Start: TypeAlias = Literal["earliest", "latest"] | int
"""Where to begin: at one end of the log, or at the first record of a time in ms."""

Begin: TypeAlias = Start | Literal["committed", "none"]
"""Additionally: at the group's committed offset, looked up first; or "none", an error."""


@dataclass(frozen=True, slots=True)
class ReadPlace:
    """A partition, its epoch when it was asked about, and where to read it."""

    partition: TopicPartition
    epoch: int
    start: Begin
    offset: int | None
    """Where to fetch from; None if `start` has to be looked up first."""


@dataclass(slots=True)
class _State:
    start: Begin
    epoch: int
    position: int | None = None
    fetch_offset: int | None = None
    is_paused: bool = False
    waiting: deque[Record] = field(default_factory=deque)

    @property
    def is_ready(self) -> bool:
        return bool(self.waiting) and not self.is_paused

    @property
    def is_unsettled(self) -> bool:
        return self.start == "committed" and self.fetch_offset is None


class Assignment:
    def __init__(self, records_waiting_min: int) -> None:
        """Fetch more for a partition with fewer than `records_waiting_min` waiting records."""
        self._records_waiting_min = records_waiting_min
        self._lock = threading.Lock()
        # In the order in which partitions take turns.
        self._states: dict[TopicPartition, _State] = {}
        self._epochs = 0
        self._is_low = False
        self._is_held = False

    def replace(self, partitions: Iterable[TopicPartition], start: Begin) -> None:
        """Assign exactly `partitions`. Old ones keep their position, new ones begin at `start`."""
        with self._lock:
            old = self._states
            self._states = {p: old.get(p) or self._new_state(start) for p in partitions}

    def add(self, partitions: Iterable[TopicPartition], start: Begin) -> None:
        """Assign `partitions` in addition, beginning at `start`."""
        with self._lock:
            self._states |= {p: self._new_state(start) for p in partitions}

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Unassign `partitions`, and drop what was fetched of them."""
        with self._lock:
            for partition in partitions:
                self._states.pop(partition, None)

    def hold(self, is_held: bool) -> None:
        """Hand out nothing while it is uncertain whether the partitions are still ours."""
        with self._lock:
            self._is_held = is_held

    def partitions(self) -> list[TopicPartition]:
        with self._lock:
            return sorted(self._states)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Hand out `offset` next. Raises `KeyError` for a partition that is not assigned."""
        if offset < 0:
            raise ValueError(f"an offset is not negative: {offset}")
        with self._lock:
            state = self._restart(partition)
            state.position = state.fetch_offset = offset

    def seek_to(self, partition: TopicPartition, start: Begin) -> None:
        """Begin at `start`, which is looked up when it is needed."""
        with self._lock:
            self._restart(partition).start = start

    def restart(self, place: ReadPlace, start: Begin) -> None:
        """Restart `place` at `start`, unless there was a seek in it meanwhile."""
        with self._lock:
            if self._current(place) is not None:
                self._restart(place.partition).start = start

    def pause(self, partition: TopicPartition, is_paused: bool) -> None:
        with self._lock:
            self._state(partition).is_paused = is_paused

    def paused(self) -> list[TopicPartition]:
        with self._lock:
            return sorted(p for p, state in self._states.items() if state.is_paused)

    def position(self, partition: TopicPartition) -> int | None:
        """Return the position, or None until the start has been looked up."""
        with self._lock:
            return self._state(partition).position

    def positions(self) -> dict[TopicPartition, int]:
        """Return all known positions: each after the last record that was handed out."""
        with self._lock:
            return {p: s.position for p, s in self._states.items() if s.position is not None}

    def unsettled(self) -> list[ReadPlace]:
        """Return the partitions whose committed offset has yet to be looked up."""
        with self._lock:
            return [
                ReadPlace(partition, state.epoch, state.start, None)
                for partition, state in self._states.items()
                if state.is_unsettled
            ]

    def place(self, partition: TopicPartition) -> ReadPlace:
        with self._lock:
            state = self._state(partition)
            return ReadPlace(partition, state.epoch, state.start, state.fetch_offset)

    def wanted(self) -> list[ReadPlace]:
        """Return the partitions that should be fetched, in the order of their turns."""
        with self._lock:
            return [
                ReadPlace(partition, state.epoch, state.start, state.fetch_offset)
                for partition, state in self._states.items()
                if not state.is_paused
                and not state.is_unsettled
                and len(state.waiting) < self._records_waiting_min
            ]

    def settle_start(self, place: ReadPlace, offset: int) -> ReadPlace:
        """Note that the start of `place` is `offset`; return the place with it."""
        with self._lock:
            state = self._current(place)
            if state is not None and state.position is None:
                state.position = state.fetch_offset = offset
        return ReadPlace(place.partition, place.epoch, place.start, offset)

    def accept(self, place: ReadPlace, records: Sequence[Record], next_offset: int) -> None:
        """Keep `records`, fetched for `place`, until they are taken."""
        with self._lock:
            state = self._current(place)
            if state is None or state.fetch_offset != place.offset:
                return
            if records:
                state.waiting.extend(records)
                next_offset = max(next_offset, records[-1].offset + 1)
            state.fetch_offset = next_offset
            if not state.waiting:
                state.position = next_offset

    def take(self, records_max: int) -> list[Record]:
        """Hand out up to `records_max` records, and move the positions past them.

        Partitions take turns: one that was served moves to the end of the queue.
        """
        taken: list[Record] = []
        with self._lock:
            while len(taken) < records_max and not self._is_held:
                partition = next((p for p, s in self._states.items() if s.is_ready), None)
                if partition is None:
                    break
                state = self._states[partition] = self._states.pop(partition)
                self._take_from(state, taken, records_max)
        return taken

    def is_low(self) -> bool:
        """Whether a take since the last call left a partition with too few waiting records."""
        is_low, self._is_low = self._is_low, False
        return is_low

    def has_records(self) -> bool:
        with self._lock:
            return not self._is_held and any(s.is_ready for s in self._states.values())

    def _take_from(self, state: _State, taken: list[Record], records_max: int) -> None:
        waiting = state.waiting
        had = len(waiting)
        taken += [waiting.popleft() for _ in range(min(records_max - len(taken), had))]
        # Compaction may have emptied the offsets after the last record.
        state.position = waiting[0].offset if waiting else state.fetch_offset
        # Set once when the level falls below the minimum, and again when nothing is left.
        if len(waiting) < self._records_waiting_min <= had or not waiting:
            self._is_low = True

    def _new_state(self, start: Begin) -> _State:
        self._epochs += 1
        return _State(start, self._epochs)

    def _restart(self, partition: TopicPartition) -> _State:
        old = self._state(partition)
        self._states[partition] = state = self._new_state(old.start)
        state.is_paused = old.is_paused
        return state

    def _state(self, partition: TopicPartition) -> _State:
        try:
            return self._states[partition]
        except KeyError:
            raise KeyError(f"{partition} is not assigned to this consumer") from None

    def _current(self, place: ReadPlace) -> _State | None:
        state = self._states.get(place.partition)
        return state if state is not None and state.epoch == place.epoch else None
