"""The audit log as records of a topic, for those who want to read it as anything else.

No request waits for it: lines are queued, and a task writes them, many at a time. A host that
freezes this process waits for that task before the answer ends. The queue is bounded; what does not
fit is left out, counted, and reported in the log. A line may be written twice, if the outcome of a
write is not known.

The topic is created with the first line, unless it is there. Afterwards it is like any other: an
administrator may change its settings, and whoever reads or writes it needs a right.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from service.log.gateway import Gateway
from storage.errors import RiachoError, TopicExists, UnknownTopicOrPartition
from storage.formats.records import record_batch
from storage.tasks import begin, detached

log = logging.getLogger("riacho")

QUEUED_MAX: Final = 10_000
"""Maximum number of lines that wait to be written; each has at most two kilobytes or so."""

BATCH_LINES_MAX: Final = 1000
GATHER_S: Final = 0.2
"""Lines of this long are written together."""

RETRY_S: Final = 1.0
CLOSE_S_MAX: Final = 5.0
"""Longest wait for the queue at the end of the process."""

RETENTION_MS: Final = 30 * 86_400_000
"""Of a topic that is created here; afterwards it is a setting like any other."""

REPLICAS_MAX: Final = 3


class AuditTopic:
    def __init__(self, gateway: Gateway, name: str) -> None:
        self._gateway = gateway
        self._name = name
        self._queue: deque[tuple[int, bytes]] = deque()
        self._writing: asyncio.Task[None] | None = None
        self.left_out = 0
        """Lines that did not fit into the queue, and are not reported yet."""

    def write(self, line: bytes) -> None:
        """Queue a line. Never waits, and never fails."""
        if len(self._queue) >= QUEUED_MAX:
            self.left_out += 1
        else:
            self._queue.append((self._gateway.world.now_ms(), line))
        if self._writing is None or self._writing.done():
            self._writing = self._begin(self._write_all())

    @property
    def _begin(self) -> Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]:
        # Owned, if a host would freeze it; else the answer must not wait for it.
        return begin if self._gateway.settings.freezes else detached

    async def aclose(self) -> None:
        """Write what is queued, if that takes no longer than `CLOSE_S_MAX`."""
        if self._writing is not None and not self._writing.done():
            await asyncio.wait([self._writing], timeout=CLOSE_S_MAX)
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        if self._queue:
            log.error("%d audit lines were not written to %s", len(self._queue), self._name)

    async def _write_all(self) -> None:
        """Write until the queue is empty, and retry what fails."""
        is_failing, freezes = False, self._gateway.settings.freezes
        if not freezes:
            await self._gateway.world.sleep(GATHER_S)
        while self._queue:
            lines = [self._queue[n] for n in range(min(len(self._queue), BATCH_LINES_MAX))]
            try:
                await self._produce(lines)
            except RiachoError as error:
                if not is_failing:
                    log.warning("audit lines cannot be written to %s yet: %s", self._name, error)
                is_failing = True
                if freezes:
                    return  # An answer waits for this. The next line retries.
                await self._gateway.world.sleep(RETRY_S)
                continue
            if is_failing:
                log.warning("audit lines are written to %s again", self._name)
                is_failing = False
            for _ in lines:
                self._queue.popleft()
            self._report_left_out()

    def _report_left_out(self) -> None:
        left_out, self.left_out = self.left_out, 0
        if left_out:
            log.error("%d audit lines did not fit into the queue for %s", left_out, self._name)

    async def _produce(self, lines: list[tuple[int, bytes]]) -> None:
        stamps, values = zip(*lines, strict=True)
        batch = record_batch(stamps, [None] * len(values), values)
        for _ in range(2):
            try:
                await self._gateway.produce(self._name, batch, batch.nbytes, None)
                return
            except UnknownTopicOrPartition:
                await self._create()
        raise UnknownTopicOrPartition(f"topic {self._name!r} is deleted as soon as it is there")

    async def _create(self) -> None:
        topics, zones = self._gateway.topics, len(self._gateway.zones.names)
        try:
            await topics.create(
                self._name,
                replication_factor=min(REPLICAS_MAX, zones),
                config={"retention.ms": RETENTION_MS},
            )
        except TopicExists:
            topics.forget(self._name)
