"""Avro files. The marker between blocks is made of the file's name, so that equal is equal."""

import hashlib
import re
from typing import IO, Any, Final, cast

from service.connect.connectors.objects.formats.api import FileWriter, OpenWriter
from service.connect.connectors.objects.formats.spool import Spool
from service.connect.connectors.objects.formats.strict import precision_of, strict
from service.connect.data.errors import DataFault
from service.connect.data.logical import scale_of
from service.connect.data.schema import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    UNSET,
    ConnectSchema,
    Type,
)

BLOCK_BYTES: Final = 64_000
DIGITS_MAX: Final = 64
"""Of decimals whose schema does not say how many they have, as Confluent's converter has it."""

CODECS: Final = {"null": "null", "deflate": "deflate", "bzip2": "bzip2"}
_DEFAULT_NAME: Final = "ConnectDefault"
_TYPES: Final = {
    Type.INT8: "int",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_LOGICAL: Final = {
    DATE: {"type": "int", "logicalType": "date"},
    TIME: {"type": "int", "logicalType": "time-millis"},
    TIMESTAMP: {"type": "long", "logicalType": "timestamp-millis"},
}


def avro_files(codec: str) -> OpenWriter:
    def begin(spool: Spool, schema: ConnectSchema | None, name: str) -> FileWriter:
        if schema is None:
            raise DataFault("AvroFormat needs values with a schema: use another converter")
        return _Avro(spool, schema, name, codec)

    return begin


class _Avro:
    def __init__(self, spool: Spool, schema: ConnectSchema, name: str, codec: str) -> None:
        from fastavro import parse_schema
        from fastavro.write import Writer

        self.check = strict(schema, digits=DIGITS_MAX, pairs=False)
        self._writer = Writer(
            cast(IO[bytes], spool),
            parse_schema(avro_schema(schema)),
            codec=codec,
            sync_interval=BLOCK_BYTES,
            sync_marker=hashlib.sha256(name.encode()).digest()[:16],
        )
        self.append = self._writer.write

    held_bytes = 0
    """A block at most, which is not counted."""

    def settle(self) -> None:
        """Do nothing: blocks are written when they are full."""

    def finish(self) -> None:
        self._writer.flush()


def avro_schema(schema: ConnectSchema) -> Any:
    """Return the schema as Avro's, in Python's values of its JSON."""
    return _Naming().schema(schema, _DEFAULT_NAME)


class _Naming:
    """Gives each struct a name of its own: Avro has no records without one."""

    def __init__(self) -> None:
        self._known: dict[str, ConnectSchema] = {}

    def schema(self, schema: ConnectSchema, hint: str) -> Any:
        said = self._plain(schema, hint)
        return ["null", said] if schema.is_optional else said

    def _plain(self, schema: ConnectSchema, hint: str) -> Any:
        if schema.name == DECIMAL:
            digits, scale = precision_of(schema, DIGITS_MAX), scale_of(schema)
            return {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": scale}
        if schema.name in _LOGICAL:
            return _LOGICAL[schema.name]
        match schema.type:
            case Type.STRUCT:
                return self._struct(schema, hint)
            case Type.ARRAY:
                assert schema.value_schema is not None, schema
                return {"type": "array", "items": self.schema(schema.value_schema, f"{hint}_item")}
            case Type.MAP:
                return self._map(schema, hint)
            case _:
                return _TYPES[schema.type]

    def _map(self, schema: ConnectSchema, hint: str) -> Any:
        assert schema.key_schema is not None, schema
        assert schema.value_schema is not None, schema
        values = self.schema(schema.value_schema, f"{hint}_value")
        if schema.key_schema.type is Type.STRING and not schema.key_schema.is_optional:
            return {"type": "map", "values": values}
        fields = [
            {"name": "key", "type": self.schema(schema.key_schema, f"{hint}_key")},
            {"name": "value", "type": values},
        ]
        name = self._name(f"{hint}_entry", schema)
        return {"type": "array", "items": {"type": "record", "name": name, "fields": fields}}

    def _struct(self, schema: ConnectSchema, hint: str) -> Any:
        wanted = _avro_name(schema.name or hint)
        required = schema if not schema.is_optional else _required(schema)
        if self._known.get(wanted) == required:
            return wanted
        name = self._name(wanted, required)
        fields = []
        for field in schema.fields:
            if _avro_name(field.name) != field.name or "." in field.name:
                raise DataFault(f"{field.name!r} cannot be the name of an Avro field")
            said: dict[str, Any] = {
                "name": field.name,
                "type": self.schema(field.schema, f"{name.rpartition('.')[2]}_{field.name}"),
            }
            if field.schema.is_optional and field.schema.default in (UNSET, None):
                said["default"] = None
            fields.append(said)
        return {"type": "record", "name": name, "fields": fields}

    def _name(self, wanted: str, schema: ConnectSchema) -> str:
        name, number = wanted, 1
        while name in self._known:
            number += 1
            name = f"{wanted}_{number}"
        self._known[name] = schema
        return name


def _required(schema: ConnectSchema) -> ConnectSchema:
    from dataclasses import replace

    return replace(schema, is_optional=False)


def _avro_name(text: str) -> str:
    parts = [re.sub(r"[^A-Za-z0-9_]", "_", part) for part in text.split(".") if part]
    return ".".join(f"_{part}" if part[:1].isdigit() else part for part in parts) or "_"
