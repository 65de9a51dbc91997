"""What a subject sets besides its level: metadata and rules that are added, groups, aliases."""

import json
from typing import Any

import pytest

from tests.service.registry.test_calls import INT, LONG, TEXT, Registry, registry

__all__ = ["registry"]

pytestmark = pytest.mark.anyio


def rule(name: str, kind: str = "CEL") -> dict[str, Any]:
    """Return a rule as answers show it."""
    said = {"name": name, "kind": "CONDITION", "mode": "WRITE", "type": kind, "expr": "true"}
    return {**said, "disabled": False}


ADDED: dict[str, Any] = {
    "defaultMetadata": {"properties": {"owner": "all", "team": "x"}, "sensitive": ["b"]},
    "overrideMetadata": {"properties": {"team": "y"}, "tags": {"a": ["PII"]}, "sensitive": ["a"]},
    "defaultRuleSet": {"domainRules": [rule("one"), rule("two")]},
    "overrideRuleSet": {"domainRules": [rule("two", "ENCRYPT")], "migrationRules": []},
}


async def test_what_a_subject_adds_is_registered_with_its_schemas(registry: Registry) -> None:
    plain = await registry.register("s", INT)
    assert await registry.done("PUT /config/s", ADDED) == ADDED
    assert await registry.done("GET /config/s") == {"compatibilityLevel": "BACKWARD", **ADDED}

    # What is there is found as it is sent; what is new gets the additions.
    assert (await registry.register("s", INT))["id"] == plain["id"]
    given = {"properties": {"owner": "me", "team": "z"}}
    made = await registry.register("s", LONG, metadata=given)
    assert made["metadata"] == {
        "properties": {"owner": "me", "team": "y"},
        "sensitive": ["a", "b"],
        "tags": {"a": ["PII"]},
    }
    assert made["ruleSet"] == {"domainRules": [rule("one"), rule("two", "ENCRYPT")]}
    for body in ({"schema": LONG, "metadata": given}, {"schema": LONG, **whole(made)}):
        assert await registry.done("POST /subjects/s", body) == {"subject": "s", **made, **text()}
        assert await registry.done("POST /subjects/s/versions", body) == made
    # What a schema does not say, it has from the latest version.
    assert (await registry.done("POST /subjects/s", {"schema": LONG}))["id"] == made["id"]
    assert (await registry.register("t", LONG, metadata=given))["id"] != made["id"]
    assert (await registry.register("t", LONG, **whole(made)))["id"] == made["id"]
    found = await registry.done("GET /schemas", ruleType="ENCRYPT")
    assert [(each["subject"], each["version"]) for each in found] == [("s", 2), ("t", 2)]
    assert await registry.done("GET /schemas", ruleType="OTHER") == []
    assert await registry.done("GET /schemas/ids/2") == {
        **{name: made[name] for name in ("guid", "metadata", "ruleSet")},
        **text(),
    }


def whole(made: dict[str, Any]) -> dict[str, Any]:
    return {name: made[name] for name in ("metadata", "ruleSet")}


def text() -> dict[str, str]:
    return {"schema": LONG.replace(" ", "")}


async def test_additions_are_kept_looked_at_and_removed(registry: Registry) -> None:
    path = "/config/s"
    bad_metadata: list[Any] = [
        {"properties": {"a": 1}},
        {"properties": ["a"]},
        {"tags": {"a": "b"}},
        {"sensitive": "a"},
    ]
    for metadata in bad_metadata:
        assert await registry.code(f"PUT {path}", {"defaultMetadata": metadata}) == 422
    assert await registry.code(f"PUT {path}", {"overrideMetadata": 3}) == 422
    twice: list[Any] = [[rule("a"), rule("a")], ["a"], {"name": "a"}]
    for rules in twice:
        assert (
            await registry.code(f"PUT {path}", {"defaultRuleSet": {"domainRules": rules}}) == 42210
        )
    large = {"properties": {"a": "b" * 40_000}}
    assert await registry.code(f"PUT {path}", {"defaultMetadata": large}) == 42209
    body = {"schema": INT, "metadata": large}
    assert await registry.code("POST /subjects/s/versions", body) == 42209

    await registry.done("PUT /config", {"overrideMetadata": {"properties": {"site": "here"}}})
    assert (await registry.register("s", INT))["metadata"] == {"properties": {"site": "here"}}
    body = {"schema": LONG, "metadata": {"properties": {"a": 1}}}
    assert await registry.code("POST /subjects/s/versions", body) == 42201
    body = {"schema": LONG, "ruleSet": {"domainRules": [rule("a"), rule("a")]}}
    assert await registry.code("POST /subjects/s/versions", body) == 42210
    await registry.done("PUT /config", {"defaultRuleSet": {"domainRules": [rule("b")]}})
    await registry.done("PUT /mode/s", {"mode": "IMPORT"}, force="true")
    assert "metadata" not in await registry.register("s", TEXT, id=9, version=9)
    await registry.done("DELETE /mode/s")

    # What is left out stays, null removes, and so does the deletion of the level.
    await registry.done("PUT /config", {"overrideMetadata": None})
    default = {"compatibilityLevel": "BACKWARD", "defaultRuleSet": {"domainRules": [rule("b")]}}
    assert await registry.done("GET /config") == default
    await registry.done(f"PUT {path}", {"compatibilityGroup": "g", "compatibility": "FULL"})
    await registry.done(f"PUT {path}", {"normalize": True, "compatibility": None})
    kept = {"compatibilityGroup": "g", "normalize": True}
    assert await registry.done(f"GET {path}") == {"compatibilityLevel": "BACKWARD", **kept}
    assert await registry.done(f"DELETE {path}") == {"compatibilityLevel": "BACKWARD", **kept}
    assert await registry.code(f"GET {path}") == 40408
    assert await registry.code(f"DELETE {path}") == 40408
    assert await registry.done("DELETE /config") == default
    assert await registry.done("GET /config") == {"compatibilityLevel": "BACKWARD"}


async def test_versions_are_compared_within_their_group(registry: Registry) -> None:
    def of(major: str) -> dict[str, Any]:
        return {"metadata": {"properties": {"major": major}}}

    await registry.done("PUT /config/s", {"compatibilityGroup": "major"})
    await registry.register("s", INT)
    await registry.register("s", TEXT, **of("2"))
    compare = "POST /compatibility/subjects/s/versions"
    for body, compatible in (
        ({"schema": LONG}, True),
        ({"schema": LONG, **of("2")}, False),
        ({"schema": LONG, **of("3")}, True),
    ):
        assert await registry.done(compare, body) == {"is_compatible": compatible}
        with_latest = await registry.done(f"{compare}/latest", body)
        assert with_latest == {"is_compatible": body != {"schema": LONG, **of("2")}}
    assert await registry.code("POST /subjects/s/versions", {"schema": LONG}) == 409, "as 2"
    assert (await registry.register("s", LONG, metadata={}))["version"] == 3
    body = {"schema": LONG, **of("2")}
    assert await registry.code("POST /subjects/s/versions", body) == 409
    # Nothing is compared for those who insist.
    assert (await registry.done("POST /subjects/s/versions", body, force="true"))["version"] == 4
    await registry.done("PUT /config/s", {"compatibilityGroup": None})
    assert await registry.code("POST /subjects/s/versions", {"schema": TEXT, **of("9")}) == 409
    await registry.done("PUT /mode/s", {"mode": "READONLY"})
    body = {"schema": TEXT, **of("9")}
    assert await registry.code("POST /subjects/s/versions", body, force="true") == 42205


async def test_an_alias_reads_another_subject(registry: Registry) -> None:
    await registry.register("new", INT)
    await registry.register("new", LONG, metadata={"properties": {"a": "b"}})
    await registry.register("old", TEXT)
    assert await registry.code("PUT /config/old", {"alias": "old"}) == 42205
    assert await registry.code("PUT /config/:.x:", {"alias": "old"}) == 42205
    assert await registry.code("PUT /config/old", {"alias": "\0"}) == 42208
    await registry.done("PUT /config/old", {"alias": "new"})
    assert (await registry.done("GET /config/old"))["alias"] == "new"

    reads = ["versions", "versions/1", "versions/latest", "versions/2/schema", "metadata?key=a"]
    for read in [*reads, "versions/1/referencedby"]:
        there = await registry.done(f"GET /subjects/new/{read}")
        assert await registry.done(f"GET /subjects/old/{read}") == there
    body = {"schema": LONG, "metadata": {"properties": {"a": "b"}}}
    assert (await registry.done("POST /subjects/old", body))["subject"] == "new"
    compare = "POST /compatibility/subjects/old/versions/latest"
    assert await registry.done(compare, {"schema": TEXT}) == {"is_compatible": False}
    # An alias has no versions to write; what it had before is its own.
    assert await registry.code("POST /subjects/old/versions", {"schema": LONG}) == 42205
    assert await registry.done("GET /subjects") == ["new", "old"]
    await registry.done("PUT /config/chained", {"alias": "old"})
    assert await registry.done("GET /subjects/chained/versions") == [1]
    await registry.done("PUT /config/:.x:s", {"alias": ":.:new"})
    assert (await registry.done("GET /subjects/:.x:s/versions/1"))["subject"] == "new"
    await registry.done("PUT /config/old", {"alias": ""})
    assert (await registry.done("GET /subjects/old/versions/1"))["subject"] == "old"


NESTED = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "lines", "type": {"type": "array", "items": "int"}},
        {"name": "by", "type": ["null", {"type": "record", "name": "User", "fields": []}]},
    ],
}


async def test_a_version_with_other_tags_and_rules(registry: Registry) -> None:
    def tags(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
        return [
            {"schemaEntity": {"entityPath": path, "entityType": "sr_field"}, "tags": [tag]}
            for path, tag in pairs
        ]

    given: dict[str, Any] = {
        "metadata": {"properties": {"a": "b"}},
        "ruleSet": {"domainRules": [rule("one"), rule("two")]},
    }
    await registry.register("s", json.dumps(NESTED), **given)
    change = "POST /subjects/s/versions"
    added = tags(("shop.Order.lines", "X"), ("shop.User", "PII"), (".shop.Order.lines", "Y"))
    body = {"newVersion": 2, "tagsToAdd": added}
    made = await registry.done(f"{change}/1/tags", body)
    assert (made["version"], whole(made)) == (2, given)
    assert await registry.done(f"{change}/latest/tags", body) == made, "they are there"
    found = await registry.done("GET /subjects/s/versions/2/schema")
    assert found["fields"][0]["confluent:tags"] == ["X", "Y"]
    assert found["fields"][1]["type"][1]["confluent:tags"] == ["PII"]

    body = {
        "tagsToRemove": tags(("shop.User", "PII"), ("shop.Order.lines", "X")),
        "rulesToMerge": {"domainRules": [rule("two", "ENCRYPT"), rule("three")]},
        "rulesToRemove": ["one"],
    }
    made = await registry.done(f"{change}/2/tags", body)
    assert made["ruleSet"] == {"domainRules": [rule("two", "ENCRYPT"), rule("three")]}
    found = await registry.done("GET /subjects/s/versions/3/schema")
    assert found["fields"][0]["confluent:tags"] == ["Y"]
    assert "confluent:tags" not in found["fields"][1]["type"][1]

    assert await registry.code(f"{change}/1/tags", {"tagsToAdd": tags(("Order", "X"))}) == 42201
    assert await registry.code(f"{change}/1/tags", {"newVersion": 9, "metadata": {}}) == 42201
    assert await registry.code(f"{change}/1/tags", {**body, "ruleSet": {}}) == 42210
    assert await registry.code(f"{change}/1/tags", {"rulesToMerge": {"domainRules": [3]}}) == 42210
    assert await registry.code(f"{change}/9/tags", body) == 40402
    assert await registry.code("POST /subjects/x/versions/1/tags", body) == 40401
    await registry.register("j", '{"type": "object"}', schemaType="JSON")
    body = {"tagsToAdd": tags(("a", "X"))}
    assert await registry.code("POST /subjects/j/versions/1/tags", body) == 42205
