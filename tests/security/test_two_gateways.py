"""What one gateway changes, others obey within five seconds; without the table, nobody is in."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from service.security.api_keys.credentials import ApiKey, ApiKeys, NewKey
from service.security.view import VIEW_AGE_MAX_S
from storage.errors import RiachoError, StoreUnavailable, UnknownCredential
from storage.stores.memory import MemoryMetadata
from storage.stores.metadata import Versioned
from tests.security.secured import SEEN_S, Secured
from tests.storage.helpers.faults import FaultyMetadata, random_faults

pytestmark = pytest.mark.anyio

OBEYED_S = 5.0


class Unreachable(FaultyMetadata):
    """A table as one gateway reaches it."""

    is_down = False
    is_slow: asyncio.Event | None = None

    async def get(self, key: str) -> Versioned | None:
        if self.is_down:
            raise StoreUnavailable("no connection to the table")
        item = await super().get(key)
        if self.is_slow is not None:
            await self.is_slow.wait()
        return item


@pytest.fixture
async def two() -> AsyncIterator[Secured]:
    deployed = Secured(gateways=2)
    yield deployed
    await deployed.aclose()


async def status(client: httpx.AsyncClient, method: str = "GET", path: str = "/v1/whoami") -> int:
    return (await client.request(method, path)).status_code


async def obeyed_after(deployed: Secured, ask: Callable[[], Awaitable[int]], wanted: int) -> float:
    """Return how long it takes until `ask` gets the status."""
    began_s = deployed.clock.now_s
    while await ask() != wanted:
        assert deployed.clock.now_s - began_s < 60
        deployed.pass_time(0.1)
    return deployed.clock.now_s - began_s


async def test_a_revoked_key_is_refused_by_both(two: Secured) -> None:
    root = await two.root()
    key, text = await two.key("User:ana")
    own, other = two.client(text, 0), two.client(text, 1)
    for _ in range(3):
        assert (await status(own), await status(other)) == (200, 200)
        two.pass_time(1.7)
    assert (await root.delete(f"/v1/keys/{key.key_id}")).status_code == 204

    assert await status(own) == 401
    assert await obeyed_after(two, lambda: status(other), 401) <= OBEYED_S


async def test_a_revocation_ends_what_the_key_has_made(two: Secured) -> None:
    root = await two.root()
    key, text = await two.key("User:ana")
    texts = [text]
    for _ in range(3):
        made = await two.client(texts[-1]).post("/v1/keys", json={})
        assert made.status_code == 201, made.text
        texts.append(made.json()["key"])
    youngest = two.client(texts[-1], 1)
    assert await status(youngest) == 200
    await root.delete(f"/v1/keys/{key.key_id}")

    assert await obeyed_after(two, lambda: status(youngest), 401) <= OBEYED_S


async def test_an_acl_is_obeyed_by_both_when_it_comes_and_when_it_goes(two: Secured) -> None:
    root = await two.root()
    await root.post("/v1/topics", json={"name": "t"})
    _, text = await two.key("User:ana")
    own, other = two.client(text, 0), two.client(text, 1)
    path = "/v1/topics/t"
    assert (await status(own, path=path), await status(other, path=path)) == (403, 403)
    await two.allow("User:ana", "TOPIC", "READ", name="t")

    assert await status(own, path=path) == 200
    assert await obeyed_after(two, lambda: status(other, path=path), 200) <= OBEYED_S
    gone = await root.delete("/v1/acls", params={"principal": "User:ana"})
    assert len(gone.json()["acls"]) == 1
    assert await status(own, path=path) == 403
    assert await obeyed_after(two, lambda: status(other, path=path), 403) <= OBEYED_S


async def test_secrets_before_a_rotation_live_as_long_as_it_says(two: Secured) -> None:
    root = await two.root()
    key, first = await two.key("User:ana")
    path = f"/v1/keys/{key.key_id}/rotate"
    # The answer of the first call is lost, so it is repeated.
    lost = (await root.post(path, json={"overlap_ms": 10_000})).json()["key"]
    second = (await root.post(path, json={"overlap_ms": 10_000})).json()["key"]
    two.pass_time()
    for number in (0, 1):
        for text in (first, lost, second):
            assert await status(two.client(text, number)) == 200
    told = (await root.get(f"/v1/keys/{key.key_id}")).json()
    assert told["old_secret_until_ms"] == 1_010_000
    two.pass_time(6.1)
    for number in (0, 1):
        assert await status(two.client(first, number)) == 401
        assert await status(two.client(second, number)) == 200

    third = (await root.post(path, json={"overlap_ms": 60_000})).json()["key"]
    fourth = (await root.post(path, json={"overlap_ms": 0})).json()["key"]
    two.pass_time()
    for number in (0, 1):
        for text in (second, third):
            assert await status(two.client(text, number)) == 401
        assert await status(two.client(fourth, number)) == 200


async def test_its_own_change_is_obeyed_though_the_view_is_being_read() -> None:
    table = MemoryMetadata(iter(f"v{n}" for n in range(10**6)).__next__)
    view = Unreachable(table)
    deployed = Secured(table=table, views=[view])
    try:
        root = await deployed.root()
        key, text = await deployed.key("User:ana")
        ana = deployed.client(text)
        assert (await status(root), await status(ana)) == (200, 200)
        deployed.pass_time()
        view.is_slow = asyncio.Event()
        # It reads the version as it is before the change, and waits.
        reading = asyncio.create_task(status(ana))
        for _ in range(20):
            await asyncio.sleep(0)
        gate, view.is_slow = view.is_slow, None
        await ApiKeys(table, deployed.world).revoke(key.key_id)
        deployed.apps[0]._security.view.expire()  # type: ignore[union-attr]
        gate.set()
        await reading

        assert await status(ana) == 401
    finally:
        await deployed.aclose()


async def test_without_the_table_nobody_gets_in() -> None:
    table = MemoryMetadata(iter(f"v{n}" for n in range(10**6)).__next__)
    view = Unreachable(table)
    deployed = Secured(table=table, views=[view])
    try:
        root = await deployed.root()
        assert await status(root) == 200
        view.is_down = True
        deployed.pass_time(VIEW_AGE_MAX_S)
        assert await status(root) == 200  # What it knows is young enough.
        deployed.pass_time(0.01)

        for client in (root, deployed.client(None), deployed.client("rk_nonsense")):
            for path in ("/v1/whoami", "/v1/topics", "/nothing", "/metrics"):
                answer = await client.get(path)
                assert answer.status_code == 503, answer.text
                assert answer.json()["code"] == StoreUnavailable.code
                assert "retry-after" in answer.headers
        assert await status(root, path="/healthy") == 200
        view.is_down = False
        assert await status(root) == 200
        assert await status(deployed.client(None)) == 401
    finally:
        await deployed.aclose()


@dataclass
class Administrator:
    """Makes, rotates and revokes keys through a table that fails, and notes what was answered."""

    keys: ApiKeys
    good: set[str] = field(default_factory=set)
    bad: set[str] = field(default_factory=set)

    async def work(self) -> None:
        for step in range(4):
            made = await _tried(lambda: self.keys.create(NewKey(principal="User:ana")))
            if made is not None:  # Else it may be there, but nobody knows its secret.
                await self._change(*made, is_revoked=bool(step % 2))

    async def _change(self, key: ApiKey, text: str, *, is_revoked: bool) -> None:
        rotated = await _tried(lambda: self.keys.rotate(key.key_id, 0))
        if rotated is None:
            # Its secret is the old or a new one; it is there.
            assert await self.keys.find(key.key_id) is not None
            return
        self.bad.add(text)
        if not is_revoked:
            self.good.add(rotated[1])
        elif await _tried(lambda: self.keys.revoke(key.key_id)) is not None:
            self.bad.add(rotated[1])


@pytest.mark.parametrize("seed", range(25))
async def test_lost_replies_leave_nothing_half_done(seed: int) -> None:
    table = MemoryMetadata(iter(f"v{n}" for n in range(10**6)).__next__)
    links = [FaultyMetadata(table, random_faults(100 * seed + n, 0.4)) for n in range(2)]
    deployed = Secured(table=table)
    both = [Administrator(ApiKeys(link, deployed.world)) for link in links]
    try:
        await asyncio.gather(*(one.work() for one in both))
        for _ in range(100):
            await asyncio.sleep(0)  # Late writes arrive.
        deployed.pass_time()
        for one in both:
            for text in one.good:
                assert await status(deployed.client(text)) == 200
            for text in one.bad:
                assert await status(deployed.client(text)) == 401
    finally:
        await deployed.aclose()


async def _tried(attempt: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await attempt()
    except UnknownCredential:
        raise AssertionError("nobody else has revoked it") from None
    except RiachoError:
        return None


async def test_concurrent_changes_of_acls_are_all_kept(two: Secured) -> None:
    roots = [await two.root(0), await two.root(1)]

    async def grant(number: int, name: str) -> None:
        acl = {
            "resource_type": "TOPIC",
            "resource_name": name,
            "principal": f"User:{number}",
            "operation": "READ",
        }
        assert (await roots[number % 2].post("/v1/acls", json=acl)).status_code == 201

    await asyncio.gather(*(grant(number, f"t{number % 3}") for number in range(24)))
    two.pass_time(SEEN_S)
    for root in roots:
        acls = (await root.get("/v1/acls")).json()["acls"]
        assert {acl["principal"] for acl in acls} == {f"User:{number}" for number in range(24)}
