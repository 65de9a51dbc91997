"""Runners: many tasks at once, in threads of this process or in Spark's workers.

A task is an async function of the stores and of some bytes, which returns bytes. Both runners
call the same functions, so what is written for one works with the other:

    run       payloads ──▶ task ──▶ results, in any order
    shuffle   payloads ──▶ first ──▶ rows by group ──▶ then ──▶ rows by group ──▶ last ──▶ results

Every worker (a thread here, a process in Spark) opens the stores once and keeps them.

- Functions are pickled: they must be importable by name, or a `functools.partial` of one that is.
- A task may run twice, if a machine is lost. It may be cancelled at any await.
- The first error ends the run: a `RiachoError` is raised unchanged, any other error as
  `TaskFailed`. Running tasks are cancelled, and waiting tasks never begin.
- Closing the iterator of results also cancels the tasks.
"""

import asyncio
from collections import defaultdict
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from concurrent.futures import Future
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from service.jobs.stores import Open, Stores
from storage.errors import RiachoError

T = TypeVar("T")

Task: TypeAlias = Callable[[Stores, bytes], Awaitable[bytes]]

GROUP: Final = "group"
"""The column, int64 and never null, by which rows are grouped."""

CLOSE_S_MAX: Final = 60.0
"""Maximum time for a worker to end its cancelled tasks and to close its stores."""


class TaskFailed(RiachoError):
    """A task ended with an unexpected error."""

    code = "TASK_FAILED"


class Cancelled(TaskFailed):
    """The run was stopped by `cancel`."""

    code = "TASK_CANCELLED"


@dataclass(frozen=True, slots=True)
class Spread:
    """The first phase of a shuffle: from a payload to rows."""

    function: Callable[[Stores, bytes], AsyncIterator[pa.RecordBatch]]
    schema: pa.Schema
    """Schema of the batches that it yields; with a column `group`."""


@dataclass(frozen=True, slots=True)
class Regroup:
    """A middle phase of a shuffle: from all rows of one group to rows of other groups.

    The rows are one table, with the columns of the previous phase, sorted by `sort_by`.
    """

    function: Callable[[Stores, int, pa.Table], AsyncIterator[pa.RecordBatch]]
    schema: pa.Schema
    sort_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gather:
    """The last phase of a shuffle: from all rows of one group to one result."""

    function: Callable[[Stores, int, pa.Table], Awaitable[bytes]]
    sort_by: tuple[str, ...] = ()


class Runner(Protocol):
    @property
    def parallelism(self) -> int:
        """Number of concurrent tasks, for planning."""

    def run(self, function: Task, payloads: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the result of every payload as soon as it is there, in any order."""

    def indexed(self, function: Task, payloads: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield what `run` does, each result with the position of its payload."""

    def shuffle(
        self, first: Spread, payloads: Sequence[bytes], *then: Regroup, last: Gather
    ) -> Iterator[tuple[int, bytes]]:
        """Yield every group of the last phase and its result, in any order.

        A group without rows has no result.
        """

    def cancel(self) -> None:
        """Stop all runs, from any thread; readers of their results get `Cancelled`."""

    def close(self) -> None:
        """Close the stores. No run may be active, and no method may be called afterwards."""


class Worker:
    """A thread with an event loop, and stores that are opened by the first task."""

    def __init__(self, open_stores: Open, name: str = "riacho-job") -> None:
        self._open = open_stores
        self._stack = AsyncExitStack()
        self._stores: Stores | None = None
        self._opening = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Stores], Awaitable[T]]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(self._do(work), self._loop)

    async def _do(self, work: Callable[[Stores], Awaitable[T]]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        async with self._opening:
            if self._stores is None:
                self._stores = await self._stack.enter_async_context(self._open())
        return await work(self._stores)

    def iterate(self, work: Callable[[Stores], AsyncIterator[T]]) -> Generator[T, None, None]:
        """Yield what `work` yields, one at a time, as the caller asks for it."""
        found: AsyncIterator[T] | None = None
        try:
            while True:
                if found is None:
                    found = self.submit(partial(_begun, work)).result()
                try:
                    yield self.submit(partial(_next, found)).result()
                except StopAsyncIteration:
                    return
        finally:
            if found is not None and hasattr(found, "aclose"):
                self.submit(partial(_closed, found)).result()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(CLOSE_S_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()


async def _begun(work: Callable[[Stores], T], stores: Stores) -> T:
    return work(stores)


async def _next(found: AsyncIterator[T], _: Stores) -> T:
    return await anext(found)


async def _closed(found: Any, _: Stores) -> None:
    await found.aclose()


class ThreadRunner:
    """A `Runner` in this process. The slow parts, Arrow and the stores, run in parallel."""

    def __init__(self, open_stores: Open, parallelism: int) -> None:
        self.parallelism = parallelism
        self._open = open_stores
        self._workers: list[Worker] = []
        self._going: list[SimpleQueue[Any]] = []

    def run(self, function: Task, payloads: Sequence[bytes]) -> Iterator[bytes]:
        return (result for _, result in self.indexed(function, payloads))

    def indexed(self, function: Task, payloads: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        return self._each(partial(_call, function, payload) for payload in payloads)

    def shuffle(
        self, first: Spread, payloads: Sequence[bytes], *then: Regroup, last: Gather
    ) -> Iterator[tuple[int, bytes]]:
        """Yield as `Runner.shuffle` does. All rows of a phase are in memory at once."""
        groups = _grouped(
            batches
            for _, batches in self._each(partial(_spread, first, payload) for payload in payloads)
        )
        for phase in then:
            groups = _grouped(
                batches
                for _, batches in self._each(
                    partial(_regroup, phase, group, groups) for group in list(groups)
                )
            )
        numbers = list(groups)
        for index, result in self._each(partial(_gather, last, group, groups) for group in numbers):
            yield numbers[index], result

    def cancel(self) -> None:
        for done in self._going:
            done.put(None)

    def close(self) -> None:
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _each(
        self, works: Iterable[Callable[[Stores], Awaitable[T]]]
    ) -> Generator[tuple[int, T], None, None]:
        waiting = enumerate(works)
        done: SimpleQueue[tuple[Worker, int, Future[T]] | None] = SimpleQueue()
        running: dict[int, Future[T]] = {}

        def give(worker: Worker) -> None:
            following = next(waiting, None)
            if following is not None:
                index, work = following
                running[index] = worker.submit(work)
                running[index].add_done_callback(lambda future: done.put((worker, index, future)))

        self._going.append(done)
        try:
            for number in range(self.parallelism):
                give(self._worker(number))
            while running:
                finished = done.get()
                if finished is None:
                    raise Cancelled("it was stopped")
                worker, index, future = finished
                del running[index]
                result = _result(future)
                give(worker)
                yield index, result
        finally:
            self._going.remove(done)
            for future in running.values():
                future.cancel()

    def _worker(self, number: int) -> Worker:
        while len(self._workers) <= number:
            self._workers.append(Worker(self._open))
        return self._workers[number]


def _result(future: "Future[T]") -> T:
    try:
        return future.result()
    except RiachoError:
        raise
    except Exception as error:
        raise failed(error) from error


def failed(error: BaseException) -> TaskFailed:
    """Return the error to raise in the reader for an unexpected error of a task."""
    return TaskFailed(f"a task failed: {type(error).__name__}: {error}")


async def _call(function: Task, payload: bytes, stores: Stores) -> bytes:
    return await function(stores, payload)


async def _spread(phase: Spread, payload: bytes, stores: Stores) -> list[pa.RecordBatch]:
    return await _listed(phase.function(stores, payload))


Groups: TypeAlias = dict[int, list[pa.RecordBatch]]


async def _regroup(
    phase: Regroup, group: int, groups: Groups, stores: Stores
) -> list[pa.RecordBatch]:
    table = joined(groups.pop(group), phase.sort_by)
    return await _listed(phase.function(stores, group, table))


async def _gather(phase: Gather, group: int, groups: Groups, stores: Stores) -> bytes:
    return await phase.function(stores, group, joined(groups.pop(group), phase.sort_by))


async def _listed(batches: AsyncIterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return [batch async for batch in batches]


def _grouped(found: Iterable[list[pa.RecordBatch]]) -> Groups:
    groups: Groups = defaultdict(list)
    for batches in found:
        for batch in batches:
            for group, rows in split(batch):
                groups[group].append(rows)
    return groups


def split(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield every group in `batch` and its rows; a group may come in several pieces."""
    runs = pc.run_end_encode(batch.column(GROUP))
    if len(runs.values.unique()) < len(runs.values):
        batch = batch.sort_by(GROUP)
        runs = pc.run_end_encode(batch.column(GROUP))
    start = 0
    for group, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield group, batch.slice(start, end - start)
        start = end


def joined(batches: Sequence[pa.RecordBatch], sort_by: Sequence[str]) -> pa.Table:
    """Return the rows of one group as a table for the next phase."""
    table = pa.Table.from_batches(batches)
    return table.sort_by([(name, "ascending") for name in sort_by]) if sort_by else table


async def results(
    runner: Runner, function: Task, payloads: Sequence[bytes]
) -> AsyncGenerator[tuple[int, bytes], None]:
    """Yield what `runner.indexed` does, for a caller whose event loop has other work as well."""
    async with aclosing(beside(runner, runner.indexed(function, payloads))) as found:
        async for each in found:
            yield each


async def beside(runner: Runner, found: Iterator[T]) -> AsyncGenerator[T, None]:
    """Yield the items of `found`, a blocking iterator of `runner`, which a thread reads.

    If the caller stops early, the run is cancelled.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[list[T]] = asyncio.Queue()

    def read() -> None:
        for each in found:
            loop.call_soon_threadsafe(queue.put_nowait, [each])

    reading = asyncio.create_task(asyncio.to_thread(read))
    reading.add_done_callback(lambda _: queue.put_nowait([]))
    try:
        while items := await queue.get():
            yield items[0]
        await reading
    finally:
        if not reading.done():
            runner.cancel()
        with suppress(Cancelled):
            await reading
