"""Parquet files, in row groups of a fixed number of rows: equal rows give equal bytes."""

from typing import TYPE_CHECKING, Any, Final

from service.connect.connectors.objects.formats.api import FileWriter, OpenWriter
from service.connect.connectors.objects.formats.spool import Spool
from service.connect.connectors.objects.formats.strict import precision_of, strict
from service.connect.data.errors import DataFault
from service.connect.data.logical import scale_of
from service.connect.data.schema import DATE, DECIMAL, TIME, TIMESTAMP, ConnectSchema, Type

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ROWS: Final = 10_000
GROUP_BYTES: Final = 16 * 1024 * 1024
"""A row group has so many rows, or so many bytes of values before they are encoded, at most."""

VALUE_BYTES: Final = 8
"""What a value counts that is neither text nor bytes."""

DIGITS_MAX: Final = 38
CODECS: Final = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")


def parquet_files(codec: str) -> OpenWriter:
    def begin(spool: Spool, schema: ConnectSchema | None, _: str) -> FileWriter:
        if schema is None or schema.type is not Type.STRUCT:
            raise DataFault("ParquetFormat needs structs with a schema: use another converter")
        return _Parquet(spool, schema, codec)

    return begin


class _Parquet:
    def __init__(self, spool: Spool, schema: ConnectSchema, codec: str) -> None:
        import pyarrow.parquet as pq

        self.check = strict(schema, digits=DIGITS_MAX, pairs=True)
        self._schema = arrow_schema(schema)
        self._writer = pq.ParquetWriter(spool, self._schema, compression=codec)
        self._rows: list[Any] = []
        self.held_bytes = 0

    def append(self, checked: Any) -> None:
        self._rows.append(checked)
        self.held_bytes += _weight(checked)
        if len(self._rows) >= GROUP_ROWS or self.held_bytes >= GROUP_BYTES:
            self.settle()

    def settle(self) -> None:
        import pyarrow as pa

        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
            self._rows.clear()
            self.held_bytes = 0

    def finish(self) -> None:
        self.settle()
        self._writer.close()


def _weight(value: Any) -> int:
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value)
    if kind is dict:
        return sum(map(_weight, value.values()))
    if kind is list or kind is tuple:
        return sum(map(_weight, value))
    return VALUE_BYTES


def arrow_schema(schema: ConnectSchema) -> "pa.Schema":
    import pyarrow as pa

    return pa.schema([_field(field.name, field.schema) for field in schema.fields])


def _field(name: str, schema: ConnectSchema) -> "pa.Field[Any]":
    import pyarrow as pa

    return pa.field(name, _type(schema), nullable=schema.is_optional)


def _type(schema: ConnectSchema) -> "pa.DataType":
    import pyarrow as pa

    match schema.name:
        case _ if schema.name == DECIMAL:
            return pa.decimal128(precision_of(schema, DIGITS_MAX), scale_of(schema))
        case _ if schema.name == DATE:
            return pa.date32()
        case _ if schema.name == TIME:
            return pa.time32("ms")
        case _ if schema.name == TIMESTAMP:
            return pa.timestamp("ms", "UTC")
    match schema.type:
        case Type.STRUCT:
            if not schema.fields:
                raise DataFault("Parquet has no structs without fields")
            return pa.struct([_field(each.name, each.schema) for each in schema.fields])
        case Type.ARRAY:
            assert schema.value_schema is not None, schema
            return pa.list_(_field("element", schema.value_schema))
        case Type.MAP:
            assert schema.key_schema is not None, schema
            assert schema.value_schema is not None, schema
            return pa.map_(_type(schema.key_schema), _field("value", schema.value_schema))
        case _:
            return _plain(schema.type)


def _plain(kind: Type) -> "pa.DataType":
    import pyarrow as pa

    plain: dict[Type, pa.DataType] = {
        Type.INT8: pa.int8(),
        Type.INT16: pa.int16(),
        Type.INT32: pa.int32(),
        Type.INT64: pa.int64(),
        Type.FLOAT32: pa.float32(),
        Type.FLOAT64: pa.float64(),
        Type.BOOLEAN: pa.bool_(),
        Type.STRING: pa.string(),
        Type.BYTES: pa.binary(),
    }
    return plain[kind]
