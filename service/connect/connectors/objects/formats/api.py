"""The contract of formats."""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from service.connect.connectors.objects.formats.spool import Spool
from service.connect.data.schema import ConnectSchema


class FileWriter(Protocol):
    """Writes values of one schema. Equal values give equal bytes, whoever writes them when."""

    @property
    def held_bytes(self) -> int:
        """About how many bytes of values wait to be written together."""

    def settle(self) -> None:
        """Write what is held, to free the memory."""

    def check(self, value: Any) -> Any:
        """Return what `append` takes of a value. Raises `DataFault`."""

    def append(self, checked: Any) -> None: ...

    def finish(self) -> None:
        """Write what is still held. Nothing is called afterwards."""


OpenWriter: TypeAlias = Callable[[Spool, ConnectSchema | None, str], FileWriter]
"""Begins a file; the last argument is its name. Raises `DataFault` for schemas it cannot have."""
