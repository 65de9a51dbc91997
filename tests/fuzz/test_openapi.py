"""The gateway's answers to requests generated from the OpenAPI document conform to it."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
import schemathesis
from hypothesis import given
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.routes.table import ROUTES
from tests.fuzz.cases import cases
from tests.integration.processes import TIMEOUT_S, Api, embedded

TOPIC = GROUP = "known"
ALTERED = "altered"
"""A topic for requests that change it, so that others find the known topic unchanged."""

CHECKS: list[CheckFunction] = [
    not_a_server_error,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]

OPERATIONS = [(route.method, route.path) for route in ROUTES]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # A generated wait may be any number of milliseconds.
    env = {"RIACHO_WAIT_MS_MAX": "20"}
    with embedded(tmp_path_factory.mktemp("embedded")).start(env=env) as gateway:
        with Api(gateway.url) as api:
            api.topic(3, TOPIC)
            api.topic(3, ALTERED)
            for partition in range(3):
                api.produce(TOPIC, [{"key": "k", "value": "v"}], partition=partition)
        yield gateway.url


@pytest.fixture(scope="module")
def known(url: str) -> dict[str, str]:
    """Existing names for the parameters of a path."""
    with Api(url) as api:
        path = f"/v1/groups/{GROUP}"
        offsets = [{"topic": TOPIC, "partition": 0, "offset": 0}]
        assert api.http.post(f"{path}/offsets", json={"offsets": offsets}).status_code == 200
        body = {"topics": [TOPIC], "session_timeout_ms": 1_800_000}
        member = api.http.post(f"{path}/members", json=body).json()["member_id"]
        body = {"transactional_id": "known", "timeout_ms": 900_000}
        transaction = api.http.post("/v1/transactions", json=body).json()["transaction_id"]
    return {"topic": TOPIC, "group": GROUP, "member": member, "transaction": transaction}


@pytest.fixture(scope="module")
def document(url: str) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_url(f"{url}/openapi.json")


def test_the_served_document_names_every_operation(
    document: schemathesis.BaseSchema,
) -> None:
    found = [each.ok() for each in document.get_all_operations()]
    assert {(each.method.upper(), each.path) for each in found} == set(OPERATIONS)


@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: mode.value)
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=str)
def test_every_answer_conforms_to_the_document(
    document: schemathesis.BaseSchema,
    known: dict[str, str],
    method: str,
    path: str,
    mode: GenerationMode,
) -> None:
    operation = document[path][method]

    @cases(25)
    @given(operation.as_strategy(generation_mode=mode))
    def holds(case: Case) -> None:
        # Generated names rarely exist. To join makes a new generation: not in this group.
        if method != "DELETE" and not path.endswith("/members"):
            names = case.path_parameters.keys() & known.keys()
            if sum(len(str(case.path_parameters[name])) for name in names) % 2:
                case.path_parameters.update({name: known[name] for name in names})
                if method == "PATCH" or path.endswith("/delete-records"):
                    case.path_parameters["topic"] = ALTERED
            if isinstance(case.body, dict) and isinstance(case.body.get("generation"), int):
                case.body["generation"] = min(1, case.body["generation"])
        response = case.call(timeout=TIMEOUT_S)
        case.validate_response(response, checks=CHECKS)

    # Some operations have no input that could be invalid.
    with suppress(Unsatisfiable):
        holds()
