"""The local AWS that the end-to-end suite runs on, as `RIACHO_TEST_AWS` says.

`ministack` if it says nothing. Else one name for both services, or two with a plus between them:
S3, then DynamoDB. Names are those of `tests/storage/helpers/servers.py`; a URL is a server that
runs already:

    RIACHO_TEST_AWS=seaweedfs+ministack pytest tests/integration -k cloud
    RIACHO_TEST_AWS=http://127.0.0.1:9000+http://127.0.0.1:8000 pytest tests/integration -k cloud
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pytest

from localstack import init
from tests.storage.helpers import servers

VARIABLE: Final = "RIACHO_TEST_AWS"

FIXTURES: Final = {"ministack": "ministack", "seaweedfs": "seaweed", "minio": "minio"}
"""Who starts them. ministack alone has DynamoDB."""


@dataclass(frozen=True)
class LocalAws:
    """Where S3 and DynamoDB are."""

    s3: str
    dynamodb: str

    @property
    def env(self) -> dict[str, str]:
        """What a process needs to find both, and to be let in."""
        return {
            "AWS_ENDPOINT_URL_S3": self.s3,
            "AWS_ENDPOINT_URL_DYNAMODB": self.dynamodb,
            "AWS_ACCESS_KEY_ID": servers.ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": servers.SECRET_KEY,
            "AWS_REGION": servers.REGION,
            "AWS_DEFAULT_REGION": servers.REGION,
        }

    def prepare(self, zones: str, metadata: str = "") -> dict[str, str]:
        """Make the buckets and the table; return the variables of a gateway on them."""
        with _environment(self.env):
            init.make_buckets(zones)
            if metadata:
                asyncio.run(init.make_table(metadata))
        stores = {"RIACHO_ZONES": zones} | ({"RIACHO_METADATA": metadata} if metadata else {})
        return self.env | stores


def find(text: str, start: Callable[[str], str]) -> LocalAws:
    """Return what `text` names; `start` returns the URL of a fixture.

    Raises `pytest.UsageError` if it names something else.
    """
    s3, _, dynamodb = (text or "ministack").partition("+")
    table = dynamodb or s3
    for name in (s3, table):
        if name not in FIXTURES and not name.startswith(("http://", "https://")):
            raise pytest.UsageError(f"{VARIABLE}={text}: {name!r} is no URL, nor {[*FIXTURES]}")
    if table in FIXTURES and table != "ministack":
        raise pytest.UsageError(f"{VARIABLE}={text}: {table} has no DynamoDB; add +ministack")
    urls = [start(FIXTURES[name]) if name in FIXTURES else name for name in (s3, table)]
    return LocalAws(*urls)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
            patch.delenv(name, raising=False)
        for name, value in variables.items():
            patch.setenv(name, value)
        yield
