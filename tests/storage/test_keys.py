"""Keys: every backend accepts them, and they are spread over a bucket."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from storage import keys
from storage.stores.metadata import collection_of
from storage.stores.objects import check_key
from tests.examples import few
from tests.storage.helpers.logs import IDS
from tests.storage.helpers.worlds import new_ids

ID = bytes.fromhex("0191e2e97ad1e3805803f4cb5100f09a")
HEX = ID.hex()


@few
@given(IDS, IDS, st.integers(0, 9999))
def test_object_keys_are_valid_in_every_store(topic_id: bytes, object_id: bytes, lane: int) -> None:
    check_key(keys.hot_segment(object_id))
    for kind in ("page", "node", "root"):
        check_key(keys.index_object(topic_id, lane, object_id, kind))


def test_object_keys_are_spread_by_their_first_part() -> None:
    new_id = new_ids()

    first = Counter(keys.hot_segment(new_id()).split("/")[0] for _ in range(20_000))

    assert len(first) >= 16
    assert max(first.values()) < 2 * 20_000 / len(first)


def test_the_heads_of_a_topic_are_one_collection_ordered_by_lane() -> None:
    heads = [keys.head(bytes(16), lane) for lane in (0, 9, 10, 9999)]

    assert heads == sorted(heads)
    assert {collection_of(key)[0] for key in heads} == {f"head/{bytes(16).hex()}"}
    assert collection_of(keys.topic("t")) == ("topic", "t")


def test_different_keys_differ() -> None:
    name = HEX
    ours = {
        keys.hot_segment(ID): "hot",
        keys.compacted_segment(ID, 7, 12, ID): "parquet",
        keys.zone_marker(name): "marker",
        keys.zone_probe(name): "probe",
        **{
            keys.index_object(ID, 3, ID, kind): kind
            for kind in ("page", "node", "root", "producers", "segments")
        },
    }
    for key, kind in ours.items():
        assert keys.parse_key(key) == (kind, name)
        for other in (f"x{key}", f"{key}x", key[:-1], "b" + key[1:], key.upper(), "0/" + key):
            assert keys.parse_key(other) is None
    for other in ("", "a/hot/", "a/hot/..seg", f"a/cold/{name}.seg", "riacho-doctor/1/a"):
        assert keys.parse_key(other) is None


@given(st.text(max_size=80))
def test_any_text_is_a_key_or_is_not(text: str) -> None:
    assert keys.parse_key(text) is None


def test_every_object_is_listed_by_one_prefix() -> None:
    for key in (keys.hot_segment(ID), keys.compacted_segment(ID, 7, 12, ID), keys.zone_probe(HEX)):
        assert sum(key.startswith(prefix) for prefix in keys.object_prefixes()) == 1
        assert key.startswith(keys.objects_ending_with(HEX[-2:]))
        assert key.startswith(keys.objects_ending_with(""))
