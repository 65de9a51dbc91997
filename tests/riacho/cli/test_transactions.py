"""Transactions on the command line, and what `produce` numbers."""

import json
from collections.abc import Iterator

import httpx
import pytest

from riacho import Admin
from tests.commands import riacho
from tests.gateway import GatewayProcess


@pytest.fixture(scope="module")
def topic(gateway: GatewayProcess) -> Iterator[str]:
    with Admin(gateway.url) as admin:
        yield admin.create_topic("t", partitions=3).name


def begin(gateway: GatewayProcess, topic: str, name: str) -> str:
    """Begin a transaction with a staged record, and return its id."""
    body = {"transactional_id": name}
    begun = httpx.post(f"{gateway.url}/v1/transactions", json=body).json()["transaction_id"]
    httpx.post(
        f"{gateway.url}/v1/topics/{topic}/partitions/2/records",
        json={"records": [{"value": "v"}]},
        headers={"riacho-transaction": begun},
    ).raise_for_status()
    return str(begun)


def test_a_transaction_is_listed_described_and_aborted(gateway: GatewayProcess, topic: str) -> None:
    begun = begin(gateway, topic, "slow")

    table = riacho("transaction", "list", url=gateway.url).stdout.decode()
    assert table.splitlines()[0].split()[:3] == ["TRANSACTIONAL", "ID", "TRANSACTION"]
    assert f"slow              {begun}" in table
    [listed] = json.loads(
        riacho("transaction", "list", "--ongoing", "-o", "json", url=gateway.url).stdout
    )
    described = riacho("transaction", "describe", begun, "-o", "json", url=gateway.url).stdout
    assert json.loads(described) == listed
    assert (listed["state"], listed["partitions"]) == (
        "ongoing",
        [{"topic": topic, "partition": 2}],
    )
    fields = riacho("transaction", "describe", begun, url=gateway.url).stdout.decode()
    assert "partitions        t/2" in fields

    aborted = riacho("transaction", "abort", begun, url=gateway.url)
    assert aborted.stderr.decode() == f"transaction {begun} was aborted\n"
    assert riacho("transaction", "list", "--ongoing", url=gateway.url).stdout.count(b"\n") == 1
    fields = riacho("transaction", "describe", begun, url=gateway.url).stdout.decode()
    assert "state             aborted" in fields


def test_what_cannot_be_aborted_is_reported(gateway: GatewayProcess, topic: str) -> None:
    begun = begin(gateway, topic, "done")
    httpx.post(f"{gateway.url}/v1/transactions/{begun}/commit", json={}).raise_for_status()

    refused = riacho("transaction", "abort", begun, url=gateway.url, code=1)
    assert b"INVALID_TXN_STATE" in refused.stderr
    unknown = riacho("transaction", "describe", "nobody.1.1", url=gateway.url, code=1)
    assert b"TRANSACTIONAL_ID_NOT_FOUND" in unknown.stderr


@pytest.mark.parametrize("options", [[], ["--no-idempotence"]])
def test_lines_are_written_with_and_without_numbers(
    gateway: GatewayProcess, topic: str, options: list[str]
) -> None:
    done = riacho("produce", topic, *options, stdin=b"a\nb\n", url=gateway.url)

    assert done.stderr == b"2 records written\n"


@pytest.mark.parametrize("command", ["list", "describe", "abort"])
def test_every_command_has_help(command: str) -> None:
    assert f"riacho transaction {command}" in riacho("transaction", command, "-h").stdout.decode()
