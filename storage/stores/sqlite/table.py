"""The metadata table in one SQLite file: durable, and shared by the processes of one machine.

Writes go through one thread. It commits all waiting writes as one transaction, each `transact` in
a savepoint of its own, so that all waiting callers share a disk flush:

    transact --.
    transact --+-- BEGIN, savepoint each, COMMIT -- one flush -- every transact returns
    transact --'

- `synchronous=FULL`: acknowledged writes survive a power cut. A write that can wait
  (`Put.can_wait`) causes no flush: after a power cut the log is intact up to some write, so a
  later write never survives without it, and the flush of the later one covers both.
- A failed flush is repaired before the next commit: see write_ahead_log.py.
- Other processes may use the same file. The second writer waits for up to `busy_s`.
- A caller that stops waiting does not cancel its write, and does not affect other writes.

Reads run on the caller's thread: a point read takes about 15 µs, passing it to another thread
and back takes longer, and in WAL mode readers never wait for a writer.
"""

import asyncio
import math
import random
import sqlite3
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Final, TypeAlias

from storage.errors import (
    DiskFailing,
    MetadataConflict,
    MetadataDamaged,
    StoreLocked,
    StoreUnavailable,
)
from storage.stores.metadata import Delete, Op, Put, Scanned, Versioned, check_ops
from storage.stores.pace import Pace
from storage.stores.sqlite import write_ahead_log as sqlite_log
from storage.stores.sqlite.failures import (
    commit_failure,
    failure,
    is_malformed,
    locked,
    primary_code,
    reporting,
)
from storage.stores.sqlite.rows import apply, connect, every_row, listed, select
from storage.stores.trouble import Trouble

GROUP_MAX: Final = 512
"""Maximum number of transactions in a commit. More would make the first wait for the last."""

QUEUED_MAX: Final = 10_000
"""Maximum number of transactions that wait for the writer; more are refused: retry later."""

_READ_BUSY_S: Final = 1.0  # Only while another process repairs the file after a crash.
_BUSY_DELAY_MIN_S: Final = 0.0002
_BUSY_DELAY_MAX_S: Final = 0.02

LOCKED_S_MIN: Final = 0.25
"""Minimum wait of a transaction for the lock, however long others have waited before it."""

_LOCK_COUNT_RESET_S: Final = 1.0
"""After this time without an attempt, another process may hold the lock: restart the count."""

Outcome: TypeAlias = Mapping[str, str] | Exception


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A transaction in the queue, and the future of its caller."""

    ops: Sequence[Op]
    version: str
    future: asyncio.Future[Mapping[str, str]]

    @property
    def needs_flush(self) -> bool:
        return not all(isinstance(op, Put | Delete) and op.can_wait for op in self.ops)

    @property
    def is_hurried(self) -> bool:
        """Whether a caller needs it at once. Removals that can wait are batched by the thread."""
        return not all(isinstance(op, Delete) and op.can_wait for op in self.ops)

    def settle(self, outcome: Outcome) -> None:
        if self.future.done():  # Its caller stopped waiting.
            return
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class SqliteMetadata:
    """A `MetadataStore` in a SQLite file."""

    def __init__(self, path: Path, new_version: Callable[[], str], *, busy_s: float = 10.0) -> None:
        """Open `path`, or create it. Raises `StoreUnavailable` if that is impossible.

        Raises `MetadataDamaged` if the file is not a database.
        """
        self._path = path
        self._new_version = new_version
        self.trouble = Trouble(f"metadata table {path}")
        with reporting(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = _Writer(path, connect(path, busy_s), busy_s, self.trouble)
            self._reading = connect(path, _READ_BUSY_S)
        self._writer.start()

    async def get(self, key: str) -> Versioned | None:
        with reporting(self._path):
            return select(self._reading, key)

    async def get_many(self, keys: Sequence[str]) -> dict[str, Versioned]:
        with reporting(self._path):
            found = ((key, select(self._reading, key)) for key in keys)
            return {key: item for key, item in found if item is not None}

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int = 1000
    ) -> list[tuple[str, Versioned]]:
        with reporting(self._path):
            return listed(self._reading, prefix, after, limit)

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        check_ops(ops)
        waiting = _Waiting(ops, self._new_version(), asyncio.get_running_loop().create_future())
        outcome = self._writer.commit_here(waiting) if waiting.is_hurried else None
        if outcome is None:
            self._writer.enqueue(waiting)
            return await waiting.future
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def every_item(self) -> AsyncIterator[Sequence[Scanned]]:
        with reporting(self._path), closing(every_row(self._path, _READ_BUSY_S)) as rows:
            for some in rows:
                yield some
                await asyncio.sleep(0)

    async def close(self) -> None:
        """Commit waiting transactions, then release the file."""
        await self._writer.close()
        self._reading.close()


class _Writer(Thread):
    """The one thread that writes."""

    def __init__(self, path: Path, db: sqlite3.Connection, busy_s: float, trouble: Trouble) -> None:
        # A daemon, so that a store that was not closed cannot keep a process from ending. That
        # loses nothing: uncommitted writes were not acknowledged.
        super().__init__(name="sqlite-writer", daemon=True)
        self._path = path
        self._db = db
        db.execute("PRAGMA busy_timeout = 0")
        self._busy_s = busy_s
        self._trouble = trouble
        self._locked_s = self._refused_s = -math.inf
        """Since when another process has held the lock, and when that was last seen."""
        self._queue: SimpleQueue[_Waiting | asyncio.Future[None]] = SimpleQueue()
        self._closed: asyncio.Future[None] | None = None
        self._pace = Pace()
        self._flushes = True
        self._is_doubtful = False  # Whether a flush failed: the disk may lack parts of the log.
        self._lock = Lock()
        """Held by the thread that uses the connection."""

    def commit_here(self, waiting: _Waiting) -> Outcome | None:
        """Commit on the caller's thread, if that is fast and the queue is empty; else None."""
        if not self._pace.is_quick or self._closed is not None or self._queue.qsize():
            return None
        if self._is_doubtful or not self._lock.acquire(blocking=False):
            return None
        try:
            try:
                self._choose_flush([waiting])
                self._db.execute("BEGIN IMMEDIATE")
            except sqlite3.Error:
                return None  # Another process writes; the thread waits for it.
            with self._pace.measured():
                [outcome] = self._commit([waiting])
            return outcome
        finally:
            self._lock.release()

    def enqueue(self, waiting: _Waiting) -> None:
        if self._closed is not None:
            raise StoreUnavailable(f"{self._path} is closed")
        if self._queue.qsize() >= QUEUED_MAX:
            raise StoreUnavailable(f"{QUEUED_MAX} transactions wait for {self._path}; try later")
        self._queue.put(waiting)

    async def close(self) -> None:
        if self._closed is None:
            self._closed = asyncio.get_running_loop().create_future()
            self._queue.put(self._closed)
        await asyncio.shield(self._closed)
        self.join()  # Returns at once: setting the future was the thread's last step.

    def run(self) -> None:
        closed: asyncio.Future[None] | None = None
        while closed is None:
            group, closed = self._take_group()
            if group:
                with self._lock:
                    outcomes = self._begin_and_commit(group)
                _settle(group, outcomes)
        self._db.close()
        with suppress(RuntimeError):  # The caller's loop is closed.
            closed.get_loop().call_soon_threadsafe(closed.set_result, None)

    def _take_group(self) -> tuple[list[_Waiting], asyncio.Future[None] | None]:
        """Wait for one transaction, then take those queued after it."""
        group: list[_Waiting] = []
        with suppress(Empty):
            while len(group) < GROUP_MAX:
                arrived = self._queue.get(block=not group)
                if not isinstance(arrived, _Waiting):
                    return group, arrived
                group.append(arrived)
        return group, None

    def _begin_and_commit(self, group: Sequence[_Waiting]) -> list[Outcome]:
        try:
            self._choose_flush(group)
            self._begin()
            if self._is_doubtful:
                sqlite_log.write_again(self._path)
                self._is_doubtful = False
        except (sqlite3.Error, StoreUnavailable) as error:
            self._roll_back(error)
            return [self._failed(error) for _ in group]
        with self._pace.measured():
            return self._commit(group)

    def _commit(self, group: Sequence[_Waiting]) -> list[Outcome]:
        """Apply the transactions of `group`, except those that are refused, and commit them."""
        try:
            if len(group) == 1:
                outcomes = [self._alone(group[0])]
            else:
                outcomes = [self._attempt(waiting) for waiting in group]
        except Exception as error:  # noqa: BLE001
            self._roll_back(error)
            return [self._failed(error) for _ in group]
        try:
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back(error)
            self._failed(error)
            # Conflicts are void, too: a write of this group may have caused them.
            return [commit_failure(self._path, error) for _ in group]
        if self._trouble.reason:
            self._trouble.worked()
        return outcomes

    def _failed(self, error: Exception) -> Exception:
        """Return what to raise to the caller whose transaction failed with `error`."""
        raised = error
        if isinstance(error, (sqlite3.Error, OSError)):
            raised = failure(self._path, error)
        if isinstance(raised, DiskFailing | StoreLocked) or is_malformed(error):
            self._trouble.failed(str(raised))
        return raised

    def _choose_flush(self, group: Sequence[_Waiting]) -> None:
        """Set whether the next commit waits for the disk. Only between transactions."""
        flushes = any(waiting.needs_flush for waiting in group)
        if flushes != self._flushes:
            sqlite_log.choose_flush(self._db, flushes)
            self._flushes = flushes

    def _begin(self) -> None:
        # SQLite's own wait is disabled: it sleeps up to 100 ms at a time, while the commit it
        # waits for takes half a millisecond.
        began_s, delay_s = time.monotonic(), _BUSY_DELAY_MIN_S
        while True:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                self._refused_s = -math.inf
                return
            except sqlite3.OperationalError as error:
                if primary_code(error) != sqlite3.SQLITE_BUSY:
                    raise
            self._check_lock(began_s)
            time.sleep(delay_s * random.uniform(0.5, 1.5))  # noqa: S311 - Only spreads retries.
            delay_s = min(2 * delay_s, _BUSY_DELAY_MAX_S)

    def _check_lock(self, began_s: float) -> None:
        """Raise `StoreLocked` if another process has held the lock for too long.

        The time is counted from the first transaction that was refused: later ones, here and in
        the queues of lanes, have waited as well.
        """
        now_s = time.monotonic()
        if now_s - self._refused_s > _LOCK_COUNT_RESET_S:
            self._locked_s = now_s
        self._refused_s = now_s
        least_s = min(LOCKED_S_MIN, self._busy_s)
        if now_s >= max(self._locked_s + self._busy_s, began_s + least_s):
            raise locked(self._path, now_s - self._locked_s)

    def _alone(self, waiting: _Waiting) -> Outcome:
        """Apply the only transaction of a group, which needs no savepoint.

        A refusal is found before anything is written.
        """
        try:
            return apply(self._db, waiting.ops, waiting.version)
        except (MetadataConflict, MetadataDamaged) as refusal:
            return refusal

    def _attempt(self, waiting: _Waiting) -> Outcome:
        """Apply one transaction of the group completely, or not at all.

        Raises `sqlite3.Error` if SQLite rolled back the whole group, as it does when the disk is
        full; any other failure is the outcome of this transaction alone.
        """
        self._db.execute("SAVEPOINT one")
        try:
            outcome: Outcome = apply(self._db, waiting.ops, waiting.version)
        except Exception as error:
            if not self._db.in_transaction:
                raise
            self._db.execute("ROLLBACK TO one")
            outcome = self._failed(error)
        self._db.execute("RELEASE one")
        return outcome

    def _roll_back(self, error: Exception) -> None:
        self._is_doubtful |= sqlite_log.is_doubtful_after(error)
        with suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")


def _settle(group: Sequence[_Waiting], outcomes: Sequence[Outcome]) -> None:
    """Wake every caller, with one call into each loop."""
    by_loop = defaultdict(list)
    for waiting, outcome in zip(group, outcomes, strict=True):
        by_loop[waiting.future.get_loop()].append((waiting, outcome))

    for loop, settled in by_loop.items():
        with suppress(RuntimeError):  # The callers' loop is closed.
            loop.call_soon_threadsafe(_settle_all, settled)


def _settle_all(settled: Sequence[tuple[_Waiting, Outcome]]) -> None:
    for waiting, outcome in settled:
        waiting.settle(outcome)
