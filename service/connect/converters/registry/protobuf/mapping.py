"""Protobuf of the registry, for converters."""

from typing import TYPE_CHECKING, Any, Final

from service.connect.config.keys import Importance, Key, KeyType
from service.connect.config.values import Values
from service.connect.converters.registry.access import SchemaAccess
from service.connect.converters.registry.converter import (
    REGISTRY_KEYS,
    Read,
    RegistryConverter,
    WrittenSchema,
)
from service.connect.converters.registry.protobuf.from_connect import protobuf_of
from service.connect.data.errors import DataFault
from service.connect.data.schema import ConnectSchema
from storage.schemas.refused import DoesNotFit
from storage.schemas.source import SchemaType

if TYPE_CHECKING:
    from service.connect.converters.registry.protobuf.to_connect import ReadableMessage
    from service.http.bodies.schema_fetch import FoundSchema


class ProtobufMapping:
    kind = SchemaType.PROTOBUF

    def __init__(self, optional_for_nullables: bool) -> None:
        self._optional_for_nullables = optional_for_nullables

    def written(self, schema: ConnectSchema, *, is_exact: bool) -> WrittenSchema:
        del is_exact
        return protobuf_of(schema, optional_for_nullables=self._optional_for_nullables)

    def reader(self, found: "FoundSchema") -> Read:
        from service.connect.converters.registry.protobuf.to_connect import connect_of
        from storage.schemas.protobuf.codec import ProtobufCodec

        codec = found.codec
        assert isinstance(codec, ProtobufCodec), found
        # A file may have many messages, and each value says which it is.
        known: dict[str, ReadableMessage] = {}

        def read_body(body: bytes) -> tuple[ConnectSchema | None, Any]:
            try:
                message = codec.message_of(body)
            except DoesNotFit as error:
                raise DataFault(f"the value is not of schema {found.schema_id}: {error}") from None
            descriptor: Any = message.DESCRIPTOR
            name = descriptor.full_name
            if name not in known:
                known[name] = connect_of(
                    descriptor, optional_for_nullables=self._optional_for_nullables
                )
            schema, read = known[name]
            return schema, read(message)

        return read_body


def protobuf_converter(values: Values, is_key: bool, access: SchemaAccess) -> RegistryConverter:
    form = ProtobufMapping(values["optional.for.nullables"])
    return RegistryConverter(form, values, is_key, access)


def _only(name: str, value: bool, about: str) -> Key:
    """Return a key that has one value here."""

    def check(_: str, given: object) -> str | None:
        return None if given is value else f"only {str(value).lower()} is possible here"

    return Key(
        name=name,
        type=KeyType.BOOLEAN,
        default=value,
        importance=Importance.LOW,
        about=about,
        group="Protobuf",
        check=check,
    )


PROTOBUF_KEYS: Final = (
    *REGISTRY_KEYS,
    Key(
        name="optional.for.nullables",
        type=KeyType.BOOLEAN,
        default=False,
        about="Whether optional fields have the label `optional`, so that null comes back.",
        group="Protobuf",
    ),
    _only("enhanced.protobuf.schema.support", False, "Names of packages are not kept."),
    _only("scrub.invalid.names", False, "Names that Protobuf does not allow are refused."),
    _only("int.for.enums", False, "Enums are their names."),
    _only("optional.for.proto2", True, "The label `optional` counts in every version."),
    _only("wrapper.for.nullables", False, "Messages like StringValue are structures."),
    _only("wrapper.for.raw.primitives", True, "Only structures are written."),
    _only("generate.struct.for.nulls", False, "A message that is not there is null."),
    _only("generate.index.for.unions", True, "The fields of unions end with their index."),
    _only("flatten.unions", False, "Unions are structures."),
    _only("generalized.sum.type.support", False, "Unions are Protobuf's."),
)
