"""Jobs on the command line: real gateways, real stores, real processes, real signals."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from riacho.cli.main import cli
from service.jobs.lease import NAME, held
from service.jobs.stores import opened
from service.settings import Settings
from service.world.clock import real_world
from storage import keys, leases
from storage.leases import LeaseItem
from storage.stores.metadata import Put
from tests.commands import riacho, riacho_process
from tests.gateway import GatewayProcess, start_gateway
from tests.torture.sizes import only_proof

GIVE_UP_S = 100.0
KEYS = 40
ROUNDS = 4
COMPACT = {"cleanup.policy": "compact"}
ROOT = Path(__file__).parents[3]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    with start_gateway(tmp_path) as process:
        yield process


def fill(url: str, name: str, config: dict[str, str] | None = None) -> dict[str, str]:
    """Create a topic and write every key several times; return the last value of each."""
    topic = {"name": name, "partitions": 3, "config": config or {}}
    assert httpx.post(url + "/v1/topics", json=topic, timeout=GIVE_UP_S).status_code == 201
    last = {}
    for n in range(ROUNDS):
        last = {f"key {k}": f"value {n} of {k}" for k in range(KEYS)}
        records = [{"key": key, "value": value} for key, value in last.items()]
        path = f"{url}/v1/topics/{name}/records"
        sent = httpx.post(path, json={"records": records}, timeout=GIVE_UP_S)
        assert sent.status_code == 200
    return last


def read(url: str, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for partition in range(3):
        path = f"{url}/v1/topics/{name}/partitions/{partition}/records"
        found += httpx.get(path, params={"at": "earliest"}, timeout=GIVE_UP_S).json()["records"]
    return found


def stores(tmp_path: Path) -> tuple[str, str]:
    return "--data", str(tmp_path / "data")


def wait_until(holds: Callable[[], object], what: Callable[[], object]) -> None:
    give_up_s = time.monotonic() + GIVE_UP_S
    while not holds():
        assert time.monotonic() < give_up_s, what()
        time.sleep(0.05)


def jobs(*args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "service.jobs", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=ROOT)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_compaction_keeps_the_last_of_each_key_and_says_what_it_did(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    last = fill(gateway.url, "t", COMPACT)

    planned = json.loads(
        riacho("compact", "t", "--dry-run", "-o", "json", *stores(tmp_path)).stdout
    )
    assert len(read(gateway.url, "t")) == ROUNDS * KEYS
    done = json.loads(riacho("compact", "t", "-o", "json", *stores(tmp_path)).stdout)
    again = riacho("compact", "t", *stores(tmp_path)).stdout.decode()
    checked = json.loads(riacho("fsck", "-o", "json", *stores(tmp_path)).stdout)

    assert planned["dry_run"]
    assert (done["records_in"], done["records_out"]) == (ROUNDS * KEYS, KEYS)
    assert done["bytes_in"] > done["bytes_out"] > 0
    assert done["ok"]
    assert not done["failed"]
    assert again.startswith("compacted 0 partitions")
    assert "left 3 partitions" in again
    assert checked["ok"]
    assert {each["key"]: each["value"] for each in read(gateway.url, "t")} == last
    assert len(read(gateway.url, "t")) == KEYS


def test_little_is_merged_only_if_somebody_insists(gateway: GatewayProcess, tmp_path: Path) -> None:
    fill(gateway.url, "t")
    before = read(gateway.url, "t")

    left = riacho("compact", *stores(tmp_path)).stdout.decode()
    done = json.loads(riacho("compact", "t", "-o", "json", *stores(tmp_path)).stdout)

    assert "left 3 partitions" in left
    assert done["records_in"] == done["records_out"] == ROUNDS * KEYS
    assert read(gateway.url, "t") == before


def test_maintenance_does_all_of_it(gateway: GatewayProcess, tmp_path: Path) -> None:
    last = fill(gateway.url, "t", COMPACT)

    told = riacho("maintain", *stores(tmp_path)).stdout.decode()
    done = json.loads(jobs("maintain", "-o", "json", *stores(tmp_path)).stdout)

    assert [line.split(":")[0] for line in told.splitlines() if "compacted" in line] == ["compact"]
    assert done["ok"]
    assert list(done) == ["ok", "retention", "compact", "sweep"]
    assert {each["key"]: each["value"] for each in read(gateway.url, "t")} == last


def test_maintenance_of_nothing_is_fine(tmp_path: Path) -> None:
    told = riacho("maintain", *stores(tmp_path)).stdout.decode()

    assert "sweep: left out: the metadata table has no topic" in told


def test_what_cannot_be_done_is_said_in_a_line(gateway: GatewayProcess, tmp_path: Path) -> None:
    unknown = riacho("compact", "nosuch", *stores(tmp_path), code=1)
    usage = riacho("compact", "--concurrency", "0", *stores(tmp_path), code=2)
    master = riacho("compact", "--spark", "--master", "x", *stores(tmp_path), code=1)
    alone = riacho("fsck", "--master", "local", *stores(tmp_path), code=2)

    assert b"there is no topic 'nosuch'" in unknown.stderr
    assert b"--concurrency" in usage.stderr
    assert b"'x' is not a Spark master" in master.stderr
    assert b"only --spark has a master" in alone.stderr
    assert "nosuch" in jobs("compact", "nosuch", *stores(tmp_path), code=1).stderr
    jobs("compact", "--concurrency", "0", code=2)


def test_without_java_it_says_what_to_install(
    gateway: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    fill(gateway.url, "t")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    # In a process of its own: this one may have a Spark session already.
    failed = riacho_process("compact", "t", "--spark", *stores(tmp_path), code=1)
    done = riacho("compact", "t", *stores(tmp_path))

    assert b"install a Java runtime" in failed.stdout + failed.stderr
    assert done.stdout.startswith(b"compacted 3 partitions")


# Jobs that meet


@contextlib.contextmanager
def another_job(tmp_path: Path) -> Iterator[None]:
    """Hold the lease, and renew it, until the end."""
    settings = Settings(data=tmp_path / "data")
    held_now, over = threading.Event(), threading.Event()

    async def hold() -> None:
        world = real_world()
        async with (
            opened(settings, world) as each,
            held(each.metadata, world, "another job", lease_s=2),
        ):
            held_now.set()
            while not over.is_set():
                await asyncio.sleep(0.05)

    thread = threading.Thread(target=lambda: asyncio.run(hold()))
    thread.start()
    assert held_now.wait(GIVE_UP_S)
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_two_jobs_do_not_run_at_once(gateway: GatewayProcess, tmp_path: Path) -> None:
    with another_job(tmp_path):
        refused = riacho("compact", *stores(tmp_path), code=1)
        planned = riacho("compact", "--dry-run", *stores(tmp_path))
    riacho("compact", *stores(tmp_path))

    assert b"another job on " in refused.stderr
    assert b"MAINTENANCE_RUNNING" in refused.stderr
    assert b"would be compacted" in planned.stdout


def waiting_job(tmp_path: Path, *args: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "service.jobs", "compact", "--wait", "1000", *args]
    return subprocess.Popen(
        [*command, *stores(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )


def test_who_waits_gets_its_turn(gateway: GatewayProcess, tmp_path: Path) -> None:
    with another_job(tmp_path):
        job = waiting_job(tmp_path)
    out, _ = job.communicate(timeout=GIVE_UP_S)

    assert job.returncode == 0
    assert out.startswith(b"compacted 0 partitions")


def test_a_job_that_is_told_to_stop_stops(gateway: GatewayProcess, tmp_path: Path) -> None:
    with another_job(tmp_path):
        terminated = waiting_job(tmp_path)
        orphaned = waiting_job(tmp_path, "--until-eof")
        # Before it is ready, a signal ends it as it ends any process.
        terminated.send_signal(signal.SIGTERM)
        orphaned.communicate(timeout=GIVE_UP_S)
        terminated.communicate(timeout=GIVE_UP_S)

    assert orphaned.returncode == 143
    assert terminated.returncode in (143, -signal.SIGTERM)


# On schedule


def children(pid: int) -> list[int]:
    """Return the jobs among the children of a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            command = path.with_name("cmdline").read_bytes().split(b"\0")
            if fields[0] != "Z" and int(fields[1]) == pid and b"service.jobs" in command:
                found.append(int(path.parent.name))
    return found


def is_gone(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


async def leave_a_dead_lease(tmp_path: Path) -> None:
    """Have every job wait until it is sure that the holder is dead."""
    async with opened(Settings(data=tmp_path / "data")) as each:
        value = leases.encode(LeaseItem("dead", 1))
        await each.metadata.transact([Put(keys.lease(NAME), value, None)])


def test_a_gateway_keeps_its_log_tidy(tmp_path: Path) -> None:
    # A run may come between two writes; with this, the next one is due all the same.
    config = COMPACT | {"min.cleanable.dirty.ratio": "0"}

    with start_gateway(tmp_path, "--maintain-every", "1s") as process:
        last = fill(process.url, "t", config)
        wait_until(lambda: len(read(process.url, "t")) == KEYS, process.log.read_text)
        found = {each["key"]: each["value"] for each in read(process.url, "t")}
        wait_until(lambda: "maintenance: sweep: " in process.log.read_text(), process.log.read_text)

    assert found == last
    assert "maintenance: compact: compacted" in process.log.read_text()
    assert "Traceback" not in process.log.read_text()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_maintenance_ends_with_the_gateway(tmp_path: Path, number: signal.Signals) -> None:
    asyncio.run(leave_a_dead_lease(tmp_path))
    process = start_gateway(tmp_path, "--maintain-every", "100ms", "--workers", "2")
    try:
        pid = process.process.pid
        wait_until(lambda: children(pid), process.log.read_text)
        [child] = children(pid)
        # Ten steps behind us, or it has not come to that yet.
        assert os.getpriority(os.PRIO_PROCESS, child) - os.nice(0) in (0, 10)
        os.kill(pid, number)
        wait_until(lambda: is_gone(child), process.log.read_text)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        process.process.wait()


def test_maintenance_that_fails_is_logged_and_tried_again(tmp_path: Path) -> None:
    with start_gateway(tmp_path, "--maintain-every", "100ms") as process, another_job(tmp_path):
        wait_until(
            lambda: process.log.read_text().count("maintenance ended with exit code 1") >= 2,
            process.log.read_text,
        )
        assert "another job on" in process.log.read_text()
        assert httpx.get(process.url + "/v1/topics", timeout=GIVE_UP_S).status_code == 200


@pytest.mark.parametrize("text", ["5", "m", "0s", "5 minutes", "-1s"])
def test_a_schedule_that_is_none_is_refused(text: str) -> None:
    refused = riacho("serve", f"--maintain-every={text}", code=2)

    assert b"--maintain-every" in refused.stderr


def test_what_is_in_memory_cannot_be_maintained() -> None:
    refused = riacho_process("serve", "--maintain-every", "5m", "--metadata", "memory://", code=1)

    assert b"stores that are in memory" in refused.stderr


# With Spark. A JVM takes its time to start, and more where others work as well.

JVM_S_MAX = 400


def spark_job(*command: str | Path, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    done = subprocess.run(
        command,
        capture_output=True,
        timeout=JVM_S_MAX,
        env={**os.environ, **environment},
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done


@pytest.mark.slow
@pytest.mark.timeout(2 * JVM_S_MAX)
def test_compaction_starts_spark_and_says_so(gateway: GatewayProcess, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    last = fill(gateway.url, "t", COMPACT)

    compacted = spark_job(
        *(sys.executable, "-m", "riacho", "compact", "t"),
        *("--spark", "--master", "local[2]", *stores(tmp_path)),
    )

    assert compacted.stdout.startswith(b"compacted 3 partitions")
    said = compacted.stderr.decode().splitlines()
    assert said[0] == "compact: starting Spark on local[2]"
    assert all(line.startswith("compact: ") for line in said), said
    assert {each["key"]: each["value"] for each in read(gateway.url, "t")} == last


def fsck(gateway: GatewayProcess, tmp_path: Path) -> Any:
    """Return what fsck finds without Spark, which is in order."""
    fill(gateway.url, "t", COMPACT)
    riacho("compact", "t", *stores(tmp_path))
    found = json.loads(riacho("fsck", "-o", "json", *stores(tmp_path)).stdout)
    assert found["ok"]
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_sparks_workers_find_what_fsck_finds(gateway: GatewayProcess, tmp_path: Path) -> None:
    here = fsck(gateway, tmp_path)

    found = CliRunner().invoke(cli, ["fsck", "--spark", "-o", "json", *stores(tmp_path)])

    assert found.exit_code == 0, found.stderr
    assert json.loads(found.stdout) == here


@only_proof
@pytest.mark.slow
@pytest.mark.timeout(2 * JVM_S_MAX)
def test_fsck_starts_a_spark_of_its_own(gateway: GatewayProcess, tmp_path: Path) -> None:
    here = fsck(gateway, tmp_path)

    python = (sys.executable, "-m", "riacho")
    there = spark_job(*python, "fsck", "--spark", "-o", "json", *stores(tmp_path))

    assert json.loads(there.stdout) == here


@pytest.mark.slow
@pytest.mark.timeout(2 * JVM_S_MAX)
def test_a_job_is_submitted_as_a_file(gateway: GatewayProcess, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    fill(gateway.url, "t")

    done = spark_job(
        Path(sys.executable).with_name("spark-submit"),
        *("--master", "local[2]", "--conf", "spark.ui.enabled=false"),
        ROOT / "service" / "jobs" / "__main__.py",
        *("compact", "t", "-o", "json", *stores(tmp_path)),
        PYSPARK_PYTHON=sys.executable,
        PYTHONPATH="",
    )

    # What goes to stderr, spark-submit lets come out of stdout.
    document = done.stdout.decode().partition("{")
    assert json.loads("".join(document[1:]))["records_out"] == ROUNDS * KEYS
