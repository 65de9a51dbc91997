"""The bytes that name the schema of a value: before its data, or in a header of the record.

    value    = 00 id body            id: unsigned 32 bits, big-endian
    header   = 01 guid indexes?      named `__key_schema_id` or `__value_schema_id`; the value is
                                     the data alone
    body     = data                  of Avro and JSON Schema
             = indexes data          of Protobuf: which message of the file it is
    indexes  = count index*          as zigzag varints: [1, 0] is the first message inside the
             = 00                    second one; [0], the first message, is shorter

These are Confluent's, for ever. What looks like a frame may be chance: ask the registry.
"""

import struct
from typing import Final
from uuid import UUID

KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"

INDEXES_MAX: Final = 100
"""Maximum number of messages inside each other."""

FIRST_MESSAGE: Final = b"\x00"

_PREFIX: Final = struct.Struct(">BI")
_WITH_ID: Final = 0
_WITH_GUID: Final = 1
_GUID_END: Final = 17


def prefix_of(schema_id: int) -> bytes:
    """Return what stands before the body of each value of a schema."""
    return _PREFIX.pack(_WITH_ID, schema_id)


def framed(schema_id: int, body: bytes) -> bytes:
    return prefix_of(schema_id) + body


def id_of(value: bytes) -> int | None:
    """Return the id of the schema that a value begins with; None: it begins otherwise."""
    if len(value) < _PREFIX.size or value[0] != _WITH_ID:
        return None
    found: int = _PREFIX.unpack_from(value)[1]
    return found


def split(value: bytes) -> tuple[int, bytes] | None:
    """Return the id of the schema and the body; None: the value is not framed."""
    found = id_of(value)
    return None if found is None else (found, value[_PREFIX.size :])


def header_of(guid: str, indexes: bytes = b"") -> bytes:
    """Return the header that names the schema of a value; of Protobuf with `indexes`."""
    return bytes((_WITH_GUID,)) + UUID(guid).bytes + indexes


def split_header(header: bytes) -> tuple[str | int, bytes] | None:
    """Return the GUID or the id of a header, and what is before the data in the body."""
    if len(header) >= _GUID_END and header[0] == _WITH_GUID:
        return str(UUID(bytes=header[1:_GUID_END])), header[_GUID_END:]
    return split(header)


def pack_indexes(indexes: tuple[int, ...]) -> bytes:
    """Return where a message is in its file, before the data of a Protobuf value."""
    if indexes == (0,):
        return FIRST_MESSAGE
    out = bytearray()
    for number in (len(indexes), *indexes):
        left = number << 1
        while left > 127:
            out.append(left & 127 | 128)
            left >>= 7
        out.append(left)
    return bytes(out)


def unpack_indexes(body: bytes) -> tuple[tuple[int, ...], int]:
    """Return which message a Protobuf value is, and where its data begins.

    Raises `ValueError` if the body does not begin with indexes.
    """
    count, at = _index(body, 0)
    if count == 0:
        return (0,), at
    if count > INDEXES_MAX:
        raise ValueError("it names a message by too many indexes")
    found = []
    for _ in range(count):
        index, at = _index(body, at)
        found.append(index)
    return tuple(found), at


def _index(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 35:
        if at >= len(body):
            raise ValueError("it ends within the indexes of its message")
        byte = body[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value & 1:
                break
            return value >> 1, at
        shift += 7
    raise ValueError("the indexes of its message are not valid")
