"""The loop of a source: poll, convert, commit with the positions, release.

While a commit is in the air the next records are polled and converted, so neither waits for the
other. The positions of a commit are those behind its own records, so whatever dies, what was polled
and not committed is polled again, and nothing else. `committed` is called when nothing polled is
open: when the source has nothing more to give, and otherwise every `RELEASE_S`.

A record that the log refuses is found by halving what was to be committed. It is given up as
`errors.tolerance` says: the others are committed in their order, those before it in any case.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeVar

import msgspec

from service.connect.connectors.api import SourceTask
from service.connect.data.errors import RetriableFault, TaskFault
from service.connect.data.log_records import LogRecord
from service.connect.data.records import ConnectRecord, FromSource
from service.connect.tasks.api import RecordsRefused, TaskCommits, TooWide
from service.connect.tasks.errors import StoppedAt
from service.connect.tasks.items import canonical
from service.world.clock import World
from storage.tasks import begin, drop_error

T = TypeVar("T")

POLL_WAIT_S: Final = 0.5
"""Longest wait of a poll for records: so soon a pause is noticed."""

POLL_RECORDS_MAX: Final = 5_000
COMMIT_RECORDS_MAX: Final = 20_000
COMMIT_BYTES_MAX: Final = 8 * 1024 * 1024
"""What is gathered of several polls before it is committed, at most one poll more."""

RELEASE_S: Final = 1.0
RETRY_S_MIN: Final = 0.2
RETRY_S_MAX: Final = 10.0

INTERVAL_S: Final = 60.0
"""Between commits with `transaction.boundary=interval`, unless it says more; as in Kafka."""

LEFT_OUT: Final = "__riacho.errors.left.out"
"""The header of a dead letter that was too large with its value."""

log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommitBoundary:
    """What one commit has, as `transaction.boundary` says."""

    of_each_poll: bool = False
    """One commit for each poll; otherwise of several, if they come while one is in the air."""
    interval_s: float = 0.0
    """How long to gather before a commit, unless that is full."""

    @classmethod
    def of(cls, config: Mapping[str, str]) -> "CommitBoundary":
        said = config.get("transaction.boundary", "").strip().lower()
        if said != "interval":
            return cls(of_each_poll=said == "poll")
        text = config.get("transaction.boundary.interval.ms", "").strip()
        return cls(interval_s=int(text) / 1000 if text else INTERVAL_S)


class ToLog(Protocol):
    """Converts and transforms; `SourcePipeline` does."""

    async def to_log(self, records: Sequence[ConnectRecord]) -> Sequence[LogRecord | None]: ...


class GivenUp(Protocol):
    """What was given up; `ErrorPolicy` knows."""

    tolerates_all: bool
    retry_timeout_s: float
    errors: int
    """Records that were given up since it was set to 0."""

    def drain(self) -> list[LogRecord]: ...

    def refused(self, record: ConnectRecord, error: Exception) -> LogRecord | None: ...


@dataclass(slots=True)
class Gathered:
    """What one commit takes: records as polled, what they became, and dead letters."""

    polled: list[ConnectRecord] = field(default_factory=list)
    made: list[LogRecord | None] = field(default_factory=list)
    dead: list[LogRecord] = field(default_factory=list)
    errors: int = 0
    size_bytes: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.polled or self.dead or self.errors)

    @property
    def is_full(self) -> bool:
        return len(self.polled) >= COMMIT_RECORDS_MAX or self.size_bytes >= COMMIT_BYTES_MAX

    def add(self, polled: Sequence[ConnectRecord], made: Sequence[LogRecord | None]) -> None:
        self.polled += polled
        self.made += made
        self.size_bytes += sum(map(_size, made))

    def halves(self) -> "tuple[Gathered, Gathered]":
        """Return both halves in order; dead letters go with the last."""
        middle = len(self.polled) // 2
        return (
            Gathered(self.polled[:middle], self.made[:middle]),
            Gathered(self.polled[middle:], self.made[middle:], self.dead, self.errors),
        )

    def positions(self) -> dict[bytes, bytes | None]:
        """Return the last position of each partition of the source."""
        found: dict[bytes, bytes | None] = {}
        last: FromSource | None = None
        for record in reversed(self.polled):
            origin = record.origin
            if not isinstance(origin, FromSource):
                raise TaskFault("the connector has given a record without its position")
            if last is not None and origin.partition is last.partition:
                continue
            last = origin
            partition = canonical(origin.partition)
            if partition not in found:
                found[partition] = canonical(origin.offset)
        return found


class SourceLoop:
    def __init__(
        self,
        task: SourceTask,
        pipeline: ToLog,
        given_up: GivenUp,
        commits: TaskCommits,
        world: World,
        boundary: CommitBoundary = CommitBoundary(),
    ) -> None:
        self._task = task
        self._boundary = boundary
        self._pipeline = pipeline
        self._given_up = given_up
        self._commits = commits
        self._world = world
        self._flight: asyncio.Task[None] | None = None
        self._is_unreleased = False
        self._released_s = world.monotonic_s()
        self._until_s = float("inf")
        self.is_stopping = False
        """Set it, and `run` returns once what is in the air has landed."""

    async def run(self, until_s: float | None = None) -> None:
        """Run until told to stop, or until a moment of the monotonic clock.

        Raises what commits raise, and `TaskFault`.
        """
        self._until_s = float("inf") if until_s is None else until_s
        try:
            try:
                while not self._is_over(until_s):
                    await self._once()
            except RetriableFault:
                if not self.is_stopping:
                    raise
            await self._release()
        finally:
            await self._abandon()

    def _is_over(self, until_s: float | None) -> bool:
        is_late = until_s is not None and self._world.monotonic_s() >= until_s
        return self.is_stopping or is_late

    async def _once(self) -> None:
        gathered = await self._gather()
        await self._land()
        if not gathered.is_empty:
            self._is_unreleased = True
            self._flight = begin(self._commit(gathered))
        is_due = self._world.monotonic_s() - self._released_s >= RELEASE_S
        if gathered.is_empty or is_due:
            await self._release()

    async def _gather(self) -> Gathered:
        """Poll, and go on while a commit is in the air and the source has more."""
        gathered = Gathered()
        is_in_air = self._flight is not None
        due_s = self._world.monotonic_s() + self._boundary.interval_s
        while True:
            wait_s = 0.0 if is_in_air and not self._boundary.interval_s else POLL_WAIT_S
            poll = partial(self._task.poll, wait_s, POLL_RECORDS_MAX)
            try:
                polled = await self._patiently(poll, self._given_up.retry_timeout_s)
            except RetriableFault:
                if gathered.is_empty:
                    raise
                return gathered  # It ends, and commits what it has.
            if polled:
                await self._convert(polled, gathered)
            gathered.dead += self._given_up.drain()
            gathered.errors += self._given_up.errors
            self._given_up.errors = 0
            if gathered.is_full or self.is_stopping or await self._is_whole(bool(polled), due_s):
                return gathered

    async def _is_whole(self, has_more: bool, due_s: float) -> bool:
        """Whether a commit has what it is to have, as the boundary of transactions says."""
        flight = self._flight
        if self._boundary.of_each_poll:
            return True
        if not self._boundary.interval_s:
            return not has_more or flight is None or flight.done()
        if flight is not None and flight.done():
            await self._land()
        return self._world.monotonic_s() >= min(due_s, self._until_s)

    async def _convert(self, polled: Sequence[ConnectRecord], gathered: Gathered) -> None:
        """Add records to `gathered`. If the task stops at one of them, first commit all before."""
        try:
            made = await self._patiently(partial(self._pipeline.to_log, polled))
        except StoppedAt as stopped:
            before = polled[: len(stopped.before)]
            if before:
                gathered.add(before, await self._pipeline.to_log(before))
            await self._land()
            if not gathered.is_empty:
                await self._commit(gathered)
            raise
        gathered.add(polled, made)

    async def _patiently(self, call: Callable[[], Awaitable[T]], timeout_s: float = 0.0) -> T:
        """Repeat a call with back-off while it raises `RetriableFault`, or until told to stop.

        After `timeout_s`, unless that is 0, it is given up: the task fails, or tries on if all
        errors are tolerated. Meanwhile its status shows why it waits.
        """
        pause_s, began_s = RETRY_S_MIN, self._world.monotonic_s()
        while True:
            try:
                found = await call()
            except RetriableFault as error:
                if self.is_stopping:
                    raise
                self._commits.waiting = str(error)
                if 0 < timeout_s <= self._world.monotonic_s() - began_s:
                    self._give_up(error, timeout_s)
                    began_s = self._world.monotonic_s()
            else:
                self._commits.waiting = ""
                return found
            # What is in the air may have ended the run.
            if self._flight is not None and self._flight.done():
                await self._land()
            await self._world.sleep(pause_s * (0.5 + self._world.random() / 2))
            pause_s = min(RETRY_S_MAX, pause_s * 2)

    def _give_up(self, error: RetriableFault, timeout_s: float) -> None:
        text = f"{error} (for errors.retry.timeout, {timeout_s:g} s)"
        if not self._given_up.tolerates_all:
            raise TaskFault(text) from error
        # There is no record to be dropped.
        log.warning("a source cannot be read, and is tried on: %s", text)

    async def _commit(self, gathered: Gathered) -> None:
        try:
            await self._patiently(partial(self._commit_once, gathered))
        except (TooWide, RecordsRefused) as error:
            if len(gathered.polled) < 2:
                if not isinstance(error, RecordsRefused):
                    raise
                for part in self._without_refused(gathered, error):
                    await self._commit(part)
                return
            first, second = gathered.halves()
            await self._commit(first)
            await self._commit(second)

    def _without_refused(self, gathered: Gathered, error: RecordsRefused) -> list[Gathered]:
        """Return what is left to commit of one record and of dead letters. Raises `StoppedAt`.

        Of one that died between two of these, dead letters may be there twice, and none is lost.
        """
        polled, made, dead = gathered.polled, gathered.made, gathered.dead
        if any(made) and dead:
            return [Gathered(dead=dead, errors=gathered.errors), Gathered(polled, made)]
        if any(made):
            letter = self._given_up.refused(polled[0], error)
            return [Gathered(polled, [None], [] if letter is None else [letter], errors=1)]
        if len(dead) > 1:
            middle = len(dead) // 2
            return [
                Gathered(dead=dead[:middle]),
                Gathered(polled, made, dead[middle:], gathered.errors),
            ]
        # The topic of dead letters refuses one: perhaps it is too large, as its record was.
        cut = [_cut(letter) for letter in dead if not _is_cut(letter)]
        if not cut:
            log.error("a dead letter is lost: %s", error)
        return [Gathered(polled, made, cut, gathered.errors)]

    async def _commit_once(self, gathered: Gathered) -> None:
        records = [record for record in gathered.made if record is not None]
        await self._commits.commit(
            records=[*records, *gathered.dead],
            positions=gathered.positions(),
            read=len(records),
            errors=gathered.errors,
        )

    async def _land(self) -> None:
        """Wait for the commit that is in the air."""
        flight, self._flight = self._flight, None
        if flight is not None:
            await flight

    async def _release(self) -> None:
        await self._land()
        self._released_s = self._world.monotonic_s()
        if self._is_unreleased:
            self._is_unreleased = False
            await self._task.committed()

    async def _abandon(self) -> None:
        """Do not leave a commit behind. It may happen, or not: the next run reads which."""
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.cancel()
            await asyncio.wait([flight])
            if not flight.cancelled():
                drop_error(flight)


def _cut(letter: LogRecord) -> LogRecord:
    """Return a dead letter without its value, which its headers say."""
    headers = ((LEFT_OUT, b"value"), *letter.headers)
    return msgspec.structs.replace(letter, value=None, headers=headers)


def _is_cut(letter: LogRecord) -> bool:
    return letter.headers[:1] == ((LEFT_OUT, b"value"),)


def _size(record: LogRecord | None) -> int:
    if record is None:
        return 0
    return len(record.key or b"") + len(record.value or b"")
