"""An event loop in which time, and who dies or sleeps, is decided by whoever runs it.

`VirtualLoop` never waits: when nothing is ready it moves its clock to the next timer. A `Process`
is everything that was begun in it: its tasks, theirs, and all timers. One that is stopped does
not make another step, at whichever await its tasks may be, until it goes on; one that was killed
never does.

Two runs of the same program do the same: no thread takes part, and sets of tasks and futures,
which asyncio makes many of, are gone through in an order that does not depend on addresses.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from storage.tasks import drop_error

T = TypeVar("T")

_PROCESS: ContextVar["Process | None"] = ContextVar("process", default=None)


class Process:
    """What stops, goes on and dies as one."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop
        self._context = copy_context()
        self._context.run(_PROCESS.set, self)
        self._held: list[asyncio.Handle] = []
        """Steps that were due while it did not run, in their order."""
        self.is_stopped = False
        loop.processes.append(self)

    def begin(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task in the process."""
        return self._loop.create_task(work, context=self._context.copy())

    async def serve(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the process do what a caller, who is not in it, waits for."""
        task = self.begin(work)
        task.add_done_callback(drop_error)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()  # The connection was cut; a process that is stopped learns of it later.
            raise

    def stop(self) -> None:
        self.is_stopped = True

    def resume(self) -> None:
        self.is_stopped = False
        held, self._held = self._held, []
        for handle in held:
            self._loop.run_again(handle)

    def step(self, due: "_Due") -> None:
        if self.is_stopped:
            self._held.append(due.handle)
        else:
            due.callback(*due.args)


class _Due:
    """A step of a process, which may have to wait until that goes on."""

    __slots__ = ("args", "callback", "handle", "process")
    handle: asyncio.Handle

    def __init__(self, process: Process, callback: Callable[..., object], args: Any) -> None:
        self.process = process
        self.callback = callback
        self.args = args

    def __call__(self) -> None:
        self.process.step(self)


class _Counted:
    """Something with a place in sets that is the same in every run."""

    _number: int

    def __hash__(self) -> int:
        return self._number


class _Task(_Counted, asyncio.Task):  # type: ignore[type-arg]
    def __init__(self, number: int, *args: Any, **named: Any) -> None:
        self._number = number
        super().__init__(*args, **named)


class _Future(_Counted, asyncio.Future):  # type: ignore[type-arg]
    def __init__(self, number: int, *args: Any, **named: Any) -> None:
        self._number = number
        super().__init__(*args, **named)


class _NoWaiting(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everybody waits and no timer runs: a deadlock")
        if timeout > 0:
            self.loop.now_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock moves only when it would have to wait."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.processes: list[Process] = []
        self._nobody = Context()
        self._count = 0
        selector = _NoWaiting()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s

    def outside(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task that belongs to no process, and so goes on whoever dies."""
        return self.create_task(work, context=self._nobody.copy())

    def resume_all(self) -> None:
        """Let everything go on that was stopped or killed, so that it can be cancelled."""
        for process in self.processes:
            process.resume()

    def run_again(self, handle: asyncio.Handle) -> None:
        if not handle.cancelled():
            self._ready.append(handle)  # type: ignore[attr-defined]

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        self._count += 1
        return _Task(self._count, coro, loop=self, name=name, context=context)

    def create_future(self) -> Any:
        self._count += 1
        return _Future(self._count, loop=self)

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        if context is None:  # One without variables is false.
            context = copy_context()
        process = context.get(_PROCESS)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        due = _Due(process, callback, args)
        due.handle = super().call_soon(due, context=context)
        return due.handle

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        if context is None:  # One without variables is false.
            context = copy_context()
        process = context.get(_PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        due = _Due(process, callback, args)
        due.handle = super().call_at(when, due, context=context)
        return due.handle

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        # Threads would bring the real world back in.
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001
            future.set_exception(error)
        return future
