"""A lane whose zones report the requests they got and the objects they hold."""

from dataclasses import replace
from typing import Self

import msgspec

from storage import keys
from storage.errors import ObjectMissing
from storage.formats import segments
from storage.head import head as heads
from storage.head.head import Head, Run
from storage.lanes.commits import Offer
from storage.lanes.lane import Lanes
from storage.stores.memory import MemoryObjects
from storage.stores.metadata import Put
from storage.zones.zones import Zones
from tests.storage.helpers.failing_zones import FailingObjects
from tests.storage.helpers.logs import run_of
from tests.storage.helpers.worlds import TOPIC_ID, Clock, new_metadata, new_runtime


class Zoned:
    """A lane in zones a, b and c, and an object that was put into all of them."""

    def __init__(self, names: str = "abc") -> None:
        self.clock = Clock()
        self.metadata = new_metadata()
        self.names = names
        self.stores = {name: FailingObjects(MemoryObjects()) for name in names}
        self.runtime = replace(
            new_runtime(self.metadata, clock=self.clock), zones=Zones(self.stores)
        )
        self.lanes = Lanes(self.runtime)
        self.lane = self.lanes.lane(TOPIC_ID, 0)
        self.run = msgspec.structs.replace(run_of(bytes(16), {0: 1}), zones=(1 << len(names)) - 1)
        self.key = keys.hot_segment(self.run.object_id)

    async def written(self) -> Self:
        head = heads.create(TOPIC_ID, 0, 1, list(self.names))
        await self.metadata.transact([Put(keys.head(TOPIC_ID, 0), heads.encode(head), None)])
        for store in self.stores.values():
            await store.inner.put(self.key, segments.encode([]))
        return self

    async def committed(self, run: Run, *, after_s: float = 0.0, **offered: int) -> Head:
        """Commit `run` `after_s` seconds after it was begun, and return the head."""
        ticket = self.lane.enqueue()
        self.clock.now_s += after_s
        ticket.ready(Offer(run, **offered))
        assert await ticket.committed == {0: 0}
        return (await self.lane.view(0)).head

    def looks(self) -> str:
        """Return the zones that were asked whether they have the object."""
        return "".join(name for name, store in self.stores.items() if store.sizes)

    async def holders(self) -> str:
        return "".join([name for name, store in self.stores.items() if await self._holds(store)])

    async def _holds(self, store: FailingObjects) -> bool:
        try:
            await store.inner.size(self.key)
        except ObjectMissing:
            return False
        return True
