"""Deployments with security, and credentials for them."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from service.process.stores import open_table
from service.security.api_keys.credentials import ApiKeys, NewKey
from service.settings import Settings
from service.world.clock import real_world
from tests.integration.processes import TIMEOUT_S

CLOSED: Final = {"RIACHO_SECURITY": "on"}
"""Settings of a gateway that wants to know who calls."""


def super_key(data: Path, metadata: str = "") -> str:
    """Return a new key that may do everything, made directly in the table."""

    async def make() -> str:
        world = real_world()
        table = open_table(Settings(data=data, metadata=metadata), world)
        try:
            new = NewKey(principal="User:root", is_super=True)
            return (await ApiKeys(table, world).create(new))[1]
        finally:
            await table.close()

    return asyncio.run(make())


def client(url: str, token: str = "") -> httpx.Client:
    """Return a client of a gateway; without a token, one that nobody knows."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S)


def new_key(root: httpx.Client, principal: str, **fields: Any) -> str:
    """Return a new key for a principal."""
    made = root.post("/v1/keys", json={"principal": principal, **fields})
    assert made.status_code == 201, made.text
    key: str = made.json()["key"]
    return key


def allow(root: httpx.Client, principal: str, operation: str, name: str, **fields: Any) -> None:
    """Let a principal do an operation on a topic, or on what `fields` say."""
    acl: Mapping[str, Any] = {
        "resource_type": "TOPIC",
        "resource_name": name,
        "pattern_type": "LITERAL",
        "principal": principal,
        "host": "*",
        "operation": operation,
        "permission": "ALLOW",
        **fields,
    }
    made = root.post("/v1/acls", json=acl)
    assert made.status_code == 201, made.text
