"""The registry's calls, as a client without a library sees them."""

import json
from base64 import b64decode
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from service.registry.served import in_context
from tests.fuzz.deployment import Deployment, deployment

pytestmark = pytest.mark.anyio

INT = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
LONG = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]})
TEXT = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]})
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class Registry:
    """Asks a gateway, and looks at the form of every answer."""

    def __init__(self, deployed: Deployment) -> None:
        self.deployed = deployed

    async def ask(self, call: str, body: Any = None, **query: Any) -> httpx.Response:
        method, path = call.split(" ", 1)
        content = None if body is None else json.dumps(body)
        answer = await self.deployed.http.request(
            method, path, content=content, params=query, headers={"content-type": MEDIA_TYPE}
        )
        if answer.status_code != 204:
            assert answer.headers["content-type"] == MEDIA_TYPE, answer.text
        return answer

    async def done(self, call: str, body: Any = None, **query: Any) -> Any:
        answer = await self.ask(call, body, **query)
        assert answer.is_success, answer.text
        return answer.json()

    async def code(self, call: str, body: Any = None, **query: Any) -> int:
        """Return the code of an error, whose status must go with it."""
        answer = await self.ask(call, body, **query)
        told = answer.json()
        assert told.keys() == {"error_code", "message"}
        assert told["message"]
        code: int = told["error_code"]
        assert answer.status_code == (code if code < 1000 else code // 100)
        return code

    async def register(self, subject: str, schema: str, **fields: Any) -> dict[str, Any]:
        path = f"/subjects/{quote(subject, safe='')}/versions"
        found: dict[str, Any] = await self.done(f"POST {path}", {"schema": schema, **fields})
        return found


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    async with deployment() as deployed:
        yield Registry(deployed)


async def test_a_schema_is_registered_once_and_found(registry: Registry) -> None:
    first = await registry.register("s-value", INT)
    assert (first["id"], first["version"]) == (1, 1)
    assert await registry.register("s-value", INT.replace(" ", "")) == first
    assert (await registry.register("t", INT))["id"] == 1
    assert (await registry.register("s-value", LONG))["version"] == 2

    assert await registry.done("GET /subjects") == ["s-value", "t"]
    assert await registry.done("GET /subjects", subjectPrefix="t") == ["t"]
    assert await registry.done("GET /subjects", offset=1, limit=1) == ["t"]
    assert await registry.done("GET /subjects/s-value/versions") == [1, 2]
    latest = await registry.done("GET /subjects/s-value/versions/latest")
    assert latest["subject"] == "s-value"
    assert (latest["version"], latest["id"], json.loads(latest["schema"])) == (
        2,
        2,
        json.loads(LONG),
    )
    assert await registry.done("GET /subjects/s-value/versions/1/schema") == json.loads(INT)
    assert await registry.done("GET /schemas/ids/2/schema") == json.loads(LONG)
    assert (await registry.done("GET /schemas/ids/1", fetchMaxId="true"))["maxId"] == 2
    assert await registry.done("GET /schemas/ids/1/subjects") == ["s-value", "t"]
    assert await registry.done("GET /schemas/ids/1/versions", subject="t") == [
        {"subject": "t", "version": 1}
    ]
    assert len(await registry.done("GET /schemas", latestOnly="true")) == 2
    guid = first["guid"]
    assert (await registry.done(f"GET /schemas/guids/{guid}"))["guid"] == guid
    assert await registry.done(f"GET /schemas/guids/{guid}/ids") == [{"context": ".", "id": 1}]
    found = await registry.done("POST /subjects/s-value", {"schema": INT})
    assert (found["id"], found["version"]) == (1, 1)


async def test_what_is_not_there_has_its_code(registry: Registry) -> None:
    await registry.register("s", INT)

    assert await registry.code("GET /subjects/x/versions") == 40401
    assert await registry.code("POST /subjects/x", {"schema": INT}) == 40401
    assert await registry.code("GET /subjects/s/versions/2") == 40402
    assert await registry.code("POST /subjects/s", {"schema": LONG}) == 40403
    assert await registry.code("GET /schemas/ids/7") == 40403
    assert await registry.code("GET /schemas/guids/x") == 40403
    assert await registry.code("GET /config/s") == 40408
    assert await registry.code("GET /mode/s") == 40409
    assert await registry.code("POST /subjects/s/versions", {"schema": "{"}) == 42201
    assert await registry.code("POST /subjects/x/versions", {"schema": " "}) == 42201
    assert await registry.code("POST /subjects/s", {"schema": ""}) == 42201
    assert (
        await registry.code("POST /subjects/s/versions", {"schema": INT, "schemaType": "X"})
        == 42201
    )
    assert await registry.code("GET /subjects/s/versions/0") == 42202
    assert await registry.code("GET /subjects/s/versions/two") == 42202
    assert await registry.code("PUT /config", {"compatibility": "SOME"}) == 42203
    assert await registry.code("PUT /mode", {"mode": "SLOW"}) == 42204
    assert await registry.code("PUT /config", {"alias": "t"}) == 42205
    assert await registry.code("GET /subjects/%00/versions") == 42208
    assert await registry.code("GET /subjects/__GLOBAL/versions") == 42208
    large = json.dumps({"type": "int", "x": "y" * 1_100_000})
    assert await registry.code("POST /subjects/s/versions", {"schema": large}) == 42209
    assert await registry.code("POST /subjects/s/versions", []) == 422
    form = {"content-type": "application/x-www-form-urlencoded"}
    sent = await registry.deployed.http.post("/subjects/s/versions", headers=form, content=b"{}")
    assert (sent.status_code, sent.json()["error_code"]) == (415, 415)
    metadata = {"schema": LONG, "metadata": {"properties": {"owner": "me"}}}
    told = await registry.done("POST /subjects/m/versions", metadata)
    assert told["metadata"] == metadata["metadata"]


async def test_levels_decide_what_may_follow(registry: Registry) -> None:
    post = "POST /subjects/s/versions"
    compare = "POST /compatibility/subjects/s/versions"
    await registry.register("s", INT)
    assert await registry.code(post, {"schema": TEXT}) == 409
    told = await registry.done(f"{compare}/latest", {"schema": TEXT}, verbose="true")
    assert told["is_compatible"] is False
    assert "TYPE_MISMATCH" in told["messages"][0]
    assert "/fields/0/type" in told["messages"][0]
    assert await registry.done(compare, {"schema": LONG}) == {"is_compatible": True}
    assert await registry.done("POST /compatibility/subjects/x/versions", {"schema": LONG}) == {
        "is_compatible": True
    }
    assert await registry.code(f"{compare}/9", {"schema": LONG}) == 40402
    assert (
        await registry.code("POST /compatibility/subjects/x/versions/1", {"schema": LONG}) == 40401
    )

    assert await registry.done("PUT /config/s", {"compatibility": "FORWARD"}) == {
        "compatibility": "FORWARD"
    }
    assert await registry.done("GET /config/s") == {"compatibilityLevel": "FORWARD"}
    assert await registry.code(post, {"schema": LONG}) == 409
    assert await registry.done("DELETE /config/s") == {"compatibilityLevel": "FORWARD"}
    assert await registry.done("PUT /config", {"compatibility": "NONE"}) == {
        "compatibility": "NONE"
    }
    assert await registry.done("GET /config/s", defaultToGlobal="true") == {
        "compatibilityLevel": "NONE"
    }
    assert (await registry.register("s", TEXT))["version"] == 2
    assert await registry.done("DELETE /config") == {"compatibilityLevel": "NONE"}
    assert await registry.done("GET /config") == {"compatibilityLevel": "BACKWARD"}
    # Another level may be asked about without setting it.
    verdict = "POST /compatibility/subjects/s/versions/1"
    for level, is_compatible in (("BACKWARD", True), ("FORWARD", False), ("none", True)):
        told = await registry.done(verdict, {"schema": LONG}, level=level)
        assert told == {"is_compatible": is_compatible}
    assert await registry.code(verdict, {"schema": LONG}, level="UPWARD") == 42203
    # Bytes of a text can be read as text, but not what the first version wrote.
    raw = TEXT.replace("string", "bytes")
    await registry.done("PUT /config/s", {"compatibility": "BACKWARD_TRANSITIVE"})
    assert await registry.code(post, {"schema": raw}) == 409
    await registry.done("PUT /config/s", {"compatibility": "BACKWARD"})
    assert (await registry.register("s", raw))["version"] == 3


async def test_a_version_is_deleted_in_two_steps(registry: Registry) -> None:
    await registry.register("s", INT)
    await registry.register("s", LONG)
    one = "/subjects/s/versions/1"

    assert await registry.code(f"DELETE {one}", permanent="true") == 40407
    assert await registry.done(f"DELETE {one}") == 1
    assert await registry.code(f"DELETE {one}") == 40406
    assert await registry.code(f"GET {one}") == 40402
    assert (await registry.done(f"GET {one}", deleted="true"))["deleted"] is True
    versions = "GET /subjects/s/versions"
    assert await registry.done(versions) == [2]
    assert await registry.done(versions, deleted="true") == [1, 2]
    assert await registry.done(versions, deletedOnly="true") == [1]
    assert await registry.done(versions, deleted="true", deletedAsNegative="true") == [-1, 2]
    assert await registry.done(f"DELETE {one}", permanent="true") == 1
    assert await registry.done(versions, deleted="true") == [2]
    assert await registry.code(f"DELETE {one}") == 40402

    assert await registry.done("GET /subjects/s/versions", deleted_only="false") == [2]
    assert await registry.code("DELETE /subjects/s", permanent="true") == 40405
    assert await registry.done("DELETE /subjects/s") == [2]
    assert await registry.code("DELETE /subjects/s") == 40404
    assert await registry.done("GET /subjects") == []
    assert await registry.done("GET /subjects", deletedOnly="true") == ["s"]
    assert await registry.done("GET /subjects", deleted_only="True") == ["s"]
    assert await registry.done(versions, deleted_only="True") == [2]
    assert await registry.code("DELETE /subjects/s/versions/2") == 40406
    assert await registry.code("DELETE /subjects/s/versions/1") == 40402
    assert await registry.code("DELETE /subjects/s/versions/latest") == 40401
    assert await registry.code("GET /subjects/s/versions") == 40401
    again = await registry.register("s", LONG)
    assert (again["id"], again["version"]) == (2, 3), "the same schema keeps its id"
    await registry.done("DELETE /subjects/s")
    assert await registry.done("DELETE /subjects/s", permanent="true") == [2, 3]
    assert await registry.code("DELETE /subjects/s") == 40401
    assert (await registry.done("GET /schemas/ids/2"))["schema"], "records may carry the id"
    assert (await registry.register("s", LONG))["version"] == 1


async def test_a_version_is_found_by_its_metadata(registry: Registry) -> None:
    for owner, schema in (("ana", INT), ("bob", INT), ("bob", LONG)):
        metadata = {"properties": {"owner": owner, "of": "shop"}, "tags": {"a": ["PII"]}}
        await registry.register("s", schema, metadata=metadata)
    await registry.register("s", LONG, metadata={"properties": None})
    find = "GET /subjects/s/metadata"

    for keys, values, version in (
        (["owner"], ["ana"], 1),
        (["owner", "of"], ["bob", "shop"], 3),
        ([], [], 4),
    ):
        found = await registry.done(find, key=keys, value=values)
        assert found["version"] == version
    assert (await registry.done(find, key="owner", value="ana"))["metadata"]["tags"]
    assert await registry.code(find, key="owner", value="eve") == 40403
    assert await registry.code("GET /subjects/t/metadata", key="owner", value="ana") == 40401
    await registry.done("DELETE /subjects/s/versions/1")
    assert await registry.code(find, key="owner", value="ana") == 40403
    found = await registry.done(find, key="owner", value="ana", deleted="true")
    assert (found["version"], found["deleted"]) == (1, True)


PROTO = 'syntax = "proto3"; message M {int32 a = 1;}'


async def test_each_answer_has_the_form_that_is_asked_for(registry: Registry) -> None:
    body = {"schema": PROTO, "schemaType": "PROTOBUF"}
    made = await registry.done("POST /subjects/s/versions", body, format="serialized")
    asked = ["GET /subjects/s/versions/1", "GET /subjects/s/metadata", "GET /schemas/ids/1"]
    found = [await registry.done(each, format="serialized") for each in asked]
    found.append(await registry.done("POST /subjects/s", body, format="serialized"))

    assert b64decode(made["schema"])
    assert {each["schema"] for each in found} == {made["schema"]}
    assert (await registry.done("GET /schemas/ids/1"))["schema"].startswith("syntax")
    # Clients keep what they have sent, unless they are told a text in its place.
    assert "schema" not in await registry.done("POST /subjects/s/versions", body)


INNER = json.dumps({"type": "record", "name": "n.In", "fields": []})
OUTER = json.dumps({"type": "record", "name": "n.Out", "fields": [{"name": "a", "type": "n.In"}]})
REFERENCES = [{"name": "n.In", "subject": "in", "version": 1}]


async def test_what_is_referred_to_stays(registry: Registry) -> None:
    await registry.register("in", INNER)
    assert await registry.code("POST /subjects/out/versions", {"schema": OUTER}) == 42201
    body = {"schema": OUTER, "references": [{**REFERENCES[0], "version": 2}]}
    assert await registry.code("POST /subjects/out/versions", body) == 42201
    out = await registry.register("out", OUTER, references=REFERENCES)
    assert out["references"] == REFERENCES
    latest = [{**REFERENCES[0], "version": -1}]
    assert (await registry.register("out", OUTER, references=latest))["id"] == out["id"]

    assert await registry.done("GET /subjects/in/versions/1/referencedby") == [out["id"]]
    assert await registry.code("DELETE /subjects/in/versions/1") == 42206
    assert await registry.code("DELETE /subjects/in") == 42206
    await registry.done("DELETE /subjects/out")
    assert await registry.done("GET /subjects/in/versions/1/referencedby") == []
    await registry.done("DELETE /subjects/in")
    assert await registry.code("DELETE /subjects/in", permanent="true") == 42206
    await registry.done("DELETE /subjects/out", permanent="true")
    await registry.done("DELETE /subjects/in", permanent="true")


async def test_modes(registry: Registry) -> None:
    post = "POST /subjects/s/versions"
    assert await registry.done("GET /mode") == {"mode": "READWRITE"}
    assert await registry.code(post, {"schema": INT, "id": 7}) == 42205
    assert await registry.done("PUT /mode/s", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    imported = await registry.register("s", INT, id=7, version=3)
    assert (imported["id"], imported["version"]) == (7, 3)
    assert await registry.code(post, {"schema": INT, "id": 8}) == 42207
    assert await registry.code(post, {"schema": LONG, "id": 7}) == 42205
    assert await registry.done("PUT /mode/s", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert await registry.code(post, {"schema": LONG}) == 42205
    assert await registry.code("DELETE /subjects/s") == 42205
    assert (await registry.register("s", INT))["id"] == 7, "what is there is not written"
    assert await registry.code("PUT /mode/s", {"mode": "IMPORT"}) == 42205
    assert await registry.done("PUT /mode/s", {"mode": "IMPORT"}, force="true") == {
        "mode": "IMPORT"
    }
    assert await registry.done("DELETE /mode/s") == {"mode": "IMPORT"}
    assert await registry.done("GET /mode/s", defaultToGlobal="true") == {"mode": "READWRITE"}
    following = await registry.register("s", LONG)
    assert (following["id"], following["version"]) == (8, 4)


NAMES = ["a/b", "100%", "a%2Fb", "ünï", "日本", "x" * 249, "é" * 249, " ", "a b+c", ":.ctx:s"]


async def test_any_name_is_a_subject(registry: Registry) -> None:
    for number, name in enumerate(NAMES):
        schema = json.dumps({"type": "int", "n": number})
        assert (await registry.register(name, schema))["version"] == 1
        path = quote(name, safe="")
        found = await registry.done(f"GET /registry/subjects/{path}/versions/1")
        assert (found["subject"], found["schema"]) == (name, schema.replace(" ", ""))
    assert await registry.done("GET /subjects") == sorted(NAMES)


async def test_a_context_is_a_registry_of_its_own(registry: Registry) -> None:
    await registry.register("s", INT)
    staged = await registry.register(":.staging:s", LONG)
    assert staged["id"] == 1
    assert (await registry.register(":.:s", INT))["version"] == 1

    assert await registry.done("GET /contexts") == [".", ".staging"]
    assert await registry.done("GET /subjects", subjectPrefix=":.staging:") == [":.staging:s"]
    there = await registry.done("GET /schemas/ids/1", subject=":.staging:")
    assert json.loads(there["schema"]) == json.loads(LONG)
    here = await registry.done("GET /schemas/ids/1")
    assert json.loads(here["schema"]) == json.loads(INT)
    await registry.done("PUT /config/:.staging:", {"compatibility": "NONE"})
    assert (await registry.register(":.staging:s", TEXT))["version"] == 2
    assert await registry.code("DELETE /contexts/.staging") == 42211
    await registry.done("DELETE /subjects/:.staging:s")
    await registry.done("DELETE /subjects/:.staging:s", permanent="true")
    assert (await registry.ask("DELETE /contexts/.staging")).status_code == 204


async def test_what_callers_may_leave_out_or_ask_for_besides(registry: Registry) -> None:
    await registry.register("s", INT)
    await registry.register(":.x:s", INT)
    await registry.register(":.x:t", INT)
    assert await registry.done("GET /subjects", subjectPrefix=":*:s") == [":.x:s", "s"]
    assert len(await registry.done("GET /schemas", subjectPrefix=":*:s")) == 2
    await registry.done("DELETE /subjects/s")
    [found] = await registry.done("GET /schemas", subjectPrefix="s", deleted="true")
    assert found["deleted"] is True
    assert await registry.code("POST /subjects/s/versions", {"schema": None}) == 42201
    assert await registry.done("PUT /config/s", {"validateFields": False}) == {
        "validateFields": False
    }

    for subject in (":.x:s", ":.x:t", ":.x:", "s"):
        await registry.done(f"PUT /mode/{subject}", {"mode": "READONLY"})
    assert await registry.done("DELETE /mode/:.x:", recursive="true") == {"mode": "READONLY"}
    assert await registry.code("GET /mode/:.x:s") == 40409
    assert await registry.code("GET /mode/:.x:t") == 40409
    assert await registry.done("GET /mode/s") == {"mode": "READONLY"}


async def test_a_form_may_be_asked_for_wherever_a_schema_is_shown(registry: Registry) -> None:
    body = {"schema": 'syntax = "proto3"; message M { int32 a = 1; }', "schemaType": "PROTOBUF"}
    asked = {"format": "serialized"}
    made = await registry.done("POST /subjects/p/versions", body, **asked)
    assert b"M" in b64decode(made["schema"], validate=True)
    for call in (
        "POST /subjects/p",
        "GET /subjects/p/versions/1",
        f"GET /schemas/ids/{made['id']}",
    ):
        sent = body if call.startswith("POST") else None
        assert (await registry.done(call, sent, **asked))["schema"] == made["schema"]


@pytest.mark.parametrize("under", ["", "/registry"])
@pytest.mark.parametrize("written", [".staging", "%3A.staging%3A", "staging"])
async def test_a_context_may_be_the_base_path(registry: Registry, under: str, written: str) -> None:
    base = f"{under}/contexts/{written}"
    path = f"{base}/subjects/a%2Fb/versions"
    other = {"schema": LONG}
    await registry.register("x", TEXT)

    made = await registry.done(f"POST {path}", {"schema": INT})
    assert made["id"] == 1, "a context has ids of its own"
    for call in (
        f"GET {path}/latest",
        "GET /subjects/%3A.staging%3Aa%2Fb/versions/latest",
        f"GET {base}/subjects/%3A.staging%3Aa%2Fb/versions/1",
    ):
        assert (await registry.done(call))["subject"] == ":.staging:a/b"
    assert (await registry.done(f"POST {base}/subjects/a%2Fb", {"schema": INT}))["version"] == 1
    assert await registry.done(f"GET {base}/subjects") == [":.staging:a/b"]
    assert await registry.done(f"GET {base}/subjects", subjectPrefix="b") == []
    [listed] = await registry.done(f"GET {base}/schemas")
    assert listed["subject"] == ":.staging:a/b"
    assert json.loads((await registry.done(f"GET {base}/schemas/ids/1"))["schema"]) == json.loads(
        INT
    )
    found = await registry.done(f"GET {base}/schemas/ids/1/versions", subject="a/b")
    assert found == [{"subject": ":.staging:a/b", "version": 1}]
    assert await registry.code(f"GET {base}/schemas/ids/2") == 40403

    compared = f"POST {base}/compatibility/subjects/a%2Fb/versions/1"
    assert await registry.done(compared, {"schema": TEXT}) == {"is_compatible": False}
    assert (await registry.done(f"GET {base}/config"))["compatibilityLevel"] == "BACKWARD"
    await registry.done(f"PUT {base}/config", {"compatibility": "NONE"})
    assert (await registry.done(f"GET {base}/config"))["compatibilityLevel"] == "NONE"
    assert (await registry.done("GET /config"))["compatibilityLevel"] == "BACKWARD"
    await registry.done(f"PUT {base}/mode/a%2Fb", {"mode": "READONLY"})
    assert await registry.code(f"POST {path}", other) == 42205
    assert (await registry.done(f"GET {base}/mode"))["mode"] == "READWRITE"
    assert await registry.done(f"GET {base}/schemas/types")
    assert in_context([], b"") == ([], b""), "of the path *"
    for nowhere in (f"{base}/v1/topics", "/contexts/a%3Ab/subjects"):
        assert (await registry.deployed.http.get(nowhere)).status_code == 404


async def test_a_long_text_is_kept_in_parts(registry: Registry) -> None:
    import random

    noise = random.Random(1).randbytes(500_000).hex()
    schema = json.dumps({"type": "int", "noise": noise})
    made = await registry.register("s", schema)
    await registry.deployed.restart()
    found = await registry.done(f"GET /schemas/ids/{made['id']}")
    assert json.loads(found["schema"]) == json.loads(schema)


async def test_what_the_registry_says_of_itself(registry: Registry) -> None:
    assert {"version", "commit", "kafka_cluster_id"} <= (await registry.done("GET /")).keys()
    assert await registry.done("GET /registry") == await registry.done("GET /")
    assert await registry.done("GET /schemas/types") == ["JSON", "PROTOBUF", "AVRO"]
    assert "scope" in await registry.done("GET /v1/metadata/id")
    assert "version" in await registry.done("GET /registry/v1/metadata/version")


async def test_a_cached_schema_costs_no_read_of_the_table(registry: Registry) -> None:
    await registry.register("s", INT)
    registry.deployed.table.fault = "down"

    assert (await registry.done("GET /schemas/ids/1"))["schema"]
    assert await registry.code("GET /schemas/ids/2") == 50001
