"""Reads of stored bytes past the log: no URL gives a byte of another topic."""

import random
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import pyarrow as pa
import pytest
from crc32c import crc32c

from riacho.spark.read.ranges import StoredRange, groups, url_of
from riacho.spark.read.reading import RiachoReader, SpanPartition
from storage.formats.slices import SCHEMA_MESSAGE
from tests.commands import exit_code
from tests.gateway import GatewayProcess
from tests.integration import secured
from tests.integration.processes import TIMEOUT_S, Api, embedded
from tests.riacho.spark.reads import ALL, table
from tests.storage.helpers import servers

Segment = dict[str, Any]

NOISE = random.Random(16)


@dataclass(frozen=True)
class OnSeaweed:
    """A gateway on a server that checks signatures."""

    gateway: GatewayProcess
    api: Api
    env: Mapping[str, str]


@pytest.fixture(scope="module")
def on_seaweed(seaweed: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnSeaweed]:
    bucket = f"direct-{secrets.token_hex(4)}"
    servers.make_bucket(seaweed, bucket)
    folder = tmp_path_factory.mktemp("seaweed")
    env = {
        "RIACHO_ZONES": f"a=s3://{bucket}/log",
        "RIACHO_DATA": str(folder / "data"),
        "AWS_ENDPOINT_URL_S3": seaweed,
        "AWS_ACCESS_KEY_ID": servers.ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": servers.SECRET_KEY,
        "AWS_REGION": servers.REGION,
    }
    with (
        embedded(folder).start(env=env) as gateway,
        Api(gateway.url) as api,
    ):
        yield OnSeaweed(gateway, api, env)


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayProcess, Api]]:
    """A gateway on a directory that serves the bytes itself."""
    env = {"RIACHO_PRESIGN": "gateway"}
    with (
        embedded(tmp_path_factory.mktemp("through")).start(env=env) as gateway,
        Api(gateway.url) as api,
    ):
        yield gateway, api


def segments(api: Api, topic: str, partition: int = 0) -> list[Segment]:
    answer = api.http.get(f"/v1/topics/{topic}/partitions/{partition}/segments")
    assert answer.status_code == 200, answer.text
    found: list[Segment] = answer.json()["segments"]
    assert found
    return found


def mixed(api: Api) -> tuple[str, str]:
    """Two topics with slices in one object."""
    topics = api.topic(), api.topic()
    records = [{"topic": topic, "value": f"{topic}:{n}" * 50} for n in range(3) for topic in topics]
    answer = api.http.post("/v1/atomic", json={"records": records})
    assert answer.status_code == 200, answer.text
    return topics


def span_of(segment: Segment) -> str:
    return f"bytes={segment['start']}-{segment['end'] - 1}"


def values(segment: Segment, data: bytes) -> list[str]:
    assert crc32c(data) == segment["crc32c"]
    with pa.ipc.open_stream(SCHEMA_MESSAGE + data) as reader:
        return [value.decode() for value in reader.read_all().column("value").to_pylist()]


@pytest.mark.aws
def test_a_url_of_one_topic_gives_no_byte_of_another(
    on_seaweed: OnSeaweed,
) -> None:
    api = on_seaweed.api
    mine, other = mixed(api)
    [ours], [theirs] = segments(api, mine), segments(api, other)
    assert urlsplit(ours["url"])[:3] == urlsplit(theirs["url"])[:3], "not in one object"

    def got(url: str, *ranges: str) -> httpx.Response:
        return httpx.get(url, headers=[("range", each) for each in ranges], timeout=TIMEOUT_S)

    good = got(ours["url"], span_of(ours))
    assert good.status_code == 206
    assert values(ours, good.content) == [f"{mine}:{n}" * 50 for n in range(3)]
    start, end = ours["start"], ours["end"]
    for ranges in [
        (),
        (span_of(theirs),),
        ("bytes=0-",),
        (f"bytes={start}-{end}",),
        (f"bytes={max(0, start - 1)}-{end - 1}",) if start else ("bytes=1-2",),
        (span_of(ours), span_of(theirs)),
        (span_of(theirs), span_of(ours)),
        (f"{span_of(ours)},{theirs['start']}-{theirs['end'] - 1}",),
        ("bytes=-100000",),
    ]:
        refused = got(ours["url"], *ranges)
        assert refused.status_code == 403, (ranges, refused.status_code)
        assert other.encode() not in refused.content
    unsigned = ours["url"].replace("host%3Brange", "host")
    assert unsigned != ours["url"]
    assert got(unsigned, span_of(theirs)).status_code == 403


@pytest.mark.aws
def test_a_url_of_a_compacted_object_gives_no_other_object(
    on_seaweed: OnSeaweed,
) -> None:
    api = on_seaweed.api
    topic = api.topic(2, config={"cleanup.policy": "compact", "min.compaction.lag.ms": 0})
    for partition in (0, 1):
        for _ in range(3):
            api.produce(topic, [{"key": "k", "value": "v"}] * 2, partition=partition)
    code, done = exit_code("compact", "--force", topic, env=on_seaweed.env)
    assert code == 0, done.stderr
    found = [segments(api, topic, partition)[0] for partition in (0, 1)]
    assert [each["format"] for each in found] == ["parquet", "parquet"]
    first, second = (each["url"] for each in found)
    assert urlsplit(first).path != urlsplit(second).path

    whole = httpx.get(first, timeout=TIMEOUT_S)
    assert (whole.status_code, len(whole.content)) == (200, found[0]["footer_end"])
    assert httpx.get(first, headers={"range": span_of(found[0])}).status_code == 206
    swapped = f"{second.partition('?')[0]}?{first.partition('?')[2]}"
    assert httpx.get(swapped, timeout=TIMEOUT_S).status_code == 403


@pytest.mark.aws
def test_slices_behind_each_other_can_be_read_at_once(
    on_seaweed: OnSeaweed,
) -> None:
    gateway, api = on_seaweed.gateway, on_seaweed.api
    topic = api.topic()
    records = [{"value": NOISE.randbytes(30_000).hex()} for _ in range(30)]
    api.produce(topic, records, partition=0)
    found = msgspec.convert(segments(api, topic), list[StoredRange])
    runs = [*groups(found)]
    assert len(found) > len(runs), "no slices lie behind each other"

    for run in runs:
        url, end = url_of(run), run[-1].end
        headers = {"range": f"bytes={run[0].start}-{end - 1}"}
        together = httpx.get(url, headers=headers, timeout=TIMEOUT_S)
        assert together.status_code == 206
        for each in run:
            own = {"range": f"bytes={each.start}-{each.end - 1}"}
            part = together.content[each.start - run[0].start : each.end - run[0].start]
            assert crc32c(part) == each.crc32c
            assert httpx.get(each.url, headers=own, timeout=TIMEOUT_S).content == part
            if len(run) > 1:
                assert httpx.get(url, headers=own, timeout=TIMEOUT_S).status_code == 403

    reader = RiachoReader({"url": gateway.url, "subscribe": topic}, ALL)
    expected = [record["value"].encode() for record in records]
    assert table(reader).column("value").to_pylist() == expected


def test_a_gateway_gives_only_bytes_of_the_partition_in_the_path(
    through: tuple[GatewayProcess, Api],
) -> None:
    _, api = through
    mine, other = mixed(api)
    [ours], [theirs] = segments(api, mine), segments(api, other)
    assert ours["url"].startswith(f"/v1/topics/{mine}/partitions/0/segments/")
    assert (ours["start"], theirs["start"]) == (0, 0)

    whole = api.http.get(ours["url"])
    assert whole.status_code == 200
    assert len(whole.content) == ours["end"]
    assert values(ours, whole.content) == [f"{mine}:{n}" * 50 for n in range(3)]
    some = api.http.get(ours["url"], headers={"range": "bytes=2-5"})
    assert (some.status_code, some.content) == (206, whole.content[2:6])
    assert some.headers["content-range"] == f"bytes 2-5/{ours['end']}"
    rest = api.http.get(ours["url"], headers={"range": "bytes=7-"})
    assert (rest.status_code, rest.content) == (206, whole.content[7:])
    more = api.http.get(ours["url"], headers={"range": f"bytes=0-{ours['end'] + 5000}"})
    assert (more.status_code, more.content) == (206, whole.content)
    head = api.http.head(ours["url"])
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(ours["end"])
    assert api.http.get(ours["url"], headers={"range": "bytes=99999999-"}).status_code == 400

    # The object that it names is another topic's, too; the path decides whose bytes they are.
    name = ours["url"].rpartition("/")[2]
    swapped = api.http.get(f"/v1/topics/{other}/partitions/0/segments/{name}")
    assert values(theirs, swapped.content) == [f"{other}:{n}" * 50 for n in range(3)]


@pytest.mark.parametrize(
    "name",
    [
        "0",
        "0-",
        "-00",
        "0-0",
        "0-zz",
        "x-00",
        "0-00/../..",
        "1e3-00",
        "0-" + "00" * 40,
        "%30-00%00",
    ],
)
def test_a_name_that_no_gateway_gave_is_refused(
    through: tuple[GatewayProcess, Api], name: str
) -> None:
    _, api = through
    topic, _ = mixed(api)

    answer = api.http.get(f"/v1/topics/{topic}/partitions/0/segments/{name}")

    assert answer.status_code in {400, 404}, answer.text


def test_bytes_that_are_elsewhere_must_be_located_again(
    through: tuple[GatewayProcess, Api],
) -> None:
    _, api = through
    topic, _ = mixed(api)
    [found] = segments(api, topic)
    first, _, object_id = found["url"].rpartition("/")[2].partition("-")

    for name in (f"{first}-{object_id[:-2]}", f"{first}-{'00' * 12}"):
        answer = api.http.get(f"/v1/topics/{topic}/partitions/0/segments/{name}")
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_REQUEST")
        assert "locate them again" in answer.json()["detail"]
    beyond = api.http.get(f"/v1/topics/{topic}/partitions/0/segments/99-{object_id}")
    assert beyond.json()["code"] == "OFFSET_OUT_OF_RANGE"


def test_spark_reads_through_the_gateway(through: tuple[GatewayProcess, Api]) -> None:
    gateway, api = through
    topic = api.topic()
    records = [{"value": NOISE.randbytes(30_000).hex()} for _ in range(30)]
    api.produce(topic, records, partition=0)
    reader = RiachoReader({"url": gateway.url, "subscribe": topic}, ALL)
    [task] = reader.partitions()
    assert isinstance(task, SpanPartition)
    assert all(each.url.startswith("/v1/") for each in task.span.ranges or ())

    expected = [record["value"].encode() for record in records]
    assert table(reader).column("value").to_pylist() == expected


def test_with_security_no_address_of_a_file_is_given(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    token = secured.super_key(tmp_path / "data")
    with (
        embedded(tmp_path).start(env=secured.CLOSED) as gateway,
        Api(gateway.url) as nobody,
        secured.client(gateway.url, token) as root,
    ):
        for topic in ("mine", "theirs"):
            assert root.post("/v1/topics", json={"name": topic}).status_code == 201
        records = [{"topic": name, "value": "x" * 50_000} for name in ("mine", "theirs")]
        assert root.post("/v1/atomic", json={"records": records}).status_code == 200
        key = secured.new_key(root, "User:ana")
        secured.allow(root, "User:ana", "READ", "mine")
        with secured.client(gateway.url, key) as ana:
            path = "/v1/topics/{}/partitions/0/segments"
            for reader in (ana, root):
                answer = reader.get(path.format("mine"))
                assert answer.status_code == 200
                assert "file:" not in answer.text
            [mine] = ana.get(path.format("mine")).json()["segments"]
            [theirs] = root.get(path.format("theirs")).json()["segments"]
            assert mine["url"].startswith("/v1/topics/mine/")
            assert mine["url"].partition("-")[2] == theirs["url"].partition("-")[2], "not in one"

            assert ana.get(mine["url"]).status_code == 200
            assert values(mine, ana.get(mine["url"]).content) == ["x" * 50_000]
            assert ana.get(theirs["url"]).status_code == 403
            assert nobody.http.get(mine["url"]).status_code == 401
            inside = ana.get(mine["url"], headers={"range": "bytes=0-999999999"})
            assert inside.content == ana.get(mine["url"]).content
        prefixed = secured.new_key(root, "User:root", name_prefix="mi", super=True)
        with secured.client(gateway.url, prefixed) as tenant:
            [seen] = tenant.get(path.format("ne")).json()["segments"]
            assert seen["url"].startswith("/v1/topics/ne/")
            assert tenant.get(seen["url"]).content == root.get(mine["url"]).content


def test_spark_reads_with_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    token = secured.super_key(tmp_path / "data")
    with (
        embedded(tmp_path).start(env=secured.CLOSED) as gateway,
        secured.client(gateway.url, token) as root,
    ):
        root.post("/v1/topics", json={"name": "t"})
        records = [{"value": NOISE.randbytes(30_000).hex()} for _ in range(30)]
        assert root.post("/v1/topics/t/records", json={"records": records}).status_code == 200
        monkeypatch.setenv("RIACHO_TOKEN", token)
        reader = RiachoReader({"url": gateway.url, "subscribe": "t"}, ALL)

        expected = [record["value"].encode() for record in records]
        assert table(reader).column("value").to_pylist() == expected
