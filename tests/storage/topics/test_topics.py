"""Topics: created once, altered and deleted by many processes, while replies are lost."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import keys
from storage.errors import (
    Contended,
    Corrupt,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    OutcomeUnknown,
    RiachoError,
    StoreUnavailable,
    TopicExists,
    UnknownTopicOrPartition,
)
from storage.formats import frames
from storage.head import head as heads
from storage.head.replication import place
from storage.lanes.lane import Lane
from storage.stores.memory import MemoryMetadata
from storage.stores.metadata import MetadataStore, Op, Put, Versioned
from storage.topics import items as topic_items
from storage.topics.topics import (
    PARTITIONS_MAX,
    TOPIC_ATTEMPTS_MAX,
    Topic,
    Topics,
    parse_topic_name,
)
from tests.examples import few, some
from tests.storage.helpers.damage import check_gives_a_value_or_corrupt, check_notices_damage
from tests.storage.helpers.faults import Fault, FaultyMetadata, random_faults
from tests.storage.helpers.logs import run_of
from tests.storage.helpers.worlds import (
    Clock,
    commit_run,
    new_ids,
    new_metadata,
    new_runtime,
    turns,
)

pytestmark = pytest.mark.anyio

UNANSWERED = pytest.mark.parametrize("fault", ["request lost", "reply lost", "late"])


def new_topics(
    metadata: MetadataStore,
    *,
    seed: int = 0,
    clock: Clock | None = None,
    zones: str = "abc",
    back_off: Callable[[int], Awaitable[None]] | None = None,
) -> Topics:
    clock = clock or Clock()
    return Topics(
        metadata,
        list(zones),
        new_ids(seed),
        clock.now_ms,
        clock.monotonic_s,
        back_off=back_off,
    )


async def head_of(metadata: MetadataStore, topic: Topic, lane: int) -> heads.Head | None:
    item = await metadata.get(keys.head(topic.topic_id, lane))
    return None if item is None else heads.decode(item.value)


async def widths(metadata: MetadataStore, topic: Topic) -> list[int]:
    """Return the number of partitions in the head of each lane."""
    found = await metadata.list(f"head/{topic.topic_id.hex()}/")
    return [heads.decode(item.value).partition_count for _, item in found]


# Names


@pytest.mark.parametrize("name", ["a", "A.b_c-1", "...", "x" * 249])
def test_a_name_by_kafkas_rules_is_accepted(name: str) -> None:
    assert parse_topic_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "é", "a\n", "٣"])
def test_a_name_against_kafkas_rules_is_refused(name: str) -> None:
    with pytest.raises(InvalidTopic):
        parse_topic_name(name)


# Creating


async def test_a_new_topic_has_its_heads_and_its_item() -> None:
    metadata = new_metadata()
    topics = new_topics(metadata)

    topic = await topics.create(
        "t", partitions=130, replication_factor=2, config={"retention.ms": 5}
    )

    assert topic == await topics.read("t") == await topics.get("t")
    assert (topic.partition_count, topic.replication_factor) == (130, 2)
    assert topic.config["retention.ms"] == "5"
    assert topic.lanes == range(3)
    assert await widths(metadata, topic) == [64, 64, 2]
    head = await head_of(metadata, topic, 2)
    assert head is not None
    assert (head.zones, head.isr, head.lane) == (place(topic.topic_id, 2, 2, "abc"), 0b11, 2)
    assert [topic.lane_of(p) for p in (0, 63, 64, 129)] == [(0, 0), (0, 63), (1, 0), (2, 1)]


async def test_the_error_says_what_is_wrong_with_a_new_topic() -> None:
    topics = new_topics(new_metadata())

    for partitions in (0, -1, PARTITIONS_MAX + 1):
        with pytest.raises(InvalidPartitions, match=f"from 1 to {PARTITIONS_MAX}"):
            await topics.create("t", partitions=partitions)
    for factor in (0, 4):
        with pytest.raises(InvalidReplicationFactor, match=f"from 1 to 3, .*, not {factor}"):
            await topics.create("t", replication_factor=factor)
    with pytest.raises(InvalidConfig, match=r"min\.insync\.replicas cannot exceed"):
        await topics.create("t", replication_factor=2, config={"min.insync.replicas": 3})
    with pytest.raises(InvalidConfig, match="did you mean"):
        await topics.create("t", config={"retention": 3})
    with pytest.raises(InvalidTopic):
        await topics.create("a b")
    assert await topics.all() == []


async def test_a_name_can_be_taken_only_once() -> None:
    metadata = new_metadata()
    mine, theirs = (new_topics(FaultyMetadata(metadata), seed=n) for n in range(2))

    results = await asyncio.gather(
        *(topics.create("t") for topics in (mine, theirs, mine, theirs)), return_exceptions=True
    )

    made = [each for each in results if isinstance(each, Topic)]
    assert [type(each) for each in results if each not in made] == [TopicExists] * 3
    assert made == [await mine.read("t")]
    with pytest.raises(TopicExists, match="'t' exists already"):
        await theirs.create("t", partitions=3)


@UNANSWERED
@pytest.mark.parametrize("lanes", [1, 250])
@pytest.mark.parametrize("chunk", [0, 1, 2])
async def test_an_unanswered_creation_is_recognised_or_retried(
    fault: Fault, lanes: int, chunk: int
) -> None:
    metadata = FaultyMetadata(new_metadata())
    topics = new_topics(metadata)
    metadata.faults = ["none"] * chunk + [fault] if lanes > 1 else [fault]

    topic = await topics.create("t", partitions=lanes, config={"lane.partitions": 1})

    await turns()
    assert await topics.read("t") == topic
    assert await widths(metadata, topic) == [1] * lanes


async def test_an_unanswered_creation_is_refused_if_another_process_created_the_topic() -> None:
    metadata = FaultyMetadata(new_metadata())
    topics, theirs = new_topics(metadata), new_topics(metadata.inner, seed=1)
    metadata.faults = ["request lost"]

    async def win() -> None:
        await theirs.create("t", partitions=7)

    metadata.before_unknown = win
    with pytest.raises(TopicExists):
        await topics.create("t")
    assert (await topics.read("t")).partition_count == 7


async def test_a_creation_that_is_never_answered_has_an_unknown_outcome() -> None:
    metadata = FaultyMetadata(new_metadata(), lambda: "request lost")
    topics = new_topics(metadata)

    with pytest.raises(OutcomeUnknown):
        await topics.create("t")
    metadata.faults = ["request lost", "refused"]
    with pytest.raises(OutcomeUnknown, match="throttled"):
        await topics.create("t")
    metadata.faults = ["refused"]
    with pytest.raises(StoreUnavailable):
        await topics.create("t")


async def test_a_topic_can_have_more_lanes_than_a_transaction_has_ops() -> None:
    metadata = new_metadata()
    topics = new_topics(metadata)

    topic = await topics.create("t", partitions=250, config={"lane.partitions": 1})
    assert await widths(metadata, topic) == [1] * 250
    assert topic.lane_of(249) == (249, 0)

    topic = await topics.alter("t", partitions=600)
    assert await widths(metadata, topic) == [1] * 600

    await topics.delete("t")
    assert await widths(metadata, topic) == []
    assert await topics.all() == []


# Reading


async def test_a_recently_read_topic_is_not_read_again() -> None:
    metadata, clock = FaultyMetadata(new_metadata()), Clock()
    topics, theirs = new_topics(metadata, clock=clock), new_topics(metadata.inner)
    made = await topics.create("t")
    await theirs.alter("t", partitions=2)
    metadata.calls.clear()

    assert await topics.get("t") == made
    assert metadata.calls["get"] == 0
    assert (await topics.read("t")).partition_count == 2
    clock.now_s += 1.1
    assert (await topics.get("t")).partition_count == 2
    assert metadata.calls["get"] == 2


async def test_concurrent_callers_share_one_read_and_continue_in_order() -> None:
    metadata, clock = FaultyMetadata(new_metadata()), Clock()
    await new_topics(metadata).create("t")
    topics = new_topics(metadata, clock=clock)
    metadata.calls.clear()
    order: list[int] = []

    async def ask(number: int) -> None:
        await topics.get("t")
        order.append(number)

    asking = [asyncio.create_task(ask(number)) for number in range(10)]
    asking.append(hangs_up := asyncio.create_task(ask(99)))
    await turns(1)
    hangs_up.cancel()
    await asyncio.gather(*asking, return_exceptions=True)

    assert metadata.calls["get"] == 1
    assert order == list(range(10))


async def test_a_failed_read_is_not_cached() -> None:
    metadata = FaultyMetadata(new_metadata())
    topics = new_topics(metadata)
    with pytest.raises(UnknownTopicOrPartition, match="no topic 't'; create it"):
        await topics.get("t")
    await new_topics(metadata, seed=1).create("t")
    metadata.failing_gets = 1

    with pytest.raises(StoreUnavailable):
        await topics.get("t")
    assert (await topics.get("t")).name == "t"


async def test_all_topics_are_listed_by_name_over_any_number_of_pages() -> None:
    topics = new_topics(new_metadata())
    names = [f"topic-{number:04d}" for number in range(1001)]
    for name in reversed(names):
        await topics.create(name)

    assert [topic.name for topic in await topics.all()] == names


async def test_a_partition_outside_the_topic_is_unknown() -> None:
    topic = await new_topics(new_metadata()).create("t", partitions=2)

    for partition in (-1, 2):
        with pytest.raises(UnknownTopicOrPartition, match=f"partitions 0 to 1, not {partition}"):
            topic.lane_of(partition)


# Altering


async def test_partitions_are_added_after_the_others() -> None:
    metadata = new_metadata()
    topics = new_topics(metadata)
    topic = await topics.create("t", partitions=3, config={"lane.partitions": 4})
    lane = Lane(topic.topic_id, 0, new_runtime(metadata))
    await commit_run(lane, run_of(bytes(16), {2: 5}))

    for count, expected in [(4, [4]), (4, [4]), (5, [4, 1]), (13, [4, 4, 4, 1])]:
        topic = await topics.alter("t", partitions=count)
        assert topic.partition_count == count
        assert await widths(metadata, topic) == expected

    head = (await lane.view(0)).head
    assert head.next_offsets == (0, 0, 5, 0)
    with pytest.raises(InvalidPartitions, match="has 13 partitions; they can only become more"):
        await topics.alter("t", partitions=12)


async def test_settings_change_and_return_to_their_defaults() -> None:
    topics = new_topics(new_metadata())
    await topics.create("t", config={"retention.ms": 5, "segment.ms": 7})

    topic = await topics.alter("t", config={"retention.ms": None, "compression.type": "zstd"})

    assert topic.config.given == {"segment.ms": "7", "compression.type": "zstd"}
    assert (await topics.alter("t", config={"lane.partitions": 64})).lane_partitions == 64
    with pytest.raises(InvalidConfig, match=r"lane\.partitions cannot be changed"):
        await topics.alter("t", config={"lane.partitions": 1})
    for wrong in (None, 1):
        with pytest.raises(InvalidConfig, match="no setting 'nope'"):
            await topics.alter("t", config={"nope": wrong})
    with pytest.raises(InvalidConfig, match="replication_factor"):
        await topics.alter("t", config={"min.insync.replicas": 2})
    with pytest.raises(UnknownTopicOrPartition):
        await topics.alter("other", partitions=3)


async def test_more_zones_may_be_demanded_than_there_are_and_that_means_all() -> None:
    topics, more = new_topics(new_metadata()), {"min.insync.replicas": 3}
    topic = await topics.create("t", replication_factor=2, config=more, caps_in_sync_min=True)
    assert (topic.config["min.insync.replicas"], topic.in_sync_min) == ("3", 2)

    # What does not touch either of them is as ever, and so is what brings them closer.
    assert (await topics.alter("t", partitions=2, config={"segment.ms": 7})).in_sync_min == 2
    assert (await topics.alter("t", replication_factor=3)).in_sync_min == 3
    with pytest.raises(InvalidConfig, match="replication_factor 2"):
        await topics.alter("t", replication_factor=2)
    topic = await topics.alter("t", config={"min.insync.replicas": 9}, caps_in_sync_min=True)
    assert (topic.config["min.insync.replicas"], topic.in_sync_min) == ("9", 3)


async def test_concurrent_changes_of_several_processes_are_all_applied() -> None:
    metadata = new_metadata()
    names = ["retention.ms", "segment.ms", "delete.retention.ms", "max.message.bytes"]
    several = [new_topics(FaultyMetadata(metadata), seed=n) for n in range(4)]
    await several[0].create("t")

    await asyncio.gather(
        *(
            topics.alter("t", config={name: 77})
            for topics, name in zip(several, names, strict=True)
        ),
        *(
            topics.alter("t", partitions=count)
            for topics, count in zip(several, [9] * 4, strict=True)
        ),
    )

    topic = await several[0].read("t")
    assert topic.config.given == dict.fromkeys(names, "77")
    assert topic.partition_count == 9
    assert await widths(metadata, topic) == [9]


@UNANSWERED
async def test_an_unanswered_change_is_retried(fault: Fault) -> None:
    metadata = FaultyMetadata(new_metadata())
    topics = new_topics(metadata)
    await topics.create("t")
    metadata.faults = [fault]

    topic = await topics.alter("t", partitions=130)

    await turns()
    assert await topics.read("t") == topic
    assert await widths(metadata, topic) == [64, 64, 2]


async def test_a_change_that_is_never_answered_has_an_unknown_outcome() -> None:
    metadata = FaultyMetadata(new_metadata())
    topics = new_topics(metadata)
    await topics.create("t")
    metadata.next_fault = lambda: "request lost"

    with pytest.raises(OutcomeUnknown):
        await topics.alter("t", partitions=2)


async def test_a_change_that_loses_every_race_backs_off_longer_each_time_and_gives_up() -> None:
    metadata = FaultyMetadata(new_metadata())
    topics, theirs = new_topics(metadata), new_topics(metadata.inner, seed=1)
    await topics.create("t")

    class Hasty(FaultyMetadata):
        async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
            await theirs.alter("t", config={"retention.ms": 1})
            return await super().transact(ops)

    waits: list[int] = []

    async def back_off(lost: int) -> None:
        waits.append(lost)

    with pytest.raises(Contended):
        await new_topics(Hasty(metadata.inner), back_off=back_off).alter("t", partitions=2)

    assert waits == list(range(1, TOPIC_ATTEMPTS_MAX))


# Deleting


async def test_a_deleted_topic_has_no_head_to_commit_to() -> None:
    metadata = new_metadata()
    topics = new_topics(metadata)
    made = await topics.create("t", partitions=65)

    assert (await topics.delete("t")).topic_id == made.topic_id

    with pytest.raises(UnknownTopicOrPartition):
        await topics.get("t")
    with pytest.raises(UnknownTopicOrPartition):
        await topics.delete("t")
    assert await widths(metadata, made) == []


async def test_a_recreated_topic_is_another_topic() -> None:
    metadata = new_metadata()
    topics = new_topics(metadata)
    first = await topics.create("t")
    lane = Lane(first.topic_id, 0, new_runtime(metadata))
    await lane.view(0)
    await topics.delete("t")

    second = await topics.create("t")

    assert second.topic_id != first.topic_id
    with pytest.raises(UnknownTopicOrPartition):
        await commit_run(lane, run_of(bytes(16), {0: 1}))


@UNANSWERED
@pytest.mark.parametrize("lanes", [1, 99, 250])
async def test_an_unanswered_deletion_removes_every_head(fault: Fault, lanes: int) -> None:
    metadata = FaultyMetadata(new_metadata())
    topics = new_topics(metadata)
    made = await topics.create("t", partitions=lanes, config={"lane.partitions": 1})
    metadata.faults = [fault, "none", fault]

    assert (await topics.delete("t")).topic_id == made.topic_id

    await turns()
    assert await topics.all() == []
    assert await widths(metadata, made) == []


async def test_a_retried_deletion_does_not_delete_a_recreated_topic() -> None:
    metadata = FaultyMetadata(new_metadata())
    topics, theirs = new_topics(metadata), new_topics(metadata.inner, seed=1)
    made = await topics.create("t")
    metadata.faults = ["reply lost"]

    async def recreate() -> None:
        await theirs.create("t", partitions=5)

    metadata.before_unknown = recreate
    assert await topics.delete("t") == made
    assert (await topics.read("t")).partition_count == 5


@pytest.mark.parametrize("lanes", [20, 150])
async def test_a_topic_under_constant_writes_can_be_deleted(lanes: int) -> None:
    table = new_metadata()
    made = await new_topics(table).create("t", partitions=lanes, config={"lane.partitions": 1})
    busy = Busy(table, made)

    await new_topics(busy).delete("t")

    assert await new_topics(table).all() == []
    assert await widths(table, made) == []


class Busy(FaultyMetadata):
    """A table in which a head changes after every read of heads, while there are two."""

    def __init__(self, inner: MemoryMetadata, topic: Topic) -> None:
        super().__init__(inner)
        self._topic = topic
        self._number = 0

    async def get_many(self, keys: Sequence[str]) -> dict[str, Versioned]:
        found = await super().get_many(keys)
        if len(found) > 1:
            key, item = list(found.items())[self._number % len(found)]
            self._number += 1
            head = heads.append(heads.decode(item.value), [])
            await self.inner.transact([Put(key, heads.encode(head), item.version)])
        return found


async def test_a_deletion_succeeds_even_if_its_heads_cannot_be_removed_yet() -> None:
    metadata = FaultyMetadata(new_metadata())
    topics = new_topics(metadata)
    await topics.create("t", partitions=150, config={"lane.partitions": 1})
    metadata.faults = ["none", "refused"]

    assert (await topics.delete("t")).name == "t"
    assert await topics.all() == []


# Random faults, and stored bytes


@pytest.mark.parametrize("seed", range(15))
async def test_a_topic_and_its_heads_agree_under_random_faults(seed: int) -> None:
    table = new_metadata()
    several = [
        new_topics(FaultyMetadata(table, random_faults(seed * 7 + n, 0.3)), seed=seed * 7 + n)
        for n in range(3)
    ]

    async def work(topics: Topics, turn: int) -> None:
        for step in range(8):
            try:
                match (turn + step) % 4:
                    case 0:
                        await topics.create("t", partitions=2, config={"lane.partitions": 2})
                    case 1:
                        await topics.alter("t", partitions=3 + step)
                    case 2:
                        await topics.alter("t", config={"retention.ms": step})
                    case _:
                        await topics.delete("t")
            except RiachoError:
                continue

    await asyncio.gather(*(work(topics, n) for n, topics in enumerate(several)))
    await turns()

    for topic in await new_topics(table).all():
        found = await widths(table, topic)
        assert sum(found) >= topic.partition_count
        assert len(found) >= len(topic.lanes)


@few
@given(st.integers(1, 500), st.data())
def test_damage_to_the_item_of_a_topic_is_detected(partitions: int, data: st.DataObject) -> None:
    stored = topic_items.StoredTopic(bytes(16), partitions, 1, {"retention.ms": "5"}, 123)
    whole = topic_items.encode(stored)

    topic = topic_items.decode("t", Versioned(whole, "v"))

    assert (topic.partition_count, topic.created_ms, topic.version) == (partitions, 123, "v")
    check_notices_damage(lambda each: topic_items.decode("t", Versioned(each, "v")), whole, data)


@some
@given(st.binary(max_size=60))
def test_any_bytes_are_a_topic_or_corrupt(anything: bytes) -> None:
    check_gives_a_value_or_corrupt(lambda b: topic_items.decode("t", Versioned(b, "v")), anything)
    sealed = frames.seal(b"RTP1", anything)
    check_gives_a_value_or_corrupt(lambda b: topic_items.decode("t", Versioned(b, "v")), sealed)


def test_the_error_for_a_damaged_item_names_the_topic() -> None:
    with pytest.raises(Corrupt, match="topic 'orders'"):
        topic_items.decode("orders", Versioned(frames.seal(b"RTP1", b"\x90"), "v"))


# Replicas


async def replicas_of(metadata: MetadataStore, topic: Topic) -> list[list[str]]:
    found = [await head_of(metadata, topic, lane) for lane in topic.lanes]
    return [[head.zones[n] for n in head.replicas] for head in found if head is not None]


async def test_lanes_are_spread_over_the_zones() -> None:
    metadata = new_metadata()
    topic = await new_topics(metadata).create(
        "t", partitions=6, replication_factor=2, config={"lane.partitions": 1}
    )

    replicas = await replicas_of(metadata, topic)

    assert sorted(lane[0] for lane in replicas) == ["a", "a", "b", "b", "c", "c"]
    assert sorted(name for lane in replicas for name in lane) == [*"aaaabbbbcccc"]


async def test_new_replicas_come_first_and_old_ones_stay_until_those_are_in_sync() -> None:
    metadata = new_metadata()
    topics = new_topics(metadata, zones="abcd")
    await topics.create("t", partitions=2, replication_factor=4, config={"lane.partitions": 1})

    topic = await topics.alter("t", replicas=["d", "b"])

    assert topic.replication_factor == 2
    replicas = await replicas_of(metadata, topic)
    assert [lane[:2] for lane in replicas] == [["d", "b"], ["b", "d"]]
    assert [sorted(lane[2:]) for lane in replicas] == [["a", "c"]] * 2
    again = await topics.alter("t", replicas=["d", "b"])
    assert await replicas_of(metadata, again) == replicas


async def test_a_higher_replication_factor_adds_replicas_to_the_existing_ones() -> None:
    metadata = new_metadata()
    topics = new_topics(metadata)
    topic = await topics.create("t", config={"lane.partitions": 1}, partitions=3)
    before = await replicas_of(metadata, topic)

    topic = await topics.alter("t", replication_factor=3)

    after = await replicas_of(metadata, topic)
    assert [lane[:1] for lane in after] == before
    assert [sorted(lane) for lane in after] == [["a", "b", "c"]] * 3
    for lane in topic.lanes:
        head = await head_of(metadata, topic, lane)
        assert head is not None
        assert head.isr == 1


async def test_the_error_says_what_is_wrong_with_replicas() -> None:
    topics = new_topics(new_metadata())
    await topics.create("t", replication_factor=2, config={"min.insync.replicas": 2})

    for replicas in ([], ["a", "a"], ["a", "z"]):
        with pytest.raises(InvalidRequest, match="replicas"):
            await topics.alter("t", replicas=replicas)
    with pytest.raises(InvalidRequest, match="either"):
        await topics.alter("t", replicas=["a"], replication_factor=2)
    with pytest.raises(InvalidReplicationFactor):
        await topics.alter("t", replication_factor=4)
    with pytest.raises(InvalidConfig, match=r"min\.insync\.replicas"):
        await topics.alter("t", replication_factor=1)


@pytest.mark.parametrize("seed", range(5))
async def test_replicas_are_changed_despite_random_faults(seed: int) -> None:
    metadata = FaultyMetadata(new_metadata())
    topics = new_topics(metadata)
    topic = await topics.create("t", partitions=3, config={"lane.partitions": 1})
    metadata.next_fault = random_faults(seed, 0.3)
    for _ in range(50):
        try:
            await topics.alter("t", replicas=["c", "a"])
        except RiachoError:
            continue
        break

    replicas = await replicas_of(metadata.inner, topic)
    assert [lane[:2] for lane in replicas] == [["c", "a"], ["a", "c"], ["c", "a"]]
