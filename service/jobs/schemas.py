"""What decodes keys and values for typed columns: the registry, as a job finds it in the table.

Every worker reads the schemas that it needs from the table by itself, in Spark as elsewhere. The
registry and the libraries of schemas are imported when the first schema is looked up.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from service.world.clock import World
from storage import keys
from storage.errors import NotSupported
from storage.maintenance.compaction.typed import DataSchema
from storage.schemas.carried import SchemaRef
from storage.schemas.columns import Decoder
from storage.schemas.columns_of import decoder_of
from storage.schemas.columns_rows import Indexes
from storage.schemas.source import SchemaSource, SchemaType
from storage.stores.metadata import MetadataStore, pages

if TYPE_CHECKING:
    from service.registry.reading import Schema, SchemaReader

log = logging.getLogger("riacho.maintenance")

KEPT_MAX: Final = 1000
VERSIONS_MAX: Final = 100


class RegisteredSchemas:
    """The schemas in the table, as `DataSchemas`."""

    def __init__(self, metadata: MetadataStore, world: World) -> None:
        self._metadata = metadata
        self._world = world
        self._opened: SchemaReader | None = None
        self._kept: dict[SchemaRef, DataSchema | None] = {}

    async def find(self, ref: SchemaRef) -> DataSchema | None:
        """Return a schema by its GUID, or by its id in the default context.

        Raises `NotSupported` if the libraries of its type are not installed.
        """
        if ref not in self._kept:
            schema = await self._schema(ref)
            if schema is None:
                # It may be registered soon.
                return None
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept[ref] = await self._understood(schema)
        return self._kept[ref]

    async def versions(self, topic: str, column: str) -> Sequence[int]:
        """Return the ids of the versions of a topic's subject, of the oldest `VERSIONS_MAX`."""
        from service.registry.names import DEFAULT, SubjectName

        head = await self._reader().head(SubjectName(DEFAULT, f"{topic}-{column}"))
        ids = [] if head is None else [each.schema_id for each in head.versions]
        return [*dict.fromkeys(ids)][:VERSIONS_MAX]

    def _reader(self) -> "SchemaReader":
        from service.process.limits.heavy_work import HeavyWork
        from service.registry.reading import SchemaReader

        if self._opened is None:
            self._opened = SchemaReader(self._metadata, self._world, HeavyWork())
        return self._opened

    async def _schema(self, ref: SchemaRef) -> "Schema | None":
        from service.registry import items
        from service.registry.errors import RegistryError
        from service.registry.names import DEFAULT

        reader = self._reader()
        try:
            if isinstance(ref, int):
                # Most of what looks like an id by chance is larger than any.
                is_one = 1 <= ref <= (await reader.context(DEFAULT)).last_id
                return await reader.schema(DEFAULT, ref) if is_one else None
            async for page in pages(self._metadata, keys.schema_guids(keys.short_part(ref))):
                for _, item in page:
                    found = items.decode_id(item.value)
                    return await reader.schema(found.context, found.schema_id)
        except RegistryError:
            pass
        return None

    async def _understood(self, schema: "Schema") -> DataSchema | None:
        from service.registry.errors import RegistryError

        reader = self._reader()
        try:
            found = _DataSchema(schema.schema_id, await _source(reader, schema))
        except RegistryError as error:
            log.warning("schema %d has no typed columns: %s", schema.schema_id, error)
            return None
        # It takes long, and most data is of the first message.
        await reader.convert(len(schema.text), lambda: found.decoder(found.first))
        return found


async def _source(reader: "SchemaReader", schema: "Schema") -> SchemaSource:
    """Return the schema with all that it refers to; raises `RegistryError`."""
    _, named = await reader.resolved(schema.context, schema.references)
    if schema.type is not SchemaType.PROTOBUF:
        return SchemaSource(schema.type, schema.text, tuple(named))
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from service.registry.formats.protobuf.form import ProtobufSchema

    parsed = await reader.parse(schema.type, schema.text, named)
    assert isinstance(parsed, ProtobufSchema), parsed
    files = FileDescriptorSet(file=parsed.files).SerializeToString()
    return SchemaSource(schema.type, "", descriptors=files)


@dataclass(slots=True)
class _DataSchema:
    schema_id: int
    source: SchemaSource
    made: dict[Indexes, Decoder | None] = field(default_factory=dict)

    @property
    def has_indexes(self) -> bool:
        return self.source.type is SchemaType.PROTOBUF

    @property
    def first(self) -> Indexes:
        return (0,) if self.has_indexes else ()

    def decoder(self, indexes: Indexes) -> Decoder | None:
        if indexes not in self.made:
            self.made[indexes] = self._made(indexes)
        return self.made[indexes]

    def _made(self, indexes: Indexes) -> Decoder | None:
        try:
            return decoder_of(self.source, indexes)
        except ModuleNotFoundError as error:
            raise NotSupported(
                f"typed columns of schemas of type {self.source.type} need {error.name!r};"
                " pip install 'riacho[schemas]'"
            ) from None
        except Exception as error:  # noqa: BLE001 - Libraries raise what they like.
            log.warning("schema %d has no typed columns: %s", self.schema_id, error)
            return None
