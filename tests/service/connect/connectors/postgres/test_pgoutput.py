import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.connect.connectors.postgres.pgoutput import (
    POSTGRES_EPOCH_US,
    UNCHANGED,
    BeginMessage,
    CommitMessage,
    DeleteMessage,
    InsertMessage,
    LogicalMessage,
    OriginMessage,
    RelationColumn,
    RelationMessage,
    Row,
    TruncateMessage,
    TypeMessage,
    UpdateMessage,
    decode,
)
from service.connect.data.errors import TaskFault
from tests.examples import some


def _row(row: Row) -> bytes:
    out = struct.pack(">H", len(row))
    for cell in row:
        if cell is None:
            out += b"n"
        elif cell is UNCHANGED:
            out += b"u"
        else:
            assert isinstance(cell, str)
            out += b"t" + struct.pack(">I", len(cell.encode())) + cell.encode()
    return out


_OID = struct.pack(">I", 7)
ROW: Row = ["ä", None, UNCHANGED, ""]
MESSAGES = {
    b"B" + struct.pack(">QqI", 9, 5, 3): BeginMessage(9, POSTGRES_EPOCH_US + 5, 3),
    b"C\0" + struct.pack(">QQq", 9, 11, 5): CommitMessage(9, 11, POSTGRES_EPOCH_US + 5),
    b"R" + _OID + b"s\0t\0f" + struct.pack(">H", 1) + b"\1id\0" + struct.pack(">Ii", 23, -1): (
        RelationMessage(7, "s", "t", "f", (RelationColumn("id", 23, -1, True),))
    ),
    b"I" + _OID + b"N" + _row(ROW): InsertMessage(7, ROW),
    b"U" + _OID + b"N" + _row(ROW): UpdateMessage(7, None, False, ROW),
    b"U" + _OID + b"K" + _row(["1"]) + b"N" + _row(ROW): UpdateMessage(7, ["1"], True, ROW),
    b"U" + _OID + b"O" + _row(["1"]) + b"N" + _row(ROW): UpdateMessage(7, ["1"], False, ROW),
    b"D" + _OID + b"K" + _row(["1"]): DeleteMessage(7, ["1"], True),
    b"D" + _OID + b"O" + _row(ROW): DeleteMessage(7, ROW, False),
    b"T" + struct.pack(">IB", 2, 3) + _OID + _OID: TruncateMessage((7, 7), True, True),
    b"Y" + _OID + b"\0int4\0": TypeMessage(7, "pg_catalog", "int4"),
    b"O" + struct.pack(">Q", 5) + b"there\0": OriginMessage(5, "there"),
    b"M\1" + struct.pack(">Q", 5) + b"p\0" + struct.pack(">I", 2) + b"xy": (
        LogicalMessage(True, 5, "p", b"xy")
    ),
}


@pytest.mark.parametrize("data", MESSAGES)
def test_every_message_is_understood(data: bytes) -> None:
    assert decode(data) == MESSAGES[data]


@pytest.mark.parametrize("data", MESSAGES)
def test_a_message_that_is_cut_or_goes_on_is_refused(data: bytes) -> None:
    for end in range(len(data)):
        with pytest.raises(TaskFault):
            decode(data[:end])
    with pytest.raises(TaskFault, match="1 bytes more"):
        decode(data + b"\0")


@some
@given(st.sampled_from(list(MESSAGES)), st.integers(0, 60), st.binary(max_size=4), st.binary())
def test_any_bytes_are_a_message_or_a_clear_error(
    data: bytes, at: int, other: bytes, noise: bytes
) -> None:
    for each in (data[:at] + other + data[at + len(other) :], data[:1] + noise, noise):
        with contextlib.suppress(TaskFault):
            decode(each)
