"""A topic that lost a head is reported; one that is being created or deleted is not."""

import inspect
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from storage import keys
from storage.errors import Corrupt, HeadMissing, MetadataDamaged
from storage.head import head as heads
from storage.stores.memory import MemoryMetadata
from storage.stores.metadata import Delete, MetadataStore, Op, Put, Scannable, Versioned
from storage.topics import all_heads
from storage.topics.all_heads import every_head, sound_topics, strays
from storage.topics.topics import Topics
from tests.storage.helpers.faults import FaultyMetadata
from tests.storage.helpers.worlds import Clock, new_ids, new_metadata

pytestmark = pytest.mark.anyio

LANES = 230
CONFIG = {"lane.partitions": 1}


def topics_of(metadata: MetadataStore) -> Topics:
    clock = Clock()
    return Topics(metadata, ["a"], new_ids(0), clock.now_ms, clock.monotonic_s)


@pytest.fixture(params=["scanned", "looked up"])
def is_scanned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "scanned")


def seen_by(table: MemoryMetadata, is_scanned: bool) -> MetadataStore:
    """Return the table as one that can, or cannot, be scanned."""
    metadata = table if is_scanned else FaultyMetadata(table)
    assert isinstance(metadata, Scannable) == is_scanned
    return metadata


async def lanes_of(heads_found: AsyncIterator[heads.Head]) -> list[int]:
    return [head.lane async for head in heads_found]


async def without(table: MemoryMetadata, key: str) -> Versioned:
    item = await table.get(key)
    assert item is not None
    await table.transact([Delete(key, item.version)])
    return item


async def test_every_head_is_yielded_once(is_scanned: bool) -> None:
    table = new_metadata()
    await topics_of(table).create("t", partitions=LANES, config=CONFIG)

    found = await lanes_of(every_head(seen_by(table, is_scanned)))

    assert sorted(found) == list(range(LANES))


async def test_a_topic_that_lost_a_head_is_reported(is_scanned: bool) -> None:
    table = new_metadata()
    topic = await topics_of(table).create("t", partitions=LANES, config=CONFIG)
    key = keys.head(topic.topic_id, 150)
    await without(table, key)

    with pytest.raises(HeadMissing, match=rf"topic 't' exists.*{key}.*riacho fsck"):
        await lanes_of(every_head(seen_by(table, is_scanned)))


async def test_a_head_under_the_key_of_another_lane_is_corrupt(is_scanned: bool) -> None:
    table = new_metadata()
    topic = await topics_of(table).create("t", partitions=3, config=CONFIG)
    item = await table.get(keys.head(topic.topic_id, 0))
    assert item is not None
    await without(table, keys.head(topic.topic_id, 1))
    await table.transact([Put(keys.head(topic.topic_id, 1), item.value, None)])

    with pytest.raises(Corrupt, match="the head of another lane"):
        await lanes_of(every_head(seen_by(table, is_scanned)))


async def test_creating_widening_and_deleting_a_topic_never_looks_like_a_lost_head(
    is_scanned: bool,
) -> None:
    table = new_metadata()
    looks = []

    class Watched(FaultyMetadata):
        """A table whose heads are listed after every transaction."""

        async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
            versions = await super().transact(ops)
            looks.append(await lanes_of(every_head(seen_by(table, is_scanned))))
            return versions

    topics = topics_of(Watched(table))
    await topics.create("t", partitions=LANES, config=CONFIG)
    await topics.alter("t", partitions=2 * LANES)
    await topics.delete("t")

    assert len(looks) > 12
    assert [] in looks
    assert max(map(len, looks)) == 2 * LANES


async def test_deleting_a_topic_during_the_listing_does_not_look_like_a_lost_head() -> None:
    table = new_metadata()
    topics = topics_of(table)
    await topics.create("t", partitions=3, config=CONFIG)

    class Deleted(FaultyMetadata):
        async def get_many(self, keys: Sequence[str]) -> dict[str, Versioned]:
            await topics.delete("t")
            return await super().get_many(keys)

    assert await lanes_of(every_head(Deleted(table))) == []


async def test_a_head_without_its_topic_is_reported_and_still_listed() -> None:
    table = new_metadata()
    topic = await topics_of(table).create("t", partitions=2, config=CONFIG)
    key = keys.head(topic.topic_id, 1)
    item = await without(table, key)
    run = heads.Run(b"o" * 16, 0, 0, (heads.RunSlice(0, 1, 1, 0, 0, 0),), 1)
    used = heads.append(heads.decode(item.value), [run])
    await table.transact([Put(key, heads.encode(used), None)])
    assert [found async for found in strays(table)] == []
    await without(table, keys.topic("t"))

    assert sorted(await lanes_of(every_head(table))) == [0, 1]
    assert [found for found, _ in [stray async for stray in strays(table)]] == [key]


@pytest.mark.parametrize("kind", ["head", "topic", "gone", "uopic"])
async def test_an_item_that_does_not_match_its_key_stops_the_listing_and_is_reported(
    kind: str,
) -> None:
    table = new_metadata()
    await topics_of(table).create("t", partitions=2, config=CONFIG)
    key = f"{kind}/x" if kind in ("topic", "uopic") else f"{kind}/{'ab' * 16}/00000"
    await table.transact([Put(key, b"damaged", None)])

    with pytest.raises(MetadataDamaged, match=key):
        await lanes_of(every_head(table))
    [(found, why)] = [stray async for stray in strays(table)]
    assert found == key
    assert key in why
    assert [topic.name for topic in await sound_topics(table)] == ["t"]


OBJECT_KEYS = {"hot_segment", "compacted_segment", "index_object", "zone_marker", "zone_probe"}
NOT_A_KEY = {
    "object_prefixes",
    "objects_ending_with",
    "part",
    "parse_group",
    "parse_key",
    "parse_member",
    "parse_part",
    "short_part",
}
SAMPLES = {str: "name", bytes: bytes(16), int: 1}


def test_every_key_of_the_table_belongs_to_a_known_collection() -> None:
    makers = {
        name: made
        for name, made in inspect.getmembers(keys, inspect.isfunction)
        if made.__module__ == keys.__name__
    }
    assert makers.keys() > OBJECT_KEYS
    for name in makers.keys() - OBJECT_KEYS - NOT_A_KEY:
        kinds = inspect.signature(makers[name]).parameters.values()
        made = makers[name](*(SAMPLES[each.annotation] for each in kinds))
        assert made.split("/")[0] in all_heads.COLLECTIONS, name
