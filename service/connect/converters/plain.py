"""Converters of single values: text, bytes, numbers and booleans."""

import codecs
import struct
from collections.abc import Sequence
from typing import Any, Final

from service.connect.config.keys import Importance, Key, KeyType
from service.connect.data.errors import DataFault
from service.connect.data.java_text import java_text
from service.connect.data.schema import ConnectSchema, Type

OPTIONAL_STRING: Final = ConnectSchema(Type.STRING, is_optional=True)
OPTIONAL_BYTES: Final = ConnectSchema(Type.BYTES, is_optional=True)
OPTIONAL_BOOLEAN: Final = ConnectSchema(Type.BOOLEAN, is_optional=True)


def _is_encoding(_: str, value: Any) -> str | None:
    try:
        codecs.lookup(str(value))
    except LookupError:
        return f"{value!r} is not the name of a character set"
    return None


STRING_KEYS: Final = (
    Key(
        name="converter.encoding",
        type=KeyType.STRING,
        default="UTF-8",
        importance=Importance.HIGH,
        about="The character set of strings.",
        group="Encoding",
        display_name="Encoding",
        check=_is_encoding,
    ),
)


class _Plain:
    """A converter that needs to read and register nothing."""

    async def prepare(self, topic: str, batch: Sequence[bytes | None]) -> None:
        del topic, batch

    async def prepare_write(self, topic: str, schemas: Sequence[ConnectSchema | None]) -> None:
        del topic, schemas


class StringConverter(_Plain):
    """Text. What is not text is stored as Java's `toString` prints it; it comes back as text."""

    def __init__(self, encoding: str = "UTF-8") -> None:
        self._encoding = encoding

    def to_data(self, topic: str, data: bytes | None) -> tuple[ConnectSchema | None, Any]:
        del topic
        return OPTIONAL_STRING, None if data is None else data.decode(self._encoding, "replace")

    def to_bytes(self, topic: str, schema: ConnectSchema | None, value: Any) -> bytes | None:
        del topic
        if value is None:
            return None
        text = value if type(value) is str else java_text(schema, value)
        return text.encode(self._encoding, "replace")


class ByteArrayConverter(_Plain):
    """Bytes, as they are."""

    def to_data(self, topic: str, data: bytes | None) -> tuple[ConnectSchema | None, Any]:
        del topic
        return OPTIONAL_BYTES, data

    def to_bytes(self, topic: str, schema: ConnectSchema | None, value: Any) -> bytes | None:
        del topic
        if schema is not None and schema.type is not Type.BYTES:
            raise DataFault(f"Invalid schema type for ByteArrayConverter: {schema.type.name}")
        if value is not None and not isinstance(value, bytes):
            raise DataFault(
                f"ByteArrayConverter is not compatible with objects of type {type(value).__name__}"
            )
        return value


class NumberConverter(_Plain):
    """A number of one type, big-endian."""

    def __init__(self, kind: Type, form: str) -> None:
        self._kind = kind
        self._form = struct.Struct(form)
        self._schema = ConnectSchema(kind, is_optional=True)
        self._python = float if kind in (Type.FLOAT32, Type.FLOAT64) else int

    def to_data(self, topic: str, data: bytes | None) -> tuple[ConnectSchema | None, Any]:
        del topic
        if data is None:
            return self._schema, None
        try:
            return self._schema, self._form.unpack(data)[0]
        except struct.error:
            raise DataFault(
                f"Failed to deserialize {self._kind.value}: it has {len(data)} bytes, "
                f"and not {self._form.size}"
            ) from None

    def to_bytes(self, topic: str, schema: ConnectSchema | None, value: Any) -> bytes | None:
        del topic
        if value is None:
            return None
        if (schema is not None and schema.type is not self._kind) or type(
            value
        ) is not self._python:
            named = type(value).__name__ if schema is None else schema.type.value
            raise DataFault(f"Failed to serialize to {self._kind.value}: it is of type {named}")
        try:
            return self._form.pack(value)
        except (struct.error, OverflowError):
            raise DataFault(f"{value} does not fit {self._kind.value}") from None


class BooleanConverter(_Plain):
    """One byte, 1 or 0."""

    def to_data(self, topic: str, data: bytes | None) -> tuple[ConnectSchema | None, Any]:
        del topic
        if data is None:
            return OPTIONAL_BOOLEAN, None
        if data not in (b"\x00", b"\x01"):
            raise DataFault("Failed to deserialize boolean: it is not one byte, 0 or 1")
        return OPTIONAL_BOOLEAN, data == b"\x01"

    def to_bytes(self, topic: str, schema: ConnectSchema | None, value: Any) -> bytes | None:
        del topic
        if schema is not None and schema.type is not Type.BOOLEAN:
            raise DataFault(f"Invalid schema type for BooleanConverter: {schema.type.name}")
        if value is None:
            return None
        if type(value) is not bool:
            raise DataFault(
                f"BooleanConverter is not compatible with objects of type {type(value).__name__}"
            )
        return b"\x01" if value else b"\x00"
