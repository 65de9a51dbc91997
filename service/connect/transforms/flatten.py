"""Flatten: fields of structures inside a record become fields of the record.

A field is optional if it, or one of the structures around it, was.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from service.connect.config.keys import Key, KeyType
from service.connect.config.values import Values
from service.connect.data.errors import DataFault
from service.connect.data.records import ConnectRecord
from service.connect.data.schema import UNSET, ConnectSchema, Type, default_of
from service.connect.transforms.api import Transform
from service.connect.transforms.kinds import TransformKind, key_and_value
from service.connect.transforms.sides import Change, Side, changing, struct_like

LEVELS_MAX: Final = 100
"""Of structures in structures."""

_Plan: TypeAlias = list[tuple[str, str, Any, "_Plan | None"]]
"""For each field: its name, its new name and its default; or the plan of the structure it is."""

_PLAIN: Final = frozenset({bool, int, float, str, bytes, list})


def _flatten(side: Side, values: Values) -> Transform:
    delimiter = values["delimiter"]

    def without_schema(_: ConnectRecord, value: dict[str, Any]) -> dict[str, Any]:
        flat: dict[str, Any] = {}
        _flatten_dict(value, "", delimiter, flat, 0)
        return flat

    def with_schema(schema: ConnectSchema) -> tuple[ConnectSchema, Change]:
        fields: list[tuple[str, ConnectSchema]] = []
        default = default_of(schema)
        plan = _planned(schema, "", delimiter, fields, schema.is_optional, default)

        def change(_: ConnectRecord, value: dict[str, Any]) -> dict[str, Any]:
            flat: dict[str, Any] = {}
            _flatten_struct(value, plan, flat)
            return flat

        return struct_like(schema, fields), change

    return changing(side, "flattening", without_schema, with_schema, null_passes=True)


def _flatten_dict(
    value: dict[str, Any], prefix: str, delimiter: str, flat: dict[str, Any], level: int
) -> None:
    if level > LEVELS_MAX:
        raise DataFault(f"a record of more than {LEVELS_MAX} levels")
    for key, each in value.items():
        name = f"{prefix}{delimiter}{key}" if prefix else key
        if type(each) is dict:
            _flatten_dict(each, name, delimiter, flat, level + 1)
        elif each is None or type(each) in _PLAIN:
            flat[name] = each
        else:
            raise DataFault(
                f"Flatten transformation was passed a value of type {type(each).__name__} which "
                "is not supported by Connect's data API"
            )


def _planned(
    schema: ConnectSchema,
    prefix: str,
    delimiter: str,
    fields: list[tuple[str, ConnectSchema]],
    optional: bool,
    default: dict[str, Any] | None,
) -> _Plan:
    plan: _Plan = []
    for field in schema.fields:
        name = f"{prefix}{delimiter}{field.name}" if prefix else field.name
        is_optional = optional or field.schema.is_optional
        own = default_of(field.schema)
        given = own if own is not None or default is None else default.get(field.name)
        match field.schema.type:
            case Type.STRUCT:
                below = _planned(field.schema, name, delimiter, fields, is_optional, given)
                plan.append((field.name, name, None, below))
            case Type.MAP:
                raise DataFault(
                    "Flatten transformation does not support MAP for record with schemas "
                    f"(for field {name})."
                )
            case _:
                new_default = UNSET if given is None else given
                leaf = replace(field.schema, is_optional=is_optional, default=new_default)
                fields.append((name, leaf))
                plan.append((field.name, name, own, None))
    return plan


def _flatten_struct(value: dict[str, Any], plan: _Plan, flat: dict[str, Any]) -> None:
    for name, new, default, below in plan:
        each = value.get(name)
        if below is None:
            flat[new] = default if each is None else each
        elif each is not None:
            _flatten_struct(each, below, flat)


FLATTEN: Final[Sequence[TransformKind]] = key_and_value(
    "Flatten",
    "Makes one level of nested structures; names are joined.",
    (
        Key(
            name="delimiter",
            type=KeyType.STRING,
            default=".",
            about="What stands between the names.",
        ),
    ),
    _flatten,
)
