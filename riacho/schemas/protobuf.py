"""Generated classes of Protobuf, written and read by registered schemas."""

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from riacho.schemas.deserializers import Deserializer
from riacho.schemas.registry import AsyncSchemaRegistry, SchemaRegistry
from riacho.schemas.serializers import IdPlace, Serializer
from riacho.schemas.subjects import SubjectStrategy
from riacho.schemas.values import RegisteredSchema, SchemaReference, SchemaText
from storage.errors import InvalidRecord

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.message import Message

    from storage.schemas.codec import Codec

_KNOWN_FILES: Final = ("google/protobuf/", "google/type/", "confluent/")
"""What every registry has; not registered."""


class ProtobufSerializer(Serializer):
    """Writes messages of a generated class.

    The file in which the message is declared is registered, and every file that it imports under a
    subject with the name of that file.
    """

    kind = "PROTOBUF"

    def __init__(
        self,
        registry: SchemaRegistry | AsyncSchemaRegistry,
        message_type: "type[Message]",
        *,
        subject_strategy: SubjectStrategy = "topic_name",
        reference_subject: Callable[[str], str] = str,
        auto_register: bool = True,
        use_latest: bool = False,
        normalize: bool = False,
        id_in: IdPlace = "prefix",
    ) -> None:
        """Prepare to serialize; nothing is asked yet.

        `reference_subject`: the subject of an imported file. The rest is as for `Serializer`.
        """
        super().__init__(
            registry,
            subject_strategy=subject_strategy,
            auto_register=auto_register,
            use_latest=use_latest,
            normalize=normalize,
            id_in=id_in,
        )
        self._descriptor: Any = message_type.DESCRIPTOR
        self._reference_subject = reference_subject

    def _record_name(self) -> str:
        return str(self._descriptor.full_name)

    async def _schema(self) -> SchemaText:
        return await self._file(self._descriptor.file)

    async def _file(self, file: "FileDescriptor") -> SchemaText:
        """Return a file as it is registered; what it imports is registered already."""
        references = []
        for each in file.dependencies:
            if each.name.startswith(_KNOWN_FILES):
                continue
            text = await self._file(each)
            subject = self._reference_subject(each.name)
            ask = self._registry.register if self._auto_register else self._registry.look_up
            made = await ask(subject, text, normalize=self._normalize)
            references.append(SchemaReference(each.name, subject, made.version))
        return SchemaText(
            text=base64.b64encode(file.serialized_pb).decode(),
            kind="PROTOBUF",
            references=tuple(references),
        )

    async def _write(self, schema: RegisteredSchema) -> Callable[[Any], bytes]:
        from storage.schemas.framing import pack_indexes

        prefix = pack_indexes(_indexes(self._descriptor))
        wanted = self._descriptor.full_name

        def write(value: Any) -> bytes:
            found = getattr(value, "DESCRIPTOR", None)
            if found is None or found.full_name != wanted:
                raise InvalidRecord(f"/: a {type(value).__name__} is no message {wanted}")
            if not value.IsInitialized():
                missing = ", ".join(value.FindInitializationErrors())
                raise InvalidRecord(f"/: required fields are missing: {missing}")
            data: bytes = value.SerializeToString()
            return prefix + data

        return write


class ProtobufDeserializer(Deserializer):
    """Reads messages of a generated class; without one, dicts by Protobuf's JSON mapping."""

    kind = "PROTOBUF"

    def __init__(
        self,
        registry: SchemaRegistry | AsyncSchemaRegistry,
        message_type: "type[Message] | None" = None,
        *,
        context: str = "",
    ) -> None:
        """`message_type`: what values are read as, whatever message of its file was written."""
        super().__init__(registry, context=context)
        self._message_type = message_type

    async def _codec(self, schema: RegisteredSchema) -> "Codec | None":
        return None if self._message_type is not None else await super()._codec(schema)

    def _read(self, codec: "Codec | None", body: bytes, place: str) -> Any:
        if self._message_type is None:
            return super()._read(codec, body, place)
        from google.protobuf.message import DecodeError

        from storage.schemas.framing import unpack_indexes

        try:
            return self._message_type.FromString(body[unpack_indexes(body)[1] :])
        except (DecodeError, ValueError) as error:
            raise InvalidRecord(f"{place}: {error}") from error


def _indexes(descriptor: "Descriptor") -> tuple[int, ...]:
    """Return where a message is in its file: the outermost first."""
    outer = descriptor.containing_type
    if outer is None:
        names = [each.full_name for each in descriptor.file.message_types_by_name.values()]
        return (names.index(descriptor.full_name),)
    names = [each.full_name for each in outer.nested_types]
    return (*_indexes(outer), names.index(descriptor.full_name))
