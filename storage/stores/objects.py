"""Immutable objects: the interface of object stores.

Every method below is a request we pay for and a promise every backend must keep, so the
interface stays narrow:

- An object is written once, whole, and never changed. Readers need no locks.
- `put` returns only when the bytes are durable. There is no half-written object.
- Serving never lists. The index says which objects exist; only the sweeper and fsck look for
  others.

`S3Objects` serves production, `DirectoryObjects` a laptop, `MemoryObjects` tests and the
simulation. All pass `tests/storage/stores/test_objects.py`; every new one must too.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

Piece = bytes | bytearray | memoryview
Body = Sequence[Piece]
"""The bytes of an object in pieces, so that megabytes are not joined only to send them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """What a listing says of one object."""

    key: str
    size_bytes: int
    modified_ms: int


class ObjectStore(Protocol):
    """Write-once, read-many storage of whole objects. Keys are `/`-separated ASCII paths."""

    async def put(self, key: str, body: Body) -> None:
        """Store the joined pieces of `body` under the unused `key`.

        Repeating a put with the same bytes succeeds, so a lost reply is repaired by sending
        it again; the backend does that itself a few times. Raises `ObjectExists` if the key
        holds other bytes, and `StoreUnavailable` if the store cannot be reached or keeps
        failing: the object may then be there or not, whole in either case.
        """

    async def put_file(self, key: str, path: Path) -> None:
        """Store the bytes of a local file, which must not change meanwhile, under the unused `key`.

        Like `put`, but of any size, with some megabytes of memory. One exception: when writers
        race for one key with different large files, the last may win, since S3 takes those in
        parts. Random keys never collide. Raises `FileNotFoundError` if there is no file.
        """

    async def get(self, key: str) -> bytes:
        """Return the whole object. Raises `ObjectMissing` or `StoreUnavailable`."""

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes `start <= position < end` for each range, in the order asked.

        Neighbouring ranges may be read together. Raises `ObjectMissing` if there is no such
        object, `Corrupt` if it ends before a range does, or `StoreUnavailable`.
        """

    async def size(self, key: str) -> int:
        """Return how many bytes the object has. Raises `ObjectMissing` or `StoreUnavailable`."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove the objects. One that is not there counts as removed."""

    def list(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        """Yield, in batches and in any order, every object whose key starts with `prefix`.

        Only for the sweeper and fsck: no call that serves a user may list.
        """

    async def presign(
        self, key: str, spans: Sequence[tuple[int, int] | None], expires_s: int
    ) -> Sequence[str]:
        """Return for each span a URL from which anyone can read it for `expires_s` seconds.

        A span is the bytes `start <= position < end`; the URL of one gives no other bytes, and
        only to requests with exactly `Range: bytes=start-(end - 1)`. None is the whole object, in
        any ranges. Raises `NotSupported` where a store does not enforce that.
        """

    def address(self, key: str) -> str:
        """Return the URL of the object for those who may read the whole store anyway.

        Raises `NotSupported` where a store has no such thing.
        """

    async def close(self) -> None:
        """Release connections and threads. Nothing may be called afterwards."""


def check_key(key: str) -> None:
    """Raise `ValueError` unless `key` is one that every backend can take."""
    parts = key.split("/")
    if not (key.isascii() and key.isprintable()) or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{key!r} is not a key: ASCII names between slashes, none empty or dots")
