"""Who does the work: threads of this process for little, Spark for much.

Spark takes some ten seconds to start, in which threads have compacted hundreds of megabytes. So
without a word about it Spark is started only for more than that, and only where it is installed.
"""

import asyncio
import os
import re
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Self

from service.jobs import spark
from service.jobs.progress import Meter
from service.jobs.runners import Runner, ThreadRunner
from service.jobs.stores import Shipped
from storage.errors import InvalidConfig, NotSupported

SPARK_BYTES_MIN: Final = 256 * 1024 * 1024
"""Less than this is done before Spark has started."""

THREADS_MAX: Final = 4
"""Unless more are asked for: gateways on the same machine want to work, too."""


_MASTER: Final = re.compile(r"local(\[(\*|\d+)(,\s*\d+)?\])?|(spark|k8s)://.+|yarn")


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How a job is to be done. Raises `InvalidConfig` for a master that Spark does not know."""

    spark: bool | None = None
    """None: if it is worth it, and there is one."""
    master: str = ""
    """A Spark master; empty: this machine, with as many cores as `concurrency` says."""
    concurrency: int | None = None
    """Tasks at once; None: as many as there are cores, but no more than a few."""
    wait_s: float = 0.0
    """How long to wait for another job to end."""
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
    """Starts runners as they are needed, and ends them all."""

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
        """Return the runner for so much work; always the same for the same answer.

        Raises `NotSupported` if Spark was asked for, and there is none.
        """
        if self._wants_spark(size_bytes):
            if self._spark is None:
                try:
                    # Beside the event loop, which has a lease to keep.
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
        if spark.is_submitted():
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
            spark.session(self._how.spark_master, started=self._meter.say)
        )
        from service.jobs.spark_runner import SparkRunner

        return SparkRunner(started, self._shipped)
