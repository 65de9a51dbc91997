"""An event loop whose owner controls time, and kills and pauses processes.

`VirtualLoop` never waits: when nothing is ready it moves its clock to the next timer. A `Process`
is everything that was started in it: its tasks, their tasks, and all timers. A stopped process
makes no further step, at whichever await its tasks are, until it is resumed; a killed one never
does.

Two runs of the same program are identical: there are no threads, and sets of tasks and futures, of
which asyncio uses many, are iterated in an order that does not depend on addresses.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar

from storage.tasks import drop_error

T = TypeVar("T")

_PROCESS: ContextVar["Process | None"] = ContextVar("process", default=None)

RESOLUTION_S = 1e-9
"""Timers whose times differ by less than this are due together."""

CANCELLED_KEPT = 100
"""Number of timers above which cancelled ones are removed."""


class Process:
    """Tasks and timers that are stopped, resumed and killed together."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop
        self._context = copy_context()
        self._context.run(_PROCESS.set, self)
        self.held: list[Step] = []
        """Steps that became due while it was stopped, in order."""
        self.is_stopped = False
        self.is_dead = False
        loop.processes.append(self)

    def begin(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task in the process."""
        return self._loop.create_task(work, context=self._context.copy())

    async def serve(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work in the process for a caller outside of it, who waits for the result."""
        task = self.begin(work)
        task.add_done_callback(drop_error)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()  # The connection was cut; a stopped process notices that later.
            raise

    def stop(self) -> None:
        self.is_stopped = True

    def kill(self) -> None:
        self.is_stopped = self.is_dead = True

    def stop_for(self, seconds: float) -> None:
        """Stop at once, and resume after `seconds` unless killed before."""
        self.stop()
        self._loop.outside_after(seconds, self.resume)

    def resume(self) -> None:
        if self.is_dead:
            return
        self.is_stopped = False
        held, self.held = self.held, []
        for step in held:
            self._loop.run_again(step)


class Step(float):
    """A scheduled callback, which asyncio calls a handle. As a number it is its time.

    It belongs to the process in whose context it was scheduled, if any.
    """

    __slots__ = ("args", "callback", "context", "loop", "process")
    callback: Callable[..., object] | None
    args: Any
    context: Context
    process: Process | None
    loop: "VirtualLoop | None"
    """The loop whose timers contain it, if any."""

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self.args = ()
            if self.loop is not None:
                self.loop.cancelled_timers += 1

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self


class _Counted:
    """An object with a hash that is the same in every run."""

    __slots__ = ()
    number: int

    def __hash__(self) -> int:
        return self.number


class _Task(_Counted, asyncio.Task):  # type: ignore[type-arg]
    __slots__ = ("number",)


class _Future(_Counted, asyncio.Future):  # type: ignore[type-arg]
    __slots__ = ("number",)


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop whose clock moves only when it would have to wait.

    It runs callbacks in the same order as asyncio's loop, with less work for each step: a
    simulation spends most of its time here.
    """

    _ready: Any
    _scheduled: list[Step]  # type: ignore[assignment]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.processes: list[Process] = []
        self._nobody = Context()
        self._count = 0
        self.cancelled_timers = 0

    def time(self) -> float:
        return self.now_s

    def outside_after(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Step:
        """Schedule a callback that belongs to no process, so no kill can prevent it."""
        return self.call_at(self.now_s + delay_s, callback, *args, context=self._nobody)

    def resume_all(self) -> None:
        """Resume all stopped and killed processes, so that their tasks can be cancelled."""
        for process in self.processes:
            process.is_dead = False
            process.resume()

    def run_again(self, step: Step) -> None:
        if step.callback is not None:
            self._ready.append(step)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        self._count += 1
        task = _Task.__new__(_Task)
        task.number = self._count  # First of all: a task is added to a set when it starts.
        task.__init__(coro, loop=self, name=name, context=context)  # type: ignore[misc]
        return task

    def create_future(self) -> Any:
        self._count += 1
        future = _Future(loop=self)
        future.number = self._count
        return future

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        step = Step()
        step.callback = callback
        step.args = args
        # An empty context is falsy.
        step.context = context = copy_context() if context is None else context
        step.process = context.get(_PROCESS)
        step.loop = None
        self._ready.append(step)
        return step

    call_soon_threadsafe = call_soon  # There are no threads.

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        step = Step(when)
        step.callback = callback
        step.args = args
        step.context = context = copy_context() if context is None else context
        step.process = context.get(_PROCESS)
        step.loop = self
        heappush(self._scheduled, step)
        return step

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        # Threads would make runs differ, so the function runs here.
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001
            future.set_exception(error)
        return future

    def _run_once(self) -> None:
        """Run until the loop is stopped; each round runs the callbacks ready at its beginning."""
        ready = self._ready
        while not self._stopping:
            self._make_ready()
            for _ in range(len(ready)):
                step = ready.popleft()
                if step.callback is None:
                    continue
                process = step.process
                if process is not None and process.is_stopped:
                    process.held.append(step)
                    continue
                try:
                    step.context.run(step.callback, *step.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001
                    self.call_exception_handler({"message": "a callback", "exception": error})

    def _make_ready(self) -> None:
        """Move due timers to the ready queue; if nothing is ready, move the clock to the next.

        Cancelled timers stay in the heap until they are due, unless they are most of many.
        """
        timers, ready = self._scheduled, self._ready
        if not ready:
            while timers and timers[0].callback is None:
                heappop(timers)
                self.cancelled_timers -= 1
            if not timers:
                raise RuntimeError("everybody waits and no timer runs: a deadlock")
            self.now_s = max(self.now_s, float(timers[0]))
            if len(timers) > CANCELLED_KEPT and self.cancelled_timers > len(timers) // 2:
                timers[:] = [step for step in timers if step.callback is not None]
                heapify(timers)
                self.cancelled_timers = 0
        due_s = self.now_s + RESOLUTION_S
        while timers and timers[0] < due_s:
            step = heappop(timers)
            step.loop = None
            if step > self.now_s:
                # Otherwise a task that waits for the rest of a time would never finish.
                self.now_s = float(step)
            if step.callback is None:
                self.cancelled_timers -= 1
            else:
                ready.append(step)
