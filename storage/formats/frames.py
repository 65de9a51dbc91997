"""The envelope of everything small that we store: a magic number, a checksum, a payload.

    frame = magic (4 bytes)  crc32c of the payload (u32, little-endian)  payload

The magic says what is inside and in which version of its layout; a layout never changes, a
new one gets a new magic. A reader checks both before it looks at the payload.
"""

import struct
from typing import Final, Protocol, TypeVar

import msgspec
from crc32c import crc32c

from storage.errors import Corrupt

_HEADER: Final = struct.Struct("<4sI")

_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec may raise on invalid input."""

T_co = TypeVar("T_co", covariant=True)


class PayloadDecoder(Protocol[T_co]):
    """A decoder of msgspec, for msgpack or JSON."""

    def decode(self, data: bytes | memoryview, /) -> T_co: ...


def seal(magic: bytes, payload: bytes) -> bytes:
    """Return `payload` in an envelope."""
    return _HEADER.pack(magic, crc32c(payload)) + payload


def unseal(magic: bytes, frame: bytes | memoryview) -> memoryview:
    """Return the payload of `frame`, or raise `Corrupt` if it is not what was sealed."""
    if len(frame) < _HEADER.size:
        raise Corrupt(f"expected a {magic!r} frame, found {len(frame)} bytes")
    found, checksum = _HEADER.unpack_from(frame)
    if found != magic:
        raise Corrupt(f"expected a {magic!r} frame, found {found!r}")
    payload = memoryview(frame)[_HEADER.size :]
    if crc32c(payload) != checksum:
        raise Corrupt(f"the checksum of a {magic!r} frame does not match")
    return payload


def unpack(
    magic: bytes, frame: bytes | memoryview, decoder: PayloadDecoder[T_co], what: str
) -> T_co:
    """Return what `decoder` makes of the payload of `frame`, or raise `Corrupt` about `what`."""
    return decoded(unseal(magic, frame), decoder, what)


def decoded(data: bytes | memoryview, decoder: PayloadDecoder[T_co], what: str) -> T_co:
    """Return what `decoder` makes of bytes without a frame, or raise `Corrupt` about `what`.

    A matching checksum only says that the bytes are as written: a newer version of Riacho may have
    written another layout.
    """
    try:
        return decoder.decode(data)
    except _UNREADABLE as error:
        raise Corrupt(f"{what} cannot be decoded: {error}") from error
