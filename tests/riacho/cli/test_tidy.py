"""Retention, delete-records and sweep on the command line, beside a real gateway."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.jobs.lease import held
from service.jobs.stores import opened
from service.settings import Settings
from service.world.clock import real_world
from tests.commands import riacho
from tests.gateway import GatewayProcess, start_gateway

LONG_AGO_MS = 1_500_000_000_000
NOW = ("--unsafe", "--min-age", "0s")
"""Nobody writes while these tests sweep."""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    # Not in the table first: these tests look at objects.
    with start_gateway(tmp_path, env={"RIACHO_TABLE_BATCH_BYTES_MAX": "0"}) as process:
        yield process


def topic(gateway: GatewayProcess, name: str, partitions: int = 1, **config: object) -> None:
    body = {"name": name, "partitions": partitions, "config": config}
    assert httpx.post(gateway.url + "/v1/topics", json=body).status_code == 201


def produce(
    gateway: GatewayProcess, name: str, *values: str, old: bool = False, partition: int = 0
) -> None:
    stamp = {"timestamp": LONG_AGO_MS} if old else {}
    body = {"records": [{"value": value, **stamp} for value in values]}
    path = f"/v1/topics/{name}/partitions/{partition}/records"
    assert httpx.post(gateway.url + path, json=body).status_code == 200


def values(gateway: GatewayProcess, name: str, partition: int = 0) -> list[str]:
    path = f"/v1/topics/{name}/partitions/{partition}/records?at=earliest"
    return [each["value"] for each in httpx.get(gateway.url + path).json()["records"]]


def job(tmp_path: Path, *args: str, code: int = 0) -> dict[str, Any]:
    done = riacho(*args, "--data", str(tmp_path / "data"), "-o", "json", code=code)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def objects(tmp_path: Path) -> set[str]:
    zone = tmp_path / "data/zones/a"
    return {str(path.relative_to(zone)) for path in zone.rglob("*.*") if path.is_file()}


def test_what_is_old_goes_and_so_do_its_objects(gateway: GatewayProcess, tmp_path: Path) -> None:
    topic(gateway, "t", 2, **{"retention.ms": 3_600_000})
    topic(gateway, "kept", **{"retention.ms": -1})
    produce(gateway, "t", "a", "b", old=True)
    produce(gateway, "t", "c")
    produce(gateway, "t", "d", old=True)
    produce(gateway, "kept", "x", old=True)

    dry = job(tmp_path, "retention", "--dry-run")
    assert dry["offsets"] == 2
    assert values(gateway, "t") == ["a", "b", "c", "d"]
    done = job(tmp_path, "retention")
    assert done["partitions"] == [
        {"topic": "t", "partition": 0, "before": 0, "after": 2, "size_bytes": done["bytes"]}
    ]
    assert job(tmp_path, "retention", "t")["offsets"] == 0

    assert values(gateway, "t") == ["c", "d"]
    assert values(gateway, "kept") == ["x"]
    shown = riacho("retention", "kept", "--data", str(tmp_path / "data")).stdout
    assert shown.decode().startswith("0 offsets of 0 partitions")

    # Nothing is old enough to be swept yet, unless one insists.
    assert job(tmp_path, "sweep")["objects_removed"] == 0
    before = objects(tmp_path)
    assert job(tmp_path, "sweep", "--dry-run", *NOW)["zones"]["a"]["orphans"]["hot"]["objects"] == 1
    assert objects(tmp_path) == before
    swept = job(tmp_path, "sweep", *NOW)
    assert (swept["objects_removed"], swept["complete"]) == (1, True)
    assert len(objects(tmp_path)) == len(before) - 1
    assert values(gateway, "t") == ["c", "d"]
    assert job(tmp_path, "fsck")["ok"]


def test_so_much_stays_and_not_more(gateway: GatewayProcess, tmp_path: Path) -> None:
    topic(gateway, "t", **{"retention.bytes": 1})
    for value in "abc":
        produce(gateway, "t", value)

    assert job(tmp_path, "retention")["offsets"] == 2
    assert values(gateway, "t") == ["c"]


def test_records_are_deleted_up_to_an_offset(gateway: GatewayProcess) -> None:
    topic(gateway, "t", 2)
    produce(gateway, "t", *"abc")
    produce(gateway, "t", "x", partition=1)

    done = riacho(
        "topic", "delete-records", "t", "-p", "0", "--before", "2", "-o", "json", url=gateway.url
    )
    assert json.loads(done.stdout) == [{"partition": 0, "log_start_offset": 2}]
    assert values(gateway, "t") == ["c"]
    shown = riacho("topic", "delete-records", "t", "--before", "latest", url=gateway.url).stdout
    assert shown.decode().split() == ["PARTITION", "START", "0", "3", "1", "1"]

    refused = riacho("topic", "delete-records", "t", "--before", "9", url=gateway.url, code=1)
    assert b"OFFSET_OUT_OF_RANGE" in refused.stderr
    for before in ("", "-1", "soon"):
        wrong = riacho("topic", "delete-records", "t", "--before", before, url=gateway.url, code=2)
        assert b"--before" in wrong.stderr


def test_a_deleted_topic_is_swept_in_steps(gateway: GatewayProcess, tmp_path: Path) -> None:
    topic(gateway, "t")
    topic(gateway, "other")
    for value in "abc":
        produce(gateway, "t", value)
    produce(gateway, "other", "stays")
    assert httpx.delete(gateway.url + "/v1/topics/t").status_code == 204
    (tmp_path / "data/zones/a/notes.txt").write_text("mine")

    first = job(tmp_path, "sweep", *NOW, "--limit", "1")
    assert (first["objects_removed"], first["complete"]) == (1, False)
    shown = riacho("sweep", *NOW, "--data", str(tmp_path / "data")).stdout.decode()
    assert "removed 2 objects" in shown
    assert "not ours" in shown
    assert objects(tmp_path) >= {"notes.txt"}
    assert values(gateway, "other") == ["stays"]


def test_impossible_options_are_refused(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    assert b"no topic" in riacho("sweep", *data, code=1).stderr
    assert b"--min-age" in riacho("sweep", *data, "--min-age", "1 fortnight", code=2).stderr
    assert b"15 minutes" in riacho("sweep", *data, "--min-age", "14m", code=1).stderr
    assert b"UNKNOWN_TOPIC_OR_PARTITION" in riacho("retention", "t", *data, code=1).stderr


def test_one_job_at_a_time(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data")

    async def try_both() -> None:
        async with (
            opened(settings) as stores,
            held(stores.metadata, real_world(), "something else", lease_s=3.0),
        ):
            for name in ("sweep", "retention"):
                busy = await asyncio.to_thread(
                    riacho, name, "--data", str(tmp_path / "data"), code=1
                )
                assert b"something else on" in busy.stderr
                assert b"--wait" in busy.stderr
            # To look needs no lease.
            await asyncio.to_thread(
                riacho, "retention", "--dry-run", "--data", str(tmp_path / "data")
            )

    asyncio.run(try_both())
