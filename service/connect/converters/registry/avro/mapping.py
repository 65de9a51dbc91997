"""Avro of the registry, for converters."""

from typing import TYPE_CHECKING, Any, Final

from service.connect.config.keys import Importance, Key, KeyType
from service.connect.config.values import Values
from service.connect.converters.registry.access import SchemaAccess
from service.connect.converters.registry.avro.from_connect import AvroOptions, avro_of
from service.connect.converters.registry.avro.to_connect import connect_of
from service.connect.converters.registry.converter import (
    REGISTRY_KEYS,
    Read,
    RegistryConverter,
    WrittenSchema,
    decoded,
)
from service.connect.data.schema import ConnectSchema
from storage.schemas.source import SchemaType

if TYPE_CHECKING:
    from service.http.bodies.schema_fetch import FoundSchema


class AvroMapping:
    kind = SchemaType.AVRO

    def __init__(self, options: AvroOptions) -> None:
        self._options = options

    def written(self, schema: ConnectSchema, *, is_exact: bool) -> WrittenSchema:
        return avro_of(schema, self._options, tagged=is_exact)

    def reader(self, found: "FoundSchema") -> Read:
        from storage.schemas.avro.codec import AvroCodec

        assert isinstance(found.codec, AvroCodec), found
        schema, read = connect_of(found.codec.tree)

        def read_body(body: bytes) -> tuple[ConnectSchema | None, Any]:
            return schema, read(decoded(found, body))

        return read_body


def avro_converter(values: Values, is_key: bool, access: SchemaAccess) -> RegistryConverter:
    options = AvroOptions(
        with_metadata=values["connect.meta.data"],
        optional_map_keys=values["allow.optional.map.keys"],
    )
    return RegistryConverter(AvroMapping(options), values, is_key, access)


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
        group="Avro",
        check=check,
    )


AVRO_KEYS: Final = (
    *REGISTRY_KEYS,
    Key(
        name="connect.meta.data",
        type=KeyType.BOOLEAN,
        default=True,
        importance=Importance.LOW,
        about="Whether attributes of Avro's schema keep what only Connect knows.",
        group="Avro",
    ),
    Key(
        name="allow.optional.map.keys",
        type=KeyType.BOOLEAN,
        default=False,
        importance=Importance.LOW,
        about="Whether a map with optional strings as keys is a map in Avro.",
        group="Avro",
    ),
    _only("enhanced.avro.schema.support", False, "Enums and names of packages are not kept."),
    _only("scrub.invalid.names", False, "Names that Avro does not allow are refused."),
    _only("flatten.singleton.unions", True, "A union of one type is that type."),
    _only("discard.type.doc.default", False, "Documentation and defaults are kept."),
    _only("generalized.sum.type.support", False, "Unions are Avro's, not those of all formats."),
)
