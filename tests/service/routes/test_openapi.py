"""The OpenAPI document says of every route what the table says, and what was promised before."""

from pathlib import Path
from typing import Any

from service.registry import bodies as schemas
from service.routes.table import ROUTES
from tests.fuzz.deployment import Deployment

CONTRACT = Path(__file__).with_name("contract.txt")
"""What clients rely on. A line may be added; one that changes or goes breaks somebody."""


def document() -> dict[str, Any]:
    found: dict[str, Any] = Deployment().app.fastapi.openapi()
    return found


def contract(document: dict[str, Any]) -> list[str]:
    """Return each operation with its id, and below it its parameters, body and answers."""
    return [
        line
        for path, operations in sorted(document["paths"].items())
        for method, operation in sorted(operations.items())
        for line in [f"{method.upper()} {path} {operation['operationId']}", *_facts(operation)]
    ]


def _facts(operation: dict[str, Any]) -> list[str]:
    facts = [
        f"  {each['in']} {each['name']}{' required' if each['required'] else ''}"
        for each in operation.get("parameters", ())
    ]
    if "requestBody" in operation:
        body = operation["requestBody"]
        required = "required" if body["required"] else ""
        facts.append(" ".join(["  body", *sorted(body["content"]), required]).rstrip())
    for status, answer in sorted(operation["responses"].items()):
        told = codes(answer) if int(status) >= 400 else sorted(answer.get("content", ()))
        facts.append(" ".join(["  " + status, *told]))
    return facts


def codes(answer: dict[str, Any]) -> list[str]:
    [(media_type, content)] = answer["content"].items()
    if media_type == schemas.MEDIA_TYPE:
        return ["as Confluent's"]
    if content["schema"].get("$ref", "").endswith("/ConnectProblem"):
        return ["as Kafka Connect's"]
    assert media_type == "application/problem+json"
    found: list[str] = content["schema"]["allOf"][1]["properties"]["code"]["enum"]
    return found


def references(part: Any) -> set[str]:
    match part:
        case dict():
            inner = set().union(*map(references, part.values()))
            return inner | {part["$ref"]} if isinstance(part.get("$ref"), str) else inner
        case list():
            return set().union(*map(references, part))
        case _:
            return set()


def test_what_clients_rely_on_is_still_there() -> None:
    assert contract(document()) == CONTRACT.read_text().splitlines()


def test_the_document_has_every_route_and_no_other() -> None:
    paths = document()["paths"]
    found = {(method.upper(), path) for path, operations in paths.items() for method in operations}
    assert found == {(route.method, route.path) for route in ROUTES}


def test_everything_that_is_referred_to_is_there_and_nothing_else() -> None:
    made = document()
    schemas = made["components"]["schemas"]
    assert references(made) == {f"#/components/schemas/{name}" for name in schemas}


def test_every_operation_says_what_it_does() -> None:
    for operations in document()["paths"].values():
        for operation in operations.values():
            assert operation["summary"]
            assert operation["description"].endswith(".")
