"""Spark sessions without console output, with bounded memory, and with full cleanup.

    submitted (spark-submit, EMR)   use that session, with its own master and memory
    otherwise                       start a JVM here, which ends with the session

Records never pass through the JVM: workers are Python processes that read and write the stores.
So the JVM's memory is small, whatever the size of the log; the memory of a worker depends on the
tasks.
"""

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from storage.errors import NotSupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JVM_MEMORY: Final = "1g"
"""Heap of the driver, on `local[*]` also the executor, and of each executor of a cluster."""

ARROW_ROWS_MAX: Final = 65_536
"""Maximum rows per batch between the JVM and a worker: keys and offsets, not values."""

STOP_S_MAX: Final = 20.0
"""A JVM that has not ended by then is killed."""

JAVA_MIN: Final = 17

QUICK_START: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Halves the CPU time to start a JVM. Compiled code is slower; the heap is small."""

_TAIL_LINES: Final = 5


@contextmanager
def session(
    master: str = "local[*]",
    *,
    name: str = "riacho",
    config: dict[str, str] | None = None,
    computes: bool = False,
    started: Callable[[str], None] = lambda _: None,
) -> "Iterator[SparkSession]":
    """Yield the active or submitted session, or a new one whose JVM ends with it.

    With `computes`, as for interactive queries, it takes longer to start and then runs faster.
    `started` is called before a JVM is started, which takes some seconds.

    Raises `NotSupported` if PySpark or Java is missing; the message says what to install.
    """
    sessions = _sessions()
    active = _active(sessions)
    if active is not None:
        yield active
    elif is_submitted():
        submitted = sessions.builder.appName(name).getOrCreate()
        submitted.sparkContext.setLogLevel("ERROR")
        try:
            yield submitted
        finally:
            submitted.stop()
    else:
        check_java()
        started(f"starting Spark on {master}")
        quick = "" if computes or not master.startswith("local") else QUICK_START
        with _started(master, name, quick, config or {}) as own:
            yield own


def is_submitted() -> bool:
    """Whether spark-submit, or a launcher that works like it, started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _sessions() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise NotSupported(
            "Spark is not installed: pip install 'riacho[spark]'; or leave --spark out"
        ) from None
    return SparkSession


def _active(sessions: Any) -> "SparkSession | None":
    """Return the session of this process, whichever thread started it."""
    from pyspark import SparkContext

    if SparkContext._active_spark_context is None:
        return None
    found: SparkSession = sessions.builder.getOrCreate()
    return found


@contextmanager
def _started(
    master: str, name: str, java_options: str, config: dict[str, str]
) -> "Iterator[SparkSession]":
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    # Workers with another Python would find neither this package nor pyarrow. On a cluster
    # PYSPARK_PYTHON wins, because the path of this interpreter may not exist there.
    if master.startswith("local") or not os.environ.get("PYSPARK_PYTHON"):
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="riacho-spark-") as scratch:
        given = _config(master, name, Path(scratch), java_options) | config
        conf = SparkConf().setAll(list(given.items()))
        with (Path(scratch) / "jvm.log").open("w+b") as noise:
            try:
                gateway: Any = launch_gateway(  # type: ignore[no-untyped-call]
                    conf, {"stdout": noise, "stderr": noise}
                )
            except Exception as error:
                raise NotSupported(f"Spark did not start: {_tail(noise) or error}") from error
            try:
                context = SparkContext(conf=conf, gateway=gateway)
                try:
                    context.setLogLevel("ERROR")
                    yield SparkSession(context)
                finally:
                    with suppress(Exception):  # The JVM may have ended, and is ended below anyway.
                        context.stop()
            finally:
                _end(gateway)


def _config(master: str, name: str, scratch: Path, java_options: str) -> dict[str, str]:
    quiet = scratch / "log4j2.properties"
    quiet.write_text("rootLogger.level = off\n")
    java_options = f"-Dlog4j2.configurationFile={quiet.as_uri()} {java_options}".strip()
    return {
        "spark.master": master,
        "spark.app.name": name,
        "spark.driver.memory": JVM_MEMORY,
        "spark.executor.memory": JVM_MEMORY,
        "spark.driver.extraJavaOptions": java_options,
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS_MAX),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    } | (_local() if master.startswith("local") else {})


def _local() -> dict[str, str]:
    # Lets workers import the code of this process even if it is not installed.
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[3]),
    }


def check_java() -> None:
    """Raise `NotSupported` unless there is a Java that Spark can use."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else None
    if java is not None and not java.exists():
        raise NotSupported(f"JAVA_HOME is {home}, but there is no bin/java; {_INSTALL}")
    found = str(java) if java is not None else shutil.which("java")
    if found is None:
        raise NotSupported(f"Spark needs Java, and there is none; {_INSTALL}")
    reply = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', reply.stderr + reply.stdout)
    if reply.returncode or (version is not None and int(version[1]) < JAVA_MIN):
        text = " ".join((reply.stderr or reply.stdout).split())
        raise NotSupported(f"Spark cannot use {found} ({text}); {_INSTALL}")


_INSTALL: Final = (
    f"install a Java runtime, {JAVA_MIN} or later (Debian, Ubuntu: apt install"
    " openjdk-17-jre-headless), and let JAVA_HOME name it; or use --no-spark"
)


def _tail(noise: IO[bytes]) -> str:
    noise.seek(0)
    lines = noise.read().decode(errors="replace").splitlines()
    return "; ".join(line.strip() for line in lines[-_TAIL_LINES:] if line.strip())


def _end(gateway: Any) -> None:
    """End the JVM and clear it in PySpark, so that this process can start another session."""
    from pyspark import SparkContext

    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    with suppress(Exception):  # It may have ended already.
        gateway.shutdown()
    process: subprocess.Popen[bytes] = gateway.proc
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None
