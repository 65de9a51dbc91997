"""Values against a JSON Schema: which do not fit, where and why, and how much that may take."""

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.registry.formats.json_schema.form import FORM
from storage.schemas.json_schema.values import JsonValues
from storage.schemas.refused import REASON_LENGTH_MAX, RefusedValue
from tests.examples import some
from tests.service.registry.formats.json_schema.values import SCHEMAS, VALUES


def check(schema: Any) -> JsonValues:
    parsed = FORM.parse(json.dumps(schema), [])
    return JsonValues(parsed.documents, parsed.checks)


USERS = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "tags/~": {"type": "array", "items": {"type": ["string", "null"]}},
    },
    "required": ["id"],
}


def test_one_bad_value_of_a_thousand_is_named_with_place_and_reason() -> None:
    values: list[bytes | None] = [json.dumps({"id": n}).encode() for n in range(1_000)]
    values[700] = b'{"id": 700, "tags/~": ["a", 3]}'
    values[800] = None

    assert check(USERS).validate_many(values) == [
        RefusedValue(700, "/tags~1~0/1", '3 is not of types "null", "string"')
    ]


@pytest.mark.parametrize(
    ("data", "path", "reason"),
    [
        (b"", "", "it is not JSON: Expecting value at character 0"),
        (b"{", "", "it is not JSON"),
        (b'{"id": 1}{"id": 2}', "", "it is not JSON: Extra data"),
        (b"NaN", "", "NaN is no number"),
        (b'"\xff"', "", "it is not JSON"),
        (b"[" * 100_000, "", "it is nested too deep"),
        (b'{"id": ' + b"[" * 400 + b"]" * 400 + b"}", "", "it does not fit its schema"),
        (b'{"id": 1.5}', "/id", '1.5 is not of type "integer"'),
        (b"{}", "", '"id" is a required property'),
    ],
)
def test_a_value_that_does_not_fit_has_a_reason(data: bytes, path: str, reason: str) -> None:
    [refused] = check(USERS).validate_many([data])

    assert refused.index == 0
    assert refused.path == path
    assert reason in refused.reason
    assert len(refused.reason) < REASON_LENGTH_MAX + 100


@pytest.mark.parametrize("number", ["1e400", "123456789012345678901234567890", "-0", "1.0"])
def test_numbers_of_any_size_are_numbers(number: str) -> None:
    assert check({"type": "number"}).validate_many([number.encode()]) == []
    assert check({"maximum": 5, "minimum": -1e300}).validate_many([number.encode()]) == (
        [] if len(number) < 5 else check({"maximum": 5}).validate_many([number.encode()])
    )


def test_the_same_number_twice_is_the_last_one() -> None:
    assert check(USERS).validate_many([b'{"id": "a", "id": 1}']) == []


def test_alternatives_in_alternatives_are_not_all_explained() -> None:
    """Each of the alternatives has reasons of its own: 2,000 of them here, for each item."""
    kinds = [{"type": "object", "required": [f"a{n}"]} for n in range(900)]
    values = check({"items": {"anyOf": kinds}})
    data = json.dumps([{}] * 2_000).encode()

    assert values.validate_many([data]) == [RefusedValue(0, "", "it does not fit its schema")]


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"^(?=a)(a|aa)+$", r"(a*)*b", r"^(a|a)*\1$"])
def test_a_catastrophic_pattern_takes_bounded_time(pattern: str) -> None:
    """The test ends: with an engine that tries all ways, it would not."""
    values = check({"pattern": pattern, "type": "string"})
    data = json.dumps("a" * 50_000 + "!").encode()

    assert [refused.index for refused in values.validate_many([data])] == [0]


def test_recursion_that_multiplies_takes_bounded_time() -> None:
    """The test ends: 2^100 ways lead to the innermost value, and each has a reason."""
    again = {"properties": {"a": {"$ref": "#"}}}
    values = check({"type": "object", "anyOf": [again, {"title": "other", **again}]})
    data = b'{"a":' * 100 + b"1" + b"}" * 100

    assert [refused.index for refused in values.validate_many([data])] == [0]


@some
@given(SCHEMAS, st.lists(VALUES, max_size=20))
def test_the_verdict_is_that_of_the_library(schema: Any, values: list[Any]) -> None:
    library = jsonschema_rs.Draft7Validator(schema)

    refused = check(schema).validate_many([json.dumps(value).encode() for value in values])

    expected = [n for n, value in enumerate(values) if not library.is_valid(value)]
    assert [each.index for each in refused] == expected
    assert all(each.reason for each in refused)
