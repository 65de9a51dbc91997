"""A rival process that commits to the same head just before each of our writes."""

from collections.abc import Mapping, Sequence

from storage import keys
from storage.head import head as heads
from storage.stores.metadata import MetadataStore, Op, Put
from tests.storage.helpers.faults import FaultyMetadata
from tests.storage.helpers.logs import run_of
from tests.storage.helpers.worlds import TOPIC_ID


class Rival(FaultyMetadata):
    """A `MetadataStore` where others commit a record before each of the next `races` writes."""

    def __init__(self, inner: MetadataStore, races: int = 0) -> None:
        super().__init__(inner)
        self.races = races

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        if self.races:
            self.races -= 1
            await self._commit(keys.head(TOPIC_ID, 0))
        return await super().transact(ops)

    async def _commit(self, key: str) -> None:
        item = await self.inner.get(key)
        assert item is not None
        theirs = heads.append(heads.decode(item.value), [run_of(b"theirs", {0: 1})])
        await self.inner.transact([Put(key, heads.encode(theirs), item.version)])
