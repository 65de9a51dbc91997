"""Schemas that are made to cost: refused, or compared, in few steps and little memory.

What bounds the time is counted, not measured: values, references, checks in place, states of
patterns, and steps of a comparison. Only the memory is measured.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.registry.formats.form import form_of
from service.registry.formats.json_schema import pairs
from storage.schemas.json_schema import limits, reading
from storage.schemas.source import InvalidSchema, SchemaType
from tests.examples import some
from tests.fuzz.memory import taken_bytes

JSON = form_of(SchemaType.JSON)
MEMORY_MAX = 64 * 1024 * 1024


def text_of(schema: Any) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema)


def chain(length: int, link: Callable[[Any], Any], leaf: Any = True) -> dict[str, Any]:
    """Return definitions of which each uses the next one as `link` says."""
    links = {f"a{n}": link({"$ref": f"#/definitions/a{n + 1}"}) for n in range(length)}
    return {"$ref": "#/definitions/a0", "definitions": {**links, f"a{length}": leaf}}


def in_each_other(before: str, after: str, depth: int) -> str:
    return before * depth + "{}" + after * depth


REFUSED = {
    "10,000 schemas in each other": (in_each_other('{"not":', "}", 10_000), "at most 100 deep"),
    "10,000 arrays in each other": (
        '{"enum":[' + "[" * 10_000 + "]" * 10_001 + "}",
        "at most 100 deep",
    ),
    "many values": ('{"enum":[' + "[]," * 340_000 + "[]]}", "at most 50,000 values"),
    "a long chain": (chain(6_000, lambda ref: {"items": ref}), "at most 5,000 `\\$ref`s"),
    "a long chain in place": (chain(4_000, lambda ref: ref), "at most 2,000 schemas may look"),
    "2^30 alternatives": (chain(30, lambda ref: {"anyOf": [ref, ref]}), "at most 2,000 schemas"),
    "2^30 at once": (
        chain(30, lambda ref: {"allOf": [ref, {"not": ref}]}),
        "at most 2,000 schemas",
    ),
    "2^30 dependencies": (
        chain(30, lambda ref: {"dependencies": {"a": ref, "b": ref}}),
        "at most 2,000",
    ),
    "two that are each other": (
        chain(2, lambda ref: {"oneOf": [ref]}, {"$ref": "#/definitions/a0"}),
        "is a loop",
    ),
    "repetitions of repetitions": ({"pattern": "((a{100}){100}){100}"}, "at most 100,000 states"),
    "hidden in a class": ({"pattern": "[(]" * 300 + r"(\p{L}[(]){900}"}, "at most 100,000 states"),
    "many patterns": (
        {"patternProperties": {"(a{90}){90}" + "b" * n: {} for n in range(20)}},
        "at most 100,000 states",
    ),
    "a long alternative": (
        {"pattern": "|".join("a" * 50 + str(n) for n in range(1_800))},
        "not a schema",
    ),
    "groups in each other": ({"pattern": "(" * 5_000 + ")" * 5_000}, "not a schema"),
    "an exponent": ('{"maximum": 1e99999999999999999999}', "exponent that is too large"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bomb_is_refused_with_the_reason(name: str) -> None:
    schema, reason = REFUSED[name]
    text = text_of(schema)

    def parse() -> None:
        with pytest.raises(InvalidSchema, match=reason):
            JSON.parse(text, [])

    assert taken_bytes(parse) < MEMORY_MAX


def alternatives(count: int, name: str) -> dict[str, Any]:
    return {"oneOf": [{"properties": {f"{name}{n}": {}}, "required": ["x"]} for n in range(count)]}


def mutual(last: int) -> dict[str, Any]:
    """Return definitions of which each may be any of all."""
    return {
        "$ref": "#/definitions/a0",
        "definitions": {
            f"a{n}": {"oneOf": [_one_of_all(n, m, last) for m in range(30)]} for n in range(30)
        },
    }


def _one_of_all(one: int, other: int, last: int) -> dict[str, Any]:
    kind = last if (one, other) == (29, 29) else one * other
    return {"properties": {"next": {"$ref": f"#/definitions/a{other}"}, "kind": {"const": kind}}}


COMPARED = {
    "10,000 digits": ('{"maximum":' + "9" * 10_000 + "}", '{"maximum":' + "9" * 9_999 + "}"),
    "exponents": ('{"multipleOf":1e-99999999}', '{"multipleOf":1e99999999}'),
    "one long chain": (chain(4_000, lambda ref: {"items": ref}),) * 2,
    "two long chains": tuple(
        chain(4_000, lambda ref: {"items": ref}, {"type": t}) for t in ("null", "string")
    ),
    "3^60 ways": tuple(
        chain(60, lambda ref: {"properties": dict.fromkeys("abc", ref)}, {"type": t})
        for t in ("null", "string")
    ),
    "1,500 alternatives": (alternatives(1_500, "a"), alternatives(1_501, "a")),
    "3,000 properties": tuple(
        {"properties": {f"p{n}": {"type": t} for n in range(3_000)}} for t in ("null", "string")
    ),
}


@pytest.mark.parametrize("name", COMPARED)
def test_what_looks_hard_is_compared_in_few_steps(name: str) -> None:
    one, other = (JSON.parse(text_of(schema), []) for schema in COMPARED[name])

    assert taken_bytes(lambda: one.unreadable(other)) < MEMORY_MAX
    assert len(one.unreadable(other)) <= pairs.FOUND_MAX


TOO_MANY = {
    "1,000 other alternatives": (alternatives(1_000, "a"), alternatives(1_000, "b")),
    "30 × 30 that are each other": (mutual(0), mutual(1)),
    "patterns for properties": (
        {"patternProperties": {f"^p{n}": {} for n in range(2_000)}, "additionalProperties": False},
        {"properties": {f"q{n}": {} for n in range(2_000)}},
    ),
    "objects to choose from": ({"enum": [{"a": n} for n in range(9_000)]}, {"enum": [{"a": 1}]}),
}


@pytest.mark.parametrize("name", TOO_MANY)
def test_what_is_hard_is_refused(name: str) -> None:
    one, other = (JSON.parse(text_of(schema), []) for schema in TOO_MANY[name])

    def compare() -> None:
        with pytest.raises(InvalidSchema, match="steps to compare"):
            one.unreadable(other)

    assert taken_bytes(compare) < MEMORY_MAX


def test_the_limits_are_those_of_the_documents() -> None:
    assert (reading.DEPTH_MAX, reading.VALUES_MAX) == (100, 50_000)
    assert (limits.REFERENCES_MAX, limits.CHECKS_MAX) == (5_000, 2_000)
    assert pairs.STEPS_MAX == 20_000


KEYWORDS = st.sampled_from(
    [
        "$ref",
        "$id",
        "$schema",
        "$anchor",
        "type",
        "properties",
        "items",
        "allOf",
        "anyOf",
        "not",
        "enum",
        "const",
        "required",
        "dependencies",
        "patternProperties",
        "additionalProperties",
        "pattern",
        "maximum",
        "minLength",
        "multipleOf",
        "definitions",
        "if",
        "prefixItems",
        "a",
    ]
)
WORDS = st.sampled_from(["#", "#/", "#/a", "#/properties/a", "string", "a", "(", "^a", "http://e"])
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYWORDS | WORDS, inner, max_size=5)
    ),
    max_leaves=25,
)


@some
@given(ANY, ANY)
def test_whatever_looks_like_a_schema_is_one_or_is_refused(one: Any, other: Any) -> None:
    try:
        schemas = [JSON.parse(json.dumps(value), []) for value in (one, other)]
    except InvalidSchema:
        return
    assert schemas[0].unreadable(schemas[0]) == []
    assert isinstance(schemas[0].unreadable(schemas[1]), list)
