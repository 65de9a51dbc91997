"""The promises of a producer: order, truthful errors, bounded memory.

A real gateway in this process, behind a network that loses and refuses requests on purpose.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator

import pytest

from riacho.admin.admin import AsyncAdmin
from riacho.consumer.consumer import AsyncConsumer
from riacho.errors import BufferExhausted, DeliveryTimeout, GatewayUnreachable
from riacho.producer.producer import AsyncProducer
from riacho.producer.shared import MIB
from riacho.records import Record, RecordMetadata
from storage.errors import (
    InvalidAcks,
    OutcomeUnknown,
    RecordTooLarge,
    Rejected,
    RiachoError,
    Unavailable,
    UnknownTopicOrPartition,
)
from storage.formats.partitioner import partition_for
from tests.riacho.inprocess import URL, Network, client_tasks, network, problem, refused

pytestmark = pytest.mark.anyio

OVERLOADED = problem(503, "THROTTLING_QUOTA_EXCEEDED", retryable=True)


@pytest.fixture
async def net() -> AsyncIterator[Network]:
    async with network() as net, AsyncAdmin(URL, transport=net) as admin:
        await admin.create_topic("t", partitions=3)
        yield net


def producer(net: Network, **settings: object) -> AsyncProducer:
    quick = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_max_ms": 2}
    return AsyncProducer(URL, transport=net, **quick | settings)  # type: ignore[arg-type]


async def read_all(net: Network) -> list[Record]:
    async with AsyncConsumer(
        URL, transport=net, auto_offset_reset="earliest", fetch_max_wait_ms=0
    ) as consumer:
        consumer.assign([("t", 0), ("t", 1), ("t", 2)])
        ends = await consumer.end_offsets()
        records: list[Record] = []
        while len(records) < sum(ends.values()):
            records += await consumer.poll(1000)
        return records


async def test_a_record_is_read_back_as_it_was_sent(net: Network) -> None:
    async with producer(net) as sender:
        metadata = await sender.send_and_wait(
            "t", "välue", key=b"\xff", headers={"h": "1"}, timestamp_ms=1234
        )

    assert await read_all(net) == [
        Record("t", metadata.partition, 0, 1234, b"\xff", "välue".encode(), (("h", b"1"),))
    ]
    assert metadata == RecordMetadata("t", metadata.partition, 0, 1234)


async def test_keys_are_assigned_to_partitions_as_in_kafka(net: Network) -> None:
    async with producer(net) as sender:
        for n in range(20):
            await sender.send("t", str(n), key=f"key-{n}")

    for record in await read_all(net):
        assert record.partition == partition_for(record.key or b"", 3)


async def test_order_survives_refusals_and_lost_replies(net: Network) -> None:
    net.before.extend([refused, OVERLOADED, None, refused, refused])
    net.lost_replies = 2

    async with producer(net) as sender:
        for n in range(50):
            await sender.send("t", str(n), key="k")
            await asyncio.sleep(0)

    assert [int(record.text()) for record in await read_all(net)] == list(range(50))


async def test_records_sent_during_a_request_share_the_next_request(net: Network) -> None:
    net.gate.clear()
    async with producer(net) as sender:
        await sender.send("t", "first", partition=0)
        while not net.produced:
            await asyncio.sleep(0)
        for n in range(100):
            await sender.send("t", str(n), partition=0)
        net.gate.set()
        await sender.flush()

    assert len(net.produced) == 2


async def test_partitions_are_sent_concurrently_up_to_max_in_flight(net: Network) -> None:
    net.gate.clear()
    async with producer(net, max_in_flight=2) as sender:
        for partition in range(3):
            await sender.send("t", "v", partition=partition)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(net.produced) == 2
        net.gate.set()

    assert len(net.produced) == 3


async def test_an_error_that_is_not_retryable_is_raised_at_once(net: Network) -> None:
    net.before.append(problem(400, "INVALID_REQUEST", retryable=False))

    async with producer(net) as sender:
        with pytest.raises(Rejected) as raised:
            await sender.send_and_wait("t", "v")

    error = raised.value
    assert (error.code, error.retryable, error.may_have_applied) == (
        "INVALID_REQUEST",
        False,
        False,
    )
    assert error.request_id == "abc"  # type: ignore[attr-defined]
    assert len(net.produced) == 1


async def test_with_an_unreachable_gateway_delivery_times_out_and_nothing_is_written(
    net: Network,
) -> None:
    net.before.extend([refused] * 1000)

    async with producer(net, delivery_timeout_ms=2000) as sender:
        with pytest.raises(DeliveryTimeout, match=r"not written within 2 s") as raised:
            await sender.send_and_wait("t", "v")

    assert not raised.value.may_have_applied
    assert len(net.produced) > 1


async def test_after_one_lost_reply_the_outcome_stays_unknown(net: Network) -> None:
    net.lost_replies = 1
    net.before.extend([None] + [refused] * 1000)

    async with producer(net, delivery_timeout_ms=50) as sender:
        with pytest.raises(OutcomeUnknown) as raised:
            await sender.send_and_wait("t", "v")

    assert raised.value.may_have_applied


async def test_without_retries_a_record_is_sent_at_most_once(net: Network) -> None:
    net.lost_replies = 1

    async with producer(net, retries=0) as sender:
        with pytest.raises(OutcomeUnknown):
            await sender.send_and_wait("t", "v")

    assert len(net.produced) == 1


async def test_a_refused_record_does_not_affect_others(net: Network) -> None:
    async with producer(net, linger_ms=20) as sender:
        values = [b"a", b"b", b"x" * (2 * MIB), b"c", b"d"]
        futures = [await sender.send("t", value, partition=0) for value in values]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [
        RecordMetadata,
        RecordMetadata,
        RecordTooLarge,
        RecordMetadata,
        RecordMetadata,
    ]
    assert [record.value for record in await read_all(net)] == [b"a", b"b", b"c", b"d"]


async def test_send_raises_for_an_unknown_topic_or_partition(net: Network) -> None:
    async with producer(net) as sender:
        with pytest.raises(UnknownTopicOrPartition, match="nope"):
            await sender.send("nope", "v")
        with pytest.raises(UnknownTopicOrPartition, match="0 to 2, not 3"):
            await sender.send("t", "v", partition=3)


async def test_a_deleted_topic_is_detected(net: Network) -> None:
    async with producer(net) as sender, AsyncAdmin(URL, transport=net) as admin:
        await sender.send_and_wait("t", "v")
        await admin.delete_topic("t")
        with pytest.raises(UnknownTopicOrPartition):
            await sender.send_and_wait("t", "v")
        with pytest.raises(UnknownTopicOrPartition):
            await sender.send("t", "v")


async def test_new_partitions_are_used_after_metadata_max_age(net: Network) -> None:
    async with (
        producer(net, metadata_max_age_ms=0) as sender,
        AsyncAdmin(URL, transport=net) as admin,
    ):
        await sender.send_and_wait("t", "v")
        await admin.alter_topic("t", partitions=8)
        for _ in range(20):
            metadata = await sender.send_and_wait("t", "v")
            if metadata.partition > 2:
                break
        else:
            pytest.fail("the new partitions were never used")


async def test_a_full_buffer_waits_and_then_refuses(net: Network) -> None:
    net.gate.clear()
    sizes = {"buffer_memory": 3000, "batch_size": 1000, "max_block_ms": 20}
    async with producer(net, **sizes) as sender:
        futures = [await sender.send("t", b"x" * 900, partition=0) for _ in range(3)]
        with pytest.raises(BufferExhausted, match="no room"):
            await sender.send("t", b"x" * 900, partition=0)
        net.gate.set()
        await asyncio.gather(*futures)
        await sender.send_and_wait("t", b"x" * 900, partition=0)

    assert len(await read_all(net)) == 4


async def test_waiting_sends_continue_when_the_buffer_has_room(net: Network) -> None:
    net.gate.clear()
    async with producer(net, buffer_memory=2000, batch_size=1000) as sender:
        senders = [
            asyncio.create_task(sender.send("t", b"x" * 900, partition=0)) for _ in range(10)
        ]
        await asyncio.sleep(0.01)
        net.gate.set()
        await asyncio.gather(*await asyncio.gather(*senders))

    assert len(await read_all(net)) == 10


async def test_a_record_larger_than_the_buffer_is_refused(net: Network) -> None:
    async with producer(net, buffer_memory=2000, batch_size=1000) as sender:
        with pytest.raises(RecordTooLarge, match="buffer_memory"):
            await sender.send("t", b"x" * 3000)


async def test_closing_sends_buffered_records(net: Network) -> None:
    async with producer(net, linger_ms=60_000) as sender:
        futures = [await sender.send("t", str(n)) for n in range(10)]

    assert all(future.done() for future in futures)
    assert len(await read_all(net)) == 10
    with pytest.raises(RuntimeError, match="closed"):
        await sender.send("t", "late")


async def test_closing_with_a_timeout_reports_the_true_outcome_of_each_record(net: Network) -> None:
    net.gate.clear()
    sender = producer(net, max_in_flight=1)
    flying = await sender.send("t", "v", partition=0)
    while not net.produced:
        await asyncio.sleep(0)
    waiting = await sender.send("t", "v", partition=1)
    queued = await sender.send("t", "v", partition=0)

    await sender.close(timeout=0.01)

    assert isinstance(flying.exception(), OutcomeUnknown)
    for future in (waiting, queued):
        error = future.exception()
        assert isinstance(error, Unavailable)
        assert not error.may_have_applied
    assert client_tasks() == []


async def test_a_flush_can_time_out_and_sending_continues(net: Network) -> None:
    net.gate.clear()
    async with producer(net) as sender:
        future = await sender.send("t", "v")
        with pytest.raises(TimeoutError, match="1 records are not acknowledged"):
            await sender.flush(timeout=0.01)
        net.gate.set()
        await future


async def test_callbacks_receive_the_outcome_and_their_own_errors_are_ignored(net: Network) -> None:
    net.before.extend([None, problem(400, "INVALID_REQUEST", retryable=False)])
    seen: list[tuple[RecordMetadata | None, RiachoError | None]] = []

    def callback(metadata: RecordMetadata | None, error: RiachoError | None) -> None:
        seen.append((metadata, error))
        raise LookupError("a mistake of the caller")

    async with producer(net) as sender:
        for _ in range(2):
            await sender.send("t", "v", partition=0, callback=callback)
            await sender.flush()

    assert seen[0][0] == RecordMetadata("t", 0, 0, seen[0][0].timestamp)  # type: ignore[union-attr]
    assert seen[0][1] is None
    assert seen[1][0] is None
    assert isinstance(seen[1][1], Rejected)


async def test_cancelling_a_future_does_not_withdraw_its_record(net: Network) -> None:
    async with producer(net) as sender:
        future = await sender.send("t", "v")
        future.cancel()

    assert len(await read_all(net)) == 1


@pytest.mark.parametrize("compression", ["lz4", "zstd", "gzip", "none"])
async def test_every_compression_is_supported(net: Network, compression: str) -> None:
    async with producer(net, compression_type=compression) as sender:
        await sender.send_and_wait("t", "v" * 1000, headers={"a": "b"})

    [record] = await read_all(net)
    assert record.text() == "v" * 1000


async def test_records_are_sent_as_json_without_pyarrow(
    net: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("riacho.http.wire.has_arrow", lambda: False)

    async with producer(net) as sender:
        await sender.send_and_wait("t", b"\xff", headers=[("a", b"\xfe"), ("a", None)])

    [record] = await read_all(net)
    assert (record.value, record.headers) == (b"\xff", (("a", b"\xfe"), ("a", None)))


@pytest.mark.parametrize(("acks", "offset"), [("all", 0), (-1, 0), (1, 0), (0, -1)])
async def test_every_value_of_acks_is_supported(net: Network, acks: str | int, offset: int) -> None:
    async with producer(net, acks=acks) as sender:
        metadata = await sender.send_and_wait("t", "v")

    assert metadata.offset == offset


async def test_invalid_settings_are_refused(net: Network) -> None:
    with pytest.raises(InvalidAcks):
        producer(net, acks=2)
    with pytest.raises(ValueError, match="compression_type"):
        producer(net, compression_type="snappy")
    with pytest.raises(ValueError, match="batch_size"):
        producer(net, batch_size=0)
    with pytest.raises(ValueError, match="max_in_flight"):
        producer(net, max_in_flight=0)
    with pytest.raises(ValueError, match="retries"):
        producer(net, retries=-1)
    with pytest.raises(ValueError, match="delivery_timeout_ms"):
        producer(net, delivery_timeout_ms=0)
    with pytest.raises(ValueError, match="begins with http"):
        AsyncProducer("localhost:8080")


def test_defaults_are_those_of_kafka() -> None:
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(AsyncProducer.__init__).parameters.items()
    }

    assert defaults["acks"] == "all"
    assert defaults["linger_ms"] == 5
    assert defaults["retries"] == 2**31 - 1
    assert (defaults["retry_backoff_ms"], defaults["retry_backoff_max_ms"]) == (100, 1000)
    assert (defaults["delivery_timeout_ms"], defaults["request_timeout_ms"]) == (120_000, 30_000)
    assert (defaults["max_in_flight"], defaults["buffer_memory"]) == (5, 32 * MIB)
    assert defaults["transaction_timeout_ms"] == 60_000


async def test_records_wait_for_linger_ms_unless_flushed(net: Network) -> None:
    async with producer(net, linger_ms=60_000) as sender:
        for n in range(10):
            await sender.send("t", str(n), partition=0)
        for _ in range(50):
            await asyncio.sleep(0)
        assert net.produced == []
        await sender.flush()

    assert len(net.produced) == 1


async def test_send_retries_an_unreachable_gateway_for_max_block_ms() -> None:
    async with AsyncProducer("http://127.0.0.1:1", max_block_ms=50, retry_backoff_ms=1) as sender:
        with pytest.raises(GatewayUnreachable, match="no connection to http"):
            await sender.send("t", "v")


async def test_a_hundred_concurrent_senders_lose_no_record(net: Network) -> None:
    net.before.extend([refused, None, OVERLOADED, None] * 3)

    async def send_some(sender: AsyncProducer, name: int) -> None:
        for n in range(10):
            await sender.send("t", f"{name}-{n}", key=str(name))

    async with producer(net, buffer_memory=20_000, batch_size=5_000) as sender:
        await asyncio.gather(*(send_some(sender, name) for name in range(100)))

    by_name: dict[str, list[int]] = {}
    for record in await read_all(net):
        name, n = record.text().split("-")
        by_name.setdefault(name, []).append(int(n))
    assert by_name == {str(name): list(range(10)) for name in range(100)}
