"""Watched heads: what this process knows of them, and the readers that wait for a change.

- A view is never older than its reader allows, and is never replaced by an older one.
- Readers share reads. Waiting readers share one poll for the commits of other processes. A
  commit of this process wakes them at once if the partition they wait for has changed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from storage.errors import Contended, HeadGone, RiachoError
from storage.formats.partitions import LanePartition
from storage.head import head as heads
from storage.head.head import Head
from storage.head.producers import Key, Window
from storage.lanes.releases import Releases
from storage.reading.catalog import Catalog
from storage.stores.dated import CallBegan, DatedConflict, DatedMetadata
from storage.stores.metadata import MetadataStore, Versioned
from storage.tasks import begin, detached, shared
from storage.zones.zones import Zones

if TYPE_CHECKING:
    from storage.lanes.windows import WindowPages

BACK_OFF_S_MAX: Final = 0.05

NEWS_S: Final = 0.5
"""How long news of zones that catch up waits for a commit to be written with."""

COMMIT_S_MAX: Final = 15.0
"""Maximum time a commit retries after lost races. One of n writers wins each round, so callers
notice the time; a limit on attempts would only punish the unlucky."""


@dataclass(slots=True, eq=False)
class LaneView:
    """A head as it was at some moment, and the version to compare when changing it."""

    head: Head
    version: str
    read_began_s: CallBegan
    """When the call that read or wrote it began: it may lack later changes."""
    _windows: dict[Key, Window] | None = None

    @property
    def windows(self) -> dict[Key, Window]:
        """The producer windows in the head."""
        if self._windows is None:
            self._windows = {window.key: window for window in self.head.producers}
        return self._windows


@dataclass(slots=True, kw_only=True)
class LaneRuntime:
    """The services and settings that lanes share."""

    metadata: MetadataStore
    zones: Zones
    catalog: Catalog
    monotonic_s: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    random: Callable[[], float]
    poll_interval_s: float
    window_pages: "WindowPages"
    now_ms: Callable[[], int]
    producer_expiration_ms: int = 86_400_000
    """A producer that writes nothing for this long expires; one day, as in Kafka."""
    news_s: float = NEWS_S
    inline_bytes_max: int = field(default_factory=lambda: heads.INLINE_BYTES_MAX)
    """Approximate limit for runs in the head, and for producer windows; the excess is moved out."""
    releases: Releases = field(default_factory=Releases)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def dated(self) -> DatedMetadata:
        """The metadata table, with the time at which each call began."""
        return DatedMetadata(self.metadata, self.monotonic_s)

    def spawn(
        self,
        work: Coroutine[Any, Any, None],
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]] = begin,
    ) -> asyncio.Task[None]:
        task = start(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def next_attempt(self, attempt: int, give_up_s: float) -> None:
        """Wait a short random time, longer after each lost race, so that writers take turns.

        Raises `Contended` if it is later than `give_up_s`.
        """
        if self.monotonic_s() > give_up_s:
            raise Contended(f"others committed first for {COMMIT_S_MAX:.0f} s; send it again")
        if attempt > 0:
            await self.sleep(self.random() * min(BACK_OFF_S_MAX, 0.001 * 2 ** min(attempt, 10)))

    async def aclose(self) -> None:
        """Stop background tasks; an interrupted roll leaves only orphans."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class WatchedHead:
    """The head of one lane as this process knows it."""

    def __init__(self, key: str, runtime: LaneRuntime) -> None:
        self.key = key
        self._runtime = runtime
        self.latest: LaneView | None = None
        """The newest view that this process knows, however old."""
        self._reading: asyncio.Task[LaneView] | None = None
        self._read_next: asyncio.Task[LaneView] | None = None
        self._waiters: dict[LanePartition | None, dict[asyncio.Future[None], None]] = {}
        """By partition; None: any partition."""
        self._poller: asyncio.Task[None] | None = None

    async def view(self, age_max_s: float) -> LaneView:
        """Return the head as it was at most `age_max_s` ago; 0: after this call began."""
        return self.known(age_max_s) or await self.fresh()

    def known(self, age_max_s: float) -> LaneView | None:
        """Return the known view if it is at most `age_max_s` old, without a read."""
        view = self.latest
        if view and 0 < age_max_s >= self._runtime.monotonic_s() - view.read_began_s:
            return view
        return None

    def is_polled(self, view: LaneView) -> bool:
        """Whether `view` is from the last poll for waiting readers; the next poll is soon."""
        age_s = self._runtime.monotonic_s() - view.read_began_s
        return self._poller is not None and 0 < age_s <= self._runtime.poll_interval_s

    async def fresh(self) -> LaneView:
        """Return the head as it is read after this call began."""
        # A read that is under way began before this call did, so it may be too old. The next
        # read is recent enough, and all callers until then share it.
        if self._read_next is None:
            self._read_next = shared(self._read_after(self._reading))
        return await asyncio.shield(self._read_next)

    async def _read_after(self, previous: asyncio.Task[LaneView] | None) -> LaneView:
        if previous is not None:
            await asyncio.wait([previous])
        self._reading, self._read_next = self._read_next, None
        return self.adopt(*await self._runtime.dated.get(self.key))

    def adopt(self, item: Versioned | None, began_s: CallBegan) -> LaneView:
        if item is None:
            self.latest = None
            self.wake()
            raise HeadGone(self.key)
        if self.latest and self.latest.version == item.version:
            return self.know(LaneView(self.latest.head, item.version, began_s))
        return self.know(LaneView(heads.decode(item.value, self.key), item.version, began_s))

    def adopted(self, view: LaneView, conflict: DatedConflict) -> LaneView:
        """Return the head from `conflict`, or `view` if the conflict was not about the head."""
        if self.key not in conflict.current:
            return view
        return self.adopt(conflict.current[self.key], conflict.began_s)

    def know(self, view: LaneView) -> LaneView:
        """Take over `view` unless a newer one is known; return the newer of both."""
        # Answers may overtake each other. The known head never goes back, and neither does its
        # date: a call that found an older head began before the newer one was written.
        known = self.latest
        if known is not None:
            view.read_began_s = max(view.read_began_s, known.read_began_s)
            if view.head.commits < known.head.commits:
                known.read_began_s = view.read_began_s
                return known
        self.latest = view
        if known is None:
            self.wake()
        elif view.head.commits > known.head.commits:
            self._wake_moved(known.head, view.head)
        return view

    async def changed(
        self, since: LaneView, timeout_s: float | None, partition: LanePartition | None = None
    ) -> None:
        """Return when the head is known to differ from `since`, or after `timeout_s`.

        With a `partition`: when its end or its log start differs, or the head was deleted.
        """
        await any_changed([(self, since, partition)], timeout_s)

    def watch(
        self, waiter: "asyncio.Future[None]", since: LaneView, partition: LanePartition | None
    ) -> bool:
        """Complete `waiter` when `changed` would return, until `unwatch`.

        False: the head has changed already, and `waiter` was not registered.
        """
        if self.latest is None or _has_moved(since.head, self.latest.head, partition):
            return False
        self._waiters.setdefault(partition, {})[waiter] = None
        if self._poller is None:
            self._poller = self._runtime.spawn(self._poll(), detached)
        return True

    def unwatch(self, waiter: "asyncio.Future[None]", partition: LanePartition | None) -> None:
        waiters = self._waiters.get(partition, {})
        waiters.pop(waiter, None)
        if not waiters:
            self._waiters.pop(partition, None)

    def wake(self) -> None:
        """Wake all waiters, even if nothing has changed."""
        for waiters in self._waiters.values():
            self._runtime.releases.release(waiters, None)

    def _wake_moved(self, before: Head, now: Head) -> None:
        """Wake the waiters whose partition has changed."""
        for partition, waiters in self._waiters.items():
            if _has_moved(before, now, partition):
                self._runtime.releases.release(waiters, None)

    async def _poll(self) -> None:
        """Poll for commits of other processes, once for all waiters."""
        try:
            while self._waiters:
                await self._runtime.sleep(self._runtime.poll_interval_s)
                # If the store stays unavailable, each waiter ends by its own timeout.
                with suppress(RiachoError):
                    await self.fresh()
        finally:
            self._poller = None


async def any_changed(
    watched: Sequence[tuple[WatchedHead, LaneView, LanePartition | None]],
    timeout_s: float | None,
) -> None:
    """Return when `WatchedHead.changed` would for any of `watched`, or after `timeout_s`."""
    waiter = asyncio.get_running_loop().create_future()
    try:
        if all(head.watch(waiter, since, partition) for head, since, partition in watched):
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await waiter
    finally:
        for head, _, partition in watched:
            head.unwatch(waiter, partition)


def _has_moved(before: Head, now: Head, partition: LanePartition | None) -> bool:
    """Whether waiters for `partition` must be woken; None: waiters for the whole lane."""
    if partition is None or partition >= min(before.partition_count, now.partition_count):
        return before.commits != now.commits
    return (
        before.next_offsets[partition] != now.next_offsets[partition]
        or before.log_starts[partition] != now.log_starts[partition]
    )
