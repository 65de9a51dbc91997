"""Programs that copy in transactions: what is aborted is never seen, what is committed once."""

import json
import subprocess
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.gateway import GatewayProcess
from tests.kafka_programs.programs import TIMEOUT_S, Tools, go_program, kafkajs, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

RECORDS: Final = 300


def fill(gateway: GatewayProcess, source: str, target: str) -> list[str]:
    """Make both topics, and return the values of the first."""
    for topic in (source, target):
        body = {"name": topic, "partitions": 3}
        httpx.post(f"{gateway.url}/v1/topics", json=body).raise_for_status()
    values = [str(number) for number in range(RECORDS)]
    records = [{"value": value, "partition": n % 3} for n, value in enumerate(values)]
    to = f"{gateway.url}/v1/topics/{source}/records"
    httpx.post(to, json={"records": records}).raise_for_status()
    return values


def values_of(gateway: GatewayProcess, topic: str) -> list[str]:
    """Return what is in the log, in the order of numbers."""
    found: list[str] = []
    for partition in range(3):
        offset = 0
        while True:
            at = f"{gateway.url}/v1/topics/{topic}/partitions/{partition}/records"
            page = httpx.get(at, params={"offset": offset, "value_format": "text"}).json()
            found += [record["value"] for record in page["records"]]
            offset = page["next_offset"]
            if offset >= page["high_watermark"]:
                break
    return sorted(found, key=int)


def committed(gateway: GatewayProcess, group: str) -> int:
    found = httpx.get(f"{gateway.url}/v1/groups/{group}/offsets").json()["offsets"]
    return sum(each["offset"] for each in found)


def test_kafkas_copiers_abort_at_random_and_copy_everything_once(
    tools: Tools, gateway: GatewayProcess
) -> None:
    values = fill(gateway, "java-in", "java-out")
    copiers = [
        subprocess.Popen(
            tools.command(
                "org.apache.kafka.tools.TransactionalMessageCopier",
                *("--broker-list", tools.bootstrap, "--consumer-group", "java-copiers"),
                *("--input-topic", "java-in", "--input-partition", "0"),
                *("--output-topic", "java-out", "--max-messages", "-1"),
                *("--transactional-id", f"java-{number}", "--transaction-size", "20"),
                *("--enable-random-aborts", "--group-mode", "--use-group-metadata"),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(2)
    ]
    printed = [copier.communicate(timeout=TIMEOUT_S)[0] for copier in copiers]
    assert [copier.returncode for copier in copiers] == [0, 0], printed
    assert values_of(gateway, "java-out") == values
    assert committed(gateway, "java-copiers") == RECORDS


def test_franz_go_copies_in_sessions(gateway: GatewayProcess, bootstrap: str) -> None:
    found = json.loads(run([str(go_program()), "franz", "transactions", bootstrap]))
    assert found == {"read": RECORDS, "repeated": 0, "falling": 0}


def test_kafkajs_copies_in_transactions(gateway: GatewayProcess, bootstrap: str) -> None:
    values = fill(gateway, "js-in", "js-out")
    program = Path(__file__).with_name("js") / "transactions.mjs"
    printed = run(["node", str(program), bootstrap, "js-in", "js-out"], cwd=kafkajs())
    assert json.loads(printed) == RECORDS
    assert values_of(gateway, "js-out") == values
    assert committed(gateway, "js-out") == RECORDS
