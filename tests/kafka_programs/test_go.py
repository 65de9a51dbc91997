"""The two clients that programs in Go use, franz-go and sarama, on a gateway as they are."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import GatewayProcess
from tests.kafka_programs.programs import go_program, run
from tests.kafka_programs.secured import PASSWORD, USER, Secured
from tests.torture.sizes import some

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
ADMINISTERED = {
    "franz": {
        "versions": 1,
        "brokers": 1,
        "broker configs": 1,
        "topics": 2,
        "alter config": 1,
        "config": "86400000",
        "add partitions": 1,
        "delete records": 1,
        "start": 10,
        "end": 300,
        "by time": 10,
        "commit": None,
        "groups": True,
        "group": "Empty",
        "lag": 20,
        "log dirs": 1,
        "producers": 1,
        "transactions": 0,
        "quotas": 0,
        "users": 0,
        "reassignments": 0,
        "delete group": "franz-admin",
        "delete topic": "franz-admin",
    },
    "sarama": {
        "brokers": 1,
        "topics": 2,
        "described": 2,
        "alter config": None,
        "config": "86400000",
        "old alter config": None,
        "add partitions": None,
        "delete records": None,
        "committed": 20,
        "commit": 0,
        "groups": True,
        "group": "Empty",
        "log dirs": 1,
        "users": 0,
        "quotas": 0,
        "delete offset": None,
        "delete group": None,
        "delete topic": None,
    },
}
"""What calls find; the others are looked at one by one."""


@pytest.fixture(scope="module")
def program() -> Path:
    return go_program()


def told(program: Path, client: str, task: str, bootstrap: str, *login: str) -> Any:
    return json.loads(run([str(program), client, task, bootstrap, *login]))


@pytest.mark.parametrize("client", ["franz", "sarama"])
def test_records_come_back_in_order_from_each_codec(
    program: Path, gateway: GatewayProcess, bootstrap: str, client: str
) -> None:
    assert told(program, client, "records", bootstrap) == dict.fromkeys(CODECS, 300)


@pytest.mark.parametrize(
    ("client", "assignor"),
    some(
        [
            ("franz", "cooperative"),
            ("franz", "server"),
            ("sarama", "range"),
            ("sarama", "roundrobin"),
            ("sarama", "sticky"),
        ],
        ("franz", "cooperative"),
        ("franz", "server"),
        ("sarama", "range"),
    ),
)
def test_a_group_shares_partitions_and_loses_a_member(
    program: Path, gateway: GatewayProcess, bootstrap: str, client: str, assignor: str
) -> None:
    assert told(program, client, assignor, bootstrap) == {"read": 600, "repeated": 0}


@pytest.mark.parametrize("client", ["franz", "sarama"])
def test_administration(
    program: Path, gateway: GatewayProcess, bootstrap: str, client: str
) -> None:
    """kadm's calls are those of Redpanda Console, which is made of it."""
    found = told(program, client, "admin", bootstrap)

    assert found == {**found, **ADMINISTERED[client]}
    # Without security no ACL is checked, and both clients say so.
    assert "Security features are disabled" in found["acls"]
    if client == "franz":
        assert found["elect"].startswith("ELECTION_NOT_NEEDED")
        assert "will not know how to handle the request" in found["share groups"]


@pytest.mark.parametrize("client", ["franz", "sarama"])
def test_scram_over_tls(program: Path, secured: Secured, client: str) -> None:
    """franz-go logs in with SCRAM-SHA-256, sarama with SCRAM-SHA-512."""
    login = (USER, PASSWORD, str(secured.ca))

    assert told(program, client, "records", secured.bootstrap, *login)["lz4"] == 300
