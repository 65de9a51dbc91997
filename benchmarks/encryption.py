"""What does encryption at rest cost? Produce and fetch 1,000 records of 1 KiB, sealed or not.

    python -m benchmarks.encryption [seconds]

Two topics of one gateway, one connection each way, in turns of a second: first one topic, then the
other, so that what else the machine does meets both. Fetches ask for records that are in no cache:
the gateway has none. Each answer is the sum of its turns.
"""

import base64
import json
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from benchmarks.harness import Connection, gateway, hammer, request, show
from storage.formats.records import record_batch

ARROW = "application/vnd.apache.arrow.stream"
RECORDS = 1000
TURN_S = 1.0
GOAL = 0.8
TOPICS = ("plain", "sealed")


def arrow_body() -> bytes:
    # Half random, so that LZ4 has some work and some success.
    chance = random.Random(1)
    values = [chance.randbytes(512) + b"x" * 512 for _ in range(RECORDS)]
    batch = record_batch([0] * RECORDS, [None] * RECORDS, values)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def json_body() -> bytes:
    chance = random.Random(1)
    text = [base64.b64encode(chance.randbytes(384)).decode() + "x" * 512 for _ in range(RECORDS)]
    return json.dumps({"records": [{"value": value} for value in text]}).encode()


def rates(port: int, requests: dict[str, Sequence[bytes]], seconds: float) -> dict[str, float]:
    """Return records a second of each topic, measured in turns."""
    calls = dict.fromkeys(TOPICS, 0)
    spent = dict.fromkeys(TOPICS, 0.0)
    for turn in range(max(2, int(seconds / TURN_S))):
        # The first of a pair is the other one in the next.
        for topic in TOPICS if turn % 2 else reversed(TOPICS):
            made, took_s = hammer(port, [*requests[topic]], 2, TURN_S)
            calls[topic] += made
            spent[topic] += took_s
    return {topic: calls[topic] * RECORDS / spent[topic] for topic in TOPICS}


def produced(topic: str, body: bytes, media_type: str) -> list[bytes]:
    path = f"/v1/topics/{topic}/partitions/0/records"
    return [request("POST", path, body, content_type=media_type)]


def fetched(topic: str, accept: str, pages: int) -> list[bytes]:
    path = f"/v1/topics/{topic}/partitions/0/records?max_records={RECORDS}&offset="
    return [request("GET", f"{path}{n * RECORDS}", accept=accept) for n in range(pages)]


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="riacho-keys-") as folder:
        (Path(folder) / "kek").write_bytes(os.urandom(32))
        env = {"RIACHO_KEK_FILES": folder, "RIACHO_SLICE_CACHE_BYTES": "1"}
        with gateway(**env) as server:
            connection = Connection(server.port)
            for name in TOPICS:
                config = {"encryption": "topic", "encryption.kek": "file:kek"}
                body = {"name": name, "config": config if name == "sealed" else {}}
                made = request(
                    "POST", "/v1/topics", json.dumps(body).encode(), content_type="application/json"
                )
                status, answer = connection.call(made)
                assert status == 201, answer
            rows = []
            for what, body, media in (
                ("produce Arrow", arrow_body(), ARROW),
                ("produce JSON", json_body(), "application/json"),
            ):
                calls = {topic: produced(topic, body, media) for topic in TOPICS}
                rows.append(row(what, rates(server.port, calls, seconds)))
            for what, accept in (("fetch Arrow", ARROW), ("fetch JSON", "application/json")):
                # JSON was produced last, and both topics have at least this many of each.
                calls = {topic: fetched(topic, accept, 20) for topic in TOPICS}
                rows.append(row(what, rates(server.port, calls, seconds)))
    show(
        f"1 KiB × 1,000 records a call, two connections; goal: sealed at least {GOAL} of plain",
        ["what", "plain, records/s", "sealed, records/s", "ratio"],
        rows,
    )


def row(what: str, found: dict[str, float]) -> list[str]:
    plain, sealed = (found[topic] for topic in TOPICS)
    return [what, f"{plain:,.0f}", f"{sealed:,.0f}", f"{sealed / plain:.2f}"]


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 6.0)
