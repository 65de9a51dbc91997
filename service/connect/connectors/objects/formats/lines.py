"""JSON lines and raw bytes, with gzip if it is wanted."""

from collections.abc import Callable
from gzip import GzipFile
from typing import Any

from service.connect.connectors.objects.formats.api import FileWriter, OpenWriter
from service.connect.connectors.objects.formats.spool import Spool
from service.connect.converters.json.converter import JsonConverter
from service.connect.data.errors import DataFault
from service.connect.data.schema import ConnectSchema


def json_lines(*, gzip_level: int | None, numeric_decimals: bool = False) -> OpenWriter:
    """Return the format of one JSON value per line; None: not compressed."""
    converter = JsonConverter(with_schemas=False, numeric_decimals=numeric_decimals)

    def begin(spool: Spool, schema: ConnectSchema | None, _: str) -> FileWriter:
        def line(value: Any) -> bytes:
            return (converter.to_bytes("", schema, value) or b"null") + b"\n"

        return _Lines(spool, gzip_level, line)

    return begin


def raw_bytes(*, gzip_level: int | None, separator: bytes) -> OpenWriter:
    """Return the format of values that are bytes already, each with a separator behind it."""

    def line(value: Any) -> bytes:
        if not isinstance(value, bytes):
            raise DataFault(
                f"ByteArrayFormat writes bytes, and the value is {type(value).__name__}: "
                "use ByteArrayConverter"
            )
        return value + separator

    return lambda spool, _schema, _name: _Lines(spool, gzip_level, line)


class _Lines:
    def __init__(self, spool: Spool, gzip_level: int | None, line: Callable[[Any], bytes]) -> None:
        self._line = line
        self._gzip: GzipFile | None = None
        if gzip_level is not None:
            # Neither a time nor a name inside: the same records give the same bytes.
            self._gzip = GzipFile("", "wb", gzip_level, spool, mtime=0)
        self._sink = spool if self._gzip is None else self._gzip

    held_bytes = 0

    def settle(self) -> None:
        """Do nothing: nothing is held."""

    def check(self, value: Any) -> Any:
        return self._line(value)

    def append(self, checked: Any) -> None:
        self._sink.write(checked)

    def finish(self) -> None:
        if self._gzip is not None:
            self._gzip.close()
