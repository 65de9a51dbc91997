"""What checks data against a registered schema; kept, because it takes milliseconds to make."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec
import pyarrow as pa

from service.registry.reading import Schema, SchemaReader
from service.registry.validation.marks import Mark
from storage.schemas.codec import Codec, room_for
from storage.schemas.codecs import codec_of
from storage.schemas.refused import RefusedValue
from storage.schemas.source import SchemaSource, SchemaType

KEPT_MAX: Final = 64
"""Maximum number of schemas whose checkers are kept."""

COST: Final = 4
"""To check a byte takes as long as to decode so many of JSON."""


class Checker:
    """Checks values of one schema; safe for threads."""

    def __init__(self, kind: SchemaType, codec: Codec) -> None:
        self._kind = kind
        self._codec = codec

    def refused(self, values: pa.Array, mark: Mark) -> list[RefusedValue]:
        """Return which of the values, all with this mark and none of them null, do not fit."""
        bodies: list[bytes] = values.to_pylist()
        if mark.schema is None and self._kind is not SchemaType.JSON:
            return self._unlike_json(bodies)
        if mark.skipped:
            bodies = [body[mark.skipped :] for body in bodies]
        if mark.lead and self._kind is SchemaType.PROTOBUF:
            bodies = [mark.lead + body for body in bodies]
        return self._codec.validate_many(bodies)

    def _unlike_json(self, bodies: Sequence[bytes]) -> list[RefusedValue]:
        """Return which of these values, as JSON, would not become data of the schema."""
        values, broken = [], []
        for index, body in enumerate(bodies):
            value: Any = None
            try:
                value = msgspec.json.decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                broken.append(RefusedValue(index, "", f"it is not JSON: {error}"))
            else:
                if value is None:
                    broken.append(RefusedValue(index, "", "it is the word null"))
            values.append(value)
        found = [*broken, *self._codec.encode_many(values, room_for(bodies)).refused]
        return sorted(found, key=lambda each: each.index)


class Checkers:
    """The checkers of a gateway."""

    def __init__(self, reader: SchemaReader) -> None:
        self._reader = reader
        self._kept: OrderedDict[tuple[str, int], Checker] = OrderedDict()

    async def checker(self, schema: Schema) -> Checker:
        """Return what checks data of a schema, or raise `InvalidSchema`."""
        key = schema.context, schema.schema_id
        kept = self._kept.get(key)
        if kept is None:
            source = await self._source(schema)
            codec = await self._reader.convert(COST * len(schema.text), lambda: codec_of(source))
            kept = self._kept[key] = Checker(schema.type, codec)
            if len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return kept

    async def _source(self, schema: Schema) -> SchemaSource:
        if schema.type is not SchemaType.PROTOBUF:
            _, named = await self._reader.resolved(schema.context, schema.references)
            return SchemaSource(schema.type, schema.text, tuple(named))
        parsed = await self._reader.parsed(schema)
        # Imported here: only Protobuf needs it.
        from google.protobuf.descriptor_pb2 import FileDescriptorSet

        from service.registry.formats.protobuf.form import ProtobufSchema

        files = cast(ProtobufSchema, parsed).files
        descriptors = FileDescriptorSet(file=files).SerializeToString()
        return SchemaSource(schema.type, schema.text, descriptors=descriptors)
