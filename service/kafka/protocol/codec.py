"""Frames to messages and back: what connections, clients and tests call.

    size (4 bytes, not part of a frame here)  header  body

The reader and the writer of a message in a version are made from its definition when they are
first needed, as Python source, and kept. Whatever a client sends is read or raises
`MalformedFrame`, and takes memory in proportion to the frame. A message that cannot be written
raises ValueError, with the name of the field: it is a mistake of ours.
"""

import struct
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeVar

from service.kafka.protocol.apis import APIS, Api, ApiDefinition
from service.kafka.protocol.notation import Message
from service.kafka.protocol.reading import reader
from service.kafka.protocol.source import Source
from service.kafka.protocol.wire import (
    HEADER_TAGS_MAX,
    Buffer,
    MalformedFrame,
    number,
    skip_tags,
)
from service.kafka.protocol.writing import writer

M = TypeVar("M", bound=Message)

_FIRST: Final = struct.Struct(">hhi")
_CORRELATION: Final = struct.Struct(">i")
_STRING: Final = struct.Struct(">h")
_COPIED_BYTES_MAX: Final = 1024
"""Of a body that is copied first: bytes are read quicker than a view of them."""


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """What comes before the body of a request."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: memoryview
    """The rest of the frame; empty, if the key or the version is one that we do not speak."""


def read_header(frame: Buffer) -> RequestHeader:
    """Return the header of a request, or raise `MalformedFrame`.

    Of a key or version that we do not speak only the first three numbers can be known.
    """
    view = memoryview(frame)
    end = len(view)
    if end < _FIRST.size:
        raise MalformedFrame(f"a header in {end} bytes")
    key, version, correlation_id = _FIRST.unpack_from(view)
    api = _api(key)
    if api is None or not api.speaks(version):
        return RequestHeader(key, version, correlation_id, None, view[end:])
    try:
        client_id, p = _client_id(view, _FIRST.size, end)
        if api.request_header_version(version) == 2:
            p = _without_tags(view, p, end)
    except (IndexError, struct.error):
        raise MalformedFrame("the header is longer than the frame") from None
    except UnicodeDecodeError as error:
        raise MalformedFrame(f"the header: {error}") from None
    return RequestHeader(key, version, correlation_id, client_id, view[p:])


def _client_id(view: memoryview, p: int, end: int) -> tuple[str | None, int]:
    [size] = _STRING.unpack_from(view, p)
    p += _STRING.size
    if size == -1:
        return None, p
    if size < 0 or size > end - p:
        raise MalformedFrame(f"a client id of {size} bytes")
    return str(view[p : p + size], "utf-8"), p + size


def _without_tags(view: Buffer, p: int, end: int) -> int:
    count, p = number(view, p)
    if count > HEADER_TAGS_MAX:
        raise MalformedFrame(f"{count} tagged fields before the body")
    return skip_tags(view, p, end, count)


def decode_request(key: int, version: int, body: Buffer) -> Any:
    """Return the request in `body`, which its views of bytes keep alive, or raise `MalformedFrame`.

    The version must be one that we speak. What follows the request is ignored, as in Kafka:
    librdkafka sends three bytes too many with Metadata, and one with AlterUserScramCredentials.
    """
    return decode(APIS[Api(key)].request, version, body, may_go_on=True)


def encode_response(key: int, version: int, correlation_id: int, response: Message) -> list[Buffer]:
    """Return a frame, with its size in front, in pieces: large records are not copied."""
    header = _CORRELATION.pack(correlation_id)
    if APIS[Api(key)].response_header_version(version) == 1:
        header += b"\0"
    return _framed(header, response, version)


def encode_request(
    key: int, version: int, correlation_id: int, client_id: str | None, request: Message
) -> list[Buffer]:
    """Return a frame as a client sends it, with its size in front, in pieces."""
    text = b"" if client_id is None else client_id.encode()
    header = _FIRST.pack(key, version, correlation_id)
    header += _STRING.pack(-1 if client_id is None else len(text)) + text
    if APIS[Api(key)].request_header_version(version) == 2:
        header += b"\0"
    return _framed(header, request, version)


def decode_response(key: int, version: int, frame: Buffer) -> tuple[int, Any]:
    """Return the correlation id and the response in a frame without its size."""
    view = memoryview(frame)
    api = APIS[Api(key)]
    try:
        [correlation_id] = _CORRELATION.unpack_from(view)
        p = _CORRELATION.size
        if api.response_header_version(version) == 1:
            p = _without_tags(view, p, len(view))
    except (IndexError, struct.error):
        raise MalformedFrame("the header is longer than the frame") from None
    return correlation_id, decode(api.response, version, view[p:])


def decode(message: type[M], version: int, body: Buffer, *, may_go_on: bool = False) -> M:
    """Return the message that is exactly `body`, or its beginning, or raise `MalformedFrame`."""
    source, read = _reader(message, version)
    view = memoryview(body)
    end = len(view)
    try:
        made, stop = read(bytes(view) if end <= _COPIED_BYTES_MAX else view, view, 0, end)
    except MalformedFrame as error:
        raise MalformedFrame(f"{source.path(error.__traceback__)}: {error}") from None
    except (IndexError, struct.error) as error:
        where = source.path(error.__traceback__)
        raise MalformedFrame(f"{where}: the frame ends before its value") from None
    except UnicodeDecodeError as error:
        raise MalformedFrame(f"{source.path(error.__traceback__)}: {error.reason}") from None
    if stop > end or (stop < end and not may_go_on):
        # A tagged field may have read behind the end of its own, never of the frame.
        raise MalformedFrame(f"{source.name}: {end - stop} bytes behind the end")
    decoded: M = made
    return decoded


def encode(message: Message, version: int) -> list[Buffer]:
    """Return the body of `message` in pieces."""
    pieces: list[Buffer] = []
    out: list[Buffer] = []
    _write(message, version, out, pieces)
    pieces.append(b"".join(out))
    return pieces


def _framed(header: bytes, message: Message, version: int) -> list[Buffer]:
    pieces: list[Buffer] = []
    out: list[Buffer] = [b"", header]
    _write(message, version, out, pieces)
    if not pieces:
        size = sum(map(len, out))
        out[0] = _CORRELATION.pack(size)
        return [b"".join(out)]
    pieces.append(b"".join(out))
    pieces[0] = _CORRELATION.pack(sum(map(len, pieces))) + bytes(pieces[0])
    return pieces


def _write(message: Message, version: int, out: list[Buffer], sink: list[Buffer]) -> None:
    source, write = _writer(type(message), version)
    try:
        write(message, out, sink)
    except (struct.error, AttributeError, TypeError, ValueError, IndexError) as error:
        raise ValueError(f"{source.path(error.__traceback__)}: {error}") from error


def _api(key: int) -> ApiDefinition | None:
    return APIS.get(key)  # type: ignore[call-overload, no-any-return]  # An Api is its number.


@cache
def _reader(message: type[Message], version: int) -> tuple[Source, Any]:
    assert version in message.VERSIONS, (message, version)
    source = reader(message, version)
    return source, source.compiled()


@cache
def _writer(message: type[Message], version: int) -> tuple[Source, Any]:
    assert version in message.VERSIONS, (message, version)
    source = writer(message, version)
    return source, source.compiled()
