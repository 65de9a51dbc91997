"""The promises of numbered batches: each record once and in order, despite network faults.

A real gateway in this process, behind networks that fail on purpose.
"""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from riacho.admin.admin import AsyncAdmin
from riacho.consumer.consumer import AsyncConsumer
from riacho.delivery.batches import Batch
from riacho.delivery.numbering import EPOCH_MAX, SEQUENCES, Numbering
from riacho.errors import DeliveryTimeout
from riacho.producer.producer import AsyncProducer
from riacho.producer.shared import MIB
from riacho.records import Record, RecordMetadata, TopicPartition
from storage.errors import InvalidRequest, OutcomeUnknown, RecordTooLarge, RiachoError
from tests.riacho.inprocess import (
    URL,
    Fault,
    Network,
    client_tasks,
    network,
    problem,
    refused,
)
from tests.riacho.storm import Storm

pytestmark = pytest.mark.anyio

OVERLOADED = problem(503, "THROTTLING_QUOTA_EXCEEDED", retryable=True)
OUT_OF_ORDER = problem(409, "OUT_OF_ORDER_SEQUENCE_NUMBER", retryable=False)
UNKNOWN_PRODUCER = problem(404, "UNKNOWN_PRODUCER_ID", retryable=False)
DUPLICATE = problem(409, "DUPLICATE_SEQUENCE_NUMBER", retryable=False)


@pytest.fixture
async def net() -> AsyncIterator[Network]:
    async with network() as net, AsyncAdmin(URL, transport=net) as admin:
        await admin.create_topic("t", partitions=3)
        yield net


def producer(transport: httpx.AsyncBaseTransport, **settings: object) -> AsyncProducer:
    quick = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_max_ms": 2}
    return AsyncProducer(URL, transport=transport, **quick | settings)  # type: ignore[arg-type]


async def read(net: Network, partition: int = 0) -> list[Record]:
    async with AsyncConsumer(
        URL, transport=net, auto_offset_reset="earliest", fetch_max_wait_ms=0
    ) as consumer:
        consumer.assign([("t", partition)])
        [end] = (await consumer.end_offsets()).values()
        records: list[Record] = []
        while len(records) < end:
            records += await consumer.poll(1000)
        return records


async def texts(net: Network, partition: int = 0) -> list[str]:
    return [record.text() for record in await read(net, partition)]


def numbers(requests: list[httpx.Request]) -> list[tuple[int, int]]:
    """Return the epoch and the sequence of each request."""
    return [
        (int(r.headers["riacho-producer-epoch"]), int(r.headers["riacho-sequence"]))
        for r in requests
    ]


def raise_lost(_: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("the connection broke")


async def outcomes(
    futures: "list[asyncio.Future[RecordMetadata]]",
) -> list[int | type[RiachoError]]:
    """Return the offset of each record, or the class of its error."""
    found = await asyncio.gather(*futures, return_exceptions=True)
    return [one.offset if isinstance(one, RecordMetadata) else type(one) for one in found]  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(6))
async def test_in_a_storm_of_faults_each_record_is_written_once_and_in_order(
    net: Network, seed: int
) -> None:
    storm = Storm(net, seed)
    async with producer(storm, batch_size=400) as sender:
        futures = []
        for n in range(900):
            futures.append(await sender.send("t", str(n), partition=n % 3))
            if n % 7 == 0:
                await asyncio.sleep(0)
        await sender.flush()
        found = [future.result() for future in futures]
    await storm.calm()

    assert storm.lost > 20
    assert storm.repeated > 20
    for partition in range(3):
        own = list(range(partition, 900, 3))
        assert await texts(net, partition) == [str(n) for n in own]
        assert [found[n].offset for n in own] == list(range(300))


@pytest.mark.parametrize("seed", range(4))
async def test_in_a_long_storm_of_faults_every_reported_outcome_is_true(
    net: Network, seed: int
) -> None:
    storm = Storm(net, seed, late_s=0.03)
    async with producer(storm, batch_size=400, delivery_timeout_ms=80) as sender:
        futures = []
        for n in range(900):
            futures.append(await sender.send("t", str(n), partition=n % 3))
            if n % 20 == 0:
                await asyncio.sleep(0.005)
        found = await asyncio.gather(*futures, return_exceptions=True)
    await storm.calm()

    assert any(isinstance(one, OutcomeUnknown) for one in found)
    for partition in range(3):
        written = [int(text) for text in await texts(net, partition)]
        assert written == sorted(set(written)), "none twice, and in order"
        for n in range(partition, 900, 3):
            one = found[n]
            if isinstance(one, RecordMetadata):
                assert written[one.offset] == n


async def test_a_lost_reply_is_retried_without_a_duplicate(net: Network) -> None:
    net.lost_replies = 3

    async with producer(net) as sender:
        metadata = [await sender.send_and_wait("t", str(n), partition=0) for n in range(3)]

    assert [one.offset for one in metadata] == [0, 1, 2]
    assert await texts(net) == ["0", "1", "2"]
    assert len(net.produced) == 6


async def test_up_to_five_batches_of_a_partition_are_in_flight(net: Network) -> None:
    net.gate.clear()
    async with producer(net, batch_size=70) as sender:
        for n in range(8):
            await sender.send("t", str(n), partition=0)
        for _ in range(50):
            await asyncio.sleep(0)
        assert numbers(net.produced) == [(0, n) for n in range(5)]
        net.gate.set()

    assert await texts(net) == [str(n) for n in range(8)]


async def test_a_batch_refused_as_out_of_order_is_retried_after_earlier_ones(net: Network) -> None:
    net.before.extend([OVERLOADED, OUT_OF_ORDER, OUT_OF_ORDER, OVERLOADED])

    async with producer(net, batch_size=70) as sender:
        futures = [await sender.send("t", str(n), partition=0) for n in range(3)]
        assert await outcomes(futures) == [0, 1, 2]

    assert await texts(net) == ["0", "1", "2"]
    assert {epoch for epoch, _ in numbers(net.produced)} == {0}, "no number was lost"


async def test_one_producer_id_serves_all_partitions_and_is_requested_until_granted(
    net: Network,
) -> None:
    net.before_call.extend([refused, OVERLOADED])

    async with producer(net) as sender:
        futures = [await sender.send("t", "v", partition=n) for n in range(3)]
        assert await outcomes(futures) == [0, 0, 0]

    assert len(net.called) == 3
    assert len({r.headers["riacho-producer-id"] for r in net.produced}) == 1


async def test_without_a_producer_id_nothing_is_written(net: Network) -> None:
    net.lost_posts = set(range(10_000))

    async with producer(net, delivery_timeout_ms=50) as sender:
        with pytest.raises(DeliveryTimeout) as raised:
            await sender.send_and_wait("t", "v", partition=0)

    assert not raised.value.may_have_applied
    assert net.produced == []


async def test_a_permanent_refusal_of_a_producer_id_is_raised_at_once(net: Network) -> None:
    net.before_call.append(problem(400, "INVALID_REQUEST", retryable=False))

    async with producer(net) as sender:
        with pytest.raises(InvalidRequest):
            await sender.send_and_wait("t", "v")


async def test_a_late_copy_of_a_batch_that_was_given_up_is_fenced(net: Network) -> None:
    held: list[httpx.Request] = []

    def swallow(request: httpx.Request) -> httpx.Response:
        held.append(request)
        raise httpx.ReadError("the connection broke")

    net.before.extend([swallow, *[refused] * 1000])
    async with producer(net, delivery_timeout_ms=50) as sender:
        with pytest.raises(OutcomeUnknown):
            await sender.send_and_wait("t", "given up", partition=0)
        net.before.clear()
        await sender.send_and_wait("t", "after", partition=0)
    late = await net.handle_async_request(held[0])
    await late.aread()

    assert (late.status_code, late.json()["code"]) == (409, "INVALID_PRODUCER_EPOCH")
    assert await texts(net) == ["after"]
    assert numbers(net.produced)[-2] == (1, 0)


async def test_a_refused_record_does_not_affect_others(net: Network) -> None:
    values = [b"a", b"b", b"x" * (2 * MIB), b"c", b"d", b"y" * (2 * MIB), b"e"]

    async with producer(net, batch_size=MIB, linger_ms=20) as sender:
        futures = [await sender.send("t", value, partition=0) for value in values]
        found = await outcomes(futures)

    assert found == [0, 1, RecordTooLarge, 2, 3, RecordTooLarge, 4]
    assert [record.value for record in await read(net)] == [b"a", b"b", b"c", b"d", b"e"]


async def test_halves_of_a_refused_batch_keep_their_sequences(net: Network) -> None:
    net.gate.clear()
    net.before.append(problem(413, "MESSAGE_TOO_LARGE", retryable=False))

    async with producer(net, batch_size=280, linger_ms=20) as sender:
        futures = [await sender.send("t", str(n), partition=0) for n in range(10)]
        while len(net.produced) < 2:
            await asyncio.sleep(0)
        net.gate.set()
        assert await outcomes(futures) == list(range(10))

    assert await texts(net) == [str(n) for n in range(10)]
    assert {epoch for epoch, _ in numbers(net.produced)} == {0}


async def test_a_lost_reply_and_a_refused_record_are_handled_together(net: Network) -> None:
    bad = problem(413, "MESSAGE_TOO_LARGE", retryable=False)
    # The batch is lost, then refused; then its first half is refused.
    net.before.extend([raise_lost, bad, bad])

    async with producer(net, linger_ms=20) as sender:
        futures = [await sender.send("t", str(n), partition=0) for n in range(2)]
        assert await outcomes(futures) == [RecordTooLarge, 0]

    assert await texts(net) == ["1"]


async def test_later_batches_continue_in_a_new_epoch_after_one_is_given_up(net: Network) -> None:
    net.before.append(problem(400, "INVALID_REQUEST", retryable=False))

    async with producer(net, batch_size=70) as sender:
        futures = [await sender.send("t", str(n), partition=0) for n in range(5)]
        found = await outcomes(futures)
        await sender.send_and_wait("t", "5", partition=0)

    assert found == [InvalidRequest, 0, 1, 2, 3]
    assert await texts(net) == ["1", "2", "3", "4", "5"]
    assert numbers(net.produced)[-1] == (1, 4)


async def test_a_batch_after_one_with_an_unknown_outcome_has_an_unknown_outcome_too(
    net: Network,
) -> None:
    # The first two are lost, then the first is refused and the second is out of order.
    bad = problem(400, "INVALID_REQUEST", retryable=False)
    net.before.extend([raise_lost, raise_lost, bad, OUT_OF_ORDER, OUT_OF_ORDER])
    async with producer(net, batch_size=70) as sender:
        futures = [await sender.send("t", str(n), partition=0) for n in range(2)]
        found = await outcomes(futures)
        await sender.send_and_wait("t", "2", partition=0)

    assert found == [OutcomeUnknown, OutcomeUnknown]
    assert await texts(net) == ["2"]


async def test_a_batch_out_of_order_until_its_timeout_has_an_unknown_outcome(net: Network) -> None:
    # A copy in the network is accepted as soon as the batches before it are written.
    net.before.extend([OUT_OF_ORDER] * 100_000)

    async with producer(net, delivery_timeout_ms=300) as sender:
        with pytest.raises(OutcomeUnknown, match="may or may not be written") as raised:
            await sender.send_and_wait("t", "v", partition=0)
        net.before.clear()

    assert raised.value.may_have_applied


@pytest.mark.parametrize("refusal", [OUT_OF_ORDER, UNKNOWN_PRODUCER])
async def test_sequences_that_the_gateway_forgot_are_replaced(net: Network, refusal: Fault) -> None:
    async with producer(net) as sender:
        await sender.send_and_wait("t", "0", partition=0)
        net.before.append(refusal)
        await sender.send_and_wait("t", "1", partition=0)

    assert await texts(net) == ["0", "1"]
    ids = {request.headers["riacho-producer-id"] for request in net.produced}
    assert len(ids) == (2 if refusal is UNKNOWN_PRODUCER else 1)


async def test_a_batch_possibly_written_under_forgotten_sequences_has_an_unknown_outcome(
    net: Network,
) -> None:
    net.lost_replies = 1
    net.before.extend([None, OUT_OF_ORDER])

    async with producer(net) as sender:
        with pytest.raises(OutcomeUnknown):
            await sender.send_and_wait("t", "0", partition=0)
        await sender.send_and_wait("t", "1", partition=0)

    assert await texts(net) == ["0", "1"]


async def test_a_recreated_topic_starts_with_new_sequences(net: Network) -> None:
    async with producer(net) as sender, AsyncAdmin(URL, transport=net) as admin:
        await sender.send_and_wait("t", "old", partition=0)
        await admin.delete_topic("t")
        await admin.create_topic("t", partitions=3)
        await sender.send_and_wait("t", "new", partition=0)

    assert await texts(net) == ["new"]


async def test_a_forgotten_duplicate_succeeds_without_an_offset(
    net: Network,
) -> None:
    net.lost_replies = 1
    net.before.extend([None, DUPLICATE])

    async with producer(net) as sender:
        metadata = await sender.send_and_wait("t", "v", partition=0)

    assert metadata.offset == -1
    assert await texts(net) == ["v"]


async def test_closing_with_a_timeout_leaves_no_tasks_behind(net: Network) -> None:
    net.gate.clear()
    sender = producer(net, batch_size=70)
    futures = [await sender.send("t", str(n), partition=0) for n in range(8)]
    while len(net.produced) < 5:
        await asyncio.sleep(0)

    await sender.close(timeout=0.01)

    in_doubt = [future.exception().may_have_applied for future in futures]  # type: ignore[union-attr]
    assert in_doubt == [True] * 5 + [False] * 3
    assert client_tasks() == []


async def test_without_idempotence_one_batch_is_in_flight_and_a_retry_may_duplicate(
    net: Network,
) -> None:
    net.lost_replies = 1

    async with producer(net, batch_size=70, enable_idempotence=False) as sender:
        futures = [await sender.send("t", str(n), partition=0) for n in range(3)]
        assert await outcomes(futures) == [1, 2, 3]

    assert await texts(net) == ["0", "0", "1", "2"]
    assert "riacho-sequence" not in net.produced[0].headers
    assert net.called == []


async def test_with_acks_0_there_is_no_idempotence(net: Network) -> None:
    async with producer(net, acks=0) as sender:
        await sender.send_and_wait("t", "v")

    assert "riacho-sequence" not in net.produced[0].headers
    with pytest.raises(ValueError, match="acks is not 0"):
        producer(net, acks=0, enable_idempotence=True)


async def test_settings_that_would_break_order_are_refused(net: Network) -> None:
    with pytest.raises(ValueError, match="1 to 5, as many as the gateway remembers"):
        producer(net, max_in_flight_per_partition=6)
    with pytest.raises(ValueError, match="1 to 1, or order would be lost"):
        producer(net, max_in_flight_per_partition=2, enable_idempotence=False)
    async with producer(net, max_in_flight_per_partition=2, batch_size=70) as sender:
        net.gate.clear()
        for n in range(4):
            await sender.send("t", str(n), partition=0)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(net.produced) == 2
        net.gate.set()


def test_sequences_wrap_to_zero_after_two_to_the_31() -> None:
    numbering = Numbering()
    numbering.next_sequence = SEQUENCES - 2

    assert numbering.take(3) == (0, SEQUENCES - 2)
    assert numbering.take(1) == (0, 1)
    batch = Batch(TopicPartition("t", 0), 1, 0.0, drafts=[None] * 4, sequence=SEQUENCES - 2)  # type: ignore[list-item]
    batch.drafts.clear()
    assert batch.halves()[1].sequence == SEQUENCES - 2


def test_after_the_last_epoch_a_new_producer_id_is_needed() -> None:
    numbering = Numbering()
    numbering.producer_id, numbering.epoch = 2, EPOCH_MAX - 1

    numbering.break_off(is_doubtful=True)
    numbering.restart()
    assert (numbering.producer_id, numbering.epoch, numbering.is_doubtful) == (2, EPOCH_MAX, False)
    numbering.break_off(is_doubtful=False)
    numbering.restart()
    assert (numbering.producer_id, numbering.epoch) == (None, 0)
