"""`table.columns=true`: from the registry to `SELECT value_.amount` in DuckDB."""

import io
import json
import struct
import subprocess
import sys
from base64 import b64decode
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import fastavro
import httpx
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from riacho import Admin, Producer
from storage.errors import InvalidConfig
from tests.gateway import start_gateway

ROOT = Path(__file__).parents[3]

MONEY = {
    "type": "record",
    "name": "Money",
    "fields": [
        {
            "name": "amount",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        }
    ],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "price", "type": "Money"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
NOTE = {"type": "object", "properties": {"note": {"type": "string"}}}
PROTO = """syntax = "proto3";
message First { message Inner { uint64 big = 1; repeated string names = 2; } }
"""


def run(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "service.jobs", *arguments, "--no-spark"]
    command += ["--data", str(folder / "data")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def register(url: str, subject: str, schema: str, **more: Any) -> dict[str, Any]:
    answer = httpx.post(f"{url}/subjects/{subject}/versions", json={"schema": schema, **more})
    assert answer.is_success, answer.text
    found: dict[str, Any] = answer.json()
    return found


def framed(schema_id: int, data: bytes) -> bytes:
    return struct.pack(">BI", 0, schema_id) + data


def avro(value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    parsed: dict[str, Any] = {}
    fastavro.parse_schema(MONEY, parsed)
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER, parsed), value)
    return out.getvalue()


def inner() -> bytes:
    file = FileDescriptorProto(name="f", syntax="proto3")
    message = file.message_type.add(name="Inner")
    message.field.add(name="big", number=1, type=4, label=1)
    message.field.add(name="names", number=2, type=9, label=3)
    pool = DescriptorPool()
    pool.Add(file)
    kind = GetMessageClass(pool.FindMessageTypeByName("Inner"))
    return kind(big=2**64 - 1, names=["a", "b"]).SerializeToString()


def files(url: str, topic: str) -> list[str]:
    found = httpx.get(f"{url}/v1/topics/{topic}/partitions/0/segments").json()["segments"]
    assert {each["format"] for each in found} == {"parquet"}
    return sorted({each["url"].removeprefix("file://") for each in found})


def test_columns_of_the_registrys_schemas_beside_raw_bytes(tmp_path: Path) -> None:
    with start_gateway(tmp_path) as gateway, Admin(gateway.url) as admin:
        sealed = {"encryption": "topic", "encryption.kek": "file:kek", "table.columns": "true"}
        with pytest.raises(InvalidConfig, match=r"table\.columns=true does not go with encryption"):
            admin.create_topic("sealed", config=sealed)
        admin.create_topic("orders", config={"table.columns": "true"})
        register(gateway.url, "money", json.dumps(MONEY))
        uses = [{"name": "Money", "subject": "money", "version": 1}]
        order = register(gateway.url, "orders-value", json.dumps(ORDER), references=uses)["id"]
        note = register(gateway.url, "note", json.dumps(NOTE), schemaType="JSON")
        proto = register(gateway.url, "proto", PROTO, schemaType="PROTOBUF")["id"]
        text = register(gateway.url, "orders-key", json.dumps("string"))["id"]
        guid = b"\x01" + UUID(note["guid"]).bytes
        price = {"price": {"amount": Decimal("12.34")}, "at": 1_700_000_000_123}
        values: list[bytes | None] = [
            framed(order, avro(price)),
            json.dumps({"note": "hi", "other": 1}).encode(),
            framed(proto, b"\x04\x00\x00" + inner()),
            b"plain",
            framed(order, b"\xff"),
            None,
        ]
        with Producer(gateway.url) as producer:
            for number, value in enumerate(values):
                headers = [("__value_schema_id", guid)] if number == 1 else []
                key = framed(text, b"\x02" + str(number).encode())
                producer.send("orders", key=key, value=value, partition=0, headers=headers)
        run(tmp_path, "compact", "orders")

        fields = "epoch_ms(value_.at), value_.price.amount, value_.note, value_.big, value_.names"
        found = duckdb.sql(
            f"SELECT {fields}, key_, value FROM read_parquet({files(gateway.url, 'orders')})"
        )
        assert found.fetchall() == [
            (1_700_000_000_123, Decimal("12.34"), None, None, None, "0", values[0]),
            (None, None, "hi", None, None, "1", values[1]),
            (None, None, None, Decimal(2**64 - 1), ["a", "b"], "2", values[2]),
            *[(None,) * 5 + (str(n), values[n]) for n in range(3, 6)],
        ]
        path = f"{gateway.url}/v1/topics/orders/partitions/0/records"
        fetched = httpx.get(path, params={"value_format": "base64"}).json()["records"]
        encoded = [each["value_base64"] for each in fetched]
        assert [None if e is None else b64decode(e) for e in encoded] == values
