"""Transforms that choose fields: ReplaceField, HoistField, ExtractField, ValueToKey."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from service.connect.config.keys import Importance, Key, KeyType
from service.connect.config.values import Values
from service.connect.data.errors import ConfigFault, DataFault
from service.connect.data.records import ConnectRecord
from service.connect.data.schema import ConnectSchema, Type, default_of, struct
from service.connect.transforms.api import Transform
from service.connect.transforms.kinds import (
    PACKAGE,
    WITH_DEFAULTS,
    TransformKind,
    fields_key,
    key_and_value,
)
from service.connect.transforms.paths import FieldPath, steps_of
from service.connect.transforms.sides import (
    KEY,
    VALUE,
    BySchema,
    Change,
    Side,
    changing,
    checked_fields,
    not_a_map,
    not_a_struct,
    struct_like,
)


def is_renames(_: str, value: Any) -> str | None:
    """Check of a list of `old:new`."""
    for each in value:
        old, colon, new = each.partition(":")
        if not colon or not new or ":" in new:
            return f"Invalid rename mapping: {each}" if old or each else "has an empty mapping"
    return None


def _replace_field(side: Side, values: Values) -> Transform:
    excluded, included = frozenset(values["exclude"]), frozenset(values["include"])
    renames: Mapping[str, str] = dict(each.split(":") for each in values["renames"])
    with_defaults = values["replace.null.with.default"]
    renamed = renames.get

    def is_kept(name: str) -> bool:
        return name not in excluded and (not included or name in included)

    def without_schema(_: ConnectRecord, value: dict[str, Any]) -> dict[str, Any]:
        return {
            renamed(name, name): each
            for name, each in value.items()
            if name not in excluded and (not included or name in included)
        }

    def with_schema(schema: ConnectSchema) -> tuple[ConnectSchema, Change]:
        kept = [field for field in schema.fields if is_kept(field.name)]
        updated = struct_like(
            schema, [(renamed(field.name, field.name), field.schema) for field in kept]
        )
        plan = [
            (field.name, new.name, default_of(field.schema) if with_defaults else None)
            for field, new in zip(kept, updated.fields, strict=True)
        ]

        def change(_: ConnectRecord, value: dict[str, Any]) -> dict[str, Any]:
            get = value.get
            return {
                new: default if (each := get(old)) is None else each for old, new, default in plan
            }

        return updated, change

    return changing(side, "field replacement", without_schema, with_schema, null_passes=True)


def _hoist_field(side: Side, values: Values) -> Transform:
    name = values["field"]
    read, replaced = side.read, side.replaced
    schemas = BySchema(
        lambda schema: ConnectSchema(Type.STRUCT, fields=checked_fields([(name, schema)]))
    )

    def transform(record: ConnectRecord) -> ConnectRecord:
        schema, value = read(record)
        if schema is None:
            return replaced(record, None, {name: value})
        if value is None and not schema.is_optional:
            raise DataFault(f'Invalid value: null used for required field: "{name}"')
        return replaced(record, schemas[schema], {name: value})

    return transform


def _extract_field(side: Side, values: Values) -> Transform:
    try:
        path = FieldPath(steps_of(values["field"], values["field.syntax.version"]))
    except ValueError as error:
        raise ConfigFault({"field": str(error)}) from None
    with_defaults = values["replace.null.with.default"]
    read, replaced, purpose = side.read, side.replaced, "field extraction"

    def plan(schema: ConnectSchema) -> tuple[ConnectSchema, Callable[[dict[str, Any]], Any]]:
        found = path.schema_in(schema)
        if found is None:
            raise DataFault(f"Unknown field: {values['field']}")
        return found, path.reader(schema, with_defaults=with_defaults)

    plans = BySchema(plan)

    def transform(record: ConnectRecord) -> ConnectRecord:
        schema, value = read(record)
        if value is not None and type(value) is not dict:
            raise not_a_map(value, purpose) if schema is None else not_a_struct(value, purpose)
        if schema is None:
            return replaced(record, None, None if value is None else path.value_in(value))
        if schema.type is not Type.STRUCT:
            raise not_a_struct(value, purpose)
        of, get = plans[schema]
        return replaced(record, of, None if value is None else get(value))

    return transform


def _value_to_key(values: Values) -> Transform:
    names: Sequence[str] = values["fields"]
    with_defaults = values["replace.null.with.default"]
    purpose = "copying fields from value to key"

    def plan(schema: ConnectSchema) -> tuple[ConnectSchema, Sequence[tuple[str, Any]]]:
        for name in names:
            if name not in schema.by_name:
                raise DataFault(f"Field does not exist: {name}")
        fields = checked_fields((name, schema.by_name[name].schema) for name in names)
        keys = struct([(field.name, field.schema) for field in fields])
        return keys, [
            (field.name, default_of(field.schema) if with_defaults else None) for field in fields
        ]

    plans = BySchema(plan)

    def transform(record: ConnectRecord) -> ConnectRecord:
        schema, value = VALUE.read(record)
        if schema is None:
            if type(value) is not dict:
                raise not_a_map(value, purpose)
            return KEY.replaced(record, None, {name: value.get(name) for name in names})
        if type(value) is not dict or schema.type is not Type.STRUCT:
            raise not_a_struct(value, purpose)
        keys, fields = plans[schema]
        key = {
            name: default if (each := value.get(name)) is None else each for name, default in fields
        }
        return KEY.replaced(record, keys, key)

    return transform


def _names(name: str, about: str) -> Key:
    return Key(name=name, type=KeyType.LIST, default=(), about=about)


FIELD_TRANSFORMS: Final[Sequence[TransformKind]] = (
    *key_and_value(
        "ReplaceField",
        "Leaves fields out or renames them.",
        (
            _names("exclude", "The fields to leave out, even if `include` names them."),
            _names("include", "The fields to keep; empty: all of them."),
            Key(
                name="renames",
                type=KeyType.LIST,
                default=(),
                about="New names of fields, as `old:new`.",
                check=is_renames,
            ),
            WITH_DEFAULTS,
        ),
        _replace_field,
    ),
    *key_and_value(
        "HoistField",
        "Makes everything the only field of a new structure.",
        (Key(name="field", type=KeyType.STRING, about="The name of the field."),),
        _hoist_field,
    ),
    *key_and_value(
        "ExtractField",
        "Puts one field in the place of the whole.",
        (
            Key(name="field", type=KeyType.STRING, about="The name of the field, or its path."),
            Key(
                name="field.syntax.version",
                type=KeyType.STRING,
                default="V1",
                importance=Importance.HIGH,
                about="V1: `field` is a name. V2: a path, `a.b`; names with dots in backticks.",
                choices=("V1", "V2"),
            ),
            WITH_DEFAULTS,
        ),
        _extract_field,
    ),
    TransformKind(
        class_name=PACKAGE + "ValueToKey",
        about="Makes the key of fields of the value.",
        keys=(fields_key("The fields that become the key."), WITH_DEFAULTS),
        make=_value_to_key,
    ),
)
