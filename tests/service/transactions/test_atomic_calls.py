"""Atomic calls that are tried again: what is written anew, and what no longer counts."""

import asyncio

import pytest

from service.transactions.atomic import TopicRecords
from service.transactions.guards import GuardedAnswer, Unguarded
from storage.errors import OutcomeUnknown, UnknownTopicOrPartition
from storage.lanes.rolls import FLIGHT_MAX_S, TRUSTED_S
from tests.service.transactions.cluster import Cluster, offsets_of, with_topic
from tests.service.transactions.test_atomic import key_guard, records, write
from tests.storage.helpers.logs import batch_of_rows
from tests.storage.helpers.worlds import turns

pytestmark = pytest.mark.anyio


async def test_nothing_at_all_is_written_at_once() -> None:
    process = await with_topic(Cluster())
    assert await write(process, Unguarded()) == GuardedAnswer(results={})


async def test_offsets_alone_need_no_guard() -> None:
    process = await with_topic(Cluster())
    await write(process, Unguarded(), offset=4)
    assert await process.offset("g") == 4


async def test_every_record_of_a_compacted_topic_may_have_a_key() -> None:
    process = await with_topic(Cluster(), **{"cleanup.policy": "compact"})
    keyed = TopicRecords(
        topic="t", batch=batch_of_rows([(0, b"k", b"a", [])]), wanted=[0], rows=[0]
    )
    await write(process, Unguarded(), keyed)
    assert await process.read() == ["a"]


async def test_the_first_partition_that_is_not_there_is_named() -> None:
    process = await with_topic(Cluster(), 4)
    with pytest.raises(UnknownTopicOrPartition, match=r"records\[0\]\.partition is 4, but topic"):
        await write(process, Unguarded(), records("a", partition=4))


# Attempts


async def test_what_was_written_is_used_by_the_next_attempt() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)

    async def fail() -> None:
        cluster.metadata.failing_gets = 1

    cluster.metadata.faults = ["request lost"]
    cluster.metadata.before_unknown = fail
    await write(process, key_guard(process), records("a"))

    assert cluster.objects.calls["put"] == 1
    assert await process.read() == ["a"]


async def test_a_call_refused_after_one_without_an_answer_is_unknown() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    await process.gateway.topics.create("source")
    offsets = offsets_of("g", 1, topic="source")
    of = records("a")

    async def interfere() -> None:
        await other.gateway.topics.delete("source")
        cluster.now_s += 10
        cluster.metadata.failing_gets = 1

    cluster.metadata.faults = ["request lost"]
    cluster.metadata.before_unknown = interfere
    with pytest.raises(
        OutcomeUnknown, match="the log may have changed: there is no topic 'source'"
    ):
        await process.atomic.write([of], of.batch.nbytes, offsets, key_guard(process))


# Topics that change


async def test_without_a_guard_a_topic_widened_elsewhere_is_written_at_once() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    await other.gateway.topics.alter("t", partitions=9)

    await write(process, Unguarded(), records("a", partition=8))

    assert await process.read(8) == ["a"]


async def test_without_a_guard_a_recreated_topic_gets_nothing_of_the_old() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    await write(process, Unguarded(), records("a"))
    await other.gateway.topics.delete("t")
    await other.gateway.topics.create("t")

    # Whether an attempt was made before the old one was deleted, nobody could tell.
    with pytest.raises((UnknownTopicOrPartition, OutcomeUnknown)):
        await write(process, Unguarded(), records("b"))

    assert await other.read() == []


async def test_a_copy_that_was_done_in_a_topic_that_is_gone_is_not_written_again() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    cluster.objects.hold_puts = True
    copy = asyncio.create_task(write(process, key_guard(process), records("a")))
    await turns()
    cluster.objects.hold_puts = False
    first = await write(other, key_guard(other), records("a"))
    await other.gateway.topics.delete("t")
    await other.gateway.topics.create("t")
    cluster.objects.held[0].set()

    assert (await copy).results == first.results
    assert cluster.objects.calls["put"] == 2
    assert await other.read() == []


# Time


async def test_what_was_written_is_committed_as_long_as_it_is_safe() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    cluster.objects.hold_puts = True
    asleep = asyncio.create_task(write(process, key_guard(process), records("a")))
    await turns()
    cluster.now_s += FLIGHT_MAX_S
    cluster.objects.held[0].set()

    assert (await asleep).results == {"t": ((0, 0, 1),)}


@pytest.mark.parametrize(("age_s", "is_trusted"), [(TRUSTED_S, True), (TRUSTED_S + 1, False)])
async def test_zones_are_asked_for_what_was_written_long_ago(
    age_s: float, is_trusted: bool
) -> None:
    cluster = Cluster("ab")
    process = cluster.process()
    await process.gateway.topics.create("t", replication_factor=2)
    cluster.objects.hold_puts = True
    asleep = asyncio.create_task(write(process, key_guard(process), records("a")))
    await turns()
    lost = cluster.zones["b"].names(".seg")
    assert len(lost) == 1
    await cluster.zones["b"].delete(lost)

    cluster.now_s += age_s
    cluster.objects.held[0].set()
    await asleep

    assert cluster.zones["b"].names(".seg") == ([] if is_trusted else lost)
