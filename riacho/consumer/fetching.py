"""Fetches records: the part that `Consumer` and `AsyncConsumer` share.

    wait_for_records ──▶ lookups and fetches, as tasks ──▶ Assignment ──▶ take

Fetches are tasks, so that the next records arrive while the program processes the last ones, and
so that a short poll does not discard a long wait. They start only when the program polls or takes
records: an idle consumer sends no requests.

A few partitions are fetched concurrently. Many share one request, since one connection per
partition would overload a gateway.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from riacho.consumer.assignment import Assignment, ReadPlace, Start
from riacho.consumer.log_calls import Fetched, FetchLimits, LogClient
from riacho.errors import NoOffset, new_error
from riacho.http.identity import Credentials
from riacho.http.retries import Backoff, FailureCount
from riacho.records import TopicPartition
from storage.errors import Corrupt, OffsetOutOfRange, RiachoError, UnknownTopicOrPartition

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger("riacho")

FETCHES_MAX: Final = 16
"""Maximum number of concurrent fetches; more partitions share one request."""

SHARED_PARTITIONS_MAX: Final = 500
"""Maximum number of partitions in one shared request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    reset: Literal["earliest", "latest", "none"]
    limits: FetchLimits
    records_waiting_min: int
    request_timeout_s: float
    trouble_max_s: float
    metadata_age_max_s: float
    backoff: Backoff


class Fetching:
    def __init__(
        self,
        url: str,
        settings: FetchSettings,
        transport: "httpx.AsyncBaseTransport | None" = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.settings = settings
        self.assignment = Assignment(settings.records_waiting_min)
        self.topics: list[str] = []
        self.is_managed = False
        """Whether a group assigns partitions; then a deleted topic may stay assigned a while."""
        self._topics_read_s: float | None = None
        self.log = LogClient(
            url, settings.limits, settings.request_timeout_s, transport, credentials
        )
        self._fetches: dict[TopicPartition, tuple[asyncio.Task[bool], int]] = {}
        self._refresh: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._is_interrupted = False
        self._is_closed = False
        self._failure: RiachoError | None = None
        self._trouble = FailureCount(settings.backoff, settings.trouble_max_s)

    def subscribe(self, topics: list[str]) -> None:
        """Consume all partitions of `topics`, also those that are added later."""
        self.topics = topics
        self._topics_read_s = None

    def interrupt(self) -> None:
        """Make `wait_for_records` return, so that other work is done first. On the loop only."""
        self._is_interrupted = True
        self._news.set()

    async def wait_for_records(self, timeout_s: float) -> None:
        """Return when records can be taken, after `timeout_s`, or when interrupted.

        Raises errors that a retry cannot fix at once, others only after `trouble_max_s` without
        any success.
        """
        give_up_s = time.monotonic() + timeout_s
        while True:
            self._raise_failure()
            self.start()
            if self._is_interrupted or self.assignment.has_records():
                self._is_interrupted = False
                return
            remaining_s = give_up_s - time.monotonic()
            if remaining_s <= 0:
                await asyncio.sleep(0)  # Lets the fetches run in a loop of short polls.
                return
            self._news.clear()
            timer = asyncio.get_running_loop().call_later(remaining_s, self._news.set)
            await self._news.wait()
            timer.cancel()

    def start(self) -> None:
        """Start the lookups and fetches that are due."""
        if self._is_closed:
            return  # A fetch that ends while `close` waits for the others must not start another.
        self._start_refresh()
        wanted = [place for place in self.assignment.wanted() if self._is_idle(place)]
        if not wanted:
            return
        if len(self._fetches) + len(wanted) <= FETCHES_MAX:
            groups = [[place] for place in wanted]
        elif self._fetches:
            return  # The running fetches return soon; then all can share a request.
        else:
            groups = [wanted[:SHARED_PARTITIONS_MAX]]
        for group in groups:
            task = asyncio.create_task(self._fetch(group))
            self._fetches.update({place.partition: (task, place.epoch) for place in group})
            task.add_done_callback(partial(self._fetched, group))

    def _is_idle(self, place: ReadPlace) -> bool:
        """Whether `place` may be fetched now. Cancels a fetch that a seek made useless."""
        task, epoch = self._fetches.get(place.partition, (None, place.epoch))
        if task is not None and epoch != place.epoch:
            task.cancel()
        return task is None

    async def resolve(self, place: ReadPlace) -> ReadPlace:
        """Return `place` with its offset, looking it up if it is not known."""
        if place.offset is not None:
            return place
        if place.start == "none":
            detail = f"nothing is committed for {place.partition}, and auto_offset_reset is none"
            raise new_error(NoOffset, f"{detail}; seek to say where to begin")
        assert place.start != "committed", place
        offset = await self.log.offset_at(place.partition, place.start)
        return self.assignment.settle_start(place, offset)

    async def close(self) -> None:
        self._is_closed = True
        tasks: set[asyncio.Task[Any]] = {task for task, _ in self._fetches.values()}
        if self._refresh is not None:
            tasks.add(self._refresh)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.log.close()

    async def _fetch(self, places: Sequence[ReadPlace]) -> bool:
        """Fetch once and process the outcome; return whether there were any records."""
        try:
            places = await asyncio.gather(*map(self.resolve, places))
            fetched = await self.log.fetch(places)
        except RiachoError as error:
            await self._note(error)
            return False
        self._trouble.over()
        failed: RiachoError | None = None
        for place, part in zip(places, fetched, strict=True):
            if isinstance(part, OffsetOutOfRange):
                self._reset(place, part)
            elif isinstance(part, RiachoError):
                failed = part
            else:
                self.assignment.accept(place, part.records, part.next_offset)
        if failed is not None:
            await self._note(failed)
        return any(isinstance(part, Fetched) and part.records for part in fetched)

    def _reset(self, place: ReadPlace, error: RiachoError) -> None:
        reset = self.settings.reset
        if reset == "none":
            self._failure = error
            return
        logger.warning(
            "offset out of range",
            extra={"partition": str(place.partition), "offset": place.offset, "reset": reset},
        )
        self.assignment.restart(place, reset)

    async def _note(self, error: RiachoError) -> None:
        """Remember the error, and wait before a retry."""
        may_pass = self.is_managed and isinstance(error, UnknownTopicOrPartition)
        if self._trouble.note(error, may_pass=may_pass):
            self._failure = error
            self._news.set()
        logger.debug("fetch failed", extra={"code": error.code, "detail": str(error)})
        await self._trouble.wait(error)

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            self._trouble.over()
            raise failure

    def _fetched(self, group: Sequence[ReadPlace], task: "asyncio.Task[bool]") -> None:
        for place in group:
            del self._fetches[place.partition]
        self._news.set()
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            logger.error("fetch failed unexpectedly", exc_info=error)
            self._failure = new_error(Corrupt, f"the client failed: {error!r}")
        elif task.result():
            # There may be more records; continue until enough are waiting.
            self.start()

    def _start_refresh(self) -> None:
        if not self.topics or self._refresh is not None:
            return
        age_max_s = self.settings.metadata_age_max_s
        if self._topics_read_s is None or time.monotonic() - self._topics_read_s > age_max_s:
            self._refresh = asyncio.create_task(self._read_topics(self.topics))
            self._refresh.add_done_callback(self._refreshed)

    def _refreshed(self, _: "asyncio.Task[None]") -> None:
        self._refresh = None
        self._news.set()

    async def _read_topics(self, topics: list[str]) -> None:
        try:
            counts = await asyncio.gather(*map(self.log.partition_count, topics))
        except RiachoError as error:
            await self._note(error)
            return
        partitions = [
            TopicPartition(topic, partition)
            for topic, count in zip(topics, counts, strict=True)
            for partition in range(count)
        ]
        if topics is self.topics:
            # A partition that is added later is read from its beginning: all its records are newer
            # than the subscription.
            is_first = self._topics_read_s is None
            self.assignment.replace(partitions, self.initial_start if is_first else "earliest")
            self._topics_read_s = time.monotonic()

    @property
    def initial_start(self) -> Start:
        """Where a partition begins before any seek."""
        return "earliest" if self.settings.reset == "earliest" else "latest"
