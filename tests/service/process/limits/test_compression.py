"""Content-Encoding: complete bodies are decompressed; truncated ones and bombs are refused."""

import gzip
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from service.process.limits.compression import decompress
from storage.errors import InvalidRequest, RequestTooLarge, RiachoError, UnsupportedMediaType

PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstandard.compress}
BYTES_MAX = 1_000_000

packed = pytest.mark.parametrize("encoding", PACKERS)


@given(st.binary(), st.sampled_from(sorted(PACKERS)))
def test_a_compressed_body_is_decompressed(body: bytes, encoding: str) -> None:
    assert decompress(PACKERS[encoding](body), encoding, BYTES_MAX) == body


@pytest.mark.parametrize("encoding", [None, "", "identity", " Identity "])
def test_a_plain_body_is_returned_without_a_copy(encoding: str | None) -> None:
    body = b"hello"

    assert decompress(body, encoding, BYTES_MAX) is body


def test_the_old_name_of_gzip_is_accepted() -> None:
    assert decompress(gzip.compress(b"a"), "X-GZIP, identity", BYTES_MAX) == b"a"


@packed
def test_several_members_are_joined_into_one_body(encoding: str) -> None:
    pack = PACKERS[encoding]

    assert decompress(pack(b"a") + pack(b"") + pack(b"b"), encoding, BYTES_MAX) == b"ab"


@packed
def test_bytes_after_the_last_member_are_refused(encoding: str) -> None:
    with pytest.raises(InvalidRequest, match=f"not valid {encoding}"):
        decompress(PACKERS[encoding](b"a") + b"garbage!", encoding, BYTES_MAX)


@packed
def test_any_truncation_is_detected(encoding: str) -> None:
    body = PACKERS[encoding](bytes(range(256)) * 4)

    for end in range(1, len(body)):
        with pytest.raises(InvalidRequest):
            decompress(body[:end], encoding, BYTES_MAX)


@packed
def test_a_body_can_be_as_large_as_the_limit(encoding: str) -> None:
    pack = PACKERS[encoding]

    assert len(decompress(pack(bytes(BYTES_MAX)), encoding, BYTES_MAX)) == BYTES_MAX
    with pytest.raises(RequestTooLarge, match=str(BYTES_MAX)):
        decompress(pack(bytes(BYTES_MAX + 1)), encoding, BYTES_MAX)


@packed
def test_a_bomb_is_refused_before_it_is_decompressed(encoding: str) -> None:
    bomb = PACKERS[encoding](bytes(50_000_000))
    before = pa.total_allocated_bytes()

    with pytest.raises(RequestTooLarge):
        decompress(bomb, encoding, BYTES_MAX)

    assert pa.total_allocated_bytes() - before < 2 * BYTES_MAX


def test_a_plain_body_is_limited_too() -> None:
    with pytest.raises(RequestTooLarge):
        decompress(b"abc", None, 2)


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "gzip,zstd", "deflate", "*"])
def test_other_encodings_are_refused_with_a_list_of_supported_ones(encoding: str) -> None:
    with pytest.raises(UnsupportedMediaType, match="use one of gzip, zstd, identity"):
        decompress(b"", encoding, BYTES_MAX)


@given(st.binary(), st.sampled_from([*PACKERS, None]))
def test_any_bytes_give_a_body_or_a_typed_error(body: bytes, encoding: str | None) -> None:
    with suppress(RiachoError):
        decompress(body, encoding, BYTES_MAX)
