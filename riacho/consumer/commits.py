"""Offsets of a group: where to begin, what to commit, and when to commit automatically.

A committed offset is that of the *next* record to read. Auto-commit covers what earlier polls
have returned: by polling again, the program says that it is done with those records. So a crash
repeats records and loses none: *at least once*.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from riacho.consumer.assignment import Assignment, Begin
from riacho.consumer.group_calls import (
    Beat,
    GroupClient,
    OffsetAndMetadata,
    Offsets,
    OffsetsGiven,
    offsets_given,
)
from riacho.errors import CommitFailed, new_error
from riacho.http.retries import Backoff, patiently
from riacho.records import TopicPartition
from storage.errors import (
    Corrupt,
    IllegalGeneration,
    InvalidRequest,
    RiachoError,
    UnknownMember,
)

log = logging.getLogger("riacho")

CommitCallback: TypeAlias = Callable[[dict[TopicPartition, int], RiachoError | None], None]

Turn: TypeAlias = tuple[asyncio.Future[None] | None, asyncio.Future[None]]
"""A place in the queue of commits: the future to wait for, and the one the next waits for."""

GENERATIONS_MAX: Final = 5
"""Maximum number of new generations that a commit follows before it gives up."""

OFFSETS_AT_ONCE: Final = 98
"""This many offsets always fit into one commit; usually all do."""


class Standing(Protocol):
    """What a commit has to know about the membership."""

    beat: Beat | None

    @property
    def is_managed(self) -> bool: ...
    async def refresh(self) -> Beat | None: ...
    async def lose(self, error: RiachoError) -> None: ...


class Commits:
    def __init__(
        self,
        client: GroupClient,
        assignment: Assignment,
        *,
        reset: Begin,
        auto_interval_s: float | None,
        timeout_s: float,
        backoff: Backoff,
        wake: Callable[[], None],
    ) -> None:
        self._client = client
        self._assignment = assignment
        self._reset = reset
        self._auto_interval_s = auto_interval_s
        self._auto_due_s = time.monotonic() + (auto_interval_s or 0.0)
        self._timeout_s = timeout_s
        self._backoff = backoff
        self._wake = wake
        self._committed: dict[TopicPartition, int] = {}
        self._last_turn: asyncio.Future[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failure: RiachoError | None = None

    def is_due(self) -> bool:
        """Whether `begin` has something to do. Callable from any thread."""
        if self._failure is not None:
            return True
        return self._auto_interval_s is not None and time.monotonic() >= self._auto_due_s

    def begin(self, standing: Standing) -> None:
        """Start the work that is due: look up start offsets, commit positions of polled records."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self._settling is None and self._assignment.unsettled():
            self._settling = asyncio.create_task(self._settle_starts())
        if self._auto_interval_s is not None and time.monotonic() >= self._auto_due_s:
            self._auto_due_s = time.monotonic() + self._auto_interval_s
            if offsets := self.uncommitted():
                turn = self._line_up()
                self._keep(asyncio.create_task(self.commit_quietly(standing, offsets, turn)))

    # Where to begin

    async def settle_starts(self) -> None:
        """Look up the start of partitions that begin at the group's committed offset."""
        while places := self._assignment.unsettled():
            committed = await self._patiently(self._client.committed)
            for place in places:
                found = committed.get(place.partition)
                if found is None:
                    self._assignment.restart(place, self._reset)
                else:
                    self._committed[place.partition] = found.offset
                    self._assignment.settle_start(place, found.offset)

    async def _settle_starts(self) -> None:
        try:
            await self.settle_starts()
        except RiachoError as error:
            self._failure = error
        except Exception as error:
            log.exception("looking up offsets failed unexpectedly")
            self._failure = new_error(Corrupt, f"the client failed: {error!r}")
        finally:
            self._settling = None
            self._wake()

    async def committed(self) -> dict[TopicPartition, int]:
        found = await self._patiently(self._client.committed)
        return {partition: one.offset for partition, one in found.items()}

    # What to commit

    def given(self, offsets: OffsetsGiven | None) -> Offsets:
        """Return `offsets` as they are committed; None: after all records that were handed out."""
        if offsets is None:
            return {p: OffsetAndMetadata(o) for p, o in self._assignment.positions().items()}
        return offsets_given(offsets)

    def uncommitted(self) -> Offsets:
        """Return the positions that differ from what is committed."""
        return self._uncommitted(self._assignment.positions())

    def note_committed(self, offsets: Offsets) -> None:
        """Note that a transaction has committed `offsets`."""
        self._committed |= {partition: one.offset for partition, one in offsets.items()}

    @property
    def group_id(self) -> str:
        return self._client.settings.group_id

    @property
    def is_automatic(self) -> bool:
        return self._auto_interval_s is not None

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the committed offsets of partitions that were assigned or revoked."""
        for partition in partitions:
            self._committed.pop(partition, None)

    def handed_out(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return what to auto-commit for these partitions; nothing if auto-commit is off."""
        if self._auto_interval_s is None:
            return {}
        wanted = set(partitions)
        positions = self._assignment.positions().items()
        return self._uncommitted({p: offset for p, offset in positions if p in wanted})

    def begin_commit(
        self, standing: Standing, offsets: Offsets, callback: CommitCallback | None
    ) -> None:
        """Commit, and report the outcome to `callback`. On the loop."""
        turn = self._line_up()

        async def run() -> None:
            failed: RiachoError | None = None
            try:
                await self.commit(standing, offsets, turn)
            except RiachoError as error:
                failed = error
                log.warning("commit failed", extra={"code": error.code, "detail": str(error)})
            if callback is None:
                return
            try:
                callback({p: one.offset for p, one in offsets.items()}, failed)
            except Exception:
                log.exception("callback failed")

        self._keep(asyncio.create_task(run()))

    async def commit_quietly(
        self, standing: Standing, offsets: Offsets, turn: Turn | None = None
    ) -> None:
        """Commit; errors are only logged, since the next commit covers it."""
        try:
            await self.commit(standing, offsets, turn)
        except RiachoError as error:
            log.warning("auto commit failed", extra={"code": error.code, "detail": str(error)})

    async def commit(self, standing: Standing, offsets: Offsets, turn: Turn | None = None) -> None:
        """Commit `offsets` when it is our `turn`; None: after all commits that are queued now.

        After a new generation, asks which partitions are still ours, and commits those. Raises
        `CommitFailed` if some were not.
        """
        before, ours = turn or self._line_up()
        try:
            if before is not None:
                await asyncio.wait({before})
            if offsets:
                await self._commit(standing, dict(offsets))
        finally:
            if before is None or before.done():
                ours.set_result(None)
            else:  # Cancelled: the next commit must still wait for the one before us.
                before.add_done_callback(lambda _: ours.set_result(None))

    def _line_up(self) -> Turn:
        """Take a place in the queue, at the moment when the offsets are read.

        Otherwise a commit that starts late would undo a newer one.
        """
        ours = asyncio.get_running_loop().create_future()
        before, self._last_turn = self._last_turn, ours
        return before, ours

    async def finish(self) -> None:
        """Wait for the commits that were started."""
        if self._settling is not None:
            self._settling.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _commit(self, standing: Standing, offsets: dict[TopicPartition, Any]) -> None:
        refused: list[TopicPartition] = []
        for _ in range(GENERATIONS_MAX):
            beat = standing.beat
            if standing.is_managed and beat is None:
                raise new_error(CommitFailed, "this consumer is no member of its group now")
            try:
                await self._send(offsets, beat)
                break
            except UnknownMember as error:
                await standing.lose(error)
                raise new_error(CommitFailed, f"the partitions are others' now: {error}") from error
            except IllegalGeneration:
                refused += await self._withdraw(standing, offsets)
        else:
            raise new_error(CommitFailed, "the group changes all the time; poll, then try again")
        if refused:
            names = ", ".join(map(str, sorted(refused)))
            raise new_error(CommitFailed, f"no longer this consumer's: {names}")

    async def _withdraw(
        self, standing: Standing, offsets: dict[TopicPartition, Any]
    ) -> list[TopicPartition]:
        """Remove from `offsets`, and return, the partitions that are no longer ours to commit."""
        try:
            beat = await self._patiently(standing.refresh)
        except (UnknownMember, IllegalGeneration) as error:
            await standing.lose(error)
            beat = None
        ours = beat.assignment | beat.revoke if beat is not None else frozenset()
        refused = [partition for partition in offsets if partition not in ours]
        for partition in refused:
            del offsets[partition]
        return refused

    async def _send(self, offsets: dict[TopicPartition, Any], beat: Beat | None) -> None:
        rest = list(offsets)
        size = max(len(rest), 1)
        while rest:
            part = {partition: offsets[partition] for partition in rest[:size]}
            try:
                await self._patiently(partial(self._client.commit, part, beat))
            except InvalidRequest:
                if size <= OFFSETS_AT_ONCE:
                    raise
                size = OFFSETS_AT_ONCE  # They may span too many lanes for one transaction.
                continue
            self.note_committed(part)
            rest = rest[size:]

    async def _patiently(self, ask: Callable[[], Any]) -> Any:
        """Retry while that may help. Every call here may be repeated."""
        return await patiently(ask, self._backoff, self._timeout_s)

    def _uncommitted(self, positions: Mapping[TopicPartition, int]) -> Offsets:
        return {
            partition: OffsetAndMetadata(offset)
            for partition, offset in positions.items()
            if self._committed.get(partition) != offset
        }

    def _keep(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
