"""An event loop whose clock moves only when all tasks wait.

A simulated minute takes as long as its computing, and a busy machine changes nothing: a call that
waits for a PUT of 60 ms takes 60 ms, and its computing takes none. How much computing there was,
`time.process_time` knows.
"""

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from service.world.clock import World

T = TypeVar("T")

BEGAN_MS = 1_700_000_000_000


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes when nothing else can happen."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(_Skipping(self))

    def time(self) -> float:
        return self.now_s

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run it here and now: time must not pass meanwhile."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - Raised where the task is awaited.
            future.set_exception(error)
        return future


class _Skipping(selectors.SelectSelector):
    """Instead of waiting for `timeout`, says that it has passed."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits for something that never happens")
        self._loop.now_s += max(0.0, timeout)
        return super().select(0)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def world(seed: int) -> World:
    """Return a world whose clocks are those of the running loop."""
    loop = asyncio.get_running_loop()
    chance = random.Random(seed)
    return World(
        now_ms=lambda: BEGAN_MS + int(loop.time() * 1000),
        monotonic_s=loop.time,
        sleep=asyncio.sleep,
        random=chance.random,
        random_bytes=chance.randbytes,
    )
