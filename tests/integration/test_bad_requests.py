"""What a gateway says to requests that are wrong, and that it does nothing else about them."""

import base64
import gzip
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import zstandard

from tests.gateway import GatewayProcess
from tests.integration.processes import (
    ARROW,
    JSON,
    NDJSON,
    SSE,
    Api,
    arrow_stream,
    embedded,
)

MIB = 1024 * 1024

TOPIC = "known"
COMPACTED = "compacted"
PRODUCE = f"/v1/topics/{TOPIC}/records"
FETCH = f"/v1/topics/{TOPIC}/partitions/0/records"
OFFSETS = f"/v1/topics/{TOPIC}/partitions/0/offsets"
SEGMENTS = f"/v1/topics/{TOPIC}/partitions/0/segments"
RECORDS_EACH = 2


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with embedded(tmp_path_factory.mktemp("embedded")).start() as gateway:
        yield gateway


@pytest.fixture(scope="module")
def api(gateway: GatewayProcess) -> Iterator[Api]:
    with Api(gateway.url) as api:
        api.topic(3, TOPIC)
        api.topic(1, COMPACTED, config={"cleanup.policy": "compact"})
        for partition in range(3):
            api.produce(TOPIC, [{"key": "k", "value": "v"}] * RECORDS_EACH, partition=partition)
        yield api


@pytest.fixture(autouse=True)
def nothing_changes(api: Api) -> Iterator[None]:
    """Whatever a test sends, the topics and their records stay as they are."""
    before = state(api)
    yield
    assert state(api) == before
    assert api.http.get("/ready").status_code == 200


def state(api: Api) -> dict[str, Any]:
    topics = api.http.get("/v1/topics").json()["topics"]
    return {
        topic["name"]: (topic, api.http.get(f"/v1/topics/{topic['name']}/partitions").json())
        for topic in topics
    }


@dataclass
class Bad:
    """A request, and how it must be refused."""

    path: str
    content: bytes | str | None = None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 400
    code: str = "INVALID_REQUEST"
    says: str = ""

    def __str__(self) -> str:
        shown = self.content if self.content is not None else self.headers or ""
        return f"{self.method} {self.path[:60]} {str(shown)[:60]}"


def refused(api: Api, bad: Bad) -> httpx.Response:
    """Send it, and check that the answer has all that a problem document must have."""
    headers = {"content-type": JSON} if bad.content is not None else {}
    response = api.http.request(
        bad.method, bad.path, content=bad.content, headers={**headers, **bad.headers}
    )
    assert response.status_code == bad.status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["code"] == bad.code, problem
    assert problem["type"] == "/problems/" + bad.code.lower().replace("_", "-")
    assert problem["status"] == bad.status
    assert problem["title"]
    assert problem["retryable"] is False
    assert problem["may_have_applied"] is False
    assert problem["request_id"] == response.headers["x-request-id"]
    assert bad.says in problem["detail"], problem["detail"]
    assert 10 <= len(problem["detail"]) <= 1000
    return response


def records(*items: str) -> str:
    return '{"records": [' + ", ".join(items) + "]}"


GOOD = '{"value": "good"}'
DEEP = "[" * 100_000 + "]" * 100_000

BAD_BODIES = [
    ("", "empty"),
    ("  ", "empty"),
    ("{", "not valid JSON"),
    ('{"records": [{"value": "a"}]', "not valid JSON"),
    (records(GOOD) + "x", "not valid JSON"),
    (records(GOOD) * 2, "not valid JSON"),
    ("\ufeff" + records(GOOD), "not valid JSON"),
    ('{"records": [{"value": NaN}]}', "not valid JSON"),
    ('{"records": [{"value": 01}]}', "not valid JSON"),
    ("{'records': []}", "not valid JSON"),
    ("[]", "expected"),
    ("null", "expected"),
    ('"records"', "expected"),
    ("{}", "records"),
    ('{"records": []}', "no records"),
    ('{"records": {}}', "records"),
    ('{"records": null}', "records"),
    ('{"record": []}', "record"),
    ('{"records": [], "more": 1}', "more"),
    (records("1"), "records[0]"),
    (records(GOOD, "null"), "records[1]"),
    (records(GOOD, '{"vlaue": "x"}'), "records[1]"),
    (records(GOOD, '{"vlaue": "x"}'), "vlaue"),
    (records(GOOD, GOOD, '{"value_base64": "@@"}'), "records[2]"),
    (records('{"key_base64": "abc"}'), "base64"),
    (records('{"key_base64": 5}'), "key_base64"),
    (records('{"value": "a", "value_base64": "YQ=="}'), "value_base64"),
    (records(GOOD, '{"key": 1, "key_base64": "YQ=="}'), "records[1]"),
    (records('{"headers": 1}'), "headers"),
    (records('{"headers": "h"}'), "headers"),
    (records(GOOD, '{"headers": [{"value": "v"}]}'), "records[1].headers[0]"),
    (records('{"headers": [{"key": 1}]}'), "headers[0].key"),
    (records('{"headers": [{"key": "k", "val": 1}]}'), "val"),
    (records('{"headers": [["k", "v"]]}'), "headers[0]"),
    (records('{"headers": [{"key": "k", "value": "v", "value_base64": "YQ=="}]}'), "headers[0]"),
    (records('{"headers": [{"key": "k", "value_base64": "?"}]}'), "base64"),
    (records('{"timestamp": -1}'), "timestamp"),
    (records('{"timestamp": 1.5}'), "timestamp"),
    (records('{"timestamp": "5"}'), "timestamp"),
    (records('{"timestamp": true}'), "timestamp"),
    (records('{"timestamp": 9223372036854775808}'), "timestamp"),
    (records('{"timestamp": 1e300}'), "timestamp"),
    (records('{"partition": -1}'), "partition"),
    (records('{"partition": "0"}'), "partition"),
    (records('{"partition": 2147483648}'), "partition"),
    (records(f'{{"value": {DEEP}}}'), "deep"),
    (DEEP, ""),
    (b'{"records": [{"value": "\xff"}]}', "UTF-8"),
    (b'{"records": [{"value": ["\xff"]}]}', "UTF-8"),
    (b'{"records": [{"value": "\xed\xa0\x80"}]}', "UTF-8"),
    (records('{"value": "\\ud800"}'), ""),
    (records('{"key": "\\udc00\\ud800"}'), ""),
    (records('{"value": "\\x"}'), ""),
    (records('{"value": "a\nb"}'), ""),
    ("\x00" * 100, "not valid JSON"),
]


@pytest.mark.parametrize(("body", "says"), BAD_BODIES, ids=lambda text: repr(text)[:50])
def test_a_json_body_that_is_wrong(api: Api, body: str | bytes, says: str) -> None:
    refused(api, Bad(PRODUCE, body, says=says))
    refused(api, Bad(FETCH, body, says=says))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", "no records"),
        ("\n\n", "no records"),
        ('{"value": "a"}\n{"value": \n', "line 2"),
        ('{"value": "a"}\n{"vlaue": "b"}', "line 2"),
        ('{"value": "a"} {"value": "b"}', "line 1"),
        ('{"value": "a"},\n{"value": "b"}', "line 1"),
        ('[{"value": "a"}]', "line 1"),
        ('{"value": "a"}\n\n{"timestamp": -5}', "line 3"),
        (b'{"value": "a"}\n{"value": "\xff"}', "line 2"),
        ('{"value":\n"a"}', "line 1"),
    ],
    ids=lambda text: repr(text)[:50],
)
def test_an_ndjson_body_that_is_wrong(api: Api, body: str | bytes, says: str) -> None:
    refused(api, Bad(PRODUCE, body, headers={"content-type": NDJSON}, says=says))


GOOD_ARROW = arrow_stream({"value": ["a", "b"]})

BAD_ARROW = {
    "empty": (b"", ""),
    "text": (b"value\na\n", ""),
    "cut short": (GOOD_ARROW[:-20], ""),
    "cut in the schema": (GOOD_ARROW[:50], ""),
    "followed by something": (GOOD_ARROW + b"more", ""),
    "without rows": (arrow_stream({"value": pa.array([], pa.string())}), "no records"),
    "without columns": (arrow_stream({}), "key nor a value"),
    "with an unknown column": (arrow_stream({"value": ["a"], "colour": ["b"]}), "colour"),
    "with numbers for values": (arrow_stream({"value": [1.5]}), "value"),
    "with text for timestamps": (arrow_stream({"value": ["a"], "timestamp": ["b"]}), "timestamp"),
    "with a negative timestamp": (arrow_stream({"value": ["a"], "timestamp": [-1]}), "records[0]"),
    "with a huge timestamp": (
        arrow_stream({"value": ["a"], "timestamp": pa.array([2**64 - 1], pa.uint64())}),
        "",
    ),
    "with a negative partition": (arrow_stream({"value": ["a"], "partition": [-1]}), "partition"),
    "with lists for headers": (arrow_stream({"value": ["a"], "headers": [["b"]]}), "headers"),
}


@pytest.mark.parametrize("name", BAD_ARROW)
def test_an_arrow_body_that_is_wrong(api: Api, name: str) -> None:
    body, says = BAD_ARROW[name]
    bad = Bad(PRODUCE, body, headers={"content-type": ARROW}, says=says)
    if name == "with a negative partition":
        bad.status, bad.code = 404, "UNKNOWN_TOPIC_OR_PARTITION"
    refused(api, bad)


def test_every_flipped_byte_of_an_arrow_body_is_survived(api: Api) -> None:
    body = arrow_stream({"value": ["a", "bb"], "key": [b"k", None], "timestamp": [1, 2]})
    topic = api.topic()
    for position in range(0, len(body), 7):
        for bit in (0, 7):
            broken = bytearray(body)
            broken[position] ^= 1 << bit
            response = api.send(topic, bytes(broken), ARROW)
            assert response.status_code in {200, 400, 413}, (position, bit, response.text)
    for partition in (0,):
        assert len(api.read_all(topic, partition)) == api.high_watermark(topic, partition)
        assert len(api.read_all_arrow(topic, partition)) == api.high_watermark(topic, partition)
    api.http.delete(f"/v1/topics/{topic}")


@pytest.mark.parametrize(
    "media_type",
    [
        "text/plain",
        "application/xml",
        "application/json; charset=latin-1",
        "nonsense",
        "*",
        "a/b/c",
    ],
)
def test_a_content_type_that_is_not_read_here(api: Api, media_type: str) -> None:
    refused(
        api,
        Bad(
            PRODUCE,
            records(GOOD),
            headers={"content-type": media_type},
            status=415,
            code="UNSUPPORTED_MEDIA_TYPE",
            says="application/json",
        ),
    )


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "nonsense", "gzip;q=1"])
def test_a_content_encoding_that_is_not_read_here(api: Api, encoding: str) -> None:
    for path in (PRODUCE, "/v1/fetch"):
        refused(
            api,
            Bad(
                path,
                gzip.compress(records(GOOD).encode()),
                headers={"content-encoding": encoding},
                status=415,
                code="UNSUPPORTED_MEDIA_TYPE",
                says="gzip",
            ),
        )


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_compressed_body_that_does_not_inflate(api: Api, encoding: str) -> None:
    plain = records(*[GOOD] * 1000).encode()
    body = gzip.compress(plain) if encoding == "gzip" else zstandard.compress(plain)
    damaged = bytearray(body)
    damaged[len(body) // 2] ^= 0xFF
    for broken in (plain, body[:-1], body[: len(body) // 2], body[:3], bytes(damaged), body + b"x"):
        refused(api, Bad(PRODUCE, broken, headers={"content-encoding": encoding}))


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_bomb_is_refused_before_it_goes_off(
    api: Api, gateway: GatewayProcess, encoding: str
) -> None:
    if encoding == "gzip":
        body = gzip.compress(bytes(64 * MIB)) * 64
    else:
        compressor = zstandard.ZstdCompressor().compressobj()
        zeros = bytes(64 * MIB)
        body = b"".join(compressor.compress(zeros) for _ in range(64)) + compressor.flush()
    before = memory_bytes(gateway)
    for path in (PRODUCE, "/v1/fetch"):
        refused(
            api,
            Bad(
                path,
                body,
                headers={"content-encoding": encoding},
                status=413,
                code="REQUEST_TOO_LARGE",
                says="bytes",
            ),
        )
    assert memory_bytes(gateway) - before < 200 * MIB


def memory_bytes(gateway: GatewayProcess) -> int:
    """Return the most memory that the process ever had."""
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def test_an_arrow_body_that_claims_to_be_larger_than_it_is(
    api: Api, gateway: GatewayProcess
) -> None:
    table = pa.table({"value": ["a" * 1000] * 100})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as writer:
        writer.write_table(table)
    honest = sink.getvalue().to_pybytes()
    size = struct.pack("<q", 100_000)
    assert size in honest
    liar = honest.replace(size, struct.pack("<q", 2**40))
    before = memory_bytes(gateway)
    refused(
        api,
        Bad(
            PRODUCE,
            liar,
            headers={"content-type": ARROW},
            status=413,
            code="REQUEST_TOO_LARGE",
        ),
    )
    assert memory_bytes(gateway) - before < 100 * MIB


def test_a_record_that_is_too_large(api: Api) -> None:
    large = "x" * 1_048_589
    for body, media_type in [
        (records(GOOD, f'{{"value": "{large}"}}'), JSON),
        (records(GOOD, f'{{"key": "{large}"}}'), JSON),
        (records(GOOD, f'{{"value": "v", "headers": {{"h": "{large}"}}}}'), JSON),
        (f'{GOOD}\n{{"value": "{large}"}}', NDJSON),
        (arrow_stream({"value": ["a", large]}), ARROW),
    ]:
        refused(
            api,
            Bad(
                PRODUCE,
                body,
                headers={"content-type": media_type},
                status=413,
                code="MESSAGE_TOO_LARGE",
                says="records[1]",
            ),
        )


def test_a_topic_may_have_a_smaller_limit(api: Api) -> None:
    topic = api.topic(config={"max.message.bytes": 100})
    body = json.dumps({"records": [{"value": "x" * 101}]})
    response = api.send(topic, body)
    assert response.status_code == 413
    assert response.json()["code"] == "MESSAGE_TOO_LARGE"
    assert api.high_watermark(topic) == 0
    api.produce(topic, [{"value": "x" * 100}])
    api.http.delete(f"/v1/topics/{topic}")


def test_a_request_that_is_too_large(api: Api) -> None:
    body = records(*[json.dumps({"value": "x" * 500_000})] * 40)
    refused(api, Bad(PRODUCE, body, status=413, code="REQUEST_TOO_LARGE", says="16777216"))


def test_a_request_of_unknown_length_that_is_too_large(api: Api) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(20):
            yield b" " * MIB

    response = httpx.post(api.url + PRODUCE, content=endless(), headers={"content-type": JSON})
    assert response.status_code == 413
    assert response.json()["code"] == "REQUEST_TOO_LARGE"


def test_too_many_records(api: Api) -> None:
    for body, media_type in [
        (records(*["{}"] * 100_001), JSON),
        ("{}\n" * 100_001, NDJSON),
        (arrow_stream({"value": pa.nulls(100_001, pa.binary())}), ARROW),
    ]:
        refused(
            api,
            Bad(
                PRODUCE,
                body,
                headers={"content-type": media_type},
                status=413,
                code="REQUEST_TOO_LARGE",
                says="100001",
            ),
        )


@pytest.mark.parametrize(
    "headers",
    [
        {f"h{n}": "v" for n in range(101)},
        [{"key": "h", "value": "v"}] * 101,
        {"n" * 257: "v"},
    ],
    ids=["101 names", "101 times one name", "a long name"],
)
def test_too_many_headers(api: Api, headers: object) -> None:
    body = json.dumps({"records": [{"value": "v"}, {"value": "v", "headers": headers}]})
    refused(api, Bad(PRODUCE, body, code="INVALID_RECORD", says="records[1]"))


def test_a_compacted_topic_wants_keys(api: Api) -> None:
    refused(
        api,
        Bad(
            f"/v1/topics/{COMPACTED}/records",
            records('{"key": "k"}', '{"value": "v"}'),
            code="INVALID_RECORD",
            says="records[1]",
        ),
    )


UNKNOWN = "UNKNOWN_TOPIC_OR_PARTITION"
INVALID_TOPIC = "INVALID_TOPIC_EXCEPTION"
BODY = records(GOOD)


@pytest.mark.parametrize(
    "bad",
    [
        Bad("/v1/topics/unknown/records", BODY, status=404, code=UNKNOWN, says="'unknown'"),
        Bad("/v1/topics/unknown/partitions/0/records", BODY, status=404, code=UNKNOWN),
        Bad("/v1/topics/unknown/partitions/0/records", None, "GET", status=404, code=UNKNOWN),
        Bad("/v1/topics/unknown/partitions", None, "GET", status=404, code=UNKNOWN),
        Bad("/v1/topics/unknown/partitions/0/segments", None, "GET", status=404, code=UNKNOWN),
        Bad(
            "/v1/topics/unknown/partitions/0/offsets?at=latest",
            None,
            "GET",
            status=404,
            code=UNKNOWN,
        ),
        Bad("/v1/topics/unknown", None, "GET", status=404, code=UNKNOWN),
        Bad("/v1/topics/unknown", None, "DELETE", status=404, code=UNKNOWN),
        Bad("/v1/topics/unknown", "{}", "PATCH", status=404, code=UNKNOWN),
        Bad(f"/v1/topics/{TOPIC}/partitions/3/records", BODY, status=404, code=UNKNOWN, says="3"),
        Bad(f"/v1/topics/{TOPIC}/partitions/3/records", None, "GET", status=404, code=UNKNOWN),
        Bad(f"/v1/topics/{TOPIC}/partitions/3/segments", None, "GET", status=404, code=UNKNOWN),
        Bad(
            f"/v1/topics/{TOPIC}/partitions/3/offsets?at=latest",
            None,
            "GET",
            status=404,
            code=UNKNOWN,
        ),
        Bad(PRODUCE, records(GOOD, '{"partition": 3}'), status=404, code=UNKNOWN, says="3"),
        Bad(FETCH, records(GOOD, '{"partition": 1}'), says="records[1].partition"),
        *(
            Bad(f"/v1/topics/{TOPIC}/partitions/{text}/{what}", None, "GET")
            for text in ("x", "-1", "1.0", "+1", "0x1", "99999999999999999999", "%D9%A1", "%20")
            for what in ("records", "segments", "offsets?at=latest")
        ),
        Bad(f"/v1/topics/{TOPIC}/partitions/x/records", BODY),
    ],
    ids=str,
)
def test_a_topic_or_partition_that_is_not_there(api: Api, bad: Bad) -> None:
    refused(api, bad)


BAD_NAMES = [
    "",
    ".",
    "..",
    "a/b",
    "../etc",
    "a b",
    "a\n",
    "a\x00",
    "é",
    "\uff41",
    "a\u200b",
    "x" * 250,
    "a:b",
    "a%2Fb",
    "*",
    "😀",
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_a_name_that_no_topic_may_have(api: Api, name: str) -> None:
    refused(api, Bad("/v1/topics", json.dumps({"name": name}), code=INVALID_TOPIC))


@pytest.mark.parametrize(
    "name", ["é", "a%20b", "x" * 250, "a%00", "%25", "a%0A", "a%2Fb", "..%2F..%2Fetc", "%2F"]
)
def test_a_path_with_a_name_that_no_topic_may_have(api: Api, name: str) -> None:
    refused_in_path(api, name, INVALID_TOPIC)


@pytest.mark.parametrize("name", ["%FF", "%F0%9F"])
def test_a_path_with_a_name_that_is_not_utf_8(api: Api, name: str) -> None:
    refused_in_path(api, name, "INVALID_REQUEST")


def refused_in_path(api: Api, name: str, code: str) -> None:
    for path, content, method in [
        (f"/v1/topics/{name}", None, "GET"),
        (f"/v1/topics/{name}", None, "DELETE"),
        (f"/v1/topics/{name}/records", BODY, "POST"),
        (f"/v1/topics/{name}/partitions/0/records", None, "GET"),
    ]:
        refused(api, Bad(path, content, method, code=code))


@pytest.mark.parametrize("name", ["%2E%2E", "%2E"])
def test_a_path_that_would_climb_finds_nothing(api: Api, name: str) -> None:
    for path in (f"/v1/topics/{name}", f"/v1/topics/{name}/partitions/0/records"):
        response = api.http.get(path)
        assert response.status_code in {400, 404}
        assert response.headers["content-type"] == "application/problem+json"


def test_a_name_of_249_characters_is_the_longest(api: Api) -> None:
    api.topic(1, "x" * 249)
    api.produce("x" * 249, [{"value": "v"}])
    assert api.http.delete(f"/v1/topics/{'x' * 249}").status_code == 204


def topic(**fields: object) -> str:
    return json.dumps({"name": "new", **fields})


def config(**settings: object) -> str:
    return topic(config={name.replace("_", "."): value for name, value in settings.items()})


BAD_TOPICS = [
    Bad("/v1/topics", "", says="body"),
    Bad("/v1/topics", "{"),
    Bad("/v1/topics", "[]"),
    Bad("/v1/topics", "null"),
    Bad("/v1/topics", DEEP),
    Bad("/v1/topics", b'{"name": "\xff"}'),
    Bad("/v1/topics", "{}", says="name"),
    Bad("/v1/topics", '{"name": 5}', says="name"),
    Bad("/v1/topics", '{"name": null}', says="name"),
    Bad("/v1/topics", '{"name": "\\ud800"}', code=INVALID_TOPIC),
    Bad("/v1/topics", '{"name": "new", "\\ud800": 1}'),
    Bad("/v1/topics", '{"name": "new", "config": {"\\ud800": 1}}', code="INVALID_CONFIG"),
    Bad("/v1/topics", '{"name": "new", "config": {"retention.ms": "\\ud800"}}',
        code="INVALID_CONFIG"),
    Bad("/v1/topics", topic(partition=3), says="partition"),
    Bad("/v1/topics", topic(partitions="3"), says="partitions"),
    Bad("/v1/topics", topic(partitions=1.5), says="partitions"),
    Bad("/v1/topics", topic(partitions=True), says="partitions"),
    Bad("/v1/topics", topic(partitions=None), says="partitions"),
    Bad("/v1/topics", topic(partitions=0), code="INVALID_PARTITIONS"),
    Bad("/v1/topics", topic(partitions=-1), code="INVALID_PARTITIONS"),
    Bad("/v1/topics", topic(partitions=10**9), code="INVALID_PARTITIONS"),
    Bad("/v1/topics", topic(partitions=10**30), code="INVALID_PARTITIONS"),
    Bad("/v1/topics", topic(replication_factor=0), code="INVALID_REPLICATION_FACTOR"),
    Bad("/v1/topics", topic(replication_factor=2), code="INVALID_REPLICATION_FACTOR", says="zone"),
    Bad("/v1/topics", topic(config=[]), says="config"),
    Bad("/v1/topics", topic(config={"retention.ms": [1]}), says="retention.ms"),
    Bad("/v1/topics", topic(config={"retention.ms": True}), says="retention.ms"),
    Bad("/v1/topics", topic(config={"retention.ms": None}), says="retention.ms"),
    Bad("/v1/topics", topic(config={"retention.ms": float("nan")}), code="INVALID_CONFIG"),
    Bad("/v1/topics", config(retention_hours=1), code="INVALID_CONFIG", says="retention.hours"),
    Bad("/v1/topics", config(retentoin_ms=1), code="INVALID_CONFIG", says="retention.ms"),
    *(
        Bad("/v1/topics", config(**{name: value}), code="INVALID_CONFIG",
            says=name.replace("_", "."))
        for name, value in [
            ("retention_ms", -2),
            ("retention_ms", "a week"),
            ("retention_ms", 1.5),
            ("retention_ms", "1_000"),
            ("retention_ms", " 1"),
            ("retention_ms", "\u0661"),
            ("retention_ms", 2**63),
            ("cleanup_policy", "shred"),
            ("cleanup_policy", "delete,delete"),
            ("cleanup_policy", ""),
            ("compression_type", "lzma"),
            ("min_insync_replicas", 0),
            ("min_insync_replicas", 2),
            ("lane_partitions", 0),
            ("lane_partitions", 65),
            ("max_message_bytes", -1),
            ("message_timestamp_type", "Now"),
            ("min_cleanable_dirty_ratio", 2),
            ("min_cleanable_dirty_ratio", "nan"),
        ]
    ),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_TOPICS, ids=str)
def test_a_topic_that_cannot_be_made(api: Api, bad: Bad) -> None:
    refused(api, bad)


CHANGE = f"/v1/topics/{TOPIC}"


@pytest.mark.parametrize(
    "bad",
    [
        Bad(CHANGE, "", "PATCH"),
        Bad(CHANGE, "[]", "PATCH"),
        Bad(CHANGE, '{"name": "other"}', "PATCH", says="name"),
        Bad(
            CHANGE,
            '{"replication_factor": 2}',
            "PATCH",
            code="INVALID_REPLICATION_FACTOR",
            says="zone",
        ),
        Bad(CHANGE, '{"partitions": "5"}', "PATCH", says="partitions"),
        Bad(CHANGE, '{"partitions": 2}', "PATCH", code="INVALID_PARTITIONS", says="3"),
        Bad(CHANGE, '{"partitions": 0}', "PATCH", code="INVALID_PARTITIONS"),
        Bad(CHANGE, '{"partitions": 1000000}', "PATCH", code="INVALID_PARTITIONS"),
        Bad(
            CHANGE,
            '{"config": {"lane.partitions": 1}}',
            "PATCH",
            code="INVALID_CONFIG",
            says="lane.partitions",
        ),
        Bad(CHANGE, '{"config": {"no.such": 1}}', "PATCH", code="INVALID_CONFIG", says="no.such"),
        Bad(CHANGE, '{"config": {"no.such": null}}', "PATCH", code="INVALID_CONFIG"),
        Bad(CHANGE, '{"config": {"retention.ms": "x"}}', "PATCH", code="INVALID_CONFIG"),
        Bad(
            CHANGE,
            '{"partitions": 9, "config": {"min.insync.replicas": 3}}',
            "PATCH",
            code="INVALID_CONFIG",
        ),
    ],
    ids=str,
)
def test_a_change_that_cannot_be_made(api: Api, bad: Bad) -> None:
    refused(api, bad)


QUERIES = [
    *(
        Bad(f"{FETCH}?offset={text}", None, "GET", says="offset")
        for text in ("x", "", "1.5", "NaN", "1e3", "0x1", "%D9%A1", "9" * 20, "-" + "9" * 20, "--1")
    ),
    *(
        Bad(f"{FETCH}?offset={text}", None, "GET", status=416, code="OFFSET_OUT_OF_RANGE")
        for text in ("-1", "3", str(2**63 - 1), str(-(2**63)))
    ),
    *(
        Bad(f"{path}?at={text}", None, "GET", says="at")
        for path in (FETCH, OFFSETS)
        for text in ("yesterday", "-1", "1.5", "", "LATEST", "9" * 30, "2024-01-01")
    ),
    Bad(OFFSETS, None, "GET", says="at"),
    Bad(f"{FETCH}?offset=0&at=latest", None, "GET", says="not both"),
    Bad(f"{FETCH}?offset=0&offset=1", None, "GET", says="twice"),
    Bad(f"{FETCH}?max_records=0", None, "GET", says="max_records"),
    Bad(f"{FETCH}?max_records=-1", None, "GET", says="max_records"),
    Bad(f"{FETCH}?max_records=many", None, "GET", says="max_records"),
    Bad(f"{FETCH}?max_bytes=0", None, "GET", says="max_bytes"),
    Bad(f"{FETCH}?min_bytes=-1", None, "GET", says="min_bytes"),
    Bad(f"{FETCH}?max_wait_ms=-1", None, "GET", says="max_wait_ms"),
    Bad(f"{FETCH}?max_wait_ms=1s", None, "GET", says="max_wait_ms"),
    Bad(f"{FETCH}?value_format=xml", None, "GET", says="value_format"),
    Bad(f"{FETCH}?maxrecords=1", None, "GET", says="maxrecords"),
    Bad(f"{FETCH}?offset=%FF", None, "GET", says="query"),
    Bad(f"{FETCH}?" + "&".join(f"a{n}=1" for n in range(100)), None, "GET", says="query"),
    Bad(f"{SEGMENTS}?offset=x", None, "GET", says="offset"),
    Bad(f"{SEGMENTS}?offset=-1", None, "GET"),
    Bad(f"{SEGMENTS}?offset=2&end=1", None, "GET", says="end"),
    Bad(f"{SEGMENTS}?offset=3", None, "GET", status=416, code="OFFSET_OUT_OF_RANGE"),
    Bad(f"{SEGMENTS}?start=1", None, "GET", says="start"),
    Bad("/v1/topics?page=1", None, "GET", says="page"),
    Bad(f"/v1/topics/{TOPIC}?verbose=1", None, "GET", says="verbose"),
    Bad(f"/v1/topics/{TOPIC}/partitions?x=1", None, "GET", says="x"),
    Bad("/v1/cluster?x=1", None, "GET", says="x"),
    Bad("/v1/topics?dry_run=1", topic(), says="dry_run"),
    Bad(f"/v1/topics/{TOPIC}?dry_run=1", "{}", "PATCH", says="dry_run"),
    Bad(f"/v1/topics/{TOPIC}?dry_run=1", None, "DELETE", says="dry_run"),
    Bad(f"{PRODUCE}?acks=2", BODY, code="INVALID_REQUIRED_ACKS", says="acks"),
    Bad(f"{PRODUCE}?acks=ALL", BODY, code="INVALID_REQUIRED_ACKS", says="acks"),
    Bad(f"{PRODUCE}?acks=", BODY, code="INVALID_REQUIRED_ACKS", says="acks"),
    Bad(f"{PRODUCE}?acks=1&acks=all", BODY, says="twice"),
    Bad(f"{PRODUCE}?ack=1", BODY, says="ack"),
    Bad(FETCH, None, "GET", {"accept": SSE, "last-event-id": "x"}, says="Last-Event-ID"),
    Bad(FETCH, None, "GET", {"accept": SSE, "last-event-id": "-1"}, says="Last-Event-ID"),
    Bad(
        FETCH,
        None,
        "GET",
        {"accept": SSE, "last-event-id": "17"},
        status=416,
        code="OFFSET_OUT_OF_RANGE",
    ),
]


@pytest.mark.parametrize("bad", QUERIES, ids=str)
def test_parameters_that_are_wrong(api: Api, bad: Bad) -> None:
    refused(api, bad)


@pytest.mark.parametrize(
    "accept", ["application/xml", "text/html", "application/json;q=0", "image/*", "nonsense"]
)
def test_an_answer_that_cannot_be_given(api: Api, accept: str) -> None:
    refused(
        api,
        Bad(
            FETCH,
            None,
            "GET",
            {"accept": accept},
            status=406,
            code="NOT_ACCEPTABLE",
            says="application/json",
        ),
    )


@pytest.mark.parametrize(
    ("accept", "given"),
    [
        ("*/*", JSON),
        ("application/*", JSON),
        ("text/html, */*;q=0.1", JSON),
        (f"{ARROW}, {JSON};q=0.5", ARROW),
        (f"{JSON};q=0.2, {NDJSON};q=0.7", NDJSON),
        (f"{JSON}; charset=utf-8", JSON),
    ],
)
def test_the_best_of_the_acceptable_answers_is_given(api: Api, accept: str, given: str) -> None:
    assert api.get(TOPIC, accept=accept).headers["content-type"].startswith(given)


ONE = {"topic": TOPIC, "partition": 0}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", ""),
        ("{", ""),
        ("[]", ""),
        (b'{"partitions": "\xff"}', ""),
        (DEEP, ""),
        ("{}", "partitions"),
        ('{"partitions": []}', "partitions"),
        (json.dumps({"partitions": [ONE] * 1001}), "1000"),
        (json.dumps({"partitions": [ONE], "max_byte": 1}), "max_byte"),
        (json.dumps({"partitions": [{"topic": TOPIC}]}), "partition"),
        (json.dumps({"partitions": [{**ONE, "offset": "1"}]}), "offset"),
        (json.dumps({"partitions": [{**ONE, "offset": 1.5}]}), "offset"),
        (json.dumps({"partitions": [{**ONE, "partition": -1}]}), "partition"),
        (json.dumps({"partitions": [{**ONE, "max_bytes": 0}]}), "max_bytes"),
        (json.dumps({"partitions": [ONE], "max_records": 0}), "max_records"),
        (json.dumps({"partitions": [ONE], "max_wait_ms": -1}), "max_wait_ms"),
        (json.dumps({"partitions": [ONE], "value_format": "xml"}), "value_format"),
        (json.dumps({"partitions": [ONE], "offset": 1}), "offset"),
        (json.dumps({"partitions": [ONE], "max_bytes": 2**70}), "max_bytes"),
    ],
    ids=lambda text: repr(text)[:60],
)
def test_a_fetch_of_many_that_is_wrong(api: Api, body: str | bytes, says: str) -> None:
    refused(api, Bad("/v1/fetch", body, says=says))


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({**ONE, "offset": 0, "at": "latest"}, "INVALID_REQUEST"),
        ({**ONE, "at": "noon"}, "INVALID_REQUEST"),
        ({**ONE, "at": -5}, "INVALID_REQUEST"),
        ({**ONE, "offset": -1}, "OFFSET_OUT_OF_RANGE"),
        ({**ONE, "offset": 2**63 - 1}, "OFFSET_OUT_OF_RANGE"),
        ({**ONE, "topic": ".."}, INVALID_TOPIC),
        ({**ONE, "topic": "\ud800"}, INVALID_TOPIC),
    ],
    ids=str,
)
def test_one_bad_partition_does_not_spoil_the_others(
    api: Api, wanted: dict[str, object], code: str
) -> None:
    body = json.dumps({"partitions": [ONE, wanted]})
    response = api.http.post("/v1/fetch", content=body)
    if response.status_code == 400:  # JSON has no lone surrogates.
        assert "\\ud800" in body
        return
    good, bad = response.json()["partitions"]
    assert len(good["records"]) == RECORDS_EACH
    assert bad["error"]["code"] == code
    assert bad["error"]["detail"]


def test_a_request_id_is_echoed_or_made_up(api: Api) -> None:
    for given in ("abc", "7f4d-1_2.3:4/5+6=@", "x" * 128):
        response = api.http.get("/v1/topics", headers={"x-request-id": given})
        assert response.headers["x-request-id"] == given
        problem = api.http.get("/v1/topics/unknown", headers={"x-request-id": given})
        assert problem.json()["request_id"] == given == problem.headers["x-request-id"]
    made_up = set()
    for strange in (None, "", "x" * 129, "a b", '"quoted"', "<script>"):
        headers = {} if strange is None else {"x-request-id": strange}
        made_up.add(api.http.get("/v1/topics/unknown", headers=headers).headers["x-request-id"])
    assert len(made_up) == 6
    assert not made_up & {"", "a b", "<script>", '"quoted"', "x" * 129}


def test_keys_and_values_of_any_bytes_survive_their_way_through_json(api: Api) -> None:
    strange = ["\x00", "\u2028\u2029", "\x7f\x1f", "\\", '"', "\uffff", "😀" * 10, "</script>", ""]
    topic = api.topic()
    api.produce(topic, [{"key": text, "value": text, "headers": {text: text}} for text in strange])
    back = api.read_all(topic)
    assert [record["key"] for record in back] == strange
    assert [record["value"] for record in back] == strange
    assert [record["headers"] for record in back] == [[{"key": t, "value": t}] for t in strange]
    raw = [base64.b64decode(r["value_base64"]) for r in api.read_all(topic, value_format="base64")]
    assert raw == [text.encode() for text in strange]
    api.http.delete(f"/v1/topics/{topic}")
