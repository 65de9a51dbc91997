"""Producer windows moved out of the head: their pages, and how they are found and written.

    head ── windows of the producers that wrote last
         └─ pages, newest last ── level 0  windows that left the head together
                               ── level 1  merged from eight of level 0, and so on

A window that left the head stays valid for its producer until a newer one is in the head or in
a newer page. Pages are immutable objects, written before a commit references them, so a crash
leaves only orphans. Any process finds yesterday's producer by reading a few small objects, which
it caches. Expired windows are dropped when pages are merged.

However many producers write to a lane, the head keeps some kilobytes of windows and the
names of a few pages for each level.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from storage import keys
from storage.errors import RiachoError
from storage.formats import frames, zone_sets
from storage.formats.zone_sets import ZoneSet
from storage.head import producers
from storage.head.head import Head, WindowPage
from storage.head.producers import Key, Window
from storage.head.replication import read_names, zone_names, zones_named
from storage.lanes.rolls import HARD, OVERDUE, Failed, is_trusted
from storage.lanes.watch import LaneRuntime
from storage.reading.cache import ByteCache
from storage.zones.zones import Zones

_MAGIC: Final = b"RPW1"

FANOUT: Final = 8

_WINDOW_BYTES: Final = 200
"""Approximate size of a window in memory."""

Windows: TypeAlias = dict[Key, Window]


@dataclass(frozen=True, slots=True)
class Spill:
    """Pages that are written but not yet committed."""

    old_pages: tuple[WindowPage, ...]
    new_pages: tuple[WindowPage, ...]
    windows: Windows
    """Windows in the new pages, or expired. Windows changed since then stay in the head."""
    zones: ZoneSet
    """Zones that hold the pages. A head with other zones in its ISR must not reference them."""
    leader_epoch: int
    """Epoch of the head that the pages were written for."""


class WindowPages:
    """Reads and writes the pages of all lanes."""

    def __init__(self, zones: Zones, new_id: Callable[[], bytes], cache_bytes_max: int) -> None:
        self._zones = zones
        self._new_id = new_id
        self._cache = ByteCache[bytes, Windows](
            cache_bytes_max, lambda windows: _WINDOW_BYTES * (1 + len(windows))
        )

    async def find(self, head: Head, wanted: Collection[Key]) -> Windows:
        """Return the windows of `wanted` that are in pages; windows in the head are newer."""
        refs = [page for page in head.producer_pages if _may_hold(page, wanted)]
        found: Windows = {}
        # Newest last, so that the newest wins.
        for page in await asyncio.gather(*(self._page(head, ref) for ref in refs)):
            found.update((key, page[key]) for key in wanted if key in page)
        return found

    async def spill(
        self, head: Head, minute: int, expiration_ms: int, kept_bytes_max: int
    ) -> Spill:
        """Write the head's windows into pages; keep the most recently used ones."""
        leaving = _least_used(head.producers, kept_bytes_max)
        kept = producers.unexpired(leaving, minute, expiration_ms)
        pages, zones = list(head.producer_pages), head.isr
        if kept:
            level, windows = 0, kept
            # The new page and seven of its level are merged into the next level, and so on.
            while len(same := [page for page in pages if page.level == level]) + 1 >= FANOUT:
                older = await asyncio.gather(*(self._page(head, page) for page in same))
                windows = _merged([*older, windows], minute, expiration_ms)
                pages = [page for page in pages if page.level != level]
                level += 1
            if windows:
                # The remaining pages are of this level or above, so they are older.
                page, zones = await self._write(head, level, windows)
                pages.append(page)
        left = {window.key: window for window in leaving}
        return Spill(head.producer_pages, tuple(pages), left, zones, head.leader_epoch)

    async def _write(self, head: Head, level: int, windows: Windows) -> tuple[WindowPage, ZoneSet]:
        """Write a page; return it, and which zones hold it."""
        object_id = self._new_id()
        key = keys.index_object(head.topic_id, head.lane, object_id, "producers")
        data = encode(windows.values())
        held = await self._zones.put_widely(key, [data], zone_names(head, head.isr))
        self._cache.put(object_id, windows)
        ids = [producer_id for producer_id, _ in windows]
        page = WindowPage(object_id, level, len(windows), min(ids), max(ids))
        return page, zones_named(head, held)

    async def _page(self, head: Head, page: WindowPage) -> Windows:
        async def load() -> Windows:
            key = keys.index_object(head.topic_id, head.lane, page.object_id, "producers")
            return await self._zones.get_as(key, read_names(head, head.isr), decode)

        return await self._cache.get_or_load(page.object_id, load)


class Spills:
    """The windows of one lane that this process moves out of its head."""

    def __init__(
        self,
        runtime: LaneRuntime,
        pages: WindowPages,
        finished: Callable[[], Awaitable[object]],
        failed: Failed,
    ) -> None:
        self._runtime = runtime
        self._pages = pages
        self._finished = finished
        self._failed = failed
        self._running: asyncio.Task[None] | None = None
        self._done: tuple[Spill, float] | None = None

    def begin_if_large(self, before: Head, new: Head) -> None:
        """Begin to move windows if they just crossed the limit, or are overdue (`OVERDUE`).

        The limit is the same as for runs: the table charges the same per kilobyte for both, and a
        page costs one request.
        """
        if not new.producers:
            return
        new_bytes = producers.inline_bytes(new.producers)
        bytes_max = self._runtime.inline_bytes_max
        has_crossed = producers.inline_bytes(before.producers) <= bytes_max < new_bytes
        if not has_crossed and new_bytes <= OVERDUE * bytes_max:
            return
        if self._running is None and self.applied(new) is new:
            self._running = self._runtime.spawn(self._spill(new))

    async def _spill(self, head: Head) -> None:
        try:
            self._done = await self._spilled(head)
        except RiachoError:
            return  # All windows are still in the head. The next commit retries.
        finally:
            self._running = None
        await self._finished()

    async def _spilled(self, head: Head) -> tuple[Spill, float]:
        born_s = self._runtime.monotonic_s()
        minute = producers.minute_of(self._runtime.now_ms())
        spill = await self._pages.spill(
            head,
            minute,
            self._runtime.producer_expiration_ms,
            self._runtime.inline_bytes_max // 2,
        )
        if failed := zone_sets.without(head.isr, spill.zones):
            self._failed(failed, head.leader_epoch)
        return spill, born_s

    async def ready(self, head: Head) -> Head:
        """Return `head` with a finished spill applied; wait for one if it is far too large."""
        if producers.inline_bytes(head.producers) > HARD * self._runtime.inline_bytes_max:
            if self._running is not None:
                await asyncio.wait([self._running])
            if self.applied(head) is head:
                self._done = await self._spilled(head)
        return self.applied(head)

    def applied(self, head: Head) -> Head:
        """Return `head` without the windows that were moved, or `head` itself if none were."""
        if self._done is None:
            return head
        spill, born_s = self._done
        age_s = self._runtime.monotonic_s() - born_s
        too_old = not is_trusted(head, spill.leader_epoch, age_s)
        left = [window for window in head.producers if spill.windows.get(window.key) != window]
        is_overtaken = spill.old_pages != head.producer_pages or len(left) == len(head.producers)
        if is_overtaken or too_old or not zone_sets.is_within(head.isr, spill.zones):
            # Another process moved them meanwhile, or a zone without our pages came in sync.
            # Our pages become orphans.
            self._done = None
            return head
        return msgspec.structs.replace(head, producers=tuple(left), producer_pages=spill.new_pages)


def _least_used(windows: Sequence[Window], kept_bytes_max: int) -> Sequence[Window]:
    """Return all windows except the last ones, which fit in `kept_bytes_max`."""
    kept_bytes = 0
    for number in range(len(windows) - 1, -1, -1):
        kept_bytes += producers.inline_bytes(windows[number : number + 1])
        if kept_bytes > kept_bytes_max:
            return windows[: number + 1]
    return ()


def _may_hold(page: WindowPage, wanted: Iterable[Key]) -> bool:
    return any(page.first_producer_id <= key[0] <= page.last_producer_id for key in wanted)


def _merged(pages: Sequence[Windows], minute: int, expiration_ms: int) -> Windows:
    merged: Windows = {}
    for page in pages:
        merged.update(page)
    return producers.unexpired(merged.values(), minute, expiration_ms)


_DECODER: Final = msgspec.msgpack.Decoder(list[Window])


def encode(windows: Iterable[Window]) -> bytes:
    return frames.seal(_MAGIC, msgspec.msgpack.encode(list(windows)))


def decode(data: bytes) -> Windows:
    """Return the windows, or raise `Corrupt` if `data` was not made by `encode`."""
    found = frames.unpack(_MAGIC, data, _DECODER, "a page of producers")
    return {window.key: window for window in found}
