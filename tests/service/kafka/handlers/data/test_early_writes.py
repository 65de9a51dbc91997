"""Large batches are written while they are checked, and only those that pass are committed."""

import asyncio
from typing import Any

import pytest

from service.kafka.handlers.data.produce import EARLY_BYTES_MIN
from service.kafka.protocol.error_codes import ErrorCode
from storage.errors import BadBatch, RiachoError
from storage.formats.kafka import layout
from storage.formats.kafka.batches import Batches, check, claimed_by
from storage.formats.partitions import FIRST, PartitionNumber
from storage.stores.memory import MemoryObjects
from tests.service.kafka.cluster import batch, kafka_gateway
from tests.service.kafka.handlers.data.test_produce import new_id, one, produce, values

pytestmark = pytest.mark.anyio

VALUE = b"x" * EARLY_BYTES_MIN


def changed(data: bytes, at: int | None = None, **header: Any) -> bytes:
    """Return a batch with another byte or header, and the checksum that it then has."""
    out = bytearray(data)
    if at is not None:
        out[at] ^= 1
    found = layout.BatchHeader._make(layout.BATCH_HEADER.unpack_from(out))
    layout.seal(out, 0, len(out), found._replace(**header))
    return bytes(out)


def poison(data: bytes) -> bytes:
    """Return a batch with a right checksum, whose first record has a wrong length."""
    return changed(data, at=layout.HEADER_BYTES + 1)


class Watched(MemoryObjects):
    """A bucket that reports when it holds something."""

    def __init__(self) -> None:
        super().__init__()
        self.is_written = asyncio.Event()

    async def put(self, key: str, body: Any) -> None:
        await super().put(key, body)
        self.is_written.set()


async def test_a_refused_batch_takes_none_with_it_that_was_written_beside_it() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        sent = [b"%d" % number + VALUE for number in range(6)]
        batches = [batch(value) for value in sent]
        batches[0], batches[3] = poison(batches[0]), poison(batches[3])

        found = await asyncio.gather(*(produce(gateway, (0, each)) for each in batches))

        codes = [answer.error_code for [answer] in found]
        good = ErrorCode.NONE
        assert codes == [87, good, good, 87, good, good]
        assert [answer.base_offset for [answer] in found] == [-1, 0, 1, -1, 2, 3]
        assert found[0][0].record_errors == []
        assert await values(gateway) == [sent[number] for number in (1, 2, 4, 5)]


async def test_a_producer_goes_on_behind_a_batch_that_was_refused() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        pid = await new_id(gateway)
        first, second = (batch(VALUE, producer=(pid, 0, number)) for number in range(2))

        assert (await one(gateway, poison(first)))[0] == ErrorCode.INVALID_RECORD

        assert (await one(gateway, second))[0] == ErrorCode.UNKNOWN_PRODUCER_ID
        assert await one(gateway, first) == (0, 0)
        assert await one(gateway, second) == (0, 1)
        assert await one(gateway, second) == (0, 1)


async def test_times_are_those_of_the_records_whatever_the_header_says() -> None:
    async with kafka_gateway() as gateway:
        topic = await gateway.gateway.topics.create("t")
        honest = batch(VALUE, b"b", stamps=[1_000, 900])

        assert await one(gateway, changed(honest, max_ms=5_000)) == (0, 0)

        view = await gateway.gateway.lanes.lane(topic.topic_id, 0).view(0)
        [entry], _ = await gateway.gateway.reader.locate(view.head, FIRST, 0, 2)
        assert (entry.min_ms, entry.max_ms) == (900, 1_000)


@pytest.mark.parametrize("passes", [True, False])
async def test_nothing_is_committed_before_the_check_has_passed(passes: bool) -> None:
    objects, may_end = Watched(), asyncio.Event()
    async with kafka_gateway(objects=objects) as gateway:
        topic = await gateway.gateway.topics.create("t")
        data = batch(VALUE)

        async def late() -> Batches:
            await may_end.wait()
            if not passes:
                raise BadBatch("a length is wrong", "INVALID_RECORD")
            limit = 10**6
            return check(
                data, record_bytes_max=limit, needs_keys=False, decompressed_bytes_max=limit
            )

        lane = gateway.gateway.lanes.lane(topic.topic_id, 0)
        produced = asyncio.ensure_future(
            gateway.gateway.produce_batches("t", PartitionNumber(0), claimed_by(data), check=late)
        )
        await objects.is_written.wait()
        assert (await lane.view(0)).head.next_offsets[FIRST] == 0
        assert not produced.done()

        may_end.set()
        if passes:
            assert await produced == 0
        else:
            with pytest.raises(RiachoError, match="a length is wrong"):
                await produced
        assert (await lane.view(0)).head.next_offsets[FIRST] == int(passes)


async def test_a_topic_that_stores_arrow_gets_no_batch_unchecked() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t", config={"riacho.kafka.slices": "arrow"})
        assert (await one(gateway, poison(batch(VALUE))))[0] == ErrorCode.INVALID_RECORD
        data = poison(batch(VALUE))

        async def late() -> Batches:
            raise BadBatch("a length is wrong", "INVALID_RECORD")

        partition, claimed = PartitionNumber(0), claimed_by(data)
        with pytest.raises(BadBatch):
            await gateway.gateway.produce_batches("t", partition, claimed, check=late)
        assert await one(gateway, batch(VALUE)) == (0, 0)
