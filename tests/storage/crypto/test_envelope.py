"""The envelope: what was sealed opens, and nothing else does."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.crypto.envelope import OVERHEAD_BYTES, SLICE, DataKey, Sealer
from storage.errors import Corrupt
from storage.formats.partitions import PartitionNumber
from tests.examples import some
from tests.storage.helpers.damage import check_notices_damage

KEY = DataKey(b"t" * 16, 3, bytes(range(32)))
P = PartitionNumber(7)
NONCE = b"n" * 12
LAYOUT = "6e6e6e6e6e6e6e6e6e6e6e6ec67b6405dc3fd2175ca8189f12e3267cf367e2f80bc310"


@some
@given(st.binary(max_size=300), st.integers(-1, 2**62))
def test_opens_what_was_sealed(data: bytes, place: int) -> None:
    sealed = KEY.seal(data, P, NONCE, place)

    assert len(sealed) == len(data) + OVERHEAD_BYTES
    assert sealed.startswith(NONCE)
    assert KEY.open(sealed, P, place) == data
    assert KEY.open(memoryview(sealed), P, place) == data


def test_the_layout_never_changes() -> None:
    """Bytes that the first version wrote."""
    sealed = KEY.seal(b"a slice", P, NONCE)

    assert sealed.hex() == LAYOUT
    assert KEY.open(bytes.fromhex(LAYOUT), P) == b"a slice"


@some
@given(st.binary(min_size=1, max_size=64), st.data())
def test_any_damage_is_noticed(plain: bytes, data: st.DataObject) -> None:
    check_notices_damage(lambda each: KEY.open(each, P), KEY.seal(plain, P, NONCE), data)


@pytest.mark.parametrize(
    ("key", "partition", "place"),
    [
        (DataKey(b"u" * 16, 3, KEY.secret), 7, SLICE),
        (DataKey(KEY.topic_id, 4, KEY.secret), 7, SLICE),
        (DataKey(KEY.topic_id, 3, bytes(32)), 7, SLICE),
        (KEY, 8, SLICE),
        (KEY, 7, 0),
    ],
    ids=["topic", "number", "secret", "partition", "place"],
)
def test_what_was_moved_does_not_open(key: DataKey, partition: int, place: int) -> None:
    sealed = KEY.seal(b"a slice", P, NONCE)

    with pytest.raises(Corrupt, match="do not open"):
        key.open(sealed, PartitionNumber(partition), place)


def test_a_row_group_opens_only_at_its_offset() -> None:
    sealed = KEY.seal(b"a row group", P, NONCE, 500)

    assert KEY.open(sealed, P, 500) == b"a row group"
    for place in (501, SLICE):
        with pytest.raises(Corrupt):
            KEY.open(sealed, P, place)


def test_a_sealer_never_uses_a_nonce_twice() -> None:
    sealer = Sealer(KEY, random.Random(1).randbytes)
    nonces = {sealer.seal(b"same", P)[:12] for _ in range(1000)}

    assert len(nonces) == 1000
    assert sealer.seals == 1000


def test_a_secret_is_not_shown() -> None:
    assert KEY.secret.hex() not in repr(KEY)
    assert repr(KEY.secret) not in repr(Sealer(KEY, random.Random(1).randbytes))
