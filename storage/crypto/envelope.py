"""The envelope of everything sealed: AES-256-GCM with a data key of the topic. Pure.

    sealed  = nonce (12 bytes)  ciphertext  tag (16 bytes)
    bound   = topic id (16 bytes)  partition of the topic (u32)  number of the data key (u32)
              place (i64): the start offset of a row group, -1 for a slice

Integers are little-endian. What is bound is not stored: who opens must name the same. So bytes that
were moved to another topic or partition, or a row group to another offset, do not open. The offset
of a slice is given after it was sealed, so a slice is not bound to it; the index says which bytes
belong to an offset, with their CRC32C.

Records are compressed first and sealed after. Checksums are of the sealed bytes, so that whoever
copies, verifies or deletes them needs no key. A nonce is random: with 2**32 of them under one key
two are equal with a probability of 2**-32, so a key is replaced long before
(storage/crypto/keyring.py).

The layout never changes. The library `cryptography` is imported by the first seal.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from storage.errors import Corrupt, InvalidConfig

if TYPE_CHECKING:
    from storage.formats.partitions import PartitionNumber

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
OVERHEAD_BYTES: Final = NONCE_BYTES + TAG_BYTES

SLICE: Final = -1
"""The place of a slice, which has no offset when it is sealed."""

_BOUND: Final = struct.Struct("<16sIIq")


class _Aead(Protocol):
    def encrypt(self, nonce: bytes, data: Any, associated_data: bytes, /) -> bytes: ...
    def decrypt(self, nonce: Any, data: Any, associated_data: bytes, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class DataKey:
    """A data key of a topic, unwrapped. Its secret is never shown."""

    topic_id: bytes
    number: int
    """From 1."""
    secret: bytes = field(repr=False)
    _aead: list[_Aead] = field(default_factory=list, repr=False, compare=False)

    def seal(
        self,
        data: bytes | memoryview,
        partition: "PartitionNumber",
        nonce: bytes,
        place: int = SLICE,
    ) -> bytes:
        """Return `data` sealed; never use a `nonce` twice."""
        bound = _BOUND.pack(self.topic_id, partition, self.number, place)
        return nonce + self._cipher().encrypt(nonce, memoryview(data).cast("B"), bound)

    def open(
        self, sealed: bytes | memoryview, partition: "PartitionNumber", place: int = SLICE
    ) -> bytes:
        """Return what was sealed, or raise `Corrupt` if this is not it."""
        bound = _BOUND.pack(self.topic_id, partition, self.number, place)
        return opened(self._cipher(), sealed, bound)

    def _cipher(self) -> _Aead:
        if not self._aead:
            self._aead.append(aead(self.secret))
        return self._aead[0]


@dataclass(slots=True)
class Sealer:
    """Seals with a data key and random nonces."""

    key: DataKey
    random_bytes: Callable[[int], bytes]
    seals: int = 0
    """How often it did; about, if threads share it."""

    def seal(
        self, data: bytes | memoryview, partition: "PartitionNumber", place: int = SLICE
    ) -> bytes:
        self.seals += 1
        return self.key.seal(data, partition, self.random_bytes(NONCE_BYTES), place)


def opened(cipher: _Aead, sealed: bytes | memoryview, bound: bytes) -> bytes:
    """Return what `cipher` sealed with `bound`, or raise `Corrupt`."""
    from cryptography.exceptions import InvalidTag

    view = memoryview(sealed).cast("B")
    if len(view) < OVERHEAD_BYTES:
        raise Corrupt(f"expected a sealed slice, found {len(view)} bytes")
    try:
        return cipher.decrypt(bytes(view[:NONCE_BYTES]), view[NONCE_BYTES:], bound)
    except InvalidTag:
        raise Corrupt(
            "sealed records do not open: they were changed, moved, or sealed with another key"
        ) from None


def aead(secret: bytes) -> _Aead:
    """Return the cipher of a key; raise `InvalidConfig` if the library for it is missing."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise InvalidConfig(
            "encryption=topic needs the library cryptography: pip install 'riacho[security]'"
        ) from None
    return AESGCM(secret)
