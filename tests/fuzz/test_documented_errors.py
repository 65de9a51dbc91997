"""Every error that the OpenAPI document promises can be got, and no other is known to us."""

from collections.abc import Iterator

import pytest

from service.http.problems import RETRY_AFTER_S, UNKNOWN, status_of
from storage.errors import RiachoError
from tests.fuzz import recipes, refusals
from tests.fuzz.deployment import Deployment
from tests.fuzz.good_requests import GOOD, Operation
from tests.fuzz.reaching import reached
from tests.fuzz.recipes import Recipe

pytestmark = pytest.mark.anyio

RECIPES = {**recipes.GENERAL, **recipes.MISSING, **refusals.ALL}
WITHOUT_WAIT = {"CONCURRENT_COMMITS"}
"""Who only lost a race may try again at once."""


def every_kind(root: type[RiachoError] = RiachoError) -> Iterator[type[RiachoError]]:
    yield from root.__subclasses__()
    for kind in root.__subclasses__():
        yield from every_kind(kind)


KINDS = {kind.code: kind for kind in every_kind()}


def promised() -> set[tuple[Operation, int, str]]:
    """Return what the document promises: operation, status and code."""
    return {
        ((method.upper(), path), int(status), code)
        for path, operations in Deployment().app.fastapi.openapi()["paths"].items()
        for method, operation in operations.items()
        for status, told in operation["responses"].items()
        if int(status) >= 400
        for code in _codes(told)
    }


def _codes(told: dict) -> list[str]:
    [content] = told["content"].items()
    media_type, described = content
    assert media_type == "application/problem+json"
    codes: list[str] = described["schema"]["properties"]["code"]["enum"]
    return codes


def _status(code: str) -> int:
    return 500 if code == UNKNOWN else int(status_of(KINDS[code]))


def test_the_table_has_what_the_document_promises_and_nothing_else() -> None:
    assert promised() == {(operation, _status(code), code) for operation, code in RECIPES}


def test_there_is_a_good_request_for_every_operation() -> None:
    paths = Deployment().app.fastapi.openapi()["paths"]
    assert GOOD.keys() == {(m.upper(), path) for path, found in paths.items() for m in found}


@pytest.mark.parametrize("operation", GOOD, ids=" ".join)
async def test_a_good_request_is_granted(operation: Operation) -> None:
    response = await reached(operation, Recipe())

    assert response.is_success, response.text


@pytest.mark.parametrize(
    ("operation", "code"), RECIPES, ids=[f"{' '.join(op)} {code}" for op, code in RECIPES]
)
async def test_a_promised_error_is_reached(operation: Operation, code: str) -> None:
    response = await reached(operation, RECIPES[operation, code])

    problem = response.json()
    assert (response.status_code, problem["code"]) == (_status(code), code), problem
    assert response.headers["content-type"] == "application/problem+json"
    assert problem["type"] == "/problems/" + code.lower().replace("_", "-")
    assert problem["status"] == response.status_code
    assert problem["title"]
    assert problem["request_id"] == response.headers["x-request-id"]
    assert len(problem["detail"]) > len(problem["title"]), "it says what is wrong"
    kind = KINDS.get(code)
    assert problem["retryable"] is (kind is not None and kind.retryable)
    assert problem["may_have_applied"] is (kind is None or kind.may_have_applied)
    wait = None if response.status_code != 503 else "0" if code in WITHOUT_WAIT else RETRY_AFTER_S
    assert response.headers.get("retry-after") == (None if wait is None else str(wait))
