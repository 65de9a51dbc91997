"""A session ends with its JVM, and the JVM with its process; another one may follow."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]

ROOT = Path(__file__).parents[3]
JVM_S_MAX = 400

TWICE = """
from pathlib import Path
from service.jobs.spark import session

def jvm(spark):
    return spark.sparkContext._gateway.proc.pid

with session("local[1]") as spark:
    first = jvm(spark)
    assert spark.sparkContext.parallelize([1, 2]).sum() == 3
    with session() as same:
        assert same is spark
assert not Path(f"/proc/{first}").exists()
try:
    with session("local[1]") as spark:
        second = jvm(spark)
        raise KeyError
except KeyError:
    assert not Path(f"/proc/{second}").exists()
"""

KILLED = """
import sys
from service.jobs.spark import session

with session("local[1]") as spark:
    print(spark.sparkContext._gateway.proc.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _has_spark() -> None:
    pytest.importorskip("pyspark")
    if not Path("/proc/self/stat").exists():
        pytest.skip("looks at /proc")


def test_a_session_leaves_nothing_behind_and_says_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TWICE], capture_output=True, timeout=2 * JVM_S_MAX, cwd=ROOT
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_jvm_does_not_outlive_a_process_that_was_killed() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    jvm = int(process.stdout.readline())

    process.send_signal(signal.SIGKILL)
    process.communicate()

    give_up_s = time.monotonic() + JVM_S_MAX
    while is_running(jvm):
        assert time.monotonic() < give_up_s
        time.sleep(0.1)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
