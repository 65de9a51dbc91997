"""How the client authenticates: not at all, by token, or by a signature."""

import asyncio

import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from riacho.http.credentials import auth_of, client_headers
from riacho.http.gateway import Gateway
from storage.errors import InvalidConfig

API = "https://a1.execute-api.eu-central-1.amazonaws.com"
FUNCTION = "https://abc.lambda-url.eu-central-1.on.aws"


def sent(
    url: str, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], **request: object
) -> httpx.Request:
    """Return a request as it is sent."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={})

    async def send() -> None:
        gateway = Gateway(url, transport=httpx.MockTransport(answer))
        await gateway.request("POST", "/v1/topics/a%20b/records", **request)  # type: ignore[arg-type]
        await gateway.close()

    asyncio.run(send())
    [only] = seen
    return only


def test_without_settings_no_credentials_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "authorization" not in sent(API, monkeypatch, {}).headers


def test_a_token_is_sent_as_a_bearer_header(monkeypatch: pytest.MonkeyPatch) -> None:
    request = sent(API, monkeypatch, {"RIACHO_TOKEN": "secret"})

    assert request.headers["authorization"] == "Bearer secret"


AWS = {
    "RIACHO_AUTH": "aws",
    "AWS_ACCESS_KEY_ID": "AKID",
    "AWS_SECRET_ACCESS_KEY": "hush",
    "AWS_SESSION_TOKEN": "session",
    "AWS_REGION": "eu-central-1",
}


@pytest.mark.parametrize(("url", "service"), [(API, "execute-api"), (FUNCTION, "lambda")])
def test_the_signature_covers_the_request_as_sent(
    url: str, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = {"at": "2026-01-01T00:00:00Z", "x": "a b,c"}
    request = sent(url, monkeypatch, AWS, json={"records": []}, params=params)

    # Like AWS, sign the received request with the same secret, and compare.
    expected = AWSRequest(
        "POST", f"{url}/v1/topics/a%20b/records", data=request.content, params=params
    )
    names = request.headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    for name in names:
        expected.headers[name] = request.headers[name]
    expected.context["timestamp"] = request.headers["x-amz-date"]
    signer = SigV4Auth(Credentials("AKID", "hush", "session"), service, "eu-central-1")
    text = signer.string_to_sign(expected, signer.canonical_request(expected))
    assert {"host", "x-amz-date", "x-amz-security-token", "content-type"} <= set(names)
    assert request.headers["authorization"].endswith(signer.signature(text, expected))


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"RIACHO_AUTH": "basic"}, "aws:lambda"),
        ({"RIACHO_AUTH": "aws:s3"}, "aws:lambda"),
        ({"RIACHO_AUTH": "aws", "RIACHO_TOKEN": "x"}, "exclude"),
    ],
)
def test_unknown_settings_are_refused(environment: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        auth_of(API, environment)


def test_missing_credentials_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    nowhere = {"AWS_CONFIG_FILE": "/nowhere", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere"}
    given = {"RIACHO_AUTH": "aws", "AWS_EC2_METADATA_DISABLED": "true", **nowhere}

    with pytest.raises(InvalidConfig, match="no credentials"):
        sent(API, monkeypatch, given)


def test_a_program_may_have_a_name_for_quotas() -> None:
    assert client_headers({}) == {}
    assert client_headers({"RIACHO_CLIENT_ID": "etl"}) == {"riacho-client-id": "etl"}
    with pytest.raises(InvalidConfig):
        client_headers({"RIACHO_CLIENT_ID": "a\nb"})
