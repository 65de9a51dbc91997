"""What a new version has from the one before, because it does not say it itself."""

import json
from typing import Any

import anyio
import pytest

from tests.service.registry.test_additions import rule
from tests.service.registry.test_calls import INT, LONG, TEXT, Registry, registry

__all__ = ["registry"]

pytestmark = pytest.mark.anyio

REGISTER = "POST /subjects/s/versions"
OWNER: dict[str, Any] = {"properties": {"owner": "ana"}}
RULES: dict[str, Any] = {"domainRules": [rule("seal", "ENCRYPT")]}


async def test_a_producer_that_knows_no_rules_does_not_lose_them(registry: Registry) -> None:
    made = await registry.register("s", INT, metadata=OWNER, ruleSet=RULES)
    # As a serializer registers what it has, or looks it up.
    assert await registry.register("s", INT) == made
    assert (await registry.done("POST /subjects/s", {"schema": INT}))["id"] == made["id"]

    second = await registry.register("s", LONG)
    assert (second["version"], second["metadata"], second["ruleSet"]) == (2, OWNER, RULES)
    other = {"properties": {"owner": "eva"}}
    third = await registry.register("s", LONG, metadata=other)
    assert (third["version"], third["metadata"], third["ruleSet"]) == (3, other, RULES)
    assert await registry.register("s", LONG, metadata=OWNER) == second
    # Who wants none says so.
    fourth = await registry.register("s", LONG, metadata={}, ruleSet={})
    assert (fourth["version"], set(fourth)) == (4, {"id", "guid", "version"})
    # Nothing goes from one subject to another, or comes with what is imported.
    assert "ruleSet" not in await registry.register("t", LONG)
    await registry.done("PUT /mode/s", {"mode": "IMPORT"}, force="true")
    assert "ruleSet" not in await registry.register("s", INT, id=70, version=7)


async def test_ids_do_not_depend_on_how_a_client_writes_metadata_and_rules(
    registry: Registry,
) -> None:
    metadata: list[dict[str, Any]] = [
        {"properties": {"a": "1", "b": "2"}, "sensitive": ["x", "y"], "tags": {"p": ["1", "2"]}},
        {
            "tags": {"p": ["2", "1"]},
            "sensitive": ["y", "x", "x"],
            "properties": {"b": "2", "a": "1"},
        },
    ]
    first, second = [await registry.register("s", INT, metadata=each) for each in metadata]
    assert first == second
    assert first["metadata"] == metadata[0]
    plain = await registry.register("t", INT)
    nothings: list[dict[str, Any]] = [{}, {"tags": {}, "properties": None, "sensitive": []}]
    for nothing in nothings:
        assert (await registry.register("t", INT, metadata=nothing)) == plain

    full: dict[str, Any] = {
        **rule("a"),
        "doc": None,
        "tags": [],
        "params": {},
        "onFailure": "",
    }
    short = {name: said for name, said in rule("a").items() if name != "disabled"}
    some = [
        {"domainRules": [rule("a")]},
        {"domainRules": [short]},
        {"domainRules": [full], "migrationRules": [], "encodingRules": None},
        {"domainRules": [dict(reversed(rule("a").items()))]},
    ]
    made = [await registry.register("r", INT, ruleSet=each) for each in some]
    assert made == [made[0]] * 4
    assert made[0]["ruleSet"] == some[0]
    named = await registry.register("q", INT, ruleSet={"domainRules": [{"name": "a"}]})
    whole = {"name": "a", "kind": "TRANSFORM", "mode": "WRITEREAD", "disabled": False}
    assert named["ruleSet"] == {"domainRules": [whole]}


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("metadata", {"properties": 5}, 42201),
        ("metadata", {"properties": {"a": 1}}, 42201),
        ("metadata", {"sensitive": "x"}, 42201),
        ("metadata", {"tags": {"a": ["b", 1]}}, 42201),
        ("ruleSet", {"domainRules": 5}, 42210),
        ("ruleSet", {"domainRules": [{"kind": "CONDITION"}]}, 42210),
        ("ruleSet", {"domainRules": [{"name": "a", "kind": "OTHER"}]}, 42210),
        ("ruleSet", {"domainRules": [{"name": "a", "mode": ["READ"]}]}, 42210),
        ("ruleSet", {"domainRules": [{"name": "a", "tags": "b"}]}, 42210),
        ("ruleSet", {"domainRules": [{"name": "a"}], "migrationRules": [{"name": "a"}]}, 42210),
    ],
)
async def test_what_no_client_could_read_is_refused(
    registry: Registry, field: str, value: Any, code: int
) -> None:
    assert await registry.code(REGISTER, {"schema": INT, field: value}) == code


async def test_what_is_there_as_it_is_sent_is_found_as_such(registry: Registry) -> None:
    plain = await registry.register("s", INT)
    await registry.register("s", INT, ruleSet=RULES)
    assert await registry.register("s", INT) == plain
    assert (await registry.register("s", LONG))["ruleSet"] == RULES


async def test_without_a_text_it_is_that_of_the_latest_version(registry: Registry) -> None:
    assert await registry.code(REGISTER, {"metadata": OWNER}) == 42201
    await registry.register("part", '{"type": "enum", "name": "E", "symbols": ["A"]}')
    references = [{"name": "E", "subject": "part", "version": 1}]
    schema = {"type": "record", "name": "R", "fields": [{"name": "e", "type": "E"}]}
    await registry.register("s", json.dumps(schema), references=references)
    made = await registry.done(REGISTER, {"ruleSet": RULES})
    assert (made["version"], made["references"], made["ruleSet"]) == (2, references, RULES)
    assert await registry.done("GET /subjects/s/versions/2/schema") == schema
    await registry.register("j", "true", schemaType="JSON")
    made = await registry.done("POST /subjects/j/versions", {"metadata": OWNER})
    assert (made["schemaType"], made["metadata"]) == ("JSON", OWNER)


async def test_the_last_rule_can_be_removed(registry: Registry) -> None:
    await registry.register("s", INT, ruleSet=RULES)
    made = await registry.done(f"{REGISTER}/1/tags", {"rulesToRemove": ["seal"]})
    assert made["version"] == 2
    assert "ruleSet" not in made


async def test_a_number_of_a_version_goes_to_no_other_text(registry: Registry) -> None:
    numbered = {"properties": {"confluent:version": "1", "owner": "ana"}}
    made = await registry.register("s", INT, metadata=numbered)
    assert await registry.register("s", INT) == made
    assert (await registry.register("s", LONG))["metadata"] == OWNER


async def test_versions_that_come_at_once_have_what_was_said_last(registry: Registry) -> None:
    await registry.done("PUT /config/s", {"compatibility": "NONE"})
    await registry.register("s", INT)

    async with anyio.create_task_group() as group:
        for number in range(8):
            schema = {"type": "fixed", "name": f"f{number}", "size": 4}
            said = {"ruleSet": RULES} if number == 3 else {}
            body = {"schema": json.dumps(schema), **said}
            group.start_soon(registry.done, REGISTER, body)

    versions = await registry.done("GET /subjects/s/versions")
    assert versions == list(range(1, 10))
    rules = [
        "ruleSet" in await registry.done(f"GET /subjects/s/versions/{version}")
        for version in versions
    ]
    assert rules == sorted(rules), "once one has rules, all after it have"
    assert rules[-1]


async def test_a_comparison_is_of_what_was_sent(registry: Registry) -> None:
    await registry.done("PUT /config/s", {"compatibilityGroup": "major"})
    await registry.register("s", INT, metadata={"properties": {"major": "1"}})
    compare = "POST /compatibility/subjects/s/versions"
    assert await registry.done(compare, {"schema": TEXT}) == {"is_compatible": True}
    assert await registry.code(REGISTER, {"schema": TEXT}) == 409
