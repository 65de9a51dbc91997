"""Two gateway processes over one table share one quota, and their audit log tells no secrets."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from service.security.api_keys.credentials import NewKey
from tests.gateway import GatewayProcess, start_gateway
from tests.service.security.test_revocation import client, made_key

RATE = 200_000
SIZE = 40_000
SECONDS = 4.0
MARKER = "hush-hush-4711"
PATH = "/v1/topics/t/partitions/0/records"


def load(gateway: GatewayProcess, key: str, end_s: float) -> tuple[int, int]:
    """Produce as much as is admitted until `end_s`; return how many requests were, and were not."""
    admitted = refused = 0
    body = json.dumps({"records": [{"value": MARKER + "x" * (SIZE - len(MARKER) - 26)}]})
    with client(gateway, key) as ana:
        while time.monotonic() < end_s:
            answer = ana.post(PATH, content=body, headers={"content-type": "application/json"})
            if answer.status_code == 429:
                assert int(answer.headers["retry-after"]) >= 1
                problem = answer.json()
                assert problem["code"] == "THROTTLING_QUOTA_EXCEEDED"
                # Not as patient as a good client: this must gain nothing.
                time.sleep(min(0.1, problem["throttle_time_ms"] / 1000))
                refused += 1
            else:
                assert answer.status_code == 200, answer.text
                admitted += 1
    return admitted, refused


@pytest.mark.slow
def test_two_processes_share_a_quota_and_the_audit_log_has_no_secrets(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    env = {"RIACHO_SECURITY": "on", "RIACHO_AUDIT": f"file:{audit}", "RIACHO_AUDIT_TOPIC": "_audit"}
    with start_gateway(tmp_path, env=env) as one, start_gateway(tmp_path, env=env) as two:
        root_key = made_key(tmp_path / "data", NewKey(principal="User:root", is_super=True))
        with client(one, root_key) as root:
            assert root.post("/v1/topics", json={"name": "t"}).status_code == 201
            acl = {"resource_type": "TOPIC", "resource_name": "t", "operation": "ALL"}
            assert root.post("/v1/acls", json={**acl, "principal": "User:ana"}).status_code == 201
            quota = {"user": "ana", "producer_byte_rate": RATE}
            assert root.put("/v1/quotas", json=quota).status_code == 200
            ana_key = root.post("/v1/keys", json={"principal": "User:ana"}).json()["key"]
            bad_key = ana_key[:-12] + "000000000000"
            assert (
                httpx.get(
                    one.url + "/v1/topics", headers={"authorization": f"Bearer {bad_key}"}
                ).status_code
                == 401
            )
            with client(one, ana_key) as ana:
                body = {"records": [{"value": MARKER}]}
                assert ana.post("/v1/topics/other/records", json=body).status_code == 403
            began_s = time.monotonic()
            with ThreadPoolExecutor(4) as pool:
                loads = [
                    pool.submit(load, gateway, ana_key, began_s + SECONDS)
                    for gateway in (one, two, one, two)
                ]
                counts = [each.result() for each in loads]
            took_s = time.monotonic() - began_s
            records = root.get("/v1/topics/_audit/partitions/0/records").json()["records"]

    admitted = sum(count for count, _ in counts)
    assert sum(count for _, count in counts) > 0
    # What was saved up, the rate, and the requests that were on their way.
    assert SIZE * admitted <= RATE * (took_s + 2) + 4 * SIZE
    assert SIZE * admitted >= RATE
    text = audit.read_text()
    assert MARKER not in text
    for key in (root_key, ana_key, bad_key):
        assert key.split("_")[2] not in text
    lines = [json.loads(line) for line in text.splitlines()]
    verdicts = {line["verdict"] for line in lines}
    assert {"SASL_AUTHENTICATION_FAILED", "TOPIC_AUTHORIZATION_FAILED", "DONE"} <= verdicts
    assert {line["event"] for line in lines} == {"refused", "changed"}
    assert {json.loads(record["value"])["verdict"] for record in records} <= verdicts
