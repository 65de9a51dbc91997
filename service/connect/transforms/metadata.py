"""SetSchemaMetadata: another name or version of a schema.

Kafka does it to structures only, and fails for all other types; here every schema may be named.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from service.connect.config.keys import Importance, Key, KeyType
from service.connect.config.values import Values
from service.connect.data.errors import ConfigFault, DataFault
from service.connect.data.records import ConnectRecord
from service.connect.data.schema import ConnectSchema, Type
from service.connect.transforms.api import Transform
from service.connect.transforms.kinds import WITH_DEFAULTS, TransformKind, key_and_value
from service.connect.transforms.sides import BySchema, Side, filled


def _set_schema_metadata(side: Side, values: Values) -> Transform:
    name, version = values["schema.name"], values["schema.version"]
    if name is None and version is None:
        raise ConfigFault({"schema.name": "Neither schema name nor version configured"})
    with_defaults = values["replace.null.with.default"]

    def plan(
        schema: ConnectSchema,
    ) -> tuple[ConnectSchema, Callable[[dict[str, Any]], dict[str, Any]] | None]:
        updated = replace(
            schema,
            name=schema.name if name is None else name,
            version=schema.version if version is None else version,
        )
        is_filled = with_defaults and schema.type is Type.STRUCT
        return updated, filled(schema) if is_filled else None

    plans = BySchema(plan)

    def transform(record: ConnectRecord) -> ConnectRecord:
        schema, value = side.read(record)
        if schema is None:
            if value is None:
                return record
            raise DataFault("Schema required for [updating schema metadata]")
        updated, fill = plans[schema]
        if fill is not None and type(value) is dict:
            value = fill(value)
        return side.replaced(record, updated, value)

    return transform


SET_SCHEMA_METADATA: Final[Sequence[TransformKind]] = key_and_value(
    "SetSchemaMetadata",
    "Gives the schema another name or version.",
    (
        Key(
            name="schema.name",
            type=KeyType.STRING,
            default=None,
            importance=Importance.HIGH,
            about="The new name.",
        ),
        Key(
            name="schema.version",
            type=KeyType.INT,
            default=None,
            importance=Importance.HIGH,
            about="The new version.",
        ),
        WITH_DEFAULTS,
    ),
    _set_schema_metadata,
)
