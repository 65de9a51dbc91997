"""A disk without room, and a process without descriptors: refused, told, and over when it ends."""

import os
import resource
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.gateway import GatewayProcess, free_port
from tests.integration.load import Ledger, load, new_ledger, wait_for_acks
from tests.integration.processes import TIMEOUT_S, Api
from tests.integration.zoned import until
from tests.torture.deployment import AS_OBJECTS, check_all, deployment
from tests.torture.sizes import MIB, ROUNDS, only_proof, some

REFUSED = 20
pytestmark = pytest.mark.slow

BOTH = pytest.mark.parametrize(
    "env", some([{}, AS_OBJECTS], AS_OBJECTS), ids=lambda env: "objects" if env else "table"
)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of its own for the data; yield a path on it for ballast."""
    data = tmp_path / "data"
    data.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(data)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield data / "ballast"
    finally:
        subprocess.run(["umount", "--lazy", str(data)], check=True)


def fill(ballast: Path) -> None:
    """Take all the room there is."""
    with ballast.open("ab", buffering=0) as sink:
        for size in (MIB, 4096, 1):
            with suppress(OSError):  # "No space left", sooner or later.
                while sink.write(b"x" * size):
                    pass


def wait_for_refusals(ledger: Ledger, count: int = REFUSED) -> None:
    before = len(ledger.refused) + len(ledger.unknown)
    until(lambda: len(ledger.refused) + len(ledger.unknown) >= before + count, "refusals")


@contextmanager
def on_a_full_disk(gateway: GatewayProcess, ballast: Path) -> Iterator[Ledger]:
    """Yield while the disk is full and producers are refused; then there is room again."""
    ledger = new_ledger(gateway)
    with load(ledger, [gateway.url]):
        wait_for_acks(ledger, 30)
        fill(ballast)
        try:
            wait_for_refusals(ledger)
            yield ledger
        finally:
            ballast.unlink()
        wait_for_acks(ledger, 50)


@BOTH
def test_a_full_disk_refuses_reads_on_and_recovers(
    tmp_path: Path, small_disk: Path, env: dict[str, str]
) -> None:
    with deployment(tmp_path, env).start() as gateway, Api(gateway.url) as api:
        other = api.topic()
        for _ in range(ROUNDS):
            with on_a_full_disk(gateway, small_disk) as ledger:
                (partition, offset), value = next(iter(ledger.acked.items()))
                page = api.fetch(ledger.topic, partition, offset=offset, max_records=1)
                assert [record["value"] for record in page["records"]] == [value]
                refusal = refused(api, other)
                assert refusal["code"] in {"STORAGE_UNAVAILABLE", "REQUEST_TIMED_OUT"}, refusal
                assert "space" in refusal["detail"] or "full" in refusal["detail"], refusal
            check_all(ledger, gateway, tmp_path)
            assert api.http.get("/ready").status_code == 200


def refused(api: Api, topic: str) -> dict[str, str]:
    """Produce until that is refused; return the problem. No book is kept of `topic`."""
    problems: list[dict[str, str]] = []

    def is_refused() -> bool:
        reply = api.send(topic, '{"records": [{"value": "%s"}]}' % ("x" * 100_000), partition=0)
        if reply.status_code != 200:
            assert reply.headers["content-type"] == "application/problem+json", reply.text
            problems.append(reply.json())
        return bool(problems)

    until(is_refused, "a refusal")
    return problems[0]


@only_proof
@BOTH
def test_a_gateway_that_dies_on_a_full_disk_has_lost_nothing(
    tmp_path: Path, small_disk: Path, env: dict[str, str]
) -> None:
    here, port = deployment(tmp_path, env), free_port()
    gateway = here.start(port=port)
    try:
        ledger = new_ledger(gateway)
        with load(ledger, [gateway.url]):
            wait_for_acks(ledger, 30)
            fill(small_disk)
            wait_for_refusals(ledger)
            gateway.kill()
        small_disk.unlink()
        gateway = here.start(port=port)
        with load(ledger, [gateway.url], seed=1):
            wait_for_acks(ledger, 30)
        check_all(ledger, gateway, tmp_path)
    finally:
        gateway.kill()


@BOTH
def test_a_full_disk_is_reported_to_operators(
    tmp_path: Path, small_disk: Path, env: dict[str, str]
) -> None:
    with (
        deployment(tmp_path, env).start() as gateway,
        httpx.Client(base_url=gateway.url, timeout=TIMEOUT_S) as client,
    ):
        with on_a_full_disk(gateway, small_disk):
            until(
                lambda: client.get("/ready").status_code == 503, "/ready tells", timeout_s=TIMEOUT_S
            )
            assert "space" in (told := client.get("/ready").json())["detail"], told
        until(lambda: client.get("/ready").status_code == 200, "/ready is ready again")
        assert "space" in gateway.log.read_text()


@contextmanager
def without_descriptors(gateway: GatewayProcess) -> Iterator[None]:
    """Let the gateway have few descriptors, and take those."""
    pid = gateway.process.pid
    open_now = len(os.listdir(f"/proc/{pid}/fd"))
    usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_now + 10, usual[1]))
    try:
        with ExitStack() as idle:
            for _ in range(60):
                idle.enter_context(socket.create_connection(("127.0.0.1", gateway.port)))
            yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)


def test_no_descriptors_left_refuses_and_recovers(tmp_path: Path) -> None:
    here = deployment(tmp_path, AS_OBJECTS)
    with here.start() as gateway, Api(gateway.url) as api:
        ledger = new_ledger(gateway)
        for turn in range(2 * ROUNDS):
            with load(ledger, [gateway.url], seed=turn):
                wait_for_acks(ledger, 30)
                with without_descriptors(gateway):
                    wait_for_refusals(ledger)
                wait_for_acks(ledger, 50)
        check_all(ledger, gateway, tmp_path)
        assert api.http.get("/ready").status_code == 200


@only_proof
def test_no_descriptors_left_is_reported_to_operators(tmp_path: Path) -> None:
    with (
        deployment(tmp_path, AS_OBJECTS).start() as gateway,
        httpx.Client(base_url=gateway.url, timeout=TIMEOUT_S) as client,
    ):
        ledger = new_ledger(gateway)
        assert client.get("/ready").status_code == 200  # Its connection is there from now on.
        with load(ledger, [gateway.url]):
            wait_for_acks(ledger, 30)
            with without_descriptors(gateway):
                wait_for_refusals(ledger)
                until(
                    lambda: client.get("/ready").status_code == 503,
                    "/ready tells",
                    timeout_s=TIMEOUT_S,
                )
            until(lambda: client.get("/ready").status_code == 200, "/ready is ready again")
        assert "files" in gateway.log.read_text()
