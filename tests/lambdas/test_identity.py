"""Who calls is what the front door says, and nothing that a client can write."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from service.security.oidc.claims import named_by
from service.serverless.gateway import ServerlessGateway
from service.serverless.identity import FromAdapter, NameOfClaims, identity_of
from service.serverless.settings import gateway_settings
from service.settings import Settings
from tests.lambdas.events import Event, LambdaTransport, function_url, http_api, rest_api

ROLE = "arn:aws:sts::123456789012:assumed-role/writer/i-0a1b2c"
USER = "arn:aws:iam::123456789012:user/ana"

Context = dict[str, Any]


def by(claim: str) -> NameOfClaims:
    return named_by(Settings(jwt_principal_claim=claim))


BY_SUB = by("sub")


def iam(arn: str) -> Context:
    """Of an HTTP API, or of a Function URL, when it has verified a signature."""
    return {
        "accountId": "123456789012",
        "authorizer": {
            "iam": {
                "accessKey": "AKIA",
                "accountId": "123456789012",
                "callerId": "AIDA",
                "cognitoIdentity": None,
                "principalOrgId": "o-1",
                "userArn": arn,
                "userId": "AIDA",
            }
        },
        "http": {"method": "GET", "path": "/"},
    }


@pytest.mark.parametrize(
    ("arn", "principal", "detail"),
    [
        (USER, f"User:{USER}", ""),
        (ROLE, "User:arn:aws:iam::123456789012:role/writer", "i-0a1b2c"),
        (
            "arn:aws-cn:sts::123456789012:assumed-role/writer/ana@example.org",
            "User:arn:aws-cn:iam::123456789012:role/writer",
            "ana@example.org",
        ),
        (
            "arn:aws:sts::123456789012:federated-user/ana",
            "User:arn:aws:sts::123456789012:federated-user/ana",
            "",
        ),
        ("arn:aws:iam::123456789012:root", "User:arn:aws:iam::123456789012:root", ""),
    ],
)
def test_a_signature_names_a_user_or_a_role(arn: str, principal: str, detail: str) -> None:
    rest = {"identity": {"sourceIp": "192.0.2.1", "userArn": arn, "user": "AIDA"}}
    for context in (iam(arn), rest):
        found = identity_of(context, BY_SUB)
        assert (found.principal, found.detail) == (principal, detail)


def test_a_token_names_a_principal_by_the_claim_that_was_chosen() -> None:
    claims = {"sub": "ana", "client_id": "billing", "exp": "1767225600"}
    context = {"authorizer": {"jwt": {"claims": claims, "scopes": None}}}

    assert identity_of(context, BY_SUB).principal == "User:ana"
    assert identity_of(context, by("client_id")).principal == "User:billing"
    assert identity_of(context, by("email")).principal == ""
    scoped = Settings(jwt_required_scope="riacho")
    assert identity_of(context, named_by(scoped)).principal == ""


@pytest.mark.parametrize("place", ["authentication", "identity"])
def test_a_certificate_is_handed_on_for_its_rules(place: str) -> None:
    subject = "CN=ana,O=Example"
    scope: Scope = {"type": "http"}

    identity_of({place: {"clientCert": {"subjectDN": subject}}}, BY_SUB).put_into(scope)

    assert scope["extensions"]["tls"]["client_cert_name"] == subject
    assert "riacho.identity" not in scope


@pytest.mark.parametrize(
    "context",
    [
        None,
        [],
        "User:root",
        {},
        {"authorizer": None},
        {"authorizer": {"iam": None, "jwt": None}},
        {"authorizer": {"iam": {"userArn": ["arn"]}}},
        {"authorizer": {"iam": {"userArn": "line\nbreak"}}},
        {"authorizer": {"iam": {"userArn": "x" * 2000}}},
        {"authorizer": {"jwt": {"claims": {"sub": 7}}}},
        {"authorizer": {"lambda": {"userArn": USER}}, "identity": {"userArn": None}},
        {"authentication": None, "identity": {"clientCert": {}}},
    ],
)
def test_whoever_is_not_named_is_nobody(context: object) -> None:
    scope: Scope = {"type": "http"}

    identity_of(context, BY_SUB).put_into(scope)

    assert scope == {"type": "http"}


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with what an application would learn of its caller."""
    told = {name: value for name, value in scope.items() if name.startswith("riacho.")}
    request = Request(scope, receive)
    told["headers"] = request.headers.getlist("x-amzn-request-context")
    await JSONResponse(told)(scope, receive, send)


async def seen(headers: list[tuple[str, str]], *, is_believed: bool = True) -> Any:
    app = FromAdapter(echo, is_believed=is_believed, name_of=BY_SUB)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://riacho") as client:
        return (await client.get("/", headers=headers)).json()


NOBODY = {"headers": []}
Kind = Callable[[httpx.Request], Event]
HEADER = "X-Amzn-Request-Context"


@pytest.mark.anyio
async def test_the_adapter_says_who_calls_where_it_is_believed() -> None:
    header = (HEADER, json.dumps(iam(ROLE)))

    assert await seen([header]) == {
        "riacho.identity": "User:arn:aws:iam::123456789012:role/writer",
        "riacho.identity_detail": "i-0a1b2c",
        "headers": [],
    }
    assert await seen([header], is_believed=False) == NOBODY


@pytest.mark.anyio
async def test_a_header_of_the_client_beside_the_adapters_makes_both_worthless() -> None:
    forged, true = (HEADER, json.dumps(iam(USER))), (HEADER, json.dumps(iam(ROLE)))

    assert await seen([forged, true]) == NOBODY
    assert await seen([true, forged]) == NOBODY


@pytest.mark.anyio
@pytest.mark.parametrize(
    "value", ["", "null", "[]", "{", "[" * 10_000, json.dumps({"x": "y" * 70_000})]
)
async def test_what_the_adapter_would_not_send_names_nobody(value: str) -> None:
    assert await seen([(HEADER, value)]) == NOBODY


@pytest.fixture(scope="module")
def function() -> Iterator[ServerlessGateway]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_LAMBDA_FUNCTION_NAME", "riacho")
        patch.setenv("RIACHO_ZONES", "a=memory://")
        patch.setenv("RIACHO_METADATA", "memory://")
        patch.setenv("RIACHO_LOG_LEVEL", "error")
        patch.setenv("RIACHO_SUPER_USERS", "User:arn:aws:iam::123456789012:role/writer")
        serverless = ServerlessGateway(gateway_settings())
    yield serverless
    serverless.close()


def calling(function: ServerlessGateway, kind: Kind, context: Context) -> httpx.Client:
    """Return a client whose events say in their context who calls."""

    def event(request: httpx.Request) -> Event:
        made = kind(request)
        for name, value in context.items():
            made["requestContext"][name] = {**made["requestContext"].get(name, {}), **value}
        return made

    def invoke(event: Any) -> Any:
        return function(event, None)

    return httpx.Client(transport=LambdaTransport(invoke, event), base_url="https://riacho")


@pytest.mark.parametrize(
    ("kind", "context"),
    [
        (http_api, {"authorizer": {"iam": {"userArn": ROLE}}}),
        (function_url, {"authorizer": {"iam": {"userArn": ROLE}}}),
        (rest_api, {"identity": {"userArn": ROLE}}),
    ],
)
def test_a_role_that_is_a_super_user_may_do_everything(
    function: ServerlessGateway, kind: Kind, context: Context
) -> None:
    with calling(function, kind, context) as client:
        found = client.get("/v1/whoami").json()
        assert found["principal"] == "User:arn:aws:iam::123456789012:role/writer"
        assert (found["super"], found["door"]) == (True, "iam")
        assert found["credential"] == "iam/i-0a1b2c"
        name = kind.__name__.replace("_", "-")
        assert client.post("/v1/topics", json={"name": name}).status_code == 201


def test_others_have_a_name_and_no_rights(function: ServerlessGateway) -> None:
    for context, principal in (
        ({"authorizer": {"iam": {"userArn": USER}}}, f"User:{USER}"),
        ({"authorizer": {"jwt": {"claims": {"sub": "ana"}}}}, "User:ana"),
        ({"authentication": {"clientCert": {"subjectDN": "CN=ana"}}}, "User:CN=ana"),
    ):
        with calling(function, http_api, context) as client:
            assert client.get("/v1/whoami").json()["principal"] == principal
            assert client.post("/v1/topics", json={"name": "mine"}).status_code == 403


@pytest.mark.parametrize("kind", [http_api, function_url, rest_api])
def test_headers_of_clients_say_nothing(function: ServerlessGateway, kind: Kind) -> None:
    forged = {
        HEADER: json.dumps(iam(ROLE)),
        "x-amzn-lambda-context": json.dumps({"identity": {"userArn": ROLE}}),
        "x-amz-user-arn": ROLE,
        "riacho.identity": ROLE,
        "x-forwarded-user": "root",
    }
    with calling(function, kind, {}) as client:
        answer = client.get("/v1/whoami", headers=forged)
        assert (answer.status_code, answer.json()["code"]) == (401, "SASL_AUTHENTICATION_FAILED")
