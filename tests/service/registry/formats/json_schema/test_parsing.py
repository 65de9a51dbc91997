"""Text of JSON Schemas: what is stored, drafts, references, and what is refused."""

import json
from typing import Any

import pytest

from service.registry.formats.form import form_of
from storage.schemas.source import InvalidSchema, Named, SchemaType

JSON = form_of(SchemaType.JSON)

FROZEN = [
    (' { "type" : "string" } ', '{"type":"string"}', '{"type":"string"}'),
    ('{"b": 1, "a": [true, null]}', '{"b":1,"a":[true,null]}', '{"a":[true,null],"b":1}'),
    ('{"maximum": 1.0, "minimum": -1e400}',) * 1 + ('{"maximum":1.0,"minimum":-1e400}',) * 2,
    ('{"const": 12345678901234567890.10}',) * 1 + ('{"const":12345678901234567890.10}',) * 2,
    ('{"title": "\\u00e9\\n\\"/\\u0001"}',) * 1 + ('{"title":"é\\n\\"/\\u0001"}',) * 2,
    (
        '{"\uffee": 1, "\U0001f600": 2}',
        '{"\uffee":1,"\U0001f600":2}',
        '{"\U0001f600":2,"\uffee":1}',
    ),
    ("true", "true", "true"),
    ("{}", "{}", "{}"),
]


@pytest.mark.parametrize(("text", "canonical", "normalized"), FROZEN)
def test_the_text_of_a_schema_is_frozen(text: str, canonical: str, normalized: str) -> None:
    """Ids depend on it: a change here would give known schemas new ids."""
    schema = JSON.parse(text, [])

    assert schema.canonical == schema.serialized() == canonical
    assert schema.normalized == normalized
    assert JSON.parse(canonical, []).canonical == canonical


DRAFTS = {
    "http://json-schema.org/draft-04/schema#": (
        {"exclusiveMaximum": True, "maximum": 3},
        {"exclusiveMaximum": 3},
    ),
    "http://json-schema.org/draft-06/schema#": ({"const": 1}, {"exclusiveMaximum": True}),
    "http://json-schema.org/draft-07/schema": ({"if": {}}, {"if": 1}),
    "https://json-schema.org/draft/2019-09/schema": ({"minContains": 1}, {"minContains": "1"}),
    "https://json-schema.org/draft/2020-12/schema#": ({"prefixItems": [{}]}, {"prefixItems": {}}),
    "http://example.com/nobody-knows-it": ({"if": {}}, {"if": 1}),
}


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_schema_is_checked_by_the_draft_that_it_names(draft: str) -> None:
    good, bad = DRAFTS[draft]

    assert JSON.parse(json.dumps({"$schema": draft, **good}), [])
    with pytest.raises(InvalidSchema, match="not a schema of draft"):
        JSON.parse(json.dumps({"$schema": draft, **bad}), [])


REFUSED = [
    ("", "not JSON: Expecting value in line 1, column 1"),
    ("{]", "not JSON"),
    ("3", "an object, `true` or `false`"),
    ('{"maximum": NaN}', "NaN is not JSON"),
    ('{"title": "\\ud800"}', "surrogate"),
    ('{"type": "strnig"}', r"not a schema of draft 7: .*\(at #/type\)"),
    ('{"properties": {"a": {"type": 3}}}', r"\(at #/properties/a/type\)"),
    ('{"pattern": "("}', r"\(at #/pattern\)"),
    ('{"$ref": "#/definitions/a"}', "leads nowhere: there is no 'definitions'"),
    ('{"$ref": "#/title", "title": "a"}', "not a schema"),
    ('{"$ref": "#nowhere"}', "no such `\\$anchor`"),
    ('{"$ref": "#"}', "is a loop"),
    ('{"allOf": [{"anyOf": [{"$ref": "#"}]}]}', "is a loop"),
]


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_what_is_no_schema_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        JSON.parse(text, [])


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://127.0.0.1:1/schema.json",
        "http://[::1]/",
        "http://2130706433/",
        "file:///etc/passwd",
        "//localhost/x",
        "other.json",
    ],
)
def test_nothing_is_ever_fetched(url: str) -> None:
    with pytest.raises(InvalidSchema, match="nothing is fetched"):
        JSON.parse(json.dumps({"properties": {"a": {"$ref": url}}}), [])


def reads(schema: Any, references: list[Named] | None = None) -> list[str]:
    """Return the rules that are broken for an old schema of integers in `a`."""
    old = JSON.parse('{"properties": {"a": {"type": "number"}}}', [])
    return [f.kind for f in JSON.parse(json.dumps(schema), references or []).unreadable(old)]


INTEGER = {"type": "integer"}
WAYS = [
    ({"$ref": "#/definitions/i"}, {"definitions": {"i": INTEGER}}),
    ({"$ref": "#/$defs/i"}, {"$defs": {"i": INTEGER}}),
    ({"$ref": "#/definitions/a~1b~0c%25%20d"}, {"definitions": {"a/b~c% d": INTEGER}}),
    ({"$ref": "#/definitions/x/anyOf/1"}, {"definitions": {"x": {"anyOf": [{}, INTEGER]}}}),
    ({"$ref": "#i"}, {"definitions": {"x": {"$id": "#i", **INTEGER}}}),
    (
        {"$ref": "i.json"},
        {"$id": "http://e.com/x/root.json", "definitions": {"x": {"$id": "i.json", **INTEGER}}},
    ),
    (
        {"$ref": "http://e.com/x/root.json#/definitions/i"},
        {"$id": "http://e.com/x/root.json", "definitions": {"i": INTEGER}},
    ),
    (
        {"$ref": "#i"},
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$defs": {"x": {"$anchor": "i", **INTEGER}},
        },
    ),
]


@pytest.mark.parametrize(("reference", "beside"), WAYS, ids=str)
def test_a_reference_leads_to_a_part_of_the_schema(reference: Any, beside: Any) -> None:
    assert reads({"properties": {"a": reference}, **beside}) == ["TYPE_NARROWED"]


@pytest.mark.parametrize("name", ["i.json", "http://e.com/i.json", "urn:example:i", "com/acme/I"])
def test_a_reference_leads_to_a_given_schema(name: str) -> None:
    given = [Named(name, '{"definitions": {"i": {"type": "integer"}}}')]
    assert reads({"properties": {"a": {"$ref": f"{name}#/definitions/i"}}}, given) == [
        "TYPE_NARROWED"
    ]


def test_a_given_schema_refers_to_another_by_its_name() -> None:
    given = [
        Named("inner.json", '{"$id": "http://e.com/deep/inner.json", "type": "integer"}'),
        Named(
            "outer.json", '{"$id": "http://e.com/x/outer.json", "items": {"$ref": "inner.json"}}'
        ),
        Named("root.json", '{"allOf": [{"$ref": "outer.json"}]}'),
    ]
    for root in ({}, {"$id": "https://other.org/root.json"}):
        schema = {**root, "properties": {"a": {"$ref": "outer.json"}}}
        assert JSON.parse(json.dumps(schema), given)


def test_a_draft_itself_may_be_referred_to() -> None:
    schema = {"properties": {"a": {"$ref": "http://json-schema.org/draft-07/schema#"}}}
    assert JSON.parse(json.dumps(schema), [])
