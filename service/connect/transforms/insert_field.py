"""InsertField: where a record comes from, and constants, as fields of it."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from service.connect.config.keys import Key, KeyType
from service.connect.config.values import Values
from service.connect.data.errors import ConfigFault, DataFault
from service.connect.data.logical import timestamp_from_ms
from service.connect.data.records import ConnectRecord, FromLog
from service.connect.data.schema import INT32, INT64, STRING, TIMESTAMP_SCHEMA, ConnectSchema
from service.connect.transforms.api import Transform
from service.connect.transforms.kinds import WITH_DEFAULTS, TransformKind, key_and_value
from service.connect.transforms.sides import Change, Side, changing, filled, struct_like

_PURPOSE: Final = "field insertion"


def _topic(record: ConnectRecord) -> str:
    return record.topic


def _partition(record: ConnectRecord) -> int | None:
    return record.partition


def _offset(record: ConnectRecord) -> int:
    if not isinstance(record.origin, FromLog):
        raise DataFault(f"Only SinkRecord supported for [{_PURPOSE}], found: SourceRecord")
    return record.origin.offset


def _timestamp_ms(record: ConnectRecord) -> int | None:
    return record.timestamp_ms


def _timestamp(record: ConnectRecord) -> Any:
    return None if record.timestamp_ms is None else timestamp_from_ms(record.timestamp_ms)


_Read = Callable[[ConnectRecord], Any]

_SOURCES: Final[Sequence[tuple[str, ConnectSchema, _Read, _Read]]] = (
    ("topic.field", STRING, _topic, _topic),
    ("partition.field", INT32, _partition, _partition),
    ("offset.field", INT64, _offset, _offset),
    # Without a schema, a time is a number.
    ("timestamp.field", TIMESTAMP_SCHEMA, _timestamp_ms, _timestamp),
)


def _insert_field(side: Side, values: Values) -> Transform:
    inserted: list[tuple[str, ConnectSchema, _Read, _Read]] = []
    for key, schema, plain, typed in _SOURCES:
        if values[key] is not None:
            inserted.append((*_named(values[key], schema), plain, typed))
    if values["static.field"] is not None:
        constant = values["static.value"]
        if constant is None:
            static = values["static.field"]
            raise ConfigFault({"static.value": f"No value specified for static field: {static}"})
        name, schema = _named(values["static.field"], STRING)
        inserted.append((name, schema, lambda _: constant, lambda _: constant))
    if not inserted:
        raise ConfigFault({"topic.field": "No field insertion configured"})
    plain_reads = [(name, plain) for name, _, plain, _ in inserted]
    typed_reads = [(name, typed) for name, _, _, typed in inserted]
    with_defaults = values["replace.null.with.default"]

    def without_schema(record: ConnectRecord, value: dict[str, Any]) -> dict[str, Any]:
        return _with(record, value, plain_reads)

    def with_schema(schema: ConnectSchema) -> tuple[ConnectSchema, Change]:
        fields = [(field.name, field.schema) for field in schema.fields]
        updated = struct_like(schema, [*fields, *((name, of) for name, of, _, _ in inserted)])
        fill = filled(schema) if with_defaults else None

        def change(record: ConnectRecord, value: dict[str, Any]) -> dict[str, Any]:
            return _with(record, value if fill is None else fill(value), typed_reads)

        return updated, change

    return changing(side, _PURPOSE, without_schema, with_schema, null_passes=True)


def _with(
    record: ConnectRecord, value: dict[str, Any], reads: Sequence[tuple[str, _Read]]
) -> dict[str, Any]:
    value = dict(value)
    for name, read in reads:
        each = read(record)
        if each is not None:
            value[name] = each
    return value


def _named(said: str, schema: ConnectSchema) -> tuple[str, ConnectSchema]:
    if said.endswith("!"):
        return said[:-1], schema
    return said.removesuffix("?"), schema.optional()


def _field(name: str, about: str) -> Key:
    return Key(
        name=name,
        type=KeyType.STRING,
        default=None,
        about=f"{about} `!` at its end makes it required, `?` optional, which it is without.",
    )


INSERT_FIELD: Final[Sequence[TransformKind]] = key_and_value(
    "InsertField",
    "Adds fields that say where the record comes from, or a constant.",
    (
        _field("topic.field", "The field for the topic."),
        _field("partition.field", "The field for the partition."),
        _field("offset.field", "The field for the offset; of sinks only."),
        _field("timestamp.field", "The field for the record's time."),
        _field("static.field", "The field for `static.value`."),
        Key(name="static.value", type=KeyType.STRING, default=None, about="The constant."),
        WITH_DEFAULTS,
    ),
    _insert_field,
)
