"""What every test may use: asyncio for async tests, and local servers that start on demand."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from service.jobs.spark import QUICK_START
from tests.local_aws import VARIABLE, LocalAws, find
from tests.storage.helpers import servers

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


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


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
