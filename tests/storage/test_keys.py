"""Keys: every backend takes them, and they spread over a bucket."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from storage import keys
from storage.stores.metadata import collection_of
from storage.stores.objects import check_key
from tests.examples import few
from tests.storage.helpers.logs import IDS
from tests.storage.helpers.worlds import new_ids


@few
@given(IDS, IDS, st.integers(0, 9999))
def test_object_keys_are_taken_by_every_store(topic_id: bytes, object_id: bytes, lane: int) -> None:
    check_key(keys.hot_segment(object_id))
    for kind in ("page", "node", "root"):
        check_key(keys.index_object(topic_id, lane, object_id, kind))


def test_object_keys_spread_by_their_first_part() -> None:
    new_id = new_ids()

    first = Counter(keys.hot_segment(new_id()).split("/")[0] for _ in range(20_000))

    assert len(first) >= 16
    assert max(first.values()) < 2 * 20_000 / len(first)


def test_the_heads_of_a_topic_are_one_collection_in_the_order_of_lanes() -> None:
    heads = [keys.head(bytes(16), lane) for lane in (0, 9, 10, 9999)]

    assert heads == sorted(heads)
    assert {collection_of(key)[0] for key in heads} == {f"head/{bytes(16).hex()}"}
    assert collection_of(keys.topic("t")) == ("topic", "t")
