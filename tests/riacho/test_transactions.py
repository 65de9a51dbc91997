"""What transactions promise: all or nothing, once, whatever is lost on the way.

A real gateway in this process, behind a network that loses and refuses on purpose.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx
import pytest

from riacho.admin import AsyncAdmin
from riacho.consumer import AsyncConsumer
from riacho.errors import (
    AlreadyCommitted,
    CommitFailed,
    DeliveryTimeout,
    GatewayUnreachable,
    TransactionAborted,
)
from riacho.producer import AsyncProducer
from riacho.records import Record, RecordMetadata, TopicPartition
from storage.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutcomeUnknown,
    RecordTooLarge,
    RiachoError,
    TransactionTooLarge,
)
from tests.riacho.inprocess import URL, Network, client_tasks, network, problem, refused
from tests.riacho.storm import Storm

pytestmark = pytest.mark.anyio

LARGE = b"x" * 1_000_000
"""Five of these do not fit into one call."""


@pytest.fixture
async def net() -> AsyncIterator[Network]:
    async with network() as net, AsyncAdmin(URL, transport=net) as admin:
        for topic in ("t", "in"):
            await admin.create_topic(topic, partitions=3)
        yield net


def producer(transport: httpx.AsyncBaseTransport, **settings: object) -> AsyncProducer:
    quick: dict[str, object] = {
        "transactional_id": "copier",
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 2,
    }
    return AsyncProducer(URL, transport=transport, **quick | settings)  # type: ignore[arg-type]


def consumer(transport: httpx.AsyncBaseTransport, **settings: object) -> AsyncConsumer:
    quick: dict[str, object] = {
        "group_id": "g",
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 40,
        "session_timeout_ms": 1500,
        "fetch_max_wait_ms": 20,
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 2,
    }
    return AsyncConsumer(URL, transport=transport, **quick | settings)  # type: ignore[arg-type]


async def read(net: Network, topic: str = "t") -> dict[int, list[bytes | None]]:
    """Return all values of a topic, by partition."""
    async with AsyncConsumer(
        URL, transport=net, auto_offset_reset="earliest", fetch_max_wait_ms=0
    ) as reader:
        reader.assign([(topic, partition) for partition in range(3)])
        ends = await reader.end_offsets()
        records: list[Record] = []
        while len(records) < sum(ends.values()):
            records += await reader.poll(1000)
    return {
        partition: [record.value for record in records if record.partition == partition]
        for partition in range(3)
        if ends[TopicPartition(topic, partition)]
    }


async def write(net: Network, count: int, partition: int = 0) -> None:
    """Write 0, 1, … to a partition of the topic that is copied from."""
    async with AsyncProducer(URL, transport=net, linger_ms=0) as writer:
        for n in range(count):
            await writer.send("in", str(n), partition=partition)


async def committed(net: Network) -> dict[int, int]:
    async with AsyncAdmin(URL, transport=net) as admin:
        return {one.partition: one.offset for one in await admin.group_offsets("g")}


def paths(requests: list[httpx.Request]) -> list[str]:
    """Return the last words of the paths: producers, atomic, transactions, commit, …"""
    return [request.url.path.rsplit("/", 1)[-1] for request in requests]


async def poll(reader: AsyncConsumer, count: int) -> list[Record]:
    records: list[Record] = []
    async with asyncio.timeout(20):
        while len(records) < count:
            records += await reader.poll(1000, max_records=count - len(records))
    return records


Futures = list["asyncio.Future[RecordMetadata]"]


async def commit(sender: AsyncProducer, *values: bytes) -> Futures:
    """Send to the partitions in turn, in one transaction."""
    async with sender.transaction():
        return [await sender.send("t", value, partition=n % 3) for n, value in enumerate(values)]


async def break_off(sender: AsyncProducer, *values: bytes, futures: Futures | None = None) -> None:
    """Do as `commit` does, and raise in the end."""
    async with sender.transaction():
        for n, value in enumerate(values):
            future = await sender.send("t", value, partition=n % 3)
            if futures is not None:
                futures.append(future)
        raise ZeroDivisionError


# Commit and abort


async def test_a_small_transaction_is_one_call(net: Network) -> None:
    async with producer(net) as sender:
        async with sender.transaction() as txn:
            first = await txn.send("t", "a", key="k", partition=0, headers={"h": b"\xff"})
            second = await sender.send("t", b"\xfe", partition=2, timestamp_ms=7)
            third = await sender.send("t", None, partition=0)
            assert paths(net.posted) == ["producers"]
            assert not first.done()
        assert paths(net.posted) == ["producers", "atomic"]
        async with sender.transaction():
            fourth = await sender.send("t", "d", partition=0)

    found = [future.result() for future in (first, second, third, fourth)]
    assert [(one.partition, one.offset) for one in found] == [(0, 0), (2, 0), (0, 1), (0, 2)]
    assert found[1] == RecordMetadata("t", 2, 0, 7)
    assert await read(net) == {0: [b"a", None, b"d"], 2: [b"\xfe"]}
    assert paths(net.posted) == ["producers", "atomic", "atomic"]


async def test_an_exception_aborts_and_goes_on(net: Network) -> None:
    futures: Futures = []
    async with producer(net) as sender:
        with pytest.raises(ZeroDivisionError):
            await break_off(sender, b"v", futures=futures)
        with pytest.raises(TransactionAborted):
            await futures[0]
        await commit(sender, b"w")

    assert await read(net) == {0: [b"w"]}
    assert paths(net.posted) == ["producers", "atomic"], "what was never sent needs no abort"


async def test_callbacks_are_called_when_the_transaction_ends(net: Network) -> None:
    told: list[tuple[RecordMetadata | None, RiachoError | None]] = []
    async with producer(net) as sender:
        for end in (sender.commit_transaction, sender.abort_transaction):
            await sender.begin_transaction()
            await sender.send("t", "v", callback=lambda *outcome: told.append(outcome))
            await end()

    (metadata, nothing), (nowhere, error) = told
    assert metadata is not None
    assert (metadata.offset, nothing, nowhere) == (0, None, None)
    assert isinstance(error, TransactionAborted)


async def test_a_large_transaction_is_staged(net: Network) -> None:
    async with producer(net) as sender:
        async with sender.transaction():
            futures = [
                await sender.send("t", b"%d" % n + LARGE, partition=n % 3) for n in range(14)
            ]
            sender.send_offsets(group="g", offsets={("in", 1): (5, "note")})
            assert await read(net) == {}
        async with sender.transaction():
            last = await sender.send("t", "small", partition=0)

    assert [future.result().offset for future in futures] == [n // 3 for n in range(14)]
    assert last.result().offset == 5
    values = await read(net)
    for partition in range(3):
        own = [int((value or b"").partition(b"x")[0]) for value in values[partition][:4]]
        assert own == [partition + 3 * n for n in range(4)]
    assert await committed(net) == {1: 5}
    calls = paths(net.called)
    assert calls == ["producers", "transactions", "commit", "atomic"]
    assert len(net.produced) == 4, "one request for all partitions of a topic"


async def test_a_large_transaction_aborts_at_the_gateway(net: Network) -> None:
    async with producer(net) as sender, AsyncAdmin(URL, transport=net) as admin:
        await sender.begin_transaction()
        for n in range(6):
            await sender.send("t", LARGE, partition=n % 3)
        while not net.produced:
            await asyncio.sleep(0)
        await sender.abort_transaction()
        [seen] = await admin.list_transactions()
        assert (seen.transactional_id, seen.state) == ("copier", "aborted")
        await commit(sender, b"after")

    assert await read(net) == {0: [b"after"]}
    assert client_tasks() == []


async def test_begin_commit_and_abort_by_hand(net: Network) -> None:
    async with producer(net) as sender:
        await sender.begin_transaction()
        await sender.send("t", "one", partition=0)
        assert sender.is_in_transaction
        await sender.commit_transaction()
        await sender.begin_transaction()
        await sender.send("t", "two", partition=0)
        await sender.abort_transaction()
        assert not sender.is_in_transaction
        await sender.begin_transaction()
        await sender.commit_transaction()

    assert await read(net) == {0: [b"one"]}


async def test_closing_aborts(net: Network) -> None:
    sender = producer(net)
    await sender.begin_transaction()
    futures = [await sender.send("t", LARGE, partition=0) for _ in range(6)]
    await sender.close()

    assert {type(future.exception()) for future in futures} == {TransactionAborted}
    assert await read(net) == {}


async def test_one_refused_record_refuses_them_all(net: Network) -> None:
    bad = b"x" * 2_000_000
    async with producer(net) as sender:
        await sender.begin_transaction()
        good = await sender.send("t", "good", partition=0)
        await sender.send("t", bad, partition=1)
        with pytest.raises(RecordTooLarge):
            await sender.commit_transaction()
        assert isinstance(good.exception(), RecordTooLarge)
        with pytest.raises(RecordTooLarge):
            await commit(sender, *[bad] * 9)
        await commit(sender, b"after")

    assert await read(net) == {0: [b"after"]}


# Fencing


async def test_a_newer_instance_shuts_the_older_out(net: Network) -> None:
    async with producer(net) as old, producer(net) as new:
        await commit(old, b"old")
        await commit(new, b"new")
        for _ in range(2):
            with pytest.raises(InvalidProducerEpoch):
                await commit(old, b"late")
        await commit(new, b"again")

    assert await read(net) == {0: [b"old", b"new", b"again"]}


async def test_a_newer_instance_shuts_out_what_is_staged(net: Network) -> None:
    async with producer(net) as old, producer(net) as new:
        await old.begin_transaction()
        for _ in range(6):
            await old.send("t", LARGE, partition=0)
        while not net.produced:
            await asyncio.sleep(0)
        async with new.transaction():
            await new.send("t", "new", partition=0)
        with pytest.raises(InvalidProducerEpoch):
            await old.commit_transaction()
        with pytest.raises(InvalidProducerEpoch):
            await old.begin_transaction()

    assert await read(net) == {0: [b"new"]}


async def test_what_took_too_long_is_aborted_and_the_producer_goes_on(net: Network) -> None:
    async with producer(net, transaction_timeout_ms=1) as sender:
        with pytest.raises(InvalidTransactionState):
            await commit(sender, *[LARGE] * 12)
        await commit(sender, b"after")

    assert await read(net) == {0: [b"after"]}
    assert paths(net.called).count("producers") == 1, "we stayed who we were"


# Lost replies


async def run_three(sender: AsyncProducer, size: int) -> None:
    """Commit two transactions with an aborted one between them."""
    body = b"" if size < 5 else LARGE
    await commit(sender, *(b"a%d" % n + body for n in range(size)))
    with pytest.raises(ZeroDivisionError):
        await break_off(sender, *(b"b%d" % n + body for n in range(size)))
    async with sender.transaction():
        for n in range(size):
            await sender.send("t", b"c%d" % n + body, partition=n % 3)
        sender.send_offsets(group="g", offsets={("in", 0): 9})


@pytest.mark.parametrize("size", [3, 6])
async def test_any_reply_may_be_lost(size: int) -> None:
    number = 0
    while True:
        async with network() as net, AsyncAdmin(URL, transport=net) as admin:
            for topic in ("t", "in"):
                await admin.create_topic(topic, partitions=3)
            before = len(net.posted)
            net.lost_posts = {before + number}
            async with producer(net) as sender:
                await run_three(sender, size)
            count = len(net.posted) - before
            values = await read(net)
            for partition in range(3):
                names = [(value or b"")[:2] for value in values[partition]]
                own = range(partition, size, 3)
                assert names == [b"%c%d" % (c, n) for c in b"ac" for n in own], number
            assert await committed(net) == {0: 9}
        number += 1
        if number >= count:
            break
    assert number >= 3


@pytest.mark.parametrize("seed", range(3))
async def test_a_storm_changes_nothing(net: Network, seed: int) -> None:
    # A late copy of the call that shuts out older instances would shut us out.
    storm = Storm(net, seed, late_s=0.005, spared=["/v1/producers"])
    async with producer(storm) as sender:
        for n in range(60):
            with suppress(ZeroDivisionError):
                await (break_off if n % 3 == 2 else commit)(sender, *[b"%d" % n] * 3)
    await storm.calm()

    expected = [b"%d" % n for n in range(60) if n % 3 != 2]
    assert await read(net) == dict.fromkeys(range(3), expected)


# Doubt


async def commit_in_doubt(net: Network, sender: AsyncProducer) -> None:
    """Commit a record, without learning that it is committed."""
    await sender.begin_transaction()
    future = await sender.send("t", "doubtful", partition=0)
    net.lost_posts = set(range(len(net.posted), 100_000))
    with pytest.raises(OutcomeUnknown) as raised:
        await sender.commit_transaction()
    net.lost_posts = set()
    assert raised.value.may_have_applied
    assert isinstance(future.exception(), OutcomeUnknown)


async def test_what_turns_out_to_be_committed_is_told_before_it_is_done_twice(
    net: Network,
) -> None:
    async with producer(net, delivery_timeout_ms=30) as sender:
        await commit_in_doubt(net, sender)
        with pytest.raises(AlreadyCommitted):
            await sender.begin_transaction()
        await commit(sender, b"after")

    assert await read(net) == {0: [b"doubtful", b"after"]}


async def test_what_turns_out_not_to_be_committed_never_is(net: Network) -> None:
    held: list[httpx.Request] = []

    def hold(request: httpx.Request) -> httpx.Response:
        held.append(request)
        raise httpx.ReadError("the connection broke")

    async with producer(net, delivery_timeout_ms=30) as sender:
        await sender.begin_transaction()
        await sender.send("t", "late", partition=0)
        net.before_call.extend([hold] * 1000)
        with pytest.raises(OutcomeUnknown):
            await sender.commit_transaction()
        net.before_call.clear()
        async with sender.transaction():
            late = await net.handle_async_request(held[0])
            assert late.status_code == 409
            await sender.send("t", "after", partition=0)

    assert await read(net) == {0: [b"after"]}
    assert paths(net.called).count("producers") == 1, "to find out shuts nobody out"


async def test_doubt_about_a_staged_transaction(net: Network) -> None:
    async with producer(net, delivery_timeout_ms=2000) as sender:
        await sender.begin_transaction()
        for n in range(6):
            await sender.send("t", b"%d" % n + LARGE, partition=0)
        while len(net.produced) < 1:
            await asyncio.sleep(0)
        commit = asyncio.create_task(sender.commit_transaction())
        while "commit" not in paths(net.called):
            await asyncio.sleep(0)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        is_committed = False
        try:
            await sender.begin_transaction()
        except AlreadyCommitted:
            is_committed = True
            await sender.begin_transaction()
        await sender.send("t", "after", partition=0)
        await sender.commit_transaction()

    [values] = (await read(net)).values()
    assert len(values) == (7 if is_committed else 1)


async def test_doubt_does_not_shut_a_newer_instance_out(net: Network) -> None:
    async with producer(net, delivery_timeout_ms=30) as old, producer(net) as new:
        await commit_in_doubt(net, old)
        await commit(new, b"new")
        with pytest.raises(AlreadyCommitted):
            await old.begin_transaction()
        with pytest.raises(InvalidProducerEpoch):
            await commit(old, b"late")
        await commit(new, b"again")

    assert await read(net) == {0: [b"doubtful", b"new", b"again"]}


async def test_a_gateway_that_stays_away_is_no_doubt(net: Network) -> None:
    async with producer(net, delivery_timeout_ms=30, max_block_ms=30) as sender:
        await commit(sender)
        net.before_call.extend([refused] * 1000)
        with pytest.raises(DeliveryTimeout) as raised:
            await commit(sender, b"v")
        assert not raised.value.may_have_applied
        net.before_call.clear()
        await commit(sender, b"w")
    net.before_call.extend([refused] * 1000)
    async with producer(net, max_block_ms=30) as sender:
        with pytest.raises(GatewayUnreachable):
            await sender.begin_transaction()

    assert await read(net) == {0: [b"w"]}


# Offsets


async def test_offsets_and_records_are_committed_together(net: Network) -> None:
    await write(net, 10)
    async with producer(net) as sender, consumer(net) as reader:
        reader.subscribe("in")
        for _ in range(2):
            async with sender.transaction():
                for record in await poll(reader, 5):
                    await sender.send("t", record.value, partition=0)
                sender.send_offsets(reader)
                before = await committed(net)
            assert await committed(net) != before

    assert await committed(net) == {0: 10, 1: 0, 2: 0}
    assert await read(net) == {0: [b"%d" % n for n in range(10)]}


async def test_after_an_abort_a_consumer_goes_back(net: Network) -> None:
    await write(net, 4)
    async with producer(net) as sender, consumer(net, max_poll_records=2) as reader:
        reader.assign([("in", 0)])
        is_broken = True
        copied = 0
        while copied < 4:
            try:
                async with sender.transaction():
                    records = await poll(reader, 2)
                    for record in records:
                        await sender.send("t", record.value, partition=0)
                    sender.send_offsets(reader)
                    if copied and is_broken:
                        is_broken = False
                        raise ZeroDivisionError
                copied += 2
            except ZeroDivisionError:
                reader.seek_to_committed()

    assert await committed(net) == {0: 4}
    assert await read(net) == {0: [b"0", b"1", b"2", b"3"]}


async def test_where_nothing_is_committed_going_back_means_to_the_beginning(net: Network) -> None:
    await write(net, 2)
    async with consumer(net) as reader:
        reader.assign([("in", 0)])
        assert [r.offset for r in await poll(reader, 2)] == [0, 1]
        reader.seek_to_committed(("in", 0))
        assert [r.offset for r in await poll(reader, 2)] == [0, 1]


async def test_a_new_generation_is_followed_while_the_partitions_stay(net: Network) -> None:
    await write(net, 2)
    async with AsyncAdmin(URL, transport=net) as admin:
        await admin.create_topic("other")
    async with producer(net) as sender, consumer(net) as one, consumer(net) as two:
        one.subscribe("in")
        async with sender.transaction():
            await sender.send("t", str(len(await poll(one, 2))), partition=0)
            sender.send_offsets(one)
            two.subscribe("other")
            async with asyncio.timeout(20):
                while not two.assignment():
                    await two.poll(20)

    assert (await committed(net))[0] == 2
    assert await read(net) == {0: [b"2"]}


async def test_a_consumer_that_lost_its_partitions_cannot_commit(net: Network) -> None:
    await write(net, 2)
    async with producer(net) as sender, consumer(net, heartbeat_interval_ms=700) as reader:
        reader.subscribe("in")
        await sender.begin_transaction()
        await sender.send("t", str(len(await poll(reader, 2))), partition=0)
        sender.send_offsets(reader)
        async with AsyncAdmin(URL, transport=net) as admin:
            [member] = (await admin.describe_group("g")).members
        path = f"{URL}/v1/groups/g/members/{member.member_id}"
        await net.handle_async_request(httpx.Request("DELETE", path))
        with pytest.raises(CommitFailed):
            await sender.commit_transaction()
        await commit(sender, b"after")

    assert await committed(net) == {}
    assert await read(net) == {0: [b"after"]}


async def test_offsets_that_make_no_sense_are_refused(net: Network) -> None:
    async with (
        producer(net) as sender,
        consumer(net, enable_auto_commit=True) as automatic,
        AsyncConsumer(URL, transport=net) as alone,
    ):
        with pytest.raises(RuntimeError, match="inside a transaction only"):
            sender.send_offsets(group="g", offsets={("in", 0): 1})
        await sender.begin_transaction()
        with pytest.raises(ValueError, match="enable_auto_commit=False"):
            sender.send_offsets(automatic)
        with pytest.raises(RuntimeError, match="in no group"):
            sender.send_offsets(alone)
        with pytest.raises(ValueError, match="a consumer, or a group and its offsets"):
            sender.send_offsets()
        with pytest.raises(ValueError, match="not negative"):
            sender.send_offsets(group="g", offsets={("in", 0): -1})
        sender.send_offsets(group="g", offsets={("in", 0): 1, ("in", 1): 1})
        with pytest.raises(ValueError, match="one group"):
            sender.send_offsets(group="h", offsets={("in", 0): 1})
        sender.send_offsets(group="g", offsets={("in", 0): 2})
        await sender.commit_transaction()

    assert await committed(net) == {0: 2, 1: 1}


# Use


async def test_outside_a_transaction_nothing_is_sent(net: Network) -> None:
    async with producer(net) as sender:
        with pytest.raises(RuntimeError, match="inside a transaction only"):
            await sender.send("t", "v")
        with pytest.raises(RuntimeError, match="before the commit"):
            await sender.send_and_wait("t", "v")
        with pytest.raises(RuntimeError, match="inside a transaction only"):
            await sender.commit_transaction()
        async with sender.transaction():
            with pytest.raises(RuntimeError, match="is open"):
                await sender.begin_transaction()
    async with producer(net, transactional_id=None) as plain:
        with pytest.raises(RuntimeError, match="give transactional_id"):
            await plain.begin_transaction()

    assert paths(net.posted) == ["producers"]


async def test_settings_of_transactions_are_checked(net: Network) -> None:
    with pytest.raises(ValueError, match="acks is not 0"):
        producer(net, acks=0)
    with pytest.raises(ValueError, match="enable_idempotence is not False"):
        producer(net, enable_idempotence=False)
    with pytest.raises(ValueError, match="transaction_timeout_ms"):
        producer(net, transaction_timeout_ms=0)
    async with producer(net, transactional_id="no spaces") as sender:
        with pytest.raises(RiachoError, match="no spaces"):
            await sender.begin_transaction()


async def test_without_pyarrow_json_does_the_same(
    net: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("riacho.wire.has_arrow", lambda: False)

    async with producer(net, compression_type="none") as sender, sender.transaction():
        for n in range(6):
            await sender.send("t", b"%d" % n + LARGE, partition=n % 3, headers={"h": b"\xff"})

    values = await read(net)
    assert [[(v or b"")[:1] for v in values[p]] for p in range(3)] == [
        [b"0", b"3"],
        [b"1", b"4"],
        [b"2", b"5"],
    ]


async def test_a_refused_call_says_why(net: Network) -> None:
    net.before_call.extend([None, problem(413, "TRANSACTION_TOO_LARGE", retryable=False)])

    async with producer(net) as sender:
        with pytest.raises(TransactionTooLarge, match="on purpose"):
            await commit(sender, b"v")
        await commit(sender, b"w")

    assert await read(net) == {0: [b"w"]}
