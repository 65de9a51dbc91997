"""A disk that answers EIO, and one whose flushes fail: nothing acknowledged is lost by it.

After each fault the processes are killed and the power is cut: what was never flushed, and what a
failed flush lost, is gone (tests/torture/power.py). What was acknowledged must be there then.
"""

import errno
import random
from pathlib import Path

import pytest

from tests.gateway import free_port
from tests.integration.load import check_through, load, new_ledger, wait_for_acks
from tests.integration.zoned import until
from tests.torture.deployment import AS_OBJECTS, check_all, deployment
from tests.torture.shim import Call, Disk, Part
from tests.torture.sizes import ROUNDS

FAILED = 5

SEEDS = pytest.mark.parametrize("seed", range(ROUNDS))


@SEEDS
@pytest.mark.parametrize("env", [{}, AS_OBJECTS], ids=["table", "objects"])
def test_a_power_cut_takes_nothing_that_was_acknowledged(
    tmp_path: Path, shim: Path, env: dict[str, str], seed: int
) -> None:
    disk = Disk(tmp_path, shim, has_journal=True)
    here, port = deployment(tmp_path, disk.env, env), free_port()
    gateway = here.start(port=port)
    try:
        ledger = new_ledger(gateway)
        for turn in range(2):
            with load(ledger, [gateway.url], seed=seed * 100 + turn):
                wait_for_acks(ledger, 100)
                gateway.kill()
            disk.cut_power(random.Random(seed))
            gateway = here.start(port=port)
            check_all(ledger, gateway, tmp_path)
    finally:
        gateway.kill()


@SEEDS
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize(
    ("part", "env"),
    [(Part.LOG, {}), (Part.DATABASE, {}), (Part.OBJECTS, AS_OBJECTS), (Part.ALL, AS_OBJECTS)],
    ids=["log", "database", "objects", "all"],
)
def test_a_flush_that_fails_and_loses_what_it_should_flush_takes_nothing_acknowledged(
    tmp_path: Path, shim: Path, part: Part, env: dict[str, str], every: int, seed: int
) -> None:
    disk = Disk(tmp_path, shim, has_journal=True)
    here, port = deployment(tmp_path, disk.env, env), free_port()
    gateway = here.start(port=port)
    try:
        ledger = new_ledger(gateway)
        with load(ledger, [gateway.url], seed=seed):
            wait_for_acks(ledger, 50)
            disk.fail(Call.SYNC, part, every=every, loses=True)
            until(lambda: disk.failed >= FAILED, "flushes failed")
            disk.heal()
            wait_for_acks(ledger, 100)
            gateway.kill()
        disk.cut_power(random.Random(seed))
        gateway = here.start(port=port)
        check_all(ledger, gateway, tmp_path)
    finally:
        gateway.kill()


@SEEDS
@pytest.mark.parametrize("env", [{}, AS_OBJECTS], ids=["table", "objects"])
@pytest.mark.parametrize(
    ("call", "error"),
    [
        (Call.WRITE, errno.EIO),
        (Call.WRITE, errno.ENOSPC),
        (Call.OPEN | Call.LINK, errno.EIO),
        (Call.OPEN, errno.EMFILE),
        (Call.READ, errno.EIO),
        (Call.WRITE | Call.SYNC | Call.LINK | Call.TRUNCATE, errno.EIO),
    ],
    ids=["write", "space", "name", "descriptors", "read", "most"],
)
def test_calls_that_fail_are_told_and_forgotten(
    tmp_path: Path, shim: Path, call: Call, error: int, env: dict[str, str], seed: int
) -> None:
    disk = Disk(tmp_path, shim)
    here, port = deployment(tmp_path, disk.env, env), free_port()
    gateway = here.start(port=port)
    try:
        ledger = new_ledger(gateway)
        with load(ledger, [gateway.url], seed=seed):
            for every in (1, 2, 5):
                wait_for_acks(ledger, 30)
                disk.fail(call, Part.ALL, error, every=every)
                until(lambda: disk.failed >= FAILED, "calls failed")
                disk.heal()
                wait_for_acks(ledger, 30)
        check_through(ledger, gateway)
        gateway.kill()
        gateway = here.start(port=port)
        check_all(ledger, gateway, tmp_path)
    finally:
        gateway.kill()
