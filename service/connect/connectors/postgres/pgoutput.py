"""Messages of pgoutput, PostgreSQL's plugin of logical decoding, protocol version 1.

    B  Begin      final lsn, commit time, transaction id      R  Relation  a table and its columns
    C  Commit     flags, commit lsn, end lsn, commit time     Y  Type      name of a type
    I  Insert     table, new row                              O  Origin    lsn, name
    U  Update     table, old key or row, new row              M  Message   flags, lsn, prefix, bytes
    D  Delete     table, old key or row                       T  Truncate  options, tables

Integers are big-endian, names end with a zero byte, times are microseconds since 2000-01-01. Values
of rows are text, as PostgreSQL prints it. Any bytes give a message, or `TaskFault`.
"""

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from service.connect.data.errors import TaskFault

POSTGRES_EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01 in microseconds since 1970."""


class _Unchanged(Enum):
    UNCHANGED = "unchanged"


UNCHANGED: Final = _Unchanged.UNCHANGED
"""A large value (TOAST) that an update did not touch: the log does not have it."""

Cell: TypeAlias = str | _Unchanged | None
Row: TypeAlias = list[Cell]


@dataclass(frozen=True, slots=True)
class BeginMessage:
    final_lsn: int
    """Of the commit; it grows from one transaction to the next in the order of commits."""
    commit_us: int
    """Since 1970."""
    xid: int


@dataclass(frozen=True, slots=True)
class CommitMessage:
    commit_lsn: int
    end_lsn: int
    commit_us: int


@dataclass(frozen=True, slots=True)
class RelationColumn:
    name: str
    type_oid: int
    type_modifier: int
    is_identity: bool
    """Whether it is part of the old key that updates and deletes carry."""


@dataclass(frozen=True, slots=True)
class RelationMessage:
    oid: int
    schema: str
    name: str
    identity: str
    """d: default, n: nothing, f: full, i: an index."""
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class InsertMessage:
    relation: int
    new: Row


@dataclass(frozen=True, slots=True)
class UpdateMessage:
    relation: int
    old: Row | None
    old_is_key: bool
    """Whether `old` has only the columns of the identity."""
    new: Row


@dataclass(frozen=True, slots=True)
class DeleteMessage:
    relation: int
    old: Row
    old_is_key: bool


@dataclass(frozen=True, slots=True)
class TruncateMessage:
    relations: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class TypeMessage:
    oid: int
    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class OriginMessage:
    lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    is_transactional: bool
    lsn: int
    prefix: str
    content: bytes


Change: TypeAlias = InsertMessage | UpdateMessage | DeleteMessage | TruncateMessage
Message: TypeAlias = (
    BeginMessage
    | CommitMessage
    | RelationMessage
    | Change
    | TypeMessage
    | OriginMessage
    | LogicalMessage
)

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_BEGIN: Final = struct.Struct(">QqI")
_COMMIT: Final = struct.Struct(">BQQq")
_COLUMN: Final = struct.Struct(">Ii")
_TRUNCATE: Final = struct.Struct(">IB")
_MESSAGE: Final = struct.Struct(">BQ")

_NULL, _KEPT, _TEXT = b"nut"
_NEW, _KEY, _OLD = b"NKO"


def decode(data: bytes) -> Message:
    """Return the message, or raise `TaskFault` if it is none."""
    try:
        message, end = _DECODERS[data[0]](data)
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise TaskFault(
            f"the server sent {data[:16]!r}…, which is no message of pgoutput version 1: {error!r}"
        ) from None
    if end != len(data):
        raise TaskFault(f"a message {chr(data[0])!r} of pgoutput has {len(data) - end} bytes more")
    return message


def _begin(data: bytes) -> tuple[Message, int]:
    lsn, time, xid = _BEGIN.unpack_from(data, 1)
    return BeginMessage(lsn, time + POSTGRES_EPOCH_US, xid), 1 + _BEGIN.size


def _commit(data: bytes) -> tuple[Message, int]:
    _, lsn, end, time = _COMMIT.unpack_from(data, 1)
    return CommitMessage(lsn, end, time + POSTGRES_EPOCH_US), 1 + _COMMIT.size


def _relation(data: bytes) -> tuple[Message, int]:
    [oid] = _U32.unpack_from(data, 1)
    schema, at = _name(data, 5)
    name, at = _name(data, at)
    identity = chr(data[at])
    [count] = _U16.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        flags = data[at]
        column, at = _name(data, at + 1)
        type_oid, modifier = _COLUMN.unpack_from(data, at)
        at += _COLUMN.size
        columns.append(RelationColumn(column, type_oid, modifier, bool(flags & 1)))
    return RelationMessage(oid, schema or "pg_catalog", name, identity, tuple(columns)), at


def _insert(data: bytes) -> tuple[Message, int]:
    [oid] = _U32.unpack_from(data, 1)
    _expect(data, 5, _NEW)
    row, at = _row(data, 6)
    return InsertMessage(oid, row), at


def _update(data: bytes) -> tuple[Message, int]:
    [oid] = _U32.unpack_from(data, 1)
    old, is_key, at = None, False, 5
    if data[at] in (_KEY, _OLD):
        is_key = data[at] == _KEY
        old, at = _row(data, at + 1)
    _expect(data, at, _NEW)
    row, at = _row(data, at + 1)
    return UpdateMessage(oid, old, is_key, row), at


def _delete(data: bytes) -> tuple[Message, int]:
    [oid] = _U32.unpack_from(data, 1)
    if data[5] not in (_KEY, _OLD):
        raise ValueError("a delete without its old row")
    row, at = _row(data, 6)
    return DeleteMessage(oid, row, data[5] == _KEY), at


def _truncate(data: bytes) -> tuple[Message, int]:
    count, options = _TRUNCATE.unpack_from(data, 1)
    at = 1 + _TRUNCATE.size
    if count > (len(data) - at) // 4:
        raise ValueError("a truncate of more tables than it names")
    oids = struct.unpack_from(f">{count}I", data, at)
    return TruncateMessage(oids, bool(options & 1), bool(options & 2)), at + 4 * count


def _type(data: bytes) -> tuple[Message, int]:
    [oid] = _U32.unpack_from(data, 1)
    schema, at = _name(data, 5)
    name, at = _name(data, at)
    return TypeMessage(oid, schema or "pg_catalog", name), at


def _origin(data: bytes) -> tuple[Message, int]:
    lsn = int.from_bytes(data[1:9])
    name, at = _name(data, 9)
    return OriginMessage(lsn, name), at


def _message(data: bytes) -> tuple[Message, int]:
    flags, lsn = _MESSAGE.unpack_from(data, 1)
    prefix, at = _name(data, 1 + _MESSAGE.size)
    [size] = _U32.unpack_from(data, at)
    at += 4
    return LogicalMessage(bool(flags & 1), lsn, prefix, data[at : at + size]), at + size


def _row(data: bytes, at: int) -> tuple[Row, int]:
    [count] = _U16.unpack_from(data, at)
    at += 2
    row: Row = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == _TEXT:
            start = at + 4
            at = start + int.from_bytes(data[at:start])
            if at > len(data):
                raise ValueError("a value ends after its message")
            row.append(data[start:at].decode())
        elif kind == _NULL:
            row.append(None)
        elif kind == _KEPT:
            row.append(UNCHANGED)
        else:
            raise ValueError(f"a value of kind {chr(kind)!r}")
    return row, at


def _name(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def _expect(data: bytes, at: int, kind: int) -> None:
    if data[at] != kind:
        raise ValueError(f"{chr(kind)!r} was expected, not {chr(data[at])!r}")


_DECODERS: Final = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("R"): _relation,
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("T"): _truncate,
    ord("Y"): _type,
    ord("O"): _origin,
    ord("M"): _message,
}
