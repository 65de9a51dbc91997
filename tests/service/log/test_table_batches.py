"""Small flushes in the table: what a gateway writes where, while zones fail and others roll."""

import base64
import json
import random
from contextlib import suppress

import msgspec
import pyarrow as pa
import pytest
from crc32c import crc32c
from pydantic import ValidationError

from service.http.stored_urls import Addresses
from service.log import locating
from service.log.gateway import Gateway, Position, Wait
from service.routes.segments import stored_ranges
from service.settings import Settings
from storage.errors import NotEnoughReplicas, StoreUnavailable
from storage.formats.entries import Kind
from storage.formats.slices import SCHEMA_MESSAGE
from storage.head.head import Head
from storage.lanes.rolls import TRUSTED_S
from storage.reading.table_batches import TableBatches, mentioned, old
from storage.topics.topics import Topic
from storage.zones import zones
from tests.service.helpers.deployments import ALL, INTERVAL_S, Deployment
from tests.service.helpers.replicated import (
    INDEX,
    INLINE_BYTES,
    RUNS_INLINE,
    Replicated,
    append,
    names_of,
    numbered,
    until,
)
from tests.storage.helpers.failing_zones import Mode
from tests.storage.helpers.logs import batch_of
from tests.storage.helpers.worlds import commit_run, turns
from tests.storage.reading.test_table_batches import built

pytestmark = pytest.mark.anyio

SMALL = {"table_batch_bytes_max": 65_536}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zones, "STRAGGLER_S_MAX", 0.1)


def small_headed(deployment: Replicated) -> Gateway:
    """Return a gateway that writes to the table, and whose heads are full after a few commits."""
    return deployment.small_headed(**SMALL)


async def write(gateway: Gateway, topic: Topic, count: int, start: int = 0) -> list[bytes]:
    values = [b"%d" % (start + number) for number in range(count)]
    for value in values:
        await append(gateway, topic, value)
        await turns()
    return values


async def items(deployment: Deployment) -> set[bytes]:
    found = old(deployment.metadata, 2**48)
    return {batch.object_id async for some in found for batch in some}


def kinds(head: Head) -> list[Kind]:
    return [Kind(run.kind) for run in head.runs]


async def test_what_is_small_goes_into_the_table_and_what_is_not_to_the_zones() -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = deployment.modest(table_batch_bytes_max=4096)
    large = random.Random(7).randbytes(5000)

    assert [await append(gateway, topic, value) for value in (b"a", large, b"b")] == [0, 1, 2]

    head = await deployment.head(topic)
    assert kinds(head) == [Kind.TABLE, Kind.ARROW, Kind.TABLE]
    assert deployment.gated["a"].tried["seg"] == 1
    assert (gateway.batcher.flush_count, gateway.batcher.batch_count) == (3, 2)
    assert await deployment.read() == [b"a", large, b"b"]
    assert (await deployment.fsck()).findings == []


async def test_what_touches_several_lanes_or_waits_for_a_transaction_is_an_object() -> None:
    deployment = Deployment("a")
    topic = await deployment.topics.create("t", partitions=2, config={"lane.partitions": 1})
    gateway = deployment.gateway(**SMALL)

    both = {0: batch_of(b"a"), 1: batch_of(b"b")}
    await gateway.batcher.append(topic, both, 100)
    [staged] = await gateway.batcher.stage([(topic, {0: batch_of(b"c")})], 100)

    assert [kinds(head) for head in await deployment.heads()] == [[Kind.ARROW], [Kind.ARROW]]
    assert [run.kind for run in staged.runs] == [Kind.ARROW]
    assert await items(deployment) == set()


@pytest.mark.parametrize("size_bytes", [-1, 65_537])
def test_only_what_is_small_may_be_called_small(size_bytes: int) -> None:
    with pytest.raises(ValidationError):
        Settings(table_batch_bytes_max=size_bytes)


async def test_it_is_off_unless_it_is_wanted() -> None:
    deployment = Deployment("a")
    await deployment.topics.create("t", partitions=1)

    await deployment.produce(deployment.gateway(), b"a")

    assert [kinds(head) for head in await deployment.heads()] == [[Kind.ARROW]]


async def test_heads_that_roll_empty_the_table() -> None:
    deployment = Replicated()
    topic = await deployment.topic(partitions=2)
    gateway = small_headed(deployment)
    values = await write(gateway, topic, 50)

    head = await deployment.head(topic)
    assert await items(deployment) == mentioned(head)
    assert len(head.runs) <= 2 * RUNS_INLINE
    assert await deployment.read() == values
    assert (await deployment.fsck()).findings == []


async def test_copies_of_a_numbered_batch_are_written_once() -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateways = [small_headed(deployment) for _ in range(3)]

    for number in range(12):
        claims = numbered(7, number)
        value = b"%d" % number
        bases = [await append(gateway, topic, value, claims=claims) for gateway in gateways]
        assert bases == [number] * 3
        await turns()

    assert await deployment.read() == [b"%d" % number for number in range(12)]
    assert (await deployment.fsck()).findings == []


async def test_who_reads_with_an_old_head_looks_again() -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway, reader = small_headed(deployment), deployment.gateway()
    values = await write(gateway, topic, 3)
    position = Position(offset=1)
    assert (await reader.fetch("t", 0, Position(offset=2), ALL, Wait())).high_watermark == 3

    values += await write(gateway, topic, 20, start=3)
    assert (await deployment.head(topic)).root
    result = await reader.fetch("t", 0, position, ALL, Wait())

    [(_, batch), *_] = result.fetched.batches(10**9)
    assert batch.column(2).to_pylist()[0] == values[1]
    assert (await reader.offset_at("t", 0, 0))[0] == 0


@pytest.mark.parametrize("mode", ["denied", "full", "hanging"])
async def test_a_zone_that_fails_holds_nobody_up_and_leaves_with_a_roll(mode: Mode) -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = small_headed(deployment)
    values = await write(gateway, topic, 2)

    deployment.gated["c"].mode = mode
    values += await write(gateway, topic, 30, start=2)

    head = await until(deployment, topic, lambda head: names_of(head) == "ab" and head.root != b"")
    values += await write(gateway, topic, 2, start=32)
    assert await deployment.read() == values
    deployment.gated["c"].mode = "ok"
    report = await deployment.fsck()
    assert report.is_ok, report.findings
    assert head.next_offsets[0] == 32
    await gateway.aclose()


async def test_a_zone_that_takes_the_index_but_not_what_is_moved_leaves() -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = small_headed(deployment)
    deployment.gated["c"].refused = ("seg",)

    values = await write(gateway, topic, 30)

    head = await until(deployment, topic, lambda head: names_of(head) == "ab" and head.root != b"")
    assert len(head.runs) <= 3 * RUNS_INLINE
    assert await deployment.read() == values
    report = await deployment.fsck()
    assert report.is_ok, report.findings
    await gateway.aclose()


async def test_if_no_zone_takes_anything_the_head_does_not_grow_without_bound() -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = small_headed(deployment)
    for name in "abc":
        deployment.gated[name].mode = "denied"
    values: list[bytes] = []
    with suppress(StoreUnavailable):
        while len(values) < 100:
            await append(gateway, topic, b"%d" % len(values))
            values.append(b"%d" % len(values))

    for name in "abc":
        deployment.gated[name].mode = "ok"
    values += await write(gateway, topic, 10, start=len(values))

    assert RUNS_INLINE < len(values) - 10 < 100
    assert await deployment.read() == values
    await turns()
    assert len((await deployment.head(topic)).runs) <= 2 * RUNS_INLINE
    await gateway.aclose()


async def test_too_few_zones_in_sync_are_too_few_here_as_well() -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = deployment.modest(**SMALL)
    await deployment.change(topic, lambda head: _isr(head, 0b001))

    with pytest.raises(NotEnoughReplicas):
        await append(gateway, topic, b"a")
    await append(gateway, topic, b"b", acks="1")

    assert await deployment.read() == [b"b"]


def _isr(head: Head, isr: int) -> Head:
    return msgspec.structs.replace(
        head, isr=isr, leader_epoch=head.leader_epoch + 1, commits=head.commits + 1
    )


async def test_what_was_written_a_while_ago_is_not_looked_for_in_the_zones() -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = deployment.modest(**SMALL)
    run, segment = built(bytes(16), b"a")
    await TableBatches(deployment.metadata).write(run.object_id, segment)

    lane = gateway.lanes.lane(topic.topic_id, 0)
    await commit_run(lane, run, age_s=2 * TRUSTED_S)

    assert await deployment.isr(topic) == "abc"
    assert await deployment.read() == [b"a"]


async def test_a_zone_that_comes_in_sync_meanwhile_gets_it_with_the_roll() -> None:
    """The gateway has an old head, and its roll does not count for the new one."""
    deployment = Replicated()
    topic = await deployment.topic()
    gateway = small_headed(deployment)
    await deployment.change(topic, lambda head: _isr(head, 0b011))
    values = await write(gateway, topic, 2)
    deployment.gated["a"].hold(INDEX)
    values += await write(gateway, topic, RUNS_INLINE, start=2)
    assert not (await deployment.head(topic)).root, "it is on its way"

    await deployment.let_in(topic, "c")
    deployment.gated["a"].release()
    values += await write(gateway, topic, 3 * RUNS_INLINE, start=100)

    head = await deployment.head(topic)
    assert (names_of(head), bool(head.root)) == ("abc", True)
    assert await deployment.read() == values
    assert (await deployment.fsck()).findings == []
    await gateway.aclose()


async def test_a_zone_that_was_wiped_comes_back_with_what_was_rolled() -> None:
    deployment = Deployment()
    await deployment.topics.create(
        "t", partitions=1, replication_factor=3, config={"min.insync.replicas": 1}
    )
    gateway = deployment.gateway(**SMALL)
    gateway._lane_runtime.inline_bytes_max = INLINE_BYTES
    controller = deployment.controller()
    await deployment.tick(controller)
    for number in range(10):
        await deployment.produce(gateway, b"%d" % number)
        await turns()
    await deployment.zones["c"].wipe()
    await deployment.tick(controller)
    assert await deployment.in_sync() == ["ab"]
    for number in range(10, 16):
        await deployment.produce(gateway, b"%d" % number)
        await turns()

    await deployment.tick(controller, times=int(60 / INTERVAL_S))

    assert await deployment.in_sync() == ["abc"]
    [head] = await deployment.heads()
    assert Kind.TABLE in kinds(head)
    assert (await deployment.fsck()).findings == []
    deployment.zones["a"].mode = deployment.zones["b"].mode = "denied"
    await deployment.check_all_is_read()


async def test_fsck_looks_at_the_table() -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    await write(deployment.modest(**SMALL), topic, 3)
    runs = (await deployment.head(topic)).runs
    found = [batch async for some in old(deployment.metadata, 2**48) for batch in some]
    [removal] = [batch.removal for batch in found if batch.object_id == runs[1].object_id]
    await deployment.metadata.transact([removal])

    report = await deployment.fsck()

    assert [(each.problem, each.zone, each.key) for each in report.findings] == [
        ("missing", None, removal.key)
    ]


async def located(gateway: Gateway, offset: int | None = None) -> dict[str, object]:
    found = await gateway.locate("t", 0, offset, None)
    document: dict[str, object] = json.loads(
        await stored_ranges(Addresses(gateway, found.head, "", is_secured=False), found)
    )
    return document


async def test_places_of_records_come_with_the_records_themselves() -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    values = await write(deployment.modest(**SMALL), topic, 3)

    document = await located(deployment.gateway())

    assert document["next_offset"] == 3
    segments = document["segments"]
    assert isinstance(segments, list)
    read = []
    for part in segments:
        head, _, text = part["url"].partition(",")
        assert (head, part["format"]) == ("data:application/octet-stream;base64", "arrow")
        data = base64.b64decode(text)[part["start"] : part["end"]]
        assert crc32c(data) == part["crc32c"]
        with pa.ipc.open_stream(SCHEMA_MESSAGE + data) as stream:
            read += stream.read_all().column("value").to_pylist()
    assert read == values


async def test_an_answer_holds_only_so_many_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    await write(deployment.modest(**SMALL), topic, 9)
    [first, *_] = (await deployment.head(topic)).runs
    monkeypatch.setattr(locating, "TABLE_BYTES_MAX", 4 * first.slices[0].length)
    gateway, ends = deployment.gateway(), []

    while not ends or ends[-1] < 9:
        document = await located(gateway, ends[-1] if ends else 0)
        assert isinstance(document["next_offset"], int)
        ends.append(document["next_offset"])

    assert ends == [4, 8, 9]
