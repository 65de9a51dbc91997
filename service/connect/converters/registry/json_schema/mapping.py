"""JSON Schema of the registry, for converters."""

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec

from service.connect.config.keys import Importance, Key, KeyType, one_of
from service.connect.config.values import Values
from service.connect.converters.registry.access import SchemaAccess
from service.connect.converters.registry.converter import (
    REGISTRY_KEYS,
    Read,
    RegistryConverter,
    WrittenSchema,
)
from service.connect.converters.registry.json_schema.from_connect import (
    JsonSchemaOptions,
    json_schema_of,
)
from service.connect.data.errors import DataFault
from service.connect.data.schema import ConnectSchema
from storage.schemas.source import SchemaType

if TYPE_CHECKING:
    from service.http.bodies.schema_fetch import FoundSchema

_EXACT: Final = msgspec.json.Decoder(float_hook=Decimal)


class JsonSchemaMapping:
    kind = SchemaType.JSON

    def __init__(self, options: JsonSchemaOptions, optional_unless_required: bool) -> None:
        self._options = options
        self._optional_unless_required = optional_unless_required

    def written(self, schema: ConnectSchema, *, is_exact: bool) -> WrittenSchema:
        del is_exact
        return json_schema_of(schema, self._options)

    def reader(self, found: "FoundSchema") -> Read:
        from service.connect.converters.registry.json_schema.to_connect import (
            connect_of,
            value_reader,
        )
        from storage.schemas.json_schema.codec import JsonCodec

        assert isinstance(found.codec, JsonCodec), found
        schema = connect_of(
            found.codec.documents, optional_unless_required=self._optional_unless_required
        )
        read = value_reader(schema)

        def read_body(body: bytes) -> tuple[ConnectSchema | None, Any]:
            try:
                return schema, read(_EXACT.decode(body))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise DataFault(f"the value is not JSON: {error}") from None

        return read_body


def json_schema_converter(values: Values, is_key: bool, access: SchemaAccess) -> RegistryConverter:
    options = JsonSchemaOptions(
        additional_properties=values["object.additional.properties"],
        numeric_decimals=values["decimal.format"].upper() == "NUMERIC",
    )
    form = JsonSchemaMapping(options, values["use.optional.for.nonrequired"])
    return RegistryConverter(form, values, is_key, access)


JSON_SCHEMA_KEYS: Final = (
    *REGISTRY_KEYS,
    Key(
        name="object.additional.properties",
        type=KeyType.BOOLEAN,
        default=True,
        about="Whether objects may have more properties than their schema says.",
        group="JSON Schema",
    ),
    Key(
        name="use.optional.for.nonrequired",
        type=KeyType.BOOLEAN,
        default=False,
        about="Whether properties that are not required are optional fields.",
        group="JSON Schema",
    ),
    Key(
        name="decimal.format",
        type=KeyType.STRING,
        default="BASE64",
        importance=Importance.LOW,
        about="Whether decimals are written as BASE64 or as numbers.",
        group="JSON Schema",
        choices=("BASE64", "NUMERIC"),
        check=one_of("BASE64", "NUMERIC"),
    ),
)
