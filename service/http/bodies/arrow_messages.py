"""The unpacked size of an Arrow stream, read from its messages before anything is inflated.

Arrow decompresses a buffer into as many bytes as its first eight bytes say, so a body of a
kilobyte may ask for a terabyte. The messages list their buffers in a flatbuffer of which only
these fields matter here:

    Message          header_type: 1, header: 2
    DictionaryBatch  data (a RecordBatch): 1
    RecordBatch      length: 0, buffers: 2, compression: 3
    BodyCompression  codec: 0

pyarrow verifies a flatbuffer before it returns the message, so its offsets can be followed.
"""

from collections.abc import Iterator
from struct import Struct, error
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import ipc

from service.process.limits.record_limits import RecordLimits, check_count
from storage.errors import InvalidRequest, RequestTooLarge
from storage.formats.slices import Codec

_U8: Final = Struct("<B")
_U16: Final = Struct("<H")
_I32: Final = Struct("<i")
_U32: Final = Struct("<I")
_I64: Final = Struct("<q")
_SPAN: Final = Struct("<qq")

_DICTIONARY_BATCH: Final = 2
_RECORD_BATCH: Final = 3
_NOT_COMPRESSED: Final = -1
_CODECS: Final[dict[int, Codec]] = {0: "lz4", 1: "zstd"}


class MessageSpan(NamedTuple):
    """Position and kind of a message in a body."""

    start: int
    end: int
    rows: int
    """0: no rows, or not a record batch."""
    codec: Codec | None
    """None: another codec, or not a record batch."""


def checked_messages(body: bytes, limits: RecordLimits) -> list[MessageSpan]:
    """Return the messages, or raise `RequestTooLarge` if they unpack to more than allowed.

    Raises `InvalidRequest` for bytes after the end of the stream: they would be lost.
    """
    source = pa.BufferReader(body)
    size_bytes = record_count = start = 0
    spans: list[MessageSpan] = []
    for message in _messages(source):
        try:
            rows, unpacked_bytes = _declared(message)
            spans.append(MessageSpan(start, start := source.tell(), rows, _codec(message)))
        except (error, IndexError) as cause:
            raise InvalidRequest("the Arrow stream has a malformed message") from cause
        record_count += rows
        size_bytes += unpacked_bytes
        if size_bytes > limits.request_bytes_max:
            raise RequestTooLarge(
                f"the Arrow stream unpacks to more than {limits.request_bytes_max} bytes;"
                " send several requests"
            )
    check_count(record_count, limits)
    if source.tell() != len(body):
        raise InvalidRequest("bytes follow the end of the Arrow stream; send one stream")
    return spans


def _messages(source: pa.BufferReader) -> Iterator[ipc.Message]:
    reader = ipc.MessageReader.open_stream(source)
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


def _declared(message: ipc.Message) -> tuple[int, int]:
    """Return the rows of a message, and the bytes that its buffers say they unpack to."""
    meta = memoryview(message.metadata)
    root = _U32.unpack_from(meta)[0]
    kind_at, header = _field(meta, root, 1), _table(meta, root, 2)
    kind = _U8.unpack_from(meta, kind_at)[0] if kind_at else 0
    batch = _table(meta, header, 1) if header and kind == _DICTIONARY_BATCH else header
    if kind not in (_DICTIONARY_BATCH, _RECORD_BATCH) or not batch:
        return 0, 0
    length_at, compressed = _field(meta, batch, 0), _field(meta, batch, 3)
    rows = _I64.unpack_from(meta, length_at)[0] if length_at else 0
    spans = _spans(meta, batch)
    size_bytes = sum(length for _, length in spans)
    if compressed:
        data = memoryview(message.body or b"")
        size_bytes = sum(_unpacked_bytes(data, *span) for span in spans)
    if rows < 0 or size_bytes < 0:
        raise InvalidRequest("the Arrow stream has a message of a negative size")
    if kind == _RECORD_BATCH:
        return rows, size_bytes
    # Values of zero width take no bytes, yet a length is computed for each.
    return 0, size_bytes + rows * _I32.size


def _codec(message: ipc.Message) -> Codec | None:
    """Return how a record batch is compressed."""
    meta = memoryview(message.metadata)
    root = _U32.unpack_from(meta)[0]
    kind_at, batch = _field(meta, root, 1), _table(meta, root, 2)
    if not kind_at or _U8.unpack_from(meta, kind_at)[0] != _RECORD_BATCH or not batch:
        return None
    compression = _table(meta, batch, 3)
    if not compression:
        return "none"
    codec_at = _field(meta, compression, 0)
    return _CODECS.get(_U8.unpack_from(meta, codec_at)[0] if codec_at else 0)


def _unpacked_bytes(data: memoryview, position: int, length: int) -> int:
    if length < _I64.size:
        return 0
    if position < 0:
        raise IndexError(position)
    size_bytes: int = _I64.unpack_from(data, position)[0]
    return length if size_bytes == _NOT_COMPRESSED else size_bytes


def _spans(meta: memoryview, batch: int) -> list[tuple[int, int]]:
    """Return (position, length) of every buffer of a record batch."""
    at = _field(meta, batch, 2)
    if not at:
        return []
    vector = at + _U32.unpack_from(meta, at)[0]
    count = _U32.unpack_from(meta, vector)[0]
    first = vector + _U32.size
    return [*_SPAN.iter_unpack(meta[first : first + count * _SPAN.size])]


def _table(meta: memoryview, table: int, index: int) -> int:
    """Return the position of the table in field `index`, or 0 if the field is absent."""
    at = _field(meta, table, index)
    return at + int(_U32.unpack_from(meta, at)[0]) if at else 0


def _field(meta: memoryview, table: int, index: int) -> int:
    """Return the position of field `index` of the table at `table`, or 0 if it is absent."""
    vtable = table - _I32.unpack_from(meta, table)[0]
    slot = 4 + 2 * index
    if vtable < 0 or slot >= _U16.unpack_from(meta, vtable)[0]:
        return 0
    offset = _U16.unpack_from(meta, vtable + slot)[0]
    return table + int(offset) if offset else 0
