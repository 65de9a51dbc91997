"""How calls of classic groups learn what a group is now, and wait until it is something else.

Members of a group mostly call one gateway, which therefore knows of each change the moment it
writes it. For the changes of others it reads the item again: when a call needs it and it is more
than `AGE_MAX_S` old, and every `POLL_S` as long as a call waits. A quiet group nobody waits for
costs nothing, and a waiting one the same for one member or a thousand.
"""

import asyncio
from contextlib import suppress
from typing import Final

from service.groups.items import GroupItems, Known
from service.groups.session_expiry import SessionExpiry
from service.world.clock import World
from storage import keys
from storage.errors import RiachoError
from storage.stores.metadata import MetadataStore
from storage.tasks import SingleFlight, begin

AGE_MAX_S: Final = 1.0
"""Maximum age of the state that a heartbeat is answered from."""

POLL_S: Final = 1.0
"""Time between reads while calls wait."""


class Lookout:
    def __init__(
        self, metadata: MetadataStore, items: GroupItems, expiry: SessionExpiry, world: World
    ) -> None:
        self._metadata = metadata
        self._items = items
        self._expiry = expiry
        self._world = world
        self._reads = SingleFlight[str, Known]()
        self._ticking: set[str] = set()
        """Groups that are read again soon, because calls wait for news of them."""

    async def recent(self, group_id: str) -> Known:
        """Return the group as it was at most `AGE_MAX_S` ago."""
        seen = self._items.news.last(group_id)
        now_s = self._world.monotonic_s()
        if seen is not None and now_s - seen.at_s <= AGE_MAX_S:
            return seen.value
        return await self._reads.do(
            group_id, lambda: self._read(group_id), now_s=now_s, age_max_s=AGE_MAX_S
        )

    async def fresh(self, group_id: str) -> Known:
        """Return the group as it is now. Ends sessions that are over, if it is time to look."""
        return await self._reads.do(
            group_id, lambda: self._read(group_id), now_s=self._world.monotonic_s()
        )

    async def next(self, group_id: str, known: Known) -> Known:
        """Return the group once it is another than `known`, or the same after `POLL_S` or less."""
        news = self._items.news
        seen = news.last(group_id)
        if seen is None or seen.value.version == known.version:
            if group_id not in self._ticking:
                self._ticking.add(group_id)
                begin(self._tick(group_id))
            await asyncio.shield(news.next(group_id))
            seen = news.last(group_id)
        return known if seen is None else seen.value

    async def _tick(self, group_id: str) -> None:
        """Read the group in a while, for all who wait."""
        try:
            await self._world.sleep(POLL_S)
            # Who waits goes on waiting if the table does not answer: its time limits stand.
            with suppress(RiachoError):
                await self.fresh(group_id)
        finally:
            self._ticking.discard(group_id)
            self._items.news.wake(group_id)

    async def _read(self, group_id: str) -> Known:
        news = self._items.news
        key, watch_key = keys.group(group_id), keys.group_watch(group_id)
        number, asked_s = news.ask(), self._world.monotonic_s()
        items = await self._metadata.get_many([key, watch_key])
        known = self._items.known(group_id, items.get(key))
        news.tell(group_id, known, number, asked_s)
        is_due = self._expiry.is_due(group_id, known.group, items.get(watch_key))
        if known.group.members and is_due and await self._expiry.look(group_id):
            number, asked_s = news.ask(), self._world.monotonic_s()
            known = await self._items.read(group_id)
            news.tell(group_id, known, number, asked_s)
        return known
