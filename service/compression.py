"""Content-Encoding: request bodies made plain, and never larger than allowed.

A few kilobytes can inflate to gigabytes, so a body is inflated a chunk at a time and given up
as soon as it is too large. Bodies of several gzip members or zstd frames are one body, as
their formats say; anything else behind the last one is refused, because it would be lost.
"""

from typing import Final

import pyarrow as pa

from storage.errors import InvalidRequest, RequestTooLarge, UnsupportedMediaType

_CODECS: Final = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
_CHUNK_BYTES: Final = 256 * 1024


def decompress(body: bytes, encoding: str | None, bytes_max: int) -> bytes:
    """Return `body` without its `Content-Encoding`.

    Raises `UnsupportedMediaType` for an encoding that is not gzip, zstd or identity,
    `RequestTooLarge` for more than `bytes_max` bytes, before or after, and `InvalidRequest`
    for bytes that do not inflate to their end.
    """
    codec = _codec(encoding)
    if len(body) > bytes_max:
        raise _too_large(bytes_max)
    if codec is None or not body:
        return body
    try:
        return _inflated(body, codec, bytes_max)
    except OSError as error:  # What Arrow raises for whatever its codecs dislike.
        raise InvalidRequest(f"the body is not valid {codec}: {error}") from error


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


def _inflated(body: bytes, codec: str, bytes_max: int) -> bytes:
    chunks: list[bytes] = []
    size_bytes = 0
    with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            size_bytes += len(chunk)
            if size_bytes > bytes_max:
                raise _too_large(bytes_max)
            chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(bytes_max: int) -> RequestTooLarge:
    return RequestTooLarge(f"the body is larger than {bytes_max} bytes; send several requests")
