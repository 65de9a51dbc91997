"""The envelope: opens for what was sealed, and for nothing else."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from storage.errors import Corrupt
from storage.formats import frames
from tests.examples import some
from tests.storage.helpers.damage import check_gives_a_value_or_corrupt, check_notices_damage

MAGICS = st.binary(min_size=4, max_size=4)


@some
@given(MAGICS, st.binary())
def test_gives_back_what_was_sealed(magic: bytes, payload: bytes) -> None:
    frame = frames.seal(magic, payload)

    assert frames.unseal(magic, frame) == payload
    assert frames.unseal(magic, memoryview(frame)) == payload
    assert len(frame) == frames.HEADER_BYTES + len(payload)


@some
@given(st.binary(), st.data())
def test_notices_any_damage(payload: bytes, data: st.DataObject) -> None:
    # After these four bytes a CRC is blind for zeros. Payloads are msgpack or Arrow, which
    # begin otherwise, and whose decoders know where they end.
    assume(not payload.startswith(b"\xff\xff\xff\xff"))
    frame = frames.seal(b"TEST", payload)

    check_notices_damage(lambda each: frames.unseal(b"TEST", each), frame, data)


@some
@given(st.binary())
def test_any_bytes_are_a_frame_or_corrupt(anything: bytes) -> None:
    check_gives_a_value_or_corrupt(lambda each: frames.unseal(b"TEST", each), anything)


def test_names_what_it_expected_and_found() -> None:
    with pytest.raises(Corrupt, match=r"expected a b'RHD1' frame, found b'RTP1'"):
        frames.unseal(b"RHD1", frames.seal(b"RTP1", b"x"))
    with pytest.raises(Corrupt, match=r"expected a b'RHD1' frame, found 3 bytes"):
        frames.unseal(b"RHD1", b"RHD")
