"""The contract of converters."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from service.connect.data.records import Header
from service.connect.data.schema import ConnectSchema

RawHeader: TypeAlias = tuple[str, bytes | None]


class Converter(Protocol):
    """Converts the keys, or the values, of one connector. Both ways raise `DataFault`."""

    async def prepare(self, topic: str, batch: Sequence[bytes | None]) -> None:
        """Read what `to_data` will need for these bytes, like schemas that are named by id.

        A converter that needs nothing returns at once. Raises `RetriableFault` if it cannot be
        read now; bytes that name an unknown schema are refused by `to_data`.
        """

    async def prepare_write(self, topic: str, schemas: Sequence[ConnectSchema | None]) -> None:
        """Register what `to_bytes` will need for values of these schemas."""

    def to_data(self, topic: str, data: bytes | None) -> tuple[ConnectSchema | None, Any]:
        """Return the schema, if there is one, and the value."""

    def to_bytes(self, topic: str, schema: ConnectSchema | None, value: Any) -> bytes | None:
        """Return what is stored; None: a null, as in a tombstone."""


class HeaderConverter(Protocol):
    def to_header(self, topic: str, name: str, data: bytes | None) -> Header: ...

    def to_bytes(self, topic: str, header: Header) -> bytes | None: ...


Settings: TypeAlias = Mapping[str, str]
"""What a connector's configuration says below a prefix like `value.converter.`."""
