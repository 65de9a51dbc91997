"""The frame around stored bytes: it returns the payload that was sealed, or raises `Corrupt`."""

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
def test_unseal_returns_the_sealed_payload(magic: bytes, payload: bytes) -> None:
    frame = frames.seal(magic, payload)

    assert frames.unseal(magic, frame) == payload
    assert frames.unseal(magic, memoryview(frame)) == payload
    assert len(frame) == 8 + len(payload)


@some
@given(st.binary(), st.data())
def test_any_damage_to_a_frame_is_detected(payload: bytes, data: st.DataObject) -> None:
    # After these four bytes a CRC does not notice added zeros. Payloads are msgpack or Arrow,
    # which never begin like this, and whose decoders know where they end.
    assume(not payload.startswith(b"\xff\xff\xff\xff"))
    frame = frames.seal(b"TEST", payload)

    check_notices_damage(lambda each: frames.unseal(b"TEST", each), frame, data)


@some
@given(st.binary())
def test_any_bytes_are_a_frame_or_corrupt(anything: bytes) -> None:
    check_gives_a_value_or_corrupt(lambda each: frames.unseal(b"TEST", each), anything)


def test_the_error_names_the_expected_and_the_found_magic() -> None:
    with pytest.raises(Corrupt, match=r"expected a b'RHD1' frame, found b'RTP1'"):
        frames.unseal(b"RHD1", frames.seal(b"RTP1", b"x"))
    with pytest.raises(Corrupt, match=r"expected a b'RHD1' frame, found 3 bytes"):
        frames.unseal(b"RHD1", b"RHD")
