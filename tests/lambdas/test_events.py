"""Events of every front door become the requests that were made."""

import gzip
import json
from collections.abc import Callable, Iterator

import httpx
import pytest

from service.serverless.events import ANSWER_BYTES_MAX
from service.serverless.gateway import ServerlessGateway
from service.serverless.settings import gateway_settings
from tests.integration.processes import ARROW, SSE, arrow_records, arrow_stream
from tests.lambdas.events import (
    Event,
    LambdaTransport,
    function_url,
    http_api,
    response_of,
    rest_api,
)


class Context:
    """What Lambda says of a call."""

    def get_remaining_time_in_millis(self) -> int:
        return 20_000


@pytest.fixture(scope="module")
def function() -> Iterator[ServerlessGateway]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RIACHO_ZONES", "a=memory://")
        patch.setenv("RIACHO_METADATA", "memory://")
        patch.setenv("RIACHO_LOG_LEVEL", "warning")
        serverless = ServerlessGateway(gateway_settings())
    yield serverless
    serverless.close()


Kind = Callable[[httpx.Request], Event]

KINDS: dict[str, Kind] = {
    "http api": http_api,
    "http api with a stage": lambda request: http_api(request, "prod"),
    "function url": function_url,
    "rest api": rest_api,
}


def through(function: ServerlessGateway, kind: Kind) -> httpx.Client:
    """Return a client whose requests arrive as events of `kind`."""

    def invoke(event: object) -> object:
        # As it would come out of the runtime client.
        return json.loads(json.dumps(function(json.loads(json.dumps(event)), Context())))

    return httpx.Client(transport=LambdaTransport(invoke, kind), base_url="https://riacho")


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def client(request: pytest.FixtureRequest, function: ServerlessGateway) -> Iterator[httpx.Client]:
    with through(function, request.param) as client:
        yield client


@pytest.fixture
def topic(client: httpx.Client, request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    answer = client.post(
        "/v1/topics", json={"name": name, "config": {"max.message.bytes": 8 << 20}}
    )
    assert answer.status_code == 201, answer.text
    return name


def records(topic: str) -> str:
    return f"/v1/topics/{topic}/partitions/0/records"


def test_bodies_of_text_and_of_bytes(client: httpx.Client, topic: str) -> None:
    assert (
        client.post(records(topic), json={"records": [{"value": "é\U0001f600"}]}).status_code == 200
    )
    arrow = arrow_stream({"key": [b"\xff\x00"], "value": [b"\x80"]})
    answer = client.post(records(topic), content=arrow, headers={"content-type": ARROW})
    assert answer.status_code == 200, answer.text
    body = gzip.compress(json.dumps({"records": [{"value": "zipped"}]}).encode())
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    assert client.post(records(topic), content=body, headers=headers).status_code == 200
    found = client.get(records(topic)).json()["records"]
    assert [record.get("value") for record in found] == ["é\U0001f600", None, "zipped"]
    assert found[1]["key_base64"] == "/wA="
    body = client.get(records(topic), headers={"accept": ARROW}).content
    assert [record["key"] for record in arrow_records(body)] == [None, b"\xff\x00", None]
    lines = client.get(records(topic), headers={"accept": "application/x-ndjson"}).text
    assert len(lines.splitlines()) == 3


def test_a_schema_is_registered_and_read_by_its_id(
    client: httpx.Client, request: pytest.FixtureRequest
) -> None:
    schema = json.dumps({"type": "record", "name": "R", "fields": []}, separators=(",", ":"))
    subject = f"/subjects/{request.node.callspec.id.replace(' ', '%20')}%C3%A9"
    media_type = {"content-type": "application/vnd.schemaregistry.v1+json"}
    answer = client.post(f"{subject}/versions", json={"schema": schema}, headers=media_type)
    assert (answer.status_code, answer.json()["version"]) == (200, 1), answer.text
    found = client.get(f"/schemas/ids/{answer.json()['id']}")
    assert (found.json()["schema"], found.headers["content-type"]) == (schema, *media_type.values())
    assert client.get(f"{subject}/versions", params={"deletedOnly": "true"}).status_code == 404
    assert client.delete(subject).json() == [1]


def test_large_answers_of_any_kind_are_cut(client: httpx.Client, topic: str) -> None:
    value = '"é\\' * 100_000
    for _ in range(12):
        answer = client.post(records(topic), json={"records": [{"value": value}]})
        assert answer.status_code == 200, answer.text
    offset = 0
    while offset < 12:
        answer = client.get(records(topic), params={"offset": offset, "max_bytes": 64 << 20})
        assert len(answer.content) <= ANSWER_BYTES_MAX
        assert all(record["value"] == value for record in answer.json()["records"])
        assert answer.json()["next_offset"] > offset
        offset = answer.json()["next_offset"]


def test_names_in_paths_are_decoded_once(client: httpx.Client) -> None:
    for encoded, name in {
        "a%20b": "a b",
        "gr%C3%BCn": "grün",
        "100%2525": "100%25",
        "a+b": "a+b",
        "q%3Fx": "q?x",
    }.items():
        # No topic can have such a name; what is said of it shows how it was understood.
        answer = client.get(records(encoded))
        assert repr(name) in answer.json()["detail"]


@pytest.mark.parametrize("kind", [function_url, rest_api])
def test_an_encoded_slash_is_a_part_of_a_name(function: ServerlessGateway, kind: Kind) -> None:
    with through(function, kind) as client:
        # A group may have such a name, a topic may not.
        for path, status in (
            ("/v1/groups/a%2Fb", 404),
            ("/v1/topics/a%2Fb", 400),
            (records("a%2Fb"), 400),
        ):
            answer = client.get(path)
            assert answer.status_code == status
            assert "'a/b'" in answer.json()["detail"]
        assert client.get("/v1%2Fgroups").status_code == 404
        assert client.get("/v1/groups/%FF").json()["code"] == "INVALID_REQUEST"


def test_an_http_api_does_not_tell_an_encoded_slash_from_another(
    function: ServerlessGateway,
) -> None:
    with through(function, http_api) as client:
        assert client.get("/v1%2Fgroups").json() == client.get("/v1/groups").json()


def test_queries_keep_what_is_encoded_in_them(client: httpx.Client) -> None:
    answer = client.get("/v1/groups", params={"a&b=c": "ü %"})
    assert answer.status_code == 400
    assert "'a&b=c'" in answer.json()["detail"]


def test_problems_are_readable(client: httpx.Client) -> None:
    answer = client.get(records("nobody"))
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_other_methods(client: httpx.Client, topic: str) -> None:
    head = client.head(records(topic))
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["riacho-next-offset"] == "0"
    options = client.options(records(topic))
    assert options.status_code == 204
    assert "POST" in options.headers["allow"]
    assert client.put(records(topic)).status_code == 405


def test_headers_that_come_twice_and_cookies(client: httpx.Client, topic: str) -> None:
    headers = [("accept", "text/html;q=0.1"), ("accept", ARROW), ("cookie", "a=1; b=2")]
    answer = client.get(records(topic), headers=headers)
    assert answer.headers["content-type"] == ARROW


def test_a_tail_is_an_answer_with_an_end(client: httpx.Client, topic: str) -> None:
    client.post(records(topic), json={"records": [{"value": "v"}]})
    answer = client.get(records(topic), headers={"accept": SSE})
    assert "id: 0\ndata: " in answer.text
    last = {"accept": SSE, "last-event-id": "0"}
    client.post(records(topic), json={"records": [{"value": "w"}]})
    assert "id: 1\ndata: " in client.get(records(topic), headers=last).text


def test_the_document_is_served(client: httpx.Client) -> None:
    assert client.get("/openapi.json").json()["info"]["title"] == "Riacho"
    assert client.get("/ready").status_code == 200


def test_cookies_have_a_place_of_their_own() -> None:
    from service.serverless.events import HttpEvent

    event = http_api(httpx.Request("GET", "https://riacho/"))
    config = {"api_gateway_base_path": "/", "text_mime_types": [], "exclude_headers": []}
    headers = [(b"Set-Cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"vary", b"x"), (b"vary", b"y")]
    made = HttpEvent(event, Context(), config)({"status": 200, "headers": headers, "body": b""})  # type: ignore[arg-type]
    answer = response_of(made)
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert answer.headers["vary"] == "x, y"


def test_an_answer_that_lambda_would_refuse_is_replaced() -> None:
    from service.serverless.events import HttpEvent

    event = function_url(httpx.Request("GET", "https://riacho/"))
    config = {"api_gateway_base_path": "/", "text_mime_types": [], "exclude_headers": []}
    body = b"x" * (ANSWER_BYTES_MAX + 1)
    made = HttpEvent(event, Context(), config)({"status": 200, "headers": [], "body": body})  # type: ignore[arg-type]
    assert response_of(made).json()["code"] == "UNSUPPORTED_OPERATION"


def test_a_context_may_say_nothing(function: ServerlessGateway) -> None:
    event = json.loads(json.dumps(http_api(httpx.Request("GET", "https://riacho/healthy"))))

    assert function(event, None)["statusCode"] == 200
