"""Ways to damage stored bytes, for every decoder to notice."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import strategies as st

from storage.errors import Corrupt

Decode = Callable[[bytes], Any]


def flipped(whole: bytes, data: st.DataObject) -> bytes:
    """Return `whole` with any one bit flipped."""
    damaged = bytearray(whole)
    damaged[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    return bytes(damaged)


def truncated(whole: bytes, data: st.DataObject) -> bytes:
    return whole[: data.draw(st.integers(0, len(whole) - 1))]


def check_notices_damage(decode: Decode, whole: bytes, data: st.DataObject) -> None:
    """Check that any flipped bit, any truncation and any addition is noticed."""
    for damaged in (flipped(whole, data), truncated(whole, data), whole + b"\0"):
        with pytest.raises(Corrupt):
            decode(damaged)


def check_gives_a_value_or_corrupt(decode: Decode, anything: bytes) -> None:
    with suppress(Corrupt):
        assert decode(anything) is not None
