"""Every operation for every kind of caller, on every host, against a table that is made by hand."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest

from service.log.gateway import Gateway
from service.routes.table import PAGES, ROUTES
from service.security.api_keys.credentials import ApiKeys, NewKey
from service.security.api_keys.scopes import KeyScope
from service.security.api_keys.tokens import key_text
from service.serverless.gateway import ServerlessGateway
from service.serverless.settings import gateway_settings
from service.world.clock import World
from storage.stores.metadata import Put
from storage.stores.sqlite.table import SqliteMetadata
from tests.fuzz import good_requests
from tests.fuzz.good_requests import TOPIC, Operation, Request
from tests.lambdas.events import LambdaTransport, function_url, http_api, rest_api
from tests.security.callers import BAD, GOOD
from tests.security.rights import ANY, EACH, OPEN, RIGHTS, missing
from tests.security.secured import SEEN_S, Secured, world_on
from tests.storage.helpers.worlds import Clock

KEY: Final = "/v1/keys/{key}"
ACL: Final = {
    "resource_type": "TOPIC",
    "resource_name": "t",
    "principal": "User:new",
    "operation": "READ",
}
REQUESTS: Final[dict[Operation, Request]] = {
    **good_requests.GOOD,
    ("POST", f"{good_requests.GROUP}/reset"): Request(
        path={"group": "empty"}, json={"to": "earliest", "topics": ["t"]}
    ),
    ("GET", "/v1/whoami"): Request(),
    ("GET", "/v1/keys"): Request(),
    ("POST", "/v1/keys"): Request(json={"principal": "User:somebody"}),
    ("GET", KEY): Request(),
    ("DELETE", KEY): Request(),
    ("POST", f"{KEY}/rotate"): Request(json={}),
    ("GET", "/v1/acls"): Request(),
    ("POST", "/v1/acls"): Request(json=ACL),
    ("DELETE", "/v1/acls"): Request(params={"principal": "User:new"}),
    ("GET", "/v1/acls/check"): Request(
        params={
            "principal": "User:ana",
            "operation": "READ",
            "resource_type": "TOPIC",
            "resource_name": "t",
        }
    ),
    ("GET", "/v1/quotas"): Request(),
    ("PUT", "/v1/quotas"): Request(json={"user": "ana", "request_percentage": 50}),
    ("GET", f"{TOPIC}/partitions/{{partition}}/segments/{{range}}"): Request(
        path={"range": "0-1-2"}
    ),
    **{("GET", page): Request() for page in PAGES},
}

Create = Callable[..., Awaitable[tuple[Any, str]]]


@dataclass
class Host:
    """Something that serves requests, and the store that it shares with the test."""

    ask: Callable[..., httpx.Response]
    run: Callable[[Any], Any]
    gateway: Gateway
    clock: Clock

    @property
    def keys(self) -> ApiKeys:
        return ApiKeys(self.gateway.metadata, self.gateway.world)

    def key(self, principal: str, **fields: Any) -> tuple[Any, str]:
        """Return a new key and its text."""
        scope = fields.pop("scope", None)
        if scope is not None:
            fields["scope"] = msgspec.convert(scope, KeyScope)
        return self.run(self.keys.create(NewKey(principal=principal, **fields)))  # type: ignore[no-any-return]

    def done(self, token: str, method: str, path: str, **request: Any) -> Any:
        headers = {**request.pop("headers", {}), "authorization": f"Bearer {token}"}
        answer = self.ask(method, path, headers=headers, **request)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None


class _AsRoot:
    """What `good_requests.furnish` takes for a deployment."""

    def __init__(self, host: Host, token: str) -> None:
        self._host, self._token = host, token
        self.gateway = self

    async def locate(self, *place: Any) -> Any:
        return self._host.run(self._host.gateway.locate(*place))

    async def put(self, key: str, value: bytes) -> None:
        self._host.run(self._host.gateway.metadata.transact([Put(key, value, None)]))

    async def done(self, method: str, path: str, **request: Any) -> Any:
        return self._host.done(self._token, method, path, **request)


def _in_process(keks: Path, tmp: Path | None) -> Iterator[Host]:
    """A gateway in this process, on memory or on SQLite."""
    with asyncio.Runner() as runner:

        async def start() -> Secured:
            table = None
            if tmp is not None:
                table = SqliteMetadata(tmp / "metadata.db", world_on(Clock(), 2).new_version)
            return Secured(table=table, kek_files=keks, connect_files=keks)

        deployed = runner.run(start())
        client = deployed.client(None)

        def ask(method: str, path: str, **request: Any) -> httpx.Response:
            return runner.run(client.request(method, path, **request))

        yield Host(ask, runner.run, deployed.apps[0].gateway, deployed.clock)
        runner.run(deployed.aclose())


def _in_lambda(keks: Path) -> Iterator[Host]:
    """A gateway behind Mangum; the events of three front doors take turns."""
    clock = Clock()
    world: World = world_on(clock)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_LAMBDA_FUNCTION_NAME", "riacho")
        patch.setenv("RIACHO_ZONES", "a=memory://")
        patch.setenv("RIACHO_METADATA", "memory://")
        patch.setenv("RIACHO_LOG_LEVEL", "error")
        patch.setenv("RIACHO_KEK_FILES", str(keks))
        patch.setenv("RIACHO_CONNECT_FILES", str(keks))
        patch.setenv("RIACHO_LOGINS_FAILED_MAX", "1000000")
        patch.setenv("RIACHO_LOGINS_FAILED_PER_PEER_MAX", "1000000")
        function = ServerlessGateway(gateway_settings(), world)
    transport = LambdaTransport(
        lambda event: function(dict(event), None), http_api, function_url, rest_api
    )
    with httpx.Client(transport=transport, base_url="https://riacho") as client:
        run = function._loop.run_until_complete
        yield Host(client.request, run, function.app.gateway, clock)
    function.close()


@pytest.fixture(scope="module", params=["memory", "sqlite", "lambda"])
def host(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    keks = tmp_path_factory.mktemp("keks")
    keks.joinpath("kek").write_bytes(bytes(32))
    match request.param:
        case "lambda":
            yield from _in_lambda(keks)
        case "sqlite":
            yield from _in_process(keks, tmp_path_factory.mktemp("matrix"))
        case _:
            yield from _in_process(keks, None)


@pytest.fixture(scope="module")
def root(host: Host) -> str:
    _, text = host.key("User:root", is_super=True)
    return text


@pytest.fixture(scope="module")
def names(host: Host, root: str) -> dict[str, Any]:
    """What the requests name: it is there, so that a refusal tells nothing of it."""
    deployment: Any = _AsRoot(host, root)
    found: dict[str, Any] = {}
    try:
        good_requests.furnish(deployment).send(
            None
        )  # It waits for nothing: each call is done at once.
    except StopIteration as end:
        found = end.value
    key, _ = host.key("User:somebody")
    return {**found, "key": key.key_id, "data_key": "1"}


@pytest.fixture(scope="module")
def holders(host: Host, root: str) -> dict[str, str]:
    """By caller: the text of its key."""
    texts = {}
    for name, holder in GOOD.items():
        principal = f"User:{name}"
        acls = [
            {
                "resource_type": right.split()[0],
                "resource_name": "kafka-cluster" if right.startswith("CLUSTER") else "*",
                "principal": principal,
                "operation": right.split()[1],
            }
            for right in holder.acls
        ]
        if holder.pattern:
            changed = {"resource_name": holder.pattern["name"]}
            acls = [{**a, **changed, "pattern_type": holder.pattern["pattern"]} for a in acls]
        if acls:
            host.done(root, "POST", "/v1/acls", json={"acls": acls})
        _, texts[name] = host.key(principal, **holder.key)
    host.clock.now_s += SEEN_S
    return texts


@pytest.fixture(scope="module")
def strangers(host: Host) -> dict[str, str | None]:
    """By bad caller: its Authorization header. All were, or look like, keys of super users."""
    _, expired = host.key("User:root", is_super=True, expires_ms=host.clock.now_ms() + 1000)
    revoked, revoked_text = host.key("User:root", is_super=True)
    _, orphan = host.key("User:root", is_super=True, parent_id=revoked.key_id)
    host.run(host.keys.revoke(revoked.key_id))
    rotated, old = host.key("User:root", is_super=True)
    _, new = host.run(host.keys.rotate(rotated.key_id, 0))
    _, other = host.key("User:root", is_super=True)
    id_of, secret_of = new.split("_")[1], other.split("_")[2]
    host.clock.now_s += SEEN_S
    last = "0" if new[-1] != "0" else "1"
    found = {
        "none": None,
        "wrong": f"Bearer {key_text(id_of, secret_of)}",
        "mistyped": f"Bearer {new[:-1]}{last}",
        "expired": f"Bearer {expired}",
        "revoked": f"Bearer {revoked_text}",
        "rotated away": f"Bearer {old}",
        "child of a revoked key": f"Bearer {orphan}",
        "empty": "Bearer ",
        "another scheme": f"Digest {new}",
    }
    assert tuple(found) == BAD
    return found


def asked(
    host: Host, operation: Operation, names: dict[str, Any], header: str | None
) -> httpx.Response:
    method, template = operation
    request = REQUESTS[operation]
    headers = (
        {**request.headers} if header is None else {**request.headers, "authorization": header}
    )
    given: dict[str, Any] = {"params": request.params, "headers": headers}
    if request.content is not None:
        given["content"] = request.content
    elif request.json is not None or method in {"POST", "PUT", "PATCH"}:
        given["json"] = {} if request.json is None else request.json
    return host.ask(method, template.format(**{**names, **request.path}), **given)


_OF_REGISTRY: Final = {
    40101: "SASL_AUTHENTICATION_FAILED",
    40301: "CLUSTER_AUTHORIZATION_FAILED",
    # As of a subject that does not exist.
    40401: "SUBJECT_AUTHORIZATION_FAILED",
}


def refusal(answer: httpx.Response) -> str:
    """Return the code of an error; calls of the registry have other codes."""
    problem = answer.json()
    if problem.get("error_code") == 401:
        return "SASL_AUTHENTICATION_FAILED"
    if problem.get("error_code") == 403:
        kind = "CONNECTOR" if " connector " in problem["message"] else "CLUSTER"
        return f"{kind}_AUTHORIZATION_FAILED"
    if "error_code" in problem:
        return _OF_REGISTRY.get(problem["error_code"], "")
    return str(problem["code"])


def test_every_route_has_a_row_and_a_request() -> None:
    routes = {(route.method, route.path) for route in ROUTES} | {("GET", page) for page in PAGES}
    assert RIGHTS.keys() == routes
    assert routes <= REQUESTS.keys()


@pytest.mark.parametrize("caller", BAD)
def test_a_stranger_is_refused_everything(
    host: Host, names: dict[str, Any], strangers: dict[str, str | None], caller: str
) -> None:
    for operation, needed in RIGHTS.items():
        answer = asked(host, operation, names, strangers[caller])
        if needed == OPEN:
            assert answer.status_code == 200, (operation, answer.text)
            continue
        assert answer.status_code == 401, (operation, answer.text)
        assert refusal(answer) == "SASL_AUTHENTICATION_FAILED"
        assert "Bearer" in answer.headers["www-authenticate"]


# A super user deletes, so it comes last.
@pytest.mark.parametrize("caller", GOOD)
def test_a_caller_may_do_what_its_rights_say(
    host: Host, names: dict[str, Any], holders: dict[str, str], root: str, caller: str
) -> None:
    held = frozenset(GOOD[caller].holds)
    wrong = []
    for operation, needed in RIGHTS.items():
        answer = asked(host, operation, names, f"Bearer {holders[caller]}")
        lacking = missing(needed, held)
        code = refusal(answer) if answer.status_code in {401, 403, 404} else ""
        if answer.status_code >= 500 and answer.status_code != 501:
            wrong.append((operation, answer.text))
        if lacking and not (
            answer.status_code == (404 if lacking == {"SUBJECT"} else 403)
            and code in {f"{kind}_AUTHORIZATION_FAILED" for kind in lacking}
        ):
            wrong.append((operation, f"wanted 403 of {lacking}, not {answer.text[:200]}"))
        if not lacking and answer.status_code in {401, 403}:
            wrong.append((operation, f"wanted to be let in, not {answer.text[:200]}"))
    assert wrong == []


@pytest.mark.parametrize("caller", GOOD)
def test_parts_and_lists_are_refused_and_filtered_one_by_one(
    host: Host, names: dict[str, Any], holders: dict[str, str], caller: str
) -> None:
    held = frozenset(GOOD[caller].holds)
    is_tenant = "name_prefix" in GOOD[caller].key

    def answer(operation: Operation) -> Any:
        return asked(host, operation, names, f"Bearer {holders[caller]}").json()

    [part] = answer(("POST", "/v1/fetch"))["partitions"]
    if "TOPIC READ" in held:
        assert part.get("error", {}).get("code") in {None, "UNKNOWN_TOPIC_OR_PARTITION"}
    else:
        assert part["error"]["code"] == "TOPIC_AUTHORIZATION_FAILED"
    for what, kind in (("topics", "TOPIC"), ("groups", "GROUP")):
        found = answer(("GET", f"/v1/{what}"))[what]
        if is_tenant:
            # Of what was made here, it sees what it has made itself.
            assert {each.get("name", each.get("group")) for each in found} <= {"new", "g", "empty"}
        elif f"{kind} DESCRIBE" not in held:
            assert found == []
    if "CLUSTER DESCRIBE" not in held:
        keys = answer(("GET", "/v1/keys"))["keys"]
        assert {key["principal"] for key in keys} <= {f"User:{caller}"}


def test_a_refusal_says_nothing_of_what_is_there(
    host: Host, names: dict[str, Any], holders: dict[str, str]
) -> None:
    """What is there and what is not are answered by the same bytes, but for the names."""
    for operation, needed in RIGHTS.items():
        _, template = operation
        if "{" not in template or needed in (OPEN, ANY, EACH):
            continue
        absent = {
            "topic": "absent",
            "partition": 0,
            "group": "absent",
            "member": "absent",
            "transaction": "absent.1.0",
            "key": "0" * 16,
            "data_key": "9",
            "subject": "absent",
            "version": "9",
            "context": ".absent",
            "connector": "absent",
            "task": "9",
            "plugin": "Absent",
            "logger": "absent",
        }
        request = REQUESTS[operation]
        there = asked(host, operation, {**names, **request.path}, f"Bearer {holders['nothing']}")
        if "group" in request.path:
            continue  # The path of the request wins.
        gone = asked(host, operation, absent, f"Bearer {holders['nothing']}")

        def told(answer: httpx.Response, used: dict[str, Any]) -> str:
            text = answer.text.replace(answer.headers["x-request-id"], "")
            for name in sorted(map(str, used.values()), key=len, reverse=True):
                text = text.replace(f"'{name}'", "''").replace(f"'{name.rsplit('.', 2)[0]}'", "''")
            return text

        hidden = 404 if needed.startswith("SUBJECT") else 403
        assert there.status_code == gone.status_code == hidden, operation
        assert told(there, names) == told(gone, absent), operation
