"""A refusal is made before anything is looked up: it takes no call of a store, whatever is there.

So neither its bytes (tests/security/test_matrix.py) nor its time tell whether something exists.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import httpx
import pytest

from storage.stores.memory import MemoryMetadata
from storage.stores.metadata import Op, Versioned
from tests.security.rights import ANY, EACH, OPEN, RIGHTS
from tests.security.secured import Secured, world_on
from tests.security.test_matrix import REQUESTS
from tests.storage.helpers.worlds import Clock

pytestmark = pytest.mark.anyio

ABSENT = {
    "topic": "absent",
    "partition": 0,
    "group": "absent",
    "member": "absent",
    "transaction": "absent.1.0",
    "range": "0-00",
    "data_key": "1",
    "subject": "absent",
    "version": "1",
    "context": ".absent",
    "connector": "absent",
    "task": "9",
    "plugin": "Absent",
    "logger": "absent",
}
NAMED = [
    operation
    for operation, needed in RIGHTS.items()
    if "{" in operation[1] and "{key}" not in operation[1] and needed not in (OPEN, ANY, EACH)
]


class Counted(MemoryMetadata):
    """A table that knows how often it was asked."""

    calls = 0

    async def get(self, key: str) -> Versioned | None:
        self.calls += 1
        return await super().get(key)

    async def get_many(self, keys: Sequence[str]) -> dict[str, Versioned]:
        self.calls += 1
        return await super().get_many(keys)

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int = 1000
    ) -> "list[tuple[str, Versioned]]":
        self.calls += 1
        return await super().list(prefix, after=after, limit=limit)

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        self.calls += 1
        return await super().transact(ops)


@pytest.fixture
async def deployed() -> AsyncIterator[Secured]:
    deployed = Secured(table=Counted(world_on(Clock(), 2).new_version))
    yield deployed
    await deployed.aclose()


async def _furnished(deployed: Secured) -> dict[str, Any]:
    root = await deployed.root()
    records = {"records": [{"value": "v"}]}
    offsets = {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]}
    for path, body in [
        ("/v1/topics", {"name": "t"}),
        ("/v1/topics/t/records", records),
        ("/v1/groups/g/offsets", offsets),
    ]:
        assert (await root.post(path, json=body)).is_success
    joined = await root.post("/v1/groups/g/members", json={"topics": ["t"]})
    begun = await root.post("/v1/transactions", json={"transactional_id": "x"})
    return {
        **ABSENT,
        "topic": "t",
        "group": "g",
        "member": joined.json()["member_id"],
        "transaction": begun.json()["transaction_id"],
    }


async def _asked(
    client: httpx.AsyncClient, operation: tuple[str, str], names: Mapping[str, Any]
) -> httpx.Response:
    method, path = operation
    request = REQUESTS[operation]
    given: dict[str, Any] = {"params": request.params, "headers": request.headers}
    if request.content is not None:
        given["content"] = request.content
    elif request.json is not None or method in {"POST", "PUT", "PATCH"}:
        given["json"] = request.json or {}
    return await client.request(method, path.format(**names), **given)


async def test_a_refusal_asks_no_store(deployed: Secured) -> None:
    names = await _furnished(deployed)
    table = deployed.table
    assert isinstance(table, Counted)
    _, text = await deployed.key("User:nobody")
    client = deployed.client(text)
    assert (await client.get("/v1/whoami")).status_code == 200

    for operation in NAMED:
        for asked in (names, ABSENT):
            before = table.calls
            answer = await _asked(client, operation, asked)
            hidden = 404 if RIGHTS[operation].startswith("SUBJECT") else 403
            assert answer.status_code == hidden, (operation, answer.text)
            assert table.calls == before, operation
