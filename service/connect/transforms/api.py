"""The contract of transforms and predicates."""

from typing import Protocol

from service.connect.data.records import ConnectRecord


class Transform(Protocol):
    def __call__(self, record: ConnectRecord) -> ConnectRecord | None:
        """Return the new record; None: it is dropped. Raises `DataFault`."""


class Predicate(Protocol):
    def __call__(self, record: ConnectRecord) -> bool:
        """Return whether the record matches. Raises `DataFault`."""
