"""Content-Encoding: inflate request bodies, up to a maximum size.

A few kilobytes can inflate to gigabytes, so a body is inflated a chunk at a time and refused
as soon as it is too large. Several gzip members or zstd frames are one body, as their formats
say; anything else after the last one is refused, because it would be lost.
"""

from mmap import mmap
from typing import Final

import pyarrow as pa

from storage.errors import InvalidRequest, RequestTooLarge, UnsupportedMediaType

_CODECS: Final = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
_CHUNK_BYTES: Final = 256 * 1024


class Inflation:
    """A body that is inflated in steps. Steps may run in any thread, one at a time."""

    def __init__(self, body: bytes, codec: str, bytes_max: int) -> None:
        self._codec = codec
        self._bytes_max = bytes_max
        self._stream = pa.CompressedInputStream(pa.BufferReader(body), codec)
        self._room: mmap | None = None
        self.size_bytes = 0
        self.is_done = False

    def step(self, size_bytes: int) -> None:
        """Inflate about `size_bytes` more, at most to the end.

        Raises `RequestTooLarge` as soon as there are more than `bytes_max` bytes in all, and
        `InvalidRequest` for bytes that do not inflate to their end.
        """
        end_bytes = self.size_bytes + size_bytes
        try:
            while not self.is_done and self.size_bytes < end_bytes:
                self._read_chunk()
        except OSError as error:  # Arrow raises this for all codec errors.
            raise InvalidRequest(f"the body is not valid {self._codec}: {error}") from error

    def _read_chunk(self) -> None:
        if self._room is None:
            # Separate pages: allocated as it grows, and returned to the system with it.
            self._room = mmap(-1, self._bytes_max + _CHUNK_BYTES)
        end = self.size_bytes + _CHUNK_BYTES
        count = self._stream.readinto(memoryview(self._room)[self.size_bytes : end])
        self.size_bytes += count
        if self.size_bytes > self._bytes_max:
            raise _too_large(self._bytes_max)
        if not count:
            self.is_done = True
            self._stream.close()

    def next_bytes_max(self, size_bytes: int) -> int:
        """Return the maximum size after a step of `size_bytes`."""
        return min(self.size_bytes + size_bytes, self._bytes_max) + _CHUNK_BYTES

    def body(self) -> bytes:
        """Return what was inflated."""
        return b"" if self._room is None else self._room[: self.size_bytes]


def decompress(body: bytes, encoding: str | None, bytes_max: int) -> bytes:
    """Return `body` without its `Content-Encoding`, in one step.

    Raises what `check_encoding` and `Inflation.step` do.
    """
    codec = check_encoding(body, encoding, bytes_max)
    if codec is None or not body:
        return body
    inflation = Inflation(body, codec, bytes_max)
    inflation.step(bytes_max + 1)
    return inflation.body()


def check_encoding(body: bytes, encoding: str | None, bytes_max: int) -> str | None:
    """Return the codec of an encoding, None for a plain body.

    Raises `UnsupportedMediaType` for an encoding that is not gzip, zstd or identity, and
    `RequestTooLarge` for more than `bytes_max` bytes, inflated or not.
    """
    codec = _codec(encoding)
    if len(body) > bytes_max:
        raise _too_large(bytes_max)
    return codec


def _codec(encoding: str | None) -> str | None:
    names = [name.strip().lower() for name in (encoding or "").split(",")]
    names = [name for name in names if name not in ("", "identity")]
    if not names:
        return None
    if len(names) > 1 or names[0] not in _CODECS:
        raise UnsupportedMediaType(
            f"Content-Encoding {encoding!r} is not supported; use one of gzip, zstd, identity"
        )
    return _CODECS[names[0]]


def _too_large(bytes_max: int) -> RequestTooLarge:
    return RequestTooLarge(f"the body is larger than {bytes_max} bytes; send several requests")
