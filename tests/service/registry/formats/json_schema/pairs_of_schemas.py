"""Pairs of schemas, and which rules are broken from the first to the second, and back."""

from typing import Any, NamedTuple

D2020 = "https://json-schema.org/draft/2020-12/schema"
D4 = "http://json-schema.org/draft-04/schema#"


class Change(NamedTuple):
    one: Any
    other: Any
    there: set[str]
    """Rules with paths that are broken if the first writes, and the second reads."""
    back: set[str]


def limits(kind: str, keyword: str, rule: str, less: int = 3, more: int = 5) -> list[Change]:
    """Return the changes of an upper limit, or of a lower one whose rules say so."""

    def of(**keywords: Any) -> dict[str, Any]:
        return {"type": kind, **keywords}

    at = f"#/{keyword}"
    is_lower = "min" in keyword.lower()
    smaller, larger = of(**{keyword: less}), of(**{keyword: more})
    raised = {f"{rule}_INCREASED {at}"} if is_lower else set()
    lowered = set() if is_lower else {f"{rule}_DECREASED {at}"}
    return [
        Change(of(), smaller, {f"{rule}_ADDED {at}"}, set()),
        Change(smaller, larger, raised, lowered),
        Change(smaller, smaller, set(), set()),
    ]


def contains(**keywords: Any) -> dict[str, Any]:
    return {"$schema": D2020, "type": "array", "contains": {"type": "string"}, **keywords}


def closed(**properties: Any) -> dict[str, Any]:
    return {"properties": properties, "additionalProperties": False}


def partly(**properties: Any) -> dict[str, Any]:
    return {"properties": properties, "additionalProperties": {"type": "string"}}


def newer(**keywords: Any) -> dict[str, Any]:
    return {"$schema": D2020, **keywords}


S, N, INT = {"type": "string"}, {"type": "number"}, {"type": "integer"}
AB = {"a": S, "b": S}
ITEM = "#/items/1"
BAR = "#/properties/b"

LIMITS = [
    *limits("string", "maxLength", "MAX_LENGTH"),
    *limits("string", "minLength", "MIN_LENGTH"),
    *limits("number", "maximum", "MAXIMUM"),
    *limits("number", "minimum", "MINIMUM"),
    *limits("integer", "exclusiveMaximum", "EXCLUSIVE_MAXIMUM"),
    *limits("integer", "exclusiveMinimum", "EXCLUSIVE_MINIMUM"),
    *limits("object", "maxProperties", "MAX_PROPERTIES"),
    *limits("object", "minProperties", "MIN_PROPERTIES"),
    *limits("array", "maxItems", "MAX_ITEMS"),
    *limits("array", "minItems", "MIN_ITEMS"),
    Change(
        contains(maxContains=2),
        contains(maxContains=3),
        set(),
        {"MAX_CONTAINS_DECREASED #/maxContains"},
    ),
    Change(contains(), contains(maxContains=3), {"MAX_CONTAINS_ADDED #/maxContains"}, set()),
    Change(contains(), contains(minContains=3), {"MIN_CONTAINS_INCREASED #/minContains"}, set()),
    Change(newer(type="array"), contains(), {"MIN_CONTAINS_ADDED #/minContains"}, set()),
]

VALUES = [
    Change(S, N, {"TYPE_CHANGED #/"}, {"TYPE_CHANGED #/"}),
    Change(N, INT, {"TYPE_NARROWED #/"}, set()),
    Change(S, {}, set(), {"TYPE_CHANGED #/"}),
    Change(False, S, set(), {"TYPE_CHANGED #/"}),
    Change(True, {"title": "all"}, set(), set()),
    Change({"type": "null"}, {"type": "boolean"}, {"TYPE_CHANGED #/"}, {"TYPE_CHANGED #/"}),
    Change({**S, "connect.type": "bytes"}, {**N, "connect.type": "bytes"}, set(), set()),
    Change(S, {**S, "pattern": "^a"}, {"PATTERN_ADDED #/pattern"}, set()),
    Change(
        {**S, "pattern": "^a"},
        {**S, "pattern": "^b"},
        {"PATTERN_CHANGED #/pattern"},
        {"PATTERN_CHANGED #/pattern"},
    ),
    Change(S, {**S, "format": "date"}, set(), set()),
    Change(N, {**N, "multipleOf": 2}, {"MULTIPLE_OF_ADDED #/multipleOf"}, set()),
    Change(
        {**N, "multipleOf": 2}, {**N, "multipleOf": 6}, {"MULTIPLE_OF_EXPANDED #/multipleOf"}, set()
    ),
    Change(
        {**N, "multipleOf": 4},
        {**N, "multipleOf": 6},
        {"MULTIPLE_OF_CHANGED #/multipleOf"},
        {"MULTIPLE_OF_CHANGED #/multipleOf"},
    ),
    Change({**N, "multipleOf": 0.5}, {**N, "multipleOf": 0.50}, set(), set()),
    Change({"enum": [1, "a"]}, {"enum": [1.0, "a", None]}, set(), {"ENUM_ARRAY_NARROWED #/enum"}),
    Change(
        {"enum": [1]},
        {"enum": [True]},
        {"ENUM_ARRAY_CHANGED #/enum"},
        {"ENUM_ARRAY_CHANGED #/enum"},
    ),
    Change(
        {"const": 1}, {"const": 2}, {"ENUM_ARRAY_CHANGED #/const"}, {"ENUM_ARRAY_CHANGED #/const"}
    ),
    Change({"const": {"a": [1]}}, {"const": {"a": [1.0]}}, set(), set()),
    Change({"not": INT}, {"not": N}, {"NOT_TYPE_EXTENDED #/not"}, set()),
    Change(
        {"$schema": D4, **N, "maximum": 3},
        {"$schema": D4, **N, "maximum": 3, "exclusiveMaximum": True},
        {"EXCLUSIVE_MAXIMUM_ADDED #/exclusiveMaximum"},
        set(),
    ),
    Change(
        {"$schema": D4, **N, "minimum": 3, "exclusiveMinimum": True},
        {"$schema": D4, **N, "minimum": 2, "exclusiveMinimum": True},
        set(),
        {"MINIMUM_INCREASED #/minimum", "EXCLUSIVE_MINIMUM_INCREASED #/exclusiveMinimum"},
    ),
    Change({"if": S, "then": S}, {"if": S, "then": N}, set(), set()),
]

OBJECTS = [
    Change(
        {"properties": {"a": S}},
        {"properties": {"a": S}, "required": ["a"]},
        {"REQUIRED_ATTRIBUTE_ADDED #/required/a"},
        set(),
    ),
    Change(
        {"properties": {"a": {**S, "default": ""}}},
        {"properties": {"a": {**S, "default": ""}}, "required": ["a"]},
        set(),
        set(),
    ),
    Change(
        {"properties": {"a": S}},
        {"properties": AB},
        {f"OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL {BAR}"},
        set(),
    ),
    Change({"properties": {"a": S}}, {"properties": {"a": S, "b": True}}, set(), set()),
    Change(
        {"properties": {"a": S}},
        {"properties": AB, "required": ["b"]},
        {f"REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL {BAR}"},
        set(),
    ),
    Change(
        {"properties": {"a": S}},
        {"properties": {"a": S, "b": {**S, "default": ""}}, "required": ["b"]},
        {f"REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL {BAR}"},
        set(),
    ),
    Change(closed(a=S), closed(**AB), set(), {f"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL {BAR}"}),
    Change(closed(a=S), closed(a=S, b=False), set(), set()),
    Change(
        closed(a=S),
        {**closed(**AB), "required": ["b"]},
        {f"REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL {BAR}"},
        {f"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL {BAR}"},
    ),
    Change(
        closed(a=S),
        {**closed(a=S, b={**S, "default": ""}), "required": ["b"]},
        set(),
        {f"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL {BAR}"},
    ),
    Change(partly(a=S), partly(**AB), set(), set()),
    Change(
        partly(a=S),
        partly(a=S, b=N),
        {
            f"TYPE_CHANGED {BAR}",
            f"PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL {BAR}",
        },
        {
            f"TYPE_CHANGED {BAR}",
            f"PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL {BAR}",
        },
    ),
    Change(
        {**closed(a=S), "patternProperties": {"^b": S}},
        {**closed(**AB), "patternProperties": {"^b": S}},
        set(),
        set(),
    ),
    Change(closed(), {}, set(), {"TYPE_CHANGED #/"}),
    Change(
        closed(),
        {"properties": {}},
        set(),
        {"ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"},
    ),
    Change(
        partly(),
        {"properties": {}},
        set(),
        {"ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties"},
    ),
    Change(
        {"additionalProperties": S},
        {"additionalProperties": N},
        {"TYPE_CHANGED #/additionalProperties"},
        {"TYPE_CHANGED #/additionalProperties"},
    ),
    Change(
        newer(type="object", unevaluatedProperties=False),
        newer(type="object"),
        set(),
        {"UNEVALUATED_PROPERTIES_REMOVED #/unevaluatedProperties"},
    ),
    Change(
        newer(type="object", unevaluatedProperties=S),
        newer(type="object"),
        set(),
        {"UNEVALUATED_PROPERTIES_NARROWED #/unevaluatedProperties"},
    ),
    Change(
        newer(properties={"a": S}, unevaluatedProperties=False),
        newer(properties=AB, unevaluatedProperties=False),
        set(),
        {f"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL {BAR}"},
    ),
    Change(
        {"type": "object"},
        {"type": "object", "dependencies": {"a": ["b"]}},
        {"DEPENDENCY_ARRAY_ADDED #/dependencies/a"},
        set(),
    ),
    Change(
        {"dependencies": {"a": ["b"]}},
        {"dependencies": {"a": ["b", "c"]}},
        {"DEPENDENCY_ARRAY_EXTENDED #/dependencies/a"},
        set(),
    ),
    Change(
        {"dependencies": {"a": ["b"]}},
        {"dependencies": {"a": ["c"]}},
        {"DEPENDENCY_ARRAY_CHANGED #/dependencies/a"},
        {"DEPENDENCY_ARRAY_CHANGED #/dependencies/a"},
    ),
    Change(
        {"type": "object"},
        {"type": "object", "dependencies": {"a": S}},
        {"DEPENDENCY_SCHEMA_ADDED #/dependencies/a"},
        set(),
    ),
    Change(
        {"dependencies": {"a": N}},
        {"dependencies": {"a": INT}},
        {"TYPE_NARROWED #/dependencies/a"},
        set(),
    ),
    Change(
        newer(type="object"),
        newer(type="object", dependentRequired={"a": ["b"]}),
        {"DEPENDENCY_ARRAY_ADDED #/dependencies/a"},
        set(),
    ),
    Change(
        newer(type="object"),
        newer(type="object", dependentSchemas={"a": S}),
        {"DEPENDENCY_SCHEMA_ADDED #/dependencies/a"},
        set(),
    ),
]

ARRAYS = [
    Change({"type": "array"}, {"type": "array", "items": S}, {"SCHEMA_ADDED #/items"}, set()),
    Change({"items": N}, {"items": INT}, {"TYPE_NARROWED #/items"}, set()),
    Change(
        {"type": "array"},
        {"type": "array", "uniqueItems": True},
        {"UNIQUE_ITEMS_ADDED #/uniqueItems"},
        set(),
    ),
    Change({"items": [S]}, {"items": [S, N]}, {f"ITEM_ADDED_TO_OPEN_CONTENT_MODEL {ITEM}"}, set()),
    Change({"items": [S]}, {"items": [S, True]}, set(), set()),
    Change({"items": [S]}, {"items": [N]}, {"TYPE_CHANGED #/items/0"}, {"TYPE_CHANGED #/items/0"}),
    Change(
        {"items": [S], "additionalItems": False},
        {"items": [S, N], "additionalItems": False},
        set(),
        {f"ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL {ITEM}"},
    ),
    Change(
        {"items": [S], "additionalItems": False},
        {"items": [S, False], "additionalItems": False},
        set(),
        set(),
    ),
    Change(
        {"items": [S], "additionalItems": S}, {"items": [S, S], "additionalItems": S}, set(), set()
    ),
    Change(
        {"items": [S], "additionalItems": S},
        {"items": [S, N], "additionalItems": S},
        {f"TYPE_CHANGED {ITEM}", f"ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL {ITEM}"},
        {
            f"TYPE_CHANGED {ITEM}",
            f"ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL {ITEM}",
        },
    ),
    Change(
        {"items": [S], "additionalItems": False},
        {"items": [S]},
        set(),
        {"ADDITIONAL_ITEMS_REMOVED #/additionalItems"},
    ),
    Change(
        {"items": [S], "additionalItems": N},
        {"items": [S]},
        set(),
        {"ADDITIONAL_ITEMS_NARROWED #/additionalItems"},
    ),
    Change(
        newer(prefixItems=[S]),
        newer(prefixItems=[S, N]),
        {f"ITEM_ADDED_TO_OPEN_CONTENT_MODEL {ITEM}"},
        set(),
    ),
    Change(
        newer(prefixItems=[S], items=False),
        newer(prefixItems=[S]),
        set(),
        {"ADDITIONAL_ITEMS_REMOVED #/additionalItems"},
    ),
    Change(newer(items=N), newer(items=INT), {"TYPE_NARROWED #/items"}, set()),
    Change(
        newer(type="array", unevaluatedItems=False),
        newer(type="array"),
        set(),
        {"UNEVALUATED_ITEMS_REMOVED #/unevaluatedItems"},
    ),
    Change(
        newer(type="array", unevaluatedItems=S),
        newer(type="array"),
        set(),
        {"UNEVALUATED_ITEMS_NARROWED #/unevaluatedItems"},
    ),
]

COMBINED = [
    Change({"oneOf": [S]}, {"oneOf": [N, S]}, set(), {"SUM_TYPE_NARROWED #/"}),
    Change({"allOf": [S, {"minLength": 1}]}, {"allOf": [S]}, set(), {"PRODUCT_TYPE_EXTENDED #/"}),
    Change({"anyOf": [S, N]}, {"anyOf": [N, S]}, set(), set()),
    Change({"anyOf": [S, S]}, {"anyOf": [S]}, set(), set()),
    Change(
        {"anyOf": [S, N]},
        {"anyOf": [S, {"type": "null"}]},
        {"COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"},
        {"COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"},
    ),
    Change({"oneOf": [S, N]}, {"anyOf": [S, N]}, set(), {"COMBINED_TYPE_CHANGED #/"}),
    Change({"allOf": [S]}, {"oneOf": [N, S]}, set(), {"COMBINED_TYPE_CHANGED #/"}),
    Change(S, {"type": ["string", "null"]}, set(), {"TYPE_CHANGED #/"}),
    Change({"type": ["string"]}, {"type": ["string", "null"]}, set(), {"SUM_TYPE_NARROWED #/"}),
    Change(S, {"oneOf": [{"type": "null"}, S]}, set(), {"TYPE_CHANGED #/"}),
    Change(S, {"allOf": [S]}, set(), set()),
    Change(S, {**S, "enum": ["a"]}, {"TYPE_CHANGED #/"}, set()),
    Change(
        {**S, "enum": ["a"]},
        {**S, "enum": ["a", "b"]},
        set(),
        {"COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"},
    ),
    # Only one matching takes all: the number has to leave the place that the integer needs.
    Change(
        {"anyOf": [N, INT]},
        {"anyOf": [{**N, "title": "1"}, {**N, "title": "2"}]},
        set(),
        {"COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"},
    ),
    Change({"anyOf": [INT, N]}, {"anyOf": [N, INT]}, set(), set()),
]


def tree(leaf: Any, name: str = "n") -> dict[str, Any]:
    node = {"properties": {"leaf": leaf, "next": {"$ref": f"#/definitions/{name}"}}}
    return {"$ref": f"#/definitions/{name}", "definitions": {name: node}}


RECURSIVE = [
    Change(tree(S), tree(S, "other"), set(), set()),
    Change(tree(N), tree(INT), {"TYPE_NARROWED #/properties/leaf"}, set()),
    Change(
        {"type": "array", "items": {"$ref": "#"}},
        {"items": {"type": "array", "items": {"$ref": "#"}}},
        set(),
        set(),
    ),
    Change(S, {"$ref": "#/definitions/s", "definitions": {"s": S}}, set(), set()),
    # The pair of the two roots is met below itself, in one alternative of two.
    Change(
        {"oneOf": [{"properties": {"a": {"$ref": "#"}, "b": N}, "additionalProperties": False}, S]},
        {
            "oneOf": [
                {"properties": {"a": {"$ref": "#"}, "b": INT}, "additionalProperties": False},
                S,
            ]
        },
        {"COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"},
        set(),
    ),
]

CHANGES = [*LIMITS, *VALUES, *OBJECTS, *ARRAYS, *COMBINED, *RECURSIVE]
