"""The schema registry as a connector may use it: with the ACLs of its principal as they are now."""

from typing import TYPE_CHECKING

from service.connect.access.parts import ConnectParts
from service.connect.access.rights import caller_of
from service.connect.converters.registry.access import RegistryAccess
from service.connect.tasks.items import ConnectorItem
from storage.schemas.source import SchemaType

if TYPE_CHECKING:
    from service.http.bodies.schema_fetch import FoundSchema


class ConnectorRegistry:
    """Implements `SchemaAccess` for one run of a task."""

    def __init__(self, parts: ConnectParts, connector: ConnectorItem) -> None:
        self._parts = parts
        self._connector = connector

    async def by_id(self, schema_id: int) -> "FoundSchema":
        return await (await self._access()).by_id(schema_id)

    async def registered(
        self, subject: str, kind: SchemaType, text: str, *, normalize: bool
    ) -> "FoundSchema":
        access = await self._access()
        return await access.registered(subject, kind, text, normalize=normalize)

    async def looked_up(
        self, subject: str, kind: SchemaType, text: str, *, normalize: bool
    ) -> "FoundSchema":
        access = await self._access()
        return await access.looked_up(subject, kind, text, normalize=normalize)

    async def latest(self, subject: str) -> "FoundSchema":
        return await (await self._access()).latest(subject)

    async def _access(self) -> RegistryAccess:
        gateway = self._parts.gateway
        caller = await caller_of(self._parts, self._connector)
        return RegistryAccess(gateway.schemas, gateway.schema_codecs, caller)
