"""Positions of sources as they are stored."""

from collections.abc import Sequence

import msgspec

from service.connect.connectors.api import Position
from service.connect.tasks.items import OffsetItem, canonical, decode_offset, digest_of
from storage import keys
from storage.stores.metadata import MetadataStore, pages


class StoredOffsets:
    """The `SourceOffsets` of a connector."""

    def __init__(self, metadata: MetadataStore, connector: str) -> None:
        self._metadata = metadata
        self._connector = connector

    async def read(self, partitions: Sequence[Position]) -> list[Position | None]:
        wanted = [self._key(partition) for partition in partitions]
        found = await self._metadata.get_many(list(dict.fromkeys(wanted)))
        return [
            _offset_of(decode_offset(found[key].value)) if key in found else None for key in wanted
        ]

    async def all(self) -> list[tuple[Position, Position]]:
        prefix = keys.connect_offsets_of(self._connector)
        stored = [
            decode_offset(item.value)
            async for page in pages(self._metadata, prefix)
            for _, item in page
        ]
        return [
            (msgspec.json.decode(item.partition), offset)
            for item in stored
            if (offset := _offset_of(item)) is not None
        ]

    def _key(self, partition: Position) -> str:
        return keys.connect_offset(self._connector, digest_of(canonical(partition)))


def _offset_of(item: OffsetItem) -> Position | None:
    offset: Position | None = msgspec.json.decode(item.offset)
    return offset
