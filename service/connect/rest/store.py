"""Connectors as items: read, changed by compare-and-set, deleted with all that is theirs.

**Deleting** takes three steps, and may die between any two. First the connector's target becomes
DELETED: from then on it is no longer shown, and no run of its tasks can commit. Then the items of
its tasks and positions are removed, and at last its own. Whoever creates a connector of the same
name first does what is left of this, so it inherits nothing.
"""

from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from service.connect.rest.errors import exists, no_connector
from service.connect.tasks.items import (
    DELETED,
    ConnectorItem,
    TaskItem,
    decode_connector,
    decode_task,
    encode_connector,
    encode_task,
    group_of,
)
from service.groups.coordinator import Coordinator
from service.world.clock import World
from storage import keys
from storage.cas import Again, Keep, Replace, change_item, retry
from storage.errors import GroupNotEmpty, UnknownGroup
from storage.stores.metadata import (
    TRANSACT_OPS_MAX,
    Check,
    Delete,
    MetadataStore,
    Op,
    Put,
    Versioned,
    pages,
)


class ConnectorStore:
    def __init__(self, metadata: MetadataStore, coordinator: Coordinator, world: World) -> None:
        self.metadata = metadata
        self.world = world
        self._coordinator = coordinator

    async def find(self, name: str) -> ConnectorItem | None:
        item = await self.metadata.get(keys.connector(name))
        return _shown(item)

    async def read(self, name: str) -> ConnectorItem:
        """Return the connector; raise 404 if there is none."""
        found = await self.find(name)
        if found is None:
            raise no_connector(name)
        return found

    async def all(self) -> list[ConnectorItem]:
        """Return all connectors, in the order of their names."""
        found = [
            connector
            async for page in pages(self.metadata, keys.CONNECTORS)
            for _, item in page
            if (connector := _shown(item)) is not None
        ]
        return sorted(found, key=lambda each: each.name)

    async def tasks(self, connector: ConnectorItem) -> list[TaskItem | None]:
        """Return the tasks that were planned; None: one of an earlier configuration, or gone."""
        if not connector.task_count:
            return []
        wanted = [keys.connect_task(connector.name, n) for n in range(connector.task_count)]
        found: dict[str, Versioned] = {}
        for start in range(0, len(wanted), TRANSACT_OPS_MAX):
            found |= await self.metadata.get_many(wanted[start : start + TRANSACT_OPS_MAX])
        return [decode_task(found[key].value) if key in found else None for key in wanted]

    async def create(self, new: ConnectorItem) -> None:
        """Put the new connector; raise 409 if there is one of its name."""
        key = keys.connector(new.name)

        async def attempt(is_in_doubt: bool) -> Again | None:
            stored = await self.metadata.get(key)
            found = _shown(stored)
            if is_in_doubt and found == new:
                return None
            if found is not None:
                raise exists(new.name)
            if stored is not None:
                await self._remove(decode_connector(stored.value))
                return Again()
            await self.metadata.transact([Put(key, encode_connector(new), None)])
            return None

        await retry(f"connector {new.name!r}", attempt, self.world.patience)

    async def change(
        self, name: str, change: Callable[[ConnectorItem], ConnectorItem]
    ) -> ConnectorItem:
        """Write what `change` makes of the connector, and return it; raise 404 if it is gone."""

        async def decide(
            item: Versioned | None,
        ) -> Keep[ConnectorItem] | Replace[ConnectorItem]:
            found = _shown(item)
            if found is None:
                raise no_connector(name)
            new = change(found)
            return Keep(found) if new == found else Replace(encode_connector(new), new)

        async def landed(item: Versioned | None, new: ConnectorItem) -> ConnectorItem | None:
            return new if _shown(item) == new else None

        return await change_item(
            self.metadata, keys.connector(name), decide, self.world.patience, landed=landed
        )

    async def change_task(
        self, name: str, number: int, change: Callable[[TaskItem], TaskItem]
    ) -> bool:
        """Write what `change` makes of a task; return whether there is one."""

        async def decide(item: Versioned | None) -> Keep[bool] | Replace[bool]:
            if item is None:
                return Keep(False)
            found = decode_task(item.value)
            new = change(found)
            return Keep(True) if new == found else Replace(encode_task(new), True)

        return await change_item(
            self.metadata, keys.connect_task(name, number), decide, self.world.patience
        )

    async def delete(self, name: str) -> None:
        """Delete the connector, its tasks and its positions; raise 404 if there is none."""
        doomed: list[ConnectorItem] = []

        async def decide(item: Versioned | None) -> Keep[bool] | Replace[bool]:
            if item is None:
                raise no_connector(name)
            found = decode_connector(item.value)
            doomed[:] = [found]
            if found.target == DELETED:
                return Keep(False)
            return Replace(encode_connector(replace(found, target=DELETED)), True)

        await change_item(self.metadata, keys.connector(name), decide, self.world.patience)
        await self._remove(doomed[0])

    async def _remove(self, connector: ConnectorItem) -> None:
        """Remove all items of a connector whose target is DELETED."""
        with suppress(GroupNotEmpty):
            # A sink that is made again begins anew, unless others read by its group.
            await self.delete_group(connector)
        key = keys.connector(connector.name)
        prefixes = (
            keys.connect_tasks_of(connector.name),
            keys.connect_offsets_of(connector.name),
        )

        async def attempt(_: bool) -> None:
            stored = await self.metadata.get(key)
            if stored is None or decode_connector(stored.value).target != DELETED:
                return  # Somebody else has finished it.
            for prefix in prefixes:
                while await self._remove_some(prefix, Check(key, stored.version)):
                    pass
            await self.metadata.transact([Delete(key, stored.version)])

        await retry(f"connector {connector.name!r}", attempt, self.world.patience)

    async def delete_group(self, connector: ConnectorItem) -> None:
        """Delete the offsets of a sink, if there are any."""
        with suppress(UnknownGroup):
            await self._coordinator.delete(group_of(connector))

    async def _remove_some(self, prefix: str, check: Check) -> bool:
        """Remove items below `prefix`; return whether there were any."""
        page = await self.metadata.list(prefix, limit=TRANSACT_OPS_MAX - 1)
        ops: list[Op] = [Delete(key, item.version) for key, item in page]
        if ops:
            await self.metadata.transact([check, *ops])
        return bool(ops)


def _shown(item: Versioned | None) -> ConnectorItem | None:
    """Return the connector of an item; None: there is none, or it was deleted."""
    if item is None:
        return None
    found = decode_connector(item.value)
    return None if found.target == DELETED else found
