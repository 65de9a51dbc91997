"""A revoked key is refused everywhere, also where a request has been let in before."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from service.security.api_keys.credentials import ApiKeys, NewKey
from service.world.clock import real_world
from storage.stores.opening import open_metadata
from tests.gateway import GatewayProcess, start_gateway

ENV = {"RIACHO_SECURITY": "on", "RIACHO_SSE_HEARTBEAT_S": "0.2"}
TIMEOUT_S = 120


def made_key(data: Path, new: NewKey) -> str:
    """Return a key that was made in the stores, as `riacho keys create --super` does."""

    async def make() -> str:
        world = real_world()
        table = open_metadata(f"sqlite:///{data / 'metadata.db'}", world.new_version)
        try:
            _, text = await ApiKeys(table, world).create(new)
        finally:
            await table.close()
        return text

    return asyncio.run(make())


def client(gateway: GatewayProcess, key: str) -> httpx.Client:
    headers = {"authorization": f"Bearer {key}"}
    return httpx.Client(base_url=gateway.url, headers=headers, timeout=TIMEOUT_S)


@pytest.mark.slow
def test_a_tail_and_a_waiting_fetch_end_when_their_key_is_revoked(tmp_path: Path) -> None:
    path = "/v1/topics/t/partitions/0/records"
    with start_gateway(tmp_path, env=ENV) as gateway:
        root_key = made_key(tmp_path / "data", NewKey(principal="User:root", is_super=True))
        with client(gateway, root_key) as root:
            assert root.post("/v1/topics", json={"name": "t"}).status_code == 201
            acl = {"resource_type": "TOPIC", "resource_name": "t", "operation": "READ"}
            assert root.post("/v1/acls", json={**acl, "principal": "User:ana"}).status_code == 201
            made = root.post("/v1/keys", json={"principal": "User:ana"}).json()
            with client(gateway, made["key"]) as ana, ThreadPoolExecutor() as pool:
                headers = {"accept": "text/event-stream"}
                with ana.stream("GET", path, headers=headers) as tail:
                    assert tail.status_code == 200
                    lines = tail.iter_lines()
                    while "heartbeat" not in next(lines):
                        pass
                    waiting = pool.submit(ana.get, path, params={"max_wait_ms": 60_000})
                    assert root.delete(f"/v1/keys/{made['id']}").status_code == 204
                    rest = list(lines)  # The tail ends.
                # A record ends the wait, if the fetch came before the key was revoked.
                records = {"records": [{"value": "late"}]}
                assert root.post("/v1/topics/t/records", json=records).status_code == 200
                answer = waiting.result()

    assert "event: error" in rest
    [data] = [line for line in rest if "code" in line]
    assert json.loads(data.removeprefix("data: "))["code"] == "SASL_AUTHENTICATION_FAILED"
    assert answer.status_code == 401, answer.text
