"""A session ends with its JVM, and the JVM with its process; another one may follow."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.torture.sizes import FULL, only_proof

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]

ROOT = Path(__file__).parents[4]
JVM_S_MAX = 400

BEGIN = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from service.jobs.runners.spark_session import session

def jvm(spark):
    return spark.sparkContext._gateway.proc.pid

def found():
    with session() as same:
        return same
"""

ONE_SESSION = f"""{BEGIN}
with session("local[1]") as spark:
    assert found() is spark
    print(jvm(spark), flush=True)
    sys.stdin.read()
"""

TWO_SESSIONS = f"""{BEGIN}
with session("local[1]") as spark:
    first = jvm(spark)
    assert spark.sparkContext.parallelize([1, 2]).sum() == 3
    assert found() is spark
    with ThreadPoolExecutor(1) as other_thread:
        assert other_thread.submit(found).result() is spark
assert not Path(f"/proc/{{first}}").exists()
with session("local[1]") as spark:
    print(jvm(spark), flush=True)
    sys.stdin.read()
"""

ERROR = f"""{BEGIN}
try:
    with session("local[1]") as spark:
        pid = jvm(spark)
        raise KeyError
except KeyError:
    assert not Path(f"/proc/{{pid}}").exists()
"""


@pytest.fixture(autouse=True)
def _has_spark() -> None:
    pytest.importorskip("pyspark")
    if not Path("/proc/self/stat").exists():
        pytest.skip("looks at /proc")


def test_a_jvm_ends_with_its_session_and_with_a_process_that_is_killed() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", TWO_SESSIONS if FULL else ONE_SESSION],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    more = process.communicate()

    # Spark itself says nothing.
    assert more == (b"", b"")
    give_up_s = time.monotonic() + JVM_S_MAX
    while is_running(int(line)):
        assert time.monotonic() < give_up_s
        time.sleep(0.1)


@only_proof
def test_a_jvm_ends_with_a_session_that_ends_in_an_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ERROR], capture_output=True, timeout=JVM_S_MAX, cwd=ROOT
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
