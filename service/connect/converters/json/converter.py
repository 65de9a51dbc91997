"""Kafka's `JsonConverter`: values as JSON, with their schema before them or without any.

With `schemas.enable`, each stored value is `{"schema": …, "payload": …}`. Most values of a topic
begin with the same schema, so what it means is kept by its bytes.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final, TypeVar

import msgspec

from service.connect.config.keys import Importance, Key, KeyType, between, one_of
from service.connect.converters.json.reading import Reader, reader_of
from service.connect.converters.json.schemas import schema_from_json, schema_to_json
from service.connect.converters.json.writing import JsonWriting, without_schema
from service.connect.data.errors import DataFault
from service.connect.data.schema import ConnectSchema

K = TypeVar("K")
V = TypeVar("V")

JSON_KEYS: Final = (
    Key(
        name="schemas.enable",
        type=KeyType.BOOLEAN,
        default=True,
        importance=Importance.HIGH,
        about="Whether each value has its schema before it.",
        group="Schemas",
        display_name="Enable Schemas",
    ),
    Key(
        name="schemas.cache.size",
        type=KeyType.INT,
        default=1000,
        importance=Importance.HIGH,
        about="At most so many schemas are kept.",
        group="Schemas",
        display_name="Schema Cache Size",
        check=between(1, 1_000_000),
    ),
    Key(
        name="schema.content",
        type=KeyType.STRING,
        default=None,
        importance=Importance.HIGH,
        about="The schema of all values of a sink's topics, which then are stored without one.",
        group="Schemas",
        display_name="Schema Content",
    ),
    Key(
        name="decimal.format",
        type=KeyType.STRING,
        default="BASE64",
        importance=Importance.LOW,
        about="Whether decimals are written as BASE64 or as numbers. Both are read.",
        group="Serialization",
        display_name="Decimal Format",
        choices=("BASE64", "NUMERIC"),
        check=one_of("BASE64", "NUMERIC"),
    ),
    Key(
        name="replace.null.with.default",
        type=KeyType.BOOLEAN,
        default=True,
        importance=Importance.LOW,
        about="Whether null becomes the default of a field that has one.",
        group="Serialization",
        display_name="Replace null with default",
    ),
)

NO_ENVELOPE: Final = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain '
    "additional fields. If you are trying to deserialize plain JSON data, set "
    "schemas.enable=false in your converter configuration."
)
_WRITE_FAILED: Final = "Converting Kafka Connect data to byte[] failed due to serialization error: "
_READ_FAILED: Final = "Converting byte[] to Kafka Connect data failed due to serialization error: "


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    schema: msgspec.Raw
    payload: msgspec.Raw


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_PLAIN: Final = msgspec.json.Decoder()
_EXACT: Final = msgspec.json.Decoder(float_hook=Decimal)
_ENCODER: Final = msgspec.json.Encoder()
_INT64_END: Final = 1 << 63


class JsonConverter:
    def __init__(
        self,
        *,
        with_schemas: bool = True,
        schemas_max: int = 1000,
        schema_content: str | None = None,
        numeric_decimals: bool = False,
        with_defaults: bool = True,
    ) -> None:
        self._with_schemas = with_schemas
        self._with_defaults = with_defaults
        writing = JsonWriting(numeric_decimals=numeric_decimals, with_defaults=with_defaults)
        self._readers = _Kept(schemas_max, self._reader)
        self._writers = _Kept(schemas_max, writing.writer_of)
        self._heads = _Kept(schemas_max, self._head)
        self._content: tuple[ConnectSchema | None, Reader] | None = None
        if with_schemas and schema_content:
            self._content = self._reader(schema_content.encode())

    async def prepare(self, topic: str, batch: Sequence[bytes | None]) -> None:
        del topic, batch

    async def prepare_write(self, topic: str, schemas: Sequence[ConnectSchema | None]) -> None:
        del topic, schemas

    def to_data(self, topic: str, data: bytes | None) -> tuple[ConnectSchema | None, Any]:
        del topic
        if data is None:
            return None, None
        try:
            if not self._with_schemas:
                return None, _checked(_PLAIN.decode(data))
            if self._content is not None:
                schema, read = self._content
                return schema, read(_EXACT.decode(data))
            envelope = _ENVELOPE.decode(data)
            schema, read = self._readers[bytes(envelope.schema)]
            return schema, read(_EXACT.decode(envelope.payload))
        except msgspec.ValidationError:
            raise DataFault(NO_ENVELOPE) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataFault(f"{_READ_FAILED}{error}") from None
        except RecursionError:
            raise DataFault(f"{_READ_FAILED}it is nested too deep") from None

    def to_bytes(self, topic: str, schema: ConnectSchema | None, value: Any) -> bytes | None:
        del topic
        if schema is None and value is None:
            return None
        try:
            said = without_schema(value) if schema is None else self._writers[schema](value)
            payload = _ENCODER.encode(said)
        except (RecursionError, msgspec.EncodeError, UnicodeEncodeError, OverflowError) as error:
            raise DataFault(f"{_WRITE_FAILED}{error}") from None
        if not self._with_schemas:
            return payload
        head = b'{"schema":null,"payload":' if schema is None else self._heads[schema]
        return b"%b%b}" % (head, payload)

    def _reader(self, text: bytes) -> tuple[ConnectSchema | None, Reader]:
        try:
            schema = schema_from_json(_EXACT.decode(text), self._read_default)
        except msgspec.DecodeError as error:
            raise DataFault(f"{_READ_FAILED}{error}") from None
        if schema is None:
            return None, _as_float
        return schema, reader_of(schema, with_defaults=self._with_defaults)

    def _read_default(self, schema: ConnectSchema, said: Any) -> Any:
        return reader_of(schema, with_defaults=self._with_defaults)(said)

    def _write_default(self, schema: ConnectSchema, value: Any) -> Any:
        return self._writers[schema](value)

    def _head(self, schema: ConnectSchema) -> bytes:
        """Return what is before the payload of all values of a schema."""
        said = schema_to_json(schema, self._write_default)
        return b'{"schema":%b,"payload":' % _ENCODER.encode(said)


class _Kept(dict[K, V]):
    """What was made of each key, at most so many of them: the oldest goes first."""

    def __init__(self, size_max: int, make: Callable[[K], V]) -> None:
        super().__init__()
        self._size_max = size_max
        self._make = make
        self._order: OrderedDict[K, None] = OrderedDict()

    def __missing__(self, key: K) -> V:
        made = self._make(key)
        if len(self) >= self._size_max:
            self.pop(self._order.popitem(last=False)[0], None)
        self[key] = made
        self._order[key] = None
        return made


def _checked(value: Any) -> Any:
    """Return a value without a schema; integers beyond 64 bits are refused."""
    kind = type(value)
    if kind is dict:
        for each in value.values():
            _checked(each)
    elif kind is list:
        for each in value:
            _checked(each)
    elif kind is int and not -_INT64_END <= value < _INT64_END:
        raise DataFault(f"{value} does not fit int64")
    return value


def _as_float(value: Any) -> Any:
    """Return a value without a schema, which has no decimals."""
    match value:
        case Decimal():
            return float(value)
        case dict():
            return {key: _as_float(each) for key, each in value.items()}
        case list():
            return [_as_float(each) for each in value]
        case int():
            return _checked(value)
    return value
