"""The promises of a consumer in a group: it reads only partitions it owns, and commits hold.

A real gateway in this process, behind a network that loses and refuses requests on purpose.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from riacho import OffsetAndMetadata
from riacho.admin.admin import AsyncAdmin
from riacho.consumer.consumer import AsyncConsumer
from riacho.errors import CommitFailed, FencedInstance, NoOffset
from riacho.producer.producer import AsyncProducer
from riacho.records import Record, TopicPartition
from storage.errors import InconsistentGroup, InvalidRequest, RiachoError
from tests.riacho.inprocess import URL, Network, client_tasks, network, problem, refused

pytestmark = pytest.mark.anyio

PARTITIONS = [TopicPartition("t", p) for p in range(4)]


@pytest.fixture
async def net() -> AsyncIterator[Network]:
    async with network() as net, AsyncAdmin(URL, transport=net) as admin:
        await admin.create_topic("t", partitions=4)
        yield net


def member(net: Network, **settings: object) -> AsyncConsumer:
    quick: dict[str, object] = {
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 40,
        "session_timeout_ms": 1500,
        "fetch_max_wait_ms": 20,
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 2,
    }
    return AsyncConsumer(URL, transport=net, **quick | settings)  # type: ignore[arg-type]


async def write(net: Network, count: int, partition: int = 0, topic: str = "t") -> None:
    async with AsyncProducer(URL, transport=net, linger_ms=0) as producer:
        for n in range(count):
            await producer.send(topic, str(n), partition=partition)


async def read(reader: AsyncConsumer, count: int) -> list[Record]:
    records: list[Record] = []
    async with asyncio.timeout(120):
        while len(records) < count:
            records += await reader.poll(1000, max_records=count - len(records))
    return records


async def until(condition: Callable[[], bool | Awaitable[bool]], *readers: AsyncConsumer) -> None:
    """Poll all readers until the condition holds."""
    async with asyncio.timeout(120):
        while True:
            held = condition()
            if held if isinstance(held, bool) else await held:
                return
            for reader in readers:
                await reader.poll(10)
            await asyncio.sleep(0.005)


async def offsets(net: Network, group: str = "g") -> dict[int, int]:
    async with AsyncConsumer(URL, transport=net, group_id=group) as outside:
        found = await outside.committed(*PARTITIONS)
    return {place.partition: offset for place, offset in found.items()}


async def test_a_lone_member_reads_everything_and_continues_where_it_stopped(net: Network) -> None:
    for partition in range(4):
        await write(net, 10, partition)

    async with member(net) as reader:
        reader.subscribe("t")
        assert len(await read(reader, 40)) == 40
        assert reader.assignment() == PARTITIONS
    assert await offsets(net) == {0: 10, 1: 10, 2: 10, 3: 10}
    await write(net, 1, 2)
    async with member(net) as reader:
        reader.subscribe("t")
        [record] = await read(reader, 1)

    assert (record.partition, record.offset) == (2, 10)
    assert client_tasks() == []


async def test_members_share_partitions_and_hand_them_over(net: Network) -> None:
    told: list[tuple[str, str, int]] = []

    async def note(name: str, what: str, partitions: list[TopicPartition]) -> None:
        told.extend((name, what, place.partition) for place in partitions)

    def subscribe(reader: AsyncConsumer, name: str) -> None:
        reader.subscribe(
            "t",
            on_assigned=lambda partitions: note(name, "+", partitions),
            on_revoked=lambda partitions: note(name, "-", partitions),
        )

    async with member(net) as one:
        subscribe(one, "one")
        await until(lambda: len(one.assignment()) == 4, one)
        async with member(net) as two:
            subscribe(two, "two")
            await until(lambda: len(two.assignment()) == 2, one, two)
            assert sorted(one.assignment() + two.assignment()) == PARTITIONS
        await until(lambda: len(one.assignment()) == 4, one)

    holder: dict[int, str] = {}
    for name, what, partition in told:
        assert holder.get(partition) == (None if what == "+" else name), told
        holder[partition] = name
        if what == "-":
            del holder[partition]
    assert holder == {}


async def test_the_next_owner_begins_at_the_offset_committed_during_revocation(
    net: Network,
) -> None:
    for partition in range(4):
        await write(net, 10, partition)

    async with member(net, enable_auto_commit=False) as one:

        async def commit(partitions: list[TopicPartition]) -> None:
            await one.commit({place: OffsetAndMetadata(7, "seven") for place in partitions})

        one.subscribe("t", on_revoked=commit)
        await read(one, 40)
        async with member(net, enable_auto_commit=False) as two:
            begun: list[int] = []

            async def note(partitions: list[TopicPartition]) -> None:
                begun.extend([await two.position(*place) for place in partitions])

            two.subscribe("t", on_assigned=note)
            await until(lambda: len(two.assignment()) == 2, one, two)

    assert begun == [7, 7]
    assert set((await offsets(net)).values()) == {7}


async def test_auto_commit_covers_the_records_of_earlier_polls(net: Network) -> None:
    await write(net, 10)

    async with member(net, auto_commit_interval_ms=0) as reader:
        reader.subscribe("t")
        await read(reader, 4)
        committed = await reader.committed(("t", 0))
        assert committed.get(PARTITIONS[0], 0) < 4
        # Another poll means that the program has processed the four records.
        await reader.poll(1000, max_records=2)
        await until(lambda: offsets_are(net, {0: 4, 1: 0, 2: 0, 3: 0}))


async def test_a_late_automatic_commit_does_not_undo_a_later_one(
    net: Network,
) -> None:
    await write(net, 10)

    async with member(net, auto_commit_interval_ms=0) as reader:
        reader.subscribe("t")
        await read(reader, 2)
        # This poll starts a commit of two, and returns before that commit has run.
        assert len(await reader.poll(max_records=2)) == 2

    assert (await offsets(net))[0] == 4


async def offsets_are(net: Network, expected: dict[int, int]) -> bool:
    return await offsets(net) == expected


async def test_a_consumer_closed_by_an_exception_does_not_commit_the_last_records(
    net: Network,
) -> None:
    await write(net, 3)

    async def fail() -> None:
        async with member(net) as reader:
            reader.subscribe("t")
            await read(reader, 3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with member(net) as reader:
        reader.subscribe("t")
        assert [record.offset for record in await read(reader, 3)] == [0, 1, 2]


async def test_without_auto_commit_only_explicit_commits_happen(net: Network) -> None:
    await write(net, 10)

    async with member(net, enable_auto_commit=False, auto_commit_interval_ms=0) as reader:
        reader.subscribe("t")
        await read(reader, 4)
        await reader.poll(10)
    assert await offsets(net) == {}
    async with member(net, enable_auto_commit=False) as reader:
        reader.subscribe("t")
        await read(reader, 4)
        await reader.commit()
        told: list[tuple[dict[TopicPartition, int], RiachoError | None]] = []
        reader.commit_async({("t", 0): 5}, lambda *outcome: told.append(outcome))
        await until(lambda: bool(told))
        assert told == [({TopicPartition("t", 0): 5}, None)]
        assert await reader.committed(("t", 0)) == {TopicPartition("t", 0): 5}

    assert (await offsets(net))[0] == 5


async def test_a_failing_callback_is_logged_and_the_commit_holds(
    net: Network, caplog: pytest.LogCaptureFixture
) -> None:
    await write(net, 2)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    async with member(net, enable_auto_commit=False) as reader:
        reader.subscribe("t")
        await read(reader, 2)
        reader.commit_async(callback=fail)
        await until(lambda: "callback failed" in caplog.text)

    assert (await offsets(net))[0] == 2


async def test_a_partition_that_returns_is_committed_again(net: Network) -> None:
    for partition in range(4):
        await write(net, 10, partition)

    async with member(net) as one:
        one.subscribe("t")
        await read(one, 40)
        async with member(net, enable_auto_commit=False) as two:
            two.subscribe("t")
            await until(lambda: len(two.assignment()) == 2, one, two)
            await two.commit(dict.fromkeys(two.assignment(), 3))
        one.subscribe("t", on_assigned=lambda places: [one.seek(*p, 10) for p in places])
        await until(lambda: len(one.assignment()) == 4, one)

    # Ten was committed before the partitions moved, and three by the other member in between.
    assert await offsets(net) == {0: 10, 1: 10, 2: 10, 3: 10}


async def test_seek_pause_and_position_work_in_a_group(net: Network) -> None:
    await write(net, 5)

    async with member(net) as reader:
        reader.subscribe("t", on_assigned=lambda _: reader.seek("t", 0, 3))
        assert [record.offset for record in await read(reader, 2)] == [3, 4]
        assert await reader.position("t", 0) == 5
        reader.pause(("t", 0))
        reader.seek_to_beginning(("t", 0))
        assert await reader.poll(50) == []
        reader.resume(("t", 0))
        assert [record.offset for record in await read(reader, 5)] == [0, 1, 2, 3, 4]


async def test_iterating_works_in_a_group(net: Network) -> None:
    await write(net, 3)

    async with member(net) as reader:
        reader.subscribe("t")
        seen = []
        async for record in reader:
            seen.append(record.offset)
            if len(seen) == 3:
                break

    assert seen == [0, 1, 2]
    assert (await offsets(net))[0] == 3


async def test_lost_replies_and_refusals_lose_no_record_and_no_commit(net: Network) -> None:
    for partition in range(4):
        await write(net, 25, partition)
    trouble = problem(503, "CONCURRENT_COMMITS", retryable=True)
    net.before_group.extend([refused, trouble, None, refused, trouble, None, refused])

    async with member(net, max_poll_records=5, auto_commit_interval_ms=0) as reader:
        reader.subscribe("t")
        seen = await read(reader, 50)
        net.lost_group_replies = 3
        seen += await read(reader, 50)

    assert sorted((r.partition, r.offset) for r in seen) == [
        (partition, offset) for partition in range(4) for offset in range(25)
    ]
    assert await offsets(net) == {0: 25, 1: 25, 2: 25, 3: 25}


async def test_a_member_cut_off_for_a_session_returns_no_records_until_it_is_back(
    net: Network,
) -> None:
    await write(net, 10)

    async with member(net, session_timeout_ms=1000) as reader:
        reader.subscribe("t")
        await read(reader, 1)
        net.is_group_cut_off = True
        await asyncio.sleep(1.1)
        assert await reader.poll(50) == []
        net.is_group_cut_off = False

        assert (await read(reader, 1))[0].offset == 1


async def test_a_lost_session_is_reported_and_the_member_joins_again(net: Network) -> None:
    told: list[str] = []

    async with member(net, session_timeout_ms=1000) as one:
        one.subscribe(
            "t", on_assigned=lambda _: told.append("+"), on_lost=lambda _: told.append("lost")
        )
        await write(net, 1)
        await read(one, 1)
        [gone] = [m["member_id"] for m in (await describe(net))["members"]]
        async with AsyncAdmin(URL, transport=net) as admin:
            await admin._gateway.request("DELETE", f"/v1/groups/g/members/{gone}")
        with pytest.raises(CommitFailed):
            await one.commit()
        await until(lambda: told == ["+", "lost", "+"], one)

        assert len(one.assignment()) == 4


async def describe(net: Network) -> dict[str, list[dict[str, str]]]:
    async with AsyncAdmin(URL, transport=net) as admin:
        reply = await admin._gateway.request("GET", "/v1/groups/g")
    found: dict[str, list[dict[str, str]]] = reply.json()
    return found


async def test_a_program_that_does_not_poll_leaves_the_group_and_joins_again(net: Network) -> None:
    told: list[str] = []

    async with member(net, max_poll_interval_ms=100) as one, member(net) as two:
        one.subscribe("t", on_lost=lambda _: told.append("lost"))
        await until(lambda: len(one.assignment()) == 4, one)
        two.subscribe("t")
        await until(lambda: len(two.assignment()) == 4, two)
        assert told == []

        await until(lambda: len(one.assignment()) == 2, one, two)

        assert told == ["lost"]


async def test_a_commit_of_revoked_partitions_fails_and_the_rest_is_kept(net: Network) -> None:
    for partition in range(4):
        await write(net, 10, partition)

    async with member(net, enable_auto_commit=False) as one, member(net) as two:
        one.subscribe("t")
        await read(one, 40)
        two.subscribe("t")
        await until(lambda: len(two.assignment()) == 2, one, two)
        everything = dict.fromkeys(PARTITIONS, 9)
        with pytest.raises(CommitFailed, match="no longer"):
            await one.commit(everything)
        kept = await one.committed()

    assert set(kept.values()) == {9}
    assert len(kept) == 2


async def test_a_commit_succeeds_although_the_generation_changed_unnoticed(net: Network) -> None:
    await write(net, 5)

    slow = {"heartbeat_interval_ms": 600_000, "session_timeout_ms": 1_500_000}
    async with member(net, enable_auto_commit=False, **slow) as one, member(net) as two:
        one.subscribe("t")
        await read(one, 5)
        two.subscribe("t")
        await two.poll(100)
        await one.commit()

    assert (await offsets(net))[0] == 5


async def test_a_static_member_returns_without_a_rebalance(net: Network) -> None:
    async with member(net) as other:
        other.subscribe("t")
        static = member(net, group_instance_id="one")
        static.subscribe("t")
        await until(lambda: len(static.assignment()) == 2, other, static)
        kept, generation = static.assignment(), (await describe(net))["generation"]
        await static.close()
        again = member(net, group_instance_id="one")
        again.subscribe("t")
        await until(lambda: again.assignment() == kept, other, again)

        assert (await describe(net))["generation"] == generation
        assert len(other.assignment()) == 2
        await again.close()


async def test_the_older_of_two_members_with_one_instance_id_is_fenced(net: Network) -> None:
    async with (
        member(net, group_instance_id="one") as older,
        member(net, group_instance_id="one") as newer,
    ):
        older.subscribe("t")
        await until(lambda: len(older.assignment()) == 4, older)
        newer.subscribe("t")
        await until(lambda: len(newer.assignment()) == 4, newer)
        with pytest.raises(FencedInstance):
            await until(lambda: False, older)
        with pytest.raises(FencedInstance):
            await older.poll(10)

        assert len(newer.assignment()) == 4


async def test_a_pattern_matches_topics_created_later(net: Network) -> None:
    async with AsyncAdmin(URL, transport=net) as admin, member(net) as reader:
        reader.subscribe(pattern="t[0-9]*")
        await until(lambda: len(reader.assignment()) == 4, reader)
        await admin.create_topic("t2")
        await admin.create_topic("not-t")
        await write(net, 1, 0, "t2")
        [record] = await read(reader, 1)

        assert record.topic == "t2"
        assert len(reader.assignment()) == 5


async def test_a_subscription_can_be_changed_and_removed(net: Network) -> None:
    told: list[str] = []

    async with AsyncAdmin(URL, transport=net) as admin, member(net) as reader:
        await admin.create_topic("u", partitions=2)
        reader.subscribe("t")
        await until(lambda: len(reader.assignment()) == 4, reader)
        reader.subscribe("u", on_revoked=lambda _: told.append("-"))
        await until(lambda: {p.topic for p in reader.assignment()} == {"u"}, reader)
        assert len(reader.assignment()) == 2
        with pytest.raises(RuntimeError, match="unsubscribe"):
            reader.assign([("t", 0)])
        reader.unsubscribe()
        await until(lambda: reader.assignment() == [], reader)

        assert told == ["-", "-"]
        assert (await describe(net))["members"] == []


async def test_with_manual_assignment_a_group_only_stores_offsets(net: Network) -> None:
    await write(net, 5)

    async with member(net, enable_auto_commit=False) as reader:
        reader.assign([("t", 0)])
        await read(reader, 3)
        await reader.commit()
    async with member(net) as reader:
        reader.assign([("t", 0)])
        assert await reader.position("t", 0) == 3
        assert [record.offset for record in await read(reader, 2)] == [3, 4]

    assert (await offsets(net))[0] == 5


async def test_the_latest_offset_is_committed_although_nothing_was_read(net: Network) -> None:
    await write(net, 5)

    async with member(net, auto_offset_reset="latest") as reader:
        reader.subscribe("t")
        await until(lambda: len(reader.assignment()) == 4, reader)
        assert await reader.position("t", 0) == 5
    await write(net, 1)
    async with member(net, auto_offset_reset="latest") as reader:
        reader.subscribe("t")

        assert [record.offset for record in await read(reader, 1)] == [5]


async def test_without_a_reset_policy_the_program_must_seek(net: Network) -> None:
    await write(net, 2)

    async with member(net, auto_offset_reset="none") as reader:
        reader.subscribe("t")
        with pytest.raises(NoOffset, match="seek"):
            await until(lambda: False, reader)
        for place in PARTITIONS:
            reader.seek(*place, 0)
        assert len(await read(reader, 2)) == 2


async def test_an_error_that_keeps_a_consumer_out_of_its_group_is_raised(net: Network) -> None:
    async with member(net, partition_assignment_strategy="range") as reader:
        reader.subscribe("t")
        await until(lambda: len(reader.assignment()) == 4, reader)
        async with member(net, partition_assignment_strategy="sticky") as other:
            other.subscribe("t")
            for _ in range(2):
                with pytest.raises(InconsistentGroup, match="range"):
                    await until(lambda: False, other)
    async with member(net, group_id="not\na\nname") as reader:
        reader.subscribe("t")
        with pytest.raises(InvalidRequest):
            await until(lambda: False, reader)


async def test_polls_without_a_timeout_join_and_read(net: Network) -> None:
    await write(net, 3)

    async with member(net) as reader:
        reader.subscribe("t")
        give_up_s = time.monotonic() + 120
        seen = 0
        while seen < 3 and time.monotonic() < give_up_s:
            seen += len(await reader.poll())

    assert seen == 3


async def test_closing_at_once_leaves_no_member_behind(net: Network) -> None:
    for _ in range(5):
        async with member(net) as reader:
            reader.subscribe("t")
            await reader.poll()

    assert (await describe(net))["members"] == []


async def test_invalid_usage_is_refused(net: Network) -> None:
    async with AsyncConsumer(URL, transport=net) as alone:
        with pytest.raises(RuntimeError, match="group_id"):
            await alone.commit()
        with pytest.raises(ValueError, match="group"):
            alone.subscribe(pattern="t.*")
    async with member(net) as reader:
        with pytest.raises(ValueError, match="one of them"):
            reader.subscribe("t", pattern="t.*")
        with pytest.raises(ValueError, match="negative"):
            await reader.commit({("t", 0): -1})
    with pytest.raises(ValueError, match="strategy"):
        member(net, partition_assignment_strategy="cooperative")
    with pytest.raises(ValueError, match="heartbeat"):
        member(net, heartbeat_interval_ms=1000, session_timeout_ms=1500)
