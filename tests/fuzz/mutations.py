"""Almost valid bytes, as disks, networks, old versions and attackers produce them."""

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.storage.helpers.damage import flipped, truncated

SIZES = (1, 2, 4, 8)
EXTREMES = (0, 1, 0x7F, 0x80, 0xFF)
"""Bytes of lengths that are too small, too large or negative."""


@dataclass(frozen=True)
class Envelope:
    """How to extract the bytes that a checksum protects, and to protect others."""

    open: Callable[[bytes], bytes]
    seal: Callable[[bytes], bytes]


def hostile(
    valid: st.SearchStrategy[bytes], envelope: Envelope | None = None
) -> st.SearchStrategy[bytes]:
    """Return any bytes, valid ones with damage, and damaged ones with a corrected checksum."""
    damaged = _damaged(valid)
    if envelope is None:
        return st.binary(max_size=200) | damaged
    inside = _damaged(valid.map(envelope.open)) | st.binary(max_size=200)
    return st.binary(max_size=200) | damaged | inside.map(envelope.seal)


@st.composite
def _damaged(draw: st.DrawFn, valid: st.SearchStrategy[bytes]) -> bytes:
    data = draw(valid)
    for _ in range(draw(st.integers(1, 3))):
        data = _once(draw, data, valid)
    return data


def _once(draw: st.DrawFn, data: bytes, valid: st.SearchStrategy[bytes]) -> bytes:
    if not data:
        return draw(st.binary(max_size=20))
    start = draw(st.integers(0, len(data) - 1))
    end = draw(st.integers(start, len(data)))
    match draw(st.integers(0, 6)):
        case 0:
            return flipped(data, draw(st.data()))
        case 1:
            return truncated(data, draw(st.data()))
        case 2:
            return data[:start] + data[end:]
        case 3:
            return data + data[start:end]
        case 4:
            return data[:start] + draw(valid)[start:]
        case 5:
            size = draw(st.sampled_from(SIZES))
            number = bytes([draw(st.sampled_from(EXTREMES))]) * size
            return data[:start] + number + data[start + size :]
        case _:
            return data[:start] + draw(st.binary(min_size=1, max_size=8)) + data[start:]
