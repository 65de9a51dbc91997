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
from tests.torture.sizes import FULL, ROUNDS, some

pytestmark = pytest.mark.slow

TURNS = 2 if FULL else 1
FAILED = 5

FAULTS = [
    (Call.WRITE, errno.EIO),
    (Call.WRITE, errno.ENOSPC),
    (Call.OPEN | Call.LINK, errno.EIO),
    (Call.OPEN, errno.EMFILE),
    (Call.READ, errno.EIO),
    (Call.WRITE | Call.SYNC | Call.LINK | Call.TRUNCATE, errno.EIO),
]


def name_of(env: dict[str, str]) -> str:
    return "objects" if env else "table"


SEEDS = pytest.mark.parametrize("seed", range(ROUNDS))


@SEEDS
@pytest.mark.parametrize("env", some([{}, AS_OBJECTS], {}), ids=name_of)
def test_a_power_cut_takes_nothing_that_was_acknowledged(
    tmp_path: Path, shim: Path, env: dict[str, str], seed: int
) -> None:
    disk = Disk(tmp_path, shim, has_journal=True)
    here, port = deployment(tmp_path, disk.env, env), free_port()
    gateway = here.start(port=port)
    try:
        ledger = new_ledger(gateway)
        for turn in range(TURNS):
            with load(ledger, [gateway.url], seed=seed * 100 + turn):
                wait_for_acks(ledger, 100)
                gateway.kill()
            disk.cut_power(random.Random(seed))
            gateway = here.start(port=port)
            check_all(ledger, gateway, tmp_path)
    finally:
        gateway.kill()


@SEEDS
@pytest.mark.parametrize("every", some([1, 3], 3))
@pytest.mark.parametrize("part", some([Part.LOG, Part.DATABASE, Part.OBJECTS, Part.ALL], Part.LOG))
def test_a_flush_that_fails_and_loses_what_it_should_flush_takes_nothing_acknowledged(
    tmp_path: Path, shim: Path, part: Part, every: int, seed: int
) -> None:
    disk = Disk(tmp_path, shim, has_journal=True)
    env = AS_OBJECTS if Part.OBJECTS in part else {}
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
@pytest.mark.parametrize("env", some([{}, AS_OBJECTS], AS_OBJECTS), ids=name_of)
@pytest.mark.parametrize(("call", "error"), some(FAULTS, FAULTS[-1]))
def test_calls_that_fail_are_reported_and_forgotten(
    tmp_path: Path, shim: Path, call: Call, error: int, env: dict[str, str], seed: int
) -> None:
    disk = Disk(tmp_path, shim)
    here, port = deployment(tmp_path, disk.env, env), free_port()
    gateway = here.start(port=port)
    try:
        ledger = new_ledger(gateway)
        with load(ledger, [gateway.url], seed=seed):
            for every in some([1, 2, 5], 2):
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
