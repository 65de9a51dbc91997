"""What do checks of schemas cost? Produce to topics that check nothing, ids, or all data.

    python -m benchmarks.schema_validation [seconds]

First over HTTP: CPU of the gateway, for topics that take turns of a second. Then the checks alone,
in CPU seconds of one core, best of some rounds that take turns (see `benchmarks.codec`); batches of
Kafka's protocol are checked and stored as they came, so what that takes without rules is the
measure.
"""

import asyncio
import json
import sys

import pyarrow as pa

from benchmarks.codec import Row, measured
from benchmarks.encryption import ARROW, TURN_S
from benchmarks.harness import Connection, gateway, hammer, request, show
from service.process.limits.heavy_work import HeavyWork
from service.registry.edge.codecs import SchemaCodecs
from service.registry.edge.validation.validation import Validation
from service.registry.names import parse_subject
from service.registry.reading import SchemaReader
from service.registry.registering import NewSchema, Registrar
from service.world.clock import real_world
from storage.formats.kafka import batches
from storage.formats.kafka.encoding import encode
from storage.formats.records import record_batch
from storage.schemas.source import SchemaType
from storage.stores.memory import MemoryMetadata
from storage.stores.metadata import Versioned
from storage.topics import items
from storage.topics.items import StoredTopic, Topic

RECORDS = 1000
LEVELS = ("none", "id", "full")
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "minimum": 0},
            "name": {"type": "string", "maxLength": 40},
            "email": {"type": ["string", "null"]},
            "amount": {"type": "number"},
        },
        "required": ["id", "name"],
    }
)
SUBJECT = "benchmark-value"
SETTINGS = {"value.schema.subject": SUBJECT}


def values() -> list[bytes]:
    """Return records of about 100 bytes, each with the id of the only schema."""
    users = (
        {"id": n, "name": f"user {n:06}", "email": f"u{n:06}@example.com", "amount": n / 2}
        for n in range(RECORDS)
    )
    return [b"\0\0\0\0\1" + json.dumps(user).encode() for user in users]


def arrow_body(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def over_http(seconds: float) -> None:
    body = arrow_body(record_batch([0] * RECORDS, [None] * RECORDS, values()))
    with gateway() as server:
        connection = Connection(server.port)

        def post(path: str, content: dict[str, object]) -> None:
            sent = json.dumps(content).encode()
            made = request("POST", path, sent, content_type="application/json")
            status, answer = connection.call(made)
            assert status < 300, answer

        post(f"/subjects/{SUBJECT}/versions", {"schema": SCHEMA, "schemaType": "JSON"})
        for level in LEVELS:
            config = {**SETTINGS, "value.schema.validation": level}
            post("/v1/topics", {"name": level, "config": config})
        calls = {
            level: [
                request(
                    "POST", f"/v1/topics/{level}/partitions/0/records", body, content_type=ARROW
                )
            ]
            for level in LEVELS
        }
        made, cpu_s = dict.fromkeys(LEVELS, 0), dict.fromkeys(LEVELS, 0.0)
        for turn in range(max(2, int(seconds / TURN_S))):
            for level in LEVELS if turn % 2 else reversed(LEVELS):
                began_s = server.cpu_s()
                done, _ = hammer(server.port, calls[level], 2, TURN_S)
                made[level] += done
                cpu_s[level] += server.cpu_s() - began_s
    rates = {level: made[level] * RECORDS / cpu_s[level] for level in LEVELS}
    show(
        f"100 B × {RECORDS:,} records a call, Arrow over HTTP, two connections",
        ["value.schema.validation", "records a CPU second", "ratio"],
        [[each, f"{rates[each]:,.0f}", f"{rates[each] / rates['none']:.2f}"] for each in LEVELS],
    )


async def validation() -> Validation:
    world = real_world()
    reader = SchemaReader(MemoryMetadata(world.new_version), world, HeavyWork())
    new = NewSchema(type=SchemaType.JSON, text=SCHEMA)
    await Registrar(reader).register(parse_subject(SUBJECT), new, normalize=False)
    return Validation(reader, SchemaCodecs(reader), HeavyWork())


def topic(level: str) -> Topic:
    config = {**SETTINGS, "value.schema.validation": level}
    stored = StoredTopic(bytes(16), 1, 1, config, 0)
    return items.decode(level, Versioned(items.encode(stored), "1"))


def alone() -> None:
    """Print what the checks take by themselves."""
    loop = asyncio.new_event_loop()
    checks = loop.run_until_complete(validation())
    columns = record_batch([0] * RECORDS, [None] * RECORDS, values())
    packed = encode(columns, base_offset=0, codec="lz4")
    ids, full = topic("id"), topic("full")

    def taken(*, keeps_open: bool) -> batches.Batches:
        return batches.check(
            packed,
            record_bytes_max=10**6,
            needs_keys=False,
            decompressed_bytes_max=10**8,
            keeps_open=keeps_open,
        )

    def checked(rules: Topic, came: pa.RecordBatch | batches.Batches) -> None:
        loop.run_until_complete(checks.check(rules, came))

    rows = [
        Row("Arrow: id", lambda: checked(ids, columns), RECORDS),
        Row("Arrow: full", lambda: checked(full, columns), RECORDS),
        Row("Kafka's batch, LZ4: no rules", lambda: taken(keeps_open=False), RECORDS),
        Row("the same: id", lambda: checked(ids, taken(keeps_open=True)), RECORDS),
        Row("the same: full", lambda: checked(full, taken(keeps_open=True)), RECORDS),
    ]
    print(f"\n{'checks of 1,000 records':<44} {'M records/s':>12}")
    for row, per_s in zip(rows, measured(rows), strict=True):
        print(f"{row.name:<44} {per_s / 1e6:>12.2f}")
    loop.close()


if __name__ == "__main__":
    over_http(float(sys.argv[1]) if len(sys.argv) > 1 else 6.0)
    alone()
