"""Connect's calls, as user interfaces and scripts for Kafka Connect make them.

Statuses and texts are those that Kafka Connect 4.3 was seen to answer.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.connect.tasks.items import (
    FAILED,
    RUNNING,
    ConnectorItem,
    OffsetItem,
    RunHealth,
    TaskItem,
    canonical,
    decode_connector,
    decode_task,
    digest_of,
    encode_connector,
    encode_offset,
    encode_task,
)
from service.connect.tasks.offsets import StoredOffsets
from storage import keys
from storage.errors import StoreUnavailable
from storage.leases import LeaseItem
from storage.leases import encode as encode_lease
from storage.stores.memory import MemoryMetadata
from storage.stores.metadata import MetadataStore, Op, Put
from storage.stores.sqlite.table import SqliteMetadata
from tests.security.secured import Secured, world_on
from tests.storage.helpers.worlds import Clock

pytestmark = pytest.mark.anyio

CLASS = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SOURCE = {"connector.class": CLASS, "topic": "t", "file": "in.txt"}
SINK = {"connector.class": "FileStreamSink", "topics": "t", "file": "out.txt"}


class Connect:
    """Asks a gateway, and looks at the form of every answer."""

    def __init__(self, http: httpx.AsyncClient, table: MetadataStore) -> None:
        self.http = http
        self.table = table

    async def ask(self, call: str, body: Any = None, **query: Any) -> httpx.Response:
        method, path = call.split(" ", 1)
        sent = {} if body is None else {"json": body}
        answer = await self.http.request(method, path, params=query, **sent)
        if answer.content:
            assert answer.headers["content-type"] == "application/json", answer.text
        return answer

    async def done(self, call: str, body: Any = None, status: int = 200, **query: Any) -> Any:
        answer = await self.ask(call, body, **query)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def refused(self, status: int, call: str, body: Any = None) -> str:
        told = await self.done(call, body, status)
        assert told.keys() == {"error_code", "message"}
        assert told["error_code"] == status
        return str(told["message"])

    async def create(self, name: str = "c", config: Any = SOURCE, **more: Any) -> Any:
        return await self.done("POST /connectors", {"name": name, "config": config, **more}, 201)

    async def item(self, name: str = "c") -> ConnectorItem:
        stored = await self.table.get(keys.connector(name))
        assert stored is not None
        return decode_connector(stored.value)

    async def plan(self, *tasks: RunHealth, name: str = "c") -> None:
        """Do what a runner does: plan tasks, and say how they fare."""
        stored = await self.table.get(keys.connector(name))
        assert stored is not None
        found = decode_connector(stored.value)
        health = RunHealth(state=RUNNING, worker="w")
        planned: dict[str, Any] = {"planned": found.generation, "task_count": len(tasks)}
        new = ConnectorItem(
            **{f: getattr(found, f) for f in found.__struct_fields__} | planned | {"health": health}
        )
        ops: list[Op] = [Put(keys.connector(name), encode_connector(new), stored.version)]
        for number, each in enumerate(tasks):
            task = TaskItem(name, number, found.generation, health=each, topics=("t",))
            ops.append(Put(keys.connect_task(name, number), encode_task(task), None))
        await self.table.transact(ops)

    async def read_until(self, position: int, name: str = "c", file: str = "in.txt") -> None:
        partition = canonical({"filename": file})
        item = OffsetItem(name, partition, canonical({"position": position}), 1)
        key = keys.connect_offset(name, digest_of(partition))
        await self.table.transact([Put(key, encode_offset(item), None)])


@pytest.fixture(params=["memory", "sqlite"])
async def secured(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Secured]:
    version = world_on(Clock(), 2).new_version
    is_memory = request.param == "memory"
    table = MemoryMetadata(version) if is_memory else SqliteMetadata(tmp_path / "m.db", version)
    deployed = Secured(table=table, connect_files=tmp_path)
    yield deployed
    await deployed.aclose()


@pytest.fixture
async def connect(secured: Secured) -> Connect:
    return Connect(await secured.root(), secured.table)


async def test_a_connector_is_created_shown_changed_and_deleted(connect: Connect) -> None:
    assert await connect.done("GET /connectors") == []
    made = await connect.ask("POST /connectors", {"name": "c", "config": SOURCE})
    assert made.status_code == 201
    assert made.headers["location"] == "/connectors/c"
    described = {"name": "c", "config": {**SOURCE, "name": "c"}, "tasks": [], "type": "source"}
    assert made.json() == described
    assert await connect.done("GET /connectors/c") == described
    assert await connect.done("GET /connect/connectors/c/config") == described["config"]
    assert await connect.done("GET /connectors") == ["c"]
    conflict = await connect.refused(409, "POST /connectors", {"name": "c", "config": SOURCE})
    assert conflict == "Connector c already exists"

    put = await connect.done("PUT /connectors/c/config", {**SOURCE, "tasks.max": 2})
    assert put["config"]["tasks.max"] == "2"
    assert (await connect.item()).generation == 2
    patched = await connect.done("PATCH /connectors/c/config", {"tasks.max": None, "topic": "u"})
    assert patched["config"] == {**SOURCE, "name": "c", "topic": "u"}
    assert (await connect.item()).generation == 3
    await connect.done("PUT /connectors/c/config", patched["config"])
    assert (await connect.item()).generation == 3
    await connect.done("PUT /connectors/d/config", SINK, 201)

    await connect.done("DELETE /connectors/c", status=204)
    for call in ("GET /connectors/c", "DELETE /connectors/c", "GET /connectors/c/tasks"):
        assert await connect.refused(404, call) == "Connector c not found"
    assert await connect.done("GET /connectors") == ["d"]


async def test_a_wrong_configuration_is_refused_with_all_that_is_wrong(connect: Connect) -> None:
    wrong = {**SOURCE, "tasks.max": "x", "topci": "t"}
    told = await connect.refused(400, "POST /connectors", {"name": "c", "config": wrong})
    first, *errors, last = told.splitlines()
    assert first == "Connector configuration is invalid and contains the following 2 error(s):"
    assert len(errors) == 2
    assert "did you mean 'topic'?" in errors[1]
    assert "/connector-plugins/{connectorType}/config/validate" in last
    for body, why in [
        ({"name": "c", "config": {"topic": "t"}}, "contains no connector type"),
        ({"name": "c", "config": {"connector.class": "Nope"}}, "which name matches Nope"),
        ({"name": "c", "config": {**SOURCE, "name": "d"}}, "doesn't match connector name"),
        ({"name": "c", "config": SOURCE, "initial_state": "SOON"}, "initial_state"),
        ({"config": SOURCE}, "name of a connector"),
        ({"name": "c\n", "config": {**SOURCE, "file": "../x"}}, "file"),
        ([], "not what this call takes"),
    ]:
        assert why in await connect.refused(400, "POST /connectors", body)
    form = await connect.http.post("/connectors", data={"name": "c"})
    assert form.status_code == 415
    assert await connect.done("GET /connectors") == []


async def test_what_kafka_does_not_take_beside_a_configuration_is_refused(
    connect: Connect,
) -> None:
    body = {"name": "c", "config": SOURCE, "initial_sate": "STOPPED"}
    assert "unknown field `initial_sate`" in await connect.refused(400, "POST /connectors", body)


async def test_whoever_creates_at_the_same_time_creates_or_changes(connect: Connect) -> None:
    calls = [connect.ask("PUT /connectors/c/config", {**SOURCE, "topic": f"t{n}"}) for n in (1, 2)]
    statuses = [answer.status_code for answer in await asyncio.gather(*calls)]
    assert sorted(statuses) == [200, 201]


async def test_states_are_what_users_wish_and_runners_say(connect: Connect) -> None:
    await connect.create(initial_state="paused")
    assert (await connect.done("GET /connectors/c/status"))["connector"]["state"] == "PAUSED"
    await connect.done("PUT /connectors/c/resume", status=202)
    failed = RunHealth(state=FAILED, worker="w", trace="Boom", failures=3)
    await connect.plan(RunHealth(state=RUNNING, worker="w"), failed)

    status = await connect.done("GET /connectors/c/status")
    assert {**status["connector"], "version": ""} == {
        "state": "RUNNING",
        "worker_id": "w",
        "version": "",
    }
    assert [task["state"] for task in status["tasks"]] == ["RUNNING", "FAILED"]
    assert status["tasks"][1]["trace"] == "Boom"
    assert status["tasks"][1]["riacho"]["failures"] == 3
    expanded = await connect.done("GET /connectors", expand=["status", "info"])
    assert expanded["c"]["status"] == status
    assert [task["task"] for task in expanded["c"]["info"]["tasks"]] == [0, 1]
    assert (await connect.done("GET /connectors/c/tasks/0/status"))["state"] == "RUNNING"
    told = await connect.refused(404, "GET /connectors/c/tasks/9/status")
    assert told == "No status found for task c-9"
    [first, _] = await connect.done("GET /connectors/c/tasks")
    assert first["id"] == {"connector": "c", "task": 0}
    assert first["config"]["topic"] == "t"
    assert (await connect.done("GET /connectors/c/topics")) == {"c": {"topics": ["t"]}}
    await connect.done("PUT /connectors/c/topics/reset", status=202)
    assert (await connect.done("GET /connectors/c/topics")) == {"c": {"topics": []}}

    await connect.done("PUT /connectors/c/pause", status=202)
    paused = await connect.done("GET /connectors/c/status")
    assert [each["state"] for each in (paused["connector"], *paused["tasks"])][:2] == ["PAUSED"] * 2
    await connect.done("PUT /connectors/c/stop", status=204)
    stopped = await connect.done("GET /connectors/c/status")
    assert (stopped["connector"]["state"], stopped["tasks"]) == ("STOPPED", [])
    assert (await connect.done("GET /connectors/c"))["tasks"] == []


async def test_restarts_reach_the_tasks_that_are_meant(connect: Connect) -> None:
    await connect.create()
    await connect.plan(RunHealth(state=RUNNING), RunHealth(state=FAILED, trace="x"))

    async def restarts() -> list[int]:
        found = [await connect.table.get(keys.connect_task("c", n)) for n in range(2)]
        return [decode_task(each.value).restart for each in found if each is not None]

    await connect.done("POST /connectors/c/restart", status=204)
    assert await restarts() == [0, 0]
    query = {"includeTasks": "true", "onlyFailed": "true"}
    status = await connect.done("POST /connectors/c/restart", status=202, **query)
    assert [task["state"] for task in status["tasks"]] == ["RUNNING", "RESTARTING"]
    assert await restarts() == [0, 1]
    await connect.done("POST /connectors/c/restart", status=202, includeTasks="true")
    await connect.done("POST /connectors/c/tasks/0/restart", status=204)
    assert await restarts() == [2, 2]
    told = await connect.refused(404, "POST /connectors/c/tasks/7/restart")
    assert told == "Unknown task: c-7"


async def test_positions_of_a_source_are_changed_while_it_is_stopped(connect: Connect) -> None:
    await connect.create()
    await connect.read_until(7)
    place = {"partition": {"filename": "in.txt"}, "offset": {"position": 7}}
    assert await connect.done("GET /connectors/c/offsets") == {"offsets": [place]}
    changed: Any = {"offsets": [{**place, "offset": {"position": 3}}]}
    for call, body in (("PATCH", changed), ("DELETE", None)):
        told = await connect.refused(400, f"{call} /connectors/c/offsets", body)
        assert told.startswith("Connectors must be in the STOPPED state before their offsets")
    await connect.done("PUT /connectors/c/stop", status=204)
    nothing: list[Any] = [{"offsets": []}, {}]
    for body in nothing:
        told = await connect.refused(400, "PATCH /connectors/c/offsets", body)
        assert told == "Partitions / offsets need to be provided for an alter offsets request"

    told = await connect.done("PATCH /connectors/c/offsets", changed)
    assert told == {"message": "The offsets for this connector have been altered successfully"}
    assert await connect.done("GET /connectors/c/offsets") == changed
    gone = {"offsets": [{**place, "offset": None}]}
    await connect.done("PATCH /connectors/c/offsets", gone)
    assert await connect.done("GET /connectors/c/offsets") == {"offsets": []}
    many = [{"partition": {"n": n}, "offset": {"at": n}} for n in range(150)]
    await connect.done("PATCH /connectors/c/offsets", {"offsets": many})
    assert len((await connect.done("GET /connectors/c/offsets"))["offsets"]) == 150
    told = await connect.done("DELETE /connectors/c/offsets")
    assert told == {"message": "The offsets for this connector have been reset successfully"}
    assert await connect.done("GET /connectors/c/offsets") == {"offsets": []}


async def test_offsets_of_a_sink_are_those_of_its_group(connect: Connect) -> None:
    await connect.done("POST /v1/topics", {"name": "t"}, 201)
    await connect.create("s", SINK, initial_state="STOPPED")
    partition = {"kafka_topic": "t", "kafka_partition": 0}
    place = {"partition": partition, "offset": {"kafka_offset": 5}}
    await connect.done("PATCH /connectors/s/offsets", {"offsets": [place]})
    assert await connect.done("GET /connectors/s/offsets") == {"offsets": [place]}
    [committed] = (await connect.done("GET /v1/groups/connect-s/offsets"))["offsets"]
    assert (committed["topic"], committed["offset"]) == ("t", 5)
    for wrong in ({"partition": {"x": 1}}, {"partition": partition, "offset": {"x": 1}}):
        told = await connect.refused(400, "PATCH /connectors/s/offsets", {"offsets": [wrong]})
        assert "for a sink connector" in told
    await connect.done("PATCH /connectors/s/offsets", {"offsets": [{"partition": partition}]})
    assert await connect.done("GET /connectors/s/offsets") == {"offsets": []}
    await connect.done("PATCH /connectors/s/offsets", {"offsets": [place]})
    await connect.done("DELETE /connectors/s/offsets")
    assert await connect.done("GET /connectors/s/offsets") == {"offsets": []}


@pytest.mark.parametrize("died_after", range(5))
async def test_a_connector_inherits_nothing_of_one_that_was_half_deleted(
    secured: Secured, connect: Connect, died_after: int
) -> None:
    await connect.create()
    await connect.plan(RunHealth(), RunHealth())
    for number in range(120):
        await connect.read_until(number, file=f"{number}.txt")
    inner = secured.table.transact
    calls = 0

    async def dies(ops: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > died_after:
            raise StoreUnavailable("killed")
        return await inner(ops)

    secured.table.transact = dies  # type: ignore[method-assign]
    await connect.refused(503, "DELETE /connectors/c")
    secured.table.transact = inner  # type: ignore[method-assign]

    if died_after:
        assert await connect.refused(404, "GET /connectors/c") == "Connector c not found"
        assert await connect.done("GET /connectors") == []
        await connect.create()
        assert await connect.done("GET /connectors/c/offsets") == {"offsets": []}
    else:
        assert len((await connect.done("GET /connectors/c/offsets"))["offsets"]) == 120
        await connect.done("DELETE /connectors/c", status=204)
        assert await connect.table.get(keys.connector("c")) is None
    assert await connect.table.list(keys.connect_tasks_of("c")) == []
    assert await connect.table.list(keys.connect_offsets_of("c")) == []


async def test_plugins_and_the_worker_describe_themselves(connect: Connect) -> None:
    found = await connect.done("GET /connector-plugins")
    assert all(each.keys() == {"class", "type", "version"} for each in found)
    assert {"source", "sink"} == {each["type"] for each in found}
    every = await connect.done("GET /connector-plugins", connectorsOnly="false")
    kinds = {"converter", "header_converter", "transformation", "predicate"}
    assert kinds <= {each["type"] for each in every}
    shown = await connect.done("GET /connector-plugins/FileStreamSource/config")
    assert {"name", "file", "topic"} <= {each["name"] for each in shown}
    told = await connect.refused(404, "GET /connector-plugins/Nope/config")
    assert told == "Unknown plugin Nope."
    call = "PUT /connector-plugins/FileStreamSource/config/validate"
    assert (await connect.done(call, {**SOURCE, "name": "c"}))["error_count"] == 0
    told = await connect.refused(400, call, SINK)
    assert told.startswith("Included connector type FileStreamSink does not match request type")

    assert (await connect.done("GET /health"))["status"] == "healthy"
    about = await connect.done("GET /connect")
    assert about.keys() == {"version", "commit", "kafka_cluster_id"}
    assert (await connect.ask("GET /connect/")).status_code == 307
    assert (await connect.done("GET /admin/loggers/root")).keys() == {"level", "last_modified"}
    assert (await connect.refused(404, "GET /admin/loggers/no")) == "Logger no not found."
    await connect.refused(404, "PUT /admin/loggers/root", {"level": "LOUD"})


async def test_a_method_that_a_path_does_not_take_is_refused_in_kafkas_form(
    connect: Connect,
) -> None:
    assert await connect.refused(405, "POST /connectors/c") == "HTTP 405 Method Not Allowed"
    answer = await connect.ask("PUT /connectors")
    assert answer.headers["allow"] == "GET, POST, HEAD"


async def test_names_may_have_slashes_and_more(connect: Connect) -> None:
    name = "a/b ü:1"
    await connect.create(name)
    assert (await connect.done("GET /connectors/a%2Fb%20%C3%BC%3A1"))["name"] == name
    await connect.done("DELETE /connectors/a%2Fb%20%C3%BC%3A1", status=204)


async def test_a_secret_is_never_stored(connect: Connect) -> None:
    config = {**SOURCE, "producer.override.sasl.jaas.config": "hunter2"}
    told = await connect.refused(400, "POST /connectors", {"name": "c", "config": config})
    assert "hunter2" not in told
    assert "${env:NAME}" in told
    config["producer.override.sasl.jaas.config"] = "${env:JAAS}"
    made = await connect.create(config=config)
    assert made["config"]["producer.override.sasl.jaas.config"] == "${env:JAAS}"


async def test_a_connector_has_the_rights_of_who_configured_it(
    secured: Secured, connect: Connect
) -> None:
    for name in ("ana", "bob"):
        for operation in ("CREATE", "ALTER"):
            await secured.allow(f"User:{name}", "CONNECTOR", operation)
    secured.pass_time()
    ana = Connect(secured.client((await secured.key("User:ana"))[1]), secured.table)
    bob = Connect(secured.client((await secured.key("User:bob"))[1]), secured.table)
    await ana.create()
    assert (await connect.item()).principal == "User:ana"
    await connect.done("PATCH /connectors/c/config", {"topic": "u"})
    assert (await connect.item()).principal == "User:ana"
    # Who changes what it reads cannot let it read by the rights of another.
    await bob.done("PATCH /connectors/c/config", {"topic": "v"})
    assert (await connect.item()).principal == "User:bob"
    await bob.done("PUT /connectors/c/pause", status=202)
    named = {"riacho.principal": "User:etl"}
    await bob.refused(403, "PATCH /connectors/c/config", named)
    await connect.done("PATCH /connectors/c/config", named)
    assert (await connect.item()).principal == "User:etl"
    await bob.refused(403, "PATCH /connectors/c/config", {"topic": "w"})


async def test_a_tenant_sees_its_own_connectors_without_its_prefix(
    secured: Secured, connect: Connect
) -> None:
    _, text = await secured.key("User:t", is_super=True, name_prefix="tenant.")
    tenant = Connect(secured.client(text), secured.table)
    await connect.create("other")
    assert (await tenant.create())["name"] == "c"
    assert await tenant.done("GET /connectors") == ["c"]
    assert (await tenant.done("GET /connectors/c/status"))["name"] == "c"
    assert await tenant.refused(404, "GET /connectors/other") == "Connector other not found"
    item = await connect.item("tenant.c")
    assert (item.name, item.name_prefix, item.config["name"]) == ("tenant.c", "tenant.", "c")
    assert await connect.done("GET /connectors") == ["other", "tenant.c"]
    await connect.done("PATCH /connectors/tenant.c/config", {"topic": "u"})
    assert (await connect.item("tenant.c")).name_prefix == "tenant."


async def test_offsets_are_not_changed_while_a_task_runs(
    secured: Secured, connect: Connect
) -> None:
    await connect.create()
    await connect.plan(RunHealth(state=RUNNING))
    await connect.done("PUT /connectors/c/stop", status=204)
    key = keys.lease(keys.connect_task("c", 0))
    inner, beats, version = secured.table.get_many, 0, None

    async def beating(wanted: Any) -> Any:
        nonlocal beats, version
        if key in wanted:
            beats += 1
            put = Put(key, encode_lease(LeaseItem("w", 1, beats)), version)
            version = (await connect.table.transact([put]))[key]
        return await inner(wanted)

    secured.table.get_many = beating  # type: ignore[method-assign]
    body = {"offsets": [{"partition": {"filename": "in.txt"}, "offset": {"position": 3}}]}
    for call, sent in (("PATCH", body), ("DELETE", None)):
        told = await connect.refused(400, f"{call} /connectors/c/offsets", sent)
        assert told.startswith("Connectors must be in the STOPPED state before their offsets")
    secured.table.get_many = inner  # type: ignore[method-assign]
    assert (await connect.item()).offsets_epoch == 0
    # Whoever held it is dead: it has not renewed the lease for all the time that was waited.
    await connect.done("PATCH /connectors/c/offsets", body)
    assert (await connect.item()).offsets_epoch == 1
    assert await connect.done("GET /connectors/c/offsets") == body
    await connect.done("DELETE /connectors/c/offsets")
    assert (await connect.item()).offsets_epoch == 2


async def test_a_target_that_holds_offsets_is_to_be_told_what_was_changed(connect: Connect) -> None:
    await connect.done("POST /v1/topics", {"name": "t", "partitions": 2}, 201)
    await connect.create("s", SINK, initial_state="STOPPED")
    place = {"partition": {"kafka_topic": "t", "kafka_partition": 1}, "offset": {"kafka_offset": 5}}
    await connect.done("PATCH /connectors/s/offsets", {"offsets": [place]})

    async def told() -> dict[Any, Any]:
        found = await StoredOffsets(connect.table, "s").all()
        return {partition["kafka_partition"]: at["kafka_offset"] for partition, at in found}

    assert await told() == {1: 5}
    epoch = (await connect.item("s")).offsets_epoch
    absent = {**place, "partition": {"kafka_topic": "nope", "kafka_partition": 1}}
    await connect.refused(400, "PATCH /connectors/s/offsets", {"offsets": [absent]})
    assert (await connect.item("s")).offsets_epoch == epoch > 0
    await connect.done("DELETE /connectors/s/offsets")
    assert await told() == {0: None, 1: None}
