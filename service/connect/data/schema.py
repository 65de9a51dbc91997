"""Schemas of Connect's data model, and which Python value stands for which type.

    INT8 .. INT64      int           BOOLEAN  bool       ARRAY   list
    FLOAT32, FLOAT64   float         STRING   str        MAP     dict, with keys of any type
    STRUCT             dict of all fields that are set   BYTES   bytes

A logical type is a schema with one of Kafka's names; its value is the Python type that people mean:

    Decimal  BYTES, parameter `scale`   decimal.Decimal
    Date     INT32                      datetime.date
    Time     INT32                      datetime.time
    Timestamp INT64                     datetime.datetime with UTC

A value without a schema is what JSON knows: None, bool, int, float, str, list, dict; or bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, Final

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
DATE: Final = "org.apache.kafka.connect.data.Date"
TIME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"
SCALE: Final = "scale"
"""The parameter of a Decimal's schema."""


class Type(Enum):
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


class _Unset(Enum):
    UNSET = "unset"


UNSET: Final = _Unset.UNSET
"""The default of a schema without one: null may be a default."""


@dataclass(frozen=True)
class ConnectSchema:
    """What a value is. Equal schemas are interchangeable; use one object for many records."""

    type: Type
    is_optional: bool = False
    default: Any = UNSET
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    fields: tuple["ConnectField", ...] = ()
    """Of a STRUCT, in order."""
    key_schema: "ConnectSchema | None" = None
    """Of a MAP."""
    value_schema: "ConnectSchema | None" = None
    """Of the values of a MAP and the elements of an ARRAY."""

    def parameter(self, name: str) -> str | None:
        return dict(self.parameters).get(name)

    @cached_property
    def by_name(self) -> Mapping[str, "ConnectField"]:
        return {field.name: field for field in self.fields}

    def optional(self) -> "ConnectSchema":
        return self if self.is_optional else replace(self, is_optional=True)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # A default may be a list or a dict, and need not tell schemas apart here.
        parts = (self.type, self.is_optional, self.name, self.version, self.doc, self.parameters)
        return hash((parts, self.fields, self.key_schema, self.value_schema))


def default_of(schema: ConnectSchema) -> Any:
    """Return what stands for null; None: nothing does."""
    return None if schema.default is UNSET else schema.default


@dataclass(frozen=True, slots=True)
class ConnectField:
    name: str
    schema: ConnectSchema


def struct(
    fields: Sequence[tuple[str, ConnectSchema]], name: str | None = None, **more: Any
) -> ConnectSchema:
    """Return the schema of a STRUCT with these fields."""
    return ConnectSchema(
        Type.STRUCT, name=name, fields=tuple(ConnectField(each, of) for each, of in fields), **more
    )


def array(of: ConnectSchema, **more: Any) -> ConnectSchema:
    return ConnectSchema(Type.ARRAY, value_schema=of, **more)


def map_of(keys: ConnectSchema, values: ConnectSchema, **more: Any) -> ConnectSchema:
    return ConnectSchema(Type.MAP, key_schema=keys, value_schema=values, **more)


def decimal(scale: int, **more: Any) -> ConnectSchema:
    parameters = ((SCALE, str(scale)), *more.pop("parameters", ()))
    return ConnectSchema(Type.BYTES, name=DECIMAL, version=1, parameters=parameters, **more)


INT8: Final = ConnectSchema(Type.INT8)
INT16: Final = ConnectSchema(Type.INT16)
INT32: Final = ConnectSchema(Type.INT32)
INT64: Final = ConnectSchema(Type.INT64)
FLOAT32: Final = ConnectSchema(Type.FLOAT32)
FLOAT64: Final = ConnectSchema(Type.FLOAT64)
BOOLEAN: Final = ConnectSchema(Type.BOOLEAN)
STRING: Final = ConnectSchema(Type.STRING)
BYTES: Final = ConnectSchema(Type.BYTES)
DATE_SCHEMA: Final = ConnectSchema(Type.INT32, name=DATE, version=1)
TIME_SCHEMA: Final = ConnectSchema(Type.INT32, name=TIME, version=1)
TIMESTAMP_SCHEMA: Final = ConnectSchema(Type.INT64, name=TIMESTAMP, version=1)
OPTIONAL_STRING: Final = STRING.optional()
OPTIONAL_INT64: Final = INT64.optional()
