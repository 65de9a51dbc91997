"""What every test may use: asyncio for async tests, and local servers that start on demand."""

import logging
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from service.jobs.runners.spark_session import QUICK_START, session
from tests.local_aws import VARIABLE, LocalAws, find
from tests.storage.helpers import servers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.time_limit"]

ONE_SPARK = {
    "tests/docs/test_spark.py": 1,
    "tests/integration/test_spark_exactly_once.py": 1,
    "tests/service/jobs/runners/test_runners.py": 1,
    "tests/service/jobs/sweep/test_sweep.py": 1,
    "tests/service/jobs/sweep/test_job.py": 1,
    "tests/riacho/spark/test_sql.py": 2,
    "tests/riacho/spark/test_read_decoded.py": 2,
    "tests/riacho/spark/test_read_spark.py": 2,
    "tests/riacho/spark/test_write.py": 2,
    "tests/riacho/cli/test_jobs.py": 2,
}
"""Files that use the fixture `spark`. Those with the same number share one, in one worker."""

SLOWEST_FIRST = (
    *ONE_SPARK,
    "tests/kafka_programs",
    *("tests/integration", "tests/docs", "tests/riacho", "tests/torture", "tests/lambdas"),
    *("tests/simulation", "tests/infra", "tests/service/jobs"),
)
"""Where processes are started. Workers share out files, so the long ones must not be last."""

# The same examples in every run, and no deadlines: a busy machine is not a fault.
settings.register_profile("steady", derandomize=True, deadline=None)
# Other examples in every run, for `make proof`. What failed is tried first the next time.
settings.register_profile("explore", derandomize=False, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("RIACHO_EXAMPLES", "steady"))

# A shell starts background jobs with SIGINT ignored, and their children inherit it: commands that
# tests interrupt would go on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A dozen JVMs are started, by `spark-submit` and `riacho sql` too, and none has much to compute.
os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_START)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the files that take longest."""

    def place(item: pytest.Item) -> int:
        folders = enumerate(SLOWEST_FIRST)
        return next((n for n, name in folders if item.nodeid.startswith(name)), len(SLOWEST_FIRST))

    if hasattr(config, "workerinput"):
        items.sort(key=place)
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            file = item.nodeid.partition("::")[0]
            assert file in ONE_SPARK, f"{file} would start one more Spark: add it to ONE_SPARK"


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give each file to one worker, and all files of a Spark to the same."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return f"spark {ONE_SPARK[file]}" if file in ONE_SPARK else file

    return Scheduling(config, log)


@pytest.fixture(autouse=True)
def default_logging() -> Iterator[None]:
    """Undo what a gateway or a command in this process has done to the logs, for `caplog`."""
    logger = logging.getLogger("riacho")
    before = (logger.handlers[:], logger.propagate, logger.level)
    logger.handlers[:], logger.propagate = [], True
    logger.setLevel(logging.NOTSET)
    yield
    logger.handlers[:], logger.propagate = before[0], before[1]
    logger.setLevel(before[2])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """One Spark for all tests that need only a session: starting it takes longer than they do.

    A task may fail twice before its job fails.
    """
    pytest.importorskip("pyspark")
    from riacho.spark import RiachoDataSource

    config = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        # Whatever is compiled here runs once.
        "spark.sql.codegen.wholeStage": "false",
    }
    with session("local[2,3]", config=config) as started:
        started.dataSource.register(RiachoDataSource)
        yield started


@pytest.fixture(scope="session")
def ministack() -> Iterator[str]:
    with servers.ministack() as url:
        yield url


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    with servers.moto() as url:
        yield url


@pytest.fixture(scope="session")
def seaweed() -> Iterator[str]:
    with servers.seaweed() as url:
        yield url


@pytest.fixture(scope="session")
def minio() -> Iterator[str]:
    with servers.minio() as url:
        yield url


@pytest.fixture(scope="session")
def local_aws(request: pytest.FixtureRequest) -> LocalAws:
    """What the end-to-end suite runs on."""
    return find(os.environ.get(VARIABLE, ""), request.getfixturevalue)


@pytest.fixture
def aws_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials of the local servers, and nothing else that a developer may have set."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", servers.ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", servers.SECRET_KEY)
    monkeypatch.setenv("AWS_REGION", servers.REGION)
