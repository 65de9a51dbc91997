"""Zones on the command line: cluster, fsck, replicas; over a real gateway with three zones."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.commands import riacho
from tests.gateway import GatewayProcess, start_gateway

ZONES = ("--zones", "a,b,c")
QUICK = {
    "RIACHO_CONTROLLER_INTERVAL_S": "0.1",
    "RIACHO_CONTROLLER_SCAN_S": "0.2",
    "RIACHO_GATEWAY_HEARTBEAT_S": "0.5",
}
GIVE_UP_S = 300.0


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    with start_gateway(tmp_path, *ZONES, env=QUICK) as process:
        topic = {"name": "t", "partitions": 3, "replication_factor": 3}
        assert httpx.post(process.url + "/v1/topics", json=topic).status_code == 201
        for start in range(0, 300, 100):
            records = [
                {"key": f"key {n}", "value": f"value {n}"} for n in range(start, start + 100)
            ]
            sent = httpx.post(process.url + "/v1/topics/t/records", json={"records": records})
            assert sent.status_code == 200
        yield process


def cluster(url: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(url + "/v1/cluster").json()
    return found


def wait_until(url: str, **expected: int) -> dict[str, Any]:
    """Return the cluster when counts of partitions are as expected."""
    give_up_s = time.monotonic() + GIVE_UP_S
    while True:
        found = cluster(url)
        if all(found["partitions"][name] == count for name, count in expected.items()):
            return found
        assert time.monotonic() < give_up_s, found
        time.sleep(0.1)


def fsck(tmp_path: Path, *args: str, code: int = 0) -> dict[str, Any]:
    done = riacho("fsck", "--data", str(tmp_path / "data"), *ZONES, "-o", "json", *args, code=code)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_cluster_as_tables(gateway: GatewayProcess) -> None:
    give_up_s = time.monotonic() + GIVE_UP_S
    while cluster(gateway.url)["controller"] is None:
        assert time.monotonic() < give_up_s
    assert json.loads(riacho("cluster", "-o", "json", url=gateway.url).stdout)["topics"] == 1
    shown = riacho("cluster", url=gateway.url).stdout.decode()

    lines = [line.split() for line in shown.splitlines()]
    assert ["partitions", "3"] in lines
    assert ["under-replicated", "0"] in lines
    zones = [line for line in lines if line[:1] in (["a"], ["b"], ["c"])]
    assert [zone[2] for zone in zones] == ["online"] * 3
    assert [zone[4:7] for zone in zones] == [["1", "3", "3"]] * 3


def test_an_object_that_a_zone_in_sync_lost_is_copied_back(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    wait_for_marker(tmp_path)
    gateway.stop()
    [lost, *_] = sorted((tmp_path / "data/zones/b").glob("?/hot/*.seg"))
    lost.unlink()

    quick = {**QUICK, "RIACHO_CONTROLLER_VERIFY_EVERY_S": "0.1"}
    with start_gateway(tmp_path, *ZONES, env=quick) as again:
        give_up_s = time.monotonic() + GIVE_UP_S
        while (cluster(again.url)["verification"] or {}).get("repaired") != 1:
            assert time.monotonic() < give_up_s
            time.sleep(0.1)
        assert lost.exists()
        shown = riacho("cluster", url=again.url).stdout.decode()
        assert "1 repaired" in shown
    assert fsck(tmp_path)["ok"]


def test_a_zone_that_is_wiped_is_filled_again_and_fsck_says_so(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    wait_for_marker(tmp_path)
    healthy = fsck(tmp_path)
    assert healthy["ok"]
    assert set(healthy["zones"]) == {"a", "b", "c"}
    gateway.stop()
    zone = tmp_path / "data/zones/b"
    hot = sorted(zone.glob("?/hot/*.seg"))

    shutil.rmtree(zone)
    found = fsck(tmp_path, code=1)
    assert found["problems"] == {"missing": found["zones"]["a"]["objects"]}
    with start_gateway(tmp_path, *ZONES, env=QUICK) as again:
        wait_until(again.url, under_replicated=3)
        give_up_s = time.monotonic() + GIVE_UP_S
        while sorted(zone.glob("?/hot/*.seg")) != hot:
            assert time.monotonic() < give_up_s
            time.sleep(0.1)
        assert fsck(tmp_path)["problems"] == {}
        values = riacho("consume", "t", "-e", "-f", "%v\\n", url=again.url).stdout.splitlines()
        assert len(values) == 300


def wait_for_marker(tmp_path: Path) -> None:
    """Return when the controller knows what the zone should have."""
    give_up_s = time.monotonic() + GIVE_UP_S
    while not list((tmp_path / "data/zones/b").glob("?/zone/*.marker")):
        assert time.monotonic() < give_up_s
        time.sleep(0.05)


def test_fsck_finds_a_flipped_bit_and_a_file_cut_short(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    gateway.stop()
    [one, *_] = sorted((tmp_path / "data/zones/c").glob("?/hot/*.seg"))
    whole = one.read_bytes()
    flipped = bytearray(whole)
    flipped[20] ^= 1

    one.write_bytes(bytes(flipped))
    damaged = fsck(tmp_path, "t", code=1)
    assert damaged["zones"]["c"]["problems"] == {"checksum": 1}
    assert fsck(tmp_path, "--sizes-only")["ok"]
    one.write_bytes(whole[:-1])
    assert fsck(tmp_path, "--sizes-only", code=1)["zones"]["c"]["problems"] == {"size": 1}

    args = ["fsck", "--data", str(tmp_path / "data"), *ZONES]
    failed = riacho(*args, code=1)
    assert b"instead of" in failed.stdout
    assert b"1 things are wrong in 1 lanes" in failed.stderr
    one.write_bytes(whole)
    table = riacho(*args).stdout.decode().splitlines()
    assert table[0].split()[:3] == ["ZONE", "OBJECTS", "BYTES"]
    assert riacho("fsck", "nope", "--data", str(tmp_path / "data"), code=1).stdout == b""


def test_replicas_are_moved_from_the_command_line(gateway: GatewayProcess) -> None:
    riacho("topic", "alter", "t", "--replicas", "c,a", url=gateway.url)
    wait_until(gateway.url, reassigning=0)

    topic = json.loads(riacho("topic", "describe", "t", "-o", "json", url=gateway.url).stdout)
    assert topic["replication_factor"] == 2
    for partition in topic["partition_details"]:
        assert sorted(partition["replicas"]) == sorted(partition["isr"]) == ["a", "c"]
    riacho("topic", "alter", "t", "-r", "3", url=gateway.url)
    wait_until(gateway.url, reassigning=0, under_replicated=0)
    failed = riacho("topic", "alter", "t", "--replicas", "a,z", url=gateway.url, code=1)
    assert b"there is no zone 'z'" in failed.stderr
    riacho("topic", "alter", "t", url=gateway.url, code=2)
