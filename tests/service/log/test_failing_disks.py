"""Disks that are full or fail, and no descriptors: it is logged, told, and found to be over."""

import errno
import logging
import os
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path

import httpx
import pytest

from service.app import App
from service.controller.live_gateways import LiveGateways
from service.http.metrics import Metrics
from service.log.gateway import Gateway
from service.process.store_watch import StoreWatch
from service.settings import Settings
from service.world.clock import real_world
from storage.errors import DiskFailing, OutcomeUnknown, RiachoError
from storage.stores.directory import DirectoryObjects
from storage.stores.memory import MemoryMetadata
from storage.stores.metadata import MetadataStore, Put
from storage.stores.objects import ObjectStore
from storage.stores.sqlite.table import SqliteMetadata
from storage.stores.trouble import LOGGED_EVERY_S, Trouble
from storage.zones.zones import Zones

pytestmark = pytest.mark.anyio


class FailingDirectory(DirectoryObjects):
    """A directory on a disk that fails with `number` as long as that is set."""

    number = 0

    def _write(self, key: str, path: Path, parts: object) -> None:
        if self.number:
            raise OSError(self.number, os.strerror(self.number))
        super()._write(key, path, parts)  # type: ignore[arg-type]


class Served:
    """A gateway on these stores, asked over HTTP, and what it does beside that."""

    def __init__(self, http: httpx.AsyncClient, watch: StoreWatch) -> None:
        self.http = http
        self.watch = watch

    async def ready(self) -> tuple[int, str]:
        response = await self.http.get("/ready")
        return response.status_code, response.json().get("detail", "")

    async def produce(self) -> int:
        body = {"records": [{"value": "x"}]}
        return (await self.http.post("/v1/topics/t/records", json=body)).status_code


@asynccontextmanager
async def served(metadata: MetadataStore, **stores: ObjectStore) -> AsyncIterator[Served]:
    world, settings = real_world(), Settings(linger_max_ms=1)
    gateway = Gateway(settings, Zones(stores), metadata, world)
    registry = LiveGateways(settings, metadata, world, gateway.zones)
    app = App(gateway, registry, Metrics())
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        await gateway.topics.create("t", replication_factor=len(stores))
        yield Served(http, StoreWatch(gateway.zones, metadata, registry.beat, world))
    await gateway.aclose()


def new_table() -> MemoryMetadata:
    versions = count()
    return MemoryMetadata(lambda: f"v{next(versions)}")


@contextmanager
def limited(kind: int, limit: int) -> Iterator[None]:
    """Give this process a lower limit."""
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [each for each in caplog.records if each.name == "riacho.stores"]
    assert all(each.levelno == logging.WARNING for each in records)
    return [each.getMessage() for each in records]


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.EROFS]
)
async def test_a_gateway_whose_only_disk_fails_is_not_ready_until_a_write_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    disk = FailingDirectory(tmp_path)
    async with served(new_table(), a=disk) as gateway:
        assert await gateway.produce() == 200
        assert await gateway.ready() == (200, "")

        disk.number = number
        assert await gateway.produce() == 503
        assert await gateway.produce() == 503
        status, reason = await gateway.ready()
        assert status == 503
        assert os.strerror(number) in reason
        assert str(tmp_path) in reason
        [warning] = warnings(caplog)
        assert os.strerror(number) in warning
        assert str(tmp_path) in warning
        await gateway.watch.look()
        assert (await gateway.ready())[0] == 503

        disk.number = 0
        # No request comes to a gateway that is not ready, so it finds out by itself.
        await gateway.watch.look()
        assert await gateway.ready() == (200, "")
        assert len(warnings(caplog)) == 2
        assert await gateway.produce() == 200
        assert [each async for some in disk.list("") for each in some if "probe" in each.key] == []


async def test_a_gateway_with_another_zone_that_works_is_ready(tmp_path: Path) -> None:
    disk = FailingDirectory(tmp_path / "a")
    async with served(new_table(), a=disk, b=DirectoryObjects(tmp_path / "b")) as gateway:
        disk.number = errno.ENOSPC

        assert await gateway.produce() == 200
        assert await gateway.ready() == (200, "")


async def test_a_disk_that_refuses_for_another_reason_makes_nobody_unready(tmp_path: Path) -> None:
    disk = FailingDirectory(tmp_path)
    async with served(new_table(), a=disk) as gateway:
        disk.number = errno.EACCES

        assert await gateway.produce() == 503
        assert await gateway.ready() == (200, "")


async def test_files_that_may_not_be_so_large_are_reported(tmp_path: Path) -> None:
    disk = DirectoryObjects(tmp_path)
    with limited(resource.RLIMIT_FSIZE, 1000), pytest.raises(DiskFailing, match="ulimit -f"):
        await disk.put("0/hot/x", [bytes(10_000)])

    assert "too large" in disk.trouble.reason
    await disk.put("0/hot/x", [bytes(10_000)])
    assert disk.trouble.reason == ""
    await disk.close()


async def test_a_process_without_descriptors_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = DirectoryObjects(tmp_path)
    await disk.put("0/hot/x", [b"x"])
    used = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
    held = []
    with limited(resource.RLIMIT_NOFILE, used):
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            assert error.errno == errno.EMFILE  # noqa: PT017
        try:
            with pytest.raises(DiskFailing, match="ulimit -n"):
                await disk.put("0/hot/y", [b"y"])
            with pytest.raises(DiskFailing, match="ulimit -n"):
                await disk.get("0/hot/x")
        finally:
            for file in held:
                os.close(file)

    assert disk.trouble.reason
    assert len(warnings(caplog)) == 1
    await disk.close()


async def test_a_table_on_a_full_disk_makes_the_gateway_unready(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    versions = count()
    table = SqliteMetadata(tmp_path / "metadata.db", lambda: f"v{next(versions)}")
    async with served(table, a=DirectoryObjects(tmp_path / "a")) as gateway:
        assert await gateway.produce() == 200
        log_bytes = (tmp_path / "metadata.db-wal").stat().st_size
        with limited(resource.RLIMIT_FSIZE, log_bytes + 1):
            with pytest.raises((OutcomeUnknown, DiskFailing)):
                await table.transact([Put("topic/x", bytes(50_000), None)])
            status, reason = await gateway.ready()
            assert status == 503
            assert "metadata.db" in reason
            await gateway.watch.look()
            assert (await gateway.ready())[0] == 503
        await gateway.watch.look()

        assert await gateway.ready() == (200, "")
        assert "metadata.db" in warnings(caplog)[0]


async def test_a_table_that_is_malformed_makes_the_gateway_unready(tmp_path: Path) -> None:
    path, versions = tmp_path / "metadata.db", count()
    table = SqliteMetadata(path, lambda: f"v{next(versions)}")
    await table.transact([Put("topic/x", b"", None)])
    await table.close()
    whole = bytearray(path.read_bytes())
    whole[4096:8192] = b"\xff" * 4096
    path.write_bytes(whole)
    table = SqliteMetadata(path, lambda: f"v{next(versions)}")
    gateway = Gateway(Settings(), Zones({"a": DirectoryObjects(tmp_path)}), table, real_world())
    app = App(gateway, LiveGateways(Settings(), table, real_world()), Metrics())
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        ready, listed = await http.get("/ready"), await http.get("/v1/topics")

    assert (ready.status_code, ready.json()["code"]) == (503, "STORAGE_UNAVAILABLE")
    assert "malformed" in ready.json()["detail"]
    assert (listed.status_code, listed.json()["code"]) == (500, "METADATA_DAMAGED")
    assert listed.json()["retryable"] is False
    await gateway.aclose()


def test_what_goes_on_failing_is_logged_at_a_bounded_pace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = [0.0]
    trouble = Trouble("here", lambda: now_s[0])
    for _ in range(100):
        trouble.failed("full")
        trouble.worked()
        now_s[0] += LOGGED_EVERY_S / 100
    assert len(warnings(caplog)) == 2

    now_s[0] += LOGGED_EVERY_S
    trouble.failed("full")
    assert len(warnings(caplog)) == 3


def test_errors_of_the_machine_are_errors_of_the_store() -> None:
    assert issubclass(DiskFailing, RiachoError)
    assert DiskFailing.code == "STORAGE_UNAVAILABLE"
    assert DiskFailing.retryable
