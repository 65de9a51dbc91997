"""The metadata table: a versioned key-value store with compare-and-set, nothing more.

Everything that gateways must agree on is an item here: topics, heads of lanes, groups,
transactions, leases. Backends: `DynamoMetadata`, `SqliteMetadata`, `MemoryMetadata`; all
pass `tests/storage/stores/test_metadata.py`.

**Keys** are `/`-separated paths of two or more parts. A key belongs to one *collection*: its
first part if it has two (`topic/orders` is in `topic`), its first two parts otherwise
(`offset/billing/orders/0` is in `offset/billing`). Only a collection can be listed, because
that is what a DynamoDB query can do.

**Versions** are unique tokens, a new one for every write. A version is never reused, so
"unchanged" means unchanged, whatever happened in between. The token is also how a writer
recognises its own write after a lost reply.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

LISTED_AT_ONCE: Final = 1000
"""Default number of items in a page."""

TRANSACT_OPS_MAX: Final = 100
"""DynamoDB takes at most 100 actions in a transaction, so no backend takes more."""

VALUE_BYTES_MAX: Final = 380_000
"""DynamoDB limits items to 400 KB, including keys and attribute names."""


@dataclass(frozen=True, slots=True)
class Versioned:
    value: bytes
    version: str


@dataclass(frozen=True, slots=True)
class Put:
    """Write `value` if the item's version is `expected`; None: if there is no item."""

    key: str
    value: bytes
    expected: str | None
    can_wait: bool = False
    """A power cut may undo it, if it also undoes all later writes. So a table that writes to the
    disk in order need not flush it: the next write that needs a flush flushes both."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the item if its version is `expected`."""

    key: str
    expected: str
    can_wait: bool = False
    """As in `Put`."""


@dataclass(frozen=True, slots=True)
class Check:
    """Write nothing, but require that the version is `expected`; None: that there is no item."""

    key: str
    expected: str | None


Op = Put | Delete | Check


class MetadataStore(Protocol):
    async def get(self, key: str) -> Versioned | None:
        """Return the item as of a moment after the call began, or None.

        Raises `StoreUnavailable` if the store cannot be reached.
        """

    async def get_many(self, keys: Sequence[str]) -> dict[str, Versioned]:
        """Return those of the items that exist; each as `get` would, not one snapshot."""

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int = 1000
    ) -> list[tuple[str, Versioned]]:
        """Return up to `limit` items of one collection, in order of their keys (as UTF-8).

        `prefix` is a collection and a slash, optionally followed by the start of the rest:
        `topic/`, `topic/ord`, `offset/billing/`. `after` is a whole key; the list continues
        after it. Fewer than `limit` items means that there are no more.
        """

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        """Do all of `ops` or nothing, and return the new version of every key that was put.

        At most one op per key, `TRANSACT_OPS_MAX` ops, `VALUE_BYTES_MAX` per value; more is
        a `ValueError`, a mistake of ours.

        Raises `MetadataConflict` when a condition did not hold and certainly nothing was
        written, `StoreUnavailable` when certainly nothing was written for another reason,
        and `OutcomeUnknown` when the store did not report the outcome. A lost reply whose
        write can still be recognised is repaired here and not reported to the caller.
        """

    async def close(self) -> None:
        """Release connections and threads. Nothing may be called afterwards."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """An item as a scan found it."""

    key: str
    item: Versioned | None
    """None: there is a problem with it."""
    problem: str = ""


@runtime_checkable
class Scannable(Protocol):
    """A `MetadataStore` that can scan all items, including those whose key is damaged."""

    def every_item(self) -> AsyncIterator[Sequence[Scanned]]:
        """Yield all items as of one moment, some at a time.

        Raises `MetadataDamaged` if the table cannot be read to the end.
        """


async def pages(
    metadata: MetadataStore, prefix: str, limit: int | None = None
) -> AsyncIterator[list[tuple[str, Versioned]]]:
    """Yield all items whose keys begin with `prefix`, in order, at most `limit` at a time."""
    limit = limit or LISTED_AT_ONCE
    after: str | None = None
    while True:
        page = await metadata.list(prefix, after=after, limit=limit)
        yield page
        if len(page) < limit:
            return
        after = page[-1][0]


def collection_of(key: str) -> tuple[str, str]:
    """Return the collection of `key` and the rest of it.

    A prefix for `list` is split the same way, with a rest that may be empty or partial.
    """
    parts = key.split("/", 2)
    if len(parts) == 1 or not parts[0]:
        raise ValueError(f"{key!r} names no collection")
    if len(parts) == 2:
        return parts[0], parts[1]
    return f"{parts[0]}/{parts[1]}", parts[2]


def check_ops(ops: Sequence[Op]) -> None:
    """Raise `ValueError` unless `ops` is a transaction that every backend can take."""
    if not 0 < len(ops) <= TRANSACT_OPS_MAX:
        raise ValueError(f"a transaction has 1 to {TRANSACT_OPS_MAX} ops, not {len(ops)}")
    if len({op.key for op in ops}) != len(ops):
        raise ValueError("a transaction may touch a key only once")
    for op in ops:
        if isinstance(op, Put) and len(op.value) > VALUE_BYTES_MAX:
            raise ValueError(f"{op.key}: {len(op.value)} bytes, the limit is {VALUE_BYTES_MAX}")
