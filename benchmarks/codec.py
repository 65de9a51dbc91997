"""The codecs of HTTP bodies, on one core, each against what the standard library would do.

    python -m benchmarks.codec

Times are CPU seconds, best of some rounds, so that neighbours on the machine disturb little.
Ratios compare rows of one run; do not compare rates of different machines.
"""

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from service.http.bodies.json_fetch import json_pieces, ndjson_pieces
from service.http.bodies.produce import ARROW_STREAM, JSON, NDJSON, decode_produce
from service.process.limits.compression import decompress
from storage.formats import slices
from storage.formats.partitioner import Spreader, assign, partition_for, partitions_for
from storage.formats.records import Header, record_batch

RECORDS = 20_000
ROUNDS = 15
CALLS_RECORDS = 500  # Repetitions of a call of one record, to measure it warm.
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Row:
    name: str
    run: Callable[[], Any]
    records: int = RECORDS


def main() -> None:
    for title, rows in (("produce", produce_rows()), ("fetch", fetch_rows()), ("keys", key_rows())):
        rates = measured(rows)
        print(f"\n{title:<44} {'M records/s':>12} {'us/call':>10} {'ratio':>7}")
        for row, per_s in zip(rows, rates, strict=True):
            call_us = row.records / per_s * 1e6
            ratio = per_s / rates[0]
            print(f"{row.name:<44} {per_s / 1e6:>12.2f} {call_us:>10.1f} {ratio:>6.1f}x")


def measured(rows: list[Row]) -> list[float]:
    """Return records per second of CPU. Rows take turns, so that a busy moment hits them all."""
    best_s = [float("inf")] * len(rows)
    for _ in range(ROUNDS):
        for number, row in enumerate(rows):
            calls = max(1, CALLS_RECORDS // row.records)
            began = time.process_time()
            for _ in range(calls):
                row.run()
            best_s[number] = min(best_s[number], (time.process_time() - began) / calls)
    return [row.records / seconds for row, seconds in zip(rows, best_s, strict=True)]


def texts() -> list[str]:
    dice = random.Random(1)
    words = ["alpha", "beta", "gamma", "delta", "stream", "river", "record"]
    return [
        " ".join(f"{dice.choice(words)}{dice.randrange(100)}" for _ in range(20))[:100]
        for _ in range(RECORDS)
    ]


def produce_rows() -> list[Row]:
    keys = [f"user-{number:06}" for number in range(RECORDS)]
    values = texts()
    batch = record_batch([NOW_MS] * RECORDS, keys, values)
    plain = [{"key": k, "value": v} for k, v in zip(keys, values, strict=True)]
    nested = [
        {"key": k, "value": {"text": v[:80], "n": 1.0}} for k, v in zip(keys, values, strict=True)
    ]
    headed = [{**record, "headers": {"trace": "0123456789abcdef"}} for record in plain]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body = json.dumps({"records": plain}).encode()
    lines = "\n".join(map(json.dumps, plain)).encode()
    zipped = pa.compress(body, "zstd", asbytes=True)
    one = json.dumps({"records": plain[:1]}).encode()

    def baseline() -> None:
        records = json.loads(body)["records"]
        rows = [(r["key"].encode(), r["value"].encode()) for r in records]
        store(record_batch([NOW_MS] * len(rows), [k for k, _ in rows], [v for _, v in rows]))

    def decoding(body: bytes, content_type: str) -> Callable[[], Any]:
        return lambda: decode_produce(body, content_type, now_ms=NOW_MS)

    def storing(body: bytes, content_type: str) -> Callable[[], Any]:
        return lambda: store(decode_produce(body, content_type, now_ms=NOW_MS).batch)

    arrow = sink.getvalue().to_pybytes()
    return [
        Row("json.loads, encode, Arrow, LZ4 slices", baseline),
        Row("JSON, Arrow, LZ4 slices", storing(body, JSON)),
        Row("NDJSON, Arrow, LZ4 slices", storing(lines, NDJSON)),
        Row("Arrow, LZ4 slices", storing(arrow, ARROW_STREAM)),
        Row("LZ4 slices alone", lambda: store(batch)),
        Row("JSON decode", decoding(body, JSON)),
        Row("JSON decode, a header each", decoding(json.dumps({"records": headed}).encode(), JSON)),
        Row(
            "JSON decode, values are objects",
            decoding(json.dumps({"records": nested}).encode(), JSON),
        ),
        Row("NDJSON decode", decoding(lines, NDJSON)),
        Row("Arrow decode", decoding(arrow, ARROW_STREAM)),
        Row("zstd inflate of the JSON", lambda: decompress(zipped, "zstd", len(body))),
        Row("JSON decode of one record", decoding(one, JSON), 1),
    ]


def store(batch: pa.RecordBatch) -> list[slices.Slice]:
    return slices.encode(slices.cut(batch, batch.nbytes), "lz4")


def fetch_rows() -> list[Row]:
    keys = [f"user-{number:06}" for number in range(RECORDS)]
    stamps = [NOW_MS] * RECORDS
    values = texts()
    text = [(range(RECORDS), record_batch(stamps, keys, values))]
    objects = [
        (range(RECORDS), record_batch(stamps, keys, [json.dumps({"text": v[:80]}) for v in values]))
    ]
    blobs = [(range(RECORDS), record_batch(stamps, keys, [v.encode() + b"\xff" for v in values]))]
    trace: list[list[Header]] = [[{"key": "trace", "value": b"0123456789abcdef"}]] * RECORDS
    headed = [(range(RECORDS), record_batch(stamps, keys, values, trace))]

    def baseline() -> bytes:
        rows = text[0][1].to_pylist()
        for offset, row in enumerate(rows):
            row.update(offset=offset, key=row["key"].decode(), value=row["value"].decode())
        return json.dumps(rows).encode()

    return [
        Row("to_pylist, json.dumps", baseline),
        Row("text", lambda: b"".join(json_pieces(text))),
        Row("text, NDJSON", lambda: b"".join(ndjson_pieces(text))),
        Row("text, a header each", lambda: b"".join(json_pieces(headed))),
        Row("text, not one value UTF-8", lambda: b"".join(json_pieces(blobs))),
        Row(
            "json, values are objects", lambda: b"".join(json_pieces(objects, value_format="json"))
        ),
        Row("json, values are not JSON", lambda: b"".join(json_pieces(text, value_format="json"))),
        Row("base64", lambda: b"".join(json_pieces(text, value_format="base64"))),
    ]


def key_rows() -> list[Row]:
    dice = random.Random(1)
    fixed = pa.array([dice.randbytes(16) for _ in range(RECORDS)])
    mixed = pa.array([dice.randbytes(dice.randint(8, 24)) for _ in range(RECORDS)])
    few = fixed.slice(0, 1000).to_pylist()
    batch = record_batch([NOW_MS] * RECORDS, fixed.to_pylist(), texts())
    one = batch.slice(7, 1)
    keyless = record_batch([NOW_MS] * RECORDS, [None] * RECORDS, [b"v"] * RECORDS)
    spreader = Spreader()
    return [
        Row("murmur2, one by one, 16 B", lambda: [partition_for(key, 12) for key in few], 1000),
        Row("murmur2, all at once, 16 B", lambda: partitions_for(fixed, 12)),
        Row("murmur2, all at once, 8 to 24 B", lambda: partitions_for(mixed, 12)),
        Row("assign by key to 12", lambda: assign(batch, None, 12, spreader)),
        Row("assign keyless to 12", lambda: assign(keyless, None, 12, spreader)),
        Row("assign one record by key", lambda: assign(one, None, 12, spreader), 1),
    ]


if __name__ == "__main__":
    main()
