"""What security must not cost: libraries that a gateway does not use, and cycles of requests."""

import gc
import subprocess
import sys
from typing import Any

import pytest

from service.routes.table import ROUTES
from service.security.caller import Caller
from tests.security.secured import Secured

LIBRARIES = ("cryptography", "joserfc", "scramp")

PROGRAM = """
import asyncio, sys
import riacho.cli.main
import service.serverless.gateway
from tests.security.secured import Secured

async def main():
    deployed = Secured()
    root = await deployed.root()
    await root.post("/v1/topics", json={"name": "t"})
    await deployed.allow("User:ana", "TOPIC", "READ", "WRITE")
    key = (await root.post("/v1/keys", json={"principal": "User:ana"})).json()
    deployed.pass_time()
    ana = deployed.client(key["key"])
    path = "/v1/topics/t/partitions/0/records"
    assert (await ana.post(path, json={"records": [{"value": "v"}]})).status_code == 200
    assert (await ana.get(path)).json()["records"][0]["value"] == "v"
    pair = (key["id"], key["key"].split("_")[2])
    ana.headers.pop("authorization")
    assert (await ana.get("/v1/whoami", auth=pair)).json()["principal"] == "User:ana"
    assert (await root.post(f"/v1/keys/{key['id']}/rotate", json={})).status_code == 200
    assert (await root.delete(f"/v1/keys/{key['id']}")).status_code == 204
    await deployed.aclose()

asyncio.run(main())
print([name for name in sys.argv[1:] if name in sys.modules])
"""


def test_keys_and_acls_need_no_cryptographic_library() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *LIBRARIES],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={
            "AWS_LAMBDA_FUNCTION_NAME": "",
            "RIACHO_ZONES": "a=memory://",
            "RIACHO_METADATA": "memory://",
        },
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.anyio
async def test_a_request_that_has_ended_is_freed_at_once() -> None:
    """A cycle would keep each one until memory is searched for cycles."""
    deployed = Secured()
    _, text = await deployed.key("User:root", is_super=True)
    security = deployed.apps[0]._security
    assert security is not None
    [route] = [r for r in ROUTES if (r.method, r.path) == ("GET", "/v1/topics/{topic}")]
    gc.collect()
    gc.disable()
    try:
        for _ in range(10):
            scope: dict[str, Any] = {
                "path": "/v1/topics/t",
                "headers": [(b"authorization", b"Bearer " + text.encode())],
            }
            await security.door.enter(scope, route.needs, {"topic": "t"})
        del scope
        assert not [each for each in gc.get_objects() if type(each) is Caller]
    finally:
        gc.enable()
    await deployed.aclose()
