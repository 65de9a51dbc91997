"""Typed columns: what `table.columns=true` costs a compaction, in bytes and in time.

    python -m benchmarks.typed_columns [--records 200000]

Orders of eight fields, as Avro and as JSON, some 80 and 190 bytes; merged by `riacho compact` with
and without typed columns. CPU is that of the whole process, some two seconds of which are Python's
start; a busy machine changes it less than the time. In the end DuckDB adds up a field, from the
column and from the raw JSON.
"""

import argparse
import io
import json
import resource
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import numpy as np
import pyarrow as pa

from benchmarks.compaction import compact
from benchmarks.harness import Connection, gateway, request, show
from riacho import Admin
from riacho.schemas.registry import SchemaRegistry
from riacho.schemas.values import SchemaText
from storage.formats.records import RECORD_SCHEMA, record_batch
from storage.schemas.framing import framed

BATCH = 10_000
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {
            "name": "amount",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "city", "type": "string"},
        {"name": "status", "type": {"type": "enum", "name": "S", "symbols": ["OPEN", "PAID"]}},
        {"name": "coupon", "type": ["null", "string"]},
        {"name": "weight", "type": "double"},
    ],
}
JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "customer": {"type": "string"},
        "amount": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "city": {"type": "string"},
        "status": {"type": "string"},
        "coupon": {"type": "string"},
        "weight": {"type": "number"},
    },
}
CITIES = ("Lisboa", "Porto", "Faro", "Braga", "Coimbra", "Aveiro")


def order(dice: np.random.Generator, number: int) -> dict[str, Any]:
    return {
        "id": number,
        "customer": f"customer-{dice.integers(0, 50_000):08}",
        "amount": Decimal(int(dice.integers(1, 100_000))).scaleb(-2),
        "at": 1_700_000_000_000 + number,
        "city": CITIES[dice.integers(0, len(CITIES))],
        "status": ("OPEN", "PAID")[dice.integers(0, 2)],
        "coupon": f"C{dice.integers(0, 10**6)}" if dice.random() < 0.1 else None,
        "weight": float(dice.random()),
    }


def encoded(kind: str, value: dict[str, Any]) -> bytes:
    if kind == "AVRO":
        out = io.BytesIO()
        fastavro.schemaless_writer(out, AVRO, value)
        return out.getvalue()
    at = np.datetime_as_string(np.datetime64(value["at"], "ms"), timezone="UTC")
    shown = {**value, "amount": float(value["amount"]), "at": str(at)}
    return json.dumps({k: v for k, v in shown.items() if v is not None}).encode()


def measure(kind: str, columns: bool, count: int) -> dict[str, Any]:
    with gateway() as server, SchemaRegistry(server.url) as registry, Admin(server.url) as admin:
        schema = json.dumps(AVRO if kind == "AVRO" else JSON_SCHEMA)
        made = registry.register("bench-value", SchemaText(text=schema, kind=kind))  # type: ignore[arg-type]
        admin.create_topic("bench", config={"table.columns": str(columns).lower()})
        connection = Connection(server.port)
        dice = np.random.default_rng(count)
        for start in range(0, count, BATCH):
            values = [framed(made.id, encoded(kind, order(dice, start + n))) for n in range(BATCH)]
            keys = [f"order-{start + n}" for n in range(BATCH)]
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, RECORD_SCHEMA) as writer:
                stamps = range(1_700_000_000_000 + start, 1_700_000_000_000 + start + BATCH)
                writer.write_batch(record_batch(stamps, keys, values))
            path = "/v1/topics/bench/partitions/0/records"
            body = sink.getvalue().to_pybytes()
            arrow = "application/vnd.apache.arrow.stream"
            status, answer = connection.call(request("POST", path, body, content_type=arrow))
            assert status == 200, answer
        connection.close()
        before = cpu_s()
        document, peak_mib = compact(server.data, "--no-spark")
        spent = cpu_s() - before
        assert document["ok"], document
        query_s = queried(server.data, kind, columns)
    return {**document, "peak_mib": peak_mib, "query_s": query_s, "cpu_s": spent}


def cpu_s() -> float:
    """Return the CPU time of processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def queried(data: Path, kind: str, columns: bool) -> float | None:
    """Return how long DuckDB takes to add up a field; None: it cannot read it."""
    if kind == "AVRO" and not columns:
        return None
    field = "value_.amount" if columns else "CAST(decode(value[6:])->>'amount' AS DOUBLE)"
    began = time.perf_counter()
    duckdb.sql(f"SELECT sum({field}) FROM '{data}/**/*.parquet'").fetchall()
    return time.perf_counter() - began


def row(name: str, found: dict[str, Any], plain: dict[str, Any]) -> list[str]:
    return [
        name,
        f"{found['bytes_out'] / 2**20:.2f}",
        f"{found['bytes_out'] / plain['bytes_out']:.2f}",
        f"{found['seconds']:.2f}",
        f"{found['seconds'] / plain['seconds']:.1f}",
        f"{found['cpu_s']:.2f}",
        f"{1e6 * (found['cpu_s'] - plain['cpu_s']) / found['records_in']:.1f}",
        f"{found['peak_mib']:.0f}",
        "" if found["query_s"] is None else f"{1e3 * found['query_s']:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    count = parser.parse_args().records
    rows = []
    for kind in ("AVRO", "JSON"):
        plain = measure(kind, False, count)
        typed = measure(kind, True, count)
        rows += [row(kind, plain, plain), row(f"{kind}, typed columns", typed, plain)]
    titles = [
        "",
        "MiB out",
        "ratio",
        "s",
        "ratio",
        "CPU s",
        "more µs/record",
        "peak MiB",
        "query ms",
    ]
    show(f"{count:,} orders, merged", titles, rows)


if __name__ == "__main__":
    main()
