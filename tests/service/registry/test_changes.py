"""Changes whose replies are lost, and two gateways that change the same at once."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from storage.errors import OutcomeUnknown
from storage.stores.memory import MemoryMetadata
from storage.stores.metadata import Op
from tests.fuzz.deployment import deployment
from tests.service.registry.test_calls import INNER, INT, LONG, OUTER, REFERENCES, TEXT, Registry

pytestmark = pytest.mark.anyio

ONE = "/subjects/s/versions/1"
LIST = "GET /subjects/s/versions"
READ_ONLY = {"mode": "READONLY"}


class SharedTable(MemoryMetadata):
    """A table that loses replies, and at which others are faster."""

    lost = 0
    """How many of the next writes are applied without a reply."""
    first: Callable[[], Awaitable[Any]] | None = None
    """What happens just before the next write."""

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        if (first := self.first) is not None:
            self.first = None
            await first()
        versions = await super().transact(ops)
        if self.lost:
            self.lost -= 1
            raise OutcomeUnknown("the reply was lost")
        return versions


class Pair:
    """Two gateways on one table."""

    def __init__(self, one: Registry, other: Registry) -> None:
        self.one = one
        self.other = other
        self.table = SharedTable(one.deployed.world.new_version)
        one.deployed.table.inner = other.deployed.table.inner = self.table


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with deployment() as one, deployment() as other:
        yield Pair(Registry(one), Registry(other))


async def test_a_change_whose_reply_was_lost_is_answered_as_if_it_were_not(pair: Pair) -> None:
    registry = pair.one

    async def doubtful(call: str, body: Any = None, **query: Any) -> Any:
        pair.table.lost = 1
        found = await registry.done(call, body, **query)
        assert pair.table.lost == 0
        return found

    assert (await doubtful("POST /subjects/s/versions", {"schema": INT}))["version"] == 1
    assert (await doubtful("POST /subjects/s/versions", {"schema": LONG}))["id"] == 2
    for path, field in (("/config", "compatibility"), ("/mode", "mode")):
        value = "FULL" if field == "compatibility" else "READWRITE"
        told = "compatibilityLevel" if field == "compatibility" else field
        for where in (f"{path}/s", path):
            assert await doubtful(f"PUT {where}", {field: value}) == {field: value}
            assert await doubtful(f"DELETE {where}") == {told: value}
    assert await doubtful(f"DELETE {ONE}") == 1
    assert await doubtful(f"DELETE {ONE}", permanent="true") == 1
    assert await doubtful("DELETE /subjects/s") == [2]
    assert await doubtful("DELETE /subjects/s", permanent="true") == [2]
    assert await registry.done("GET /subjects", deleted="true") == []


async def test_who_deletes_a_subject_in_doubt_deletes_nothing_that_came_later(pair: Pair) -> None:
    await pair.one.register("s", INT)
    deleted = pair.table.transact

    async def deleted_and_followed(ops: Sequence[Op]) -> Mapping[str, str]:
        pair.table.transact = deleted  # type: ignore[method-assign]
        await deleted(ops)
        await pair.other.register("s", LONG)
        raise OutcomeUnknown("the reply was lost")

    pair.table.transact = deleted_and_followed  # type: ignore[method-assign]
    assert await pair.one.done("DELETE /subjects/s") == [1]
    assert await pair.one.done(LIST) == [2]


async def test_who_erases_a_version_erases_no_other_that_got_its_number(pair: Pair) -> None:
    await pair.one.register("s", INT)
    await pair.one.done("DELETE /subjects/s")

    async def erased_and_registered() -> None:
        await pair.other.done("DELETE /subjects/s", permanent="true")
        assert (await pair.other.register("s", LONG))["version"] == 1

    pair.table.first = erased_and_registered
    assert await pair.one.code("DELETE /subjects/s", permanent="true") == 40405
    assert await pair.one.done(LIST) == [1]


async def test_what_is_referred_to_and_deleted_at_once_is_one_or_the_other(pair: Pair) -> None:
    one, other = pair.one, pair.other
    await one.register("in", INNER)
    body = {"schema": OUTER, "references": REFERENCES}

    async def delete() -> None:
        await other.done("DELETE /subjects/in/versions/1")

    pair.table.first = delete
    assert await one.code("POST /subjects/out/versions", body) == 42201

    await one.register("in", INNER)
    body["references"] = [{**REFERENCES[0], "version": 2}]

    async def refer() -> None:
        await other.done("POST /subjects/out/versions", body)

    pair.table.first = refer
    assert await one.code("DELETE /subjects/in/versions/2") == 42206


async def test_what_one_gateway_registered_the_other_finds_at_once(pair: Pair) -> None:
    """Although it has just learned that there is no such thing."""
    one, other = pair.one, pair.other
    await one.register("in", INNER)
    assert await other.code(f"GET {ONE}") == 40401
    await one.register("s", INT)
    assert (await other.done(f"GET {ONE}"))["id"] == 2
    assert await other.code("GET /subjects/s/versions/2") == 40402
    assert await other.code("POST /subjects/s", {"schema": LONG}) == 40403
    compare = "POST /compatibility/subjects/s/versions/2"
    assert await other.code(compare, {"schema": LONG}) == 40402
    await one.register("s", LONG)
    assert (await other.done("POST /subjects/s", {"schema": LONG}))["version"] == 2
    assert await other.done(compare, {"schema": TEXT}) == {"is_compatible": False}
    assert await other.done("GET /schemas/ids/3/versions") == [{"subject": "s", "version": 2}]

    assert await other.code("GET /subjects/out/versions/1") == 40401
    out = await one.register("out", OUTER, references=REFERENCES)
    assert await other.done("GET /subjects/in/versions/1/referencedby") == [out["id"]]
    # The latest version is the latest of all gateways, too, when it is referred to.
    await one.register("in", INNER.replace("[]", '[{"name": "b", "type": "int", "default": 1}]'))
    latest = [{**REFERENCES[0], "version": -1}]
    told = await other.register("out", OUTER, references=latest)
    assert told["references"][0]["version"] == 2


async def test_a_mode_and_a_form_set_by_one_gateway_hold_for_the_other_at_once(pair: Pair) -> None:
    one, other = pair.one, pair.other
    await other.register("s", INT)
    await other.register(":.x:s", INT)
    for where, mode in (("/mode/s", "READONLY"), ("/mode", "READONLY"), ("/mode", "READONLY")):
        await other.done("GET /subjects/s/versions")
        await one.done(f"PUT {where}", {"mode": mode})
        assert await other.code(f"DELETE {ONE}") == 42205
        assert await other.code("DELETE /subjects/s") == 42205
        assert await other.code("POST /subjects/s/versions", {"schema": LONG}) == 42205
        assert await other.code("PUT /config/s", {"compatibility": "NONE"}) == 42205
        await one.done(f"DELETE {where}")

    await other.done("POST /subjects/s", {"schema": INT})
    await one.done("PUT /config", {"normalize": True})
    union = json.dumps({"type": "int", "x": 1, "a": 2})
    told = await other.register("n", union)
    assert told["id"] == (await one.register("n", union, normalize=True))["id"]


@pytest.mark.parametrize(
    "call",
    [
        ("POST /subjects/:.x:s/versions", {"schema": LONG}),
        ("POST /subjects/:.x:t/versions", {"schema": INT}),
        ("DELETE /subjects/:.x:s", None),
        ("DELETE /subjects/:.x:s/versions/1", None),
    ],
)
async def test_a_mode_of_all_that_comes_in_between_is_not_overlooked(
    pair: Pair, call: tuple[str, Any]
) -> None:
    await pair.one.register(":.x:s", INT)

    async def stop_all() -> None:
        await pair.other.done("PUT /mode", READ_ONLY)

    pair.table.first = stop_all
    assert await pair.one.code(*call) == 42205


async def test_read_only_for_all_cannot_be_overridden(pair: Pair) -> None:
    registry = pair.one
    await registry.done("PUT /mode/s", {"mode": "READWRITE"})
    await registry.done("PUT /mode", READ_ONLY)
    await registry.register("s", INT)
    await registry.done("PUT /mode", {"mode": "READONLY_OVERRIDE"})
    assert await registry.code("POST /subjects/s/versions", {"schema": LONG}) == 42205
    assert await registry.code("DELETE /subjects/s") == 42205
    assert await registry.done("GET /mode/t", defaultToGlobal="true") == {
        "mode": "READONLY_OVERRIDE"
    }


async def test_a_subject_takes_its_rules_along_and_a_context_its_subjects(pair: Pair) -> None:
    registry = pair.one
    await registry.register(":.x:s", INT)
    await registry.done("PUT /config/:.x:s", {"compatibility": "NONE"})
    await registry.done("PUT /config/:.x:empty", {"compatibility": "NONE"})
    await registry.done("PUT /config/:.x:other", {"compatibility": "NONE"})
    await registry.done("DELETE /config/:.x:other")
    await registry.done("DELETE /subjects/:.x:s")
    assert await registry.code("GET /config/:.x:s") == 40408
    assert await registry.code("DELETE /contexts/.x") == 42211
    await registry.done("DELETE /subjects/:.x:s", permanent="true")
    assert await registry.done("GET /contexts") == [".", ".x"]
    assert (await registry.ask("DELETE /contexts/.x")).status_code == 204
    assert await registry.done("GET /contexts") == ["."]
    assert await registry.code("GET /config/:.x:empty") == 40408
    assert (await registry.register(":.x:s", LONG))["id"] == 2, "ids are not given again"


async def test_what_is_deleted_already_is_called_so(pair: Pair) -> None:
    registry = pair.one
    await registry.register("s", INT)
    await registry.done("DELETE /subjects/s")
    assert await registry.code(f"DELETE {ONE}") == 40406
    assert await registry.code("DELETE /subjects/s/versions/2") == 40402
    assert await registry.code("DELETE /subjects/t/versions/1") == 40401
    assert await registry.done("DELETE /subjects/s/versions/latest", permanent="true") == 1


async def test_a_number_that_no_client_can_ask_for_is_not_given(pair: Pair) -> None:
    registry, post = pair.one, "POST /subjects/s/versions"
    await registry.done("PUT /mode/s", {"mode": "IMPORT"})
    assert await registry.code(post, {"schema": INT, "id": 1, "version": 2**31}) == 42202
    await registry.register("s", INT, id=1, version=2**31 - 1)
    await registry.done("DELETE /mode/s")
    assert await registry.code(post, {"schema": LONG}) == 42205
    assert (await registry.register("s", INT))["version"] == 2**31 - 1
