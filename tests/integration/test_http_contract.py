"""The HTTP API, route by route, as its users meet it: on a laptop and on a local AWS."""

import base64
import gzip
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit
from urllib.request import url2pathname

import httpx
import pyarrow as pa
import pytest
import zstandard

from storage.formats import slices
from storage.formats.records import record_batch
from tests.integration.processes import (
    ARROW,
    JSON,
    NDJSON,
    SSE,
    TIMEOUT_S,
    Api,
    Json,
    arrow_records,
    arrow_stream,
    events,
    records_path,
)

KAFKA_HASHES = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}
"""From the tests of Kafka's own clients."""


def noise(size_bytes: int, seed: int = 0) -> str:
    """Return text that does not compress much."""
    return base64.b64encode(random.Random(seed).randbytes(size_bytes * 3 // 4)).decode()


@pytest.fixture(scope="module")
def long_topic(api: Api) -> str:
    """A topic of 2,000 records in many slices: some large, some of one record."""
    topic = api.topic()
    api.produce(topic, [{"key": str(n), "value": f"{n}:{noise(700, n)}"} for n in range(1500)])
    for n in range(1500, 1520):
        api.produce(topic, [{"key": str(n), "value": f"{n}:"}])
    api.produce(topic, [{"key": str(n), "value": f"{n}:{'x' * 500}"} for n in range(1520, 2000)])
    return topic


# Topics


def test_a_topic_is_created_listed_described_and_deleted(api: Api) -> None:
    created = api.http.post(
        "/v1/topics",
        json={"name": "Life.of_a-topic", "partitions": 3, "config": {"retention.ms": 1000}},
    )
    assert created.status_code == 201
    topic = created.json()
    assert (topic["name"], topic["partitions"], topic["replication_factor"]) == (
        "Life.of_a-topic",
        3,
        1,
    )
    assert topic["config"]["retention.ms"] == "1000"
    assert topic["config"]["cleanup.policy"] == "delete"

    assert api.http.get("/v1/topics/Life.of_a-topic").json() == topic
    names = [each["name"] for each in api.http.get("/v1/topics").json()["topics"]]
    assert "Life.of_a-topic" in names
    assert names == sorted(names)

    assert api.http.delete("/v1/topics/Life.of_a-topic").status_code == 204
    gone = api.http.get("/v1/topics/Life.of_a-topic")
    assert gone.status_code == 404
    assert gone.json()["code"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert api.http.delete("/v1/topics/Life.of_a-topic").status_code == 404


def test_a_topic_by_default_has_one_partition_and_kafkas_configuration(api: Api) -> None:
    topic = api.http.post("/v1/topics", json={"name": "default"}).json()

    assert (topic["partitions"], topic["replication_factor"]) == (1, 1)
    assert topic["config"]["retention.ms"] == str(7 * 24 * 3600 * 1000)
    assert topic["config"]["segment.bytes"] == str(1024**3)
    assert topic["config"]["max.message.bytes"] == "1048588"
    assert topic["config"]["lane.partitions"] == "64"


def test_the_second_of_two_creations_is_refused(api: Api) -> None:
    topic = api.topic()
    again = api.http.post("/v1/topics", json={"name": topic})

    assert again.status_code == 409
    assert again.json()["code"] == "TOPIC_ALREADY_EXISTS"


def test_of_many_creations_at_once_one_wins(api: Api) -> None:
    with ThreadPoolExecutor(8) as pool:
        replies = list(
            pool.map(
                lambda _: httpx.post(
                    api.url + "/v1/topics", json={"name": "raced", "partitions": 3}, timeout=60
                ),
                range(8),
            )
        )
    assert sorted(reply.status_code for reply in replies) == [201, *[409] * 7]
    api.produce("raced", [{"value": "it works"}], partition=2)


def test_a_topic_recreated_under_an_old_name_is_empty(api: Api) -> None:
    topic = api.topic()
    api.produce(topic, [{"value": "old"}])
    api.http.delete(f"/v1/topics/{topic}")
    api.topic(name=topic, partitions=2)

    assert api.fetch(topic)["records"] == []
    assert api.produce(topic, [{"value": "new"}], partition=1) == [
        {"partition": 1, "base_offset": 0, "count": 1}
    ]
    assert [record["value"] for record in api.read_all(topic, 1)] == ["new"]


def test_partitions_and_configuration_can_be_changed(api: Api) -> None:
    topic = api.topic(partitions=2, config={"lane.partitions": 2, "retention.ms": "5000"})
    api.produce(topic, [{"value": "before"}], partition=1)

    altered = api.http.patch(
        f"/v1/topics/{topic}",
        json={"partitions": 7, "config": {"cleanup.policy": "compact", "retention.ms": None}},
    )
    assert altered.status_code == 200
    assert altered.json()["partitions"] == 7
    assert altered.json()["config"]["cleanup.policy"] == "compact"
    assert altered.json()["config"]["retention.ms"] == "604800000"
    assert api.http.get(f"/v1/topics/{topic}").json() == altered.json()

    for partition in range(7):
        api.produce(topic, [{"key": "k", "value": "after"}], partition=partition)
    assert [record["value"] for record in api.read_all(topic, 1)] == ["before", "after"]
    assert [record["value"] for record in api.read_all(topic, 6)] == ["after"]


def test_a_change_of_nothing_changes_nothing(api: Api) -> None:
    topic = api.topic(partitions=2)
    before = api.http.get(f"/v1/topics/{topic}").json()

    assert api.http.patch(f"/v1/topics/{topic}", json={}).json() == before


def test_partitions_tell_where_they_begin_end_and_live(api: Api) -> None:
    topic = api.topic(partitions=2)
    api.produce(topic, [{"value": "a"}, {"value": "b"}], partition=1)

    empty, full = api.http.get(f"/v1/topics/{topic}/partitions").json()["partitions"]
    assert empty == {
        "partition": 0,
        "leader": "a",
        "leader_epoch": empty["leader_epoch"],
        "replicas": ["a"],
        "isr": ["a"],
        "log_start_offset": 0,
        "high_watermark": 0,
        "size_bytes": 0,
    }
    assert (full["partition"], full["log_start_offset"], full["high_watermark"]) == (1, 0, 2)
    assert full["size_bytes"] > 0


def test_a_hundred_partitions_in_several_lanes_are_kept_apart(api: Api) -> None:
    topic = api.topic(partitions=100, config={"lane.partitions": 16})
    results = api.produce(topic, [{"value": str(p), "partition": p} for p in range(100)])

    assert results == [{"partition": p, "base_offset": 0, "count": 1} for p in range(100)]
    partitions = api.http.get(f"/v1/topics/{topic}/partitions").json()["partitions"]
    assert [each["partition"] for each in partitions] == list(range(100))
    assert {each["high_watermark"] for each in partitions} == {1}
    for partition in (0, 15, 16, 99):
        [record] = api.read_all(topic, partition)
        assert record["value"] == str(partition)


# Producing


def test_records_come_back_as_they_were_sent(api: Api) -> None:
    topic = api.topic()
    results = api.produce(topic, [{"key": "k", "value": "v", "timestamp": 5}, {"value": "w"}])

    assert results == [{"partition": 0, "base_offset": 0, "count": 2}]
    page = api.fetch(topic)
    assert page["next_offset"] == page["high_watermark"] == 2
    assert page["log_start_offset"] == 0
    first, second = page["records"]
    assert first == {"offset": 0, "timestamp": 5, "key": "k", "value": "v", "headers": []}
    assert (second["offset"], second["key"], second["value"]) == (1, None, "w")


def test_a_record_without_a_timestamp_gets_the_time_of_arrival(api: Api) -> None:
    topic = api.topic()
    before_ms = time.time_ns() // 1_000_000
    api.produce(topic, [{"value": "v"}, {"value": "w", "timestamp": None}, {"timestamp": 0}])
    after_ms = time.time_ns() // 1_000_000

    first, second, third = (record["timestamp"] for record in api.read_all(topic))
    assert before_ms <= first == second <= after_ms
    assert third == 0


def test_a_topic_may_stamp_records_itself(api: Api) -> None:
    topic = api.topic(config={"message.timestamp.type": "LogAppendTime"})
    api.produce(topic, [{"value": "v", "timestamp": 5}])

    [record] = api.read_all(topic)
    assert record["timestamp"] > 1_600_000_000_000


def test_null_and_empty_and_missing_differ(api: Api) -> None:
    topic = api.topic()
    api.produce(
        topic,
        [
            {},
            {"key": None, "value": None, "headers": None},
            {"key": "", "value": ""},
            {"key_base64": "", "value_base64": ""},
            {"key_base64": None, "value_base64": None, "value": "v"},
        ],
    )
    records = api.read_all(topic)
    assert [(record["key"], record["value"]) for record in records] == [
        (None, None),
        (None, None),
        ("", ""),
        ("", ""),
        (None, "v"),
    ]
    stored = api.read_all_arrow(topic)
    assert [record["value"] for record in stored] == [None, None, b"", b"", b"v"]


def test_json_values_are_kept_as_their_exact_text(api: Api) -> None:
    topic = api.topic()
    texts = [
        '{ "b" : 1.0,\t"a":[ 1e3 , 12345678901234567890.123456789 ] ,"b":2}',
        "-0.0",
        "12345678901234567890123456789",
        "true",
        "[]",
        '"\\u00e9\\ud83d\\ude00\\n"',
    ]
    body = '{"records": [' + ",".join(f'{{"key": {t}, "value": {t}}}' for t in texts) + "]}"
    assert api.send(topic, body).status_code == 200

    expected = [*texts[:-1], "é😀\n"]
    records = api.read_all(topic)
    assert [record["value"] for record in records] == expected
    assert [record["key"] for record in records] == expected


def test_values_can_be_returned_as_the_json_they_are(api: Api) -> None:
    topic = api.topic()
    api.produce(topic, [{"value": {"a": [1, None]}}, {"value": "text"}, {"value": 1}, {}])
    api.produce(topic, [{"value": '{"not": json'}, {"key": "1", "value": '{\n"b": 2}'}])

    records = api.read_all(topic, value_format="json")
    assert [record["value"] for record in records] == [
        {"a": [1, None]},
        "text",
        1,
        None,
        '{"not": json',
        {"b": 2},
    ]
    assert records[-1]["key"] == "1"
    lines = api.get(topic, accept=NDJSON, value_format="json").text.splitlines()
    assert [json.loads(line)["value"] for line in lines][-1] == {"b": 2}


def test_bytes_travel_as_base64(api: Api) -> None:
    topic = api.topic()
    anything = bytes(range(256))
    encoded = base64.b64encode(anything).decode()
    api.produce(topic, [{"key_base64": encoded, "value_base64": encoded}, {"value": "é"}])

    binary, text = api.read_all(topic)
    assert "key" not in binary
    assert "value" not in binary
    assert base64.b64decode(binary["key_base64"]) == anything
    assert base64.b64decode(binary["value_base64"]) == anything
    assert text["value"] == "é"

    as_base64 = api.read_all(topic, value_format="base64")
    assert [base64.b64decode(record["value_base64"]) for record in as_base64] == [
        anything,
        "é".encode(),
    ]
    assert [record["value"] for record in api.read_all_arrow(topic)] == [anything, "é".encode()]


def test_headers_may_be_an_object_or_a_list_with_order_and_repeats(api: Api) -> None:
    topic = api.topic()
    listed = [
        {"key": "z", "value": "1"},
        {"key": "a", "value": "2"},
        {"key": "z", "value": "3"},
        {"key": "raw", "value_base64": "/w=="},
        {"key": "null", "value": None},
        {"key": "", "value": ""},
    ]
    api.produce(
        topic,
        [
            {"value": "object", "headers": {"z": "1", "a": {"b": 2}, "n": None}},
            {"value": "list", "headers": listed},
            {"value": "none", "headers": []},
        ],
    )
    by_object, by_list, none = (record["headers"] for record in api.read_all(topic))
    assert by_object == [
        {"key": "z", "value": "1"},
        {"key": "a", "value": '{"b": 2}'},
        {"key": "n", "value": None},
    ]
    assert by_list == listed
    assert none == []
    # What fetch returned can be produced again as it is.
    copy = api.topic()
    api.produce(copy, [{"headers": by_list}])
    assert api.read_all(copy)[0]["headers"] == listed


def test_records_may_name_their_partition(api: Api) -> None:
    topic = api.topic(partitions=4)
    results = api.produce(
        topic,
        [
            {"value": str(n), "key": "abc", "partition": partition}
            for n, partition in enumerate([3, 1, 3, None, 1])
        ],
    )
    by_key = KAFKA_HASHES["abc"] % 4
    expected = Counter([3, 1, 3, by_key, 1])
    assert {result["partition"]: result["count"] for result in results} == dict(expected)
    assert {result["base_offset"] for result in results} == {0}
    assert [record["value"] for record in api.read_all(topic, 3)][:2] == ["0", "2"]


def test_keys_go_where_kafkas_clients_send_them(api: Api) -> None:
    topic = api.topic(partitions=12)
    for key, kafka_hash in KAFKA_HASHES.items():
        [result] = api.produce(topic, [{"key": key, "value": "v"}])
        assert result["partition"] == (kafka_hash & 0x7FFFFFFF) % 12, key
        encoded = base64.b64encode(key.encode()).decode()
        [again] = api.produce(topic, [{"key_base64": encoded}])
        assert again["partition"] == result["partition"]
    # Many at once are hashed by other code than few.
    keys = [*KAFKA_HASHES] * 50
    api.produce(topic, [{"key": key, "value": "many"} for key in keys])
    for key, kafka_hash in KAFKA_HASHES.items():
        values = Counter(
            record["value"]
            for record in api.read_all(topic, (kafka_hash & 0x7FFFFFFF) % 12)
            if record["key"] == key
        )
        assert values["many"] == 50, key


@pytest.mark.parametrize("request_records", [1, 7, 500])
def test_records_without_a_key_are_spread_evenly(api: Api, request_records: int) -> None:
    topic = api.topic(partitions=6)
    requests = max(6, 600 // request_records // 10)
    for _ in range(requests):
        api.produce(topic, [{"value": "v"}] * request_records)

    partitions = api.http.get(f"/v1/topics/{topic}/partitions").json()["partitions"]
    counts = [each["high_watermark"] for each in partitions]
    assert sum(counts) == requests * request_records
    assert max(counts) - min(counts) <= 1 + requests // 6


def test_results_give_the_first_offset_of_every_partition_in_request_order(api: Api) -> None:
    topic = api.topic(partitions=3)
    api.produce(topic, [{"partition": p, "value": "old"} for p in (0, 0, 1)])
    results = api.produce(
        topic, [{"partition": p, "value": str(n)} for n, p in enumerate([2, 0, 2, 1, 0])]
    )
    assert results == [
        {"partition": 2, "base_offset": 0, "count": 2},
        {"partition": 0, "base_offset": 2, "count": 2},
        {"partition": 1, "base_offset": 1, "count": 1},
    ]
    assert [r["value"] for r in api.read_all(topic, 0)] == ["old", "old", "1", "4"]
    assert [r["value"] for r in api.read_all(topic, 2)] == ["0", "2"]


def test_ndjson_is_a_record_per_line(api: Api) -> None:
    topic = api.topic()
    lines = '{"value": "a", "key": "k"}\n\r\n{"value": {"b": 1}, "headers": {"h": "1"}}\n{}'
    response = api.send(topic, lines, NDJSON)

    assert response.status_code == 200
    assert response.json()["results"] == [{"partition": 0, "base_offset": 0, "count": 3}]
    first, second, third = api.read_all(topic)
    assert (first["key"], first["value"]) == ("k", "a")
    assert (second["value"], second["headers"]) == ('{"b": 1}', [{"key": "h", "value": "1"}])
    assert third["value"] is None


def test_arrow_is_columns(api: Api) -> None:
    topic = api.topic(partitions=3)
    headers = [[{"key": "h", "value": b"\xff"}, {"key": "h", "value": None}], None, []]
    body = arrow_stream(
        {
            "value": pa.array([b"a", None, b"\x00"], pa.binary()),
            "key": pa.array(["k", None, "l"]),
            "timestamp": pa.array([1, 2, 3], pa.timestamp("ms")),
            "partition": pa.array([2, 0, 2], pa.int32()),
            "headers": pa.array(
                headers,
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )
    response = api.send(topic, body, ARROW)
    assert response.status_code == 200, response.text
    assert response.json()["results"] == [
        {"partition": 2, "base_offset": 0, "count": 2},
        {"partition": 0, "base_offset": 0, "count": 1},
    ]
    assert api.read_all_arrow(topic, 2) == [
        {"offset": 0, "timestamp": 1, "key": b"k", "value": b"a", "headers": headers[0]},
        {"offset": 1, "timestamp": 3, "key": b"l", "value": b"\x00", "headers": []},
    ]
    assert api.read_all(topic, 0) == [
        {"offset": 0, "timestamp": 2, "key": None, "value": None, "headers": []}
    ]


def test_an_arrow_response_can_be_produced_as_it_is(api: Api, long_topic: str) -> None:
    copy = api.topic()
    body = api.get(long_topic, accept=ARROW, offset=700).content
    assert api.send(copy, body, ARROW).status_code == 200

    copied, original = api.read_all(copy), api.read_all(long_topic)[700:]
    assert [record["value"] for record in copied] == [record["value"] for record in original]
    assert [record["timestamp"] for record in copied] == [r["timestamp"] for r in original]


@pytest.mark.parametrize("compression", ["lz4", "zstd", "none"])
def test_batches_that_are_slices_already_are_stored_as_they_came(
    api: Api, compression: str
) -> None:
    topic = api.topic(config={"compression.type": "lz4"})
    chance = random.Random(7)
    values = [chance.randbytes(500).hex().encode() for _ in range(900)]
    batch = record_batch([*range(900)], [None] * 900, values)
    pieces = slices.encode(slices.cut(batch, batch.nbytes), compression)
    body = b"".join([slices.SCHEMA_MESSAGE, *(p.data for p in pieces), slices.END_OF_STREAM])

    for _ in range(2):
        assert api.send(topic, body, ARROW).status_code == 200

    assert [r["value"].encode() for r in api.read_all(topic)] == values * 2
    assert [r["timestamp"] for r in api.read_all(topic)] == [*range(900)] * 2
    answer = api.get(topic, accept=ARROW, max_records=5000, max_bytes=10_000_000).content
    is_as_sent = [bytes(piece.data) in answer for piece in pieces]
    assert len(pieces) > 2
    assert is_as_sent == [compression == "lz4"] * len(pieces)


@pytest.mark.parametrize("media_type", [JSON, NDJSON, ARROW])
@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "zstd", "identity"])
def test_bodies_may_be_compressed(api: Api, encoding: str, media_type: str) -> None:
    topic = api.topic()
    values = [f"value {n}" for n in range(300)]
    plain = {
        JSON: json.dumps({"records": [{"value": value} for value in values]}).encode(),
        NDJSON: b"".join(json.dumps({"value": value}).encode() + b"\n" for value in values),
        ARROW: arrow_stream({"value": values}),
    }[media_type]
    compress = {
        "gzip": gzip.compress,
        "x-gzip": lambda body: gzip.compress(body[:50]) + gzip.compress(body[50:]),
        "zstd": zstandard.compress,
        "identity": bytes,
    }[encoding]
    headers = {"content-encoding": encoding}
    response = api.send(topic, compress(plain), media_type, headers=headers)

    assert response.status_code == 200, response.text
    assert [record["value"] for record in api.read_all(topic)] == values


@pytest.mark.parametrize("acks", ["1", "all", "-1"])
def test_what_was_acknowledged_can_be_read_at_once(api: Api, acks: str) -> None:
    topic = api.topic()
    for n in range(5):
        [result] = api.produce(topic, [{"value": str(n)}], acks=acks)
        assert result["base_offset"] == n
        [record] = api.fetch(topic, offset=n)["records"]
        assert record["value"] == str(n)


def test_without_acknowledgement_the_answer_comes_first_and_the_record_follows(api: Api) -> None:
    topic = api.topic(partitions=2)
    response = api.send(topic, '{"records": [{"value": "v"}, {"value": "w"}]}', acks="0")

    assert response.status_code == 202
    results = response.json()["results"]
    assert sorted(result["partition"] for result in results) == [0, 1]
    assert {result["base_offset"] for result in results} == {-1}
    for partition in (0, 1):
        page = api.fetch(topic, partition, offset=0, max_wait_ms=20_000)
        assert len(page["records"]) == 1


def test_one_request_may_hold_megabytes(api: Api) -> None:
    topic = api.topic(partitions=2)
    values = [noise(1_000_000, seed) for seed in range(8)]
    api.produce(topic, [{"value": value, "partition": n % 2} for n, value in enumerate(values)])

    assert [record["value"] for record in api.read_all(topic, 0)] == values[::2]
    assert [record["value"] for record in api.read_all(topic, 1)] == values[1::2]


def test_many_producers_at_once_get_dense_offsets(api: Api) -> None:
    topic = api.topic(partitions=2)

    def produce(number: int) -> list[Json]:
        with Api(api.url) as own:
            return [
                own.produce(topic, [{"value": f"{number}-{n}"}], partition=n % 2)[0]
                | {"value": f"{number}-{n}"}
                for n in range(20)
            ]

    with ThreadPoolExecutor(8) as pool:
        results = [result for each in pool.map(produce, range(8)) for result in each]
    for partition in (0, 1):
        acked = {r["base_offset"]: r["value"] for r in results if r["partition"] == partition}
        stored = {r["offset"]: r["value"] for r in api.read_all(topic, partition)}
        assert acked == stored
        assert sorted(stored) == list(range(80))


# Fetching


def test_an_empty_partition_gives_no_records(api: Api) -> None:
    topic = api.topic()
    assert api.fetch(topic) == {
        "records": [],
        "next_offset": 0,
        "high_watermark": 0,
        "log_start_offset": 0,
    }
    assert api.get(topic, accept=NDJSON).text == ""
    assert api.get(topic, accept=ARROW, offset=0).status_code == 200
    assert api.read_all_arrow(topic) == []


@pytest.mark.parametrize("offset", [0, 1, 127, 1499, 1500, 1519, 1520, 1777, 1999])
def test_a_fetch_begins_at_its_offset_in_every_format(
    api: Api, long_topic: str, offset: int
) -> None:
    as_json = api.get(long_topic, offset=offset)
    as_lines = api.get(long_topic, offset=offset, accept=NDJSON)
    as_arrow = api.get(long_topic, offset=offset, accept=ARROW)

    whole = as_json.json()["records"]
    assert [record["offset"] for record in whole] == list(range(offset, offset + len(whole)))
    assert all(record["value"].startswith(f"{record['offset']}:") for record in whole)
    assert whole[-1]["offset"] == 1999
    assert [json.loads(line) for line in as_lines.text.splitlines()] == whole
    assert [
        {**r, "key": r["key"].decode(), "value": r["value"].decode(), "headers": []}
        for r in arrow_records(as_arrow.content)
    ] == whole
    for response in (as_json, as_lines, as_arrow):
        assert response.headers["riacho-next-offset"] == "2000"
        assert response.headers["riacho-high-watermark"] == "2000"
        assert response.headers["riacho-log-start-offset"] == "0"
    assert as_lines.headers["content-type"].startswith(NDJSON)
    assert as_arrow.headers["content-type"].startswith(ARROW)


@pytest.mark.parametrize("accept", [JSON, NDJSON, ARROW])
@pytest.mark.parametrize(("offset", "count"), [(0, 1), (100, 3), (1498, 10), (1990, 100)])
def test_no_more_records_than_asked_for(
    api: Api, long_topic: str, accept: str, offset: int, count: int
) -> None:
    response = api.get(long_topic, accept=accept, offset=offset, max_records=count)
    offsets = offsets_of(response, accept)

    assert offsets == list(range(offset, min(2000, offset + count)))
    assert int(response.headers["riacho-next-offset"]) == offsets[-1] + 1


def offsets_of(response: httpx.Response, accept: str) -> list[int]:
    assert response.status_code == 200, response.text
    if accept == ARROW:
        records = arrow_records(response.content)
    elif accept == NDJSON:
        records = [json.loads(line) for line in response.text.splitlines()]
    else:
        records = response.json()["records"]
    return [record["offset"] for record in records]


@pytest.mark.parametrize("accept", [JSON, NDJSON])
@pytest.mark.parametrize("max_bytes", [5_000, 100_000, 400_000])
def test_no_more_bytes_than_asked_for(
    api: Api, long_topic: str, accept: str, max_bytes: int
) -> None:
    offset = 3
    seen: list[int] = []
    while offset < 2000:
        response = api.get(long_topic, accept=accept, offset=offset, max_bytes=max_bytes)
        offsets = offsets_of(response, accept)
        assert offsets
        records = (
            response.json()["records"]
            if accept == JSON
            else [json.loads(line) for line in response.text.splitlines()]
        )
        payload = sum(len(record["key"]) + len(record["value"]) for record in records)
        assert payload <= max_bytes
        seen += offsets
        offset = int(response.headers["riacho-next-offset"])
        assert offset == offsets[-1] + 1
    assert seen == list(range(3, 2000))


@pytest.mark.parametrize("accept", [JSON, NDJSON, ARROW])
def test_at_least_one_record_whatever_the_budget(api: Api, long_topic: str, accept: str) -> None:
    for offset in (0, 100, 1999):
        response = api.get(long_topic, accept=accept, offset=offset, max_bytes=1)
        assert offsets_of(response, accept) == [offset]


@pytest.mark.parametrize("max_bytes", [2_000, 50_000, 400_000])
def test_arrow_budgets_reach_the_end_too(api: Api, long_topic: str, max_bytes: int) -> None:
    offset = 0
    while offset < 2000:
        response = api.get(long_topic, accept=ARROW, offset=offset, max_bytes=max_bytes)
        offsets = offsets_of(response, ARROW)
        assert offsets == list(range(offset, offset + len(offsets)))
        # What Arrow puts around records comes on top.
        assert len(response.content) <= max_bytes + 32_768
        offset = int(response.headers["riacho-next-offset"])
        assert offset == offsets[-1] + 1


def test_reading_from_the_beginning_and_from_the_end(api: Api) -> None:
    topic = api.topic()
    api.produce(topic, [{"value": "a"}, {"value": "b"}])

    assert [r["value"] for r in api.fetch(topic)["records"]] == ["a", "b"]
    assert [r["value"] for r in api.fetch(topic, at="earliest")["records"]] == ["a", "b"]
    latest = api.fetch(topic, at="latest")
    assert (latest["records"], latest["next_offset"]) == ([], 2)
    assert api.fetch(topic, offset=2)["records"] == []


def test_reading_from_a_moment(api: Api) -> None:
    topic = api.topic()
    stamps = [100, 300, 200, 200, 500, 400]
    for stamp in stamps[:3]:
        api.produce(topic, [{"value": "v", "timestamp": stamp}])
    api.produce(topic, [{"value": "v", "timestamp": stamp} for stamp in stamps[3:]])

    def first(at: int | str) -> tuple[int, int]:
        response = api.http.get(f"/v1/topics/{topic}/partitions/0/offsets", params={"at": at})
        assert response.status_code == 200, response.text
        return response.json()["offset"], response.json()["timestamp"]

    # The first record by offset that is as late, as Kafka has it, though later ones are older.
    assert first(0) == (0, 100)
    assert first(100) == (0, 100)
    assert first(101) == (1, 300)
    assert first(300) == (1, 300)
    assert first(301) == (4, 500)
    assert first(501) == (6, -1)
    assert first("earliest")[0] == 0
    assert first("latest")[0] == 6
    assert [r["offset"] for r in api.fetch(topic, at=301)["records"]] == [4, 5]
    assert api.fetch(topic, at=501)["next_offset"] == 6


def test_a_moment_is_found_far_back(api: Api) -> None:
    topic = api.topic()
    for start in range(0, 3000, 1000):
        api.produce(
            topic, [{"value": noise(400, n), "timestamp": n} for n in range(start, start + 1000)]
        )
    for at in (0, 999, 1000, 1234, 2999):
        page = api.fetch(topic, at=at, max_records=1)
        assert page["records"][0]["offset"] == at


def test_a_waiting_fetch_is_woken_by_a_produce(api: Api) -> None:
    topic = api.topic()
    api.produce(topic, [{"value": "old"}])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            lambda: httpx.get(
                api.url + records_path(topic, 0),
                params={"offset": 1, "max_wait_ms": 50_000},
                timeout=TIMEOUT_S,
            )
        )
        began_s = time.monotonic()
        api.produce(topic, [{"value": "new"}])
        [record] = waiting.result().json()["records"]
    assert (record["offset"], record["value"]) == (1, "new")
    assert time.monotonic() - began_s < 25


def test_a_fetch_waits_no_longer_than_it_was_told(api: Api) -> None:
    topic = api.topic()
    began_s = time.monotonic()
    page = api.fetch(topic, offset=0, max_wait_ms=300)
    took_s = time.monotonic() - began_s

    assert page["records"] == []
    assert 0.25 <= took_s < 20


def test_a_fetch_may_wait_for_more_than_one_record(api: Api) -> None:
    topic = api.topic()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            lambda: httpx.get(
                api.url + records_path(topic, 0),
                params={"offset": 0, "min_bytes": 6000, "max_wait_ms": 50_000},
                timeout=TIMEOUT_S,
            )
        )
        for n in range(4):
            api.produce(topic, [{"value": noise(4000, n)}])
        page = waiting.result().json()
    assert len(page["records"]) >= 2


def test_with_nothing_to_wait_for_a_fetch_returns_at_once(api: Api) -> None:
    topic = api.topic()
    began_s = time.monotonic()
    assert api.fetch(topic, offset=0, min_bytes=0, max_wait_ms=50_000)["records"] == []
    api.produce(topic, [{"value": "v"}])
    assert len(api.fetch(topic, offset=0, max_wait_ms=50_000)["records"]) == 1
    assert time.monotonic() - began_s < 25


def test_behind_the_end_is_out_of_range(api: Api) -> None:
    topic = api.topic()
    api.produce(topic, [{"value": "v"}])
    for offset in (-1, 2, 2**63 - 1):
        response = api.get(topic, offset=offset)
        assert response.status_code == 416
        assert response.json()["code"] == "OFFSET_OUT_OF_RANGE"


# Several partitions at once


def test_one_call_fetches_from_several_topics_and_partitions(api: Api) -> None:
    first, second = api.topic(partitions=2), api.topic()
    api.produce(first, [{"value": "a"}, {"value": "b"}], partition=1)
    api.produce(second, [{"value": {"c": 1}, "timestamp": 9}])

    wanted = [
        {"topic": second, "partition": 0, "at": 5},
        {"topic": first, "partition": 1, "offset": 1},
        {"topic": first, "partition": 0},
        {"topic": second, "partition": 0, "at": "latest"},
        {"topic": first, "partition": 5},
        {"topic": "no-such-topic", "partition": 0},
        {"topic": first, "partition": 1, "offset": 99},
    ]
    response = api.http.post("/v1/fetch", json={"partitions": wanted, "value_format": "json"})
    assert response.status_code == 200
    parts = response.json()["partitions"]
    assert [(p["topic"], p["partition"]) for p in parts] == [
        (w["topic"], w["partition"]) for w in wanted
    ]
    values = [[r["value"] for r in part["records"]] for part in parts[:4]]
    assert values == [[{"c": 1}], ["b"], [], []]
    assert [part["next_offset"] for part in parts[:4]] == [1, 2, 0, 1]
    assert [part["error"]["code"] for part in parts[4:]] == [
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "OFFSET_OUT_OF_RANGE",
    ]


def test_one_call_shares_its_budget_and_still_reaches_everything(api: Api, long_topic: str) -> None:
    other = api.topic(partitions=2)
    api.produce(other, [{"value": noise(700, n)} for n in range(200)])
    places = [(long_topic, 0), (other, 0), (other, 1)]
    offsets = dict.fromkeys(places, 0)
    for _ in range(200):
        body = {
            "partitions": [
                {"topic": topic, "partition": partition, "offset": offsets[topic, partition]}
                for topic, partition in places
            ],
            "max_bytes": 60_000,
            "max_records": 300,
        }
        parts = api.http.post("/v1/fetch", json=body).json()["partitions"]
        records = [record for part in parts for record in part["records"]]
        if not records:
            break
        assert len(records) <= 300
        assert sum(len(record["value"]) for record in records) <= 60_000
        for part in parts:
            offsets[part["topic"], part["partition"]] = part["next_offset"]
        # Who came last comes first, or a busy partition would starve the others.
        places = places[1:] + places[:1]
    ends = {(t, p): api.high_watermark(t, p) for t, p in places}
    assert offsets == ends


def test_one_call_waits_for_any_of_its_partitions(api: Api) -> None:
    topic = api.topic(partitions=3)
    body = {
        "partitions": [{"topic": topic, "partition": p, "at": "latest"} for p in range(3)],
        "max_wait_ms": 50_000,
    }
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            lambda: httpx.post(api.url + "/v1/fetch", json=body, timeout=TIMEOUT_S)
        )
        began_s = time.monotonic()
        # The first may still come before the call has begun, and "latest" is then behind it.
        while not waiting.done() and time.monotonic() - began_s < 25:
            api.produce(topic, [{"value": "v"}], partition=2)
        parts = waiting.result().json()["partitions"]
    assert [len(part["records"]) > 0 for part in parts] == [False, False, True]


# Tailing


def test_a_tail_sends_what_is_there_and_what_comes(api: Api) -> None:
    topic = api.topic()
    api.produce(topic, [{"value": "0"}, {"value": "1\n2"}])
    with httpx.stream(
        "GET",
        api.url + records_path(topic, 0),
        headers={"accept": SSE},
        timeout=TIMEOUT_S,
    ) as response:
        assert response.headers["content-type"].startswith(SSE)
        stream = records_in(response.iter_lines())
        assert next(stream)["value"] == "0"
        assert next(stream)["value"] == "1\n2"
        for n in range(2, 6):
            api.produce(topic, [{"value": str(n)}])
            record = next(stream)
            assert (record["offset"], record["value"]) == (n, str(n))


def records_in(lines: Iterator[str]) -> Iterator[Json]:
    for event in events(lines):
        if "event" not in event:
            record = json.loads(event["data"])
            assert record["offset"] == int(event["id"])
            yield record


def test_a_tail_resumes_behind_the_last_event_it_sent(api: Api) -> None:
    topic = api.topic()
    api.produce(topic, [{"value": str(n)} for n in range(10)])

    def tail(last: int | None, count: int, **params: Json) -> list[int]:
        headers = {"accept": SSE} | ({} if last is None else {"last-event-id": str(last)})
        with httpx.stream(
            "GET",
            api.url + records_path(topic, 0),
            headers=headers,
            params={"max_records": count, **params},
            timeout=TIMEOUT_S,
        ) as response:
            return [record["offset"] for record in records_in(response.iter_lines())]

    assert tail(None, 4) == [0, 1, 2, 3]
    assert tail(3, 4) == [4, 5, 6, 7]
    # A browser repeats the URL it began with; the header knows better.
    assert tail(7, 2, offset=0) == [8, 9]
    assert tail(None, 3, offset=5) == [5, 6, 7]


def test_a_quiet_tail_says_that_it_lives(api: Api) -> None:
    topic = api.topic()
    api.produce(topic, [{"value": "v"}])
    with httpx.stream(
        "GET",
        api.url + records_path(topic, 0),
        headers={"accept": SSE},
        params={"at": "latest"},
        timeout=TIMEOUT_S,
    ) as response:
        beats = (e for e in events(response.iter_lines()) if e.get("event") == "heartbeat")
        for _ in range(3):
            beat = next(beats)
            assert "id" not in beat
            assert json.loads(beat["data"]) == {"next_offset": 1, "high_watermark": 1}


def test_a_tail_of_a_topic_that_is_deleted_ends_with_the_reason(api: Api) -> None:
    topic = api.topic()
    api.produce(topic, [{"value": "v"}])
    with httpx.stream(
        "GET",
        api.url + records_path(topic, 0),
        headers={"accept": SSE},
        timeout=TIMEOUT_S,
    ) as response:
        stream = events(response.iter_lines())
        assert next(stream)["id"] == "0"
        api.http.delete(f"/v1/topics/{topic}")
        *_, last = stream
    assert last["event"] == "error"
    assert json.loads(last["data"])["code"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_many_tails_see_the_same(api: Api) -> None:
    topic = api.topic()
    ready = threading.Barrier(9)

    def tail() -> list[str]:
        with httpx.stream(
            "GET",
            api.url + records_path(topic, 0),
            headers={"accept": SSE},
            params={"max_records": 30},
            timeout=TIMEOUT_S,
        ) as response:
            ready.wait(TIMEOUT_S)
            return [record["value"] for record in records_in(response.iter_lines())]

    with ThreadPoolExecutor(8) as pool:
        tails = [pool.submit(tail) for _ in range(8)]
        ready.wait(TIMEOUT_S)
        for n in range(30):
            api.produce(topic, [{"value": str(n)}])
        assert all(each.result() == [str(n) for n in range(30)] for each in tails)


# Reading the store directly


@pytest.mark.parametrize("codec", ["lz4", "zstd", "none"])
def test_stored_ranges_can_be_read_past_the_gateway(api: Api, codec: str) -> None:
    topic = api.topic(partitions=2, config={"compression.type": codec})
    for start in range(0, 900, 300):
        records = [
            {"value": f"{n}:{noise(900, n)}", "timestamp": n, "partition": n % 2}
            for n in range(start, start + 300)
        ]
        api.produce(topic, records)
    for partition in (0, 1):
        found = api.http.get(f"/v1/topics/{topic}/partitions/{partition}/segments").json()
        assert (found["next_offset"], found["high_watermark"]) == (450, 450)
        schema = base64.b64decode(found["arrow_schema_base64"])
        values: list[bytes] = []
        end = 0
        for part in found["segments"]:
            assert part["base_offset"] == end
            assert part["end_offset"] == end + part["count"]
            end = part["end_offset"]
            stored = read_range(part["url"], part["start"], part["end"])
            assert len(stored) == part["end"] - part["start"]
            with pa.ipc.open_stream(schema + stored) as reader:
                table = reader.read_all()
            assert table.num_rows == part["count"]
            stamps = table.column("timestamp").to_pylist()
            assert (min(stamps), max(stamps)) == (part["min_timestamp"], part["max_timestamp"])
            values += table.column("value").to_pylist()
        expected = [record["value"].encode() for record in api.read_all(topic, partition)]
        assert values == expected


def read_range(url: str, start: int, end: int) -> bytes:
    """Read bytes of an object as a client of the API would, without any credentials."""
    if url.startswith("file:"):
        with open(url2pathname(urlsplit(url).path), "rb") as file:
            file.seek(start)
            return file.read(end - start)
    if url.startswith("data:"):
        return base64.b64decode(url.partition(",")[2])[start:end]
    response = httpx.get(url, headers={"range": f"bytes={start}-{end - 1}"}, timeout=TIMEOUT_S)
    assert response.status_code == 206, response.text
    return response.content


def test_stored_ranges_can_be_asked_for_from_an_offset_to_another(
    api: Api, long_topic: str
) -> None:
    path = f"/v1/topics/{long_topic}/partitions/0/segments"
    some = api.http.get(path, params={"offset": 1505, "end": 1510}).json()
    assert [part["base_offset"] for part in some["segments"]] == list(range(1505, 1510))
    assert some["next_offset"] == 1510

    inside = api.http.get(path, params={"offset": 7}).json()["segments"]
    assert inside[0]["base_offset"] <= 7 < inside[0]["end_offset"]
    assert inside[-1]["end_offset"] == 2000
    assert api.http.get(path, params={"offset": 2000}).json()["segments"] == []
    assert api.http.get(path, params={"offset": 2001}).status_code == 416


# The gateway itself


def test_the_cluster_names_its_gateways_and_zones(api: Api) -> None:
    cluster = api.http.get("/v1/cluster").json()

    assert [zone["name"] for zone in cluster["zones"]] == ["a"]
    [gateway] = [each for each in cluster["gateways"] if each["id"] == cluster["gateway"]]
    assert gateway["url"] == api.url
    assert gateway["version"] == cluster["version"]


def test_health_readiness_and_documentation(api: Api) -> None:
    assert api.http.get("/healthy").json() == {"status": "ok"}
    assert api.http.get("/ready").json() == {"status": "ok"}
    assert "swagger" in api.http.get("/docs").text.lower()
    document = api.http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.")
    assert {
        "/v1/topics",
        "/v1/topics/{topic}",
        "/v1/topics/{topic}/records",
        "/v1/topics/{topic}/partitions",
        "/v1/topics/{topic}/partitions/{partition}/records",
        "/v1/topics/{topic}/partitions/{partition}/offsets",
        "/v1/topics/{topic}/partitions/{partition}/segments",
        "/v1/fetch",
        "/v1/cluster",
        "/healthy",
        "/ready",
        "/metrics",
    } <= set(document["paths"])


def test_metrics_count_requests_and_records(api: Api) -> None:
    topic = api.topic()

    def counters() -> dict[str, float]:
        response = api.http.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain")
        lines = [line for line in response.text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    before = counters()
    api.produce(topic, [{"value": "v"}] * 7)
    api.fetch(topic)
    body = {"partitions": [{"topic": topic, "partition": 0}], "max_records": 5}
    api.http.post("/v1/fetch", json=body).raise_for_status()
    path = f"/v1/topics/{topic}/partitions/0/records?max_records=3"
    api.http.get(path, headers={"accept": "text/event-stream"}).raise_for_status()
    after = counters()

    def grew(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert grew("riacho_produced_records_total") == 7
    assert grew("riacho_fetched_records_total") == 7 + 5 + 3
    assert grew("riacho_fetched_bytes_total") > 0
    route = 'method="POST",route="/v1/topics/{topic}/records",status="200"'
    assert grew(f"riacho_requests_total{{{route}}}") == 1
    assert after["riacho_held_bytes"] == 0


@pytest.mark.parametrize(
    "path", ["/healthy", "/ready", "/metrics", "/openapi.json", "/v1/topics", "/v1/cluster"]
)
def test_head_is_get_without_the_body(api: Api, path: str) -> None:
    response = api.http.head(path)

    assert response.status_code == 200
    assert response.content == b""
    assert response.headers["content-type"] == api.http.get(path).headers["content-type"]


def test_head_tells_the_watermarks_of_a_partition(api: Api) -> None:
    topic = api.topic()
    api.produce(topic, [{"value": "v"}])
    for accept in (JSON, NDJSON, ARROW, SSE):
        response = api.http.head(records_path(topic, 0), headers={"accept": accept})
        assert response.status_code == 200
        assert response.headers["content-type"].startswith(accept)
        assert response.content == b""
    assert response.request.url.path == records_path(topic, 0)
    assert api.http.head(records_path(topic, 0)).headers["riacho-high-watermark"] == "1"
    assert api.http.head(records_path("no-such-topic", 0)).status_code == 404


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/healthy", {"GET", "HEAD"}),
        ("/v1/topics", {"GET", "HEAD", "POST"}),
        ("/v1/topics/any", {"GET", "HEAD", "PATCH", "DELETE"}),
        ("/v1/topics/any/records", {"POST"}),
        ("/v1/topics/any/partitions/0/records", {"DELETE", "GET", "HEAD", "POST"}),
        ("/v1/fetch", {"POST"}),
    ],
)
def test_a_method_that_a_path_does_not_take_is_answered_with_those_it_does(
    api: Api, path: str, allowed: set[str]
) -> None:
    refused = api.http.put(path)
    assert refused.status_code == 405
    assert set(refused.headers["allow"].split(", ")) == allowed
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["code"] == "METHOD_NOT_ALLOWED"

    asked = api.http.options(path)
    assert asked.status_code in {200, 204, 405}
    assert allowed <= {*asked.headers["allow"].split(", ")}


def test_a_path_that_is_not_there_is_a_problem_too(api: Api) -> None:
    for path in ("/v1", "/v2/topics", "/v1/topics/a/b/c", "/v1/topics/a/partitions/0"):
        response = api.http.get(path)
        assert response.status_code == 404, path
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["code"] == "NOT_FOUND"
