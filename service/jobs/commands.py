"""Running a job as a process: signals, output, exit codes.

Exit codes: 0 done, 1 something failed, 143 stopped by a signal or by the end of stdin. A stopped
job releases its lease, ends its workers and leaves at most unreferenced objects.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from service.jobs import compact as compaction
from service.jobs import maintain as maintenance
from service.jobs import retention as retaining
from service.jobs.fsck import DeploymentCheck, checked
from service.jobs.runners.choice import How
from service.jobs.sweep import sweep as sweeping
from service.jobs.work import JobOutcome, begun
from service.settings import Settings
from storage.maintenance.fsck import LaneReport

STOPPED: Final = 143
STOP_S_MAX: Final = 30.0
"""Maximum time a job may take to stop; then the process exits."""

Job = Callable[[], Coroutine[Any, Any, JobOutcome]]


async def compact(
    settings: Settings, how: How, topics: list[str], *, force: bool, dry_run: bool
) -> JobOutcome:
    async with begun(settings, "compact", how, changes=not dry_run) as work:
        return await compaction.compact(work, topics, force=force, dry_run=dry_run)


async def retention(
    settings: Settings, how: How, topics: list[str], *, dry_run: bool
) -> JobOutcome:
    async with begun(settings, "retention", how, changes=not dry_run) as work:
        return await retaining.retention(work, topics)


async def sweep(
    settings: Settings,
    how: How,
    *,
    min_age_ms: int,
    limit: int | None,
    unsafe: bool,
    dry_run: bool,
) -> JobOutcome:
    async with begun(settings, "sweep", how, changes=not dry_run) as work:
        return await sweeping.sweep(
            work, min_age_ms=min_age_ms, limit=limit, is_unsafe=unsafe, spark=how.spark
        )


async def maintain(settings: Settings, how: How) -> JobOutcome:
    async with begun(settings, "maintain", how) as work:
        return await maintenance.maintain(work, spark=how.spark)


async def fsck(settings: Settings, how: How, topics: list[str], *, sizes_only: bool) -> JobOutcome:
    async with begun(settings, "fsck", how, changes=False) as work:
        check = DeploymentCheck(work.stores.zones, work.stores.metadata, await work.topics(topics))
        runner = await work.runners.for_bytes(0)
        work.meter.planned(check.lane_count)
        total = LaneReport()
        async for lane in check.run_on(runner, sizes_only=sizes_only):
            total.add(lane.report)
            work.meter.done(1, f"{total.entries} entries checked")
        return checked(check.lane_count, total)


def run(job: Job, *, as_json: bool, until_eof: bool = False) -> int:
    """Run the job, print its outcome, and return the exit code.

    With `until_eof` it also stops when stdin ends: the process that started it has ended.
    """
    outcome = asyncio.run(_stoppable(job, until_eof))
    if outcome is None:
        return STOPPED
    text = json.dumps(outcome.document, indent=2) if as_json else "\n".join(outcome.lines)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
    return 0 if outcome.ok else 1


async def _stoppable(job: Job, until_eof: bool) -> JobOutcome | None:
    loop = asyncio.get_running_loop()
    task = loop.create_task(job())

    def stop() -> None:
        task.cancel()
        last = threading.Timer(STOP_S_MAX, os._exit, [STOPPED])
        last.daemon = True
        last.start()

    if threading.current_thread() is threading.main_thread():
        loop.add_signal_handler(signal.SIGTERM, stop)
    if until_eof:
        _at_eof(lambda: loop.call_soon_threadsafe(stop))
    try:
        return await task
    except asyncio.CancelledError:
        this = asyncio.current_task()
        if this is not None and this.cancelling():
            raise  # Ctrl-C: asyncio itself cancelled this task.
        return None


def _at_eof(call: Callable[[], object]) -> None:
    def watch() -> None:
        while os.read(0, 1024):
            pass
        with suppress(RuntimeError):  # The loop is closed: the job has ended.
            call()

    threading.Thread(target=watch, name="riacho-eof", daemon=True).start()
