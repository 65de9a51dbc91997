"""Codecs of registered schemas, kept because they take milliseconds to make."""

from collections import OrderedDict
from typing import Final

from service.http.bodies.schema_fetch import FoundSchema
from service.registry.errors import invalid_schema
from service.registry.reading import Schema, SchemaReader
from storage.schemas.codecs import codec_of
from storage.schemas.source import InvalidSchema, SchemaSource, SchemaType

CODECS_KEPT_MAX: Final = 500
TEXT_KEPT_BYTES_MAX: Final = 4 * 1024 * 1024
"""Maximum size of all schemas whose codecs are kept: a codec takes some 20 times as much."""

TEXT_BYTES_MAX: Final = 256 * 1024
"""The codec of a larger schema is made whenever it is needed."""

CODEC_BYTES: Final = 64 * 1024
"""To make a codec takes as long as to decode so many bytes, at least."""


class SchemaCodecs:
    def __init__(self, reader: SchemaReader) -> None:
        self._reader = reader
        self._kept: OrderedDict[tuple[str, int], tuple[FoundSchema, int]] = OrderedDict()
        self._kept_bytes = 0

    def kept(self, context: str, schema_id: int) -> FoundSchema | None:
        """Return the schema if its codec is there already."""
        kept = self._kept.get((context, schema_id))
        return None if kept is None else kept[0]

    async def found(self, schema: Schema) -> FoundSchema:
        """Return the schema with its codec, or raise 42201."""
        key = schema.context, schema.schema_id
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key][0]
        source = await self._source(schema)
        # Other requests are answered meanwhile.
        size_bytes = 4 * len(schema.text) + CODEC_BYTES
        try:
            codec = await self._reader.convert(size_bytes, lambda: codec_of(source))
        except InvalidSchema as error:
            raise invalid_schema(str(error)) from None
        found = FoundSchema(schema.schema_id, schema.type, codec)
        self._keep(key, found, len(source.text) + sum(len(each.text) for each in source.references))
        return found

    async def _source(self, schema: Schema) -> SchemaSource:
        _, named = await self._reader.resolved(schema.context, schema.references)
        if schema.type is not SchemaType.PROTOBUF:
            return SchemaSource(schema.type, schema.text, tuple(named))
        from service.registry.formats.protobuf.form import descriptors_of

        parsed = await self._reader.parse(schema.type, schema.text, named)
        return SchemaSource(schema.type, schema.text, (), descriptors_of(parsed))

    def _keep(self, key: tuple[str, int], found: FoundSchema, size_bytes: int) -> None:
        if size_bytes > TEXT_BYTES_MAX or key in self._kept:
            return
        self._kept[key] = found, size_bytes
        self._kept_bytes += size_bytes
        while self._kept_bytes > TEXT_KEPT_BYTES_MAX or len(self._kept) > CODECS_KEPT_MAX:
            _, (_, gone_bytes) = self._kept.popitem(last=False)
            self._kept_bytes -= gone_bytes
