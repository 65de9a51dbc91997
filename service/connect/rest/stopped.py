"""Whether a connector is stopped for good, so that its offsets may be changed.

A run that was told to stop still commits what it has. So a call that changes offsets first waits
until no task is leased, or until the holder of a lease has stood still for a whole lease: it is
dead. Then every change increments the connector's `offsets_epoch`, which makes whatever is late
fail. So waiting is a courtesy, and the epoch is what keeps the new offsets.
"""

from typing import Final

from msgspec.structs import replace

from service.connect.rest.errors import ConnectError, not_stopped
from service.connect.tasks.items import (
    STOPPED,
    ConnectorItem,
    decode_connector,
    encode_connector,
)
from service.transactions.guards import GuardedAnswer
from service.transactions.state import Results
from service.world.clock import World
from storage import keys, leases
from storage.stores.metadata import TRANSACT_OPS_MAX, MetadataStore, Op, Put, Versioned

LOOKS_MAX: Final = 30
LOOK_S: Final = 0.5
"""Together longer than a run takes to end, and than a lease without a holder lasts."""


async def wait_for_end(metadata: MetadataStore, world: World, connector: ConnectorItem) -> None:
    """Return when no task of the connector runs; raise 400 if one still does after a while."""
    held = await _held(metadata, connector)
    beating = True
    first = held
    for _ in range(LOOKS_MAX):
        if not held:
            return
        await world.sleep(LOOK_S)
        held = await _held(metadata, connector)
        # Who holds a lease renews it three times while it lasts.
        beating = any(first.get(key) != version for key, version in held.items())
    if held and beating:
        raise not_stopped(connector.name.removeprefix(connector.name_prefix))


async def _held(metadata: MetadataStore, connector: ConnectorItem) -> dict[str, str]:
    """Return the leases of tasks that somebody holds, with their versions."""
    wanted = [
        keys.lease(keys.connect_task(connector.name, number))
        for number in range(connector.task_count)
    ]
    found: dict[str, Versioned] = {}
    for start in range(0, len(wanted), TRANSACT_OPS_MAX):
        found |= await metadata.get_many(wanted[start : start + TRANSACT_OPS_MAX])
    return {key: item.version for key, item in found.items() if leases.decode(item.value).holder}


def next_epoch(connector: ConnectorItem, stored: Versioned | None) -> Put:
    """Return what begins an epoch of offsets, if the connector is still the one, and stopped."""
    item = None if stored is None else decode_connector(stored.value)
    if stored is None or item is None or item.created_ms != connector.created_ms:
        raise ConnectError(404, f"Connector {connector.name} not found")
    if item.target != STOPPED:
        raise not_stopped(connector.name.removeprefix(connector.name_prefix))
    new = replace(item, offsets_epoch=item.offsets_epoch + 1)
    return Put(keys.connector(connector.name), encode_connector(new), stored.version)


class EpochGuard:
    """Makes a change of a group's offsets begin an epoch. Doing it twice is harmless."""

    op_count = 1

    def __init__(self, metadata: MetadataStore, connector: ConnectorItem) -> None:
        self._metadata = metadata
        self._connector = connector

    async def look(self) -> None:
        next_epoch(self._connector, await self._metadata.get(keys.connector(self._connector.name)))

    async def ops(self, _: Results) -> list[Op]:
        stored = await self._metadata.get(keys.connector(self._connector.name))
        return [next_epoch(self._connector, stored)]

    def answer(self, results: Results) -> GuardedAnswer:
        return GuardedAnswer(results=results)
