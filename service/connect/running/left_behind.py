"""Removes items that nobody needs any more: leases of tasks, and what was sent again of topics.

A task may be deleted while it runs, so its lease is freed when nobody would find it; and a topic is
deleted without a look at Connect. So now and then a runner looks for both. A pass removes a bounded
number; the next one goes on. Any number of processes may do it: versions decide.
"""

from collections.abc import Sequence
from typing import Final

from storage import keys, leases
from storage.errors import MetadataConflict, OutcomeUnknown
from storage.stores.metadata import TRANSACT_OPS_MAX, Delete, MetadataStore, Versioned, pages
from storage.topics.topics import Topics

REMOVED_MAX: Final = 1000
"""Items that one pass removes."""

_AT_ONCE: Final = TRANSACT_OPS_MAX


class LeftBehind:
    def __init__(self, metadata: MetadataStore, topics: Topics) -> None:
        self._metadata = metadata
        self._topics = topics
        self._held: dict[str, str] = {}
        """Leases of tasks that are gone which somebody held at the last pass, with versions."""

    async def remove(self) -> int:
        """Remove what is left behind; return how many items. Raises what the table raises."""
        count = await self._leases(REMOVED_MAX)
        return count + await self._redrives(REMOVED_MAX - count)

    async def _leases(self, count_max: int) -> int:
        held: dict[str, str] = {}
        doomed: list[tuple[str, Versioned]] = []
        prefix = keys.lease(keys.CONNECT_TASKS)
        async for page in pages(self._metadata, prefix, _AT_ONCE):
            # Tasks are read after leases: one that is missing now was deleted.
            tasks = await self._metadata.get_many([_task_of(key) for key, _ in page])
            for key, item in page:
                if _task_of(key) in tasks:
                    continue
                if leases.decode(item.value).holder and self._held.get(key) != item.version:
                    held[key] = item.version  # Its run ends soon, or has died.
                else:
                    doomed.append((key, item))
            if len(doomed) >= count_max:
                break
        self._held = held
        return await self._delete(doomed[:count_max])

    async def _redrives(self, count_max: int) -> int:
        found = [each async for page in pages(self._metadata, keys.REDRIVEN) for each in page]
        if not found:
            return 0
        # Read after these items: a topic that is missing was deleted.
        known = {keys.redriven(topic.topic_id) for topic in await self._topics.all()}
        count = 0
        for key, item in found:
            if key in known:
                continue
            prefix = keys.redrives_of(bytes.fromhex(key.removeprefix(keys.REDRIVEN)))
            while count < count_max:
                page = await self._metadata.list(prefix, limit=min(_AT_ONCE, count_max - count))
                if not page:
                    count += await self._delete([(key, item)])
                    break
                removed = await self._delete(page)
                if not removed:
                    return count  # Somebody else is at it.
                count += removed
        return count

    async def _delete(self, items: Sequence[tuple[str, Versioned]]) -> int:
        """Delete items that have not changed; return how many."""
        count = 0
        for start in range(0, len(items), _AT_ONCE):
            some = items[start : start + _AT_ONCE]
            try:
                await self._metadata.transact([Delete(key, item.version) for key, item in some])
            except (MetadataConflict, OutcomeUnknown):
                continue  # The next pass finds what is left.
            count += len(some)
        return count


def _task_of(lease_key: str) -> str:
    return lease_key.removeprefix(keys.lease(""))
