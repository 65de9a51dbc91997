"""Chooses the runner: threads of this process for little work, Spark for much.

Spark takes some ten seconds to start, in which threads have compacted hundreds of megabytes. So
by default Spark is started only for more than that, and only where it is installed.
"""

import asyncio
import os
import re
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Self

from service.jobs.progress import Meter
from service.jobs.runners import spark_session
from service.jobs.runners.runners import Runner, ThreadRunner
from service.jobs.stores import Shipped
from storage.errors import InvalidConfig, NotSupported

SPARK_BYTES_MIN: Final = 256 * 1024 * 1024
"""Less work than this is done by threads before Spark would have started."""

THREADS_MAX: Final = 4
"""Default maximum, to leave CPU to gateways on the same machine."""


_MASTER: Final = re.compile(r"local(\[(\*|\d+)(,\s*\d+)?\])?|(spark|k8s)://.+|yarn")


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How to run a job. Raises `InvalidConfig` for a master that Spark does not know."""

    spark: bool | None = None
    """None: use Spark if there is enough work and it is installed."""
    master: str = ""
    """A Spark master; empty: this machine, with as many cores as `concurrency` says."""
    concurrency: int | None = None
    """Concurrent tasks; None: for threads one per core, at most `THREADS_MAX`."""
    wait_s: float = 0.0
    """Maximum wait for another job to end."""
    spark_bytes_min: int = SPARK_BYTES_MIN

    def __post_init__(self) -> None:
        if self.master and _MASTER.fullmatch(self.master) is None:
            raise InvalidConfig(
                f"{self.master!r} is not a Spark master; use local[*], local[4],"
                " spark://host:7077, k8s://… or yarn"
            )

    @property
    def threads(self) -> int:
        return self.concurrency or min(THREADS_MAX, os.cpu_count() or 1)

    @property
    def spark_master(self) -> str:
        if self.master:
            return self.master
        return f"local[{self.concurrency}]" if self.concurrency else "local[*]"


class Runners:
    """Starts runners when they are needed, and closes them all at the end."""

    def __init__(self, how: How, shipped: Shipped, meter: Meter) -> None:
        self._how = how
        self._shipped = shipped
        self._meter = meter
        self._stack = ExitStack()
        self._threads: ThreadRunner | None = None
        self._spark: Runner | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.to_thread(self._stack.close)

    async def for_bytes(self, size_bytes: int) -> Runner:
        """Return the runner for this much work; each kind is started only once.

        Raises `NotSupported` if Spark was requested but cannot be used.
        """
        if self._wants_spark(size_bytes):
            if self._spark is None:
                try:
                    # In a thread, because the event loop must keep renewing the lease.
                    self._spark = await asyncio.to_thread(self._start_spark)
                except NotSupported as error:
                    if self._how.spark:
                        raise
                    self._meter.say(f"goes on without Spark: {error}")
                    return self._in_threads()
            return self._spark
        return self._in_threads()

    def _wants_spark(self, size_bytes: int) -> bool:
        if self._how.spark is not None:
            return self._how.spark
        if spark_session.is_submitted():
            return True
        return size_bytes >= self._how.spark_bytes_min and self._threads is None

    def _in_threads(self) -> Runner:
        if self._threads is None:
            self._threads = self._stack.enter_context(
                ThreadRunner(self._shipped, self._how.threads)
            )
        return self._threads

    def _start_spark(self) -> Runner:
        started = self._stack.enter_context(
            spark_session.session(self._how.spark_master, started=self._meter.say)
        )
        from service.jobs.runners.spark_runner import SparkRunner

        return SparkRunner(started, self._shipped)
