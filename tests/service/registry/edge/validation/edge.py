"""A gateway whose topics ask for schemas, and clients that write to it in every way."""

import base64
import io
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from urllib.parse import quote

import httpx
import pyarrow as pa

from service.process.limits.heavy_work import HeavyWork
from service.registry.names import parse_subject
from service.registry.reading import SchemaReader
from service.registry.registering import NewSchema, Registrar
from storage.formats.records import RECORD_SCHEMA
from storage.schemas.source import SchemaType
from tests.fuzz.deployment import Deployment

ORDER: Final = {
    "type": "object",
    "title": "Order",
    "properties": {"amount": {"type": "integer"}},
    "required": ["amount"],
}


class Edge:
    def __init__(self, deployed: Deployment) -> None:
        self.deployed = deployed

    async def ask(self, call: str, body: Any = None, **given: Any) -> httpx.Response:
        method, path = call.split(" ", 1)
        if body is not None:
            given["json"] = body
        return await self.deployed.http.request(method, path, **given)

    async def done(self, call: str, body: Any = None, **given: Any) -> Any:
        answer = await self.ask(call, body, **given)
        assert answer.is_success, answer.text
        return answer.json()

    async def register(self, subject: str, schema: Any, kind: str = "JSON") -> dict[str, Any]:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        path = f"/subjects/{quote(subject, safe='')}/versions"
        found: dict[str, Any] = await self.done(
            f"POST {path}", {"schema": text, "schemaType": kind}
        )
        return found

    async def register_elsewhere(self, subject: str, schema: Any) -> int:
        """Register at another gateway, of which this one hears nothing."""
        gateway = self.deployed.gateway
        reader = SchemaReader(gateway.metadata, gateway.world, HeavyWork())
        new = NewSchema(type=SchemaType.JSON, text=json.dumps(schema))
        done = await Registrar(reader).register(parse_subject(subject), new, False)
        return done.schema.schema_id

    async def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Create a topic; in names of settings, `_` is a dot."""
        named = {name.replace("_", "."): text for name, text in config.items()}
        body = {"name": topic, "partitions": partitions, "config": named}
        await self.done("POST /v1/topics", body)

    async def produce(self, topic: str, *records: dict[str, Any]) -> httpx.Response:
        return await self.ask(f"POST /v1/topics/{topic}/records", {"records": records})

    async def refused(self, topic: str, *records: dict[str, Any]) -> dict[str, Any]:
        """Produce what is refused; return what is said of the first record at fault."""
        answer = await self.produce(topic, *records)
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_RECORD"), answer.text
        found: dict[str, Any] = answer.json()["records"][0]
        return found

    async def accepted(self, topic: str, *records: dict[str, Any]) -> None:
        answer = await self.produce(topic, *records)
        assert answer.status_code == 200, answer.text

    async def count(self, topic: str) -> int:
        found = await self.done(f"GET /v1/topics/{topic}/partitions")
        return sum(each["high_watermark"] for each in found["partitions"])


def framed(schema_id: int, data: bytes = b'{"amount": 1}') -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + data


def value(data: bytes) -> dict[str, str]:
    return {"value_base64": base64.b64encode(data).decode()}


def key(data: bytes) -> dict[str, str]:
    return {"key_base64": base64.b64encode(data).decode()}


def header(name: str, data: bytes) -> dict[str, Any]:
    return {"headers": [{"key": name, "value_base64": base64.b64encode(data).decode()}]}


Write = Callable[[Edge, Sequence[bytes | None]], Awaitable[httpx.Response]]
"""Writes values to topic t, which has 3 partitions."""


def _records(values: Sequence[bytes | None]) -> list[dict[str, Any]]:
    return [{"value": None} if data is None else value(data) for data in values]


async def as_json(edge: Edge, values: Sequence[bytes | None]) -> httpx.Response:
    return await edge.produce("t", *_records(values))


async def to_a_partition(edge: Edge, values: Sequence[bytes | None]) -> httpx.Response:
    body = {"records": _records(values)}
    return await edge.ask("POST /v1/topics/t/partitions/1/records", body, params={"acks": "1"})


async def without_acks(edge: Edge, values: Sequence[bytes | None]) -> httpx.Response:
    body = {"records": _records(values)}
    return await edge.ask("POST /v1/topics/t/records", body, params={"acks": "0"})


async def as_lines(edge: Edge, values: Sequence[bytes | None]) -> httpx.Response:
    content = "\n".join(map(json.dumps, _records(values)))
    kind = {"content-type": "application/x-ndjson"}
    return await edge.ask("POST /v1/topics/t/records", content=content, headers=kind)


async def as_columns(edge: Edge, values: Sequence[bytes | None]) -> httpx.Response:
    count = len(values)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([0] * count, pa.int64()),
            pa.nulls(count, pa.binary()),
            pa.array(values, pa.binary()),
            pa.nulls(count, RECORD_SCHEMA.field("headers").type),
        ],
        schema=RECORD_SCHEMA,
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, RECORD_SCHEMA) as stream:
        stream.write_batch(batch)
    kind = {"content-type": "application/vnd.apache.arrow.stream"}
    return await edge.ask("POST /v1/topics/t/records", content=sink.getvalue(), headers=kind)


async def atomically(edge: Edge, values: Sequence[bytes | None]) -> httpx.Response:
    records = [{"topic": "t", **each} for each in _records(values)]
    return await edge.ask("POST /v1/atomic", {"records": records})


async def in_a_transaction(edge: Edge, values: Sequence[bytes | None]) -> httpx.Response:
    begun = await edge.done("POST /v1/transactions", {"transactional_id": "x"})
    answer = await edge.ask(
        "POST /v1/topics/t/records",
        {"records": _records(values)},
        headers={"riacho-transaction": begun["transaction_id"]},
    )
    await edge.done(f"POST /v1/transactions/{begun['transaction_id']}/commit", {})
    return answer


WRITES: Final[list[Write]] = [
    as_json,
    to_a_partition,
    without_acks,
    as_lines,
    as_columns,
    atomically,
    in_a_transaction,
]
