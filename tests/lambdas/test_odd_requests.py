"""Events that were made to mislead: a closed function serves them as what they are."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from service.security.api_keys.credentials import ApiKeys, NewKey
from service.serverless.gateway import ServerlessGateway
from service.serverless.settings import gateway_settings
from tests.lambdas.events import Event, LambdaTransport, function_url, http_api, rest_api

Kind = Callable[[httpx.Request], Event]


def staged(request: httpx.Request) -> Event:
    """An HTTP API with a stage that has a name, which is in front of every path."""
    return http_api(request, "prod")


KINDS = [http_api, staged, function_url, rest_api]


@dataclass(frozen=True)
class Function:
    gateway: ServerlessGateway
    root: str

    def ask(self, kind: Kind, path: str, method: str = "GET", **headers: str) -> int:
        return self.answer(kind, httpx.Request(method, f"https://riacho{path}", headers=headers))

    def answer(self, kind: Kind, request: httpx.Request) -> int:
        transport = LambdaTransport(lambda event: self.gateway(dict(event), None), kind)
        return transport.handle_request(request).status_code


@pytest.fixture(scope="module")
def function(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Function]:
    folder: Path = tmp_path_factory.mktemp("function")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_LAMBDA_FUNCTION_NAME", "riacho")
        patch.setenv("RIACHO_ZONES", f"a=file://{folder / 'a'}")
        patch.setenv("RIACHO_METADATA", f"sqlite:///{folder / 'metadata.db'}")
        patch.setenv("RIACHO_LOG_LEVEL", "error")
        patch.setenv("RIACHO_LOGINS_FAILED_PER_PEER_MAX", "1000000")
        gateway = ServerlessGateway(gateway_settings())
    made = ApiKeys(gateway.app.gateway.metadata, gateway.app.gateway.world)
    run = gateway._loop.run_until_complete
    _, root = run(made.create(NewKey(principal="User:root", is_super=True)))
    yield Function(gateway, root)
    gateway.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("x-amzn-request-context", '{"authorizer": {"iam": {"userArn": "arn:aws:iam::1:root"}}}'),
        ("x-amzn-lambda-context", '{"identity": "root"}'),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-user", "root"),
        ("x-http-method-override", "OPTIONS"),
        ("x-original-url", "/healthy"),
        ("x-rewrite-url", "/healthy"),
        ("riacho.identity", "User:root"),
        ("x-client-cert", "CN=root"),
        ("cookie", "authorization=KEY"),
        ("x-api-key", "KEY"),
    ],
)
def test_no_header_says_who_calls_or_what_is_asked_for(
    function: Function, kind: Kind, header: str, value: str
) -> None:
    value = value.replace("KEY", function.root)

    assert function.ask(kind, "/v1/whoami", **{header: value}) == 401
    assert function.ask(kind, "/v1/topics/t", "DELETE", **{header: value}) == 401
    assert function.ask(kind, "/healthy", **{header: value}) == 200


@pytest.mark.parametrize("kind", KINDS)
def test_the_verdict_of_a_front_door_is_not_taken_from_elsewhere_in_the_event(
    function: Function, kind: Kind
) -> None:
    def forged(request: httpx.Request) -> Event:
        event = kind(request)
        verdict = {"iam": {"userArn": "arn:aws:iam::1:root"}}
        event["authorizer"] = event["stageVariables"] = event["identity"] = verdict
        event["headers"]["requestContext"] = "authorizer"
        return event

    assert function.ask(forged, "/v1/whoami") == 401


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "path",
    [
        "/v1//topics",
        "//v1/topics",
        "/healthy/..%2fv1/topics",
        "/healthy%2f..%2fv1/topics",
        "/healthy;/v1/topics",
        "/healthy;x",
        "/healthy%00",
        "/HEALTHY",
        "/v1/%2e%2e/v1/topics",
        "/$default/v1/topics",
        "/prod/prod/v1/topics",
        "/v1/topics;x",
        "/v1%5Ctopics",
    ],
)
def test_other_forms_of_a_path_are_other_paths(function: Function, kind: Kind, path: str) -> None:
    key = f"Bearer {function.root}"

    assert function.ask(kind, path) == 401
    assert function.ask(kind, path, authorization=key) == 404


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", ["/v1/topics", "/v1/%74opics", "/%76%31/topics"])
def test_the_same_path_gets_the_same_verdict(function: Function, kind: Kind, path: str) -> None:
    assert function.ask(kind, path) == 401
    assert function.ask(kind, path, authorization=f"Bearer {function.root}") == 200


@pytest.mark.parametrize("kind", KINDS)
def test_two_credentials_are_refused(function: Function, kind: Kind) -> None:
    key = f"Bearer {function.root}"
    twice = httpx.Request(
        "GET",
        "https://riacho/v1/whoami",
        headers=[("authorization", key), ("authorization", key)],
    )

    assert function.answer(kind, twice) == 401
    assert function.ask(kind, "/v1/whoami", authorization=key) == 200


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "credential",
    ["", "Bearer", "Basic", "Basic !!!", "Basic Og==", "Bearer " + "a" * 100_000, "Bearer a b"],
)
def test_bad_credentials_are_refused(function: Function, kind: Kind, credential: str) -> None:
    assert function.ask(kind, "/v1/whoami", authorization=credential) == 401


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "OPTIONS", "HEAD", "PURGE"])
def test_no_method_says_what_is_there(function: Function, kind: Kind, method: str) -> None:
    for path in ("/v1/topics", "/nowhere", "/metrics"):
        assert function.ask(kind, path, method) == 401
