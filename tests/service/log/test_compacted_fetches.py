"""What clients are told of partitions that were compacted: true offsets, and where to go on."""

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlparse

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crc32c import crc32c

from service.app import App
from service.controller.live_gateways import LiveGateways
from service.http.bodies import arrow_fetch
from service.http.metrics import Metrics
from service.log.gateway import FetchResult, Gateway, Position, Wait
from service.log.rereading import reread
from service.settings import Settings
from service.world.clock import real_world
from storage.errors import ObjectMissing, OffsetOutOfRange
from storage.formats.compacted import decode_row_group, parse_footer
from storage.formats.records import RECORD_SCHEMA, record_batch
from storage.head.head import Head
from storage.reading.reader import Budget
from storage.stores.directory import DirectoryObjects
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.stores.objects import ObjectStore
from storage.zones.zones import Zones
from tests.service.log.test_gateway import Cloud, fetch, produce, values_of
from tests.storage.helpers.compacted_logs import compact
from tests.storage.helpers.worlds import turns

pytestmark = pytest.mark.anyio

RECORDS = "/v1/topics/t/partitions/0/records"
ARROW = {"accept": "application/vnd.apache.arrow.stream"}


class Running:
    """A gateway with a topic of 12 records in three slices, and a client of it."""

    def __init__(self, gateway: Gateway, http: httpx.AsyncClient) -> None:
        self.gateway = gateway
        self.http = http

    async def append(self, start: int, end: int) -> None:
        values = [f"v{number}" for number in range(start, end)]
        batch = record_batch(range(start, end), [f"k{n}" for n in range(start, end)], values)
        await self.gateway.produce("t", batch, batch.nbytes, 0)


@asynccontextmanager
async def running(objects: ObjectStore | None = None) -> AsyncIterator[Running]:
    world = real_world()
    settings = Settings(gateway_heartbeat_s=0, sse_heartbeat_s=0.2)
    metadata = MemoryMetadata(world.new_version)
    gateway = Gateway(settings, Zones({"a": objects or MemoryObjects()}), metadata, world)
    app = App(gateway, LiveGateways(settings, metadata, world), Metrics())
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://gateway"
    ) as http:
        await gateway.topics.create("t")
        each = Running(gateway, http)
        for start in (0, 4, 8):
            await each.append(start, start + 4)
        yield each
        await gateway.aclose()


@pytest.fixture
async def sparse() -> AsyncIterator[Running]:
    """Offsets 2, 3, 5, 9 and 10 are left of the first 12; then come 12 and 13."""
    async with running() as each:
        kept = {2, 3, 5, 9, 10}
        assert await compact(each.gateway, "t", 0, kept.__contains__, segments=2) == sorted(kept)
        await each.append(12, 14)
        yield each


def offsets_of(body: dict[str, list[dict[str, int]]]) -> list[int]:
    return [record["offset"] for record in body["records"]]


async def test_json_has_true_offsets_and_says_where_to_go_on(sparse: Running) -> None:
    whole = (await sparse.http.get(RECORDS)).json()
    assert offsets_of(whole) == [2, 3, 5, 9, 10, 12, 13]
    assert [record["value"] for record in whole["records"]][2:4] == ["v5", "v9"]
    assert (whole["next_offset"], whole["high_watermark"]) == (14, 14)

    two = await sparse.http.get(RECORDS, params={"offset": 4, "max_records": 2})
    assert offsets_of(two.json()) == [5, 9]
    assert two.json()["next_offset"] == 10
    assert two.headers["riacho-next-offset"] == "10"

    lines = (await sparse.http.get(RECORDS, headers={"accept": "application/x-ndjson"})).text
    assert [json.loads(line)["offset"] for line in lines.splitlines()] == [2, 3, 5, 9, 10, 12, 13]


async def test_a_reader_that_follows_next_offset_sees_every_record_once(sparse: Running) -> None:
    for limits in ({"max_records": 1}, {"max_records": 3}, {"max_bytes": 1}, {"max_bytes": 60}):
        offset, seen = 0, []
        for _ in range(20):
            body = (await sparse.http.get(RECORDS, params={"offset": offset, **limits})).json()
            seen += offsets_of(body)
            offset = body["next_offset"]
        assert seen == [2, 3, 5, 9, 10, 12, 13], limits
        assert offset == 14


async def test_an_empty_stretch_is_passed_though_nothing_comes_of_it() -> None:
    async with running() as each:
        await compact(each.gateway, "t", 0, lambda offset: offset < 4)

        body = (await each.http.get(RECORDS, params={"offset": 6})).json()
        assert (body["records"], body["next_offset"]) == ([], 12)
        arrow = await each.http.get(RECORDS, params={"offset": 6}, headers=ARROW)
        assert arrow.headers["riacho-next-offset"] == "12"
        assert pa.ipc.open_stream(arrow.content).read_all().num_rows == 0
        many = {"partitions": [{"topic": "t", "partition": 0, "offset": 6}]}
        [part] = (await each.http.post("/v1/fetch", json=many)).json()["partitions"]
        assert (part["records"], part["next_offset"]) == ([], 12)


async def test_who_waits_at_an_empty_stretch_gets_what_comes_next() -> None:
    async with running() as each:
        await compact(each.gateway, "t", 0, lambda offset: offset < 4)
        reading = each.http.get(RECORDS, params={"offset": 5, "max_wait_ms": 60_000})

        async def both() -> httpx.Response:
            await turns()
            await each.append(12, 13)
            return await reading

        assert offsets_of((await both()).json()) == [12]


async def test_several_partitions_share_a_budget_of_records(sparse: Running) -> None:
    await sparse.gateway.topics.alter("t", partitions=2)
    asked = {
        "partitions": [{"topic": "t", "partition": 0, "offset": 0}, {"topic": "t", "partition": 1}],
        "max_records": 4,
    }
    first, second = (await sparse.http.post("/v1/fetch", json=asked)).json()["partitions"]

    assert offsets_of(first) == [2, 3, 5, 9]
    assert (first["next_offset"], second["next_offset"]) == (10, 0)


def decoded(body: bytes) -> tuple[pa.Table, list[int]]:
    """Return the records, and their offsets as the metadata gives them."""
    offsets: list[int] = []
    with pa.ipc.open_stream(body) as reader:
        bases = json.loads((reader.schema.metadata or {}).get(b"riacho.base_offsets", b"[]"))
        batches = list(reader)
    for base, batch in zip(bases, batches, strict=bool(bases)):
        offsets += range(base, base + batch.num_rows)
    return pa.Table.from_batches(batches), offsets


async def test_arrow_batches_are_cut_at_gaps(sparse: Running) -> None:
    reply = await sparse.http.get(RECORDS, headers=ARROW)
    table, offsets = decoded(reply.content)

    assert offsets == [2, 3, 5, 9, 10, 12, 13]
    assert table.schema.names == RECORD_SCHEMA.names
    assert table.column("value").to_pylist() == [b"v%d" % offset for offset in offsets]
    assert reply.headers["riacho-next-offset"] == "14"


async def test_an_answer_of_many_gaps_is_cut_short(
    sparse: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_fetch, "BATCHES_MAX", 2)
    offset, seen = 0, []
    while offset < 14:
        reply = await sparse.http.get(RECORDS, params={"offset": offset}, headers=ARROW)
        table, offsets = decoded(reply.content)
        assert table.num_rows == len(offsets) <= 4
        seen += offsets
        offset = int(reply.headers["riacho-next-offset"])
    assert seen == [2, 3, 5, 9, 10, 12, 13]


@pytest.mark.parametrize("form", ["column", "either"])
async def test_arrow_batches_may_have_their_offsets_in_a_column(sparse: Running, form: str) -> None:
    params = {"offset": 3, "offsets": form}
    reply = await sparse.http.get(RECORDS, params=params, headers=ARROW)
    table, _ = decoded(reply.content)

    assert table.schema.names == [*RECORD_SCHEMA.names, "offset"]
    assert table.column("offset").to_pylist() == [3, 5, 9, 10, 12, 13]
    assert table.column("key").to_pylist() == [b"k3", b"k5", b"k9", b"k10", b"k12", b"k13"]


async def test_dense_records_are_sent_as_they_are_stored(sparse: Running) -> None:
    [stored] = (await fetch_some(sparse.gateway, 12)).fetched.slices
    plain = await sparse.http.get(RECORDS, params={"offset": 12}, headers=ARROW)
    either = await sparse.http.get(
        RECORDS, params={"offset": 12, "offsets": "either"}, headers=ARROW
    )
    column = await sparse.http.get(
        RECORDS, params={"offset": 12, "offsets": "column"}, headers=ARROW
    )

    assert bytes(stored.data) in plain.content
    assert plain.content == either.content
    assert decoded(plain.content)[1] == [12, 13]
    assert decoded(column.content)[0].column("offset").to_pylist() == [12, 13]
    wrong = await sparse.http.get(RECORDS, params={"offsets": "all"}, headers=ARROW)
    assert wrong.status_code == 400


async def fetch_some(gateway: Gateway, offset: int) -> FetchResult:
    budget = Budget(records_max=10, bytes_max=10**6)
    return await gateway.fetch("t", 0, Position(offset=offset), budget, Wait())


async def test_events_have_true_ids_and_resume_behind_them(sparse: Running) -> None:
    accept = {"accept": "text/event-stream"}
    whole = await sparse.http.get(RECORDS, params={"max_records": 7}, headers=accept)
    ids = [int(line[4:]) for line in whole.text.splitlines() if line.startswith("id: ")]
    assert ids == [2, 3, 5, 9, 10, 12, 13]

    rest = await sparse.http.get(
        RECORDS, params={"max_records": 2}, headers={**accept, "last-event-id": "5"}
    )
    assert [line for line in rest.text.splitlines() if line.startswith("id: ")] == [
        "id: 9",
        "id: 10",
    ]


async def test_moments_are_found_among_what_is_left(sparse: Running) -> None:
    for at, expected in ((0, (2, 2)), (4, (5, 5)), (6, (9, 9)), (11, (12, 12)), (99, (14, -1))):
        reply = await sparse.http.get("/v1/topics/t/partitions/0/offsets", params={"at": at})
        assert reply.json() == {"offset": expected[0], "timestamp": expected[1]}
        body = (await sparse.http.get(RECORDS, params={"at": at})).json()
        assert offsets_of(body)[:1] == ([expected[0]] if at < 99 else [])


async def test_row_groups_can_be_read_from_the_bucket(tmp_path: Path) -> None:
    async with running(DirectoryObjects(tmp_path)) as each:
        kept = {2, 3, 5, 9, 10}
        await compact(each.gateway, "t", 0, kept.__contains__, segments=2, row_group_bytes=30)
        await each.append(12, 14)

        path = "/v1/topics/t/partitions/0/segments"
        ranges, offset = [], 0
        while offset < 14:
            page = (await each.http.get(path, params={"offset": offset, "limit": 2})).json()
            assert 1 <= len(page["segments"]) <= 2
            ranges += page["segments"]
            offset = page["next_offset"]

        assert ranges == (await each.http.get(path)).json()["segments"]
        assert {each["format"] for each in ranges[:-1]} == {"parquet"}
        assert [each["count"] for each in ranges] == [2, 1, 2, 2]
        assert [(r["base_offset"], r["end_offset"]) for r in ranges] == [
            (0, 4),
            (4, 6),
            (6, 12),
            (12, 14),
        ]
        seen = [offset for each in ranges[:-1] for offset in offsets_in(each)]
        assert seen == sorted(kept)
        assert "row_group" not in ranges[-1]
        file = Path(urlparse(ranges[0]["url"]).path)
        assert pq.read_table(file).column("offset").to_pylist() == [2, 3, 5]
        for limit in (0, 10_001):
            assert (await each.http.get(path, params={"limit": limit})).status_code == 400


def offsets_in(stored: dict[str, object]) -> list[int]:
    """Return the offsets of a range, read past the gateway by what the answer says."""
    body = io.BytesIO(Path(urlparse(str(stored["url"])).path).read_bytes()).getvalue()
    data = body[stored["start"] : stored["end"]]  # type: ignore[misc]
    footer = body[stored["footer_start"] : stored["footer_end"]]  # type: ignore[misc]
    assert crc32c(data) == stored["crc32c"]
    parsed = parse_footer(footer, int(str(stored["footer_crc32c"])))
    batch = decode_row_group(parsed, int(str(stored["row_group"])), data, ["offset"])
    found: list[int] = batch.column(0).to_pylist()
    return found


async def test_who_has_an_old_view_finds_where_the_records_went() -> None:
    cloud = Cloud()
    ours, theirs = cloud.gateway(slice_cache_bytes=1), cloud.gateway()
    await ours.topics.create("t")
    for number in range(4):
        await produce(ours, b"%d" % number)
    await fetch(ours, 0)
    old = cloud.objects.names(".seg")
    await compact(theirs, "t", 0, lambda offset: offset % 2 == 1)
    await cloud.objects.delete(old)

    # The view is young enough not to be looked at again, and names what is gone.
    result = await fetch(ours, 0)

    assert values_of(result) == [b"1", b"3"]
    assert result.fetched.end_offset == 4


async def test_a_read_is_repeated_only_for_another_root_or_log_start() -> None:
    gateway = Cloud().gateway()
    topic = await gateway.topics.create("t")
    await produce(gateway, b"0", b"1")
    lane = gateway.lanes.lane(topic.topic_id, 0)
    old = await lane.view(0)
    seen = []

    async def read(head: Head) -> str:
        seen.append(head.root)
        if len(seen) == 1:
            await compact(gateway, "t", 0, lambda offset: offset > 0)
        if len(seen) != 2:
            raise ObjectMissing("swept")
        return "found"

    found, view = await reread(lane, old, read)
    assert (found, view.head.root) == ("found", seen[1])
    assert seen[0] != seen[1]
    with pytest.raises(ObjectMissing):
        await reread(lane, view, read)
    assert len(seen) == 3


async def test_what_is_really_lost_is_said_to_be_so() -> None:
    cloud = Cloud()
    ours = cloud.gateway()
    await ours.topics.create("t")
    await produce(ours, b"x")
    await cloud.objects.delete(cloud.objects.names(".seg"))
    cold = cloud.gateway()

    with pytest.raises(ObjectMissing):
        await fetch(cold, 0)
    with pytest.raises(ObjectMissing):
        await cold.offset_at("t", 0, 0)
    assert len((await cold.locate("t", 0, None, None)).entries) == 1
    with pytest.raises(OffsetOutOfRange):
        await cold.locate("t", 0, 2, None)
