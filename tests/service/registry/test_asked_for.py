"""What callers may ask for besides: tags, references inside, aliases, checks of names."""

import json
from typing import Any

import pytest

from tests.service.registry.test_calls import INT, LONG, Registry, registry

__all__ = ["registry"]

pytestmark = pytest.mark.anyio

USER = {
    "type": "record",
    "name": "User",
    "namespace": "shop",
    "confluent:tags": ["PII"],
    "fields": [{"name": "mail", "type": "string", "confluent:tags": ["PII", "MAIL"]}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "by", "type": "User"},
        {"name": "to", "type": ["null", "User"], "confluent:tags": ["OTHER"]},
    ],
}
REFERENCES = [{"name": "shop.User", "subject": "user", "version": 1}]


async def test_a_schema_with_its_references_inside(registry: Registry) -> None:
    await registry.register("user", json.dumps(USER))
    made = await registry.register("order", json.dumps(ORDER), references=REFERENCES)
    by, to = ORDER["fields"]
    inside = {**ORDER, "fields": [{**by, "type": {**USER}}, to]}  # type: ignore[dict-item]
    del inside["fields"][0]["type"]["namespace"]  # type: ignore[index]
    calls = [f"schemas/ids/{made['id']}", "subjects/order/versions/1"]
    for call in [*calls, f"schemas/guids/{made['guid']}"]:
        found = await registry.done(f"GET /{call}", format="resolved")
        assert json.loads(found["schema"]) == inside
        assert found["guid"] == made["guid"]
        assert json.loads((await registry.done(f"GET /{call}"))["schema"]) == ORDER
    for call in calls:
        assert await registry.done(f"GET /{call}/schema", format="resolved") == inside
        assert await registry.done(f"GET /{call}/schema", format="other") == ORDER


async def test_references_too_deep_to_be_inside(registry: Registry) -> None:
    inner: Any = {"type": "fixed", "name": "r0", "size": 1}
    await registry.register("s0", json.dumps(inner))
    for number in range(1, 21):
        inner = f"r{number - 1}"
        for _ in range(30):
            inner = {"type": "array", "items": inner}
        fields = [{"name": "a", "type": inner}]
        schema = {"type": "record", "name": f"r{number}", "fields": fields}
        references = [{"name": f"r{number - 1}", "subject": f"s{number - 1}", "version": 1}]
        await registry.register(f"s{number}", json.dumps(schema), references=references)
    assert await registry.done("GET /subjects/s20/versions/1/schema")
    assert await registry.code("GET /subjects/s20/versions/1", format="resolved") == 42201


async def test_a_schema_and_what_it_refers_to_have_a_size(registry: Registry) -> None:
    fields = [{"name": f"f{number}", "type": "int"} for number in range(20_000)]
    references = []
    for name in ("A", "B"):
        await registry.register(
            name, json.dumps({"type": "record", "name": name, "fields": fields})
        )
        references.append({"name": name, "subject": name, "version": 1})
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "A"}]}
    body = {"schema": json.dumps(schema), "references": references}
    answer = await registry.ask("POST /subjects/s/versions", body)
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42201)
    assert "with all that it refers to" in answer.json()["message"]
    await registry.done("POST /subjects/s/versions", {**body, "references": references[:1]})


async def test_defaults_of_references_are_looked_at_once(registry: Registry) -> None:
    """Each reference takes nearly as many steps as a schema may."""
    for number in range(8):
        await registry.register(f"s{number}", multiplying(f"R{number}"))
    references = [{"name": f"R{n}", "subject": f"s{n}", "version": 1} for n in range(8)]
    fields = [{"name": f"f{n}", "type": f"R{n}"} for n in range(8)]
    schema = json.dumps({"type": "record", "name": "All", "fields": fields})
    made = await registry.register("all", schema, references=references)
    assert await registry.done(f"GET /schemas/ids/{made['id']}/schema", format="resolved")


def multiplying(name: str) -> str:
    """Return a small schema whose default has very many values."""
    kinds: list[dict[str, Any]] = [
        {"type": "record", "name": f"{name}_0", "fields": [{"name": "i", "type": "int"}]}
    ]
    kinds[0]["fields"][0]["default"] = 0
    for level in range(1, 6):
        fields = [{"name": f"a{n}", "type": f"{name}_{level - 1}", "default": {}} for n in range(8)]
        kinds.append({"type": "record", "name": f"{name}_{level}", "fields": fields})
    fields = [{"name": f"x{level}", "type": kind} for level, kind in enumerate(kinds)]
    return json.dumps({"type": "record", "name": name, "fields": fields})


async def test_parts_that_have_a_tag(registry: Registry) -> None:
    await registry.register("user", json.dumps(USER))
    made = await registry.register("order", json.dumps(ORDER), references=REFERENCES)
    await registry.register("json", "true", schemaType="JSON")

    def entity(path: str, kind: str, *tags: str) -> dict[str, Any]:
        whole = {"entityPath": path, "entityType": kind}
        return {"schemaEntity": whole, "tags": list(tags)}

    user = entity("shop.User", "sr_record", "PII")
    mail = entity("shop.User.mail", "sr_field", "PII", "MAIL")
    to = entity("shop.Order.to", "sr_field", "OTHER")
    for tags, wanted in (("PII", [user, mail]), (["OTHER", "MAIL"], [mail, to])):
        for call in (f"GET /schemas/ids/{made['id']}", "GET /subjects/order/versions/latest"):
            assert (await registry.done(call, findTags=tags))["schemaTags"] == wanted
    everything = (await registry.done("GET /subjects/order/versions/1", findTags="*"))["schemaTags"]
    assert sorted(everything, key=str) == sorted([user, mail, to], key=str)
    for subject in ("order", "json"):
        found = await registry.done(f"GET /subjects/{subject}/versions/1", findTags="NONE")
        assert "schemaTags" not in found


async def test_a_list_with_aliases(registry: Registry) -> None:
    await registry.register("new", INT)
    await registry.register("other", INT)
    await registry.done("PUT /config/old", {"alias": "new"})
    await registry.done("PUT /config/older", {"alias": "new"})

    async def listed(**query: str) -> list[tuple[str, Any]]:
        found = await registry.done("GET /schemas", **query)
        return [(each["subject"], each.get("aliases")) for each in found]

    assert await listed() == [("new", None), ("other", None)]
    assert await listed(aliases="true") == [("new", ["old", "older"]), ("other", None)]
    assert await listed(aliases="true", subjectPrefix="old") == [("new", ["old", "older"])]
    assert await listed(aliases="true", subjectPrefix="older") == [("new", ["older"])]
    assert await listed(subjectPrefix="old") == []


RESERVED = {"properties": {"confluent:reserved": "b, c"}}
FILE = 'syntax = "proto3"; message M { int32 a = 1; }'
SCHEMAS = {
    "AVRO": LONG,
    "JSON": '{"type": "object", "properties": {"a": {"type": "integer"}}}',
    "PROTOBUF": FILE,
}


@pytest.mark.parametrize("kind", SCHEMAS)
async def test_names_that_are_reserved(registry: Registry, kind: str) -> None:
    assert await registry.done("PUT /config", {"validateFields": True}) == {"validateFields": True}
    assert (await registry.done("GET /config"))["validateFields"] is True
    schema = {"schema": SCHEMAS[kind], "schemaType": kind}
    register, compare = "POST /subjects/s/versions", "POST /compatibility/subjects/s/versions"
    taken = {"properties": {"confluent:reserved": "a"}}
    assert await registry.code(register, {**schema, "metadata": taken}) == 409
    await registry.done(register, {**schema, "metadata": RESERVED})
    less = {**schema, "metadata": {"properties": {"confluent:reserved": "b"}}}
    assert await registry.code(register, less) == 409
    found = await registry.done(compare, less, verbose="true")
    assert (found["is_compatible"], len(found["messages"])) == (False, 1)
    assert "RESERVED_FIELD_REMOVED" in found["messages"][0]
    assert "'c'" in found["messages"][0]
    found = await registry.done(f"{compare}/latest", {**schema, "metadata": RESERVED})
    assert found == {"is_compatible": True}
    assert (await registry.done(register, less, force="true"))["version"] == 2
    await registry.done("PUT /config/s", {"validateFields": False})
    assert (await registry.done(register, {**schema, "metadata": taken}))["version"] == 3


async def test_names_of_json_that_confluent_keeps_for_itself(registry: Registry) -> None:
    body = {"schema": '{"properties": {"$$a": {}}}', "schemaType": "JSON"}
    await registry.done("PUT /config/s", {"validateFields": True})
    assert await registry.code("POST /subjects/s/versions", body) == 42201
    assert (await registry.done("POST /subjects/t/versions", body))["version"] == 1


async def test_a_verbose_comparison_says_what_is_no_schema(registry: Registry) -> None:
    compare = "POST /compatibility/subjects/s/versions"
    assert await registry.code(compare, {"schema": "{"}) == 42201
    found = await registry.done(compare, {"schema": "{"}, verbose="true")
    assert found["is_compatible"] is False
    assert found["messages"][0].startswith("Invalid schema: ")


async def test_calls_that_look_whether_somebody_is_there(registry: Registry) -> None:
    for call in ("POST /", "POST /registry"):
        assert await registry.done(call, {"a": "b"}) == {}
    assert await registry.done("GET /v1/metadata/deployment") == {"attributes": []}


async def test_the_mode_forward_is_not_here(registry: Registry) -> None:
    answer = await registry.ask("PUT /mode/s", {"mode": "FORWARD"})
    assert answer.json()["message"] == "Forward mode only supported on global level"
    for call in ("PUT /mode", "PUT /mode/s", "PUT /mode/:.x:"):
        assert await registry.code(call, {"mode": "FORWARD"}) == 42204
