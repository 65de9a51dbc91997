"""The description of a decoder, so that one test can try all of them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from crc32c import crc32c
from hypothesis import strategies as st

from storage.errors import Corrupt
from storage.formats import frames
from tests.fuzz.mutations import Envelope
from tests.fuzz.values import packed


@dataclass(frozen=True, kw_only=True)
class Decoder:
    covers: tuple[str, ...]
    """Dotted names of the functions that are tried; the first is the name of the entry."""
    decode: Callable[[bytes], Any]
    valid: st.SearchStrategy[bytes]
    hard: st.SearchStrategy[bytes] = field(default_factory=st.nothing)
    """Inputs that are known to be hard for decoders of this kind."""
    errors: tuple[type[Exception], ...] = (Corrupt,)
    envelope: Envelope | None = None
    encode: Callable[[Any], bytes] | None = None
    """The encoder: its result decodes to the same value."""
    factor: int
    """Maximum bytes of memory for a byte of input."""
    believes: str = ""
    """Why sizes under a valid checksum are trusted; empty: they are not."""
    limit_bytes: int = 0
    """Bytes allowed in addition: the documented limit of compressed data."""
    why: str
    """The reason for the factor."""

    @property
    def name(self) -> str:
        return self.covers[0]


STRUCTS = (
    "a byte of msgpack may be an item: 8 bytes in a tuple, and a struct of up to 200 around it"
)


def framed(
    covers: str,
    magic: bytes,
    kind: Any,
    decode: Callable[[bytes], Any],
    encode: Callable[[Any], bytes] | None = None,
) -> Decoder:
    """Return the decoder of msgpack in a frame."""
    return Decoder(
        covers=(covers,),
        decode=decode,
        valid=packed(kind).map(lambda payload: frames.seal(magic, payload)),
        envelope=sealed(magic),
        encode=encode or (lambda value: frames.seal(magic, msgspec.msgpack.encode(value))),
        factor=250,
        why=STRUCTS,
    )


def packed_decoder(covers: str, kind: Any, decode: Callable[[bytes], Any]) -> Decoder:
    """Return the decoder of msgpack without a frame."""
    return Decoder(
        covers=(covers,),
        decode=decode,
        valid=packed(kind),
        encode=msgspec.msgpack.encode,
        factor=250,
        why=STRUCTS,
    )


def beside(decode: Callable[[bytes, int], Any]) -> Callable[[bytes], Any]:
    """Return a decoder of a checksum followed by the bytes; in the store they are apart."""
    return lambda data: decode(data[4:], int.from_bytes(data[:4]))


def with_checksum(data: bytes) -> bytes:
    return crc32c(data).to_bytes(4) + data


CHECKSUM = Envelope(open=lambda data: data[4:], seal=with_checksum)
"""For bytes whose checksum is stored elsewhere; here it precedes them."""


def sealed(magic: bytes) -> Envelope:
    return Envelope(
        open=lambda frame: bytes(frames.unseal(magic, frame)),
        seal=lambda payload: frames.seal(magic, payload),
    )
