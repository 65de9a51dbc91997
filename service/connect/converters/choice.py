"""Which converter a class name means, and which keys it has.

Names are Java's, ours are the same without their package: `JsonConverter`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from service.connect.config.keys import Key
from service.connect.config.values import Values
from service.connect.converters.api import Converter, HeaderConverter, Settings
from service.connect.converters.headers import SimpleHeaderConverter, ValueHeaderConverter
from service.connect.converters.json.converter import JSON_KEYS, JsonConverter
from service.connect.converters.plain import (
    STRING_KEYS,
    BooleanConverter,
    ByteArrayConverter,
    NumberConverter,
    StringConverter,
)
from service.connect.converters.registry.access import NoRegistry, SchemaAccess
from service.connect.converters.registry.avro.mapping import AVRO_KEYS, avro_converter
from service.connect.converters.registry.json_schema.mapping import (
    JSON_SCHEMA_KEYS,
    json_schema_converter,
)
from service.connect.converters.registry.protobuf.mapping import PROTOBUF_KEYS, protobuf_converter
from service.connect.data.errors import ConfigFault, DataFault
from service.connect.data.schema import Type

_STORAGE: Final = "org.apache.kafka.connect.storage."
_CONFLUENT: Final = "io.confluent.connect."
_CONVERTERS: Final = "org.apache.kafka.connect.converters."


@dataclass(frozen=True, slots=True, kw_only=True)
class ConverterKind:
    """A converter that a configuration may name."""

    class_name: str
    """Java's, in full."""
    about: str
    keys: Sequence[Key] = ()
    make: Callable[[Values, bool, SchemaAccess], Converter]
    """Takes its settings, whether it is for keys, and the registry."""
    uses_registry: bool = False

    @property
    def short_name(self) -> str:
        return self.class_name.rpartition(".")[2]


def _json(values: Values, _: bool, __: SchemaAccess) -> Converter:
    return JsonConverter(
        with_schemas=values["schemas.enable"],
        schemas_max=values["schemas.cache.size"],
        schema_content=values["schema.content"],
        numeric_decimals=values["decimal.format"].upper() == "NUMERIC",
        with_defaults=values["replace.null.with.default"],
    )


def _number(name: str, kind: Type, form: str) -> ConverterKind:
    return ConverterKind(
        class_name=_CONVERTERS + name,
        about=f"A number of type {kind.value}, big-endian.",
        make=lambda *_: NumberConverter(kind, form),
    )


CONVERTERS: Final[Sequence[ConverterKind]] = (
    ConverterKind(
        class_name=_STORAGE + "StringConverter",
        about="Text.",
        keys=STRING_KEYS,
        make=lambda values, *_: StringConverter(values["converter.encoding"]),
    ),
    ConverterKind(
        class_name=_CONVERTERS + "ByteArrayConverter",
        about="Bytes as they are.",
        make=lambda *_: ByteArrayConverter(),
    ),
    ConverterKind(
        class_name="org.apache.kafka.connect.json.JsonConverter",
        about="JSON, with the schema in each value or without one.",
        keys=JSON_KEYS,
        make=_json,
    ),
    _number("ShortConverter", Type.INT16, ">h"),
    _number("IntegerConverter", Type.INT32, ">i"),
    _number("LongConverter", Type.INT64, ">q"),
    _number("FloatConverter", Type.FLOAT32, ">f"),
    _number("DoubleConverter", Type.FLOAT64, ">d"),
    ConverterKind(
        class_name=_CONVERTERS + "BooleanConverter",
        about="One byte, 0 or 1.",
        make=lambda *_: BooleanConverter(),
    ),
    ConverterKind(
        class_name=_CONFLUENT + "avro.AvroConverter",
        about="Avro, with schemas in this log's registry.",
        keys=AVRO_KEYS,
        make=avro_converter,
        uses_registry=True,
    ),
    ConverterKind(
        class_name=_CONFLUENT + "json.JsonSchemaConverter",
        about="JSON, with schemas in this log's registry.",
        keys=JSON_SCHEMA_KEYS,
        make=json_schema_converter,
        uses_registry=True,
    ),
    ConverterKind(
        class_name=_CONFLUENT + "protobuf.ProtobufConverter",
        about="Protobuf, with schemas in this log's registry.",
        keys=PROTOBUF_KEYS,
        make=protobuf_converter,
        uses_registry=True,
    ),
)

SIMPLE_HEADERS: Final = _STORAGE + "SimpleHeaderConverter"

_BY_NAME: Final[Mapping[str, ConverterKind]] = {
    name: kind for kind in CONVERTERS for name in (kind.class_name, kind.short_name)
}


def converter_kind(class_name: str) -> ConverterKind | None:
    """Return what a class name means; None: there is no such converter."""
    return _BY_NAME.get(class_name.strip())


def is_header_converter(class_name: str) -> bool:
    kind = converter_kind(class_name)
    return _is_simple(class_name) or (kind is not None and not kind.uses_registry)


def converter_of(
    class_name: str,
    settings: Settings,
    *,
    is_key: bool,
    key: str,
    registry: SchemaAccess | None = None,
) -> Converter:
    """Return the converter that the configuration names in `key`, like `value.converter`.

    `settings` is what stands below `key`, without it. Without a registry, converters that need one
    can be made and not used. Raises `ConfigFault`.
    """
    kind = converter_kind(class_name)
    if kind is None:
        names = ", ".join(each.short_name for each in CONVERTERS)
        raise ConfigFault({key: f"there is no converter {class_name!r}; there are {names}"})
    try:
        return kind.make(Values(kind.keys, settings), is_key, registry or NoRegistry())
    except ConfigFault as fault:
        raise ConfigFault(
            {f"{key}.{name}": text for name, text in fault.problems.items()}
        ) from None
    except DataFault as fault:
        raise ConfigFault({f"{key}.schema.content": str(fault)}) from None


def header_converter_of(
    class_name: str, settings: Settings, *, key: str = "header.converter"
) -> HeaderConverter:
    """Return the converter of headers that the configuration names. Raises `ConfigFault`."""
    if _is_simple(class_name):
        return SimpleHeaderConverter()
    kind = converter_kind(class_name)
    if kind is not None and kind.uses_registry:
        raise ConfigFault({key: f"{kind.short_name} is for keys and values, and not for headers"})
    return ValueHeaderConverter(converter_of(class_name, settings, is_key=False, key=key))


def _is_simple(class_name: str) -> bool:
    return class_name.strip() in (SIMPLE_HEADERS, "SimpleHeaderConverter")
