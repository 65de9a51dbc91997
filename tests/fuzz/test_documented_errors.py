"""Every error that the table of routes promises can be got, and no other is known to us."""

from collections.abc import Iterator

import pytest

from service.http.problems import RETRY_AFTER_S, UNKNOWN, status_of
from service.routes.table import ROUTES
from storage.errors import RiachoError
from tests.fuzz import recipes, refusals
from tests.fuzz.good_requests import GOOD, Operation
from tests.fuzz.reaching import reached
from tests.fuzz.recipes import Recipe

pytestmark = pytest.mark.anyio

RECIPES = {**recipes.GENERAL, **recipes.MISSING, **refusals.ALL}
WITHOUT_WAIT = {"CONCURRENT_COMMITS"}
"""Errors of lost races may be retried at once."""


def every_kind(root: type[RiachoError] = RiachoError) -> Iterator[type[RiachoError]]:
    yield from root.__subclasses__()
    for kind in root.__subclasses__():
        yield from every_kind(kind)


KINDS = {kind.code: kind for kind in every_kind() if "code" in vars(kind)}
"""By code. Those that share the code of another kind need more than one request."""


def promised() -> set[tuple[Operation, str]]:
    """Return what the table of routes promises: operation and code."""
    codes = {((each.method, each.path), kind.code) for each in ROUTES for kind in each.errors}
    return codes | {((each.method, each.path), UNKNOWN) for each in ROUTES if each.errors}


def _status(code: str) -> int:
    return 500 if code == UNKNOWN else int(status_of(KINDS[code]))


def test_there_is_a_recipe_for_what_is_promised_and_nothing_else() -> None:
    assert promised() == RECIPES.keys()


def test_there_is_a_good_request_for_every_operation() -> None:
    assert GOOD.keys() == {(each.method, each.path) for each in ROUTES}


@pytest.mark.parametrize("operation", GOOD, ids=" ".join)
async def test_a_good_request_succeeds(operation: Operation) -> None:
    response = await reached(operation, Recipe())

    assert response.is_success, response.text


@pytest.mark.parametrize(
    ("operation", "code"), RECIPES, ids=[f"{' '.join(op)} {code}" for op, code in RECIPES]
)
async def test_a_documented_error_is_reached_by_its_recipe(operation: Operation, code: str) -> None:
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
