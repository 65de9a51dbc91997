"""Every call of the clients for JavaScript and Go, as a user who may use some subjects."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.gateway import start_gateway
from tests.integration import secured
from tests.kafka_programs.schemas.exchange import program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

INT = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
OPERATIONS = ["READ", "WRITE", "DELETE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"]
SAME = {
    "register": True,
    "id": INT,
    "guid": INT,
    "latest": 1,
    "versions": [1],
    "compatible": True,
    "refused": "409 409",
    "invalid": "422 42201",
    "set level": "FULL",
    "level": "FULL",
    "default level": "403 40301",
    "theirs": "404 40401",
    "register theirs": "404 40401",
    "delete too soon": "404 40405",
    "gone": "404 40401",
}
"""What both find."""

FOUND = {
    "javascript": {
        **SAME,
        "lookup": True,
        "version": 1,
        "described": "mine-js",
        "labelled": 1,
        "labelled by another": "404 40403",
        "subjects": ["mine-js"],
        "incompatible": False,
        "no level": "404 40408",
        "set config": {"compatibility": "NONE", "normalize": True},
        "config": {"compatibilityLevel": "NONE", "normalize": True},
        "set default level": "403 40301",
        # Its serializers look for one, and then take the name of the topic.
        "association": "404 -1",
        "delete version": 1,
        "delete": "404 40404",
        "delete for ever": 1,
    },
    "go": {
        **SAME,
        "text of id": INT,
        "ids of guid": 1,
        "subjects of id": ["mine-go/a %é"],
        "versions of id": 1,
        "usages of id": 1,
        "lookup": 1,
        "text of version": INT,
        "references": 0,
        "subjects": ["mine-go/a %é"],
        "schemas": 1,
        "all schemas": 1,
        "types": "[AVRO PROTOBUF JSON]",
        "contexts": ["."],
        "register inside": ":.mine:a/b 1",
        "subjects inside": [":.mine:a/b"],
        "id inside": len(INT) + len("string") - len("int"),
        "theirs inside": [],
        "incompatible": True,
        # It looks for `compatibility`, as when one is set; the answer is `compatibilityLevel`.
        "reset level": "",
        "set mode": "READONLY",
        "read only": "422 42205",
        "mode": "READONLY",
        "reset mode": "READONLY",
        "delete version": None,
        "deleted versions": [1],
        "delete for ever": [1],
    },
}


@dataclass(frozen=True)
class Closed:
    """A gateway with security, and a user of it."""

    url: str
    user: str
    """Its key, as a name and a password."""


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    path = tmp_path_factory.mktemp("closed")
    (path / "data").mkdir()
    root = secured.super_key(path / "data")
    # The rights are there before the gateway is, so that it knows them from the start.
    with start_gateway(path, env=secured.CLOSED) as first, secured.client(first.url, root) as http:
        key = secured.new_key(http, "User:ana")
        for operation in OPERATIONS:
            fields = {"resource_type": "SUBJECT", "pattern_type": "PREFIXED"}
            for prefix in ("mine-", ":.mine:"):
                secured.allow(http, "User:ana", operation, prefix, **fields)
        theirs = {"schema": INT.replace("int", "string")}
        for subject in ("theirs", ":.theirs:a"):
            http.post(f"/subjects/{subject}/versions", json=theirs).raise_for_status()
    _, key_id, secret, *_ = key.split("_")
    with start_gateway(path, env=secured.CLOSED) as gateway:
        yield Closed(gateway.url, f"{key_id}:{secret}")


@pytest.mark.parametrize(("name", "under"), [("javascript", ""), ("go", "/registry")])
def test_every_call(closed: Closed, tmp_path: Path, name: str, under: str) -> None:
    nowhere = "127.0.0.1:1"

    found = program(name, nowhere, closed.url + under, tmp_path, closed.user).run("calls")

    assert found == FOUND[name]
