"""Generated requests to a closed gateway: nobody gets in without a credential of their own."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import httpx
import pytest
import schemathesis
from hypothesis import given
from hypothesis.errors import Unsatisfiable
from schemathesis import Case
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.routes.table import ROUTES
from tests.fuzz.cases import cases
from tests.integration import secured
from tests.integration.processes import TIMEOUT_S, embedded

CHECKS: list[CheckFunction] = [
    not_a_server_error,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
CLOSED = [(route.method, route.path) for route in ROUTES if not route.needs.is_open]
OPEN = {(route.method, route.path) for route in ROUTES if route.needs.is_open}


@dataclass(frozen=True)
class Deployed:
    url: str
    document: schemathesis.BaseSchema
    root: str
    weak: str
    """The key of one that no ACL allows anything."""


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    folder = tmp_path_factory.mktemp("closed")
    (folder / "data").mkdir()
    root = secured.super_key(folder / "data")
    # A generated wait may be any number of milliseconds. Every test here is a failed login.
    env = {
        **secured.CLOSED,
        "RIACHO_WAIT_MS_MAX": "20",
        "RIACHO_LOGINS_FAILED_MAX": "1000000",
        "RIACHO_LOGINS_FAILED_PER_PEER_MAX": "1000000",
    }
    with embedded(folder).start(env=env) as gateway, secured.client(gateway.url, root) as client:
        assert client.post("/v1/topics", json={"name": "known"}).status_code == 201
        weak = secured.new_key(client, "User:weak")
        answer = client.get("/openapi.json")
        assert answer.status_code == 200
        document = schemathesis.openapi.from_dict(answer.json())
        document.config.update(base_url=gateway.url)
        yield Deployed(gateway.url, document, root, weak)


def test_the_document_says_what_takes_a_credential(deployed: Deployed) -> None:
    raw = deployed.document.raw_schema
    assert set(raw["components"]["securitySchemes"]) == {"bearer", "basic", "mutualTLS"}
    for path, operations in raw["paths"].items():
        for method, operation in operations.items():
            is_open = (method.upper(), path) in OPEN
            assert operation["security"] == (
                [] if is_open else [{"bearer": []}, {"basic": []}, {"mutualTLS": []}]
            )
            assert ("401" in operation["responses"]) is not is_open


@pytest.mark.parametrize(("method", "path"), CLOSED, ids=str)
def test_a_request_without_a_credential_is_refused_before_it_is_looked_at(
    deployed: Deployed, method: str, path: str
) -> None:
    operation = deployed.document[path][method]

    @cases(4)
    @given(operation.as_strategy())
    def holds(case: Case) -> None:
        case.headers.pop("authorization", None)
        for headers in ({}, {"authorization": "Bearer rk_a_b_c"}, {"authorization": "Basic YTpi"}):
            response = case.call(timeout=TIMEOUT_S, headers=headers)
            assert response.status_code in {400, 401}, response.text
            if response.status_code == 400:
                assert "UTF-8" in response.text, response.text
        case.validate_response(response, checks=CHECKS)

    with suppress(Unsatisfiable):
        holds()


@pytest.mark.parametrize(("method", "path"), CLOSED, ids=str)
def test_whoever_may_do_nothing_does_nothing(deployed: Deployed, method: str, path: str) -> None:
    operation = deployed.document[path][method]
    state = topics(deployed)

    @cases(4)
    @given(operation.as_strategy())
    def holds(case: Case) -> None:
        if "topic" in case.path_parameters:
            case.path_parameters["topic"] = "known"
        headers = {"authorization": f"Bearer {deployed.weak}"}
        response = case.call(timeout=TIMEOUT_S, headers=headers)
        case.validate_response(response, checks=[*CHECKS, ignored_auth], headers=headers)
        if "topic" in case.path_parameters:
            assert response.status_code in {400, 403}, response.text

    with suppress(Unsatisfiable):
        holds()
    assert topics(deployed) == state


def topics(deployed: Deployed) -> object:
    headers = {"authorization": f"Bearer {deployed.root}"}
    found = httpx.get(f"{deployed.url}/v1/topics", headers=headers, timeout=TIMEOUT_S)
    partitions = httpx.get(
        f"{deployed.url}/v1/topics/known/partitions", headers=headers, timeout=TIMEOUT_S
    )
    return found.json(), partitions.json()
