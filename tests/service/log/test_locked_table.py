"""Another process holds the lock of the metadata file: requests are refused soon, and told why."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from subprocess import Popen

import pytest

from service.http.problems import document
from service.log.gateway import Gateway
from service.settings import Settings
from service.world.clock import real_world
from storage.errors import StoreLocked
from storage.stores.memory import MemoryObjects
from storage.stores.metadata import Put
from storage.stores.sqlite.table import SqliteMetadata
from storage.zones.zones import Zones
from tests.storage.helpers.logs import batch_of
from tests.storage.helpers.processes import program

pytestmark = pytest.mark.anyio

BUSY_S = 10.0
HOLDER = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep(1000)
"""


def opened(path: Path) -> SqliteMetadata:
    versions = count()
    return SqliteMetadata(path, lambda: f"v{next(versions)}", busy_s=BUSY_S)


@contextmanager
def stopped_holder(path: Path) -> Iterator["Popen[str]"]:
    """Let a process take the lock, and stop it."""
    with program(HOLDER, str(path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        os.kill(process.pid, signal.SIGSTOP)
        yield process


async def test_those_who_wait_behind_the_first_are_refused_with_it(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    store = opened(path)
    with stopped_holder(path) as holder:
        began_s = time.monotonic()
        first = asyncio.create_task(store.transact([Put("topic/a", b"", None)]))
        await asyncio.sleep(0)
        while store._writer._queue.qsize():  # Until the thread has taken it.
            await asyncio.sleep(0.001)
        second = asyncio.create_task(store.transact([Put("topic/b", b"", None)]))

        results = await asyncio.gather(first, second, return_exceptions=True)
        took_s = time.monotonic() - began_s

        for error in results:
            assert isinstance(error, StoreLocked)
            assert (error.retryable, error.may_have_applied) == (True, False)
            assert str(path) in str(error)
            assert f"pid {holder.pid}" in str(error)
        assert took_s < 1.9 * BUSY_S
        assert "locked" in store.trouble.reason

    assert await store.transact([Put("topic/a", b"", None)])
    assert store.trouble.reason == ""
    await store.close()


async def test_a_request_that_waits_in_its_lane_is_refused_as_soon(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    store = opened(path)
    zones = Zones({"a": MemoryObjects()})
    gateway = Gateway(Settings(linger_max_ms=1), zones, store, real_world())
    await gateway.topics.create("t")

    async def produce(value: bytes) -> object:
        batch = batch_of(value)
        return await gateway.produce("t", batch, batch.nbytes, 0)

    await produce(b"before")
    with stopped_holder(path):
        began_s = time.monotonic()
        first = asyncio.create_task(produce(b"first"))
        while not gateway.lanes.lane((await gateway.topics.get("t")).topic_id, 0).is_committing:
            await asyncio.sleep(0.001)
        second = asyncio.create_task(produce(b"second"))

        results = await asyncio.gather(first, second, return_exceptions=True)

        assert time.monotonic() - began_s < 1.9 * BUSY_S
        for error in results:
            assert isinstance(error, StoreLocked)
            problem = document(error, "r")
            assert (problem.status, problem.code) == (503, "METADATA_LOCKED")
    await produce(b"after")
    await gateway.aclose()
