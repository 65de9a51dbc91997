"""A metadata table with a bit flipped: it is reported, and nothing is taken for garbage."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from storage.stores.metadata import Versioned
from storage.topics.items import decode
from tests.commands import riacho
from tests.gateway import GatewayProcess, start_gateway

ENV = {"RIACHO_TABLE_BATCH_BYTES_MAX": "0"}
"""Not in the table first: these tests look at objects."""

NOW = ("--unsafe", "--min-age", "0s")


def filled(tmp_path: Path) -> set[str]:
    """Run a gateway until there are records of two topics; return the objects that hold them."""
    with start_gateway(tmp_path, env=ENV) as gateway:
        for name in ("orders", "others"):
            body = {"name": name, "partitions": 1}
            assert httpx.post(f"{gateway.url}/v1/topics", json=body).status_code == 201
            for value in ("a", "b"):
                produced = produce(gateway, name, value)
                assert produced.status_code == 200
    found = objects(tmp_path)
    assert len(found) == 4
    return found


def produce(gateway: GatewayProcess, topic: str, value: str) -> httpx.Response:
    path = f"{gateway.url}/v1/topics/{topic}/records"
    return httpx.post(path, json={"records": [{"value": value}]})


def objects(tmp_path: Path) -> set[str]:
    zone = tmp_path / "data/zones/a"
    return {str(path.relative_to(zone)) for path in zone.rglob("*.seg")}


def flip(tmp_path: Path, kind: str) -> str:
    """Flip a bit in the key of the item of the topic `orders`, or of its head; return the key."""
    path = tmp_path / "data/metadata.db"
    with closing(sqlite3.connect(path)) as db:
        query = "SELECT value, version FROM item WHERE collection = 'topic' AND rest = 'orders'"
        topic = decode("orders", Versioned(*db.execute(query).fetchone()))
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    key = f"head/{topic.topic_id.hex()}/00000"
    sought = "topicorders" if kind == "topic" else key.replace("/0000", "0000")
    position = len(sought) - 1 if kind == "lane" else 0
    whole = bytearray(path.read_bytes())
    whole[whole.index(sought.encode()) + position] ^= 1
    path.write_bytes(whole)
    return key


def job(tmp_path: Path, *args: str, code: int = 0) -> dict[str, Any]:
    done = riacho(*args, "--data", str(tmp_path / "data"), "-o", "json", code=code)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("kind", ["head", "lane", "topic"])
def test_a_bit_flipped_in_a_key_is_found_and_stops_every_sweep(tmp_path: Path, kind: str) -> None:
    before = filled(tmp_path)
    assert job(tmp_path, "fsck")["ok"]
    assert job(tmp_path, "sweep", *NOW)["objects_removed"] == 0
    key = flip(tmp_path, kind)

    checked = job(tmp_path, "fsck", code=1)
    assert checked["problems"]["item"] >= 1
    # A lookup may go astray because of a damaged key before, so others may be told as well.
    lost = {each["key"]: each for each in checked["findings"] if each["problem"] == "head"}
    assert (key in lost) == (kind != "topic")
    if kind != "topic":
        assert "topic 'orders' exists" in lost[key]["detail"]

    for more in ((), ("--dry-run",), ("--no-spark",)):
        refused = riacho("sweep", *NOW, *more, "--data", str(tmp_path / "data"), code=1)
        assert b"riacho fsck" in refused.stderr
    riacho("maintain", "--data", str(tmp_path / "data"), code=1)
    assert objects(tmp_path) == before


def test_a_topic_without_a_head_is_not_called_deleted(tmp_path: Path) -> None:
    before = filled(tmp_path)
    flip(tmp_path, "lane")

    with start_gateway(tmp_path, env=ENV) as gateway:
        path = f"{gateway.url}/v1/topics/orders/partitions/0/records?at=earliest"
        for answer in (httpx.get(path), produce(gateway, "orders", "c")):
            problem = answer.json()
            assert (answer.status_code, problem["code"]) == (500, "HEAD_MISSING")
            assert (problem["retryable"], problem["may_have_applied"]) == (False, False)
            assert "riacho fsck" in problem["detail"]
        assert produce(gateway, "others", "c").status_code == 200
    assert before <= objects(tmp_path)
