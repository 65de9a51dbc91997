"""The promises of transactions: all or nothing, and one instance at a time.

A real gateway in this process, behind a network that loses and refuses requests on purpose.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from riacho.admin.admin import AsyncAdmin
from riacho.errors import (
    TransactionAborted,
)
from riacho.records import RecordMetadata
from storage.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    RecordTooLarge,
    RiachoError,
    TransactionTooLarge,
)
from tests.riacho.inprocess import URL, Network, client_tasks, problem
from tests.riacho.transacting import (
    LARGE,
    Futures,
    break_off,
    commit,
    committed,
    paths,
    producer,
    read,
    two_topics,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def net() -> AsyncIterator[Network]:
    async with two_topics() as net:
        yield net


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


async def test_an_exception_aborts_and_the_next_transaction_succeeds(net: Network) -> None:
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


async def test_transactions_can_be_begun_committed_and_aborted_explicitly(net: Network) -> None:
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


async def test_closing_aborts_the_open_transaction(net: Network) -> None:
    sender = producer(net)
    await sender.begin_transaction()
    futures = [await sender.send("t", LARGE, partition=0) for _ in range(6)]
    await sender.close()

    assert {type(future.exception()) for future in futures} == {TransactionAborted}
    assert await read(net) == {}


async def test_a_refused_record_aborts_the_whole_transaction(net: Network) -> None:
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


async def test_a_newer_instance_fences_the_older_one(net: Network) -> None:
    async with producer(net) as old, producer(net) as new:
        await commit(old, b"old")
        await commit(new, b"new")
        for _ in range(2):
            with pytest.raises(InvalidProducerEpoch):
                await commit(old, b"late")
        await commit(new, b"again")

    assert await read(net) == {0: [b"old", b"new", b"again"]}


async def test_a_newer_instance_fences_a_staged_transaction(net: Network) -> None:
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


async def test_a_transaction_that_timed_out_is_aborted_and_the_next_succeeds(net: Network) -> None:
    async with producer(net, transaction_timeout_ms=1) as sender:
        with pytest.raises(InvalidTransactionState):
            await commit(sender, *[LARGE] * 12)
        await commit(sender, b"after")

    assert await read(net) == {0: [b"after"]}
    assert paths(net.called).count("producers") == 1, "we stayed who we were"


# Use


async def test_nothing_can_be_sent_outside_a_transaction(net: Network) -> None:
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


async def test_invalid_settings_of_transactions_are_refused(net: Network) -> None:
    with pytest.raises(ValueError, match="acks is not 0"):
        producer(net, acks=0)
    with pytest.raises(ValueError, match="enable_idempotence is not False"):
        producer(net, enable_idempotence=False)
    with pytest.raises(ValueError, match="transaction_timeout_ms"):
        producer(net, transaction_timeout_ms=0)
    async with producer(net, transactional_id="no spaces") as sender:
        with pytest.raises(RiachoError, match="no spaces"):
            await sender.begin_transaction()


async def test_transactions_are_sent_as_json_without_pyarrow(
    net: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("riacho.http.wire.has_arrow", lambda: False)

    async with producer(net, compression_type="none") as sender, sender.transaction():
        for n in range(6):
            await sender.send("t", b"%d" % n + LARGE, partition=n % 3, headers={"h": b"\xff"})

    values = await read(net)
    assert [[(v or b"")[:1] for v in values[p]] for p in range(3)] == [
        [b"0", b"3"],
        [b"1", b"4"],
        [b"2", b"5"],
    ]


async def test_the_reason_of_a_refused_call_is_raised(net: Network) -> None:
    net.before_call.extend([None, problem(413, "TRANSACTION_TOO_LARGE", retryable=False)])

    async with producer(net) as sender:
        with pytest.raises(TransactionTooLarge, match="on purpose"):
            await commit(sender, b"v")
        await commit(sender, b"w")

    assert await read(net) == {0: [b"w"]}
