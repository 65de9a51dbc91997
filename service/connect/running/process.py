"""A runner as a process: signals, the end of its parent, idleness, exit codes.

Exit codes: 0 stopped on request, or with nothing to do; 1 failed. A stopped runner ends its tasks
and frees their leases, so others continue at once; one that is killed is replaced by lease.
"""

import asyncio
import gc
import os
import signal
import threading
from contextlib import suppress
from typing import Final

from service.connect.running.assembly import opened, runner_of
from service.connect.running.runner import ConnectRunner
from service.process.logs import configure_logging
from service.settings import Settings
from service.world.clock import World
from storage.tasks import begin

STOP_S_MAX: Final = 20.0
"""Maximum time that a runner may take to stop; then the process exits."""

IDLE_S: Final = 30.0
"""A runner beside a gateway ends after this long without any connector."""

_FORCED: Final = 1

GC_THRESHOLDS: Final = (50_000, 20, 50)
"""Thousands of records at once are no garbage: looking for some as often as Python would took a
fifth of the time."""


def run(
    settings: Settings,
    *,
    until_eof: bool = False,
    until_idle: bool = False,
    for_s: float | None = None,
    holder: str = "",
) -> int:
    """Run connectors until signalled to stop; return the exit code.

    With `until_eof` also until stdin ends, since the process that started this one has ended then;
    with `until_idle` until there have been no connectors for `IDLE_S`; or `for_s` seconds.
    `holder` is the name of a runner that is dead for certain, and whose tasks this one takes over.
    """
    configure_logging(settings.log_level, settings.log_format)
    gc.set_threshold(*GC_THRESHOLDS)
    asyncio.run(_run(settings, until_eof, until_idle, for_s, holder))
    return 0


async def _run(
    settings: Settings, until_eof: bool, until_idle: bool, for_s: float | None, holder: str
) -> None:
    async with opened(settings) as parts:
        runner, world = runner_of(parts, holder=holder), parts.gateway.world
        stopped = asyncio.Event()
        _on_signals(stopped, until_eof)
        # What is there now stays, and need not be looked at again.
        gc.freeze()
        until_s = None if for_s is None else world.monotonic_s() + for_s
        running = begin(runner.run(until_s))
        waiting = [running, begin(stopped.wait())]
        if until_idle:
            waiting.append(begin(_idle(runner, world)))
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await runner.aclose()


async def _idle(runner: ConnectRunner, world: World) -> None:
    """Return once there have been no connectors for `IDLE_S`."""
    busy_s = world.monotonic_s()
    while world.monotonic_s() - busy_s < IDLE_S:
        await world.sleep(1.0)
        if runner.connector_count or runner.run_count:
            busy_s = world.monotonic_s()


def _on_signals(stopped: asyncio.Event, until_eof: bool) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopped.set()
        last = threading.Timer(STOP_S_MAX, os._exit, [_FORCED])
        last.daemon = True
        last.start()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
    if until_eof:

        def watch() -> None:
            while os.read(0, 1024):
                pass
            with suppress(RuntimeError):  # The loop is closed: it has ended.
                loop.call_soon_threadsafe(stop)

        threading.Thread(target=watch, name="riacho-eof", daemon=True).start()
