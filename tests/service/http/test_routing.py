"""Paths are split, then decoded; what they find is served, and the rest is refused clearly."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from service.http.methods import is_head
from service.http.problems import response_to
from service.http.requests import QUERY
from service.http.routing import ROUTE, Router, Served, direct
from storage.errors import RiachoError

pytestmark = pytest.mark.anyio


async def echo(request: Request) -> JSONResponse:
    """Say what was understood."""
    return JSONResponse(
        {
            "method": request.method,
            "route": request.scope[ROUTE],
            "names": request.path_params,
            "query": request.scope[QUERY],
            "is_head": is_head(request),
        }
    )


async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError(scope)


ROUTER = Router(
    [
        Served("GET", "/v1/groups", direct(echo)),
        Served("GET", "/v1/groups/{group}", direct(echo), ("topic",)),
        Served("DELETE", "/v1/groups/{group}", direct(echo)),
        Served("POST", "/v1/groups/{group}/members/{member}/poll", direct(echo)),
    ],
    nothing,
)


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    try:
        await ROUTER(scope, receive, send)
    except (RiachoError, HTTPException) as error:
        await response_to(error, "id")(scope, receive, send)


async def call(method: str, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://riacho") as client:
        return await client.request(method, path)


async def asked(path: str) -> Any:
    """Return what a host understands that gives the path only decoded."""
    sent: list[Mapping[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError

    scope = {"type": "http", "method": "GET", "path": path, "raw_path": None, "headers": []}
    await app(scope, receive, send)
    return httpx.Response(sent[0]["status"], content=sent[1]["body"]).json()


@pytest.mark.parametrize(
    ("encoded", "name"),
    [
        ("g", "g"),
        ("a%2Fb", "a/b"),
        ("%2F", "/"),
        ("..%2F..", "../.."),
        ("a%252Fb", "a%2Fb"),
        ("gr%C3%BCn", "grün"),
        ("a+b", "a+b"),
        ("100%25", "100%"),
        ("%zz", "%zz"),
        ("a%00b", "a\0b"),
    ],
)
async def test_a_name_is_one_part_of_the_path_decoded_once(encoded: str, name: str) -> None:
    found = (await call("GET", f"/v1/groups/{encoded}")).json()
    assert found["names"] == {"group": name}
    assert found["route"] == "/v1/groups/{group}"


async def test_a_route_may_have_several_names_and_knows_its_query() -> None:
    found = (await call("POST", "/v1/groups/a%2Fb/members/m%2F1/poll")).json()
    assert found["names"] == {"group": "a/b", "member": "m/1"}
    assert (await call("GET", "/v1/groups/g")).json()["query"] == ["topic"]
    assert (await call("DELETE", "/v1/groups/g")).json()["query"] == []


async def test_letters_of_a_route_may_be_encoded_but_not_its_slashes() -> None:
    assert (await call("GET", "/%76%31/%67roups")).json()["route"] == "/v1/groups"
    assert (await call("GET", "/v1%2Fgroups")).status_code == 404


@pytest.mark.parametrize("path", ["/v1/groups/%FF", "/v1/groups/a%C3", "/%ED%A0%80"])
async def test_a_part_that_is_not_utf_8_is_refused(path: str) -> None:
    refused = await call("GET", path)
    assert refused.status_code == 400
    assert refused.json()["code"] == "INVALID_REQUEST"
    assert path in refused.json()["detail"]


async def test_a_path_that_the_host_has_decoded_is_not_decoded_again() -> None:
    assert (await asked("/v1/groups/a%2Fb"))["names"] == {"group": "a%2Fb"}
    assert (await asked("/v1/groups/a/b"))["code"] == "NOT_FOUND"


@pytest.mark.parametrize(
    "path",
    ["/", "/v1", "/v1/nothing", "/v1/groups/g/h", "/v1/groups//members/m/poll", "//v1/groups"],
)
async def test_a_path_without_a_route_is_not_found(path: str) -> None:
    found = await call("GET", f"http://riacho{path}")
    assert (found.status_code, found.json()["code"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/v1/groups/", "/v1/groups"),
        ("/v1/groups//?topic=t", "/v1/groups?topic=t"),
        ("/v1/groups/a%2Fb%25/", "/v1/groups/a%2Fb%25"),
    ],
)
async def test_a_slash_at_the_end_is_redirected(path: str, location: str) -> None:
    found = await call("GET", path)
    assert (found.status_code, found.headers["location"]) == (307, location)


async def test_head_is_get_without_the_body() -> None:
    found = await call("HEAD", "/v1/groups/g")
    assert (found.status_code, found.content) == (200, b"")
    assert int(found.headers["content-length"]) > 0


async def test_other_methods_are_answered_with_those_there_are() -> None:
    refused = await call("PATCH", "/v1/groups/g")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, DELETE, HEAD")
    asked = await call("OPTIONS", "/v1/groups/g")
    assert (asked.status_code, asked.headers["allow"]) == (204, "GET, DELETE, HEAD")
    refused = await call("HEAD", "/v1/groups/g/members/m/poll")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


def test_two_routes_that_could_be_confused_are_a_mistake() -> None:
    for other in ("/v1/{kind}", "/v1/groups"):
        with pytest.raises(AssertionError):
            Router(
                [Served("GET", "/v1/groups", direct(echo)), Served("GET", other, direct(echo))],
                nothing,
            )
