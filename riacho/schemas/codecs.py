"""Codecs of registered schemas, with all that they refer to; each is made once."""

import asyncio
import base64
from collections import OrderedDict
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from riacho.schemas.registry import AsyncSchemaRegistry
from riacho.schemas.values import RegisteredSchema, SchemaReference
from storage.errors import InvalidRecord, UnknownSchema

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    from storage.schemas.codec import Codec
    from storage.schemas.source import Named, SchemaSource

CODECS_KEPT_MAX: Final = 200
REFERENCED_MAX: Final = 500

KNOWN_LATER_S: Final = 1.5
"""Longer than a gateway believes what it knows of a subject."""

_KNOWN_FILES: Final = ("google/protobuf/", "google/type/", "confluent/")
"""Files that Protobuf schemas import without registering them. Only these come from modules."""


class Codecs:
    """Makes codecs, and keeps them."""

    def __init__(self, registry: AsyncSchemaRegistry, *, is_natural: bool = False) -> None:
        """`is_natural`: Avro's values are decoded as Python has them, and not as JSON."""
        self.registry = registry
        self._is_natural = is_natural
        self._kept: OrderedDict[object, Codec] = OrderedDict()

    async def of(self, schema: RegisteredSchema, indexes: tuple[int, ...] = (0,)) -> "Codec":
        """Return the codec of a schema; `indexes` say which message of Protobuf it encodes.

        Raises `InvalidRecord` if a library for the type is not installed, or rejects the schema.
        """
        key = (schema.kind, schema.text, schema.references, indexes)
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return kept
        from storage.schemas.source import InvalidSchema

        try:
            codec = await self._made(schema, indexes)
        except InvalidSchema as error:
            raise InvalidRecord(f"schema {schema.id or schema.guid}: {error}") from error
        self._kept[key] = codec
        if len(self._kept) > CODECS_KEPT_MAX:
            self._kept.popitem(last=False)
        return codec

    async def _made(self, schema: RegisteredSchema, indexes: tuple[int, ...]) -> "Codec":
        from storage.schemas.codecs import codec_of
        from storage.schemas.source import SchemaType

        source = await self.source_of(schema)
        if source.type is SchemaType.PROTOBUF:
            return _protobuf_codec(source, indexes)
        if source.type is SchemaType.AVRO and self._is_natural:
            from storage.schemas.avro.codec import AvroCodec

            return AvroCodec(source, natural=True)
        return codec_of(source)

    async def source_of(self, schema: RegisteredSchema) -> "SchemaSource":
        """Return all that a codec is made of."""
        from storage.schemas.source import SchemaSource, SchemaType

        kind = SchemaType(schema.kind)
        if kind is SchemaType.PROTOBUF:
            return SchemaSource(kind, "", descriptors=await self._descriptors(schema))
        return SchemaSource(kind, schema.text, tuple(await self._named(schema)))

    async def _named(self, schema: RegisteredSchema) -> "list[Named]":
        """Return what a schema refers to, dependencies first."""
        from storage.schemas.source import Named

        found = await self._references(schema)
        return [Named(name, each.text) for name, each in found.items()]

    async def _references(self, schema: RegisteredSchema, form: str = "") -> dict[str, Any]:
        found: dict[str, RegisteredSchema] = {}

        async def follow(references: tuple[SchemaReference, ...], inside: str) -> None:
            for each in references:
                if each.name in found:
                    continue
                if len(found) >= REFERENCED_MAX:
                    raise InvalidRecord(f"the schema refers to more than {REFERENCED_MAX} others")
                subject = each.subject if each.subject.startswith(":.") else inside + each.subject
                there = await self.registry.version(subject, each.version, form=form, deleted=True)
                await follow(there.references, _context(subject))
                found[each.name] = there

        await follow(schema.references, _context(schema.subject))
        return found

    async def _referenced(self, subject: str, version: int, form: str) -> RegisteredSchema:
        """Return what a schema refers to, which is there as long as the schema is."""
        try:
            return await self.registry.version(subject, version, form=form, deleted=True)
        except UnknownSchema:
            # It was registered a moment ago, by another gateway than the one that we ask.
            await asyncio.sleep(KNOWN_LATER_S)
            return await self.registry.version(subject, version, form=form, deleted=True)

    async def _descriptors(self, schema: RegisteredSchema) -> bytes:
        """Return the descriptors of a Protobuf schema: what it imports first."""
        from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

        root = await self._serialized(schema)
        files: dict[str, FileDescriptorProto] = {}
        for name, each in (await self._references(schema, "serialized")).items():
            files[name] = FileDescriptorProto.FromString(base64.b64decode(each.text))
            files[name].name = name
        found = FileDescriptorSet()
        seen: set[str] = set()

        def add(file: FileDescriptorProto) -> None:
            seen.add(file.name)
            for name in file.dependency:
                if name not in seen:
                    add(files[name] if name in files else _known_file(name))
            found.file.append(file)

        add(FileDescriptorProto.FromString(base64.b64decode(root)))
        return found.SerializeToString()

    async def _serialized(self, schema: RegisteredSchema) -> str:
        if schema.subject and schema.version:
            asked = self.registry.version(
                schema.subject, schema.version, form="serialized", deleted=True
            )
        else:
            subject = _context(schema.subject)
            asked = self.registry.schema(
                schema.id or schema.guid, form="serialized", subject=subject
            )
        return (await asked).text


def _protobuf_codec(source: "SchemaSource", indexes: tuple[int, ...]) -> "Codec":
    from storage.schemas.source import InvalidSchema

    try:
        from storage.schemas.protobuf.codec import ProtobufCodec
    except ModuleNotFoundError as error:
        raise InvalidSchema(f"it needs {error.name!r}; pip install 'riacho[schemas]'") from None
    return ProtobufCodec(source, indexes)


def _known_file(name: str) -> "FileDescriptorProto":
    """Return a file that comes with Protobuf, or with Google's or Confluent's packages."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    from storage.schemas.source import InvalidSchema

    module = f"{name.removesuffix('.proto').replace('/', '.')}_pb2"
    if not name.startswith(_KNOWN_FILES) or not module.replace(".", "").isidentifier():
        raise InvalidSchema(f"it imports {name!r:.100}, which is not among its references")
    if module.startswith("confluent."):
        module = f"confluent_kafka.schema_registry.{module}"
    try:
        loaded = import_module(module)
    except ImportError:
        raise InvalidSchema(f"it imports {name!r:.100}, which is not installed here") from None
    found = FileDescriptorProto()
    loaded.DESCRIPTOR.CopyToProto(found)
    return found


def _context(subject: str) -> str:
    """Return the context of a subject as names have it in front; empty: the default one."""
    end = subject.find(":", 2) if subject.startswith(":.") else -1
    return subject[: end + 1]
