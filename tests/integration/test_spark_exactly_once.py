"""A streaming copy whose driver dies, or seems to: every record is there once, in order.

Each driver is another start of Spark, so this is `make proof PART=spark`. In every run of the
suite, `tests/riacho/spark/test_write.py` has the writers of a driver that was replaced and of a
micro-batch that is repeated. More deaths on request:

    RIACHO_PROOF=1 RIACHO_SPARK_DEATHS=20 pytest tests/integration/test_spark_exactly_once.py
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.gateway import GatewayProcess, start_gateway
from tests.integration import spark_copier
from tests.integration.processes import Api
from tests.riacho.spark.queries import ended
from tests.torture.sizes import only_proof

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEATHS = int(os.environ.get("RIACHO_SPARK_DEATHS", "4"))
DEATHS_MAX = DEATHS + 4
"""So many, if none of those before was at the commit."""
PARTITIONS = 2
START_S_MAX = 600.0
"""From the start of a driver to its first batch, on a machine with better things to do."""

pytestmark = [only_proof, pytest.mark.slow, pytest.mark.timeout(600 * (DEATHS_MAX + 2))]


class Copier:
    """A driver, its JVM and its workers: one group of processes."""

    def __init__(self, gateway: GatewayProcess, source: str, target: str, folder: Path) -> None:
        self.log = folder / "driver.log"
        args = [gateway.url, source, target, str(folder / "checkpoint")]
        with self.log.open("ab") as sink:
            self.process = subprocess.Popen(
                [sys.executable, "-m", spark_copier.__name__, *args],
                stdout=sink,
                stderr=sink,
                stdin=subprocess.DEVNULL,
                cwd=Path(__file__).parent.parent.parent,
                start_new_session=True,
            )

    def send(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def wait(self, timeout_s: float) -> int:
        return self.process.wait(timeout_s)

    def __str__(self) -> str:
        return self.log.read_text()[-5000:]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    with start_gateway(tmp_path, "--log-level", "warning") as gateway:
        yield gateway


@pytest.fixture
def api(gateway: GatewayProcess) -> Iterator[Api]:
    with Api(gateway.url) as api:
        yield api


@contextmanager
def running(gateway: GatewayProcess, source: str, target: str, folder: Path) -> Iterator[Copier]:
    copier = Copier(gateway, source, target, folder)
    try:
        yield copier
    finally:
        if copier.process.poll() is None:
            copier.send(signal.SIGKILL)
            copier.process.wait()


def produce(api: Api, batches: int) -> tuple[str, str]:
    """Return a topic with records for so many micro-batches, and one for the copies."""
    source, target = api.topic(PARTITIONS), api.topic(PARTITIONS)
    count = batches * spark_copier.RECORDS_PER_BATCH // PARTITIONS
    for partition in range(PARTITIONS):
        records = [{"key": f"{partition}", "value": f"{partition}-{i}"} for i in range(count)]
        api.produce(source, records, partition)
    return source, target


def copied(api: Api, target: str) -> int:
    return sum(api.high_watermark(target, partition) for partition in range(PARTITIONS))


def wait_for(api: Api, copier: Copier, target: str, count: int, *, every_s: float = 0.05) -> None:
    """Return as soon as so many records are there, or the copier has ended."""
    give_up_s = time.monotonic() + START_S_MAX
    while copied(api, target) < count and copier.process.poll() is None:
        assert time.monotonic() < give_up_s, str(copier)
        time.sleep(every_s)


def finish(gateway: GatewayProcess, source: str, target: str, folder: Path) -> None:
    """Copy the rest."""
    with running(gateway, source, target, folder) as copier:
        assert copier.wait(START_S_MAX) == 0, str(copier)


def check(api: Api, source: str, target: str) -> None:
    for partition in range(PARTITIONS):
        wanted = [record["value"] for record in api.read_all(source, partition)]
        assert [record["value"] for record in api.read_all(target, partition)] == wanted


def batches_in_doubt(folder: Path, copies: int) -> bool:
    """Whether more is in the log than Spark has taken note of."""
    commits = folder / "checkpoint" / "commits"
    noted = [int(path.name) for path in commits.glob("*") if path.name.isdigit()]
    return copies > (max(noted, default=-1) + 1) * spark_copier.RECORDS_PER_BATCH


def test_a_driver_that_was_replaced_while_it_slept_writes_nothing_more(
    gateway: GatewayProcess, api: Api, spark: "SparkSession", tmp_path: Path
) -> None:
    source, target = produce(api, batches=3)
    with running(gateway, source, target, tmp_path) as zombie:
        wait_for(api, zombie, target, 1)
        zombie.send(signal.SIGSTOP)
        checkpoint = str(tmp_path / "checkpoint")
        ended(lambda _: spark_copier.begin(spark, gateway.url, source, target, checkpoint))
        check(api, source, target)

        zombie.send(signal.SIGCONT)
        zombie.wait(START_S_MAX)

    check(api, source, target)


def test_a_driver_that_dies_loses_and_doubles_nothing(
    gateway: GatewayProcess, api: Api, tmp_path: Path
) -> None:
    chance = random.Random(6)
    source, target = produce(api, batches=4 * (DEATHS_MAX + 1))
    doubts = 0
    for death in range(DEATHS_MAX):
        if doubts and death >= DEATHS:
            break
        before = copied(api, target)
        with running(gateway, source, target, tmp_path) as copier:
            # As soon as a batch is there, and Spark has not heard of it; or some time later.
            wait_for(api, copier, target, before + 1, every_s=0.005)
            if death % 3 == 1:
                time.sleep(chance.random() * 2)
            copier.send(signal.SIGKILL)
            copier.wait(60)
        doubts += batches_in_doubt(tmp_path, copied(api, target))
    finish(gateway, source, target, tmp_path)

    check(api, source, target)
    assert doubts, "none of the deaths was at the commit, so this has shown little"


def test_a_driver_that_another_driver_replaced_writes_nothing_more(
    gateway: GatewayProcess, api: Api, tmp_path: Path
) -> None:
    source, target = produce(api, batches=6)
    with running(gateway, source, target, tmp_path) as zombie:
        wait_for(api, zombie, target, 1)
        zombie.send(signal.SIGSTOP)
        finish(gateway, source, target, tmp_path)
        check(api, source, target)

        zombie.send(signal.SIGCONT)
        zombie.wait(START_S_MAX)

    check(api, source, target)
